import math
import statistics

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from reports import OBJECTIVES, make_full_report, make_report, make_run, make_runs, vary

from jaxpt.judge.examples import Examples
from jaxpt.report import summary as reporting
from jaxpt.report import terminal
from jaxpt.report.answer import rank_report
from jaxpt.report.metrics import MetricInfo, list_metrics
from jaxpt.report.types import Mean
from jaxpt.report.wording import word_pair


def judge(values, metric="probe_accuracy"):
    """The verdicts on all pairs, in words."""
    (entry,) = reporting.summarise(make_runs(values, metric))
    return "; ".join(word_pair(pair, entry.margin) for pair in entry.pairs)


def test_summary_of_three_seeds_by_hand():
    runs = make_runs({"clm": [0.1, 0.2, 0.3], "mlm": [0.5]})
    (entry,) = reporting.summarise(runs)
    assert entry.metric == "probe_accuracy"
    assert entry.is_common and entry.higher_is_better
    clm, mlm = entry.by_name["clm"], entry.by_name["mlm"]
    assert clm == Mean(pytest.approx(0.2), pytest.approx(0.1), 3)
    assert mlm == Mean(0.5, None, 1)


FEW = "no verdict from {}: at least 4 of each objective are needed (5 are recommended)"


@pytest.mark.parametrize(
    "values, verdict",
    [
        # By hand: t is 3.182 of three degrees of freedom, the error of mlm .00577.
        (
            {"mlm": [0.6, 0.62] * 2, "electra": [0.7] * 4},
            "electra ahead of mlm by 0.090 [0.072, 0.108]",
        ),
        # t is 2.776 of four, the error .00447.
        (
            {"mlm": [0.60, 0.62, 0.61, 0.62, 0.60], "electra": [0.7] * 5},
            "electra ahead of mlm by 0.090 [0.078, 0.102]",
        ),
        (
            {"mlm": [0.51, 0.71] * 2, "electra": [0.71] * 4},
            "electra and mlm: no significant difference, at most 0.284 (0.100 [-0.084, "
            "0.284]; a new comparison needs about 13 seeds)",
        ),
        # Three pairs: each interval has the level .05 / 3.
        (
            {
                "clm": [0.3, 0.302, 0.301, 0.301],
                "mlm": [0.6, 0.603, 0.601, 0.602],
                "electra": [0.601, 0.604, 0.601, 0.603],
            },
            "electra and mlm: equivalent within 0.01 (0.001 [-0.003, 0.004]); electra "
            "ahead of clm by 0.301 [0.298, 0.305]; mlm ahead of clm by 0.300 [0.298, "
            "0.303]",
        ),
        # Equal counts of few seeds show nothing; nor do two or three of any.
        (
            {"clm": [0.5] * 4, "mlm": [0.5] * 4},
            "clm and mlm: equivalent within 0.01 (0.000 [0.000, 0.000])",
        ),
        (
            {"clm": [0.5], "mlm": [0.9]},
            f"mlm and clm: {FEW.format('1 seed')}",
        ),
        (
            {"clm": [0.733, 0.737], "mlm": [0.22, 0.234]},
            f"clm and mlm: {FEW.format('2 seeds')}",
        ),
        (
            {"clm": [0.5, 0.6, 0.7, math.nan], "mlm": [0.9] * 4},
            f"mlm and clm: {FEW.format('3 seeds')}",
        ),
        # Too few of one objective alone.
        (
            {"clm": [0.5] * 3, "mlm": [0.9, 0.8] * 2, "bart": [0.1, 0.2] * 2},
            f"mlm and clm: {FEW.format('3 seeds')}; mlm ahead of bart by 0.700 [0.596, "
            f"0.804]; clm and bart: {FEW.format('3 seeds')}",
        ),
        ({"clm": [0.5, 0.6], "mlm": [None, math.nan]}, ""),
        ({"clm": [0.5, 0.6]}, ""),
    ],
)
def test_verdict(values, verdict):
    assert judge(values) == verdict


def test_a_tiny_lead_is_not_printed_as_zero():
    verdict = judge({"clm": [0.5002, 0.50020001] * 2, "mlm": [0.5] * 4})
    assert verdict == "clm ahead of mlm by 2.0e-04 [2.0e-04, 2.0e-04]"


def test_lower_bits_per_byte_win():
    (entry,) = reporting.summarise(
        make_runs({"clm": [2.0, 2.1] * 2, "mlm": [3.0, 3.1001] * 2}, "bits_per_byte")
    )
    (pair,) = entry.pairs
    assert pair.better == "clm" and pair.difference == pytest.approx(1.00005)
    words = word_pair(pair, entry.margin)
    assert words == "clm ahead of mlm by 1.000 [0.896, 1.104]"
    assert entry.verdict == "clm is ahead of mlm"


def make_examples(draw, rate, num_groups=20, per_group=10):
    groups = np.repeat(np.arange(num_groups), per_group)
    hits = draw.random(len(groups)) < rate
    return Examples(hits.astype(float), np.ones(len(groups)), groups)


def test_examples_widen_the_interval_and_are_of_the_runs():
    """Seeds that agree say nothing of other documents; their examples do."""
    runs = make_runs({"clm": [0.6] * 4, "mlm": [0.62] * 4})
    (alone,) = reporting.summarise(runs)
    draw = np.random.default_rng(0)
    examples = {
        (run.name, run.seed): {"probe_accuracy": make_examples(draw, 0.6)}
        for run in runs
    }
    (output,) = reporting.summarise(runs, examples)
    (before,), (pair,) = alone.pairs, output.pairs
    assert before.examples_error == 0 and pair.examples_error > 0.01
    assert pair.documents == 20 and pair.outcome == "tie"
    assert "needs more test documents" in word_pair(pair, output.margin)
    reports = [make_report(runs, metrics=[entry]) for entry in (alone, output)]
    notes = [terminal.list_omissions(report) for report in reports]
    assert "cover other seeds, not other test" in notes[0][0] and notes[1] == []


def test_a_test_text_of_one_document_is_noted():
    """Its error is that of blocks, and the reader is told so."""
    runs = make_runs({"clm": [0.6, 0.61, 0.6, 0.62], "mlm": [0.62, 0.6, 0.63, 0.6]})
    draw = np.random.default_rng(0)
    examples = {
        (run.name, run.seed): {
            "probe_accuracy": make_examples(draw, 0.6, num_groups=1, per_group=200)
        }
        for run in runs
    }
    (entry,) = reporting.summarise(runs, examples)
    (pair,) = entry.pairs
    assert (pair.documents, pair.blocks) == (40, True)
    assert pair.examples_error > 0.01
    report = make_report(runs, metrics=[entry])
    (note,) = terminal.list_omissions(report)
    assert note.startswith(
        "note: the test text of linear probe on frozen features is one document"
    )
    # A text of two documents has no such note.
    for by_metric in examples.values():
        values = by_metric["probe_accuracy"]
        halves = np.arange(200) // 100
        by_metric["probe_accuracy"] = values._replace(groups=halves)
    (entry,) = reporting.summarise(runs, examples)
    assert (entry.pairs[0].documents, entry.pairs[0].blocks) == (2, False)
    assert terminal.list_omissions(make_report(runs, metrics=[entry])) == []


def test_who_learnt_nothing_is_said():
    runs = [
        make_run(name, seed, probe_accuracy=value + seed / 1e4, probe_accuracy_random=r)
        for name, value, r in (("clm", 0.9, 0.5), ("mlm", 0.5, 0.5))
        for seed in range(4)
    ]
    (entry,) = reporting.summarise(runs)
    outcomes = {pair.better: pair.outcome for pair in entry.baselines}
    assert outcomes["clm"] == "ahead"
    (ranking,) = rank_report(make_report(runs)).rankings
    assert ranking.weak == "not above random initialization: mlm"


def test_who_is_behind_an_answer_without_a_network_is_said():
    values = {"clm": [0.8, 0.801, 0.802, 0.8], "mlm": [0.4, 0.401, 0.402, 0.4]}
    draw, runs = np.random.default_rng(0), make_runs(values)
    reference = make_examples(draw, 0.6)
    references = {name: {"probe_accuracy": reference} for name in values}
    examples = {
        (run.name, run.seed): {
            "probe_accuracy": reference._replace(
                totals=np.full(len(reference.totals), run.metrics["probe_accuracy"])
            )
        }
        for run in runs
    }
    metrics = reporting.summarise(runs, examples, references)
    report = make_report(runs, metrics=metrics)
    (ranking,) = rank_report(report).rankings
    told = [dict(line.baselines) for line in ranking.lines]
    assert told == [{"a bag of n-grams": "ahead"}, {"a bag of n-grams": "behind"}]
    pairs = {pair.better: pair for pair in metrics[0].baselines}
    assert pairs["(reference)"].worse == "mlm"


@pytest.mark.parametrize(
    "metric",
    [
        "valid_loss",
        "valid_accuracy",
        "val_perplexity",
        "masked_accuracy",
        "masked_top5_accuracy",
    ],
)
def test_what_is_not_common_gets_no_verdict(metric):
    (entry,) = reporting.summarise(make_runs({"clm": [1, 1], "mlm": [2, 2]}, metric))
    assert not entry.is_common and entry.verdict == ""


SEEDS = st.lists(st.floats(0, 1), min_size=3, max_size=6)


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
    first = entry.pairs[0]
    assert best in first.names
    for pair in entry.pairs:
        is_ahead = pair.outcome == "ahead"
        assert f"{best} is ahead" in entry.verdict or not is_ahead or pair is not first
        assert is_ahead == (pair.p <= 0.05)
        assert is_ahead == (pair.low is not None and pair.low > 0)
        assert pair.outcome == "untested" or -1 <= pair.low and pair.high <= 1
    for mean in entry.by_name.values():
        assert mean.low is None or 0 <= mean.low <= mean.high <= 1  # a share


@given(SEEDS, st.lists(st.sampled_from([None, math.nan, math.inf]), max_size=3))
def test_values_that_are_not_finite_are_left_out(seeds, others):
    with_others = reporting.summarise(make_runs({"clm": others + seeds + others}))
    assert with_others == reporting.summarise(make_runs({"clm": seeds}))


def test_table_by_hand():
    runs = make_runs({"clm": [0.1, 0.2, 0.3, 0.2], "mlm": [0.9] * 4})
    assert terminal.format_table(make_report(runs)) == "\n".join(
        [
            "At 1.67e14 FLOPs per run, mlm is ahead of clm on linear probe on frozen "
            "features.",
            "",
            "rank  objective   mean        interval  letters  seeds    FLOPs",
            "   1  mlm        0.900               —  a            4  1.67e14",
            "   2  clm        0.200  [0.029, 0.371]  b            4  1.67e14",
            "",
            "Objectives that share a letter do not differ significantly: family-wise "
            "error rate 0.05 over 1 pair,",
            "  intervals simultaneous at 95 %. Power: a difference of 0.170 is found "
            "with probability 0.8.",
            "  Learning rates were not tuned.",
            "",
            "            linear probe",
            "               on frozen",
            "objective       features",
            "clm        0.200 ± 0.082",
            "mlm                0.900",
            "",
            "objective  seeds  params  steps  raw tokens    FLOPs      seconds",
            "clm            4   3.41M  1,000       8.19M  1.67e14  121.5 ± 1.3",
            "mlm            4   3.41M  1,000       8.19M  1.67e14  121.5 ± 1.3",
            "",
            "budget: 1.67e14 FLOPs (as clm)",
            "note: intervals of linear probe on frozen features cover other seeds, not "
            "other test examples: none",
            "  were kept, or the metric is not a mean of them",
        ]
    )


def test_table_fits_the_terminal_and_tells_what_is_missing():
    lines = terminal.format_table(make_full_report()).split("\n")
    assert max(map(len, lines)) <= 100
    assert sum(line.startswith("span_corruption") for line in lines) == 2
    assert sum("  span_corruption" in line for line in lines) == 1
    (note,) = [line for line in lines if line.startswith("note:")]
    assert "validation loss of mlm is the mean of 2 of 3 seeds" in note


def test_table_says_where_there_is_no_verdict():
    table = terminal.format_table(make_report(make_runs({"clm": [0.1, 0.2]})))
    assert "no shared metric was measured for two objectives" in table


def test_warnings_name_the_seed_and_the_metric():
    values = {"clm": [0.7, 0.71, 0.69, 0.7, 0.29], "mlm": [0.5, 0.51, 0.49, 0.5, 0.5]}
    report = make_report(make_runs(values), seeds_note="seeds were chosen first")
    assert terminal.list_assumptions(report) == ["note: seeds were chosen first"]
    (line,) = terminal.list_warnings(report)
    assert "linear probe on frozen features: seed 4 of clm (0.290) is" in line
    text = terminal.format_table(report)
    assert text.count("WARNING") == 1
    assert text.index("WARNING") < text.index("budget:")


def test_alpha_decides_what_is_ahead():
    runs = make_runs({"clm": [0.1, 0.2, 0.3, 0.2], "mlm": [0.9] * 4})
    outcomes = [
        reporting.summarise(runs, alpha=alpha)[0].pairs[0].outcome
        for alpha in (0.05, 0.00005)
    ]
    assert outcomes == ["ahead", "tie"]


def test_a_downstream_task_may_have_a_metric_of_which_less_is_better():
    task = {"metric": "task_x", "label": "x", "higher_is_better": False}
    task |= {"margin": 0.02, "reference": "a baseline", "span": 2.0}
    result = list_metrics([vary(make_run("a", 0), tasks=[task])])["task_x"]
    assert result == MetricInfo("x", ".3f", False, True, 0.02, "a baseline", span=2.0)
