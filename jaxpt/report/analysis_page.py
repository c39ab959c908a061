"""The page of an analysis: its pictures, and the table of heads; nothing is fetched."""

import base64
import html
from pathlib import Path

from jaxpt.files import disk
from jaxpt.report.analysis_plots import KINDS, WORDS
from jaxpt.report.page_style import STYLE
from jaxpt.report.page_tables import build_table

CAPTIONS = {
    "cka": (
        "Debiased linear CKA between the states of the same tokens: 1 is alike but for "
        "a rotation, a scale and a shift; 0 is nothing in common. Layer 0 is what the "
        "first layer reads. Of an encoder-decoder, the encoder; of ELECTRA, the "
        "discriminator; of a distillation, the student."
    ),
    "contextuality": (
        "Self-similarity is the mean cosine of one token's states in different rows. "
        "Anisotropy, the mean cosine of any two states of different rows, is what it "
        "would be if tokens meant nothing, and is subtracted. Where it is near 1 all "
        "states are nearly one, and what is left says little."
    ),
    "heads": (
        "The mean weight of each head on a query's own token, the ones beside it, the "
        "row's first, special tokens and punctuation; kinds overlap. The line 'even' "
        "is a head that looks at all it may see alike. A number in brackets marks a "
        "positional head: at least 90 % of its queries look most at that offset. In "
        "cross-attention 'self' is the source's token that is to be written."
    ),
    "attention": "The weights of the chosen head on the sentence.",
    "rollout": (
        "Attention rollout: how much of each token reaches each place of the last "
        "layer, by the mean of the heads and with the residual stream counted as half."
    ),
}


def write_page(result: dict, folder: Path) -> Path:
    """Writes analysis.html.

    Raises:
      OSError: it cannot be written.
    """
    path = folder / "analysis.html"
    disk.replace(path, build_page(result, folder).encode())
    return path


def build_page(result: dict, folder: Path) -> str:
    """The page; everything that comes from data is escaped."""
    names = ", ".join(run["name"] for run in result["runs"])
    title = html.escape(f"What is in the layers of {names}")
    told = html.escape(
        f"{result['rows']} rows of {result['row_length']} tokens; {result['text']}"
    )
    parts = [f"<h1>{title}</h1>\n<p>{told}</p>"]
    for name, file in result["figures"].items():
        picture = base64.b64encode((folder / file).read_bytes()).decode()
        caption = html.escape(CAPTIONS[name])
        parts.append(
            f'<figure><img alt="{html.escape(name)}" '
            f'src="data:image/png;base64,{picture}">\n'
            f"<figcaption>{caption}</figcaption></figure>"
        )
    parts += [_build_states(result), _build_heads(result)]
    without = [run["name"] for run in result["runs"] if not run["attention"]]
    if without:
        parts.append(f"<p>Without attention: {html.escape(', '.join(without))}.</p>")
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f"<title>{title}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n"
        + "\n".join(parts)
        + "\n</body>\n</html>\n"
    )


def _build_states(result: dict) -> str:
    header = ("run", "layer", "self-similarity", "anisotropy", "adjusted", "MEV")
    keys = ("self_similarity", "anisotropy", "adjusted", "max_explained_variance")
    rows = [
        [run["name"], str(layer), *(_number(found[key]) for key in keys)]
        for run in result["runs"]
        for layer, found in enumerate(run["contextuality"])
    ]
    return "<h2>States</h2>\n" + build_table(header, rows)


def _build_heads(result: dict) -> str:
    rows = [row for run in result["runs"] for row in list_heads(run)]
    header = ("run", "attention", "layer.head", *KINDS, "entropy", "looks most at")
    return "<h2>Heads</h2>\n" + build_table(header, rows, num_text=2) if rows else ""


def format_states(result: dict) -> list[str]:
    """The terminal's table: how contextual the states of each layer are."""
    lines = [f"{'run':24s} layer  self-similarity  anisotropy  adjusted  explained"]
    for run in result["runs"]:
        for layer, found in enumerate(run["contextuality"]):
            keys = ("self_similarity", "anisotropy", "adjusted")
            values = [found[key] for key in (*keys, "max_explained_variance")]
            cells = [f"{_number(value):>10s}" for value in values]
            lines.append(f"{run['name']:24s} {layer:5d} {'   '.join(cells)}")
    return lines


def list_heads(run: dict) -> list[list[str]]:
    """A row of text for each head of a run, and one for an even head."""
    rows = []
    for kind, heads in run["attention"].items():
        for layer, entropies in enumerate(heads["entropy"]):
            for head, entropy in enumerate(entropies):
                shares = [heads["shares"][key][layer][head] for key in KINDS]
                offset = heads["offset"][layer][head]
                share = heads["offset_share"][layer][head]
                where = f"{offset:+d} ({share:.0%})"
                if heads["is_positional"][layer][head]:
                    where += " positional"
                cells = [_number(x) for x in (*shares, entropy)]
                number = f"{layer + 1}.{head + 1}"
                rows.append([run["name"], WORDS[kind], number, *cells, where])
        even = [_number(heads["even"][key]) for key in (*KINDS, "entropy")]
        rows.append([run["name"], WORDS[kind], "even", *even, ""])
    return rows


def _number(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"
