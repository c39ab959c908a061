"""Equal tuning: the same trials for every objective, chosen by text of their own."""

import json

import numpy as np
import pytest
from tiny import make_config

from jaxpt.config.plan import make_plan
from jaxpt.config.sections import CompareSpec
from jaxpt.errors import DivergedError, UserError
from jaxpt.report import compare as comparison
from jaxpt.report import figures, tuning
from jaxpt.report.summary import list_tuning
from jaxpt.text.dataset import hold_out, load_text
from jaxpt.text.rows.corpus import Corpus

GRID = "optim.lr=1e-3,1e-2,1e-1"


def make_comparison(path, **changes):
    settings = {
        "data__label_field": "era",
        "data__split": "documents",
        "data__valid_fraction": 0.25,
        "train__checkpoint_every": 0,
        "compare__objectives": ("clm", "mlm"),
        "compare__seeds": (0,),
        "compare__amount": 1e8,
        "compare__tune": GRID,
        "compare__tune_share": 0.5,
        "compare__tune_fraction": 0.2,
    }
    return make_config(path, **(settings | changes))


def test_every_combination_is_a_trial():
    spec = CompareSpec(amount=1, tune="optim.lr=1e-3, 3e-3; mlm.masking=tokens,words")
    assert spec.list_trials() == [
        {"optim.lr": lr, "mlm.masking": masking}
        for lr in (1e-3, 3e-3)
        for masking in ("tokens", "words")
    ]
    assert CompareSpec(amount=1).list_trials() == []


@pytest.mark.parametrize(
    "setting, value",
    [
        ("tune", "optim.lr"),
        ("tune", "optim.lr=1e-3"),  # nothing to choose from
        ("tune", "optim.lr=1e-3,1e-3"),
        ("tune", "optim.lr=1e-3,"),
        ("tune", "lr=1,2"),
        ("tune", "optim.lr=1,2;optim.lr=3,4"),
        ("tune_share", 0.0),
        ("tune_share", 1.0),
        ("tune_fraction", 1.0),
        ("tune_seed", 2),  # a compared run's
        ("tune_seed", -1),
    ],
)
def test_bad_settings(setting, value, refuses):
    with refuses(f"compare.{setting}={value}"):
        CompareSpec(amount=1, seeds=(1, 2), **{setting: value})


@pytest.mark.parametrize(
    "changes, named",
    [
        ({"compare__tune": "optim.rate=1,2"}, "compare.tune: optim.rate"),
        ({"compare__tune": "optim.lr=fast,slow"}, "compare.tune: optim.lr='fast'"),
        ({"compare__tune": "optim.lr=-1.0,1.0"}, "optim.lr=-1.0"),
        ({"compare__tune": "train.steps=3,4"}, "train.steps is not tuned"),
        ({"compare__tune": "data.valid_fraction=0.2,0.3"}, "all read one text"),
        ({"compare__tune_by": "taste"}, "compare.tune_by=taste"),
        ({"compare__tune_by": "bits_per_byte"}, "compare.tune_by=bits_per_byte"),  # mlm
    ],
)
def test_bad_trials_are_refused_before_anything_is_trained(
    changes, named, labelled, tmp_path, refuses
):
    with refuses(named, "(for "):
        comparison.compare(make_comparison(labelled, **changes), tmp_path / "out")
    assert not (tmp_path / "out").exists()


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(figures, "draw", lambda *args: {})
    monkeypatch.setattr(comparison, "check_run", lambda *args: None)


def test_a_comparison_is_tuned(labelled, tmp_path, quick, monkeypatch):
    seen = []

    def spy(task, tokenizer, corpora, folder, **more):
        seen.append((task, corpora))
        return train(task, tokenizer, corpora, folder, **more)

    train = tuning.train
    monkeypatch.setattr(tuning, "train", spy)
    config = make_comparison(labelled)
    report = comparison.compare(config, tmp_path)
    _, corpora = load_text(make_plan(config).text)
    steps = {run["name"]: run["steps"] for run in report["runs"]}
    assert len(seen) == 2 * 3
    for task, given in seen:
        # Half of the steps, a seed of its own, and none of the text of the verdict.
        name = task.plan.objective_name
        per_call = task.plan.train.steps_per_call
        assert task.plan.train.steps == steps[name] / 2 // per_call * per_call
        assert task.plan.train.seed == 1_000_000 not in config.compare.seeds
        assert given["train"].num_documents + given["valid"].num_documents == (
            corpora["train"].num_documents
        )
    for name, record in report["tuning"].items():
        values = {}
        for i, trial in enumerate(record["trials"], 1):
            folder = tmp_path / "tuning" / name / f"{i - 1}"
            result = json.loads((folder / "result.json").read_text())
            assert set(result["metrics"]) >= {"valid_loss"}
            assert not any("probe" in key for key in result["metrics"])
            values[trial["settings"]["optim.lr"]] = result["metrics"]["valid_loss"]
            assert trial["value"] == result["metrics"]["valid_loss"]
            stored = json.loads((folder / "config.json").read_text())
            assert stored["optim"]["lr"] == trial["settings"]["optim.lr"]
        best = min(values, key=values.__getitem__)
        assert record["chosen"] == {"optim.lr": best}
        assert record["at_edge"] == (["optim.lr"] if best != 1e-2 else [])
        stored = tmp_path / "runs" / f"{name}-seed0" / "config.json"
        assert json.loads(stored.read_text())["optim"]["lr"] == best
        assert record["flops"] == sum(trial["flops"] for trial in record["trials"]) > 0
    for run in report["runs"]:
        record = report["tuning"][run["name"]]
        assert run["tuning_flops"] == record["flops"] and "teacher_flops" not in run
        assert run["tuning_seconds"] == record["train_seconds"]
    assert "with teachers and tuning, at" in report["whole_cost"]["lines"][0]
    seen.clear()
    again = comparison.compare(config, tmp_path)
    assert again["tuning"] == report["tuning"]
    with pytest.raises(UserError, match="holds a comparison with compare.tune="):
        other = make_comparison(labelled, compare__tune="optim.lr=1e-3,1e-2")
        comparison.compare(other, tmp_path)


SPEC = CompareSpec(amount=1, tune="optim.lr=1.0,2.0,3.0,4.0")


def choose(values, spec, labelled, tmp_path, monkeypatch):
    """What is chosen among trials that come to such values; None diverges."""
    plan = make_plan(make_comparison(labelled))
    tokenizer, corpora = load_text(plan.text)
    trials = iter(values)

    def give(task, *args, **more):
        value = next(trials)
        if value is None:
            raise DivergedError("the loss is nan")
        costs = {"flops": 1.0, "raw_tokens": 2.0, "train_seconds": 3.0, "steps": 4}
        return {"metrics": {spec.tune_by: value}} | costs

    monkeypatch.setattr(tuning, "train", give)
    text = tuning.Text(tokenizer.vocab, tokenizer, corpora)
    fit = lambda plan, index: plan  # noqa: E731
    return tuning.tune("clm", plan, spec, fit, text, tmp_path)


@pytest.mark.parametrize(
    "values, best, is_edge",
    [
        ([3.0, 1.0, 2.0, 4.0], 2.0, False),
        ([1.0, 1.0, 2.0, 4.0], 1.0, True),  # of equals, the first
        ([None, 2.0, 3.0, float("nan")], 2.0, False),
        ([9.0, 3.0, 2.0, 1.0], 4.0, True),
    ],
)
def test_the_best_of_the_trials(values, best, is_edge, labelled, tmp_path, monkeypatch):
    plan, record = choose(values, SPEC, labelled, tmp_path, monkeypatch)
    assert plan.optim.lr == best and record["chosen"] == {"optim.lr": best}
    assert record["at_edge"] == (["optim.lr"] if is_edge else [])
    lines = list_tuning({"tuning": {"clm": record}})
    assert len(lines) == 1 + is_edge and f"optim.lr={best}" in lines[0]
    assert ("diverged" in lines[0]) == (None in values)
    assert not is_edge or lines[1].startswith("WARNING")


def test_the_best_by_a_metric_of_which_more_is_better(labelled, tmp_path, monkeypatch):
    spec = CompareSpec(amount=1, tune=SPEC.tune, tune_by="cloze_accuracy")
    values = [0.1, 0.4, 0.3, 0.2]
    plan, _ = choose(values, spec, labelled, tmp_path, monkeypatch)
    assert plan.optim.lr == 2.0


def test_trials_that_all_diverge_are_an_error(labelled, tmp_path, monkeypatch, refuses):
    with refuses("compare.tune=", "clm"):
        choose(4 * [None], SPEC, labelled, tmp_path, monkeypatch)


def test_text_to_choose_by_is_none_that_is_trained_on():
    tokens = np.arange(100)
    corpus = Corpus.from_arrays(tokens, doc_starts=np.arange(0, 101, 10))
    split = tuning.Split((corpus,), (1.0,))
    rest, held = hold_out(split, 0.3)
    read = [part.parts[0].read(0, part.num_tokens) for part in (rest, held)]
    assert len(read[1]) == 30 and len(np.unique(read[1] // 10)) == 3
    np.testing.assert_array_equal(np.sort(np.concatenate(read)), tokens)
    # Of one document, its end.
    rest, held = hold_out(tuning.Split((Corpus.from_arrays(tokens),), (1.0,)), 0.1)
    assert held.parts[0].read(0, held.num_tokens).tolist() == list(range(90, 100))
    assert rest.num_tokens == 90


def test_too_little_text_to_choose_by(refuses):
    with refuses("compare.tune_fraction=0.1"):
        hold_out(tuning.Split((Corpus.from_arrays(np.arange(1)),), (1.0,)), 0.1)
