"""The pictures of a report: SVG files that show what they are given, and any text."""

import itertools
import re
import runpy
import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reports import make_report, make_runs, read_run, vary

from jaxpt.objectives import OBJECTIVES
from jaxpt.report import charts, drawing, figures, formats, rank_charts, task_charts
from jaxpt.report.answer import rank_report
from jaxpt.report.drawing import BLUE, ORANGE
from jaxpt.report.report_charts import show_curves, show_metrics
from jaxpt.report.types import group_by_name

HOSTILE = ["$\\frac$", " $a$ ", "\n", "\t", "\x00", "中", "<b>", "_x", "w" * 60]


def make_run(objective, num_points=6, seed=0, probe=True, loss=2.0):
    curve = []
    for step in range(1, num_points + 1):
        point = {
            "step": step,
            "raw_tokens": step * 1_000_000,
            "flops": step * 1e15,
            "seconds": step * 60.0 + seed,
            "valid_loss": loss + 1 / step,
        }
        if probe:
            point["probe_accuracy"] = 0.5 + 0.02 * step
        curve.append(point)
    content = {"name": objective, "objective": objective, "seed": seed}
    return read_run(content | {"curve": curve, "metrics": {}})


def make_mask(size, **extra):
    labels = (HOSTILE * size)[:size]
    mask = np.tril(np.ones((size, size), bool))
    return {"mask": mask, "query_labels": labels, "key_labels": labels} | extra


def draw_learning_curves():
    runs = [make_run(name, seed=seed) for name in OBJECTIVES for seed in range(2)]
    levels = {"probe_accuracy": {"chance": 0.5, "<x>": 0.52}}
    return show_curves(group_by_name(runs), "flops", levels)


def draw_attention_masks():
    masks = {"causal": make_mask(9), "two <words> more": make_mask(14, split=(9, 9))}
    return figures.draw_masks(masks)


def draw_temperature_effect():
    rising = np.linspace(0.001, 0.3, len(HOSTILE))[::-1]
    probabilities = {1.0: rising, 0.5: rising * 2, 2.0: rising / 2}
    text = "It cost $3,\nor <4> " * 9
    return figures.draw_temperatures(HOSTILE, probabilities, text)


def draw_mask_fill():
    candidates = [(token, 0.5 / (i + 1)) for i, token in enumerate(HOSTILE)]
    example = {"text": "a _ of <x> and $y$ " * 20, "candidates": candidates}
    truths = ("\n", "absent", "中", "w" * 60)
    return figures.draw_fills([example | {"truth": truth} for truth in truths])


def draw_pretrained_vs_random():
    rows = {
        "pretrained": {"top-1": 0.41, "top-5": 0.999},
        "random init": {"top-1": 0.002, "top-5": 0.009},
    }
    return figures.draw_gain(rows)


def draw_shared_metrics():
    runs = make_runs({name: [0.5, 0.6] for name in [*OBJECTIVES, "<new>"]})
    report = make_report(runs)
    return show_metrics(report.list_shared(), report.groups)


def draw_finetuning_curves():
    entries = [
        {"task": task, "metric": f"{task}_{num}", "num_labels": num, "constant": 0.25}
        | {"measure": "test accuracy", "label": "x", "margin": 0.01, "reference": ""}
        | {"higher_is_better": True}
        for task, nums in (("topics", (32, 100, 316, 1000, 3160)), ("<tags>", (32,)))
        for num in nums
    ]
    runs = []
    for name, seed in itertools.product(("clm", "two <words>"), range(2)):
        metrics = {
            f"{entry['metric']}{suffix}": 0.3 + 0.0001 * entry["num_labels"] + gain
            for entry in entries
            for suffix, gain in (
                ("", 0.2 + 0.01 * seed),
                ("_random", 0),
                ("_ngrams", 0.1),
            )
        }
        run = {"name": name, "objective": "clm", "seed": seed, "metrics": metrics}
        runs.append(read_run(run | {"tasks": entries}))
    groups = group_by_name(runs)
    return task_charts.show_tuned(groups, task_charts.list_tuned(groups))


def draw_critical_differences():
    draw = np.random.default_rng(0)
    names = [*OBJECTIVES, "<new>"]
    values = {n: draw.normal(0.5 + i // 9 / 9, 0.01, 5) for i, n in enumerate(names)}
    runs = make_runs({name: list(of) for name, of in values.items()})
    return rank_report(make_report(runs)).draw()


PICTURES = {
    "critical_differences": draw_critical_differences,
    "learning_curves": draw_learning_curves,
    "attention_masks": draw_attention_masks,
    "temperature_effect": draw_temperature_effect,
    "mask_fill": draw_mask_fill,
    "pretrained_vs_random": draw_pretrained_vs_random,
    "shared_metrics": draw_shared_metrics,
    "finetuning_curves": draw_finetuning_curves,
}
SVG = "{http://www.w3.org/2000/svg}"


def list_texts(source):
    return [
        element.text for element in ElementTree.fromstring(source).iter(f"{SVG}text")
    ]


def count_cells(source, color):
    """The cells of one colour in a picture."""
    paths = re.findall(rf'style="--cell: {color}" d="(.*?)"', source, re.I)
    return sum(path.count("M") for path in paths)


def list_bars(source):
    """(colour, length) of each bar, in order."""
    return [
        (color, float(width))
        for color, width in re.findall(
            r'class="bar"[^>]*--cell: (#\w+)" width="([\d.]+)"', source
        )
    ]


@pytest.mark.parametrize("name", PICTURES)
def test_a_picture_is_one_file_that_loads_nothing(name):
    source = PICTURES[name]()
    root = ElementTree.fromstring(source)  # whole, whatever the text is
    assert root.get("aria-label") and root.get("role") == "img"
    assert "nan" not in " ".join(re.findall(r' d="(.*?)"', source))
    assert not re.search(r"<script|<image|href|url\(|@import", source)
    assert source.count("http") == 1  # the namespace
    assert "prefers-color-scheme: dark" in source
    # Nothing is placed outside of the picture.
    width, height = float(root.get("width")), float(root.get("height"))
    for box in root.findall(f"{SVG}svg"):
        right = float(box.get("x", 0)) + float(box.get("width"))
        assert right <= width + 1
        assert float(box.get("y", 0)) + float(box.get("height")) <= height + 1
    assert len(list_texts(source)) > 5


def test_every_picture_has_a_caption():
    assert set(figures.CAPTIONS) == set(PICTURES)


def test_a_picture_has_the_style_of_the_page():
    style = drawing.STYLE.read_text()
    assert style in draw_learning_curves()


def test_drawing_needs_no_matplotlib():
    code = (
        "import sys; from jaxpt.report import drawing, report_charts, terminal; "
        "print([m for m in ('matplotlib', 'PIL') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    assert done.stdout.strip() == "[]", done.stderr


def test_an_objective_has_its_colour_in_every_picture():
    runs = make_runs({"electra": [0.5, 0.6], "clm": [0.7, 0.71]})
    report = make_report(runs)
    curves = show_curves(group_by_name([make_run("electra"), make_run("clm")]), "", {})
    dots = show_metrics(report.list_shared(), report.groups)
    values = {"electra": [0.5, 0.51] * 2, "clm": [0.7, 0.71] * 2}
    ranks = rank_report(make_report(make_runs(values))).draw()
    for source in (curves, dots, ranks):
        colors = re.findall(r"\.o(\d) { --c: (#\w+); --d", source)
        assert colors == [("0", "#0072B2"), ("1", "#D55E00")]
        assert 'class="s o0"' in source and 'class="s o1"' in source


def test_curves_are_of_shared_metrics_of_several_objectives():
    several = [make_run("clm"), make_run("mlm")]
    heading, *_ = list_texts(show_curves(group_by_name(several), "flops", {}))
    assert heading == "linear probe on frozen features"
    text = show_curves(group_by_name(several), "seconds", {})
    assert "training seconds" in list_texts(text) and "not comparable" not in text
    alone = [make_run("clm", probe=False)]
    assert "(not comparable)" in show_curves(group_by_name(alone), "flops", {})


def test_a_shared_metric_has_its_baselines_as_dotted_lines():
    """Also if it was measured only before and after training."""
    run = vary(make_run("clm", probe=False), steps=6, raw_tokens=6e6, flops=6e15)
    run = vary(run, metrics={"word_accuracy": 0.6, "word_accuracy_random": 0.2})
    levels = {"word_accuracy": {"token frequencies": 0.3}}
    source = show_curves(group_by_name([run]), "flops", levels)
    assert "token frequencies" in list_texts(source)
    assert source.count('class="constant"') == 1
    assert source.count('class="mean"') == 1


def test_attention_mask_fills_the_true_cells():
    entry = {"query_labels": ["a"] * 6, "key_labels": ["b"] * 4}
    for num_true in (0, 6, 12, 24):
        mask = (np.arange(24) < num_true).reshape(6, 4)
        source = figures.draw_masks({"m": entry | {"mask": mask}})
        assert count_cells(source, BLUE) == num_true
        assert count_cells(source, drawing.EMPTY) == 24 - num_true


def test_attention_mask_draws_the_split():
    plain = figures.draw_masks({"m": make_mask(8)})
    divided = figures.draw_masks({"m": make_mask(8, split=(3, 5))})
    assert 'class="split"' not in plain
    (path,) = re.findall('class="split" d="(.*?)"', divided)
    left, down, right, across, top, below = map(float, re.findall(r"[\d.]+", path))
    assert (down - top) / (below - top) == pytest.approx(3 / 8, abs=0.01)
    assert (across - left) / (right - left) == pytest.approx(5 / 8, abs=0.01)


def test_temperatures_are_in_order_with_the_right_bars():
    tables = {2.0: np.array([0.3, 0.2]), 0.5: np.array([0.9, 0.1])}
    source = figures.draw_temperatures([" a", "\n"], tables, "so\nit")
    texts = list_texts(source)
    assert texts.index("temperature 0.5") < texts.index("temperature 2")
    assert "100% of the probability" in texts and "50% of the probability" in texts
    assert [length for _, length in list_bars(source)] == pytest.approx(
        [150, 150 / 9, 50, 300 / 9], abs=0.1
    )
    assert texts.count("␣a") == 2 and "so⏎it" in texts[0]


def test_mask_fill_highlights_the_truth():
    example = {"text": "a _ b", "candidates": [("x", 0.6), ("y", 0.2)]}
    examples = [example | {"truth": "y"}, example | {"truth": "z"}]
    source = figures.draw_fills(examples)
    assert [color for color, _ in list_bars(source)] == [BLUE, ORANGE, BLUE, BLUE]
    texts = list_texts(source)
    assert "truth: y" in texts and "truth: z (not in the top 2)" in texts


def test_mask_fill_shows_the_blank_of_a_long_text():
    text = "before " * 90 + "_" + " after" * 90
    source = figures.draw_fills(
        [{"text": text, "candidates": [("x", 0.6)], "truth": "x"}]
    )
    title = " ".join(each for each in list_texts(source) if "e" in each)
    assert "before before _ after after" in title and len(title) < 190
    assert title.startswith("…")


def test_pretrained_vs_random_prints_its_values():
    texts = set(list_texts(draw_pretrained_vs_random()))
    assert {"41.0%", "99.9%", "0.2%", "0.9%", "top-1, pretrained"} <= texts


@pytest.mark.parametrize(
    "token, text",
    [
        (" the", "␣the"),
        ("\n\t", "⏎⇥"),
        ("a\x00", "a\\x00"),
        ("é", "é"),
        ("中", "中"),
        ("a" * 21, "a" * 19 + "…"),
    ],
)
def test_show_token(token, text):
    assert drawing.show_token(token) == text


@given(st.text())
def test_a_shown_token_is_visible(token):
    text = drawing.show_token(token)
    assert len(text) <= 20 and bool(text) == bool(token)
    assert not any(char.isspace() for char in text)


@pytest.mark.parametrize(
    "number, text",
    [
        (0, "0"),
        (999, "999"),
        (12_345, "12.3k"),
        (999_900, "1M"),
        (4.56e6, "4.56M"),
        (7.89e9, "7.89B"),
        (1.23e12, "1.23T"),
    ],
)
def test_format_count(number, text):
    assert formats.format_count(number) == text


@pytest.mark.parametrize(
    "number, text", [(0, "0"), (123, "123"), (1.234e15, "1.23e15"), (2e5, "2e5")]
)
def test_format_flops(number, text):
    assert formats.format_flops(number) == text


def test_no_two_objectives_look_alike():
    chosen = drawing.choose_styles(OBJECTIVES)
    colors, markers = zip(*chosen.values(), strict=True)
    assert len(set(colors)) == len(set(markers)) == len(OBJECTIVES)
    # More than there are colours for: grey.
    many = drawing.choose_styles([f"name {i}" for i in range(40)])
    assert len(many) == 40 and many["name 39"] == (drawing.GREY, "o")


# a to d as in `jaxpt.judge.letters`: a differs from c and d, b from d.
LETTERS = {"a": "a", "b": "ab", "c": "bc", "d": "c"}
MEANS = {"a": 0.9, "b": 0.8, "c": 0.7, "d": 0.5}


def draw_ranks(higher_is_better=True, means=MEANS, letters=LETTERS):
    numbers = {name: i for i, name in enumerate(sorted(means))}
    places = rank_charts.RankedMeans(
        "<score>", higher_is_better, means, letters, numbers
    )
    return ElementTree.fromstring(str(rank_charts.draw_chart(places)))


def list_bar_ends(svg):
    """Left and right end of each bar, without its round caps."""
    paths = [e.get("d") for e in svg.iter("path") if e.get("class") == "same"]
    ends = [re.fullmatch(r"M([\d.]+) [\d.]+H([\d.]+)", path).groups() for path in paths]
    return [(float(left) + 4, float(right) - 4) for left, right in ends]


def find_marks(svg):
    """By name, the place of its stem on the axis."""
    marks = {}
    for group in svg.iter("g"):
        (name,) = [e for e in group.iter("text") if e.get("class") == "name"]
        (stem,) = [e for e in group.iter("path") if e.get("class") == "stem"]
        place = float(re.match(r"M([\d.]+)", stem.get("d"))[1])
        marks[name.find("title").tail] = place, name.get("text-anchor")
    return marks


def test_a_bar_joins_those_that_do_not_differ():
    """By hand: .5 to .9 from 158 to 462, so that .1 is 76 units."""
    svg = draw_ranks()
    at = find_marks(svg)
    assert {name: place for name, (place, _) in at.items()} == {
        "a": 462,
        "b": 386,
        "c": 310,
        "d": 158,
    }
    assert list_bar_ends(svg) == [(386, 462), (310, 386), (158, 310)]
    # The better half is named to the right, the worse half to the left.
    assert [side for _, side in at.values()] == ["start", "start", "end", "end"]


def test_the_better_is_to_the_right_also_if_lower_values_are_better():
    means = {name: 1.4 - mean for name, mean in MEANS.items()}
    svg = draw_ranks(False, means)
    marks = find_marks(svg)
    assert [marks[name][0] for name in "abcd"] == [462, 386, 310, 158]
    assert len(list_bar_ends(svg)) == 3


def test_without_a_group_there_is_no_bar_and_a_screen_reader_is_told():
    svg = draw_ranks(letters={"a": "a", "b": "b", "c": "c", "d": "d"})
    assert list_bar_ends(svg) == []
    assert svg.get("role") == "img" and svg.find("title").text == svg.get("aria-label")
    words = "Means, higher is better: a 0.900, b 0.800, c 0.700, d 0.500. All differ."
    assert svg.find("desc").text == words
    joined = draw_ranks().find("desc").text
    assert joined.endswith("Not significantly different: a, b; b, c; c, d.")


def test_no_name_is_cut_and_none_covers_another():
    svg = ElementTree.fromstring(draw_critical_differences())
    width = float(svg.get("width"))
    names = [e for e in svg.iter(f"{SVG}text") if e.get("class") == "name"]
    assert len(names) == len(OBJECTIVES) + 1
    boxes = []
    for element in names:
        text = element.find(f"{SVG}title").tail
        x, y, long = float(element.get("x")), float(element.get("y")), 8.5 * len(text)
        left = x if element.get("text-anchor") == "start" else x - long
        assert left >= 0 and left + long <= width
        boxes.append((left < width / 2, y))
    assert len(set(boxes)) == len(boxes)
    heights = sorted(y for is_left, y in boxes if is_left)
    assert all(b - a >= 17 for a, b in itertools.pairwise(heights))


def test_where_not_every_pair_was_tested_there_is_no_picture():
    values = {"a": [0.5] * 4, "b": [0.7, 0.71] * 2, "c": [0.6, 0.61]}
    report = make_report(make_runs(values))
    assert rank_report(report).draw() == ""
    # A letter would say of a and b that they were tested against c, too.
    letters = [line["letters"] for line in rank_report(report).list_lines()]
    assert letters == [None] * 3
    assert "critical_differences" not in figures.draw_charts(report)
    values.pop("c")
    report = make_report(make_runs(values))
    assert "critical_differences" in figures.draw_charts(report)


def test_the_picture_of_the_home_page_is_up_to_date():
    """Else: .venv/bin/python docs/home.py"""
    home = runpy.run_path(str(Path(__file__).parents[2] / "docs" / "home.py"))
    assert home["PICTURE"].read_text() == home["draw"]()


@given(
    st.lists(st.floats(charts.TOP, charts.BOTTOM), min_size=1, max_size=5),
    st.sampled_from([1, 20]),
)
def test_no_line_of_a_level_crosses_a_name(heights, nearness):
    low, high = charts.TOP, charts.BOTTOM
    heights = sorted(heights[0] + (h - heights[0]) / nearness for h in heights)
    places = charts.place_levels(heights)
    gaps = [b - a for a, b in zip(places, places[1:], strict=False)]
    assert all(gap >= charts.LEVEL_GAP - 1 for gap in gaps)
    for place in places:
        assert not [h for h in heights if place - charts.ASCENT < h < place + 2]
        assert low <= place - charts.ASCENT and place <= high


def test_names_of_levels_have_room_on_a_small_screen():
    """Where letters are larger; the distance of their lines is that of any screen."""
    css = (Path(charts.__file__).parent / "templates" / "style.css").read_text("utf-8")
    small = css.partition("@media screen")[2]
    sizes = re.findall(r"\.chart \.level \{ font-size: (\d+)px", small)
    assert [float(size) for size in sizes] == [charts.LEVEL_GAP]
