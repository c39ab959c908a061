import dataclasses
import html.parser
import json
import math
import re
from pathlib import Path
from xml.etree import ElementTree

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reports import OBJECTIVES, make_full_report, make_report, make_run, make_runs, vary

from jaxpt.errors import UserError
from jaxpt.report import (
    charts,
    drawing,
    figures,
    formats,
    page,
    page_charts,
    pages,
    terminal,
)
from jaxpt.report import summary as reporting
from jaxpt.report.answer import rank_report
from jaxpt.report.report_charts import draw_curves, draw_pareto
from jaxpt.report.types import Report, Verdict, group_by_name

PICTURE = b'<svg xmlns="http://www.w3.org/2000/svg" width="840"/>'


class Page(html.parser.HTMLParser):
    """What a browser would make of a page: its tags, attributes and text."""

    VOID = frozenset({"meta", "img", "input"})

    def __init__(self, source):
        super().__init__()
        self.tags, self.attributes, self.texts, self.open = [], [], [], []
        self.feed(source)
        self.close()
        assert not self.open

    def handle_starttag(self, tag, attrs):
        self.tags.append(tag)
        self.attributes += attrs
        if tag not in self.VOID:
            self.open.append(tag)

    def handle_endtag(self, tag):
        assert tag in self.VOID or self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def write_page(report, folder):
    return Page(page.write_report(report, folder).read_bytes().decode())


def test_report_json_is_strict_and_whole(tmp_path):
    report = make_full_report()
    rates = (1, np.float32(0.5))
    report = dataclasses.replace(
        report, config={"rates": rates, "path": tmp_path, "x": np.arange(2)}
    )
    report.runs[0].curve[0].values["valid_loss"] = math.inf
    page.write_report(report, tmp_path)

    def refuse(constant):
        raise AssertionError(constant)

    text = (tmp_path / "report.json").read_text()
    loaded = json.loads(text, parse_constant=refuse)
    assert loaded["runs"][0]["curve"][0]["valid_loss"] is None
    assert loaded["runs"][4]["metrics"]["valid_loss"] is None
    assert loaded["config"] == {"rates": [1, 0.5], "path": str(tmp_path), "x": [0, 1]}
    assert loaded["budget"] == report.budget.to_json()
    read = Report.from_json(loaded)
    # A report read back prints and writes the same.
    assert terminal.format_table(read) == terminal.format_table(report)
    again = tmp_path / "again"
    again.mkdir()
    page.write_report(read, again)
    for name in ("report.json", "report.html"):
        assert (again / name).read_bytes() == (tmp_path / name).read_bytes()


def test_report_html_needs_nothing_outside_itself(tmp_path):
    report = make_full_report()
    named = {"learning_curves": "a.svg", "mask_fill_mlm": "b.svg"}
    report = vary(report, figures=named)
    for name in report.figures.values():
        (tmp_path / name).write_bytes(PICTURE)
    path = page.write_report(report, tmp_path)
    assert path == tmp_path / "report.html"
    written = Page(path.read_text())
    links = [value for name, value in written.attributes if name in ("src", "href")]
    outward = [link for link in links if not link.startswith("#")]
    assert len(outward) == 1  # the learning curves are drawn as SVG
    assert any("learning_curves" not in t and "a.svg" in t for t in written.texts)
    assert all(link.startswith("data:image/svg+xml;base64,") for link in outward)
    assert not {"script", "link", "iframe"} & set(written.tags)
    assert not re.search(r"https?:|url\(|@import", path.read_text())
    assert "prefers-color-scheme: dark" in path.read_text()
    caption = next(text for text in written.texts if text.startswith("mlm: The"))
    assert caption.startswith(f"mlm: {figures.CAPTIONS['mask_fill']} Seed 0")
    assert sorted(child.name for child in tmp_path.iterdir()) == [
        "a.svg",
        "b.svg",
        "checksums.json",
        "report.html",
        "report.json",
    ]


def test_report_html_opens_with_the_contents_and_the_answer(tmp_path):
    runs = make_runs({"clm": [0.1, 0.1001] * 2, "mlm": [0.9] * 4})
    for run in runs:
        run.metrics["probe_accuracy_random"] = 0.1 + run.seed / 1e4
    texts = write_page(make_report(runs), tmp_path).texts
    lead = "At 1.67e14 FLOPs per run, mlm is ahead of clm on linear probe on frozen "
    lead += "features."
    task = "label of a held-out passage. Higher is better. Baselines: random "
    assert any(task + "initialization 0.100." in text for text in texts)
    note = next(text for text in texts if text.startswith("Objectives that share"))
    assert note.endswith("Learning rates were not tuned.")
    assert "not above random initialization: clm." in note
    order = ["Learning curves", "Quality against cost", "Differences"]
    order += ["Numbers", "Pictures", "Method and limits", "Runs", "Budget and data"]
    order += ["Config"]
    # Once as a link, once as a heading.
    assert [text for text in texts if text in order] == order * 2
    # One sentence, one table, one note, one picture; then the contents and the facts.
    picture = "linear probe on frozen features: better to the right"
    first = [lead, "rank", "0.900", note, picture, "Learning curves"]
    places = [texts.index(text) for text in [*first, "3.41M parameters"]]
    places.append(texts.index("Learning curves", places[-1]))  # the heading
    assert places == sorted(places)
    assert ": forward and backward matrix products" in texts
    assert "0.900 (n=4)" in texts
    row = texts.index("better", texts.index("Pairs"))
    assert texts[row + 1] == "worse"
    cells = [text for text in texts[row:] if text.strip()]
    place = cells.index("ahead")
    assert cells[place - 2 : place + 2] == ["mlm", "clm", "ahead", "0.8000"]


HOSTILE = "<script>alert('1')</script>\"&amp;"


def test_hostile_text_comes_out_escaped_everywhere(tmp_path):
    name = f"fig {HOSTILE}"
    report = make_report(
        [make_run(HOSTILE, 0, **{"probe_accuracy": 0.5, HOSTILE: 1.0})],
        title=HOSTILE,
        created=HOSTILE,
        version=HOSTILE,
        config={HOSTILE: HOSTILE},
        budget={"kind": HOSTILE, "amount": 1.0, "note": HOSTILE},
        notes={HOSTILE: HOSTILE},
        figures={name: "a.svg"},
    )
    report.data.update({"path": HOSTILE, HOSTILE: HOSTILE})
    run = vary(report.runs[0], workdir=HOSTILE)
    kinds = ("given", "right", "wrong", "written", "truth", "caught", "missed", "alarm")
    pieces = [[HOSTILE, kind, HOSTILE] for kind in kinds]
    samples = {HOSTILE: {"seed": 0, "forms": {"fills": [pieces]}}}
    report = vary(report, runs=[run], samples=samples)
    (tmp_path / "a.svg").write_bytes(PICTURE)
    page = write_page(report, tmp_path)
    assert "script" not in page.tags
    assert ("alt", name) in page.attributes
    assert sum("alert" in text for text in page.texts) > 28


def test_a_page_forbids_what_it_does_not_use(tmp_path):
    """Scripts, requests and forms; its style and pictures are in the file."""
    (tmp_path / "a.svg").write_bytes(PICTURE)
    page = write_page(make_report([make_run("clm")], figures={"a": "a.svg"}), tmp_path)
    policies = [value for name, value in page.attributes if name == "content"]
    (rule,) = [value for value in policies if "src" in value]
    assert rule.startswith("default-src 'none'; ")
    assert {part.split()[0] for part in rule.split("; ")[1:]} == {
        *("style-src", "img-src", "base-uri", "form-action")
    }
    sources = [value for name, value in page.attributes if name == "src"]
    assert sources and all(value.startswith("data:") for value in sources)
    templates = Path(pages.__file__).parent / "templates"
    heads = [each.name for each in templates.iterdir() if "<head" in each.read_text()]
    assert heads == ["base.html"]


@given(st.text(), st.text(min_size=1))
def test_no_text_changes_the_page_s_structure(tmp_path_factory, title, objective):
    folder = tmp_path_factory.getbasetemp()
    plain = write_page(make_report([make_run("clm")], title="t"), folder)
    runs = [make_run(objective, valid_loss=1.0)]
    runs[0].metrics.clear()
    page = write_page(make_report(runs, title=title), folder)
    assert page.tags == plain.tags
    assert len(page.attributes) == len(plain.attributes)


def test_samples_stand_side_by_side_with_their_marks(tmp_path):
    report = make_report([make_run("clm"), make_run("electra"), make_run("bilm")])
    fills = [["th", "given", ""], ["e", "right", ""], [" ", "wrong", "y"]]
    fakes = [["x", "caught", "t"], ["q", "missed", "h"], ["e", "alarm", ""]]
    goes_on = [["the", "given", ""], [" sea", "written", ""], [" sun", "truth", ""]]
    samples = {
        "clm": {"seed": 0, "forms": {"continuation": [goes_on, goes_on]}},
        "electra": {"seed": 0, "forms": {"fakes": [fakes], "fills": [fills]}},
        "bilm": {"seed": 0, "forms": {}},
    }
    report = vary(report, samples=samples)
    source = page.write_report(report, tmp_path).read_text()
    assert "th<b>e</b><del>␣</del><ins>y</ins>" in source
    assert "<mark>x</mark><ins>t</ins><i>q</i><ins>h</ins><u>e</u>" in source
    assert "the<em> sea</em><small>text:  sun</small>" in source
    assert source.count("<article>") == 4 and source.count("<h3>Passage ") == 2
    assert "bilm: no sample" in source and "clm: no sample" not in source
    # A form that no network has is not explained.
    assert "detects replaced tokens" in source and "fills spans" not in source
    assert Page(source).tags.count("del") == 2  # the legend's and the sample's
    table = terminal.format_table(report)
    assert "clm continues: the >> sea (text: sun)" in table
    assert "electra detects replaced tokens: [x≠t](q≠h)!e!" in table and "bilm" in table
    assert max(map(len, table.splitlines())) <= 100
    report = dataclasses.replace(report, samples=None)
    assert "Samples" not in page.write_report(report, tmp_path).read_text()
    assert "passage" not in terminal.format_table(report)


def test_no_link_is_written_through(tmp_path):
    (tmp_path / "victim").write_text("dear diary")
    for name in ("report.json", "report.html"):
        for link in (name, f"{name}.partial"):
            (tmp_path / link).symlink_to(tmp_path / "victim")
    write_page(make_report(make_runs({"clm": [0.1]})), tmp_path)
    assert (tmp_path / "victim").read_text() == "dear diary"
    assert json.loads((tmp_path / "report.json").read_text())["runs"]


def test_bytes_that_are_no_utf8_do_not_stop_the_report(tmp_path):
    report = make_report(make_runs({"clm": [0.1]}), title="a\udcffb")
    assert page.write_report(report, tmp_path).exists()


def test_a_figure_that_is_missing_is_named_and_nothing_is_written(tmp_path):
    report = make_report(make_runs({"clm": [0.1]}), figures={"mask_fill": "gone.png"})
    with pytest.raises(UserError, match=r"^figures\.mask_fill: .*gone\.png: No such"):
        page.write_report(report, tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_missing_is_named(tmp_path):
    report = make_report(make_runs({"clm": [0.1]}))
    with pytest.raises(
        UserError, match=r"absent.report\.json: cannot be written: No such"
    ):
        page.write_report(report, tmp_path / "absent")


def test_a_failed_write_keeps_the_last_report(tmp_path):
    report = make_report(make_runs({"clm": [0.1]}))
    page.write_report(report, tmp_path)
    before = (tmp_path / "report.json").read_bytes()
    with pytest.raises(TypeError):
        page.write_report(dataclasses.replace(report, config={"x": object()}), tmp_path)
    assert (tmp_path / "report.json").read_bytes() == before


def build(report, folder):
    """The source of a report's page."""
    return page.write_report(report, folder).read_text(errors="replace")


def parse_svgs(source):
    """Every SVG of a page, read as XML, which is stricter than HTML."""
    return [
        ElementTree.fromstring(svg)
        for svg in re.findall(r"<svg.*?</svg>", source, re.S)
    ]


def make_curves(values, metric="probe_accuracy"):
    """Runs whose curves have these values at steps 0, 1, 2, each 100 tokens."""
    runs = make_runs({name: [s[-1] for s in seeds] for name, seeds in values.items()})
    return [
        vary(
            run,
            curve=[
                {
                    "step": step,
                    "raw_tokens": 100 * step,
                    "flops": 1e9 * step,
                    "seconds": 0.5 * step,
                    metric: value,
                }
                for step, value in enumerate(values[run.name][run.seed])
            ],
        )
        for run in runs
    ]


FIFTEEN = {f"objective {i}": [0.5 + i / 100, 0.51 + i / 90] for i in range(15)}
ODD = {
    "one seed": make_report(make_runs({"clm": [0.5], "mlm": [0.6]})),
    "one objective": make_report(make_runs({"clm": [0.5, 0.6]})),
    "no shared metric": make_report(make_runs({"clm": [3, 2]}, "valid_loss")),
    "nothing measured": make_report([make_run("clm")]),
    "no curve": make_report([vary(make_run("clm"), curve=[])]),
    "metrics and no curve": make_report(
        [vary(run, curve=[]) for run in make_runs({"clm": [0.5], "mlm": [0.6]})]
    ),
    "fifteen": make_report(make_runs(FIFTEEN)),
    "no finite value": make_report(
        make_curves({"clm": [[None, math.nan]], "mlm": [[0.5, None], [0.6, 0.7]]})
    ),
    "no cost": make_report(
        [vary(run, flops=None, train_seconds=0.0) for run in make_runs(FIFTEEN)]
    ),
    "no seed is shared": make_report(
        [make_run(n, s, probe_accuracy=0.5) for s, n in enumerate(OBJECTIVES)]
    ),
    "equal": make_report(make_curves({n: [[0.5, 0.5]] * 3 for n in OBJECTIVES})),
    "tiny": make_report(make_curves({"clm": [[0.0, 1e-12]], "mlm": [[0.0, -1e-12]]})),
    "huge": make_report(make_curves({"clm": [[1e200, 1.7e201]], "mlm": [[0, -1e5]]})),
    "full": make_full_report(),
}


@pytest.mark.parametrize("name", ODD)
def test_every_report_has_a_page_whose_controls_control_something(name, tmp_path):
    source = build(ODD[name], tmp_path)
    Page(source)
    assert "nan" not in " ".join(re.findall(r' d="(.*?)"', source))
    for svg in parse_svgs(source):
        assert (
            svg.get("role") == "img"
            and svg.get("aria-label")
            or (svg.get("aria-hidden") == "true")
        )
    ids = re.findall(r'\bid="(.*?)"', source)
    assert len(ids) == len(set(ids))
    used = set(re.findall(r"#([a-z]+-[0-9]+(?:-[0-9]+)?)\b", source))
    used |= set(re.findall(r'for="(.*?)"', source))
    assert used <= set(ids)
    # And all of the controls and panels that there are have a rule.
    controls = set(re.findall(r'<input[^>]* id="(.*?)"', source))
    assert controls <= used
    panels = set(re.findall(r'class="plot panel (v[0-9-]+)', source))
    assert panels <= {
        f"v{result}" for result in re.findall(r"\) \.v([0-9-]+) {", source)
    }
    for section in re.findall(r"<section.*?</section>", source, re.S):
        chosen = re.findall(r'name="(.*?)"[^>]* checked', section)
        assert len(chosen) == len(set(chosen))
        assert section.count(" default") == (1 if "panel" in section else 0)


@pytest.mark.parametrize("section", ["curves", "pareto", "forest"])
def test_every_choice_has_its_panel(section, tmp_path):
    source = build(make_full_report(), tmp_path)
    (part,) = re.findall(f'<section id="{section}".*?</section>', source, re.S)
    groups = [
        name.split("-")[1] for name in re.findall(r'type="radio" name="(.*?)"', part)
    ]
    expected = math.prod(groups.count(group) for group in set(groups))
    assert len(re.findall('class="plot panel v', part)) == expected > 1


def test_a_curve_by_hand(tmp_path):
    """Values .4 +- .1 and 1 +- 0 of two seeds, at 0 and 100 tokens."""
    values = {"clm": [[0.3, 1.0], [0.5, 1.0]]}
    values = {name: [[*seed] for seed in seeds] for name, seeds in values.items()}
    chart = draw_curves(
        group_by_name(make_curves(values)), "probe_accuracy", "raw_tokens"
    )
    svg = ElementTree.fromstring(chart)
    kinds = {e.get("class"): e.get("d") for e in svg.iter("path")}
    # y: .2 to 1 (a tick at each .2) from 302 to 14, so 36 units are .1; x: 68 to 486.
    assert kinds["mean"] == "M68.0 230.0L486.0 14.0"
    # The sample standard deviation of .3 and .5 is .2 / sqrt(2) = .1414, 50.9 units.
    assert kinds["band"] == "M68.0 280.9L486.0 14.0L486.0 14.0L68.0 179.1Z"
    seeds = [e.get("d") for e in svg.iter("path") if e.get("class") == "seed"]
    assert seeds == ["M68.0 266.0L486.0 14.0", "M68.0 194.0L486.0 14.0"]
    dots = [(e.get("cx"), e.get("cy")) for e in svg.iter("circle")]
    assert dots == [("68", "230"), ("486", "14")]
    numbers = [e.text for e in svg.iter("text")]
    assert {"0.2", "0.4", "1", "0", "100", "raw tokens"} <= set(numbers)
    assert "clm: 0.4 ± 0.14 at 0 raw tokens" in chart


def test_a_band_that_reaches_beyond_its_seeds_stays_in_the_plot():
    runs = make_curves({"clm": [[0.4, 0.4], [0.4, 0.4], [0.6, 0.6]]})
    chart = draw_curves(group_by_name(runs), "probe_accuracy", "raw_tokens")
    (band,) = re.findall('class="band" d="M(.*?)Z"', chart)
    heights = [float(corner.split()[1]) for corner in band.split("L")]
    # The mean .467 less .115 is below .4, the least tick of the seeds alone.
    assert max(heights) <= 302 and min(heights) >= 14


def test_one_seed_has_no_band_and_a_gap_where_a_value_is_missing():
    runs = make_curves({"clm": [[0.2, None, 0.4, 0.6]]})
    chart = draw_curves(group_by_name(runs), "probe_accuracy", "raw_tokens")
    kinds = {
        e.get("class"): e.get("d") for e in ElementTree.fromstring(chart).iter("path")
    }
    assert "band" not in kinds and "seed" not in kinds
    assert kinds["mean"].count("M") == 2 and kinds["mean"].count("L") == 1


def test_a_mean_ends_with_the_first_seed_that_stops():
    runs = make_curves({"clm": [[0.2, 0.3, 0.4], [0.2, 0.3]]})
    chart = draw_curves(group_by_name(runs), "probe_accuracy", "flops")
    kinds = [
        (e.get("class"), e.get("d")) for e in ElementTree.fromstring(chart).iter("path")
    ]
    (mean,) = [path for kind, path in kinds if kind == "mean"]
    assert mean.count("L") == 1


def test_a_loss_is_relative_to_its_own_start():
    runs = make_curves({"clm": [[4.0, 2.0]], "electra": [[40.0, 20.0]]}, "valid_loss")
    chart = draw_curves(group_by_name(runs), "valid_loss", "seconds")
    means = [
        e.get("d")
        for e in ElementTree.fromstring(chart).iter("path")
        if e.get("class") == "mean"
    ]
    assert means[0] == means[1]


def test_quality_against_cost_by_hand():
    """Lower bits are drawn higher; the dear and worse one is not on the front."""
    runs = make_runs({"a": [2.0, 4.0], "b": [2.0], "c": [4.0]}, "bits_per_byte")
    for run, seconds in zip(runs, (10, 30, 30, 40)):
        run.facts["train_seconds"] = seconds
    (entry,) = reporting.summarise(runs)
    chart = draw_pareto(group_by_name(runs), entry, "train_seconds")
    svg = ElementTree.fromstring(chart)
    # x: 0 to 40 from 68 to 572; y: 2 to 4 from 14 to 302.
    small = [(e.get("cx"), e.get("cy")) for e in svg.iter("circle")]
    assert small[:3] == [("194", "14"), ("446", "302"), ("320", "158")]
    (front,) = [e.get("d") for e in svg.iter("path") if e.get("class") == "front"]
    assert front == "M320.0 158.0L446.0 14.0"
    assert "bits per byte, reversed" in chart


def test_costs_that_are_equal_look_equal():
    """A budget is met up to whole calls of steps, which is not a difference."""
    runs = make_runs({"a": [0.5], "b": [0.6]})
    groups = group_by_name([vary(runs[0], flops=5.88e11), vary(runs[1], flops=6e11)])
    (entry,) = reporting.summarise(runs)
    svg = ElementTree.fromstring(draw_pareto(groups, entry, "flops"))
    marks = [e.get("d") or e.get("cx") for e in svg.iter() if e.get("class") == "dot"]
    places = [float(re.search(r"[0-9.]+", mark)[0]) for mark in marks]
    assert abs(places[0] - places[1]) < 25  # of 504 units
    assert not any(e.get("class") == "front" for e in svg.iter("path"))


def test_the_legend_of_samples_has_no_block():
    """Only the key of an inspected passage has boxes."""
    style = (Path(pages.__file__).parent / "templates" / "style.css").read_text()
    assert ".legend i" not in style and ".key i" in style


def test_a_difference_by_hand():
    """From .1 to .3 around .2, on a scale from -.1 to .4, with a margin of .05."""
    row = page_charts.ForestRow("a", "b", 0.2, 0.1, 0.4, 0.01, "ahead", [0, 1])
    scale = page_charts.AxisScale(-0.1, 0.4, 10, 310)
    svg = ElementTree.fromstring(page_charts._draw_strip(row, scale, 0.05, "told"))
    kinds = {e.get("class"): e for e in svg}
    assert kinds["interval"].get("d").startswith("M130.0 11H310.0")
    assert kinds["axis"].get("d") == "M70.0 0V22"
    assert kinds["margin"].get("x") == "40" and kinds["margin"].get("width") == "60"
    assert kinds["dot"].get("cx") == "190"


def test_an_objective_below_a_baseline_is_left_of_zero():
    pair = Verdict("(reference)", "clm", "ahead", 0.2, 0.1, 0.3)
    (entry,) = reporting.summarise(make_runs({"clm": [0.5]}))
    entry = vary(entry, baselines=[pair], reference="n-grams")
    (row,) = page_charts.list_baselines(entry, {"clm": 0})
    assert (row.first, row.second, row.outcome) == ("clm", "n-grams", "behind")
    assert (row.difference, row.low, row.high) == (-0.2, -0.3, -0.1)


def test_pairs_of_many_objectives_fold_and_none_is_lost(tmp_path):
    source = build(ODD["fifteen"], tmp_path)
    assert "the other 89 differences" in source
    rows = re.findall(r'<tr class="p[0-9]+ p[0-9]+">', source)
    assert len(rows) == 15 * 14 / 2
    first = re.findall(r'class="text pair">(.*?)</td>', source)[:14]
    assert all("objective 14" in words for words in first)


@pytest.mark.parametrize(
    "values, who",
    [
        ({"a": [0.9, 0.9001] * 2, "b": [0.1] * 4}, "a is ahead of b"),
        (
            {"a": [0.9, 0.9001] * 2, "b": [0.1] * 4, "c": [0.2, 0.2001] * 2},
            "a is ahead of c and b",
        ),
        (
            {"a": [0.9] * 4, "b": [0.1, 0.1002] * 2, "c": [0.8, 0.4, 0.99, 0.9]},
            "a is ahead of b, no significant difference from c (at most 0.759)",
        ),
        (
            {"a": [0.9, 0.1] * 2, "b": [0.2, 0.3] * 2},
            "no significant difference between a and b (at most 0.991)",
        ),
        ({"a": [0.5] * 4, "b": [0.5] * 4}, "all are equivalent within 0.01"),
        ({"a": [0.5], "b": [0.4]}, "no verdict from 1 seed (4 are needed)"),
        ({"a": [0.5, 0.6]}, "only a was measured"),
        (
            {"a": [0.99, 0.1, 0.9, 0.99], "b": [0.6, 0.601] * 2, "c": [0.5] * 4},
            "a has the best mean, no significant difference from b and c (at most "
            "1.000)",
        ),
    ],
)
def test_the_first_answer_says_no_more_than_the_verdicts(values, who):
    (ranking,) = rank_report(make_report(make_runs(values))).rankings
    assert ranking.sentence.partition(": ")[2] == who


def test_names_from_data_are_escaped_in_charts(tmp_path):
    values = {HOSTILE: [[0.5, 0.6], [0.5, 0.7]], 'it\'s "b"': [[0.1, 0.2]] * 2}
    source = build(make_report(make_curves(values)), tmp_path)
    assert "<script" not in source
    charts = [svg for svg in parse_svgs(source) if svg.get("class") == "chart"]
    assert all(HOSTILE in svg.get("aria-label") for svg in charts)
    titles = [element.text for svg in charts for element in svg.iter("title")]
    assert any(title.startswith(f"{HOSTILE}: ") for title in titles)


def test_tuning_is_told_with_its_trials(tmp_path):
    trials = [
        {"settings": {"train.lr": lr}, "value": value}
        for lr, value in ((0.01, 0.5), (0.1, None))
    ]
    record = {"by": "probe_accuracy", "chosen": {"train.lr": 0.01}, "flops": 1e9}
    record |= {"trials": trials, "at_edge": ["train.lr"]}
    report = make_report(make_runs({HOSTILE: [0.5]}), tuning={HOSTILE: record})
    texts = write_page(report, tmp_path).texts
    start = texts.index("Tuning", texts.index("Tuning") + 1)
    cells = [text for text in texts[start:] if text.strip()]
    place = cells.index("chosen")
    assert cells[place : place + 5] == ["chosen", "0.01", "0.500", "0.1", "diverged"]
    before = texts[: texts.index("Learning curves")]
    assert any(text.startswith("WARNING: the best train.lr") for text in before)


def test_pictures_of_two_objectives_have_two_captions(tmp_path):
    (tmp_path / "a.svg").write_bytes(PICTURE)
    names = ["mask_fill_clm", "mask_fill_clm_mlm", "attention_masks", "other"]
    report = make_report(
        make_runs({"clm": [0.5], "clm_mlm": [0.6]}),
        figures=dict.fromkeys(names, "a.svg"),
    )
    source = build(report, tmp_path)
    captions = re.findall("<figcaption>(.*?)</figcaption>", source)
    assert [text.split(" ")[0] for text in captions] == [
        "clm:",
        "clm_mlm:",
        "Attention",
        "other",
    ]
    assert len(set(captions)) == 4


def test_colours_can_be_read_on_dark_paper_and_differ():
    dark = [drawing.lighten(color) for color, _ in drawing.PALETTE]
    paper = drawing.DARK_PAPER
    assert all(drawing.find_contrast(color, paper) >= 4.5 for color in dark)
    assert drawing.find_contrast("#000000", "#ffffff") == pytest.approx(21)
    assert len(set(dark)) == len(dark)
    markers = [marker for _, marker in drawing.PALETTE]
    assert set(markers) <= set(charts.MARKERS)
    shapes = {charts.draw_marker(marker, 0, 0, 10) for marker in markers}
    assert len(shapes) == len(markers)
    style = Path(pages.__file__).parent / "templates" / "style.css"
    assert drawing.DARK_PAPER in style.read_text()


@given(
    st.lists(st.floats(-500, 800), max_size=20),
    st.floats(0.5, 40),
)
def test_names_beside_lines_keep_their_distance_and_order(positions, gap):
    places = charts.spread(positions, gap, 0, 300)
    assert all(-1e-6 <= place <= 300 + 1e-6 for place in places)
    order = sorted(range(len(positions)), key=lambda i: positions[i])
    room = min(gap, 300 / max(1, len(positions) - 1))
    steps = np.diff([places[i] for i in order])
    assert np.all(steps >= room - 1e-6)


@given(st.floats(-1e9, 1e9), st.floats(1e-6, 1e9))
def test_ticks_enclose_what_is_drawn(low, width):
    ticks = charts.choose_ticks(low, low + width)
    assert 2 <= len(ticks) <= 9
    slack = 1e-5 * (ticks[1] - ticks[0])
    assert ticks[0] <= low + slack and ticks[-1] >= low + width - slack


@given(st.floats(1e-9, 1e15), st.floats(1.01, 1e9))
def test_logarithmic_ticks_enclose_what_is_drawn(low, factor):
    ticks = charts.choose_log_ticks(low, low * factor)
    assert ticks[0] <= low * 1.0001 and ticks[-1] >= low * factor * 0.9999


def test_no_two_numbers_along_an_axis_are_written_alike():
    """FLOPs at equal budgets differ in their third figure, or not at all."""
    for values in ([1.418e12, 1.444e12], [1.43e12, 1.43000001e12], [5.0, 5.0]):
        axis = charts.make_axis(values, "FLOPs", formats.format_flops, 0, 100)
        assert len({axis.write(tick) for tick in axis.ticks}) == len(axis.ticks)
        assert axis.ticks[0] <= min(values) and axis.ticks[-1] >= max(values)


def test_a_wide_picture_has_a_row_of_its_own(tmp_path):
    for name, width in (("a.svg", 1800), ("b.svg", 840)):
        (tmp_path / name).write_bytes(PICTURE.replace(b"840", b"%d" % width))
    figures = {"mask_fill_clm": "a.svg", "pretrained_vs_random_clm": "b.svg"}
    report = make_report(make_runs({"clm": [0.5]}), figures=figures)
    matches = re.findall("<figure.*?>", build(report, tmp_path))
    assert matches == ['<figure class="broad">', "<figure>"]


def test_the_first_chart_shows_a_shared_metric_with_its_baselines(tmp_path):
    """Also if nothing but the validation loss was measured during training."""
    runs = make_runs({"clm": [0.5, 0.51], "mlm": [0.6, 0.61]})
    for measured, heading in (({}, "Quality against cost"), (0.4, "Learning curves")):
        for run in runs:
            if measured:
                run.metrics["probe_accuracy_random"] = measured + run.seed / 1e3
        source = build(make_report(runs), tmp_path)
        chart = next(svg for svg in parse_svgs(source) if svg.get("class") == "chart")
        assert re.search("linear probe on frozen.*against", chart.get("aria-label"))
        assert re.search(r"<h2 .*?>(.*?)</h2>", source)[1] == heading
        labels = [e.text for e in chart.iter("text") if e.get("class") == "level"]
        assert labels == ["random initialization"] * bool(measured)


def test_every_table_scrolls_or_folds_on_a_narrow_screen(tmp_path):
    report = make_full_report()
    trials = [{"settings": {"optim.lr": 0.01}, "value": 0.5}]
    record = {"by": "probe_accuracy", "chosen": trials[0]["settings"], "flops": 1e9}
    tuning = {"clm": record | {"trials": trials, "at_edge": []}}
    report = vary(report, tuning=tuning)
    source = build(report, tmp_path)
    tables = re.findall(r'(.{18})<table(?: class="(.*?)")?>', source, re.S)
    assert len(tables) > 8
    for before, kind in tables:
        assert kind in ("ranking", "forest") or before == '<div class="wide">'
    style = source[: source.index("</style>")]
    assert ".wide { overflow-x: auto; }" in style
    narrow = style[style.index("@media screen and (max-width: 45rem)") :]
    assert all(f".{kind}, .{kind} t" in narrow for kind in ("ranking", "forest"))
    assert "pre { white-space: pre-wrap;" in style


def test_nothing_is_drawn_twice(tmp_path):
    report = make_full_report()
    report = vary(report, figures=dict.fromkeys(page.AS_CHARTS, "a.svg"))
    (tmp_path / "a.svg").write_bytes(PICTURE)
    source = build(report, tmp_path)
    assert "<img" not in source
    assert source.count("a.svg") == len(page.AS_CHARTS)
    labels = [s.get("aria-label") for s in parse_svgs(source) if s.get("class")]
    charts = [label for label in labels if label and " against " in label]
    assert len(charts) == len(set(charts)) > 5
