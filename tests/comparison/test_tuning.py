"""Equal tuning: the same trials for every objective, chosen by text of their own."""

import dataclasses
import json
import sys

import numpy as np
import pytest
from tiny import make_config, slow
from tiny_refusals import check_refusal, refused

from jaxpt import trust
from jaxpt.comparison import compare as comparison
from jaxpt.comparison import plan_runs, tuning
from jaxpt.comparison.collect_runs import list_unequal_tuning
from jaxpt.comparison.plan_runs import load_plans
from jaxpt.config.plan import make_plan, make_plans
from jaxpt.config.sections import CompareSpec
from jaxpt.config.settings import to_dict
from jaxpt.errors import ConfigError, DivergedError, UserError
from jaxpt.files.stored import to_plain
from jaxpt.objectives import OBJECTIVES
from jaxpt.report import figures
from jaxpt.report.tuned import list_tuning
from jaxpt.report.types import Tuning
from jaxpt.text.dataset import hold_out, load_text
from jaxpt.text.rows.corpus import Corpus

NAMES = ("clm", "mlm")
MODULE = """
import dataclasses
from typing import ClassVar

from jaxpt.objectives import mlm
from jaxpt.objectives.mlm import corrupt, loss, masks, train_step


@dataclasses.dataclass(frozen=True)
class Spec(mlm.Spec):
    SECTION: ClassVar[str] = "half"
    mask_rate: float = 0.5
"""
GRID = "optim.lr=1e-3,1e-2,1e-1"


def read_tuning(record):
    costs = {"flops": 0.0} | record
    return Tuning.from_json(to_plain(costs))


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
    assert spec.list_trials("clm") == [
        {"optim.lr": lr, "mlm.masking": masking}
        for lr in (1e-3, 3e-3)
        for masking in ("tokens", "words")
    ]
    assert CompareSpec(amount=1).list_trials("clm") == []


# A range that goes down or begins at 0, a value alone, a name alone; no range to draw
# from; a seed of a compared run.
REFUSED = """
    tune=optim.lr; tune=optim.lr=1e-3; tune=optim.lr=1e-3,1e-3; tune=optim.lr=1e-3,
    tune=lr=1,2; tune=optim.lr=1e-2..1e-3; tune=optim.lr=0..1e-3
    tune=optim.lr=1e-3..1e-2,1e-1; tune_trials=4; tune_trials=-1
    tune_until=inside; tune_extensions=0; tune_share=0.0; tune_share=1.0
    tune_fraction=1.0; tune_seed=2; tune_seed=-1
"""
CASES = refused(CompareSpec, "compare", REFUSED, amount=1, seeds=(1, 2))


@pytest.mark.parametrize("make, parts", CASES)
def test_bad_settings_are_refused(make, parts, refuses):
    check_refusal(make, parts, refuses)


def test_a_setting_is_tuned_once(refuses):
    twice = "optim.lr=1,2;optim.lr=3,4"
    with refuses(f"compare.tune={twice}"):
        CompareSpec(amount=1, seeds=(1, 2), tune=twice)


@pytest.mark.parametrize(
    "changes, named",
    [
        slow({"compare__tune": "optim.rate=1,2"}, "compare.tune: optim.rate"),
        slow(
            {"compare__tune": "optim.lr=fast,slow"}, "compare.tune: optim.lr=fast: must"
        ),
        slow({"compare__tune": "optim.lr=-1.0,1.0"}, "optim.lr=-1.0"),
        ({"compare__tune": "train.steps=3,4"}, "train.steps is not tuned"),
        ({"compare__tune": "data.row_length=16,24"}, "same rows of one text"),
        ({"compare__tune": "data.rows=chunks,documents"}, "same rows of one text"),
        ({"compare__tune": "eval.num_choices=2,4"}, "on the same examples"),
        ({"compare__tune": "compare.amount=1e8,2e8"}, "not a setting of a run"),
        ({"compare__tune": "mlm.mask_rate=0.1,0.9"}, "compare.tune_by=valid_loss"),
        ({"compare__tune": "mlm.mask_rat=0.1,0.9"}, "compare.tune: mlm.mask_rat"),
        ({"compare__tune": "data.valid_fraction=0.2,0.3"}, "same rows of one text"),
        ({"compare__tune_by": "taste"}, "compare.tune_by=taste"),
        ({"compare__tune_by": "bits_per_byte"}, "compare.tune_by=bits_per_byte"),  # mlm
        ({"compare__tune_by": "valid_masked_accuracy"}, "valid_masked_accuracy: must"),
    ],
)
def test_bad_trials_are_refused_before_anything_is_trained(
    changes, named, labelled, tmp_path, refuses
):
    with refuses(named, "(for ") as caught:
        comparison.compare(make_comparison(labelled, **changes), tmp_path / "out")
    assert caught.type is ConfigError
    assert not (tmp_path / "out").exists()


LOSSES = {
    "mlm.mask_rate=0.1,0.9": "mlm",
    "electra.discriminator_weight=1.0,50.0": "electra",
    "electra.generator_weight=1.0,50.0": "electra",
    "electra.temperature=0.5,1.0": "electra",
    "span_corruption.noise_density=0.1,0.5": "span_corruption",
    "span_corruption.mean_span_length=2.0,3.0": "span_corruption",
    "distillation.temperature=1.0,2.0": "distillation",
    "model.num_decoder_layers=0,1": "prefix_lm",  # which tokens are predicted
    "own.half.mask_rate=0.1,0.9": "own.half",
}
NO_LOSSES = {
    "model.dropout=0.0,0.1; train.batch_size=4,8": "mlm",
    "optim.schedule=cosine,linear; optim.lr=1e-4..1e-2": "clm",
    "bilm.char_width=8,16": "bilm",
    "distillation.freeze_positions=True,False": "distillation",
    "mlm.mask_rate=0.1,0.9": "clm",
}


@pytest.fixture
def own_half(tmp_path, monkeypatch):
    """An objective of the user's own, own.half."""
    (tmp_path / "own").mkdir()
    (tmp_path / "own" / "half.py").write_text(MODULE)
    trust.trust("own.half")
    monkeypatch.setattr(sys, "path", [*sys.path, str(tmp_path)])
    yield
    for name in [name for name in sys.modules if name.partition(".")[0] == "own"]:
        del sys.modules[name]


@pytest.mark.parametrize("tune", LOSSES)
def test_what_defines_the_loss_is_not_chosen_by_it(tune, labelled, refuses, own_half):
    """The easiest task would win; a metric that is the same task for all may choose."""
    name = LOSSES[tune]
    config = make_comparison(labelled, compare__objectives=(name,))
    (plan,) = make_plans(to_dict(config), [name]).values()
    tune = tune.replace("own.half.", "half.")
    spec = {"amount": 1, "objectives": (name,), "tune": tune}
    setting = tune.partition("=")[0]
    for by in ("valid_loss", "valid_accuracy", "masked_accuracy"):
        with refuses(f"compare.tune_by={by}: ", "choice_bayes_accuracy", setting):
            tuning.check_trials(name, plan, CompareSpec(**spec, tune_by=by))
    for by in ("choice_bayes_accuracy", "bits_per_byte", "cloze_accuracy"):
        tuning.check_trials(name, plan, CompareSpec(**spec, tune_by=by))


@pytest.mark.parametrize("tune", NO_LOSSES)
def test_what_does_not_define_the_loss_is_chosen_by_it(tune, labelled):
    config, name = make_comparison(labelled), NO_LOSSES[tune]
    (plan,) = make_plans(to_dict(config), [name]).values()
    spec = {"amount": 1, "objectives": (name,), "tune": tune}
    spec = CompareSpec(**spec, tune_trials=4 * (".." in tune))
    tuning.check_trials(name, plan, spec)


def test_fields_that_are_free_of_the_loss_exist():
    for name, objective in OBJECTIVES.items():
        fields = {field.name for field in dataclasses.fields(objective.Spec)}
        assert objective.Spec.LOSS_FREE <= fields - {"row_length"}, name


@pytest.mark.parametrize(
    "tune, num_steps", [("optim.warmup_steps=3,9", 9), ("optim.lr=1e-3,1e-2", 0)]
)
def test_a_warm_up_that_trials_chose_is_not_shortened(
    tune, num_steps, labelled, tmp_path
):
    config = make_comparison(labelled, train__steps=4, compare__tune=tune)
    config.compare.budget, config.compare.amount = "steps", 0.0
    planner = plan_runs._Planner(to_dict(config), tmp_path, ())
    plan = planner.plans["clm"].change({"optim": {"warmup_steps": 9}})
    fitted = planner._fit_steps("clm", plan, "clm")
    assert (fitted.train.steps, fitted.optim.warmup_steps) == (4, num_steps)


def test_trials_that_change_nothing_are_not_spent(labelled, tmp_path, monkeypatch):
    config = make_comparison(labelled)
    tune = "mlm.mask_rate=0.1,0.2,0.3; optim.lr=1e-3,1e-2"
    spec = CompareSpec(amount=1, tune=tune, tune_by="cloze_accuracy")
    plans = make_plans(to_dict(config), ["clm", "mlm"])
    listed = {n: tuning.list_own_trials(n, plans[n], spec) for n in plans}
    assert listed["clm"] == [{"optim.lr": 1e-3}, {"optim.lr": 1e-2}]
    assert listed["mlm"] == spec.list_trials("mlm") and len(listed["mlm"]) == 6
    _, record = choose([0.1, 0.2], spec, labelled, tmp_path, monkeypatch)
    assert record["chosen"] == {"optim.lr": 1e-2} and record["flops"] == 2.0
    output = {"clm": record, "mlm": record | {"trials": 3 * record["trials"]}}
    assert list_unequal_tuning(spec, output)[-1].startswith(
        "trials of tuning: 2 (clm); 6 (mlm)"
    )
    # Nothing at all is left to choose.
    spec = CompareSpec(amount=1, tune="mlm.mask_rate=0.1,0.2", tune_by="cloze_accuracy")
    same, record = choose([], spec, labelled, tmp_path, monkeypatch)
    assert dataclasses.replace(same, config={}) == dataclasses.replace(
        make_plan(make_comparison(labelled)), config={}
    )
    assert record["trials"] == [] and record["flops"] == 0
    assert list_tuning({"clm": read_tuning(record)}) == [
        "not tuned: clm; all of its trials are the same run"
    ]


def test_draws_are_a_function_of_the_settings():
    tune = "optim.lr=1e-4..1e-2; train.batch_size=4..64; optim.weight_decay=0.0,0.1"
    overrides = {"mlm": {"compare": {"tune": "optim.lr=1e-3..1e-1"}}}
    spec = CompareSpec(amount=1, tune=tune, tune_trials=200, overrides=overrides)
    trials = spec.list_trials("clm")
    assert len(trials) == 200 and trials == spec.list_trials("electra")
    rates = np.array([trial["optim.lr"] for trial in trials])
    assert 1e-4 <= rates.min() < 1.1e-4 and 0.9e-2 < rates.max() <= 1e-2
    assert 0.4 < np.mean(rates < 1e-3) < 0.6  # half of them below the geometric mean
    sizes = {trial["train.batch_size"] for trial in trials}
    assert {type(size) for size in sizes} == {int}
    assert min(sizes) == 4 and 60 < max(sizes) <= 64
    assert {trial["optim.weight_decay"] for trial in trials} == {0.0, 0.1}
    # More trials begin with the same ones, and another seed draws others.
    fewer = dataclasses.replace(spec, tune_trials=5)
    assert fewer.list_trials("clm") == trials[:5]
    other = dataclasses.replace(spec, tune_seed=7)
    assert other.list_trials("clm")[0] != trials[0]
    # Another range is tried at the same quantiles.
    own = [trial["optim.lr"] for trial in spec.list_trials("mlm")]
    np.testing.assert_allclose(own, rates * 10, rtol=0.01)
    assert [trial["optim.lr"] for trial in trials[:2]] == FIRST_DRAWS


FIRST_DRAWS = [0.000121, 0.0044]


def test_a_range_needs_trials_and_a_name_only_a_range_of_its_own(refuses):
    with refuses("compare.tune_trials=0: must be at least 2", "optim.lr=1e-4..1e-2"):
        CompareSpec(amount=1, tune="optim.lr=1e-4..1e-2")
    place = "compare.overrides.mlm.compare"
    overrides = {"mlm": {"compare": {"seeds": (1,)}}}
    with refuses(place, "seeds", "tune"):
        CompareSpec(amount=1, overrides=overrides)
    with refuses(f"{place}.tune=optim.lr: must be settings"):
        CompareSpec(amount=1, overrides={"mlm": {"compare": {"tune": "optim.lr"}}})


def test_ranges_of_a_name_are_drawn_kept_and_told(labelled, tmp_path, monkeypatch):
    """A restart draws the same trials; all objectives have the same number."""
    monkeypatch.setattr(plan_runs, "check_run", lambda *args: None)
    seen = []

    def give(task, tokenizer, corpora, folder, **more):
        lr = task.plan.optim.lr
        seen.append((task.plan.objective_name, lr))
        costs = {"flops": 1.0, "raw_tokens": 2.0, "train_seconds": 3.0, "steps": 4}
        return {"metrics": {"valid_loss": lr}} | costs

    monkeypatch.setattr(tuning, "train", give)
    overrides = {"mlm": {"compare": {"tune": "optim.lr=1e-2..1e-1"}}}
    config = make_comparison(
        labelled,
        compare__tune="optim.lr=1e-3..1e-2",
        compare__tune_trials=3,
        compare__overrides=overrides,
    )
    prepared = comparison.store_plans(to_dict(config), tmp_path)
    spec, first = prepared.spec, list(seen)
    assert first == [
        (name, trial["optim.lr"]) for name in NAMES for trial in spec.list_trials(name)
    ]
    assert all((lr >= 1e-2) == (name == "mlm") for name, lr in first)
    for name in NAMES:
        record = prepared.tuning[name]
        lowest = min(lr for of, lr in first if of == name)
        assert record["chosen"] == {"optim.lr": lowest} and len(record["trials"]) == 3
        assert prepared.plans[name].optim.lr == lowest
        assert record["at_edge"] == ["optim.lr"]
    output = list_tuning({n: read_tuning(x) for n, x in prepared.tuning.items()})
    drawn = "of 3 trials drawn from optim.lr=1e-2..1e-1, seed 1000000 ("
    assert drawn in output[2] and "draw more or widen the range" in output[3]
    assert list_unequal_tuning(spec, prepared.tuning) == [
        "compare.tune: optim.lr=1e-3..1e-2 (clm); optim.lr=1e-2..1e-1 (mlm)"
    ]
    seen.clear()
    again = comparison.store_plans(to_dict(config), tmp_path)
    assert seen == first and again.tuning == prepared.tuning
    assert load_plans(to_dict(config), tmp_path).tuning == prepared.tuning


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(figures, "draw", lambda *args: {})
    monkeypatch.setattr(plan_runs, "check_run", lambda *args: None)


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
    for task, task_corpora in seen:
        # Half of the steps, a seed of its own, and none of the text of the verdict.
        name = task.plan.objective_name
        per_call = task.plan.train.steps_per_call
        assert task.plan.train.steps == steps[name] / 2 // per_call * per_call
        assert task.plan.train.seed == 1_000_000 not in config.compare.seeds
        assert task_corpora["train"].num_documents + task_corpora[
            "valid"
        ].num_documents == (corpora["train"].num_documents)
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
    text = tuning.TrainingText(tokenizer.vocab, tokenizer, corpora)
    fit = lambda plan, index: plan  # noqa: E731
    return tuning.tune("clm", plan, spec, fit, text, tmp_path)


@pytest.mark.parametrize(
    "values, best, is_edge",
    [
        ([3.0, 1.0, 2.0, 4.0], 2.0, False),
        ([1.0, 1.0, 2.0, 4.0], 1.0, True),  # of equals, the first
        ([None, 2.0, 3.0, float("nan")], 2.0, False),
        ([9.0, 3.0, 2.0, 1.0], 4.0, True),
        ([2.0, 1.0], 2.0, True),  # both of two values are edges
    ],
)
def test_the_best_of_the_trials(values, best, is_edge, labelled, tmp_path, monkeypatch):
    spec = SPEC
    if len(values) == 2:
        spec = dataclasses.replace(SPEC, tune="optim.lr=1.0,2.0")
    plan, record = choose(values, spec, labelled, tmp_path, monkeypatch)
    assert plan.optim.lr == best and record["chosen"] == {"optim.lr": best}
    assert record["at_edge"] == (["optim.lr"] if is_edge else [])
    lines = list_tuning({"clm": read_tuning(record)})
    assert len(lines) == 1 + is_edge and f"optim.lr={best}" in lines[0]
    assert ("diverged" in lines[0]) == (None in values)
    assert not is_edge or lines[1].startswith("WARNING")


def test_a_search_goes_beyond_its_edge(labelled, tmp_path, monkeypatch):
    """4 is the best of 1 to 4, 5.33 is better, and 7.11 diverges."""
    spec = dataclasses.replace(SPEC, tune_until="interior")
    values = [4.0, 3.0, 2.0, 1.0, 0.5, None]
    plan, record = choose(values, spec, labelled, tmp_path, monkeypatch)
    assert plan.optim.lr == 5.33 and record["chosen"] == {"optim.lr": 5.33}
    assert record["at_edge"] == record["at_limit"] == []
    assert [trial.get("extends") for trial in record["trials"]] == [None] * 4 + (
        ["optim.lr"] * 2
    )
    assert record["trials"][-1]["settings"] == {"optim.lr": 7.11}
    failed = record["trials"][-1]["flops"]
    assert failed > 0 and record["flops"] == 5.0 + failed
    first, second = list_tuning({"clm": read_tuning(record)})
    assert "of 4 trials and 2 beyond (1.0: 4.000; " in first
    assert second == "the best trial of clm is interior after 2 extensions"


def test_a_search_that_stays_at_its_edge(labelled, tmp_path, monkeypatch):
    spec = dataclasses.replace(SPEC, tune_until="interior", tune_extensions=1)
    values = [4.0, 3.0, 2.0, 1.0, 0.5]
    _, record = choose(values, spec, labelled, tmp_path, monkeypatch)
    assert record["at_edge"] == ["optim.lr"]
    _, warning = list_tuning({"clm": read_tuning(record)})
    assert warning.startswith("WARNING: the best optim.lr of clm is the smallest or")
    assert "after 1 extension;" in warning and "compare.tune_extensions" in warning


def test_the_limit_of_a_setting_is_no_edge(labelled, tmp_path, monkeypatch):
    """Dropout of 0, also without extensions."""
    for until in ("", "interior"):
        tune = "model.dropout=0.0,0.1"
        spec = dataclasses.replace(SPEC, tune=tune, tune_until=until)
        _, record = choose([1.0, 2.0], spec, labelled, tmp_path, monkeypatch)
        assert record["at_edge"] == [] and record["at_limit"] == ["model.dropout"]
        *_, line = list_tuning({"clm": read_tuning(record)})
        assert (
            line == "the best model.dropout of clm, 0.0, is at the limit of the setting"
        )


@pytest.mark.parametrize(
    "tune, error",
    [
        ("model.d_model=16,32", None),  # 8 and 4 are divided by two heads, 2 is too
        ("optim.lr=1.0,2.0", ConfigError("buys fewer than the steps of one call")),
    ],
)
def test_what_cannot_be_trained_ends_a_search(
    tune, error, labelled, tmp_path, monkeypatch
):
    """A model that is refused, or a trial that its share does not pay for."""
    spec = dataclasses.replace(SPEC, tune=tune, tune_until="interior")
    plan = make_plan(make_comparison(labelled))
    tokenizer, corpora = load_text(plan.text)

    def give(task, *args, **more):
        value = -task.plan.optim.lr + task.plan.model.d_model
        costs = {"flops": 1.0, "raw_tokens": 2.0, "train_seconds": 3.0, "steps": 4}
        return {"metrics": {"valid_loss": value}} | costs

    def fit(plan, index):
        if error and index > 2:
            raise error
        return plan

    monkeypatch.setattr(tuning, "train", give)
    text = tuning.TrainingText(tokenizer.vocab, tokenizer, corpora)
    _, record = tuning.tune("clm", plan, spec, fit, text, tmp_path)
    assert record["at_edge"] == [] and record["at_limit"] == [tune.partition("=")[0]]
    least = min(trial["settings"].get("model.d_model", 2) for trial in record["trials"])
    assert least == 2


def test_a_stopped_search_repeats_the_same_extensions(
    labelled, tmp_path, quick, monkeypatch
):
    """A comparison that is killed in an extension; finished trials are kept."""
    config = make_comparison(
        labelled,
        compare__objectives=("clm",),
        compare__tune="optim.lr=1e-5,2e-5",
        compare__tune_until="interior",
    )
    config.compare.tune_extensions = 2
    train, labels = tuning.train, []

    def stop_at_third(*args, label, **more):
        labels.append(label)
        if label == "clm extension 2":
            raise KeyboardInterrupt
        return train(*args, label=label, **more)

    monkeypatch.setattr(tuning, "train", stop_at_third)
    with pytest.raises(KeyboardInterrupt):
        comparison.store_plans(to_dict(config), tmp_path)
    monkeypatch.setattr(tuning, "train", train)
    prepared = comparison.store_plans(to_dict(config), tmp_path)
    assert labels[-1] == "clm extension 2"
    for name in ("clm",):
        record = prepared.tuning[name]
        rates = [trial["settings"]["optim.lr"] for trial in record["trials"]]
        assert rates == pytest.approx([1e-5, 2e-5, 4e-5, 8e-5])
        assert record["at_edge"] == ["optim.lr"] and record["until"] == "interior"
        assert record["flops"] == sum(trial["flops"] for trial in record["trials"]) > 0
        assert len({trial["flops"] for trial in record["trials"]}) == 1  # one share
        assert prepared.plans[name].optim.lr == pytest.approx(8e-5)
    again = comparison.store_plans(to_dict(config), tmp_path)
    assert again.tuning == prepared.tuning
    assert load_plans(to_dict(config), tmp_path).tuning == prepared.tuning


def test_the_best_by_a_metric_of_which_more_is_better(labelled, tmp_path, monkeypatch):
    spec = CompareSpec(amount=1, tune=SPEC.tune, tune_by="cloze_accuracy")
    values = [0.1, 0.4, 0.3, 0.2]
    plan, _ = choose(values, spec, labelled, tmp_path, monkeypatch)
    assert plan.optim.lr == 2.0


def test_trials_that_all_diverge_stop_no_other_objective(
    labelled, tmp_path, monkeypatch
):
    plan, record = choose(4 * [None], SPEC, labelled, tmp_path, monkeypatch)
    assert plan.optim.lr == 1.0 and record["at_edge"] == []
    _, warning = list_tuning({"clm": read_tuning(record)})
    assert warning.startswith("WARNING: every trial of clm diverged")


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
