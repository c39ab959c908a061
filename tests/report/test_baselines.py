"""Baselines of every objective, and names that say which part of a network answers."""

import math

import numpy as np
import pytest
from reports import make_entry, make_report, make_run, vary
from tiny import make_config, prepare

from jaxpt.comparison.assembly import add_parts, measure_references
from jaxpt.judge.examples import Examples
from jaxpt.report import page_charts
from jaxpt.report.answer import rank_report
from jaxpt.report.conventions import judge_whole_cost
from jaxpt.report.summary import summarise

CHOICE = "choice_bayes_accuracy"
PAIRS, CLOZE = ("pair_accuracy", "pair_nats"), ("cloze_accuracy", "cloze_bits")
SEEDS = range(4)


def put(value):
    """200 questions of 20 documents, answered correctly at a given rate."""
    hits = np.arange(200) % 10 < round(10 * value)
    return Examples(hits.astype(float), np.ones(200), np.arange(200) // 10)


def summarise_choice(values, references):
    runs = [
        make_run(name, seed, **{CHOICE: value + seed / 1e4, f"{CHOICE}_random": 0.2})
        for name, value in values.items()
        for seed in SEEDS
    ]
    by_name = dict.fromkeys(values, references)
    return runs, summarise(runs, references=by_name)


def test_the_level_of_token_frequencies_is_not_learning():
    """Both are above their untrained parameters; T5 knows only frequencies."""
    references = {f"{CHOICE}_frequency": put(0.3), CHOICE: put(0.7)}
    values = {"clm": 0.9, "span_corruption": 0.3, "electra": 0.25}
    runs, metrics = summarise_choice(values, references)
    (ranking,) = rank_report(make_report(runs, metrics=metrics)).rankings
    told = {line.system: dict(line.baselines) for line in ranking.lines}
    names = ("random initialization", "token frequencies", "bigrams on both sides")
    assert told == {
        "clm": dict.fromkeys(names, "ahead"),
        "span_corruption": dict(zip(names, ("ahead", "tie", "behind"), strict=True)),
        "electra": dict(zip(names, ("ahead", "behind", "behind"), strict=True)),
    }
    numbers = {name: i for i, name in enumerate(values)}
    rows = page_charts.list_baselines(metrics[0], numbers)
    output = {(row.first, row.second): row.outcome for row in rows}
    assert output["clm", "token frequencies"] == "ahead"
    assert output["electra", "token frequencies"] == "behind"
    assert len(rows) == 9


def test_without_the_text_only_untrained_parameters_are_a_baseline():
    runs, metrics = summarise_choice({"clm": 0.9, "mlm": 0.2}, {})
    (ranking,) = rank_report(make_report(runs, metrics=metrics)).rankings
    assert ranking.weak == "not above random initialization: mlm"
    assert ranking.lines[0].baselines == {"random initialization": "ahead"}


@pytest.fixture
def cloze_runs():
    """mlm, better than electra, of which the generator answers."""
    values = {"mlm": 0.4, "electra": 0.3}
    runs = [
        vary(
            make_run(name, seed, cloze_accuracy=value * (1 + seed / 1e3)),
            parts={"cloze_accuracy": "its generator"} if name == "electra" else {},
        )
        for name, value in values.items()
        for seed in SEEDS
    ]
    return [vary(run, curve=[run.metrics | run.curve[0].to_json()]) for run in runs]


def test_the_part_that_answers_is_named(cloze_runs):
    references = dict.fromkeys(
        ("mlm", "electra"), {"cloze_accuracy_frequency": put(0.2)}
    )
    metrics = summarise(cloze_runs, references=references)
    (ranking,) = rank_report(make_report(cloze_runs, metrics=metrics)).rankings
    assert ranking.sentence.endswith("mlm is ahead of electra (its generator)")
    names = [line.system for line in ranking.lines]
    assert names == ["mlm", "electra (its generator)"]
    baselines = [line.baselines for line in ranking.lines]
    assert baselines == [{"token frequencies": "ahead"}] * 2
    # Names are keys of figures and tables, and stay.
    assert metrics[0].by_name.keys() == {"mlm", "electra"}
    assert metrics[0].parts == {"electra": "its generator"}
    # A teacher of mlm: it is read where both have cost the same.
    extra = {"teacher_flops": 1e13, "teacher_raw_tokens": 1.0}
    extra |= {"teacher_train_seconds": 1.0}
    half = {"flops": 1e14, "step": 500}
    finished = [
        vary(run, **extra, curve=[run.curve[0].to_json() | half])
        if run.name == "mlm"
        else run
        for run in cloze_runs
    ]
    lines = judge_whole_cost(finished, "flops").lines
    verdict = "mlm is ahead of electra (its generator)"
    assert any(line.endswith(verdict) for line in lines), lines


def test_networks_say_which_part_of_them_fills_masks(speech):
    """And references are by metric, with separate entries for frequencies."""
    tasks = {}
    for name in ("mlm", "electra"):
        settings = {"eval__num_choices": 3, "eval__word_context": 4}
        tasks[name], _, corpora = prepare(make_config(speech, name, **settings))
    mlm, electra = add_parts([make_entry("mlm"), make_entry("electra")], tasks)
    assert "parts" not in mlm
    assert electra["parts"] == {
        "cloze_accuracy": "its generator",
        "cloze_bits": "its generator",
    }
    result = measure_references(tasks, corpora)["electra"]
    assert result.keys() == {
        *(CHOICE, *PAIRS),
        *(f"{metric}_frequency" for metric in (CHOICE, *PAIRS, *CLOZE)),
        "bits_per_byte_frequency",
    }
    assert result[f"{CHOICE}_frequency"].mean < result[CHOICE].mean
    # Bigrams have nothing to say about the pairs, but much about the choice.
    assert result["pair_accuracy"].mean == 0.5 and result[CHOICE].mean > 0.5
    assert result["pair_nats"].mean == pytest.approx(math.log(2), abs=1e-6)
