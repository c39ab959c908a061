"""Draws docs/learning_curves.svg: the quickstart's curves of its first shared metric.

    .venv/bin/python docs/home.py

The picture of the README and of the site's home. A test checks that it is up to date.
"""

from pathlib import Path

from jaxpt.comparison.studies import check_study
from jaxpt.report.answer import find_levels
from jaxpt.report.report_charts import show_curves
from jaxpt.report.types import Report

HERE = Path(__file__).parent
PICTURE = HERE / "learning_curves.svg"
STUDY = HERE.parent / "results" / "quickstart"
# On a phone the picture is 0.58 times as large, and larger letters can still be read.
PHONE = (
    "@media (max-width: 480px) { svg text { font-size: 15px; } "
    "svg .name { font-size: 14px; } }\n"
)


def draw() -> str:
    report = Report.from_json(check_study(STUDY).report)
    first = report.list_shared()[0]
    levels = {first.metric: find_levels(report, first)}
    svg = show_curves(report.groups, report.budget.kind, levels, [first.metric])
    return svg.replace("</style>", f"{PHONE}</style>", 1)


if __name__ == "__main__":
    PICTURE.write_text(draw())
