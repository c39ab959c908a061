"""Prints first-step gradients and 30 losses of one objective on 1 and on 8 devices.

Started by test_program, with XLA_FLAGS that make eight CPU devices. For each case also
the share of every parameter and Adam moment that a device holds, and what is exchanged.

    losses_by_devices.py TEXT OBJECTIVE [CASE ...]     by default, all cases

OBJECTIVE may be a name of tiny.VARIANTS, or end in "/" and a name of FORMS. With a form
of SPANS, rows have a length that divides over devices, and the meshes divide it.
"""

import dataclasses
import itertools
import json
import math
import re
import sys
import time

import jax
import jax.numpy as jnp
import numpy as np
import optax
from tiny import ROWS, VARIANTS, make_config, prepare

from jaxpt.config.plan import make_plan
from jaxpt.evaluation.likelihood import add_up
from jaxpt.ops import metrics
from jaxpt.runs.data import held_rows, make_feed
from jaxpt.runs.program import Program
from jaxpt.training.measure import total_loss


def remember(inner):
    """The optimizer, with the last gradient kept in its state."""

    def init(params):
        return inner.init(params), jax.tree.map(jnp.zeros_like, params)

    def update(grads, state, params):
        updates, inner_state = inner.update(grads, state[0], params)
        return updates, (inner_state, grads)

    return optax.GradientTransformation(init, update)


CASES = {
    "one": (1, {}),
    "data 8": (8, {}),
    "fsdp 8": (8, {"train__fsdp": 8}),
    "tensor 2, fsdp 4": (8, {"train__tensor": 2, "train__fsdp": 4}),
    "pmap 8": (8, {"train__backend": "pmap"}),
}
MEASURED = (
    "one",
    "tensor 2, fsdp 4",
    "pmap 8",
    "data 2, context 4",
    "data 4, context 2",
)
MICROBATCHES = {"microbatches": (4, {"train__fsdp": 2, "train__num_microbatches": 4})}
# Of 30 steps, 10 read half of the rows, and 20 read rows that are cut in two.
SCHEDULES = {
    "train__steps": 30,
    "train__batch_schedule": ((1 / 3, 0.5),),
    "train__length_schedule": ((2 / 3, 2),),
}
COMPLETEP = {
    "model__parametrization": "completep",
    "model__base_width": 16,
    "model__base_depth": 1,
}
# Learned positions and packed documents; rotary ones and grouped heads in the other.
SPANS = {
    "context": {"data__documents": "paragraph", "data__rows": "packed"},
    "context_full": {"model__positions": "rotary", "model__num_kv_heads": 2},
    "context_relative": {"model__positions": "relative", "model__dropout": 0.1},
    "context_disentangled": {"model__disentangled": "both", "model__positions": "none"},
}
SPAN_CASES = {
    "fsdp 2, context 2, tensor 2": (
        8,
        {"train__fsdp": 2, "train__context": 2, "train__tensor": 2},
    ),
}
FORMS = {"schedules": SCHEDULES, "completep": COMPLETEP, **SPANS}
SMALL = {
    "bilm": {"bilm__num_chars": 6, "bilm__filters": (8, 8)},
    "adaptive_mlm": {"adaptive_mlm__update_every": 10},
    "bert": ROWS["bert"] | {"data__valid_fraction": 0.3},  # with documents of sentences
}


def find_row_length(path, objective, changes):
    """The smallest row whose stacks read a multiple of 4 tokens, or of 2.

    None of T5's packed rows has two stacks of a multiple of 4.
    """
    for context, length in itertools.product((4, 2), range(24, 64)):
        lengths = {**changes, "model__max_len": 96, "data__row_length": length}
        config = make_config(path, objective, **lengths)
        if not any(n % context for n in make_plan(config).spec.lengths.values()):
            return lengths, context
    raise ValueError(f"{objective} has no such length")


def run(path, objective, num_devices, changes, start, size=0):
    """The first step's gradient (flat) and its norm, 30 losses, and what is where.

    With a `size`, what 13 rows at the start sum up to, measured in batches of so many.

    Also the state from which it started, if none is given: compiling it takes time.
    """
    config = make_config(
        path,
        objective,
        model__num_heads=4,
        train__batch_size=16,
        train__steps_per_call=1,
        **SMALL.get(objective, {}),
        **changes,
    )
    task, _, corpora = prepare(config)
    task = dataclasses.replace(task, optimizer=remember(task.optimizer))
    feed = make_feed(task, corpora["train"])
    program = Program(task, jax.devices()[:num_devices])
    start = start or jax.device_get(program.init_state(3))
    places = jax.tree.map(lambda x: x.sharding, program.abstract_state())
    start_state = jax.device_put(start, places)
    rows = held_rows(task, corpora["valid"], 13)
    measured = size and add_up(
        program.readers["eval_step"], start_state.params, rows, size
    )
    state = program.run_form(start_state)
    losses, norms = [], []
    for step in range(30):
        stack = program.place(feed.stack(step, 1))
        state, sums = program.train_call(state, stack, 3)
        first = {k: (a[0], b[0]) for k, (a, b) in sums.items()}
        losses.append(total_loss(program, first))
        norms.append(metrics.divide(first)["grad_norm"])
        if step == 0:
            leaves = jax.tree.leaves(program.save_form(state).opt_state[1])
            grads = np.concatenate([np.asarray(leaf).ravel() for leaf in leaves])
    adam = optax.tree_utils.tree_get(state.opt_state, "ScaleByAdamState")
    result = {
        "grads": grads.tolist(),
        "losses": losses,
        "norm": norms[0],
        "measured": jax.tree.map(float, measured),
        "shares": [find_shares(tree) for tree in (state.params, adam.mu, adam.nu)],
        "largest": max(x.size for x in jax.tree.leaves(start.params)),
        "moved": find_moved(program.train_call[stack].as_text()),
        "collectives": program.train_call.collectives(stack),
    }
    return result, start


def find_moved(compiled):
    """The most numbers in any array that devices exchange."""
    pattern = r"= (.*?) (?:all-gather|all-reduce|reduce-scatter|all-to-all)\("
    shapes = re.findall(r"\w\[([\d,]*)\]", " ".join(re.findall(pattern, compiled)))
    return max((math.prod(map(int, s.split(","))) for s in shapes if s), default=0)


def find_shares(tree):
    """The part of each array that a device holds, by path."""
    return {
        jax.tree_util.keystr(path, simple=True, separator="/"): (
            x.addressable_shards[0].data.size / x.size
        )
        for path, x in jax.tree_util.tree_leaves_with_path(tree)
    }


if __name__ == "__main__":
    path, objective, *names = sys.argv[1:]
    results, cases = {}, CASES | (MICROBATCHES if objective == "mlm" else {})
    objective, _, form = objective.partition("/")
    objective, fields = VARIANTS.get(objective, (objective, {}))
    more = {f"{objective}__{field}": value for field, value in fields.items()}
    more |= FORMS.get(form, {})
    if form in SPANS:
        more, context = find_row_length(path, objective, more)
        cases = {
            "one": CASES["one"],
            f"data {8 // context}, context {context}": (8, {"train__context": context}),
            **SPAN_CASES,
        }
    cases = {name: (num, changes | more) for name, (num, changes) in cases.items()}
    cases = {name: cases[name] for name in names or cases}
    first = None
    for name, case in cases.items():
        begin = time.process_time()
        size = (13 if name == "one" else 8) if name in MEASURED else 0
        results[name], first = run(path, objective, *case, first, size)
        print(f"{name}: {time.process_time() - begin:.1f} s of the processor")
    print(json.dumps(results))
