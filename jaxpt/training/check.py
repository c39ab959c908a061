"""Checks before a run trains or writes: its rows, initial state and metrics."""

import dataclasses
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import jax
import numpy as np

from jaxpt.by_name import load_place
from jaxpt.nn.attention import check_kernel
from jaxpt.runs.data import make_feed
from jaxpt.runs.initial_state import check_start
from jaxpt.runs.program import Program
from jaxpt.runs.task import Task
from jaxpt.text.dataset import Split
from jaxpt.text.feed import Feed
from jaxpt.text.rows.rows_spec import SEGMENTED
from jaxpt.text.tokens.tokenizer import Tokenizer
from jaxpt.training.measure import FROM_FEATURES, Measured, measure
from jaxpt.training.memory import check_memory


def check_run(
    task: Task,
    tokenizer: Tokenizer,
    corpora: dict[str, Split],
    program: Program | None = None,
    has_begun: bool = False,
    on_measures: Callable[[Program, set[str]], None] = lambda program, names: None,
) -> tuple[Program, Feed]:
    """The compiled functions and the rows of a run that can be trained and measured.

    Args:
      program: of an earlier run of the same task, whose seed may differ.
      has_begun: the run resumes from its own checkpoint.
      on_measures: receives the program and the names of the metrics that it will have.
    """
    specs = [task.spec, *(phase.spec for phase in task.phases)]
    check_kernel(
        task.model_spec,
        [length for spec in specs for length in spec.lengths.values()],
        is_packed=task.plan.rows.rows in SEGMENTED,
        reads_ahead=task.model.READS_AHEAD,
        num_spans=task.plan.train.context,
    )
    if trackers := task.plan.train.trackers:
        load_place("jaxpt.training.trackers:check_installed")(trackers)
    if tasks := task.plan.eval.tasks:
        load_place("jaxpt.training.task_scores:read_tasks")(tasks)
    program = program or Program(task)
    check_memory(program)
    feed = make_feed(task, corpora["train"], program.choose_rows)
    if not has_begun:
        check_start(task, tokenizer)
        task.spec.check_rows(feed[0], task.vocab)
    on_measures(program, check_measures(program, corpora))
    return program, feed


def check_measures(program: Program, corpora: dict[str, Split]) -> set[str]:
    """Traces `measure` with a batch of rows on shapes, without computing anything.

    Returns:
      the names of the metrics.
    """
    task, params = program.task, program.abstract_state().params
    spec = task.plan.eval
    few = dataclasses.replace(
        spec,
        num_rows=spec.batch_size,
        regret_documents=min(spec.regret_documents, 1),
        regret_bayes_documents=min(spec.regret_bayes_documents, 1),
    )
    stub: Any = SimpleNamespace(
        task=dataclasses.replace(task, plan=dataclasses.replace(task.plan, eval=few)),
        init_params=lambda seed: params,
        text_length=program.text_length,
        readers={name: _trace(reader) for name, reader in program.readers.items()},
    )
    # The untrained model's states have the same shapes.
    control = Measured(dict.fromkeys(FROM_FEATURES, 0.0), {}, {})
    seed = task.plan.train.seed
    return set(measure(stub, params, corpora, seed, control=control).metrics)


def _trace(function):
    """A function that returns ones of the shapes of a program's function."""

    def give_ones(*args):
        outputs = function.trace(*args)
        return jax.tree.map(lambda x: np.ones(x.shape, x.dtype), outputs)

    return give_ones
