"""The lines that a terminal shows of a `Fit`."""

from collections.abc import Iterable, Mapping

from jaxpt.training.fit.estimate import GIB, STEPS, Fit
from jaxpt.training.fit.program_text import Moved

MIB = 2**20
WIDTH = 26  # of the names
NAMED = 2  # products
# The part of a GPU's memory that JAX allocates, unless XLA_PYTHON_CLIENT_MEM_FRACTION
# is another one.
PREALLOCATED = 0.75


def format_fit(fit: Fit) -> list[str]:
    """A line for each thing; the last is the verdict."""
    lines = [
        f"{fit.objective}: {fit.num_parameters:,} parameters in {fit.dtype} on "
        f"{fit.num_devices} x {fit.device}, described",
        f"a step of {fit.num_rows:,} rows of {fit.row_length:,} tokens, vocabulary of "
        f"{fit.vocab_size:,}; on each device:",
    ]
    rows = _list_memory(fit) | (_list_counts(fit) if fit.moved else {})
    lines += [f"  {name:{WIDTH}}{value}" for name, value in rows.items()]
    return [*lines, format_verdict(fit)]


def _list_memory(fit: Fit) -> dict[str, str]:
    memory = fit.memory
    if not fit.moved:
        return {"attention": "; ".join(fit.attention)}
    parts = {
        "parameters": memory.parameters,
        "optimizer": memory.optimizer,
        "rows": memory.rows,
        "temporaries": memory.temporaries,
        "code": memory.code,
    }
    return {
        "attention": "; ".join(fit.attention),
        "compiled in": f"{fit.compile_seconds:.0f} s",
        "memory, GiB": f"{memory.peak / GIB:.3g}: {_join(parts, GIB, '.3g')}",
    }


def _list_counts(fit: Fit) -> dict[str, str]:
    share = fit.product_flops / fit.flops
    rows = {
        "FLOPs": f"{fit.flops:.4g} counted by jaxpt; {share:.1%} in matrix products of "
        f"the program",
        "float32 products": _list_products(fit),
        "fused kernels": _join(fit.kernels),
        "collectives": _join(fit.collectives),
    }
    if fit.collectives:
        rows["exchanged, MiB"] = _sum(fit.exchanged, MIB, ",.1f")
        rows["by part"] = _join(fit.exchanged_parts, MIB, ",.1f")
    rows["read and written, GiB"] = _sum(fit.moved, GIB, ".3g")
    rows["by part of the model"] = _join(fit.moved_parts, GIB, ".3g")
    if fit.cycles_ms:
        rows["ms by cycles"] = _sum(fit.cycles_ms, 1, ".1f")
    return rows


def _list_products(fit: Fit) -> str:
    """The products that are not computed in bfloat16, though the network is."""
    if fit.dtype == "float32":
        return "all"
    wide = fit.float32_products
    names = [f"{dtypes} -> {result} [{scope}]" for dtypes, result, scope in wide]
    more = [f"{len(wide) - NAMED} more"] if len(wide) > NAMED else []
    return "; ".join([*names[:NAMED], *more]) or "none"


def _sum(numbers: Mapping[str, float], unit: float, form: str) -> str:
    return f"{sum(numbers.values()) / unit:{form}}: {_join(numbers, unit, form)}"


def _join(numbers: Mapping[str, float], unit: float = 1, form: str = "g") -> str:
    """Names and numbers.

    >>> _join({"slices": 3 * GIB, "casts": GIB / 2, "none": 0}, GIB, ".3g")
    'slices 3, casts 0.5'
    """
    parts = (f"{name} {n / unit:{form}}" for name, n in numbers.items() if n)
    return ", ".join(parts) or "none"


def format_verdict(fit: Fit) -> str:
    """Whether the step fits, with the memory of a device in GiB.

    JAX allocates three quarters of a GPU when it starts. A step that needs more than
    that and less than the whole fits if the environment changes the share.
    """
    memory = fit.memory
    if memory.limit is None:
        return f"needs {memory.peak / GIB:.3g} GiB"
    sizes = f"{memory.peak / GIB:.3g} of {memory.limit / GIB:.4g} GiB"
    if not memory.fits:
        least = "" if fit.moved else "more than "
        return (
            f"does not fit: {least}{sizes}; train.num_microbatches above 1, "
            f"model.remat, train.fsdp or a smaller train.batch_size needs less"
        )
    is_gpu = "NVIDIA" in fit.device
    if is_gpu and memory.peak > PREALLOCATED * memory.limit:
        return f"fits with XLA_PYTHON_CLIENT_MEM_FRACTION=0.97: {sizes}"
    return f"fits: {sizes}"


def format_ops(ops: Iterable[Moved], num: int) -> list[str]:
    """The operations that read and write the most bytes in a step, one a line."""
    largest = sorted(ops, key=lambda op: -op.num_bytes)[:num]
    lines = [f"{'MiB':>10}  {'runs':>5}  class, part: what it reads -> writes [scope]"]
    return [*lines, *map(_format_op, largest)]


def _format_op(op: Moved) -> str:
    return (
        f"{op.num_bytes / STEPS / MIB:10,.1f}  {op.times / STEPS:5g}  {op.group}, "
        f"{op.part}: {op.reads} -> {op.writes} [{op.scope[-90:]}]"
    )
