"""No value of a setting gives a traceback, takes long or is accepted wrongly."""

import dataclasses
import functools
import math

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from tiny import make_config, write_stored
from trials import settings as trial

from jaxpt.cli import main as cli
from jaxpt.cli import train
from jaxpt.config import finetuning
from jaxpt.config.config_files import load_stored
from jaxpt.config.plan import make_plan
from jaxpt.config.settings import default_settings, find_types
from jaxpt.evaluation.scores import SampleSpec
from jaxpt.runs.predictions import check_draws
from jaxpt.setting_types import MAX_TEXT, fits, list_types, show_value
from jaxpt.training.memory import check_parts, format_bytes
from jaxpt.training.train_run import train_run

SETTINGS = list(trial.list_defaults())
VALUES = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.integers(2**20, 2**66)
    | st.floats()
    | st.text(max_size=20),
    lambda values: (
        st.lists(values, max_size=3)
        | st.dictionaries(st.text(max_size=3), values, max_size=2)
    ),
    max_leaves=4,
)


@functools.cache
def find_all_types(kind):
    """The declared types of a kind of config, by section and name."""
    kind, _, task = kind.partition(":")
    if kind == "generation":
        return {"--": list_types(SampleSpec)}
    if kind == "finetuning":
        types = finetuning.find_types({"task": {"name": task}})
        return types | {"task": types["task"] | {"name": str}}
    return {**find_types(default_settings()), "": {"objective": str}}


def test_every_setting_declares_a_type_that_refuses_all_others():
    """The trial's own rule of what a setting may have, and the declared types."""
    wrong = []
    for setting in SETTINGS:
        *names, default = setting
        kind, section, name = names
        if (kind := find_all_types(kind)[section].get(name)) is None:
            continue  # `check_draws` has it
        assert fits(default, kind), names
        for value in trial.VALUES[type(default)]:
            case = trial.make_case(setting, value)
            if case.is_never and value is not trial.DEEP and fits(value, kind):
                wrong.append(str(case))
    # Of a model section its spec checks the names.
    assert not [case for case in wrong if "teacher_model" not in case]


@pytest.fixture(scope="module")
def text():
    with trial.workplace() as path:
        yield path


def hold(setting, value, text):
    case = trial.make_case(setting, value)
    outcome = trial.run_case(case, text)
    assert outcome in ("refused", "accepted"), f"{case}: {outcome}"


QUIET = {"deadline": None, "suppress_health_check": [HealthCheck.too_slow]}


@given(st.sampled_from(SETTINGS), VALUES)
@settings(max_examples=60, **QUIET)
def test_any_value_is_refused_in_one_line_or_can_be_used(text, setting, value):
    hold(setting, value, text)


@pytest.mark.slow
@given(st.sampled_from(SETTINGS), VALUES)
@settings(max_examples=5000, **QUIET)
def test_any_of_many_values_is_refused_in_one_line_or_can_be_used(text, setting, value):
    hold(setting, value, text)


@pytest.mark.parametrize(
    "name, value, allowed",
    [
        ("model.d_ff", 2**63, "from 1 to 16777216"),
        ("model.vocab_size", 10**40, "from 0 to 2147483647"),
        ("model.num_layers", 1000, "at most 200 with model.scan_layers=False"),
        ("model.norm_epsilon", math.inf, "above 0, finite in float32"),
        ("train.batch_size", 2**63, "from 1 to 2147483647"),
        ("train.seconds", math.inf, "at least 0, finite in float32"),
        ("train.seed", 10**20, "from 0 to 2147483647"),
        ("train.steps", True, "a whole number, at least 1"),
        ("train.steps", 10.0, "a whole number, at least 1"),
        ("train.trackers", [[]], "a list of texts, each one of tensorboard, "),
        ("eval.samples", 2**31, "from 0 to 1000"),
        ("optim.clip_norm", math.inf, "at least 0, finite in float32"),
        ("optim.epsilon", 1e-45, "-1, or above 0, normal in float32"),
        ("optim.beta2", -2, "-1, or at least 0 and below 1"),
        ("compare.amount", math.nan, "at least 0, finite in float32"),
        ("compare.tasks", ["nosuch:x"], "a list of texts, each one of blimp:PATH, "),
        ("compare.tasks", [3], "a list of texts, each one of blimp:PATH, "),
        ("compare.overrides", {"a": 3}, "names with sections of settings"),
        ("ul2.rates", [2, "a", 4], "three weights"),
        ("bilm.filters", ["a"], "a list of whole numbers, each at least 1"),
        ("data.path", "a\0b", f"a text of at most {MAX_TEXT} characters, without NUL"),
        ("clm_mlm.mlm_schedule", [[0.5, "a"]], "pairs (until, share)"),
    ],
)
def test_an_error_has_the_setting_its_value_and_what_is_allowed(
    name, value, allowed, refuses
):
    """Also of an objective that is not trained."""
    section, field = name.split(".")
    with refuses(f"{name}={show_value(value)}: must be {allowed}") as caught:
        make_plan({"objective": "clm", section: {field: value}})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("config", [[], 3, None, {"train": 3}, {"train": [1]}])
def test_a_config_that_has_no_sections_is_refused(config, refuses):
    with refuses("must be "):
        make_plan(config)


def test_a_value_that_json_does_not_have_is_refused(refuses):
    with refuses("train.steps={1}: must be a number, a text, a list or a section"):
        make_plan({"train": {"steps": {1}}})


@pytest.mark.parametrize(
    "flags", [{"seed": 10**20}, {"num_samples": 10**6}, {"num_steps": -1}]
)
def test_numbers_of_generation_have_bounds(flags, refuses):
    (name,) = flags
    with refuses(f"{name}={flags[name]}: must be "):
        check_draws(**flags)


def test_beams_have_a_bound(refuses):
    with refuses("num_beams=100000: must be from 1 to 1000"):
        SampleSpec(num_beams=100_000)


def test_a_stored_config_is_checked_by_the_same_types(tmp_path, refuses):
    path = write_stored(tmp_path / "config.json", {"optim": {"lr": "high"}})
    with refuses(f"config={path}: optim.lr=high: must be a number, above 0"):
        load_stored(str(path))


# Memory.


@pytest.mark.parametrize(
    "changes, named",
    [
        ({"model__d_ff": 2**24, "model__d_model": 2**20}, "model.d_ff=16777216"),
        ({"train__batch_size": 2**31 - 1}, "train.batch_size=2147483647"),
        ({"eval__batch_size": 2**31 - 1}, "eval.batch_size=2147483647"),
    ],
)
def test_sizes_that_no_memory_has_are_refused_first(
    changes, named, speech, tmp_path, refuses
):
    config = make_config(speech, "clm", **changes)
    with refuses(named, ": needs ", "this machine has") as caught:
        train_run(config, tmp_path / "run")
    assert "\n" not in str(caught.value)
    assert not (tmp_path / "run" / "config.json").exists()


def test_parts_that_fit_are_not_refused(refuses):
    check_parts({"a": 5, "b": 5}, 10)
    with refuses("b: needs 6 kB, a device has 10 kB"):
        check_parts({"a": 5000, "b": 6000}, 10_000, "a device")
    assert format_bytes(math.inf) == "inf TB"


@pytest.mark.parametrize(
    "error",
    [
        MemoryError("Unable to allocate 8 GiB"),
        RuntimeError("RESOURCE_EXHAUSTED: Out of memory allocating 8 bytes"),
    ],
)
def test_out_of_memory_is_one_line(error, monkeypatch, capsys):
    def fail(command, argv):
        raise error

    monkeypatch.setattr(train, "train", dataclasses.replace(train.train, run=fail))
    assert cli.main(["train"]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert str(error) in line and "train.num_microbatches" in line


def test_another_runtime_error_is_a_bug(monkeypatch):
    def fail(command, argv):
        raise RuntimeError("INTERNAL: a bug")

    monkeypatch.setattr(train, "train", dataclasses.replace(train.train, run=fail))
    with pytest.raises(RuntimeError, match="a bug"):
        cli.main(["train"])
