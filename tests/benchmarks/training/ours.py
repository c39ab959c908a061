"""Our side: whole training steps of `jaxpt.runs.program.Program`, on random rows.

Started by `__main__`. Prints lines of JSON: the lengths of its inputs; after the first
steps, what it made; then the seconds for every number of steps that it reads.
"""

import json
import resource
import sys
import time

import jax
import numpy as np
from sizes import CASES, ELECTRA_SHARE

from jaxpt.config.plan import make_plan
from jaxpt.config.settings import default_config
from jaxpt.distributed.processes import set_up_jax
from jaxpt.nn.presets import get_preset
from jaxpt.runs.program import Program, device_peak
from jaxpt.runs.task import make_task
from jaxpt.text.tokens.vocab import Vocab


def make_config(case, dtype: str, dropout: float, steps_per_call: int):
    """The settings of a case: AdamW, clipping at 1, a constant learning rate."""
    config = default_config()
    spec = get_preset(case.preset, **case.changes)
    for name in config.model:
        if hasattr(spec, name):
            config.model[name] = getattr(spec, name)
    config.model.dtype = dtype
    for name in ("dropout", "embed_dropout", "attention_dropout"):
        config.model[name] = dropout
    config.objective = case.objective
    if case.objective == "span_corruption":
        config.data.seq_len = case.length
    else:
        config.data.row_length = case.length + (case.objective == "clm")
    if case.objective == "electra":
        config.electra.generator_size = ELECTRA_SHARE
    config.optim.schedule, config.optim.lr = "constant", 1e-4
    config.optim.weight_decay = 0.01
    config.train.batch_size = case.batch
    config.train.steps_per_call = steps_per_call
    config.train.checkpoint_every = 0
    for name, value in case.settings.items():
        section, field = name.split(".")
        config[section][field] = value
    return config


def make_vocab(size: int) -> Vocab:
    """Special ids first, sentinels last."""
    sentinels = tuple(range(size - 1, size - 101, -1))
    return Vocab(size, pad=0, eos=1, mask=2, cls=3, sep=4, sentinels=sentinels)


def main() -> None:
    """Argument: JSON with case, dtype, dropout, steps_per_call and settings."""
    set_up_jax()
    settings = json.loads(sys.argv[1])
    case = CASES[settings["case"]]
    case.settings.update(settings["settings"])
    per_call = settings["steps_per_call"]
    config = make_config(case, settings["dtype"], settings["dropout"], per_call)
    plan = make_plan(config)
    vocab = make_vocab(plan.model.vocab_size)
    task = make_task(plan, vocab)
    # Before it compiles, so that the peers may start beside it.
    print(json.dumps({"lengths": task.spec.lengths}), flush=True)
    program = Program(task)
    state = program.run_form(program.init_state(0))
    count = sum(x.size for x in jax.tree.leaves(program.abstract_state().params))
    length = task.spec.row_length
    shape = (per_call, case.batch, length)
    rows = {
        "tokens": np.random.default_rng(0)
        .integers(5, vocab.size - 100, shape)
        .astype(np.int32),
        "index": np.arange(per_call * case.batch).reshape(shape[:2]).astype(np.int32),
    }
    stack = program.place(rows)
    seconds = program.train_call.compile(state, stack)
    state, result = program.train_call(state, stack, 0)
    jax.block_until_ready(result)
    costs = task.count_costs(1)
    about = {
        "params": count,
        "row_length": length,
        "tokens": costs["raw_tokens"],
        "flops": task.count_network_flops(1),
        "peak": device_peak(),
        "compile_seconds": seconds,
        "device": jax.devices()[0].device_kind,
    }
    print(json.dumps(about), flush=True)
    for line in sys.stdin:
        num_calls = max(1, int(line) // per_call)
        start = time.perf_counter()
        for _ in range(num_calls):
            state, result = program.train_call(state, stack, 0)
        jax.block_until_ready(result)
        seconds = (time.perf_counter() - start) / (num_calls * per_call)
        stats = jax.devices()[0].memory_stats() or {}
        peak = stats.get("peak_bytes_in_use")
        peak = peak or resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024
        print(json.dumps({"seconds": seconds, "memory": peak}), flush=True)
    if settings["trace"]:
        with jax.profiler.trace(settings["trace"]):
            state, result = program.train_call(state, stack, 0)
            jax.block_until_ready(result)


if __name__ == "__main__":
    main()
