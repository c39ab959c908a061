"""Each gate fails on a case made for it, and on no other case."""

import math

import numpy as np
import pytest
from reports import make_entry, make_report, read_run
from tiny import make_config, prepare

from jaxpt.comparison.gates import list_gates, measure_divergence
from jaxpt.comparison.known_truth import find_truth, measure_exact_baselines
from jaxpt.languages import BOTH, LEFT
from jaxpt.report.terminal import format_table, list_assumptions, list_warnings
from jaxpt.text.dataset import Split
from jaxpt.text.rows.corpus import Corpus
from jaxpt.training.regret import find_known

HMM = "hmm:states=4,symbols=12,transitions=0.2,emissions=0.3,length=16"
STAR = "star:degree=2,arm=3,names=10"


def load(path, objective="clm", **changes):
    settings = {"data__split": "auto", "eval__regret_documents": 64}
    settings |= {"model__positions": "rotary", "tokenizer__kind": "char"} | changes
    task, _, corpora = prepare(make_config(path, objective, **settings))
    return task, corpora


@pytest.fixture(scope="module")
def hmm():
    return load(HMM)


def make(curve=(3.0, 2.0), name="clm", seed=0, **metrics):
    """A run; its curve is the validation loss at each evaluation."""
    entry = make_entry(name, seed, **metrics)
    (point,) = entry["curve"]
    steps = enumerate(curve)
    entry["curve"] = [point | {"step": 10 * i, "valid_loss": x} for i, x in steps]
    return read_run(entry)


def check(runs, task, corpora):
    return list_gates(runs, {"clm": task}, {"clm": corpora})


def test_a_good_run_passes_all_gates(hmm):
    task, corpora = hmm
    anchors = find_known(task, corpora).anchors
    below = {
        "regret_left_to_right": anchors[LEFT]["trigram"].mean * 0.9,
        "regret_two_sided": anchors[BOTH]["two neighbours"].mean * 0.9,
        "val_perplexity": 11.9,
        "cloze_bits": math.log2(12) - 0.01,
    }
    assert check([make(**below)], *hmm) == []


def test_regret_has_its_own_ceiling(hmm):
    """Windows of a language's text may begin within a document, unlike its rows."""
    above = {"cloze_bits": 14.0, "val_perplexity": 100.0}
    assert len(check([make(**above)], *hmm)) == 2
    task, corpora = hmm
    known = find_known(task, corpora).anchors[LEFT]["trigram"].mean * 0.9
    assert check([make(regret_left_to_right=known, **above)], *hmm) == []


@pytest.mark.parametrize(
    "question, metric, table",
    [
        (LEFT, "regret_left_to_right", "trigram"),
        (BOTH, "regret_two_sided", "two neighbours"),
    ],
)
def test_the_table_must_be_beaten(hmm, question, metric, table):
    task, corpora = hmm
    anchors = find_known(task, corpora).anchors[question]
    line, *more = check([make(**{metric: anchors[table].mean * 1.01})], *hmm)
    assert line.startswith(f"WARNING: clm: {metric} 0.") and table in line
    assert "has not used its memory" in line and not more
    # Above the uniform distribution it is broken, which is the only line.
    line, *more = check([make(**{metric: anchors["uniform"].mean * 1.01})], *hmm)
    assert "the uniform distribution; the model is broken" in line and not more


def test_what_a_question_far_from_training_means():
    task, corpora = load(HMM, "mlm")
    value = find_known(task, corpora).anchors[LEFT]["trigram"].mean * 1.01
    (line,) = check([make(regret_left_to_right=value)], task, corpora)
    assert line.endswith("the question is far from its training")


def test_positions_that_training_does_not_read_are_far_from_it():
    """With a table of positions the inputs of training are shorter than a document."""
    for positions, words in (
        ("learned", "the question is far from its training"),
        ("rotary", "it has not used its memory"),
    ):
        settings = {"model__positions": positions, "data__row_length": 16}
        task, corpora = load(HMM, "span_corruption", **settings)
        best = find_known(task, corpora).anchors[BOTH]["two neighbours"].mean
        (line,) = check([make(regret_two_sided=best * 1.01)], task, corpora)
        assert words in line
        (line,) = (x for x in find_truth({"s": task}, {"s": corpora}).lines[-1:])
        assert ("; far from its training" in line) == (positions == "learned")


@pytest.mark.parametrize(
    "metric, most", [("val_perplexity", 12), ("cloze_bits", math.log2(12))]
)
def test_the_uniform_ceiling_of_any_text(hmm, metric, most):
    (line,) = check([make(**{metric: most * 1.01})], *hmm)
    assert line.startswith(f"WARNING: clm seed 0: {metric}") and "broken" in line


def test_the_best_step_must_not_be_the_first(hmm):
    (line,) = check([make((2.0, 2.1, 2.2)), make((2.2, 2.1), seed=1)], *hmm)
    assert line.startswith("WARNING: clm seed 0: valid_loss is best at its first")
    assert check([make((2.0,))], *hmm) == []  # the only evaluation is at the end
    assert check([make((2.2, 2.0, 2.1))], *hmm) == []
    assert check([make((math.nan, 2.1, 2.2))], *hmm) != []


def test_the_splits_must_have_the_same_frequencies(hmm):
    ids = hmm[0].vocab.ordinary_ids
    draw = np.random.default_rng(0)

    def make_split(p, num):
        part = Corpus.from_arrays(draw.choice(ids, num, p=np.array(p) / sum(p)))
        return Split((part,), (1.0,))

    even, skewed = np.ones(12), np.arange(1, 13) ** 2
    train = make_split(even, 20_000)
    same = {"train": train, "valid": make_split(even, 300)}
    other = {"train": train, "valid": make_split(skewed, 300)}
    task = load(HMM, eval__regret_documents=0)[0]
    assert check([make()], task, same) == []
    (line,) = check([make()], task, other)
    assert line.startswith("WARNING: data.split: token frequencies")


def test_a_task_may_ask_for_what_training_leaves_out():
    task, corpora = load("facts:pairs=40,symbols=8")
    counts = [corpora[s].count_tokens(task.vocab.size) for s in ("train", "valid")]
    assert measure_divergence(*counts) > 0.1
    assert check([make()], task, corpora) == []


def test_answers_that_leak():
    task, corpora = load(f"{STAR},goal=no")
    assert check([make(answer_accuracy=0.5)], task, corpora) == []
    (line,) = check([make(answer_accuracy=0.8)], task, corpora)
    assert "0.800 is above the 0.500 that the prefix allows" in line
    task, corpora = load(STAR)
    assert check([make(answer_accuracy=1.0)], task, corpora) == []


def test_divergence_of_samples_of_one_distribution_is_about_zero():
    draw = np.random.default_rng(0)
    p = draw.dirichlet(np.full(500, 0.5))
    values = [
        measure_divergence(draw.multinomial(50_000, p), draw.multinomial(5_000, p))
        for _ in range(20)
    ]
    assert abs(np.mean(values)) < 0.01


def test_warnings_come_before_verdicts_and_exact_values_after():
    report = make_report([make()], gates=["WARNING: the text"])
    assert list_warnings(report)[0] == "WARNING: the text"
    assert "WARNING: the text" in format_table(report)


def test_the_report_has_floors_baselines_and_prices(hmm):
    task, corpora = hmm
    truth = find_truth({"clm": task}, {"clm": corpora})
    assert truth.floors[LEFT] > truth.floors[BOTH] > 0
    assert truth.uniform == pytest.approx(math.log(12))
    left = truth.anchors[LEFT]
    assert left["trigram"] < left["bigram"] < left["unigram"] < left["uniform"]
    assert left["uniform"] == pytest.approx(truth.uniform - truth.floors[LEFT])
    assert truth.anchors[BOTH]["exact left to right"] > 0
    text = "\n".join(truth.lines)
    assert "by Bayes' rule" in text and "12 passes" in text and "FLOPs" in text
    assert "two-sided: no direct answer" in text
    report = make_report([make()], known_truth=truth.to_json())
    assert report.known_truth == truth
    assert list_assumptions(report)[: len(truth.lines)] == list(truth.lines)
    tables, unigrams = measure_exact_baselines(task, corpora)
    assert tables["regret_left_to_right"].mean == left["trigram"]
    assert unigrams["regret_left_to_right"].mean == left["unigram"]


def test_the_report_of_a_task_names_its_chance_level():
    for path, best in ((STAR, "1.0000"), (f"{STAR},goal=no", "0.5000")):
        task, corpora = load(path)
        truth = find_truth({"clm": task}, {"clm": corpora})
        assert truth.chances == {"answer_accuracy": 0.5, "second_token_accuracy": 0.5}
        (line,) = (x for x in truth.lines if x.startswith("chance: "))
        assert "whole answers 0.5000, second token of answers 0.5000, of a" in line
        assert f"a random arm of the graph; exact answers reach {best} of 64" in line
        report = make_report([make()], known_truth=truth.to_json())
        assert line in list_assumptions(report)


def test_no_chance_level_of_text_without_answers(hmm):
    task, corpora = hmm
    truth = find_truth({"clm": task}, {"clm": corpora})
    assert truth.chances == {} and "chance: " not in "\n".join(truth.lines)
