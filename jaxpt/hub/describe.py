"""What a run's export will be, stated when its training starts.

export to transformers: electra
export to transformers: none; the nearest is gpt2, which has other values (in ...
"""

import jax

from jaxpt.errors import UserError
from jaxpt.hub.configs import write_config
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.runs.task import Task


def describe_export(task: Task) -> list[str]:
    """A line with the families of `export_run`, or the settings that no family has."""
    families = []
    try:
        for head, spec in list_parts(task).items():
            kind, _ = write_config(spec, head, "", task.vocab)
            families.append(kind.name)
    except UserError as error:
        reason = str(error).removeprefix("no family of transformers has such a model; ")
        return [f"export to transformers: none; {reason}"]
    names = ", ".join(dict.fromkeys(families))
    return [f"export to transformers: {names or 'none'}"]


def list_parts(task: Task) -> dict[str, ModelSpec]:
    """The networks to export, by purpose; their parameters are only traced."""
    specs: dict[str, ModelSpec] = {}

    def split(params: dict) -> dict:
        parts = task.model.export_parts(params)
        specs.update({head: spec for head, (spec, _) in parts.items()})
        return {head: part for head, (_, part) in parts.items()}

    jax.eval_shape(split, jax.eval_shape(task.model.init_params, jax.random.key(0)))
    return specs
