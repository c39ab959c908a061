"""The step of a run on described devices: memory, kernels, exchange, bytes, FLOPs."""

import collections
import dataclasses
import re
import time
from collections.abc import Collection
from typing import Any

import jax
import numpy as np

from jaxpt.config.plan import Plan, make_plan
from jaxpt.errors import ConfigError, DeviceError, argument
from jaxpt.runs import sharding
from jaxpt.runs.data import with_token_counts
from jaxpt.runs.program import Program
from jaxpt.runs.progress_bars import make_reporter
from jaxpt.runs.task import Task, make_task
from jaxpt.text.dataset import load_text
from jaxpt.text.rows.rows_spec import PAIRS
from jaxpt.text.tokens.vocab import SPECIALS, Vocab
from jaxpt.training.fit.program_text import Moved, ProgramCounts, count
from jaxpt.training.fit.target import DeviceTarget, in_place, make_devices

STEPS = 2  # in the call that is compiled; counts are divided by it
GIB = 2**30
# Of the FLOPs of all products, a float32 product that is listed has at least this part.
MIN_SHARE = 1e-3
# What XLA's compiler for TPUs says of a program that is larger than the device; the
# second message counts temporaries alone.
SIZES = r"([\d.]+)([KMGT])"
TOO_LARGE = re.compile(
    rf"Used {SIZES} of {SIZES} hbm"
    rf"|temporaries \({SIZES}\) exceeds available HBM \({SIZES}\)"
)
SUBWORDS = ("bpe", "wordpiece", "unigram")
UNITS = {"K": 2**10, "M": 2**20, "G": 2**30, "T": 2**40}


@dataclasses.dataclass(frozen=True)
class Memory:
    """Bytes on each device.

    Attributes:
      parameters, optimizer: the state; the second is all that is not parameters.
      rows: of a call, and its other arguments.
      temporaries: activations, gradients and all else that XLA allocates for a call.
      code: the program.
      peak: all together.
      limit: what a program may use; None if unknown.
    """

    parameters: int
    optimizer: int
    rows: int
    temporaries: int
    code: int
    peak: int
    limit: float | None

    @property
    def fits(self) -> bool | None:
        """Whether a device has so much; None if unknown."""
        return None if self.limit is None else self.peak <= self.limit


@dataclasses.dataclass(frozen=True)
class Fit:
    """A step of training on each device of a target.

    Attributes:
      target: as the user wrote it.
      device, num_devices: what it means.
      objective, dtype, num_parameters: of the run.
      vocab_size: the ids of the network.
      num_rows, row_length: of the largest batch, over all devices.
      attention: kernels, with the reason if one is not the platform's fused kernel.
      compile_seconds: on this machine.
      memory: on each device; if the compiler refuses a program that is too large, only
        `limit` and a lower bound of `peak` are known, the others are 0, and the counts
        below are empty.
      donated: bytes of the state whose memory the next state reuses.
      flops: of the step by jaxpt's count, on each device.
      product_flops: of the matrix products in the program; fused kernels have the rest.
      float32_products: dtypes, result and scope of those that are not small.
      kernels, collectives: numbers by name.
      exchanged, exchanged_parts: bytes that a device gives or gets, by collective and
        by part of the program.
      moved, moved_parts: bytes that kernels read and write, by class and by part.
      cycles_ms: milliseconds by part, as a TPU's compiler estimates cycles.
    """

    target: str
    device: str
    num_devices: int
    objective: str
    dtype: str
    num_parameters: int
    vocab_size: int
    num_rows: int
    row_length: int
    attention: list[str]
    compile_seconds: float
    memory: Memory
    donated: int = 0
    flops: float = 0.0
    product_flops: float = 0.0
    float32_products: list[tuple[str, str, str]] = dataclasses.field(
        default_factory=list
    )
    kernels: dict[str, float] = dataclasses.field(default_factory=dict)
    collectives: dict[str, float] = dataclasses.field(default_factory=dict)
    exchanged: dict[str, float] = dataclasses.field(default_factory=dict)
    exchanged_parts: dict[str, float] = dataclasses.field(default_factory=dict)
    moved: dict[str, float] = dataclasses.field(default_factory=dict)
    moved_parts: dict[str, float] = dataclasses.field(default_factory=dict)
    cycles_ms: dict[str, float] = dataclasses.field(default_factory=dict)

    def to_json(self) -> dict[str, Any]:
        """Everything by name, with "fits"."""
        return dataclasses.asdict(self) | {"fits": self.memory.fits}


@dataclasses.dataclass(frozen=True)
class Estimate:
    """A `Fit`, and what it was counted from.

    Attributes:
      ops: what moves bytes, in a call of STEPS steps.
      text: of the compiled program.
    """

    fit: Fit
    ops: list[Moved]
    text: str


def estimate(config, explicit_names: Collection[str], target: DeviceTarget) -> Estimate:
    """Compiles the step of a run for a target, and counts what is in it.

    No text is read if the config has the size of the vocabulary (`find_vocab_size`).
    Otherwise it is prepared as by `jaxpt prepare`.

    Args:
      config, explicit_names: as of `jaxpt.training.train_run.train_run`.

    Raises:
      ConfigError: a setting is wrong.
      DeviceError: the target's compiler is not installed.
    """
    plan = make_plan(config, explicit_names, is_run=True)
    if plan.lacks_teacher:
        raise ConfigError(
            f"objective={plan.objective_name}: trains a teacher first; name one "
            f"({plan.spec.SECTION}.teacher=RUN)"
        )
    if plan.train.backend != "jit":
        raise ConfigError(
            f"train.backend={plan.train.backend}: must be jit for described devices"
        )
    devices = make_devices(target)
    vocab = read_vocab(plan)
    with in_place(target, devices):
        task = find_largest(make_task(plan, vocab))
        program = Program(task, devices)
        rows = make_rows(task.plan)
        start = time.perf_counter()
        try:
            program.train_call.compile(program.abstract_state(), rows)
        except jax.errors.JaxRuntimeError as error:
            memory = read_refusal(str(error))
            seconds = time.perf_counter() - start
            return Estimate(_make_fit(program, target, seconds, memory), [], "")
        seconds = time.perf_counter() - start
        compiled = program.train_call[rows]
        text, analysis = compiled.as_text(), compiled.memory_analysis()
        memory = measure(program, analysis, target.chip.gib)
        fit = _make_fit(program, target, seconds, memory)
    counts = count(text)
    flops = task.count_costs(STEPS)["flops"] / STEPS / len(devices)
    fit = dataclasses.replace(
        fit,
        donated=analysis.alias_size_in_bytes,
        flops=flops,
        **summarise(counts, target.chip.clock),
    )
    return Estimate(fit, counts.ops, text)


def find_vocab_size(plan: Plan) -> int:
    """The number of ids that a config determines; 0 if the text does.

    A tokenizer of subwords has `tokenizer.vocab_size` ids, or fewer if it is trained on
    little text.
    """
    tokenizer = plan.text.tokenizer
    return plan.model.vocab_size or tokenizer.vocab_size * (tokenizer.kind in SUBWORDS)


def read_vocab(plan: Plan) -> Vocab:
    """The vocabulary of the text, or one of the size that the config determines."""
    size = find_vocab_size(plan)
    if not size:
        tokenizer, corpora = load_text(plan.text, reporter=make_reporter())
        return with_token_counts(plan, tokenizer.vocab, corpora["train"])
    num_sentinels = plan.spec.needs.num_sentinels
    if size <= len(SPECIALS) + num_sentinels:
        raise ConfigError(
            f"vocabulary of {size} ids: must have more than the "
            f"{len(SPECIALS) + num_sentinels} special tokens (model.vocab_size, "
            f"tokenizer.vocab_size)"
        )
    return make_vocab(size, num_sentinels)


def make_vocab(size: int, num_sentinels: int) -> Vocab:
    """A vocabulary with every special token, in which each id is a word.

    >>> vocab = make_vocab(20, 2)
    >>> vocab.pad, vocab.s2s, vocab.sentinels, len(vocab.word_starts)
    (0, 9, (19, 18), 20)
    """
    sentinels = tuple(range(size - 1, size - 1 - num_sentinels, -1))
    specials: dict[str, Any] = {name: id_ for id_, name in enumerate(SPECIALS)}
    pieces = tuple(f" {id_}".encode() for id_ in range(size))
    return Vocab(
        size,
        **specials,
        sentinels=sentinels,
        word_starts=(True,) * size,
        pieces=pieces,
        counts=(1,) * size,
    )


def find_largest(task: Task) -> Task:
    """The task of the phase (`train.batch_schedule`) with the largest batch."""
    return max(
        task.phases,
        key=lambda each: each.plan.train.batch_size * each.spec.row_length,
    )


def make_rows(plan: Plan) -> dict[str, jax.ShapeDtypeStruct]:
    """The shapes of the rows of a call, as `Feed.stack` has them."""
    shape = STEPS, plan.train.batch_size, plan.spec.row_length
    of_rows = {"index", *PAIRS.values()}
    return {
        key: jax.ShapeDtypeStruct(shape[:2] if key in of_rows else shape, np.int32)
        for key in (*plan.rows.keys, "index")
    }


def measure(program: Program, analysis: Any, gib: float | None) -> Memory:
    """The memory of a compiled call on each device, by XLA's plan.

    Args:
      analysis: `memory_analysis()` of the compiled call.
      gib: what a device has.
    """
    state = program.abstract_state()
    parameters, _ = sharding.count_bytes(state.params)
    whole, _ = sharding.count_bytes(state)
    arguments = analysis.argument_size_in_bytes
    own = analysis.output_size_in_bytes - analysis.alias_size_in_bytes
    code = analysis.generated_code_size_in_bytes
    return Memory(
        parameters=parameters,
        optimizer=whole - parameters,
        rows=arguments - analysis.alias_size_in_bytes,
        temporaries=analysis.temp_size_in_bytes,
        code=code,
        peak=arguments + own + analysis.temp_size_in_bytes + code,
        limit=None if gib is None else gib * GIB,
    )


def read_refusal(message: str) -> Memory:
    """The memory that a program needs, from the message of a compiler that refused it.

    Raises:
      DeviceError: the message is of something else.

    >>> memory = read_refusal("RESOURCE_EXHAUSTED: Used 20.5G of 15.75G hbm. Exceeded")
    >>> memory.peak / GIB, memory.fits
    (20.5, False)
    """
    match = TOO_LARGE.search(message)
    if match is None:
        reason = " ".join(message.split())[:300]
        raise DeviceError(f"{argument('target')}: XLA refused the program: {reason}")
    parts = [part for part in match.groups() if part]
    used, limit = (float(parts[i]) * UNITS[parts[i + 1]] for i in (0, 2))
    return Memory(0, 0, 0, 0, 0, int(used), limit)


def _make_fit(
    program: Program, target: DeviceTarget, seconds: float, memory: Memory
) -> Fit:
    """What is known of a step without its program's text."""
    task, params = program.task, jax.tree.leaves(program.abstract_state().params)
    return Fit(
        target=target.name,
        device=target.chip.name,
        num_devices=len(program.devices),
        objective=task.plan.objective_name,
        dtype=task.model_spec.dtype,
        num_parameters=sum(x.size for x in params),
        vocab_size=task.model_spec.vocab_size,
        num_rows=task.plan.train.batch_size,
        row_length=task.spec.row_length,
        attention=task.list_kernels(),
        compile_seconds=seconds,
        memory=memory,
    )


def summarise(counts: ProgramCounts, clock: float | None) -> dict[str, Any]:
    """The counts of a step as fields of `Fit`."""

    def per_step(counter: collections.Counter) -> dict[str, float]:
        return {name: num / STEPS for name, num in counter.most_common() if num}

    total = sum(product[0] for product in counts.products)
    wide = {
        (dtypes, result, scope[-60:])
        for flops, dtypes, result, scope in counts.products
        if "f32" in dtypes and flops > MIN_SHARE * total
    }
    cycles = per_step(counts.sum_cycles()) if clock else {}
    return {
        "product_flops": total / STEPS,
        "float32_products": sorted(wide),
        "kernels": per_step(counts.kernels),
        "collectives": per_step(counts.collectives),
        "exchanged": per_step(counts.exchanged),
        "exchanged_parts": per_step(counts.exchanged_parts),
        "moved": per_step(counts.sum_bytes("group")),
        "moved_parts": per_step(counts.sum_bytes("part")),
        "cycles_ms": {name: num / clock * 1e3 for name, num in cycles.items()}
        if clock
        else {},
    }
