"""A report's numbers as tables for other programs: two of CSV and one of LaTeX.

    results.csv       a line for each run: its costs and every metric
    differences.csv   a line for each two that were judged, and for each baseline
    results.tex       the common yardsticks and the costs; needs booktabs alone

CSV is RFC 4180's with full precision; what was not measured is an empty cell.
"""

import csv
import io
import math
from collections.abc import Iterable
from pathlib import Path

from jaxpt.files import checksums
from jaxpt.report.costs import KINDS, list_extra_columns
from jaxpt.report.diverged import list_diverged, list_lost
from jaxpt.report.formats import format_flops
from jaxpt.report.summary import COSTS, group_by_name, measure_spread

RUN_COLUMNS = ("name", "objective", "seed", *COSTS)
PAIR_COLUMNS = (
    *("better", "worse", "outcome", "difference", "low", "high", "p"),
    *("seeds", "documents"),
)
# What stands for a character of data in LaTeX, of any encoding of its fonts.
ESCAPES = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    "\N{EM DASH}": "---",
    "\N{PLUS-MINUS SIGN}": r"$\pm$",
} | {mark: f"\\{mark}" for mark in "&%$#_{}"}
# Beside the best value and each that was judged against it with this outcome.
MARKS = {
    "tie": (r"\dagger", "not significantly different from the best value (a tie)"),
    "equivalent": (r"\ddagger", "equivalent to the best value, within the margin"),
    "untested": (r"\ast", "no verdict on the best value and this one"),
    "apart": (r"\circ", "measured on other test examples than the best value"),
}


def write_tables(report: dict, workdir: Path) -> None:
    """Writes results.csv, differences.csv and results.tex.

    Raises:
      UserError: one cannot be written.
    """
    for name, text in (
        ("results.csv", format_results(report)),
        ("differences.csv", format_differences(report)),
        ("results.tex", format_latex(report)),
    ):
        # A name from the command line may contain bytes that are not UTF-8.
        checksums.write(workdir / name, text.encode(errors="replace"))


def format_results(report: dict) -> str:
    """CSV with a line for each run: its name, costs and every metric of any run.

    A run that diverged has its costs up to `diverged_at`, a step, and no metrics.
    """
    runs, diverged = report["runs"], report.get("diverged", [])
    metrics = list(dict.fromkeys(name for run in runs for name in run["metrics"]))
    columns = [*RUN_COLUMNS, *list_extra_columns(runs)]
    columns += ["diverged_at"] if diverged else []
    rows = [
        [*(run.get(key) for key in columns)]
        + [run.get("metrics", {}).get(name) for name in metrics]
        for run in [*runs, *diverged]
    ]
    return _write_csv([*columns, *metrics], rows)


def format_differences(report: dict) -> str:
    """CSV with a line for each judged pair and each baseline of every yardstick."""
    rows = [
        [yardstick["metric"], *(pair[key] for key in PAIR_COLUMNS)]
        for yardstick in report["yardsticks"]
        for pair in list_pairs(yardstick)
    ]
    return _write_csv(["yardstick", *PAIR_COLUMNS], rows)


def list_pairs(yardstick: dict) -> list[dict]:
    """All that was judged by a yardstick: two objectives, bounds, baselines."""
    return [
        *yardstick["pairs"],
        *yardstick.get("bounds", []),
        *yardstick["baselines"],
    ]


def _write_csv(header: list[str], rows: Iterable[list]) -> str:
    out = io.StringIO(newline="")
    writer = csv.writer(out, lineterminator="\r\n")
    writer.writerow(header)
    writer.writerows([_to_cell(value) for value in row] for row in rows)
    return out.getvalue()


def _to_cell(value):
    """A number that is not finite says no more than an empty cell."""
    is_number = isinstance(value, float) and math.isfinite(value)
    return value if is_number or not isinstance(value, float) else None


def escape(text: str) -> str:
    r"""Any text as LaTeX that shows it, in one line.

    >>> escape("a_b & 5% of {C:\\x}")
    'a\\_b \\& 5\\% of \\{C:\\textbackslash{}x\\}'
    """
    printable = "".join(c if c.isprintable() else " " for c in text)
    return "".join(ESCAPES.get(character, character) for character in printable)


def format_latex(report: dict) -> str:
    """A table of LaTeX: a row for each objective, a column for each common yardstick.

    A cell is the mean, with the standard deviation over seeds as a subscript. It is
    bold where verdicts say that it is ahead of all others. Costs are means.
    """
    groups = group_by_name(report["runs"])
    judged = [y for y in report["yardsticks"] if y["is_common"]]
    columns = [_list_cells(yardstick, list(groups)) for yardstick in judged]
    extras = [
        kind for kind in KINDS if any(f"{kind}_flops" in run for run in report["runs"])
    ]
    costs = [
        [
            escape(write(measure_spread([run[key] for run in group])["mean"]))
            for key, (_, write) in COSTS.items()
        ]
        + [_write_extra(group[0][f"{kind}_flops"]) for kind in extras]
        for group in groups.values()
    ]
    rows = [
        [escape(name), str(len(group)), *(column[name] for column in columns), *cost]
        for (name, group), cost in zip(groups.items(), costs, strict=True)
    ]
    arrows = [
        r"$\uparrow$" if y["higher_is_better"] else r"$\downarrow$" for y in judged
    ]
    labels = [
        f"{escape(yardstick['label'])} {arrow}"
        for yardstick, arrow in zip(judged, arrows, strict=True)
    ]
    num_costs = len(COSTS) + len(extras)
    for name in list_lost(report):
        cells = [*["diverged"] * len(judged), *["---"] * num_costs]
        rows.append([escape(name), "0", *cells])
    header = ["objective", "seeds", *labels]
    header += [escape(label) for label, _ in COSTS.values()]
    header += [f"{kind} FLOPs" for kind in extras]
    notes = _list_notes("".join(map("".join, rows)), judged)
    notes = " ".join([notes, *map(escape, list_diverged(report))])
    lines = [
        f"% {escape(report['created'])}, jaxpt {escape(report['version'])}; "
        r"needs \usepackage{booktabs}",
        r"\begin{table}",
        r"\centering",
        rf"\caption{{{escape(report['title'])}}}",
        rf"\begin{{tabular}}{{l{'r' * (len(header) - 1)}}}",
        r"\toprule",
        *(" & ".join(row) + r" \\" for row in [header]),
        r"\midrule",
        *(" & ".join(row) + r" \\" for row in rows),
        r"\bottomrule",
        r"\end{tabular}",
        "",
        r"\smallskip",
        rf"{{\footnotesize {notes}\par}}",
        r"\end{table}",
    ]
    return "\n".join(lines) + "\n"


def _write_extra(flops: float | None) -> str:
    """What a teacher or the tuning cost; None is one that is not known."""
    return "---" if flops is None else escape(format_flops(flops))


def _list_cells(yardstick: dict, names: list[str]) -> dict[str, str]:
    """A yardstick's cell of each name."""
    by_name = yardstick["by_name"]
    write = f"{{:{yardstick['format']}}}".format
    best = find_best(yardstick)
    marks = _find_marks(yardstick, best)
    cells = {}
    for name in names:
        stats = by_name.get(name, {"n": 0})
        if not stats["n"]:
            cells[name] = "---"
            continue
        mean = write(stats["mean"])
        if is_ahead_of_all(yardstick, name):
            mean = rf"\mathbf{{{mean}}}"
        spread = f"_{{\\pm {write(stats['std'])}}}" if stats["std"] else ""
        mark = f"^{{{marks[name]}}}" if marks.get(name) else ""
        cells[name] = f"${mean}{mark}{spread}$"
    return cells


def find_best(yardstick: dict) -> str:
    """The name with the best mean; of equal ones the first."""
    sign = -1 if yardstick["higher_is_better"] else 1
    means = {name: stats["mean"] for name, stats in yardstick["by_name"].items()}
    return min(means, key=lambda name: (sign * means[name], name))


def is_ahead_of_all(yardstick: dict, name: str) -> bool:
    """Whether verdicts say that a name is ahead of every other that was measured."""
    others = yardstick["by_name"].keys() - {name}
    behind = {
        pair["worse"]
        for pair in yardstick["pairs"]
        if pair["outcome"] == "ahead" and pair["better"] == name
    }
    return bool(others) and others <= behind


def _find_marks(yardstick: dict, best: str) -> dict[str, str]:
    """What is put beside each value that no verdict tells from the best one."""
    others = yardstick["by_name"].keys() - {best}
    marks = dict.fromkeys(others, MARKS["apart"][0])
    for pair in yardstick["pairs"]:
        names = {pair["better"], pair["worse"]}
        if best in names:
            (other,) = names - {best}
            marks[other], _ = MARKS.get(pair["outcome"], ("", ""))
    return marks


def _list_notes(body: str, judged: list[dict]) -> str:
    """What the marks in a table's body mean."""
    notes = [
        "Means, with the standard deviation over seeds as a subscript; costs are of "
        "one run."
    ]
    if r"\mathbf" in body:
        notes.append("Bold: ahead of all others, as verdicts say.")
    for sign, meaning in MARKS.values():
        if f"^{{{sign}}}" in body:
            notes.append(f"${sign}$: {meaning}.")
    if not judged:
        notes.append("No common yardstick was measured.")
    return " ".join(notes)
