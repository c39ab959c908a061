"""One passage under several objectives, as a self-contained HTML page."""

import base64
import html
import os
import pathlib

import numpy as np

from jaxpt.errors import UserError
from jaxpt.files import disk
from jaxpt.report.page_style import STYLE
from jaxpt.report.passage import View
from jaxpt.report.passage_plot import COLORS, describe_costs, draw_mask, draw_views
from jaxpt.report.plots import save_figure, show_token

PAGE_STYLE = """
.legend { display: flex; flex-wrap: wrap; gap: .4rem; }
.legend i, .strips i { font-style: normal; padding: .1rem .4rem; border-radius: 4px;
  font-size: .85rem; white-space: pre; display: block; text-align: center; }
.strips { border-spacing: 3px; border-collapse: separate; margin: 0; }
.strips th, .strips td { padding: 0; border: 0; background: none; }
.strips th { font-weight: 400; color: var(--soft); padding-right: .8rem;
  text-align: left; }
.mask { image-rendering: pixelated; width: 8rem; height: auto; border-radius: 0; }
.one { display: grid; grid-template-columns: minmax(0, 1fr) auto; gap: 1.5rem; }
.one figure { margin: 0; }
@media (max-width: 45rem) { .one { grid-template-columns: 1fr; } }
"""


def write_views(
    views: list[View], heading: str, folder: str | os.PathLike
) -> list[pathlib.Path]:
    """Writes inspect.png and inspect.html; returns their paths.

    Raises:
      UserError: the folder cannot be written to.
    """
    folder = pathlib.Path(folder)
    paths = [folder / "inspect.png", folder / "inspect.html"]
    try:
        folder.mkdir(parents=True, exist_ok=True)
        save_figure(draw_views(views, heading), paths[0])
        disk.replace(paths[1], build_page(views, heading).encode())
    except OSError as error:
        raise UserError(f"--to={folder}: cannot be written: {error.strerror}") from None
    return paths


def build_page(views: list[View], heading: str) -> str:
    """The HTML page; everything that comes from data is escaped, nothing is fetched."""
    kinds = "".join(
        f".{kind} {{ background: {fill}; color: {ink}; }}\n"
        for kind, (fill, ink, _) in COLORS.items()
    )
    legend = "".join(
        f'<i class="{kind}">{html.escape(meaning)}</i>'
        for kind, (_, _, meaning) in COLORS.items()
    )
    blocks = "\n".join(map(_build_block, views))
    title = html.escape(heading)
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{STYLE}{kinds}{PAGE_STYLE}</style>\n</head>\n"
        f'<body>\n<h1>{title}</h1>\n<p class="legend">{legend}</p>\n'
        f"{blocks}\n</body>\n</html>\n"
    )


def _build_block(view: View) -> str:
    strips = "\n".join(
        f"<tr><th>{html.escape(strip.name)}</th>"
        + "".join(map(_build_cell, strip.tokens, strip.kinds))
        + "</tr>"
        for strip in view.strips
    )
    mask = base64.b64encode(draw_mask(view)).decode()
    share = np.asarray(view.mask["mask"]).mean()
    alt = f"attention mask: {share:.0%} of all pairs are visible"
    return (
        f"<h2>{html.escape(view.name)}</h2>\n<p>{html.escape(view.title)}</p>\n"
        f'<div class="one"><div class="wide"><table class="strips">\n{strips}\n'
        f'</table><p class="soft">{html.escape(describe_costs(view))}</p></div>\n'
        f'<figure><img class="mask" alt="{alt}" src="data:image/png;base64,{mask}">\n'
        f"<figcaption>queries down,<br>keys across</figcaption></figure></div>"
    )


def _build_cell(token: str, kind: str) -> str:
    if kind == "empty":
        return "<td></td>"
    return f'<td><i class="{kind}">{html.escape(show_token(token))}</i></td>'
