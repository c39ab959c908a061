"""Writes tables as text, Markdown, LaTeX, HTML, CSV and JSON."""

import csv
import io
import json
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from jaxpt import optional
from jaxpt.report.formats import escape
from jaxpt.report.pages import call, render


class Grid(NamedTuple):
    """A table of texts.

    Attributes:
      left: the columns that are aligned to the left; the others are numbers.
    """

    header: list[str]
    rows: list[list[str]]
    left: tuple[int, ...]


Writer = Callable[[str, Sequence[Grid], str, Sequence[str]], str]


def write_text(
    sentence: str, grids: Sequence[Grid], note: str, warnings: Sequence[str]
) -> str:
    """Aligned columns, for a terminal."""
    parts = [[sentence]]
    parts += [align(grid) for grid in grids]
    parts.append([line for line in (note, *warnings) if line])
    return "\n\n".join("\n".join(lines) for lines in parts if lines)


def align(grid: Grid, widest: int = 0) -> list[str]:
    """The lines of a table, with two spaces between its columns.

    Args:
      widest: a wider name of a column is wrapped, but not below the width of its cells;
        0: no name is wrapped.

    >>> align(Grid(["name", "mean score"], [["a", "0.50"]], (0,)), widest=5)
    ['       mean', 'name  score', 'a      0.50']
    """
    columns = list(zip(grid.header, *grid.rows, strict=True))
    needed = [max(map(len, cells), default=0) for _, *cells in columns]
    heads = [
        textwrap.wrap(head, max(widest, width)) if widest else [head]
        for (head, *_), width in zip(columns, needed, strict=True)
    ]
    height = max(map(len, heads))
    over = [[""] * (height - len(head)) + head for head in heads]
    rows = [*map(list, zip(*over, strict=True)), *grid.rows]
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return [
        "  ".join(
            cell.ljust(width) if i in grid.left else cell.rjust(width)
            for i, (cell, width) in enumerate(zip(row, widths, strict=True))
        ).rstrip()
        for row in rows
    ]


def write_markdown(
    sentence: str, grids: Sequence[Grid], note: str, warnings: Sequence[str]
) -> str:
    """Tables of GitHub's Markdown."""
    parts = [_mark(sentence)]
    for grid in grids:
        rules = [":---" if i in grid.left else "---:" for i in range(len(grid.header))]
        rows = [grid.header, *([_mark(cell) for cell in row] for row in grid.rows)]
        rows.insert(1, rules)
        parts.append("\n".join(f"| {' | '.join(row)} |" for row in rows))
    parts += [_mark(line) for line in (note, *warnings) if line]
    return "\n\n".join(parts)


def _mark(text: str) -> str:
    """Plain text in Markdown."""
    for mark in "\\`*_|<[":
        text = text.replace(mark, f"\\{mark}")
    return " ".join(text.split())


def write_latex(
    sentence: str, grids: Sequence[Grid], note: str, warnings: Sequence[str]
) -> str:
    """A table with booktabs, whose caption is the sentence."""
    lines = [r"% needs \usepackage{booktabs}", r"\begin{table}", r"\centering"]
    lines.append(rf"\caption{{{escape(sentence)}}}")
    for grid in grids:
        align = "".join("l" if i in grid.left else "r" for i in range(len(grid.header)))
        header, *rows = (
            " & ".join(map(escape, row)) + r" \\" for row in [grid.header, *grid.rows]
        )
        lines += [rf"\begin{{tabular}}{{{align}}}", r"\toprule", header, r"\midrule"]
        lines += [*rows, r"\bottomrule", r"\end{tabular}", "", r"\smallskip"]
    notes = " ".join(escape(line) for line in (note, *warnings) if line)
    lines += [rf"{{\footnotesize {notes}\par}}", r"\end{table}"]
    return "\n".join(lines)


def write_html(
    sentence: str, grids: Sequence[Grid], note: str, warnings: Sequence[str]
) -> str:
    """A part of a page, also for notebooks."""
    tables = [
        {
            "header": grid.header,
            "rows": grid.rows,
            "sides": [
                "left" if i in grid.left else "right" for i in range(len(grid.header))
            ],
        }
        for grid in grids
    ]
    notes = [line for line in (note, *warnings) if line]
    return render("verdict.html", sentence=sentence, tables=tables, notes=notes)


def write_picture(source: str, label: str) -> str:
    """A picture as a part of a page; `source` is a data URI."""
    return str(call("macros.html", "picture", label, source, ""))


WRITERS: dict[str, Writer] = {
    "text": write_text,
    "markdown": write_markdown,
    "latex": write_latex,
    "html": write_html,
}


def join_parts(form: str, parts: Sequence[str], notes: Sequence[str]) -> str:
    """The parts of all metrics, and notes on the input."""
    lines = [f"note: {note}" for note in notes]
    if form == "latex":
        lines = [f"% {escape(line)}" for line in lines]
    elif form == "markdown":
        lines = [_mark(line) for line in lines]
    elif form == "html":
        part = render("verdict.html", sentence="", tables=[], notes=lines)
        lines = [part] * bool(lines)
    if form == "text":
        lines = ["\n".join(lines)] * bool(lines)
    return "\n\n".join([*parts, *lines])


def write_csv(records: Iterable[Mapping[str, Any]]) -> str:
    """CSV with full precision; an empty cell is a missing value."""
    rows = list(records)
    out = io.StringIO(newline="")
    header = list(rows[0]) if rows else []
    writer = csv.DictWriter(out, header, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    return out.getvalue().rstrip("\n")


def write_json(value: Any) -> str:
    """JSON, indented."""
    return json.dumps(value, indent=1)


def make_frame(records: Sequence[Mapping[str, Any]]) -> Any:
    """A pandas DataFrame with a row for each record."""
    pandas = optional.need("pandas", "", "to_pandas")
    return pandas.DataFrame(records)
