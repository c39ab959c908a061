"""Linear probing by logistic regression (`jaxpt.evaluation.linear_probe`).

The regression on standardised vectors is rewritten as a linear head on the vectors, so
the result is measured, stored and loaded like any fine-tuned model.
"""

import dataclasses
import time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np

from jaxpt.config.finetuning import GRID
from jaxpt.errors import ConfigError, DivergedError
from jaxpt.evaluation.linear_probe import LinearProbe, fit_probe
from jaxpt.finetuning.cell import Cell, Trained, conclude
from jaxpt.finetuning.evaluation import LabelledRows, measure, read_outputs
from jaxpt.finetuning.program import TuneProgram
from jaxpt.nn.task_heads import FORMS, pool
from jaxpt.tasks import classification


def check_exact_probe(program: TuneProgram) -> None:
    """Raises UserError unless the head is one linear layer of a single-label task."""
    plan, form = program.plan, FORMS[program.base.form]
    spec = plan.spec
    if not isinstance(spec, classification.Spec) or spec.separator:
        raise ConfigError(
            "adapt.method=exact_probe: needs task.name=classification of one label; "
            "must be linear_probe here"
        )
    is_linear = not (form.activation or form.has_lm_head or form.mixes_layers)
    if not is_linear or not form.has_bias:
        raise ConfigError(
            f"adapt.method=exact_probe: the head {program.base.form} is not one linear "
            f"layer with a bias; task.head must be electra (the first state), gpt (the "
            f"last) or mean"
        )
    for name in GRID[:-1]:
        values = getattr(plan.train, name)
        if len(values) > 1:
            raise ConfigError(
                f"train.{name}={values}: must be one value with "
                f"adapt.method=exact_probe, which takes no steps"
            )


def run_exact_probe(
    program: TuneProgram, cell: Cell, splits: dict[str, LabelledRows]
) -> Trained:
    """Fits the probe and returns the finished cell, with the probe as its head."""
    start = time.monotonic()
    result = dataclasses.asdict(cell) | {"steps": 0}
    try:
        params = program.init_params(cell.seed)
        probe = _fit(program, params, splits)
        params |= {"head": {"out": make_head(probe, len(program.labels))}}
        dev = measure(program, params, splits["dev"], splits["dev"])
        times = _measure_times(start, splits)
        result |= {
            "measured_at": 0,
            **times,
            "history": [{"step": 0, "dev": dev.metrics, "loss": None, **times}],
            "strength": probe.strength,
            "dev_by_strength": {str(c): value for c, value in probe.dev.items()},
        }
        return conclude(program, params, splits, result, dev)
    except DivergedError as error:
        result |= _measure_times(start, splits) | {"history": []}
        return Trained(result | {"diverged": str(error)})


def _measure_times(start: float, splits: dict[str, LabelledRows]) -> dict[str, float]:
    seconds = time.monotonic() - start
    rate = len(splits["train"].rows) / seconds
    return {"seconds": seconds, "examples_per_second": rate}


def _fit(
    program: TuneProgram, params: Any, splits: dict[str, LabelledRows]
) -> LinearProbe:
    """Fits the probe to the vectors that the head reads."""
    form = FORMS[program.base.form]

    @jax.jit
    def read(params: Any, batch: dict) -> jax.Array:
        states = program.model.states(params, batch, None)
        return pool(states, batch["segment_ids"], form.pooling).astype(jnp.float32)

    vectors, labels = {}, {}
    for name in ("train", "dev"):
        rows = splits[name].rows
        vectors[name] = np.stack(read_outputs(program, params, splits[name], read))
        labels[name] = np.array([int(row["targets"]) for row in rows])
    return fit_probe(vectors["train"], labels["train"], vectors["dev"], labels["dev"])


def make_head(probe: LinearProbe, num_labels: int) -> dict[str, np.ndarray]:
    """The linear layer with the probe's predictions, float32.

    A label without training examples is never predicted.
    """
    scaler, regression = probe.model[0], probe.model[-1]
    weights, bias = regression.coef_, regression.intercept_
    if len(regression.classes_) == 2:  # the first label's logit is 0
        weights = np.concatenate([np.zeros_like(weights), weights])
        bias = np.concatenate([np.zeros_like(bias), bias])
    weights = weights / scaler.scale_
    kernel = np.zeros((weights.shape[1], num_labels), np.float32)
    shift = np.full(num_labels, -1e9, np.float32)
    kernel[:, regression.classes_] = weights.T
    shift[regression.classes_] = bias - weights @ scaler.mean_
    return {"kernel": kernel, "bias": shift}
