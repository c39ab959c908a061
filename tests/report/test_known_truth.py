"""Exact baselines in the charts and the text of a report about a language."""

import re
from xml.etree import ElementTree

import pytest
from reports import make_entry, make_report, read_run, with_metrics

from jaxpt.report.answer import FLOOR, find_levels
from jaxpt.report.drawing import DARK, LIGHT
from jaxpt.report.page import write_report
from jaxpt.report.report_charts import draw_curves, show_curves
from jaxpt.report.terminal import tabulate_metrics

LEFT, BOTH = "regret_left_to_right", "regret_two_sided"
ANCHORS = {
    "left_to_right": {"unigram": 0.294, "bigram": 0.213, "trigram": 0.136},
    "two_sided": {
        "unigram": 0.7,
        "two neighbours": 0.497,
        "exact left to right": 0.405,
    },
}
TRUTH = {
    "floors": {"left_to_right": 4.5, "two_sided": 4.096},
    "uniform": 4.852,
    "anchors": {q: of | {"uniform": 0.9} for q, of in ANCHORS.items()},
    "lines": ["exact entropies in nats: 4.5"],
}
CURVES = {  # by metric, of each objective: its values at the evaluations
    LEFT: {"clm": [0.6, 0.2, 0.12], "mlm": [0.6, 0.35, 0.33]},
    BOTH: {"mlm": [0.9, 0.5, 0.42], "electra": [1.0, 0.6, 0.5]},
}


def make_runs():
    runs = []
    for name in ("clm", "mlm", "electra"):
        values = {m: of[name] for m, of in CURVES.items() if name in of}
        for seed in range(2):
            entry = make_entry(name, seed)
            (point,) = entry["curve"]
            entry["curve"] = [
                point
                | {"step": 10 * i, "flops": 1e12 * i, "raw_tokens": 100 * i}
                | {metric: line[i] + seed / 100 for metric, line in values.items()}
                for i in range(3)
            ]
            last = {metric: line[-1] for metric, line in values.items()}
            runs.append(with_metrics(read_run(entry), **last))
    return runs


def test_levels_of_regret_are_the_exact_answers_and_the_floor():
    report = make_report(make_runs(), known_truth=TRUTH)
    metrics = {m.metric: m for m in report.metrics}
    for metric, question in ((LEFT, "left_to_right"), (BOTH, "two_sided")):
        expected = ANCHORS[question] | {FLOOR: 0.0}
        assert find_levels(report, metrics[metric]) == expected
    # Of another metric, or of text without exact answers, there are none.
    report = make_report(make_runs())
    assert FLOOR not in find_levels(report, report.metrics[0])


def find_boxes(svg):
    """(text, left, top, right, bottom) of each name of a level or a line.

    A letter is at most 7.5 units wide on average; a line of text is 13 high.
    """
    boxes = []
    for text in svg.iter("text"):
        if text.get("class") not in ("level", "name"):
            continue
        words = "".join(text.itertext())
        shown = text[0].tail if len(text) else text.text  # after the tooltip
        width = 6.5 * len(shown)
        x, y = float(text.get("x")), float(text.get("y"))
        left = x - width if text.get("text-anchor") == "end" else x
        boxes.append((words, left, y - 10, left + width, y + 3))
    return boxes


def meet(one, other):
    a, b = one[1:], other[1:]
    return a[0] < b[2] and b[0] < a[2] and a[1] < b[3] and b[1] < a[3]


@pytest.mark.parametrize("metric", [LEFT, BOTH])
@pytest.mark.parametrize("cost", ["flops", "raw_tokens"])
def test_lines_of_the_exact_answers(metric, cost):
    """Each at its height, named, and no two names overlap."""
    report = make_report(make_runs(), known_truth=TRUTH)
    (entry,) = (m for m in report.metrics if m.metric == metric)
    levels = find_levels(report, entry)
    chart = draw_curves(report.groups, metric, cost, levels)
    svg = ElementTree.fromstring(chart)
    lines = [e.get("d") for e in svg.iter("path") if e.get("class") == "constant"]
    heights = sorted(float(re.match(r"M68.0 (.*?)L486.0 \1$", d)[1]) for d in lines)
    (top,) = {max(float(t.text) for t in svg.iter("text") if is_tick(t, "end"))}
    expected = sorted(302 - value / top * (302 - 14) for value in levels.values())
    assert heights == pytest.approx(expected, abs=0.06)
    assert heights[-1] == 302  # the floor is 0, at the bottom
    boxes = find_boxes(svg)
    assert set(levels) <= {box[0] for box in boxes}
    pairs = [(a, b) for i, a in enumerate(boxes) for b in boxes[:i]]
    assert not [pair for pair in pairs if meet(*pair)]
    assert all(0 < box[1] and box[3] < 620 for box in boxes)


def is_tick(text, anchor):
    return text.get("text-anchor") == anchor and text.get("class") is None


def test_names_of_levels_are_where_lines_are_far_from_them():
    report = make_report(make_runs(), known_truth=TRUTH)
    (entry,) = (m for m in report.metrics if m.metric == LEFT)
    levels = find_levels(report, entry)
    chart = draw_curves(report.groups, LEFT, "flops", levels)
    # Learning curves of regret end among the levels.
    assert 'class="level"' in chart and chart.count('text-anchor="start"') == len(
        levels
    )
    chart = draw_curves(report.groups, LEFT, "flops", {"random initialization": 0.6})
    assert 'text-anchor="start"' not in chart


def test_colours_of_the_levels_are_those_of_the_page(tmp_path):
    """By the style sheet alone, so that one drawing serves light and dark."""
    report = make_report(make_runs(), known_truth=TRUTH)
    levels = {m.metric: find_levels(report, m) for m in report.list_shared()}
    picture = show_curves(report.groups, "flops", levels)
    assert "bigram" in picture and "exact left to right" in picture
    drawn = list(ElementTree.fromstring(picture).iter())
    for kind in ("constant", "level"):
        elements = [e for e in drawn if e.get("class") == kind]
        assert elements and not any(
            {"style", "fill", "stroke"} & {*e.keys()} for e in elements
        )
    names = re.findall(r"--(\w+):", LIGHT)
    assert {"soft", "paper"} <= set(names) and names == re.findall(r"--(\w+):", DARK)
    page = write_report(report, tmp_path).read_text()
    (section,) = re.findall('<section id="curves".*?</section>', page, re.S)
    assert section.count(">trigram</text>") == section.count(f">{FLOOR}</text>") // 2
    assert "Baselines: unigram 0.294, bigram 0.213" in page


def test_chance_is_next_to_the_accuracy_of_answers(tmp_path):
    """In the table and the facts of the page, as a line of the chart."""
    runs = [
        with_metrics(run, answer_accuracy=0.9, second_token_accuracy=0.95)
        for run in make_runs()
    ]
    chances = {"answer_accuracy": 0.2, "second_token_accuracy": 0.25}
    report = make_report(runs, known_truth=TRUTH | {"chances": chances})
    (whole,) = (m for m in report.metrics if m.metric == "answer_accuracy")
    assert find_levels(report, whole) == {"chance": 0.2}
    labels = [row[0] for row in tabulate_metrics(report).rows]
    assert "whole answers (chance 0.200)" in labels
    assert "second token of answers (chance 0.250)" in labels
    page = write_report(report, tmp_path).read_text()
    assert "Baselines: chance 0.2" in page and "(chance 0.250)" in page
    labels = [row[0] for row in tabulate_metrics(make_report(runs)).rows]
    assert "whole answers" in labels
