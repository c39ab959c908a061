"""ELMo's layers: a character CNN, an LSTM with projection, a scalar mix.

Peters et al. 2018; allenai/bilm-tf, `bilm/training.py`; Jozefowicz et al. 2016. They
use the sizes of a `ModelSpec` (`d_model` is the width of the projection, `d_ff` that of
the cells), `dropout` and `dtype`.
"""

import functools
import math
from collections.abc import Callable
from typing import Any

import flax.linen as nn
import jax
import jax.numpy as jnp
import numpy as np
from jax.typing import DTypeLike
from jaxtyping import Array, Bool, Float, Int

from jaxpt.nn.layers import Dropout
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.ops import kernels

# Characters: the 256 bytes, and special characters (allennlp's `elmo_indexer.py`).
BEGIN_TEXT, END_TEXT, BEGIN_WORD, END_WORD, PADDING = range(256, 261)
NUM_CHARS = 261
FORGET_BIAS = 1.0  # added to the forget gate, TensorFlow's LSTMCell
CARRY_BIAS = -2.0  # initially a highway layer passes most of its input


def spell(piece: bytes, num_chars: int) -> list[int]:
    """The characters of one word: its bytes between marks, padded or truncated.

    >>> spell(b"cat", 7)
    [258, 99, 97, 116, 259, 260, 260]
    >>> spell(b"catch", 5)
    [258, 99, 97, 116, 259]
    """
    return spell_chars(list(piece), num_chars)


def spell_chars(chars: list[int], num_chars: int) -> list[int]:
    """`spell` of characters that need not be bytes."""
    word = [BEGIN_WORD, *chars[: num_chars - 2], END_WORD]
    return word + [PADDING] * (num_chars - len(word))


def spell_table(
    pieces: tuple[bytes, ...], size: int, num_chars: int, marks: dict[int, int]
) -> np.ndarray:
    """The characters [V, num_chars] of each id of a vocabulary, int16.

    Args:
      pieces: the text of each id; further ids (of a padded table) are empty.
      marks: ids that are one special character (BEGIN_TEXT, END_TEXT).
    """
    words = [list(piece) for piece in pieces] + [[]] * (size - len(pieces))
    for id_, mark in marks.items():
        words[id_] = [mark]
    return np.array([spell_chars(word, num_chars) for word in words], np.int16)


class Affine(nn.Module):
    """x W + b in float32, with factors in the compute dtype."""

    features: int
    spec: ModelSpec
    init: nn.initializers.Initializer
    bias: float | None = 0.0  # the initial value; None for no bias

    @nn.compact
    def __call__(self, x: Float[Array, "*B I"]) -> Float[Array, "*B O"]:
        kernel = self.param("kernel", self.init, (x.shape[-1], self.features))
        bias = None
        if self.bias is not None:
            bias = self.param(
                "bias", nn.initializers.constant(self.bias), (self.features,)
            )
        x = x.astype(self.spec.compute_dtype)
        return kernels.dense(x, kernel, bias, jnp.float32)


def symmetric(scale: float) -> Callable[..., Array]:
    """Uniform in [-scale, scale]."""

    def init(
        rng: Array, shape: tuple[int, ...], dtype: DTypeLike = jnp.float32
    ) -> Array:
        return jax.random.uniform(rng, shape, dtype, -scale, scale)

    return init


class CharCnn(nn.Module):
    """Words [*, C] of characters to vectors [*, D].

    Convolutions over characters with max pooling, highway layers and a projection.
    """

    spec: ModelSpec
    char_width: int
    filters: tuple[int, ...]  # the number of filters of width 1, 2, ...
    num_highway: int

    @nn.compact
    def __call__(self, chars: Int[Array, "*B C"]) -> Float[Array, "*B D"]:
        shape = NUM_CHARS, self.char_width
        table = self.param("table", symmetric(1.0), shape)
        x = table[chars.reshape(-1, chars.shape[-1])]
        pooled = []
        for width, number in enumerate(self.filters, 1):
            num_places = x.shape[1] - width + 1
            windows = [x[:, i : i + num_places] for i in range(width)]
            cnn = Affine(number, self.spec, symmetric(0.05), name=f"filter_{width}")
            pooled.append(cnn(jnp.concatenate(windows, axis=-1)).max(axis=1))
        x = jax.nn.relu(jnp.concatenate(pooled, axis=-1))
        size = x.shape[-1]
        init = nn.initializers.normal(1 / math.sqrt(size))
        for i in range(self.num_highway):
            carry = Affine(size, self.spec, init, CARRY_BIAS, name=f"carry_{i}")
            change = Affine(size, self.spec, init, name=f"transform_{i}")
            share = jax.nn.sigmoid(carry(x))
            x = share * jax.nn.relu(change(x)) + (1 - share) * x
        x = Affine(self.spec.d_model, self.spec, init, name="project")(x)
        return x.reshape(*chars.shape[:-1], -1).astype(self.spec.compute_dtype)


class Lstm(nn.Module):
    """One direction of one layer: cells of width F with a projection to D.

    Cell and projection are clipped at every step. `is_start` resets the state, so that
    the documents packed into a row are independent.
    """

    spec: ModelSpec
    cell_clip: float = 3.0
    proj_clip: float = 3.0
    is_reversed: bool = False  # reads from the last token to the first

    @nn.compact
    def __call__(
        self, x: Float[Array, "B T D"], is_start: Bool[Array, "B T"]
    ) -> Float[Array, "B T D"]:
        spec, size = self.spec, self.spec.d_ff
        fan = x.shape[-1] + spec.d_model + 4 * size
        glorot = symmetric(math.sqrt(6 / fan))  # of both kernels as one, TensorFlow's
        gates_BTG = Affine(4 * size, spec, glorot, name="input")(x)
        state = self.param("state", glorot, (spec.d_model, 4 * size))
        init = symmetric(math.sqrt(6 / (size + spec.d_model)))
        project = self.param("project", init, (size, spec.d_model))

        clips = self.cell_clip, self.proj_clip
        return _run(
            gates_BTG, is_start, state, project, clips, self.is_reversed, x.dtype
        )


@jax.custom_vjp
def _push(x: Float[Array, "B I"], kernel: Float[Array, "I O"]) -> Float[Array, "B O"]:
    """x W in float32 without a gradient for W: see `_run`."""
    return _push_forward(x, kernel)[0]


def _push_forward(x: Array, kernel: Array) -> tuple[Array, tuple]:
    low = kernel.astype(x.dtype)
    return jnp.dot(x, low, preferred_element_type=jnp.float32), (x, kernel)


def _push_backward(saved: tuple, grad: Array) -> tuple[Array, None]:
    like, kernel = saved
    low = kernel.T.astype(like.dtype)
    pulled = jnp.dot(grad.astype(like.dtype), low, preferred_element_type=like.dtype)
    return pulled, None


_push.defvjp(_push_forward, _push_backward)


def _steps(
    gates_BTG: Float[Array, "B T G"],
    shifts_BTD: Float[Array, "B T D"],
    is_start: Bool[Array, "B T"],
    state: Float[Array, "D G"],
    project: Float[Array, "F D"],
    clips: tuple[float, float],
    is_reversed: bool,
    dtype: DTypeLike,
) -> tuple[Float[Array, "B T D"], Float[Array, "B T F"]]:
    """All steps: the projected outputs, and those of the cells.

    Args:
      gates_BTG: the inputs' part of the gates.
      shifts_BTD: zeros that are added before the projection is clipped, to obtain its
        gradient.
    """
    size, width = project.shape

    def step(carry: tuple, now: tuple) -> tuple[tuple, tuple]:
        cell_BF, out_BD = carry
        gates_BG, shift_BD, is_fresh = now
        cell_BF = jnp.where(is_fresh[:, None], 0, cell_BF)
        out_BD = jnp.where(is_fresh[:, None], 0, out_BD)
        gates_BG = gates_BG + _push(out_BD, state)
        write, new, forget, show = jnp.split(gates_BG, 4, axis=-1)
        cell_BF = jax.nn.sigmoid(forget + FORGET_BIAS) * cell_BF
        cell_BF = cell_BF + jax.nn.sigmoid(write) * jnp.tanh(new)
        cell_BF = jnp.clip(cell_BF, -clips[0], clips[0])
        hidden_BF = (jax.nn.sigmoid(show) * jnp.tanh(cell_BF)).astype(dtype)
        out = _push(hidden_BF, project) + shift_BD
        out_BD = jnp.clip(out, -clips[1], clips[1]).astype(dtype)
        return (cell_BF, out_BD), (out_BD, hidden_BF)

    num_rows = len(gates_BTG)
    zeros = jnp.zeros((num_rows, size)), jnp.zeros((num_rows, width), dtype)
    time_major = [x.swapaxes(0, 1) for x in (gates_BTG, shifts_BTD, is_start)]
    _, (out, hidden) = jax.lax.scan(step, zeros, tuple(time_major), reverse=is_reversed)
    return out.swapaxes(0, 1), hidden.swapaxes(0, 1)


@functools.partial(jax.custom_vjp, nondiff_argnums=(4, 5, 6))
def _run(
    gates_BTG: Float[Array, "B T G"],
    is_start: Bool[Array, "B T"],
    state: Float[Array, "D G"],
    project: Float[Array, "F D"],
    clips: tuple[float, float],
    is_reversed: bool,
    dtype: DTypeLike,
) -> Float[Array, "B T D"]:
    """The output of an LSTM, whose kernel gradients are one product over all steps.

    Autodiff would add to them at every step, which is limited by memory bandwidth.
    """
    shifts = jnp.zeros((*is_start.shape, project.shape[1]))
    rest = is_start, state, project, clips, is_reversed, dtype
    return _steps(gates_BTG, shifts, *rest)[0]


def _run_forward(gates_BTG: Array, *rest: Any) -> tuple[Array, tuple]:
    is_start, _, project, *_ = rest
    shifts = jnp.zeros((*is_start.shape, project.shape[1]))
    (out_BTD, hidden_BTF), pull = jax.vjp(
        lambda gates, shifts: _steps(gates, shifts, *rest), gates_BTG, shifts
    )
    return out_BTD, (pull, out_BTD, hidden_BTF, is_start)


def _run_backward(
    clips: tuple, is_reversed: bool, dtype: DTypeLike, saved: tuple, grad: Array
) -> tuple:
    pull, out_BTD, hidden_BTF, is_start = saved
    gates_BTG, shifts_BTD = pull((grad, jnp.zeros_like(hidden_BTF)))
    padding = ((0, 0), (0, 1), (0, 0)) if is_reversed else ((0, 0), (1, 0), (0, 0))
    previous = out_BTD[:, 1:] if is_reversed else out_BTD[:, :-1]
    read_BTD = jnp.where(is_start[..., None], 0, jnp.pad(previous, padding))

    def multiply(x: Array, slopes: Array) -> Array:
        flat = [a.reshape(-1, a.shape[-1]).astype(dtype) for a in (x, slopes)]
        return jnp.einsum("MI,MO->IO", *flat, preferred_element_type=jnp.float32)

    grads = multiply(read_BTD, gates_BTG), multiply(hidden_BTF, shifts_BTD)
    return gates_BTG, None, *grads


_run.defvjp(_run_forward, _run_backward)


class LstmStack(nn.Module):
    """Layers of one direction; from the second on with a residual connection."""

    spec: ModelSpec
    cell_clip: float
    proj_clip: float
    is_reversed: bool

    @nn.compact
    def __call__(
        self,
        x: Float[Array, "B T D"],
        is_start: Bool[Array, "B T"],
        *,
        deterministic: bool,
    ) -> list[Float[Array, "B T D"]]:
        """The output of each layer, first to last."""
        layers, dropout = [], Dropout(self.spec.dropout)
        clips = self.cell_clip, self.proj_clip
        for i in range(self.spec.num_layers):
            layer = Lstm(self.spec, *clips, self.is_reversed, name=f"lstm_{i}")
            y = layer(dropout(x, deterministic=deterministic), is_start)
            x = y + x if i else y
            layers.append(x)
        return layers


def mix_layers(
    layers: Float[Array, "L *B D"], weights: Float[Array, "L"], gamma: float | Array
) -> Float[Array, "*B D"]:
    """ELMo's scalar mix: gamma * sum_l softmax(weights)_l layers_l, in float32.

    Tenney et al. 2019 probe with it too. Equal weights are the mean:

    >>> mix_layers(jnp.array([[1.0], [2.0], [6.0]]), jnp.zeros(3), 0.5).tolist()
    [1.5]
    """
    shares = jax.nn.softmax(weights.astype(jnp.float32))
    return gamma * jnp.einsum("l,l...->...", shares, layers.astype(jnp.float32))


class ScalarMix(nn.Module):
    """`mix_layers` with trained weights, initially w = 0 and gamma = 1."""

    @nn.compact
    def __call__(self, layers: Float[Array, "L *B D"]) -> Float[Array, "*B D"]:
        weights = self.param("weights", nn.initializers.zeros, (len(layers),))
        gamma = self.param("gamma", nn.initializers.ones, ())
        return mix_layers(layers, weights, gamma)
