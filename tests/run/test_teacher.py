"""A run taught by another: it begins with it, and is whole without it."""

import json
import shutil

import jax
import numpy as np
import pytest
from tiny import make_config, write_run, write_stored

from jaxpt.cli import main
from jaxpt.config.plan import make_plan
from jaxpt.errors import UserError
from jaxpt.ops import masks as attention_masks
from jaxpt.run.initial_state import check_start, make_start
from jaxpt.run.program import Program
from jaxpt.run.task import make_task
from jaxpt.run.workdir import load_run, load_task, lock_workdir
from jaxpt.text.dataset import load_text

LAYERS = (2, 0)


def train(config, folder):
    given = write_stored(folder.with_suffix(".json"), config)
    return main(["train", f"--config={given}", f"--workdir={folder}"])


@pytest.fixture(scope="module")
def teachers(tmp_path_factory, speech):
    """Folders of a masked run, with a mean of its parameters, and of a causal one."""
    folder = tmp_path_factory.mktemp("teachers")
    for name, decay in (("mlm", 0.5), ("clm", 0.0)):
        config = make_config(
            speech, name, model__num_layers=3, train__steps=4, optim__ema_decay=decay
        )
        assert train(config, folder / name) == 0
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


@pytest.mark.parametrize(
    "kind, objective", [("mlm", "distillation"), ("clm", "causal_distillation")]
)
def test_it_begins_with_its_teacher_and_ends_without(
    kind, objective, teachers, tmp_path, speech, capsys
):
    teacher = tmp_path / "teacher"
    shutil.copytree(teachers / kind, teacher)
    _, _, taught, _ = load_run(teacher)
    config = make_student(speech, teacher, objective, optim__ema_decay=0.5)
    assert train(config, tmp_path / "run") == 0
    task, _ = load_task(tmp_path / "run")
    start = make_start(Program(task), task.plan.train)
    same = lambda a, b: jax.tree.map(np.testing.assert_array_equal, a, b)  # noqa: E731
    for tree in (start.params, start.ema):
        same(tree["teacher"], taught)
        for i, layer in enumerate(LAYERS):
            found = tree["student"]["encoder"][f"layer_{i}"]
            same(found, taught["encoder"][f"layer_{layer}"])
    # A checkpoint holds it all: the run ends the same without the teacher's folder.
    _, _, ended, step = load_run(tmp_path / "run")
    same(ended["teacher"], taught)
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
    theirs, _, params, _ = load_run(readers / kind)
    program = Program(make_task(plan, theirs.task.vocab))
    start = make_start(program, plan.train).params
    tokens = np.arange(40, dtype=np.int32).reshape(2, 20) % theirs.task.vocab.size
    mask = attention_masks.causal()

    def lecture(model):
        return model.teacher.logits(model.lecture(tokens, mask))

    found = program.task.model.apply({"params": start}, method=lecture)
    wanted = theirs.task.model.apply(
        {"params": params}, tokens, {"self": mask}, deterministic=True
    )
    np.testing.assert_allclose(found, wanted, rtol=1e-5, atol=1e-6)
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
    teacher = write_run(make_config(speech, objective, **changes), tmp_path / "two")
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
    assert f"holds a {objective} run of two stacks (seq2seq); must hold" in error
    assert error.count("\n") == 1 and not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    "changes, told",
    [
        ({}, "model.relative_directions=past: must be the teacher's both"),
        (
            {"model__relative_directions": "both", "model__num_heads": 4},
            "model.num_heads=4: must be the teacher's 2",
        ),
        (
            {"model__relative_directions": "both", "model__d_ff": 64},
            "the student has encoder/layer_0/mlp/",
        ),
    ],
)
def test_layers_are_lent_to_who_reads_them_alike(
    changes, told, readers, tmp_path, speech, capsys
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
    assert told in error and error.count("\n") == 1
    assert not (tmp_path / "run").exists()


def test_the_teacher_is_the_one_that_the_config_says(teachers, tmp_path, speech):
    """A config that is taken from a run says what its teacher was."""
    student = make_student(speech, teachers / "mlm", distillation__student_layers=())
    config = make_plan(student).config
    config["distillation"]["teacher_model"]["norm_epsilon"] = 1e-12
    task, tokenizer = load_task(teachers / "mlm")
    task = make_task(make_plan(config), task.vocab)
    with pytest.raises(UserError, match=r"model.norm_epsilon=1e-05, .*1e-12"):
        check_start(task, tokenizer)


def test_its_config_says_what_the_teacher_is(teachers, speech):
    plan = make_plan(make_student(speech, teachers / "mlm"))
    written = plan.config["distillation"]["teacher_model"]
    assert written["num_layers"] == 3 == plan.spec.teacher_model.num_layers
    again = make_plan(plan.config)
    assert again.spec == plan.spec


def test_a_run_from_another_keeps_its_student(teachers, tmp_path, speech):
    """`train.init_from` says where the student begins; then no layer is copied."""
    config = make_student(speech, teachers / "mlm")
    assert train(config, tmp_path / "first") == 0
    changed = {"train__init_from": str(tmp_path / "first"), "train__steps": 2}
    more = make_student(speech, teachers / "mlm", **changed)
    assert train(more, tmp_path / "second") == 0
    _, _, first, _ = load_run(tmp_path / "first")
    task, _ = load_task(tmp_path / "second")
    start = make_start(Program(task), task.plan.train)
    jax.tree.map(np.testing.assert_array_equal, start.params, first)


@pytest.mark.parametrize(
    "kind, changes, told",
    [
        ("mlm", {"tokenizer__kind": "byte"}, "its tokenizer is another"),
        ("clm", {}, "holds a clm run; must hold one with a masked model"),
        ("none", {}, "must be a run's folder"),
        ("mlm", {"distillation__student_layers": (0, 3)}, "from 0 to 2"),
        (
            "mlm",
            {"distillation__teacher": "", "distillation__student_layers": ()},
            "distillation.teacher=: must name",
        ),
    ],
)
def test_a_teacher_that_cannot_teach_is_one_line(
    kind, changes, told, teachers, tmp_path, speech, capsys
):
    config = make_student(speech, teachers / kind, **changes)
    assert train(config, tmp_path / "run") == 2
    error = capsys.readouterr().err
    assert told in error and error.count("\n") == 1
    assert not (tmp_path / "run").exists()
