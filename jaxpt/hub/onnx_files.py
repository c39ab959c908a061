"""Graphs as ONNX files: converted, held to JAX's numbers, and made smaller.

Only this file imports jax2onnx, onnx and onnxruntime: `pip install 'jaxpt[onnx]'`.
"""

import contextlib
import dataclasses
import importlib.util
import logging
import tempfile
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxpt.errors import UserError
from jaxpt.hub.onnx_graphs import Graph

PRECISIONS = ("float32", "float16", "int8")
# What float32 may differ by from JAX: sums are taken in another order.
TOLERANCE = 1e-4
# What stays float32 in a file of float16: the parts of norms, and softmax.
WIDE = ("ReduceSumSquare", "ReduceSum", "ReduceMean", "Div", "Sqrt", "Softmax")
# Opset 21 is what onnxruntime-web's and every runtime's kernels of today know.
OPSET = 21


@dataclasses.dataclass(frozen=True)
class Difference:
    """How far a file's scores are from JAX's, over all lengths that were tried.

    Attributes:
      lengths: of the texts.
      scores: the greatest absolute difference of any output.
      probabilities: of any probability that the first output gives: of a token, or of a
        replaced one; of an encoder's states 0.
      same_best: at which fraction of positions the likeliest token is the same one.
    """

    lengths: tuple[int, ...]
    scores: float
    probabilities: float
    same_best: float

    def __str__(self) -> str:
        return (
            f"scores differ from JAX's by at most {self.scores:.1e}, probabilities by "
            f"{self.probabilities:.1e}, the likeliest token is the same at "
            f"{self.same_best:.2%} of positions"
        )


def require(precision: str) -> None:
    """Raises UserError unless a precision is known and what writes it is installed."""
    if precision not in PRECISIONS:
        raise UserError(
            f"--precision={precision}: must be one of {', '.join(PRECISIONS)}"
        )
    for name in ("jax2onnx", "onnx", "onnxruntime"):
        if importlib.util.find_spec(name) is None:
            raise UserError(
                f"ONNX graphs need {name}, which is not installed: "
                f"pip install 'jaxpt[onnx]'"
            )


def convert(graph: Graph, precision: str = "float32") -> bytes:
    """The ONNX file of a graph, for texts of any length; ids are int64.

    Args:
      precision: "float16" halves all weights; "int8" makes those of matrix products
        whole numbers with a scale (onnxruntime's dynamic quantisation).
    """
    from jax2onnx import to_onnx

    given = [
        types.SimpleNamespace(shape=axes, dtype=np.dtype(_dtype(name)))
        for name, axes in graph.inputs.items()
    ]
    with _on_cpu(), _without_warnings():
        model = to_onnx(
            graph.run,
            given,
            model_name=f"jaxpt_{graph.name}",
            opset=OPSET,
            input_names=list(graph.inputs),
            output_names=list(graph.outputs),
        )
    _widen_ids(model)
    if precision == "float16":
        model = _halve(model)
    elif precision == "int8":
        model = _quantise(model)
    return model.SerializeToString()


def check(graph: Graph, data: bytes, precision: str = "float32") -> Difference:
    """Runs a file beside JAX on texts of all sorts of lengths, padded ones too.

    The longest is the longest that the model reads, or as much of it as
    `Graph.longest_check` lets into memory.

    Raises:
      UserError: an output is not finite; or in float32 they differ by more than
        `TOLERANCE`, or name another token.
    """
    session, rng = open_session(data), np.random.default_rng(0)
    longest = graph.longest_check
    lengths = [*(n for n in (1, 2, 5, 16) if n < longest), longest]
    found = [_compare(graph, session, rng, length) for length in lengths]
    scores, probabilities, same, positions = map(list, zip(*found, strict=True))
    # NumPy's, as Python's passes over what is not a number.
    far, wrong = float(np.max(scores)), float(np.max(probabilities))
    worst = Difference(tuple(lengths), far, wrong, sum(same) / sum(positions))
    if not np.isfinite(far):
        raise UserError(
            f"ONNX: {graph.name} gives what is not a number in {precision}: "
            f"--precision=float32 has a wider range"
        )
    if precision == "float32" and not (far <= TOLERANCE and worst.same_best == 1):
        raise UserError(f"ONNX: {graph.name}.onnx is wrong: its {worst}")
    return worst


def open_session(data: bytes) -> Any:
    """An onnxruntime session on the CPU, without a word on the console."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(data, options, ["CPUExecutionProvider"])


def _compare(graph: Graph, session, rng, length: int) -> tuple[float, float, int, int]:
    """The greatest differences, and of how many positions the best token is the same.

    A tie may fall to either token: what JAX gives the other's best is then compared.
    """
    given = graph.draw_inputs(rng, length)
    found = session.run(list(graph.outputs), given)
    with _on_cpu():
        narrow = [np.asarray(x, _dtype(name)) for name, x in given.items()]
        wanted = jax.device_get(jax.jit(graph.run)(*narrow))
    pairs = zip(found, wanted, strict=True)
    scores = float(np.max([np.abs(a - b).max() for a, b in pairs]))
    ours, theirs = np.asarray(wanted[0]), np.asarray(found[0])
    if graph.outputs[0] != "logits":
        return scores, 0.0, 1, 1
    if ours.ndim == 2:  # of replaced tokens
        far = np.abs(_sigmoid(ours) - _sigmoid(theirs))
        same = ((ours > 0) == (theirs > 0)) | (np.abs(ours) < TOLERANCE)
        return scores, float(far.max()), int(same.sum()), same.size
    far = np.abs(_softmax(ours) - _softmax(theirs)).max()
    chosen = np.take_along_axis(ours, theirs.argmax(-1)[..., None], -1)[..., 0]
    same = ours.max(-1) - chosen <= TOLERANCE
    return scores, float(far), int(same.sum()), same.size


def _sigmoid(x):
    return 1 / (1 + np.exp(-x))


def _softmax(x):
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def _dtype(name: str) -> str:
    return "float32" if name.endswith("states") else "int32"


def _widen_ids(model) -> None:
    """Inputs of whole numbers become int64, as every user of ONNX models gives them."""
    from onnx import TensorProto, helper

    casts = []
    for value in model.graph.input:
        kind = value.type.tensor_type
        if kind.elem_type != TensorProto.INT32:
            continue
        kind.elem_type, inner = TensorProto.INT64, f"{value.name}_int32"
        for node in model.graph.node:
            held = [inner if name == value.name else name for name in node.input]
            node.input[:] = held
        casts.append(
            helper.make_node("Cast", [value.name], [inner], to=TensorProto.INT32)
        )
    nodes = [*casts, *model.graph.node]
    del model.graph.node[:]
    model.graph.node.extend(nodes)


def _halve(model):
    """Weights and products in float16; inputs, outputs and norms stay as they are.

    The squares that a norm sums leave the range of float16.
    """
    from onnxruntime.transformers import float16

    return float16.convert_float_to_float16(
        model,
        keep_io_types=True,
        op_block_list=[*float16.DEFAULT_OP_BLOCK_LIST, *WIDE],
    )


def _quantise(model):
    """Weights of matrix products and tables as int8."""
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    for node in model.graph.node:  # a Gemm it would leave as it is
        told = {each.name: each.i or each.f for each in node.attribute}
        if node.op_type == "Gemm" and told == {"alpha": 1.0, "beta": 0.0}:
            node.op_type = "MatMul"
            del node.attribute[:], node.input[2:]
    with tempfile.TemporaryDirectory() as place, _without_warnings():
        path = Path(place) / "model.onnx"
        quantize_dynamic(model, path, weight_type=QuantType.QInt8)
        return onnx.load(path)


@contextlib.contextmanager
def _on_cpu() -> Iterator[None]:
    """The numbers of a CPU, and no kernel that ONNX lacks, whatever is at hand."""
    with jax.default_device(jax.local_devices(backend="cpu")[0]):
        yield


@contextlib.contextmanager
def _without_warnings() -> Iterator[None]:
    """Without the libraries' warnings, which say nothing that a user could act on."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)
