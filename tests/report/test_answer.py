"""The first sentences of a report claim exactly what the verdicts say."""

import numpy as np
import pytest
from reports import make_report, make_run, make_runs, vary

from jaxpt.judge.examples import Examples
from jaxpt.judge.verdicts import Side, subtract
from jaxpt.report import summary as reporting
from jaxpt.report import terminal
from jaxpt.report.answer import (
    find_levels,
    format_budget,
    list_conclusions,
    list_others,
    rank_report,
    word_learning_rates,
    word_sizes,
    write_first_note,
)
from jaxpt.report.types import group_by_name

KEYS = ("probe_accuracy", "word_accuracy")
PROBE = "linear probe on frozen features"


def conclude(values, metric="probe_accuracy"):
    return list_conclusions(make_report(make_runs(values, metric)))[0]


@pytest.mark.parametrize(
    "values, clause",
    [
        (
            {"a": [0.9, 0.9001] * 2, "b": [0.1, 0.1001] * 2},
            f"a is ahead of b on {PROBE}.",
        ),
        (
            {
                "a": [0.9, 0.9001] * 2,
                "b": [0.1, 0.1002] * 2,
                "c": [0.8, 0.7, 0.99, 0.75],
            },
            "a is ahead of b, no significant difference from c "
            f"(at most 0.398) on {PROBE}.",
        ),
        (
            {"b": [0.9, 0.1] * 2, "a": [0.2, 0.3] * 2},
            f"no significant difference between a and b (at most 0.991) on {PROBE}.",
        ),
        (
            {"a": [0.99, 0.1, 0.9, 0.99], "b": [0.6, 0.601] * 2, "c": [0.5] * 4},
            "a has the best mean, no significant difference from b and c (at most "
            f"1.000) on {PROBE}.",
        ),
        (
            {"a": [0.5], "b": [0.4]},
            f"no verdict from 1 seed (4 are needed) on {PROBE}.",
        ),
        (
            {"a": [0.5, 0.51, 0.5], "b": [0.4] * 3},
            f"no verdict from 3 seeds (4 are needed) on {PROBE}.",
        ),
        ({"a": [0.5, 0.6]}, "no shared metric was measured for two objectives."),
        (
            {"a": [0.9, 0.9001] * 2} | {n: [0.1, 0.1002] * 2 for n in "bcdefg"},
            f"a is ahead of all 6 others on {PROBE}.",
        ),
    ],
)
def test_the_first_sentence_names_cost_differences_and_metric(values, clause):
    assert conclude(values) == f"At 1.67e14 FLOPs per run, {clause}"


@pytest.mark.parametrize(
    "values, clause",
    [
        (
            {"off": [0.5, 0.5001] * 2, "up": [0.9] * 4, "down": [0.1] * 4},
            "up is ahead of off; off is ahead of down",
        ),
        (
            {"off": [0.5, 0.5001] * 2, "up": [0.9, 0.5, 0.1, 0.6]},
            "no significant difference from off (at most 0.551)",
        ),
        (
            {"off": [0.5, 0.5001] * 2} | {n: [0.1] * 4 for n in "abcdef"},
            "off is ahead of all 6 others",
        ),
        (
            {"off": [0.5], "up": [0.9]},
            "no verdict from 1 seed (4 are needed)",
        ),
    ],
)
def test_with_a_control_all_others_are_compared_with_it(values, clause):
    runs = make_runs(values)
    metrics = reporting.summarise(runs, control="off")
    report = make_report(runs, metrics=metrics, control="off")
    expected = f"At 1.67e14 FLOPs per run, {clause} on {PROBE}."
    assert list_conclusions(report)[0] == expected
    (ranking,) = rank_report(report).rankings
    assert ranking.sentence == f"{PROBE}: {clause}"
    # Others were not compared with each other: no letters, but each with the control.
    header, rows, _ = ranking.grid("objective")
    assert header[4] == "against off" and "letters" not in header
    told = {row[1]: row[4] for row in rows}
    for name in values:
        pair = next((p for p in metrics[0].pairs if name in p.names), None)
        if name == "off":
            assert told[name] == "—"
        elif pair.outcome == "ahead":
            assert told[name] == ("ahead" if pair.better == name else "behind")
        else:
            assert told[name] in ("not significant", "no verdict")
    assert ranking.ranked_means is None


@pytest.mark.parametrize("num_behind", [0, 1, 2, 3])
def test_a_sentence_names_those_that_the_best_is_ahead_of(num_behind):
    """ "all" only if the best is ahead of each of the others."""
    values = {"best": [0.9, 0.901] * 2}
    for place, name in enumerate("abc"):
        is_behind = place < num_behind
        values[name] = [0.1, 0.101] * 2 if is_behind else [0.7, 0.99, 0.8, 0.97]
    report = make_report(make_runs(values))
    (ranking,) = rank_report(report).rankings
    sentence = ranking.sentence.removeprefix(f"{PROBE}: ")
    expected = {
        0: "no significant difference between a, b, best and c (at most ",
        1: "best is ahead of a, no significant difference from ",
        2: "best is ahead of a and b, no significant difference from c (at most ",
        3: "best is ahead of a, b and c",
    }
    assert sentence.startswith(expected[num_behind])
    assert ("no significant" in sentence) == (num_behind < 3)


def test_a_metric_without_the_control_has_no_verdict():
    runs = make_runs({"off": [0.5, 0.6], "a": [0.5, 0.6], "b": [0.1, 0.2]})
    for run in runs[2:]:
        run.metrics["bits_per_byte"] = 2.0 + run.seed
    metrics = reporting.summarise(runs, control="off")
    report = make_report(runs, metrics=metrics, control="off")
    verdicts = rank_report(report)
    (line,) = list_others(verdicts)
    assert line == "bits per byte: no verdict: off was not measured"
    assert "bits per byte" not in list_conclusions(report)[0]
    assert "Not measured: off" in verdicts.write_note(verdicts.rankings[1])


def test_each_other_metric_has_a_line():
    runs = [
        make_run(
            name,
            seed,
            probe_accuracy=value + seed * value / 1e4,
            word_accuracy=1 - value - seed * value / 1e3,
        )
        for name, value in (("clm", 0.2), ("mlm", 0.9))
        for seed in range(4)
    ]
    report = make_report(runs)
    (sentence,) = list_conclusions(report)
    assert sentence.endswith(f"mlm is ahead of clm on {PROBE}.")
    assert list_others(rank_report(report)) == [
        "masked-word probe: clm is ahead of mlm"
    ]


def test_costs_that_are_not_matched_are_not_called_equal():
    budget = {"kind": "steps", "amount": 0.0, "note": "not matched"}
    runs = make_runs({"a": [0.9, 0.9001] * 2, "b": [0.1, 0.1001] * 2})
    sentence, *_ = list_conclusions(make_report(runs, budget=budget))
    assert sentence.startswith("At costs that are not equal, a is ahead of")


def make_baselines():
    """clm learns; span_corruption reaches only the token frequencies."""
    hits = np.arange(200) % 10 < 3
    level = Examples(hits.astype(float), np.ones(200), np.arange(200) // 10)
    metric = "choice_bayes_accuracy"
    runs = [
        make_run(name, seed, **{metric: value + seed / 1e4, f"{metric}_random": 0.2})
        for name, value in (("clm", 0.9), ("span_corruption", 0.3))
        for seed in range(4)
    ]
    references = dict.fromkeys(
        ("clm", "span_corruption"), {f"{metric}_frequency": level}
    )
    metrics = reporting.summarise(runs, references=references)
    config = {"eval": {"num_choices": 4}}
    return make_report(runs, metrics=metrics, config=config)


def test_who_learned_no_more_than_a_baseline_is_named():
    report = make_baselines()
    verdicts = rank_report(report)
    (ranking,) = verdicts.rankings
    header, rows, _ = ranking.grid("objective", "FLOPs")
    assert header[-1] == "above baselines"
    assert [row[-1] for row in rows] == ["2 of 2", "1 of 2"]
    assert (
        "Baselines: random initialization, token frequencies; not above token "
        "frequencies: span_corruption." in write_first_note(report, verdicts)
    )
    good, weak = verdicts.list_lines()
    assert (good["above_baselines"], weak["above_baselines"]) == (True, False)
    assert (good["not_above"], weak["not_above"]) == ("", "token frequencies")


def test_the_chance_level_and_the_baselines_are_numbers():
    report = make_baselines()
    levels = find_levels(report, report.metrics[0])
    assert levels == {
        "chance": 0.25,
        "random initialization": pytest.approx(0.2),
        "token frequencies": pytest.approx(0.3),
    }
    runs = make_runs({"a": [2.0, 2.1], "b": [3.0, 3.1]}, "bits_per_byte")
    for run in runs:
        run.metrics["bits_per_byte_random"] = 8.0
    report = make_report(runs)
    (level,) = find_levels(report, report.metrics[0]).values()
    assert level == pytest.approx(8.0)  # lower is better


@pytest.mark.parametrize("names", [["a", "b"], ["a"]])
def test_tuned_learning_rates_are_listed(names):
    trials = [{"settings": {"optim.lr": 0.01}, "value": 0.5}]
    record = {"by": "probe_accuracy", "chosen": {"optim.lr": 0.01}, "flops": 1e9}
    record |= {"trials": trials, "at_edge": []}
    report = make_report(make_runs({"a": [0.9], "b": [0.1]}))
    assert word_learning_rates(report) == "Learning rates were not tuned."
    # Without verdicts the note has nothing else.
    assert write_first_note(report, rank_report(report)) == word_learning_rates(report)
    report = vary(report, tuning=dict.fromkeys(names, record))
    sentence = word_learning_rates(report)
    assert sentence.startswith("Learning rates were tuned per objective (a 0.01")
    assert ("not tuned for b" in sentence) == ("b" not in names)


@pytest.mark.parametrize(
    ("chosen", "words"),
    [
        ({"optim.muon_lr": 0.03}, "optim.muon_lr: a 0.03, b 0.03"),
        (
            {"optim.muon_lr": 0.03, "optim.lr": 0.01},
            "a 0.01, b 0.01; optim.muon_lr: a 0.03, b 0.03",
        ),
        ({"optim.weight_decay": 0.1}, None),
    ],
)
def test_the_rates_of_matrices_are_learning_rates(chosen, words):
    trials = [{"settings": chosen, "value": 0.5}]
    record = {"by": "valid_loss", "chosen": chosen, "flops": 1e9}
    record |= {"trials": trials, "at_edge": []}
    report = make_report(make_runs({"a": [0.9], "b": [0.1]}))
    report = vary(report, tuning=dict.fromkeys("ab", record))
    tuned = f"Learning rates were tuned per objective ({words})."
    expected = tuned if words else "Learning rates were not tuned."
    assert word_learning_rates(report) == expected


MANY = {"a": [0.9, 0.9001] * 2} | {f"tied_{i}": [0.7, 0.99, 0.8, 0.97] for i in "bcdef"}
MANY |= {f"objective_{i}": [0.1 + i / 100, 0.1002 + i / 100] * 2 for i in range(16)}


def test_of_many_objectives_the_first_sentence_is_short_and_the_rest_a_table():
    """Leader, how many are behind and how many tied; the table has each."""
    report = make_report(make_runs(MANY))
    (sentence,) = list_conclusions(report)
    assert sentence.startswith(
        "At 1.67e14 FLOPs per run, a is ahead of 16 of 21 others, "
        "no significant difference from 5 others (at most "
    )
    assert len(sentence) < 180
    (ranking,) = rank_report(report).rankings
    rows = {row[1]: row for row in ranking.grid("objective").rows}
    assert list(rows)[0] == "a" and rows.keys() == MANY.keys()
    first, tied, behind = (set(rows[n][4]) for n in ("a", "tied_b", "objective_3"))
    assert first & tied and not first & behind
    lines = terminal.format_table(report).splitlines()
    table = lines[: lines.index("", 4)]
    assert all(any(f" {name} " in line for line in table) for name in MANY)
    pairs = terminal.format_table(report, with_pairs=True)
    num = len(MANY) * (len(MANY) - 1) // 2
    assert len(pairs.splitlines()) - len(lines) == num + 3
    assert max(map(len, lines)) <= 100


def test_who_is_not_above_a_baseline_is_named_on_each_metric():
    values = {"a": [0.5, 0.51] * 2} | {f"weak_{i}": [0.2, 0.21] * 2 for i in range(6)}
    runs = [
        make_run(name, seed, **{key: value for key in KEYS for value in [of[seed]]})
        for name, of in values.items()
        for seed in range(4)
    ]
    for run in runs:
        run.metrics.update({f"{key}_random": 0.2 for key in KEYS})
    report = make_report(runs)
    verdicts = rank_report(report)
    weak = "not above random initialization: weak_0, weak_1, weak_2 and 3 more"
    assert weak in write_first_note(report, verdicts)
    (line,) = list_others(verdicts)
    assert line == f"masked-word probe: a is ahead of all 6 others; {weak}"


def test_of_parts_and_lower_values_the_best_is_first():
    """The table is that of the verdicts: order, letters and intervals of means."""
    values = {"a": [2.0, 2.1] * 2, "b": [3.0, 3.1001] * 2, "c": [3.06] * 4}
    runs = make_runs(values, "bits_per_byte")
    runs = [vary(run, parts={"bits_per_byte": "half"}) for run in runs]
    (ranking,) = rank_report(make_report(runs)).rankings
    assert [x.system for x in ranking.lines] == ["a (half)", "b (half)", "c (half)"]
    assert [x.letters for x in ranking.lines] == ["a", "b", "b"]
    assert [(x.rank, x.rank_to) for x in ranking.lines] == [(1, 1), (2, 3), (2, 3)]
    # By hand: t of three degrees of freedom at .05 / 3 is 4.857, the error .02887.
    first = ranking.lines[0]
    assert first.low == pytest.approx(2.05 - 4.857 * 0.028868, abs=2e-4)
    assert first.high == pytest.approx(2.05 + 4.857 * 0.028868, abs=2e-4)
    assert first.cost == 1.67e14
    assert ranking.ranked_means.list_bars() == [["b (half)", "c (half)"]]
    sides = {name: Side(dict(enumerate(of))) for name, of in values.items()}
    pairs = [subtract(sides[a], sides[b]) for a, b in ("ab", "ac", "bc")]
    sizes = [pair.detectable(0.05 / 3) for pair in pairs]
    assert ranking.metric.detectable == pytest.approx((min(sizes), max(sizes)))


def test_many_tuned_learning_rates_are_a_range():
    trials = [{"settings": {"optim.lr": 0.01}, "value": 0.5}]
    record = {"by": "probe_accuracy", "flops": 1e9, "trials": trials, "at_edge": []}
    rates = {name: 0.01 * (i + 1) for i, name in enumerate("abcde")}
    tuning = {n: record | {"chosen": {"optim.lr": rate}} for n, rate in rates.items()}
    report = make_report(make_runs({name: [0.9] for name in rates}), tuning=tuning)
    sentence = word_learning_rates(report)
    assert sentence == "Learning rates were tuned per objective (0.01 to 0.05)."


def test_the_terminal_begins_with_the_same_sentences():
    report = make_baselines()
    text = " ".join(terminal.format_table(report).split())
    assert text.startswith(" ".join(list_conclusions(report)))


def test_sizes_that_differ_are_listed():
    runs = make_runs({"a": [0.9], "b": [0.1]})
    assert word_sizes(group_by_name(runs)) == "3.41M parameters"
    runs[1] = vary(runs[1], params=2e6)
    assert word_sizes(group_by_name(runs)) == "parameters: a 3.41M, b 2M"
    runs += make_runs({name: [0.5] for name in "cde"})
    assert word_sizes(group_by_name(runs)) == "2M to 3.41M parameters, by objective"


def test_a_budget_is_its_amount_and_its_note():
    """Runs of their own numbers of steps have no amount."""
    for amount, note, words in (
        (2e9, "", "2e9 flops"),
        (2e9, "as clm", "2e9 flops (as clm)"),
        (0.0, "500 steps", "500 steps"),
    ):
        budget = {"kind": "flops", "amount": amount, "note": note}
        report = make_report([make_run("clm")], budget=budget)
        result = format_budget(report)
        assert result.endswith(f" ({note})") == bool(amount and note), words
        assert (result == note) == (not amount)
