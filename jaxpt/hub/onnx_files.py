"""Converts graphs to ONNX files, checks them against JAX, and quantizes them.

Only this file imports jax2onnx, onnx and onnxruntime: `pip install 'jaxpt[onnx]'`.
"""

import contextlib
import dataclasses
import logging
import tempfile
import types
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import jax
import numpy as np

from jaxpt import optional
from jaxpt.errors import ConfigError, DataError, argument
from jaxpt.hub.graphs import Graph

PRECISIONS = ("float32", "float16", "int8")
# Allowed difference from JAX in float32, where sums are taken in another order, over
# the largest output or 1.
TOLERANCE = 1e-4
# Operations that stay float32 in a float16 file: those of norms, and softmax.
WIDE = ("ReduceSumSquare", "ReduceSum", "ReduceMean", "Div", "Sqrt", "Softmax")
# onnxruntime-web and other current runtimes support opset 21.
OPSET = 21


@dataclasses.dataclass(frozen=True)
class OutputDifference:
    """The difference of a file's outputs from JAX's, over all tested lengths.

    Attributes:
      lengths: of the texts.
      scores: the maximum absolute difference of any output.
      relative: the same, over the largest absolute value of the output in JAX or 1.
      probabilities: the maximum difference of a probability of the first output: of a
        token, or that it was replaced; 0 for an encoder's states.
      same_best: the fraction of positions whose likeliest token is the same.
    """

    lengths: tuple[int, ...]
    scores: float
    relative: float
    probabilities: float
    same_best: float

    def __str__(self) -> str:
        return (
            f"scores differ from JAX's by at most {self.scores:.1e}, probabilities by "
            f"{self.probabilities:.1e}, the likeliest token is the same at "
            f"{self.same_best:.2%} of positions"
        )


def require(precision: str) -> None:
    """Raises UserError unless a precision is known and its packages are installed."""
    if precision not in PRECISIONS:
        raise ConfigError(
            f"{argument('precision')}={precision}: must be one of "
            f"{', '.join(PRECISIONS)}"
        )
    for name in ("jax2onnx", "onnx", "onnxruntime"):
        optional.check(name, "onnx", "an ONNX graph")


def convert(graph: Graph, precision: str = "float32") -> bytes:
    """Converts a graph to an ONNX file, for texts of any length; ids are int64.

    Args:
      precision: "float16" converts all weights; "int8" quantizes those of matrix
        products (onnxruntime's dynamic quantization).
    """
    from jax2onnx import to_onnx

    inputs = [
        types.SimpleNamespace(shape=axes, dtype=np.dtype(_dtype(name)))
        for name, axes in graph.inputs.items()
    ]
    with _on_cpu(), _without_warnings():
        model = to_onnx(
            graph.run,
            inputs,
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


def check(graph: Graph, data: bytes, precision: str = "float32") -> OutputDifference:
    """Compares a file with JAX on texts of several lengths, with and without padding.

    The longest is that of the model, or `Graph.longest_check`, which fits into memory.
    """
    session, rng = open_session(data), np.random.default_rng(0)
    longest = graph.longest_check
    lengths = [*(n for n in (1, 2, 5, 16) if n < longest), longest]
    results = [_compare(graph, session, rng, length) for length in lengths]
    scores, relative, probabilities, same, positions = map(
        list, zip(*results, strict=True)
    )
    # NumPy's max, as Python's ignores NaN.
    worst = OutputDifference(
        tuple(lengths),
        scores=float(np.max(scores)),
        relative=float(np.max(relative)),
        probabilities=float(np.max(probabilities)),
        same_best=sum(same) / sum(positions),
    )
    if not np.isfinite(worst.scores):
        raise DataError(
            f"ONNX: {graph.name} outputs NaN or infinity in {precision}: "
            f"{argument('precision')}=float32 has a wider range"
        )
    if precision == "float32" and not (
        worst.relative <= TOLERANCE and worst.same_best == 1
    ):
        raise DataError(f"ONNX: {graph.name}.onnx is wrong: its {worst}")
    return worst


def open_session(data: bytes) -> Any:
    """Opens an onnxruntime session on the CPU that prints nothing."""
    import onnxruntime

    options = onnxruntime.SessionOptions()
    options.log_severity_level = 3
    return onnxruntime.InferenceSession(data, options, ["CPUExecutionProvider"])


def _compare(
    graph: Graph, session: Any, rng: np.random.Generator, length: int
) -> tuple[float, float, float, int, int]:
    """The maximum differences, the positions with the same best token, all positions.

    Tokens with the same score are equally good: the best token of the file is compared
    by its score in JAX.
    """
    inputs = graph.draw_inputs(rng, length)
    outputs = session.run(list(graph.outputs), inputs)
    with _on_cpu():
        narrow = [np.asarray(x, _dtype(name)) for name, x in inputs.items()]
        expected = jax.device_get(jax.jit(graph.run)(*narrow))
    pairs = zip(outputs, expected, strict=True)
    scales = [max(1.0, float(np.abs(x).max())) for x in expected]
    gaps = [float(np.abs(a - b).max()) for a, b in pairs]
    scores = float(np.max(gaps)), float(np.max(np.divide(gaps, scales)))
    jax_output, onnx_output = np.asarray(expected[0]), np.asarray(outputs[0])
    if graph.outputs[0] != "logits":
        return *scores, 0.0, 1, 1
    tolerance = TOLERANCE * scales[0]
    if jax_output.ndim == 2:  # of replaced tokens
        gap = np.abs(_sigmoid(jax_output) - _sigmoid(onnx_output)).max()
        same = ((jax_output > 0) == (onnx_output > 0)) | (
            np.abs(jax_output) < tolerance
        )
        return *scores, float(gap), int(same.sum()), same.size
    gap = np.abs(_softmax(jax_output) - _softmax(onnx_output)).max()
    best = onnx_output.argmax(-1)[..., None]
    chosen = np.take_along_axis(jax_output, best, -1)[..., 0]
    same = jax_output.max(-1) - chosen <= tolerance
    return *scores, float(gap), int(same.sum()), same.size


def _sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def _softmax(x: np.ndarray) -> np.ndarray:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def _dtype(name: str) -> str:
    return "float32" if name.endswith("states") else "int32"


def _widen_ids(model: Any) -> None:
    """Changes int32 inputs to int64, the type that users of ONNX models expect."""
    from onnx import TensorProto, helper

    casts = []
    for value in model.graph.input:
        kind = value.type.tensor_type
        if kind.elem_type != TensorProto.INT32:
            continue
        kind.elem_type, inner = TensorProto.INT64, f"{value.name}_int32"
        for node in model.graph.node:
            names = [inner if name == value.name else name for name in node.input]
            node.input[:] = names
        casts.append(
            helper.make_node("Cast", [value.name], [inner], to=TensorProto.INT32)
        )
    nodes = [*casts, *model.graph.node]
    del model.graph.node[:]
    model.graph.node.extend(nodes)


def _halve(model: Any) -> Any:
    """Converts weights and products to float16; inputs, outputs and norms stay.

    The squares that a norm sums exceed the range of float16.
    """
    from onnxruntime.transformers import float16

    return float16.convert_float_to_float16(
        model,
        keep_io_types=True,
        op_block_list=[*float16.DEFAULT_OP_BLOCK_LIST, *WIDE],
    )


def _quantise(model: Any) -> Any:
    """Converts weights of matrix products and tables to int8."""
    import onnx
    from onnxruntime.quantization import QuantType, quantize_dynamic

    for node in model.graph.node:  # it does not quantize a Gemm
        options = {each.name: each.i or each.f for each in node.attribute}
        if node.op_type == "Gemm" and options == {"alpha": 1.0, "beta": 0.0}:
            node.op_type = "MatMul"
            del node.attribute[:], node.input[2:]
    with tempfile.TemporaryDirectory() as place, _without_warnings():
        path = Path(place) / "model.onnx"
        quantize_dynamic(model, path, weight_type=QuantType.QInt8)
        return onnx.load(path)


@contextlib.contextmanager
def _on_cpu() -> Iterator[None]:
    """Computes on the CPU, without the kernels of accelerators that ONNX lacks."""
    with jax.default_device(jax.local_devices(backend="cpu")[0]):
        yield


@contextlib.contextmanager
def _without_warnings() -> Iterator[None]:
    """Suppresses the libraries' warnings, on which a user cannot act."""
    before = logging.root.manager.disable
    logging.disable(logging.WARNING)
    try:
        yield
    finally:
        logging.disable(before)
