"""What stands in a compiled program, read from XLA's text of it.

Each operation counts as often as it runs in a call: loops are multiplied out.
"""

import collections
import math
import re
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
# Parts of our program by the names of its scopes; the first that fits holds.
PARTS = (
    ("loss", r"score|/loss|chunked"),
    ("optimizer", r"optax|apply_updates|/update|adam"),
    ("attention", r"attention|cross|attend|splash"),
    ("mlp", r"mlp"),
    ("norm", r"norm"),
    ("head", r"head"),
    ("embedding", r"embed|table|_take"),
    ("corruption", r"corrupt|random|threefry|shuffle"),
)


class Op(NamedTuple):
    """An operation: its name, the type of its result, its kind, and what follows."""

    name: str
    shape: str
    kind: str
    rest: str
    line: str

    @property
    def operands(self) -> list[str]:
        """Names of what it reads."""
        inner = _until_closed(self.rest)
        return re.findall(r"%([\w.\-]+)", inner)

    @property
    def scope(self) -> str:
        """Where in the traced program it comes from."""
        match = re.search(r'op_name="([^"]*)"', self.line)
        return match[1] if match else ""


def num_bytes(shape: str) -> int:
    """Of all arrays in a type.

    >>> num_bytes("(f32[2,3]{1,0}, s32[])")
    28
    """
    matches = re.findall(r"(\w+)\[([\d,]*)\]", shape)
    return sum(BYTES.get(dtype, 0) * num_elements(dims) for dtype, dims in matches)


def num_elements(dims: str) -> int:
    """The product of "2,3"."""
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
    outer: dict[str, int] = collections.Counter()
    every: dict[str, int] = collections.Counter()

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
        num_elements(re.search(r"\[([\d,]*)\]", shape)[1])
        for shape in (*(shapes.get(name, "[]") for name in names), op.shape)
    ]
    batch = 1
    window = re.search(r"window=\{size=([\dx]+)(.*?)\}", op.line)
    dilate = window and re.search(r"lhs_dilate=([\dx]+)", window[2])
    if dilate:
        pairs = zip(window[1].split("x"), dilate[1].split("x"), strict=True)
        batch = math.prod(int(n) for n, d in pairs if int(d) > 1)
    elif axes := re.search(r"lhs_batch_dims=\{([\d,]+)\}", op.line):
        dims = re.search(r"\[([\d,]*)\]", shapes.get(names[0], "[]"))[1].split(",")
        batch = math.prod(int(dims[int(i)]) for i in axes[1].split(","))
    return 2 * math.sqrt(math.prod(sizes) / batch)


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


def analyse(text: str) -> dict:
    """Counts over a call of the program.

    Returns:
      "kernels", "collectives": how many by kind; "collective_bytes" what a
      device gives or gets, whichever is more, and "collective_parts" the same by part;
      "products": (FLOPs, dtypes, result,
      scope); "moved": bytes that kernels read and write, by part; "cycles" by part,
      where the compiler estimates them;
      "ops": (bytes, cycles, times, kind, name, shape, scope) of each.
    """
    computations, entry = read(text)
    outer, every = count_runs(computations, entry)
    counters = ["kernels", "collectives", "collective_bytes", "collective_parts"]
    counters += ["moved", "cycles"]
    out: dict = {name: collections.Counter() for name in counters}
    out |= {"products": [], "ops": []}
    for name, times in every.items():
        ops = computations[name]
        shapes = {op.name: op.shape for op in ops}
        for op in ops:
            if op.kind in ("convolution", "dot"):
                dtypes = "x".join(
                    shapes.get(n, "?").split("[")[0] for n in op.operands[:2]
                )
                flops = product_flops(op, shapes) * times
                output = flops, dtypes, op.shape.split("{")[0], op.scope
                out["products"].append(output)
            _count_collective(op, times, shapes, out)
            if name in outer and op.kind not in (*NAMING, *CALLING):
                _count_op(op, times, shapes, computations, out)
    return out


def _count_collective(op: Op, times: int, shapes: dict, out: dict) -> None:
    kind = op.kind.removesuffix("-start")
    if kind not in COLLECTIVES:
        return
    bytes_in = sum(num_bytes(shapes.get(name, "")) for name in op.operands)
    made = num_bytes(op.shape)
    if op.kind.endswith("-start") and kind != "all-reduce":
        made -= bytes_in  # the type is of both
    dtype = re.search(r"(\w+)\[", op.shape)[1]
    out["collectives"][f"{kind} {dtype}"] += times
    out["collective_bytes"][kind] += times * max(bytes_in, made)
    out["collective_parts"][part_of(op.scope)] += times * max(bytes_in, made)


def _count_op(op: Op, times: int, shapes: dict, computations: dict, out: dict) -> None:
    if op.kind == "custom-call":
        kernel = re.search(r'custom_call_target="([^"]*)"', op.line)[1]
        if kernel == "tpu_custom_call":
            kernel = re.sub(r"[.\d]+$", "", op.name)
        out["kernels"][kernel] += times
    if op.kind.endswith("-done"):
        return
    moved = times * moved_bytes(op, shapes, computations)
    match = re.search(r'"estimated_cycles":"(\d+)"', op.line)
    cycles = times * int(match[1]) if match else 0
    part = "copies" if op.kind in ("copy", "transpose") else part_of(op.scope)
    out["moved"][part] += moved
    out["cycles"][part] += cycles
    output = moved, cycles, times, op.kind, op.name, op.shape[:60], op.scope[-90:]
    out["ops"].append(output)
