"""Counts of a compiled program, read from XLA's text of it.

Each operation counts as often as it runs in a call: loops are multiplied out.
"""

import dataclasses
import math
import re
from collections import Counter
from typing import NamedTuple

COLLECTIVES = (
    "all-reduce",
    "all-gather",
    "reduce-scatter",
    "all-to-all",
    "collective-permute",
)
BYTES = {
    "pred": 1,
    "s8": 1,
    "u8": 1,
    "bf16": 2,
    "f16": 2,
    "s16": 2,
    "u16": 2,
    "f32": 4,
    "s32": 4,
    "u32": 4,
    "s64": 8,
    "u64": 8,
    "f64": 8,
}
# Operations that only name, and those whose own computations are counted instead.
NAMING = (
    "parameter",
    "constant",
    "tuple",
    "get-tuple-element",
    "bitcast",
    "after-all",
    "partition-id",
    "iota",
)
CALLING = ("while", "call", "conditional")
# Parts of our program by the names of its scopes; the first that matches applies.
PARTS = (
    ("loss", r"score|/loss|chunked"),
    ("optimizer", r"optimizer|average_params"),
    ("norms", r"norm"),
    ("attention", r"attention|cross|attend|splash"),
    ("mlp", r"mlp"),
    ("loop over layers", r"(encoder|decoder)/while"),
    ("head", r"head"),
    ("embedding", r"embed|table|_take"),
    ("corruption", r"corrupt|random|threefry|shuffle"),
)
# Operations inside a fusion that compute nothing: they convert, move or name.
MOVING = (
    *(*NAMING, "convert", "copy", "transpose", "reshape", "broadcast", "slice"),
    *("dynamic-slice", "dynamic-update-slice", "concatenate", "pad"),
)
# What a TPU's compiler calls but does not compute with.
NO_KERNELS = ("AllocateBuffer", "ConcatBitcast")
ATTENTION = re.compile("fmha|splash|flash", re.I)
PRODUCTS = ("dot", "convolution")


class Op(NamedTuple):
    """An operation: its name, the type of its result, its kind, and what follows."""

    name: str
    shape: str
    kind: str
    rest: str
    line: str

    @property
    def operands(self) -> list[str]:
        """Names of the arrays that it reads."""
        inner = _until_closed(self.rest)
        return re.findall(r"%([\w.\-]+)", inner)

    @property
    def scope(self) -> str:
        """Where in the traced program it comes from."""
        match = re.search(r'op_name="([^"]*)"', self.line)
        return match[1] if match else ""


def num_bytes(shape: str) -> int:
    """Bytes of all arrays in a type.

    >>> num_bytes("(f32[2,3]{1,0}, s32[])")
    28
    """
    matches = re.findall(r"(\w+)\[([\d,]*)\]", shape)
    return sum(BYTES.get(dtype, 0) * num_elements(dims) for dtype, dims in matches)


def num_elements(dims: str) -> int:
    """The number of elements of an array with dimensions "2,3"."""
    return math.prod(int(n) for n in dims.split(",") if n)


def read(text: str) -> tuple[dict[str, list[Op]], str]:
    """The computations of a program by name, and the name of the first to run."""
    # A TPU kernel's metadata spans several lines.
    text = re.sub(r"kernel_metadata=\{\n.*?\n\}\}", "kernel_metadata={}}", text)
    computations: dict[str, list[Op]] = {}
    ops, entry = None, ""
    for line in text.splitlines():
        if head := re.match(r"(ENTRY )?%([\w.\-]+) \(.*\{$", line):
            ops = computations.setdefault(head[2], [])
            entry = head[2] if head[1] else entry
        elif line == "}":
            ops = None
        elif ops is None:
            continue
        elif result := re.match(r"\s*(?:ROOT )?%([\w.\-]+) = (.*)", line):
            shape, rest = _split_type(result[2])
            if kind := re.match(r"\s*([\w\-]+)\((.*)", rest):
                ops.append(Op(result[1], shape, kind[1], kind[2], line))
    return computations, entry


def _split_type(text: str) -> tuple[str, str]:
    depth = 0
    for i, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 0 and letter == (")" if text[0] == "(" else " "):
            return text[: i + 1], text[i + 1 :]
    return text, ""


def _until_closed(text: str) -> str:
    depth = 1
    for i, letter in enumerate(text):
        depth += (letter == "(") - (letter == ")")
        if depth == 0:
            return text[:i]
    return text


def count_runs(computations: dict, entry: str) -> tuple[dict, dict]:
    """How often each computation runs in a call.

    Returns:
      for those that run by themselves (entry, loop bodies), and for all.
    """
    outer: dict[str, int] = Counter()
    every: dict[str, int] = Counter()

    def visit(name: str, times: int, is_outer: bool):
        every[name] += times
        if is_outer:
            outer[name] += times
        for op in computations.get(name, []):
            called = dict(re.findall(r"(\w+)=%([\w.\-]+)", op.rest))
            if op.kind == "while":
                trips = _count_trips(op, computations[called["condition"]])
                visit(called["body"], times * trips, is_outer)
            elif "calls" in called:
                visit(called["calls"], times, False)
            elif op.kind == "call" and "to_apply" in called:
                # On CPU also what threads share: a fusion by another name.
                visit(called["to_apply"], times, is_outer)

    visit(entry, 1, True)
    return outer, every


def _count_trips(loop: Op, condition: list[Op]) -> int:
    """Of a counted loop: as XLA says, else the greatest constant of its condition."""
    if output := re.search(r'known_trip_count":\{"n":"(\d+)"', loop.line):
        return int(output[1])
    results = [
        re.match(r"(\d+)\)", op.rest) for op in condition if op.kind == "constant"
    ]
    return max([int(n[1]) for n in results if n], default=1)


def product_flops(op: Op, shapes: dict[str, str]) -> float:
    """2 b m n k from the sizes b m k, b k n and b m n of a product.

    On TPU a product is a convolution, in whose window batch axes are dilated.
    """
    names = op.operands[:2]
    sizes = [
        num_elements(_read_dims(shape))
        for shape in (*(shapes.get(name, "[]") for name in names), op.shape)
    ]
    batch = 1
    window = re.search(r"window=\{size=([\dx]+)(.*?)\}", op.line)
    dilate = re.search(r"lhs_dilate=([\dx]+)", window[2] if window else "")
    if window and dilate:
        pairs = zip(window[1].split("x"), dilate[1].split("x"), strict=True)
        batch = math.prod(int(n) for n, d in pairs if int(d) > 1)
    elif axes := re.search(r"lhs_batch_dims=\{([\d,]+)\}", op.line):
        dims = _read_dims(shapes.get(names[0], "[]")).split(",")
        batch = math.prod(int(dims[int(i)]) for i in axes[1].split(","))
    return 2 * math.sqrt(math.prod(sizes) / batch)


def _read_dims(shape: str) -> str:
    """The dimensions of the first array in a type: "2,3" of "f32[2,3]{1,0}"."""
    match = re.search(r"\[([\d,]*)\]", shape)
    return match[1] if match else ""


def part_of(scope: str) -> str:
    """The part of our program that a scope's operations belong to."""
    return next((name for name, words in PARTS if re.search(words, scope)), "rest")


def moved_bytes(op: Op, shapes: dict[str, str], computations: dict) -> int:
    """Bytes that an operation reads and writes, as if nothing stayed in a cache.

    A fusion that reads or writes a slice of an array in a loop moves the slice alone.
    """
    called = re.search(r"(?:calls|to_apply)=%([\w.\-]+)", op.rest)
    inner = computations.get(called[1], []) if called else []
    if op.kind == "dynamic-update-slice":
        return 2 * num_bytes(shapes.get(op.operands[1], ""))
    if op.kind in ("dynamic-slice", "gather"):
        return 2 * num_bytes(op.shape)
    inside = {each.name: each for each in inner}
    read = 0
    for i, name in enumerate(op.operands):
        whole = num_bytes(shapes.get(name, ""))
        own = next(
            (o for o in inner if o.kind == "parameter" and o.rest.startswith(f"{i})")),
            None,
        )
        read += _read_of(own, inner, whole) if own else whole
    written = num_bytes(op.shape)
    root = next((o for o in inner if o.line.lstrip().startswith("ROOT")), None)
    while root is not None and root.kind == "bitcast":
        root = inside.get(root.operands[0])
    if root is not None and root.kind == "dynamic-update-slice":
        written = num_bytes(inside[root.operands[1]].shape)
    return read + written


def _read_of(parameter: Op, ops: list[Op], whole: int) -> int:
    """What a fusion reads of an array: slices, where nothing else reads it."""
    aliases, sliced = {parameter.name}, 0
    for op in ops:
        if not aliases & set(op.operands):
            continue
        if op.kind == "bitcast":
            aliases.add(op.name)
        elif op.kind in ("dynamic-slice", "gather", "slice"):
            sliced += num_bytes(op.shape)
        elif op.kind == "dynamic-update-slice" and op.operands[0] in aliases:
            continue  # written in place
        else:
            return whole
    return min(sliced, whole)


def class_of(op: Op, computations: dict) -> str:
    """The class of an operation, by the operations inside it."""
    called = re.search(r"(?:calls|to_apply)=%([\w.\-]+)", op.rest)
    inner = computations.get(called[1], []) if called and op.kind == "fusion" else []
    # Numbers that only say where a slice begins compute nothing.
    kinds = {each.kind for each in inner if re.search(r"\[\d", each.shape)}
    kinds = kinds or {op.kind}
    if op.kind.removesuffix("-start") in COLLECTIVES:
        return "collectives"
    if op.kind == "custom-call" and ATTENTION.search(_name_kernel(op)):
        return "attention kernels"
    if kinds & set(PRODUCTS) or (op.kind == "custom-call" and "gemm" in op.line):
        return "products"
    if kinds & {"reduce", "reduce-window"}:
        return "reductions"
    if kinds & {"gather", "scatter"}:
        return "gathers"
    if kinds - set(MOVING):
        return "element-wise"
    if kinds & {"dynamic-slice", "dynamic-update-slice"}:
        return "slices"
    return "casts" if "convert" in kinds else "copies"


def _name_kernel(op: Op) -> str:
    """The name of a fused kernel of our program or of a library."""
    match = re.search(r'custom_call_target="([^"]*)"', op.line)
    name = match[1] if match else op.name
    return re.sub(r"[.\d]+$", "", op.name) if name == "tpu_custom_call" else name


class Moved(NamedTuple):
    """What an operation moves in a call.

    Attributes:
      num_bytes: read and written, all times together.
      cycles: as a TPU's compiler estimates, else 0.
      times: how often it runs.
      group: its class, as of `class_of`.
      part: of our program.
      name: in the compiled program.
      reads, writes: types of arrays.
      scope: where it comes from in the traced program.
    """

    num_bytes: int
    cycles: int
    times: int
    group: str
    part: str
    name: str
    reads: str
    writes: str
    scope: str


@dataclasses.dataclass(frozen=True)
class ProgramCounts:
    """Counts over a call of a program.

    Attributes:
      kernels, collectives: numbers by name.
      exchanged, exchanged_parts: bytes that a device gives or gets, whichever is more,
        by collective and by part.
      products: (FLOPs, dtypes, type of the result, scope) of each matrix product.
      ops: all operations that move bytes.
    """

    kernels: Counter = dataclasses.field(default_factory=Counter)
    collectives: Counter = dataclasses.field(default_factory=Counter)
    exchanged: Counter = dataclasses.field(default_factory=Counter)
    exchanged_parts: Counter = dataclasses.field(default_factory=Counter)
    products: list[tuple[float, str, str, str]] = dataclasses.field(
        default_factory=list
    )
    ops: list[Moved] = dataclasses.field(default_factory=list)

    def sum_bytes(self, name: str) -> Counter:
        """Bytes read and written, by an attribute of `Moved`."""
        sums: Counter = Counter()
        for op in self.ops:
            sums[getattr(op, name)] += op.num_bytes
        return sums

    def sum_cycles(self) -> Counter:
        """Estimated cycles by part; empty unless the program is a TPU's."""
        sums: Counter = Counter()
        for op in self.ops:
            sums[op.part] += op.cycles
        return +sums


def count(text: str) -> ProgramCounts:
    """The counts of a program from its text."""
    computations, entry = read(text)
    outer, every = count_runs(computations, entry)
    counts = ProgramCounts()
    for name, times in every.items():
        ops = computations[name]
        shapes = {op.name: op.shape for op in ops}
        for op in ops:
            if op.kind in PRODUCTS:
                dtypes = "x".join(
                    shapes.get(n, "?").split("[")[0] for n in op.operands[:2]
                )
                flops = product_flops(op, shapes) * times
                counts.products.append((flops, dtypes, shorten(op.shape), op.scope))
            _count_collective(op, times, shapes, counts)
            if name in outer and op.kind not in (*NAMING, *CALLING):
                _count_op(op, times, shapes, computations, counts)
    return counts


def shorten(shape: str) -> str:
    """A type without layouts.

    >>> shorten("(f32[8,4]{1,0}, s32[]{:T(8)})")
    '(f32[8,4], s32[])'
    """
    return re.sub(r"\{[^}]*\}", "", shape).strip()


def _count_collective(op: Op, times: int, shapes: dict, counts: ProgramCounts) -> None:
    kind = op.kind.removesuffix("-start")
    if kind not in COLLECTIVES:
        return
    bytes_in = sum(num_bytes(shapes.get(name, "")) for name in op.operands)
    made = num_bytes(op.shape)
    if op.kind.endswith("-start") and kind != "all-reduce":
        made -= bytes_in  # the type is of both
    match = re.search(r"(\w+)\[", op.shape)
    counts.collectives[f"{kind} {match[1] if match else '?'}"] += times
    counts.exchanged[kind] += times * max(bytes_in, made)
    counts.exchanged_parts[part_of(op.scope)] += times * max(bytes_in, made)


def _count_op(
    op: Op, times: int, shapes: dict, computations: dict, counts: ProgramCounts
) -> None:
    if op.kind == "custom-call" and _name_kernel(op) not in NO_KERNELS:
        counts.kernels[_name_kernel(op)] += times
    if op.kind.endswith("-done"):
        return
    match = re.search(r'"estimated_cycles":"(\d+)"', op.line)
    reads = ", ".join(shorten(shapes.get(name, "?")) for name in op.operands)
    moved = Moved(
        num_bytes=times * moved_bytes(op, shapes, computations),
        cycles=times * int(match[1]) if match else 0,
        times=times,
        group=class_of(op, computations),
        part=part_of(op.scope),
        name=op.name,
        reads=reads,
        writes=shorten(op.shape),
        scope=op.scope,
    )
    counts.ops.append(moved)
