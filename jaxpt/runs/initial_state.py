"""The initial state of a run: random, or from another run (`train.init_from`)."""

import dataclasses

import jax
import jax.numpy as jnp

from jaxpt.by_name import load_place
from jaxpt.config.sections import TrainSpec
from jaxpt.errors import CheckpointError
from jaxpt.files.remote import fetch
from jaxpt.learn.state import TrainState
from jaxpt.nn.model_differences import find_differences
from jaxpt.nn.scan import list_specs
from jaxpt.objectives.spec import Teacher
from jaxpt.runs.checkpoint import Checkpointer
from jaxpt.runs.program import Program
from jaxpt.runs.random_parts import check_networks
from jaxpt.runs.sharding import shard_params
from jaxpt.runs.task import Task
from jaxpt.runs.workdir import load_task
from jaxpt.text.tokens import tokenizer as tokenizers
from jaxpt.text.tokens.tokenizer import Tokenizer

CONVERSIONS = "jaxpt.runs.conversions"  # imported when a run needs it


def check_start(task: Task, tokenizer: Tokenizer) -> None:
    """Checks that `train.init_from` and a teacher can initialise this task."""
    if task.spec.needs.teacher:
        _check_teacher(task, tokenizer)
    path = task.plan.train.init_from
    if not path:
        return
    name = f"train.init_from={path}"
    other_task = _load_other(name, path, tokenizer)
    check_networks(other_task, name)
    shapes, other_shapes = _list_shapes(task), _list_shapes(other_task)
    if _is_split(task, other_task):
        load_place(f"{CONVERSIONS}:check_split")(task, name)
        other_shapes = load_place(f"{CONVERSIONS}:align_shapes")(shapes, other_shapes)
    if _is_of_student(task, other_task):  # the teacher is another run's
        own = {p: x for p, x in shapes.items() if p.startswith("student/")}
        shapes = {path.removeprefix("student/"): x for path, x in own.items()}
    for leaf in sorted(shapes.keys() | other_shapes.keys()):
        if shapes.get(leaf) != other_shapes.get(leaf):
            raise CheckpointError(
                f"{name}: its {other_task.plan.objective_name} model has {leaf} "
                f"{other_shapes.get(leaf, 'not at all')}, this "
                f"{task.plan.objective_name} one "
                f"{shapes.get(leaf, 'not at all')}; they must have the same parameters"
            )
    for setting, value, other_value in _compare_networks(task, other_task):
        raise CheckpointError(
            f"{name}: its {other_task.plan.objective_name} model has "
            f"{setting}={other_value}, this {task.plan.objective_name} one {value}; "
            f"they must make the same of their parameters"
        )


def _is_split(task: Task, other_task: Task) -> bool:
    """Whether both stacks of a task's network start from another's only stack."""
    return task.model.HAS_DECODER and not other_task.model.HAS_DECODER


def _is_of_student(task: Task, other_task: Task) -> bool:
    """Whether a task's student starts from a network without a teacher."""
    return bool(task.spec.needs.teacher and not other_task.spec.needs.teacher)


def _compare_networks(task: Task, other_task: Task) -> list[tuple[str, object, object]]:
    """Settings that change what a network computes from the same parameters.

    Those of a teacher are not compared, because the teacher is replaced.

    Returns:
      (name, this task's value, the other's value) of each setting that differs.
    """
    differences, other_specs = [], list_specs(other_task.model)
    if _is_of_student(task, other_task) and "spec" in other_specs:
        other_specs["student_spec"] = other_specs["spec"]
    for network, spec in list_specs(task.model).items():
        if (
            network.removesuffix("_spec") in task.model.frozen
            or network not in other_specs
        ):
            continue
        other, free = other_specs[network], ["max_len"]
        if _is_split(task, other_task):
            free.append("num_decoder_layers")
        for key, value in find_differences(spec, other, free=tuple(free)):
            differences.append((f"model.{key}", getattr(spec, key), value))
    if type(task.model) is type(other_task.model):
        for key in task.model.CONSTANTS:
            own_value, other = getattr(task.model, key), getattr(other_task.model, key)
            if own_value != other:
                differences.append(
                    (f"{task.plan.objective_name}.{key}", own_value, other)
                )
    return differences


def _check_teacher(task: Task, tokenizer: Tokenizer) -> None:
    """Raises UserError unless a run can teach this task and initialise its layers."""
    name, path = _name_teacher(task)
    teacher_task = _load_other(name, path, tokenizer)
    expected = list_specs(task.model)["teacher_spec"]
    for key, value in find_differences(expected, teacher_task.model_spec):
        raise CheckpointError(
            f"{name}: its model has model.{key}={value}, that of "
            f"{task.plan.objective_name}.teacher_model "
            f"{getattr(expected, key)}; leave teacher_model out, or "
            f"name the run that it is of"
        )
    jax.eval_shape(lambda: _begin(task, _init(task), teacher_task, _init(teacher_task)))


def _get_teacher(task: Task) -> Teacher:
    """The teacher of an objective that needs one."""
    teacher = task.spec.needs.teacher
    assert teacher is not None
    return teacher


def _name_teacher(task: Task) -> tuple[str, str]:
    """The setting with its value, and the folder as a path."""
    teacher = _get_teacher(task)
    path = teacher.run
    name = f"{task.plan.objective_name}.{teacher.setting}={path}"
    if not path:
        raise CheckpointError(f"{name}: must name the folder of the run that teaches")
    return name, path


def _load_other(name: str, path: str, tokenizer: Tokenizer) -> Task:
    """The task of another run, which must have the same tokenizer and a checkpoint."""
    folder = fetch(path)
    task, read = load_task(folder)
    if tokenizers.fingerprint(read) != tokenizers.fingerprint(tokenizer):
        raise CheckpointError(
            f"{name}: its tokenizer is another; it must be this one, as with "
            f"tokenizer.kind=file and tokenizer.path={folder / 'tokenizer.json'}"
        )
    if not (folder / "checkpoints").is_dir():
        raise CheckpointError(f"{name}: holds no finished checkpoint")
    return task


def make_start(program: Program, spec: TrainSpec) -> TrainState:
    """The state of step 0, in the form of `Program.save_form`.

    Args:
      spec: the run's, whose seed may differ from that of the program's task.
    """
    state = program.init_state(spec.seed)
    has_teacher = program.task.spec.needs.teacher is not None
    if not spec.init_from and not has_teacher:
        return state
    params = state.params
    if spec.init_from:
        start_task, _ = load_task(fetch(spec.init_from))
        name = f"train.init_from={spec.init_from}"
        if _is_split(program.task, start_task):
            params = _restore_split(program, name, spec.init_from, start_task)
        elif _is_of_student(program.task, start_task):
            template = program.abstract_state().params["student"]
            student = _restore(name, spec.init_from, start_task, template)
            params = params | {"student": student}
        else:
            template = program.abstract_state().params
            params = _restore(name, spec.init_from, start_task, template)
    if has_teacher:
        params = _add_teacher(program, params)
    ema = jax.tree.map(jnp.copy, params) if state.ema is not None else None
    task, kept = program.task, program.abstract_state().objective_state
    init_objective = jax.jit(
        lambda params: task.spec.init_state(task.vocab, params),
        out_shardings=jax.tree.map(lambda x: x.sharding, kept),
    )
    own = init_objective(params)
    return dataclasses.replace(state, params=params, ema=ema, objective_state=own)


def _begin(task: Task, params, teacher_task: Task, teacher_params):
    """A task's parameters, with those of the teacher.

    Without `train.init_from` the student starts with the teacher's layers.
    """
    is_continued = task.plan.train.init_from
    teacher = _get_teacher(task)
    layers = () if is_continued else teacher.layers
    parts = teacher_task.model.export_parts(teacher_params)
    _, head_params = parts[teacher.head]
    begin = load_place("jaxpt.nn.networks.student_teacher:begin")
    return begin(params, head_params, layers)


def _add_teacher(program: Program, params):
    """The parameters, with the teacher's replaced."""
    task = program.task
    name, path = _name_teacher(task)
    teacher_task, _ = load_task(fetch(path))
    template = _place_params(program, teacher_task)
    teacher_params = _restore(name, path, teacher_task, template)
    places = jax.tree.map(lambda x: x.sharding, program.abstract_state().params)
    begin = jax.jit(
        lambda params, teacher_params: jax.tree.map(
            jnp.copy, _begin(task, params, teacher_task, teacher_params)
        ),
        out_shardings=places,
    )
    return begin(params, teacher_params)


def _place_params(program: Program, task: Task):
    """The shapes of another task's parameters, placed on the program's devices."""
    shapes = jax.eval_shape(lambda: _init(task))
    return jax.tree.map(
        lambda x, place: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=place),
        shapes,
        shard_params(shapes, program.mesh, task.model.RULES),
    )


def _restore_split(program: Program, name: str, path: str, start_task: Task):
    """An encoder-decoder's parameters from those of a run of one stack."""
    template = _place_params(program, start_task)
    restored = _restore(name, path, start_task, template)
    places = jax.tree.map(lambda x: x.sharding, program.abstract_state().params)
    split_stack = load_place(f"{CONVERSIONS}:split_stack")
    paths = list(_list_shapes(program.task))
    split = jax.jit(lambda params: split_stack(params, paths), out_shardings=places)
    return split(restored)


def _restore(name: str, path: str, task: Task, template):
    """A run's newest parameters, or their moving average if it keeps one."""
    with Checkpointer(fetch(path) / "checkpoints") as checkpointer:
        tree = "ema" if task.has_ema else "params"
        restored = checkpointer.restore(template, under=tree)
    if restored is None:
        raise CheckpointError(f"{name}: holds no finished checkpoint")
    return restored[0]


def _init(task: Task):
    return task.model.init_params(jax.random.key(0))


def _list_shapes(task: Task) -> dict[str, list[int]]:
    params = jax.eval_shape(lambda: _init(task))
    leaves = jax.tree_util.tree_leaves_with_path(params)
    return {
        jax.tree_util.keystr(path, simple=True, separator="/"): list(leaf.shape)
        for path, leaf in leaves
    }
