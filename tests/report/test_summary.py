import html.parser
import json
import math
import re
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxpt.errors import UserError
from jaxpt.eval.examples import Examples
from jaxpt.report import report_page
from jaxpt.report import summary as reporting

PNG = b"\x89PNG\r\n\x1a\n rest"
OBJECTIVES = ["clm", "mlm", "span_corruption", "electra"]


def make_run(objective, seed=0, **metrics):
    return {
        "name": objective,
        "seed": seed,
        "params": 3_412_345,
        "steps": 1000,
        "row_length": 128,
        "batch_size": 64,
        "raw_tokens": 8_192_000,
        "model_tokens": 8_192_000,
        "flops": 1.67e14,
        "train_seconds": 120.0 + seed,
        "first_step_seconds": 9.5,
        "steps_per_second": 8.3,
        "metrics": metrics,
        "workdir": f"out/{objective}-{seed}",
        "curve": [
            {
                "step": 1000,
                "raw_tokens": 8_192_000,
                "flops": 1.67e14,
                "seconds": 120.0,
                "valid_loss": 2.0,
                "valid_accuracy": 0.4,
            }
        ],
    }


def make_runs(values, metric="probe_accuracy"):
    return [
        make_run(objective, seed, **{metric: value})
        for objective, seeds in values.items()
        for seed, value in enumerate(seeds)
    ]


def make_report(runs, **changes):
    return {
        "title": "Four objectives",
        "created": "2025-01-31T12:00:00",
        "version": "0.1.0",
        "config": {"model": {"d_model": 256}},
        "budget": {"kind": "flops", "amount": 1.67e14, "note": "as clm"},
        "data": {
            "path": "data/tales",
            "documents": 209,
            "train_tokens": 1_200_345,
            "valid_tokens": 60_000,
            "vocab_size": 4096,
            "tokenizer": "bpe",
        },
        "runs": runs,
        "yardsticks": reporting.summarise(runs),
        "notes": {"flops": "forward and backward matrix products"},
        "figures": {},
    } | changes


def judge(values, metric="probe_accuracy"):
    return reporting.summarise(make_runs(values, metric))[0]["verdict"]


class Page(html.parser.HTMLParser):
    """What a browser would make of a page: its tags, attributes and text."""

    VOID = frozenset({"meta", "img"})

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
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)


def write_page(report, folder):
    return Page(report_page.write_report(report, folder).read_bytes().decode())


def test_summary_of_three_seeds_by_hand():
    runs = make_runs({"clm": [0.1, 0.2, 0.3], "mlm": [0.5]})
    (entry,) = reporting.summarise(runs)
    assert entry["metric"] == "probe_accuracy"
    assert entry["is_common"] and entry["higher_is_better"]
    clm, mlm = entry["by_name"]["clm"], entry["by_name"]["mlm"]
    assert clm == {"mean": pytest.approx(0.2), "std": pytest.approx(0.1), "n": 3}
    assert mlm == {"mean": 0.5, "std": None, "n": 1}


FEW = "no verdict: two seeds or more are needed, five or more to tell much"


@pytest.mark.parametrize(
    "values, verdict",
    [
        # Differences of .1 and .1002, by hand: t is 12.706 of one degree of freedom.
        (
            {"mlm": [0.6, 0.62], "electra": [0.7, 0.7202]},
            "electra ahead of mlm by 0.100 [0.099, 0.101]",
        ),
        # Of .09 and .11 it is .1 +- .127; of five such seeds .1 +- .014.
        (
            {"mlm": [0.61, 0.61], "electra": [0.70, 0.72]},
            "tie of electra with mlm (0.100 [-0.027, 0.227]; about 3 seeds would tell)",
        ),
        (
            {"mlm": [0.60, 0.62, 0.61, 0.62, 0.60], "electra": [0.7] * 5},
            "electra ahead of mlm by 0.090 [0.078, 0.102]",
        ),
        # Three pairs: the closest of them is held against .05, the others before it.
        (
            {
                "clm": [0.3, 0.302, 0.301],
                "mlm": [0.6, 0.603, 0.601],
                "electra": [0.601, 0.604, 0.601],
            },
            "electra ahead of clm by 0.301 [0.297, 0.305]; electra equivalent to mlm "
            "(0.001 [-0.001, 0.002]), within 0.01; mlm ahead of clm by 0.300 "
            "[0.298, 0.303]",
        ),
        (
            {"clm": [0.5, 0.5], "mlm": [0.5, 0.5]},
            "clm equivalent to mlm (0.000 [0.000, 0.000]), within 0.01",
        ),
        ({"clm": [0.5], "mlm": [0.9]}, FEW),
        ({"clm": [0.5, 0.5], "mlm": [0.9]}, FEW),
        ({"clm": [0.5, math.nan], "mlm": [0.9, 0.9]}, FEW),
        ({"clm": [0.5, 0.6], "mlm": [None, math.nan]}, ""),
        ({"clm": [0.5, 0.6]}, ""),
    ],
)
def test_verdict(values, verdict):
    assert judge(values) == verdict


def test_a_tiny_lead_is_not_printed_as_zero():
    verdict = judge({"clm": [0.5002, 0.50020001], "mlm": [0.5, 0.5]})
    assert verdict == "clm ahead of mlm by 2.0e-04 [2.0e-04, 2.0e-04]"


def test_lower_bits_per_byte_win():
    (entry,) = reporting.summarise(
        make_runs({"clm": [2.0, 2.1], "mlm": [3.0, 3.1001]}, "bits_per_byte")
    )
    (pair,) = entry["pairs"]
    assert pair["better"] == "clm" and pair["difference"] == pytest.approx(1.00005)
    assert entry["verdict"].startswith("clm ahead of mlm by 1.000 [0.99")


def make_examples(draw, rate, num_groups=20, per_group=10):
    groups = np.repeat(np.arange(num_groups), per_group)
    hits = draw.random(len(groups)) < rate
    return Examples(hits.astype(float), np.ones(len(groups)), groups)


def test_examples_widen_the_interval_and_are_of_the_runs():
    """Seeds that agree say nothing of other documents; their examples do."""
    runs = make_runs({"clm": [0.6, 0.6, 0.6], "mlm": [0.62, 0.62, 0.62]})
    (alone,) = reporting.summarise(runs)
    draw = np.random.default_rng(0)
    examples = {
        (run["name"], run["seed"]): {"probe_accuracy": make_examples(draw, 0.6)}
        for run in runs
    }
    (told,) = reporting.summarise(runs, examples)
    (before,), (pair,) = alone["pairs"], told["pairs"]
    assert before["examples_error"] == 0 and pair["examples_error"] > 0.01
    assert pair["documents"] == 20 and pair["outcome"] == "tie"
    assert "more seeds alone would not tell" in told["verdict"]
    reports = [make_report(runs, yardsticks=[entry]) for entry in (alone, told)]
    notes = [reporting.list_omissions(report) for report in reports]
    assert "choice of seeds alone" in notes[0][0] and notes[1] == []


def test_who_learnt_nothing_is_said():
    runs = [
        make_run(name, seed, probe_accuracy=value + seed / 1e4, probe_accuracy_random=r)
        for name, value, r in (("clm", 0.9, 0.5), ("mlm", 0.5, 0.5))
        for seed in range(4)
    ]
    (entry,) = reporting.summarise(runs)
    outcomes = {pair["better"]: pair["outcome"] for pair in entry["baselines"]}
    assert outcomes["clm"] == "ahead"
    lines = reporting.list_verdicts(make_report(runs))
    wanted = "linear probe on frozen features: ahead of their own untrained "
    assert lines[1] == wanted + "parameters: clm, neither: mlm"


def test_who_is_behind_an_answer_without_a_network_is_said():
    values = {"clm": [0.8, 0.801, 0.802], "mlm": [0.4, 0.401, 0.402]}
    draw, runs = np.random.default_rng(0), make_runs(values)
    reference = make_examples(draw, 0.6)
    references = {name: {"probe_accuracy": reference} for name in values}
    examples = {
        (run["name"], run["seed"]): {
            "probe_accuracy": reference._replace(
                totals=np.full(len(reference.totals), run["metrics"]["probe_accuracy"])
            )
        }
        for run in runs
    }
    yardsticks = reporting.summarise(runs, examples, references)
    report = make_report(runs, yardsticks=yardsticks)
    assert reporting.list_baselines(report) == [
        "linear probe on frozen features: ahead of a bag of n-grams: clm, behind: mlm"
    ]
    pairs = {pair["better"]: pair for pair in yardsticks[0]["baselines"]}
    assert pairs["(reference)"]["worse"] == "mlm"


@pytest.mark.parametrize(
    "metric",
    ["valid_loss", "valid_accuracy", "val_perplexity", "heldout_top1", "heldout_top5"],
)
def test_what_is_not_common_gets_no_verdict(metric):
    (entry,) = reporting.summarise(make_runs({"clm": [1, 1], "mlm": [2, 2]}, metric))
    assert not entry["is_common"] and entry["verdict"] == ""


SEEDS = st.lists(st.floats(0, 1), min_size=2, max_size=4)


@given(st.dictionaries(st.sampled_from(OBJECTIVES), SEEDS, min_size=2), st.randoms())
def test_the_order_of_runs_changes_nothing(values, random):
    runs = make_runs(values)
    shuffled = random.sample(runs, len(runs))
    assert reporting.summarise(runs) == reporting.summarise(shuffled)


@given(st.dictionaries(st.sampled_from(OBJECTIVES), SEEDS, min_size=2))
def test_the_best_is_named_first_and_nobody_is_ahead_whose_interval_holds_zero(values):
    (entry,) = reporting.summarise(make_runs(values))
    means = {name: statistics.fmean(seeds) for name, seeds in values.items()}
    best = min(means, key=lambda name: (-means[name], name))
    first = entry["pairs"][0]
    assert best in (first["better"], first["worse"])
    for pair in entry["pairs"]:
        is_ahead = pair["outcome"] == "ahead"
        assert f"{pair['better']} ahead of" in entry["verdict"] or not is_ahead
        if pair["seeds_error"] > 1e-12:
            assert is_ahead == (pair["low"] > 0)


@given(SEEDS, st.lists(st.sampled_from([None, math.nan, math.inf]), max_size=3))
def test_values_that_are_not_finite_are_left_out(seeds, others):
    with_others = reporting.summarise(make_runs({"clm": others + seeds + others}))
    assert with_others == reporting.summarise(make_runs({"clm": seeds}))


def make_full_report():
    runs = [
        make_run(
            objective,
            seed,
            probe_accuracy=0.7 + seed / 100,
            probe_accuracy_random=0.4,
            valid_loss=math.nan if (objective, seed) == ("mlm", 1) else 12.5 + seed,
            valid_accuracy=0.3 + seed / 100,
            bits_per_byte=np.float32(2.0 + seed),
        )
        for objective in OBJECTIVES
        for seed in range(3)
    ]
    return make_report(runs)


def test_table_by_hand():
    runs = make_runs({"clm": [0.1, 0.2, 0.3], "mlm": [0.9, 0.9, 0.9]})
    assert reporting.format_table(make_report(runs)) == "\n".join(
        [
            "Four objectives",
            "budget: 1.67e14 FLOPs (as clm)",
            "",
            "objective  seeds  params  steps  raw tokens    FLOPs      seconds",
            "clm            3   3.41M  1,000       8.19M  1.67e14  121.0 ± 1.0",
            "mlm            3   3.41M  1,000       8.19M  1.67e14  121.0 ± 1.0",
            "",
            "objective  probe accuracy",
            "clm         0.200 ± 0.100",
            "mlm                 0.900",
            "",
            "linear probe on frozen features: mlm ahead of clm by 0.700 [0.452, 0.948]",
            "note: intervals of probe_accuracy are of the choice of seeds alone: the "
            "test text is one document,",
            "  or its examples were not kept",
        ]
    )


def test_table_fits_the_terminal_and_tells_what_is_missing():
    lines = reporting.format_table(make_full_report()).split("\n")
    assert max(map(len, lines)) <= 100
    assert sum(line.startswith("span_corruption") for line in lines) == 2
    note, alone = [line for line in lines if line.startswith("note:")]
    assert "intervals of probe_accuracy" in alone
    assert "valid_loss of mlm is the mean of 2 of 3 seeds" in note


def test_table_says_where_there_is_no_verdict():
    table = reporting.format_table(make_report(make_runs({"clm": [0.1, 0.2]})))
    assert "no verdict: no common yardstick was measured for two objectives" in table


def test_report_json_is_strict_and_whole(tmp_path):
    report = make_full_report()
    rates = (1, np.float32(0.5))
    report["config"] = {"rates": rates, "path": tmp_path, "x": np.arange(2)}
    report["runs"][0]["curve"][0]["valid_loss"] = math.inf
    report_page.write_report(report, tmp_path)

    def refuse(constant):
        raise AssertionError(constant)

    text = (tmp_path / "report.json").read_text()
    loaded = json.loads(text, parse_constant=refuse)
    assert loaded["runs"][0]["curve"][0]["valid_loss"] is None
    assert loaded["runs"][4]["metrics"]["valid_loss"] is None
    assert loaded["config"] == {"rates": [1, 0.5], "path": str(tmp_path), "x": [0, 1]}
    assert loaded["budget"] == report["budget"]
    # A report read back prints and writes the same.
    assert reporting.format_table(loaded) == reporting.format_table(report)
    again = tmp_path / "again"
    again.mkdir()
    report_page.write_report(loaded, again)
    for name in ("report.json", "report.html"):
        assert (again / name).read_bytes() == (tmp_path / name).read_bytes()


def test_report_html_needs_nothing_outside_itself(tmp_path):
    report = make_full_report()
    report["figures"] = {"learning_curves": "a.png", "mask_fill_mlm": "b.png"}
    for name in report["figures"].values():
        (tmp_path / name).write_bytes(PNG)
    path = report_page.write_report(report, tmp_path)
    assert path == tmp_path / "report.html"
    written = Page(path.read_text())
    links = [value for name, value in written.attributes if name in ("src", "href")]
    assert len(links) == 2
    assert all(link.startswith("data:image/png;base64,") for link in links)
    assert not {"script", "link", "iframe"} & set(written.tags)
    assert not re.search(r"https?:|url\(|@import", path.read_text())
    assert "prefers-color-scheme: dark" in path.read_text()
    assert written.texts.count(report_page.CAPTIONS["mask_fill"]) == 1
    assert sorted(child.name for child in tmp_path.iterdir()) == [
        "a.png",
        "b.png",
        "checksums.json",
        "report.html",
        "report.json",
    ]


def test_report_html_opens_with_the_verdicts(tmp_path):
    runs = make_runs({"clm": [0.1, 0.1001], "mlm": [0.9, 0.9]})
    texts = write_page(make_report(runs), tmp_path).texts
    verdict = "mlm ahead of clm by 0.800 [0.799, 0.801]"
    verdict = f"linear probe on frozen features: {verdict}"
    order = ["Summary", verdict, "Yardsticks", "Differences", "Plots", "Runs"]
    order.append("Budget and data")
    assert [text for text in texts if text in order] == order
    assert ": forward and backward matrix products" in texts
    assert "0.900 (n=2)" in texts
    row = texts.index("better", texts.index("Differences"))
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
        figures={name: "a.png"},
    )
    report["data"] |= {"path": HOSTILE, HOSTILE: HOSTILE}
    report["runs"][0]["workdir"] = HOSTILE
    (tmp_path / "a.png").write_bytes(PNG)
    page = write_page(report, tmp_path)
    assert "script" not in page.tags
    assert ("alt", name) in page.attributes
    assert sum("alert" in text for text in page.texts) > 12


@given(st.text(), st.text(min_size=1))
def test_no_text_changes_the_page_s_structure(tmp_path_factory, title, objective):
    folder = tmp_path_factory.getbasetemp()
    plain = write_page(make_report([make_run("clm")], title="t"), folder)
    runs = [make_run(objective, valid_loss=1.0)]
    runs[0]["metrics"].clear()
    page = write_page(make_report(runs, title=title), folder)
    assert page.tags == plain.tags
    assert len(page.attributes) == len(plain.attributes)


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
    assert report_page.write_report(report, tmp_path).exists()


def test_a_figure_that_is_missing_is_named_and_nothing_is_written(tmp_path):
    report = make_report(make_runs({"clm": [0.1]}), figures={"mask_fill": "gone.png"})
    with pytest.raises(UserError, match=r"^figures\.mask_fill: .*gone\.png: No such"):
        report_page.write_report(report, tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_folder_that_is_missing_is_named(tmp_path):
    report = make_report(make_runs({"clm": [0.1]}))
    with pytest.raises(
        UserError, match=r"absent.report\.json: cannot be written: No such"
    ):
        report_page.write_report(report, tmp_path / "absent")


def test_a_failed_write_keeps_the_last_report(tmp_path):
    report = make_report(make_runs({"clm": [0.1]}))
    report_page.write_report(report, tmp_path)
    before = (tmp_path / "report.json").read_bytes()
    with pytest.raises(TypeError):
        report_page.write_report(report | {"config": {"x": object()}}, tmp_path)
    assert (tmp_path / "report.json").read_bytes() == before
