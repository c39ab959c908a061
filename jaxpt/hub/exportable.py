"""The families of transformers as which a run can be exported, before it is trained."""

import jax

from jaxpt.errors import UserError
from jaxpt.hub.configs import write_configs
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.nn.parametrization import standardise
from jaxpt.runs.task import Task


def name_families(task: Task) -> str:
    """The families of `export_run`: "electra"; or why there is none.

    "none; the nearest, gpt2, needs model.activation=gelu_tanh (now relu2)"
    """
    specs = {head: standardise(spec) for head, spec in list_parts(task).items()}
    try:
        written = write_configs(specs, "", task.vocab, task.plan.objective_name)
        families = [kind.name for kind, _ in written.values()]
    except UserError as error:
        reason = str(error).removeprefix("no family of transformers has such a model; ")
        return f"none; {reason}"
    return ", ".join(dict.fromkeys(families)) or "none"


def list_parts(task: Task) -> dict[str, ModelSpec]:
    """The networks to export, by purpose; their parameters are only traced."""
    specs: dict[str, ModelSpec] = {}

    def split(params: dict) -> dict:
        parts = task.model.export_parts(params)
        specs.update({head: spec for head, (spec, _) in parts.items()})
        return {head: part for head, (_, part) in parts.items()}

    jax.eval_shape(split, jax.eval_shape(task.model.init_params, jax.random.key(0)))
    return specs
