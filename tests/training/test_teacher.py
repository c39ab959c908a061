"""A run taught by another: it begins with it, and is whole without it."""

import contextlib
import io
import json
import shutil
import signal

import jax
import numpy as np
import pytest
from stops import stop_after
from tiny import claim_run, make_config, slow, slow_but, write_run, write_stored

from jaxpt.cli.main import main
from jaxpt.config.plan import make_plan
from jaxpt.errors import UserError
from jaxpt.ops import masks as attention_masks
from jaxpt.runs.initial_state import check_start, make_start
from jaxpt.runs.program import Program
from jaxpt.runs.task import make_task, resolve_dtype
from jaxpt.runs.workdir import load_run, load_task, lock_workdir
from jaxpt.text.dataset import load_text
from jaxpt.training import loop
from jaxpt.training.teacher import make_teacher_task

LAYERS = (2, 0)


def train(config, folder):
    config_path = write_stored(folder.with_suffix(".json"), config)
    return main(["train", f"--config={config_path}", f"--workdir={folder}"])


@pytest.fixture(scope="module")
def teachers(tmp_path_factory, speech):
    """Folders of a masked run, with a mean of its parameters, and of a causal one.

    The first is trained, so that its mean is not what it was.
    """
    folder, layers = tmp_path_factory.mktemp("teachers"), {"model__num_layers": 3}
    more = {"train__steps": 4, "optim__ema_decay": 0.5}
    assert train(make_config(speech, "mlm", **layers, **more), folder / "mlm") == 0
    write_run(make_config(speech, "clm", **layers), folder / "clm")
    return folder


def make_student(speech, teacher, objective="distillation", **changes):
    changes = {
        f"{objective}__teacher": str(teacher),
        f"{objective}__student_layers": LAYERS,
        "model__num_layers": len(LAYERS),
        "train__checkpoint_every": 4,
        "train__steps": 8,
    } | changes
    return make_config(speech, objective, **changes)


TAUGHT = [("mlm", "distillation"), ("clm", "causal_distillation")]


@pytest.mark.slow_except("mlm-distillation")
@pytest.mark.parametrize("kind, objective", slow_but(TAUGHT[1:], TAUGHT))
def test_it_begins_with_its_teacher(kind, objective, teachers, speech):
    reference, tokenizer, teacher_params, _ = load_run(teachers / kind)
    config = make_student(speech, teachers / kind, objective, optim__ema_decay=0.5)
    task = make_task(make_plan(config), reference.task.vocab)
    check_start(task, tokenizer)
    start = make_start(Program(task), task.plan.train)
    for tree in (start.params, start.ema):
        same(tree["teacher"], teacher_params)
        for i, layer in enumerate(LAYERS):
            result = tree["student"]["encoder"][f"layer_{i}"]
            same(result, teacher_params["encoder"][f"layer_{layer}"])


def same(one, other):
    jax.tree.map(np.testing.assert_array_equal, one, other)


@pytest.mark.slow
def test_it_ends_without_its_teacher(teachers, tmp_path, speech):
    """A checkpoint holds it all: the run ends the same without the teacher's folder."""
    teacher = tmp_path / "teacher"
    shutil.copytree(teachers / "mlm", teacher)
    _, _, teacher_params, _ = load_run(teacher)
    config = make_student(speech, teacher, optim__ema_decay=0.5)
    assert train(config, tmp_path / "run") == 0
    _, _, ended, step = load_run(tmp_path / "run")
    same(ended["teacher"], teacher_params)
    shutil.rmtree(teacher)
    shutil.rmtree(tmp_path / "run" / "checkpoints" / "8")
    (tmp_path / "run" / "checkpoints" / "8.manifest.json").unlink()
    (tmp_path / "run" / "result.json").unlink()
    assert main(["train", f"--workdir={tmp_path / 'run'}"]) == 0
    _, _, again, again_step = load_run(tmp_path / "run")
    assert step == again_step == 8
    same(again, ended)
    assert main(["evaluate", f"--workdir={tmp_path / 'run'}"]) == 0


RELATIVE = {"model__positions": "relative"}


@pytest.fixture(scope="module")
def readers(tmp_path_factory, speech):
    """Folders of runs whose one stack is told distances apart, before any step."""
    folder = tmp_path_factory.mktemp("readers")
    for name in ("clm", "clm_mlm", "prefix_lm"):
        write_run(make_config(speech, name, **RELATIVE), folder / name)
    return folder


@pytest.mark.slow_except("prefix_lm-both")
@pytest.mark.parametrize(
    "kind, directions", [("clm", "past"), ("clm_mlm", "both"), ("prefix_lm", "both")]
)
def test_a_teacher_is_read_as_it_was_trained(kind, directions, readers, speech):
    """Whatever the student does, whose own distances are all of the past."""
    config = make_student(
        speech,
        readers / kind,
        "causal_distillation",
        **RELATIVE,
        causal_distillation__student_layers=(),
    )
    plan = make_plan(config)
    reference, _, params, _ = load_run(readers / kind)
    program = Program(make_task(plan, reference.task.vocab))
    start = make_start(program, plan.train).params
    tokens = np.arange(40, dtype=np.int32).reshape(2, 20) % reference.task.vocab.size
    mask = attention_masks.causal()

    def lecture(model):
        states = model.teacher_outputs({"inputs": tokens}, {"self": mask})
        return model.teacher.logits(states)

    result = program.task.model.apply({"params": start}, method=lecture)
    expected = reference.task.model.apply(
        {"params": params}, tokens, {"self": mask}, deterministic=True
    )
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)
    spec = plan.spec.teacher_model
    assert spec.relative_directions == directions
    assert plan.model.relative_directions == "past"


def test_a_student_older_than_its_teachers_directions_is_read_as_it_was(
    readers, tmp_path, speech
):
    config = make_student(
        speech,
        readers / "clm",
        "causal_distillation",
        **RELATIVE,
        causal_distillation__student_layers=(),
    )
    run = write_run(config, tmp_path / "run")
    task, _ = load_task(run)
    stored = json.loads((run / "config.json").read_text())
    del stored["causal_distillation"]["teacher_model"]["relative_directions"]
    del stored["model"]["relative_directions"]
    (run / "config.json").write_text(json.dumps(stored))
    (run / "checksums.json").unlink()  # nor had it any
    older, tokenizer = load_task(run)
    assert older.model == task.model and not older.model.teacher_spec.is_bidirectional
    # It is the same run, to itself and to the config that it was started with.
    for plan in (older.plan, make_task(make_plan(config), older.vocab).plan):
        lock_workdir(run, plan, tokenizer, load_text(plan.text)[1])


@pytest.mark.parametrize("objective", ["prefix_lm", "ul2"])
def test_a_teacher_of_two_stacks_is_one_line(objective, tmp_path, speech, capsys):
    changes = {"model__num_decoder_layers": 1, "model__max_len": 48}
    teacher = tmp_path / "two"
    claim_run(make_config(speech, objective, **changes), teacher)
    student = make_student(
        speech,
        teacher,
        "causal_distillation",
        causal_distillation__student_layers=(),
        tokenizer__kind="file",
        tokenizer__path=str(teacher / "tokenizer.json"),
    )
    assert train(student, tmp_path / "run") == 2
    error = capsys.readouterr().err
    assert (
        f"holds a {objective} run with an encoder and a decoder (seq2seq); must"
        in error
    )
    assert error.count("\n") == 1 and not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "changes, output",
    [
        ({}, "model.relative_directions=past: must be the teacher's both"),
        (
            {"model__relative_directions": "both", "model__num_heads": 4},
            "model.num_heads=4: must be the teacher's 2",
        ),
        slow(
            {"model__relative_directions": "both", "model__d_ff": 64},
            "the student has encoder/layer_0/mlp/",
        ),
    ],
)
def test_layers_are_lent_to_who_reads_them_alike(
    changes, output, readers, tmp_path, speech, capsys
):
    student = make_student(
        speech,
        readers / "clm_mlm",
        "causal_distillation",
        **RELATIVE,
        **changes,
        causal_distillation__student_layers=(0,),
        model__num_layers=1,
    )
    assert train(student, tmp_path / "run") == 2
    error = capsys.readouterr().err
    assert output in error and error.count("\n") == 1
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_the_teacher_is_the_one_that_the_config_says(teachers, tmp_path, speech):
    """A config that is taken from a run says what its teacher was."""
    student = make_student(speech, teachers / "mlm", distillation__student_layers=())
    config = make_plan(student).config
    config["distillation"]["teacher_model"]["norm_epsilon"] = 1e-12
    task, tokenizer = load_task(teachers / "mlm")
    task = make_task(make_plan(config), task.vocab)
    with pytest.raises(UserError, match=r"model.norm_epsilon=1e-05, .*1e-12"):
        check_start(task, tokenizer)


@pytest.mark.slow
def test_its_config_says_what_the_teacher_is(teachers, speech):
    plan = make_plan(make_student(speech, teachers / "mlm"))
    written = plan.config["distillation"]["teacher_model"]
    assert written["num_layers"] == 3 == plan.spec.teacher_model.num_layers
    again = make_plan(plan.config)
    assert again.spec == plan.spec


@pytest.mark.slow
def test_a_run_from_another_keeps_its_student(teachers, tmp_path, speech):
    """`train.init_from` says where the student begins; then no layer is copied."""
    first = write_run(make_student(speech, teachers / "mlm"), tmp_path / "first")
    program, tokenizer, params, _ = load_run(first)
    _, _, teacher_params, _ = load_run(teachers / "mlm")
    changed = {"train__init_from": str(first)}
    plan = make_plan(make_student(speech, teachers / "mlm", **changed))
    task = make_task(plan, program.task.vocab)
    check_start(task, tokenizer)
    start = make_start(Program(task), plan.train)
    same(start.params["student"], params["student"])
    same(start.params["teacher"], teacher_params)


@pytest.mark.parametrize(
    "kind, changes, output",
    [
        slow("mlm", {"tokenizer__kind": "byte"}, "its tokenizer is another"),
        ("clm", {}, "holds a clm run; must hold one with a masked model"),
        ("none", {}, "must be a run's folder"),
        ("mlm", {"distillation__student_layers": (0, 3)}, "from 0 to 2"),
    ],
)
def test_a_teacher_that_cannot_teach_is_one_line(
    kind, changes, output, teachers, tmp_path, speech, capsys
):
    config = make_student(speech, teachers / kind, **changes)
    assert train(config, tmp_path / "run") == 2
    error = capsys.readouterr().err
    assert output in error and error.count("\n") == 1
    assert not (tmp_path / "run").exists()


# Without a teacher.


def test_a_student_starts_from_a_run_without_a_teacher(
    teachers, tmp_path, speech, refuses
):
    """All of it, if both networks compute the same; the teacher is the one named."""
    write_run(make_config(speech, "clm", train__seed=5), tmp_path / "first")
    source, tokenizer, source_params, _ = load_run(tmp_path / "first")
    changes = {
        "selective_clm__teacher": str(teachers / "clm"),
        "train__init_from": str(tmp_path / "first"),
    }
    plan = make_plan(make_config(speech, "selective_clm", **changes))
    task = make_task(plan, source.task.vocab)
    check_start(task, tokenizer)
    start = make_start(Program(task), plan.train).params
    same(start["student"], source_params)
    same(start["teacher"], load_run(teachers / "clm")[2])
    other = {"model__d_ff": 16}
    plan = make_plan(make_config(speech, "selective_clm", **changes, **other))
    with refuses("train.init_from=", "model has encoder/layer_0/mlp/down/kernel [32, "):
        check_start(make_task(plan, source.task.vocab), tokenizer)
    other = {"model__norm_epsilon": 1e-3}
    plan = make_plan(make_config(speech, "selective_clm", **changes, **other))
    with refuses("train.init_from=", "model has model.norm_epsilon="):
        check_start(make_task(plan, source.task.vocab), tokenizer)


ALONE = {"train__steps": 4, "train__checkpoint_every": 2}


@pytest.fixture(scope="module")
def alone(tmp_path_factory, speech):
    """A student's folder, whose teacher was stopped; beside it what was said."""
    folder = tmp_path_factory.mktemp("alone")
    config = make_config(speech, "causal_distillation", **ALONE)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(loop, "SignalWatch", stop_after(0))
        assert train(config, folder / "run") == 128 + signal.SIGTERM
    assert (folder / "run" / "teacher" / "config.json").exists()
    assert not (folder / "run" / "config.json").exists()
    with contextlib.redirect_stdout(io.StringIO()) as out:
        assert train(config, folder / "run") == 0
    (folder / "out.txt").write_text(out.getvalue())
    return folder


@pytest.mark.slow
def test_a_teacher_that_is_not_named_is_trained_first(alone):
    run, out = alone / "run", (alone / "out.txt").read_text()
    task, _ = load_task(run)
    teacher, _ = load_task(run / "teacher")
    assert task.plan.spec.teacher == str(run / "teacher")
    assert teacher.plan.objective_name == "clm"
    assert teacher.model_spec == task.model.teacher_spec
    filled = f"causal_distillation.teacher={run / 'teacher'} (clm, trained first)"
    assert f"filled in for causal_distillation: {filled}" in out.splitlines()
    # It had been stopped, and went on; the student comes after.
    lines = [line for line in out.splitlines() if "step" in line]
    assert lines[0].startswith("teacher  ") and "resuming from step 2" in out
    is_teachers = [line.startswith("teacher  ") for line in lines]
    assert is_teachers == sorted(is_teachers, reverse=True) and not is_teachers[-1]
    assert (run / "teacher" / "result.json").exists()
    _, _, params, _ = load_run(run)
    _, _, teacher_params, _ = load_run(run / "teacher")
    jax.tree.map(np.testing.assert_array_equal, params["teacher"], teacher_params)


@pytest.mark.slow
def test_it_is_the_run_that_names_that_teacher(alone, tmp_path, speech):
    named = {"causal_distillation__teacher": str(alone / "run" / "teacher")}
    config = make_config(speech, "causal_distillation", **ALONE, **named)
    assert train(config, tmp_path / "named") == 0
    runs = [alone / "run", tmp_path / "named"]
    one, other = (load_run(run)[2] for run in runs)
    jax.tree.map(np.testing.assert_array_equal, one, other)
    configs, results = (
        [json.loads((run / name).read_text()) for run in runs]
        for name in ("config.json", "result.json")
    )
    assert configs[0] == configs[1]
    assert results[0]["metrics"] == results[1]["metrics"]


@pytest.mark.slow
def test_started_again_it_takes_the_teacher_that_it_has(
    alone, tmp_path, speech, capsys, monkeypatch
):
    """By the same command, and in the middle of the student."""
    config = make_config(speech, "causal_distillation", **ALONE)
    run, teacher_log = alone / "run", alone / "run" / "teacher" / "metrics.jsonl"
    before, log = teacher_log.read_bytes(), (run / "metrics.jsonl").read_bytes()
    assert train(config, run) == 0
    assert teacher_log.read_bytes() == before
    assert (run / "metrics.jsonl").read_bytes() == log
    kept = json.loads((run / "result.json").read_text())["metrics"]
    (run / "result.json").unlink()
    shutil.rmtree(run / "checkpoints" / "4")
    (run / "checkpoints" / "4.manifest.json").unlink()
    capsys.readouterr()
    assert train(config, run) == 0
    assert f"resuming from step 2 in {run}\n" in capsys.readouterr().out
    assert json.loads((run / "result.json").read_text())["metrics"] == kept
    assert teacher_log.read_bytes() == before


def test_what_a_teacher_is_trained_as(speech, refuses):
    """The student's config, under its own objective and from fresh parameters."""
    changes = {"tokenizer__specials": ("pad",), "train__init_from": "elsewhere"}
    plan = make_plan(make_config(speech, "distillation", **changes))
    assert plan.lacks_teacher and plan.filled == "tokenizer.specials=pad+mask"
    tokenizer, corpora = load_text(plan.text)
    teacher = make_teacher_task(plan, tokenizer, corpora, ()).plan
    assert teacher.objective_name == "mlm" and not teacher.lacks_teacher
    own = resolve_dtype(plan)
    for part in ("text", "rows", "model", "optim", "eval"):
        assert getattr(teacher, part) == getattr(own, part)
    assert (plan.train.init_from, teacher.train.init_from) == ("elsewhere", "")
    assert teacher.train.steps == plan.train.steps
    with refuses("distillation.teacher=: must name the folder of the run"):
        check_start(make_task(plan, tokenizer.vocab), tokenizer)
