"""Dense, norm, MLP and dropout: float32 parameters, compute in the spec's dtype."""

import math
from collections.abc import Callable
from typing import ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
from jax.nn.initializers import Initializer
from jaxtyping import Array, Bool, Float, Int

from jaxpt.nn.model_spec import ModelSpec
from jaxpt.nn.scan import draw
from jaxpt.ops import kernels
from jaxpt.ops.dropout import dropout


def kernel_init(
    spec: ModelSpec,
    is_residual: bool = False,
    t5_scale: float = 1.0,
    is_head: bool = False,
) -> Initializer:
    """The initialiser of a dense kernel [in, out].

    Args:
      is_residual: the output is added to the residual stream.
      is_head: the output are logits, whose std does not depend on the width.
      t5_scale: a factor of the initial values if `init` is "t5".
    """
    if spec.init == "torch":
        # PyTorch's nn.Linear: kaiming_uniform(a=sqrt(5)) is U(-1, 1) / sqrt(fan in).
        return nn.initializers.variance_scaling(1 / 3, "fan_in", "uniform")
    if spec.init == "t5":
        return nn.initializers.variance_scaling(t5_scale**2, "fan_in", "normal")
    std = spec.init_std / math.sqrt(1 if is_head else spec.width_ratio)
    if spec.init == "truncated":
        return nn.initializers.truncated_normal(std)
    # Radford et al. 2019: 1 / sqrt(N), "where N is the number of residual layers".
    times = 2 * spec.num_layers if spec.init == "gpt2" and is_residual else 1
    return nn.initializers.normal(std / math.sqrt(times))


def bias_init(spec: ModelSpec, fan_in: int) -> Callable[..., Array]:
    """The initialiser of a dense layer's bias."""
    if spec.init != "torch":
        return nn.initializers.zeros
    bound = 1 / math.sqrt(fan_in)
    return lambda rng, shape: jax.random.uniform(rng, shape, jnp.float32, -bound, bound)


def table_init(spec: ModelSpec) -> Initializer:
    """The initialiser of an embedding table.

    PyTorch's is standard normal, but a tied head would then start with logits of std
    sqrt(E), so tied tables use `init_std`. T5's is always standard normal: its tied
    head divides by sqrt(D).
    """
    if spec.init == "truncated":
        return nn.initializers.truncated_normal(spec.init_std)
    if spec.init == "t5":
        return nn.initializers.normal(1.0)
    is_wide = spec.init == "torch" and not spec.tie_embeddings
    return nn.initializers.normal(1.0 if is_wide else spec.init_std)


def add_table(
    module: nn.Module,
    name: str,
    spec: ModelSpec,
    shape: tuple[int, int],
    base: Array | None = None,
) -> Array:
    """An embedding table of a module: a parameter.

    Args:
      base: a table of another module; then the parameter, 0 at first, is added to it,
        and no gradient reaches it.
    """
    if base is None:
        return module.param(name, table_init(spec), shape)
    return jax.lax.stop_gradient(base) + module.param(
        name, nn.initializers.zeros, shape
    )


class Dense(nn.Module):
    """x W + b over the last axis.

    The product is computed on [rows, in]: XLA's CPU back end is slow at the gradient of
    the three-dimensional form.
    """

    features: int
    spec: ModelSpec
    use_bias: bool | None = None  # None: by the spec
    is_residual: bool = False
    t5_scale: float = 1.0
    is_head: bool = False

    @nn.compact
    def read(self, fan_in: int) -> tuple[Float[Array, "I O"], Float[Array, "O"] | None]:
        """W and b."""
        how = self.is_residual, self.t5_scale, self.is_head
        init = kernel_init(self.spec, *how)
        kernel = draw(self, "kernel", init, (fan_in, self.features))
        bias = None
        if self.spec.use_bias if self.use_bias is None else self.use_bias:
            init = bias_init(self.spec, fan_in)
            bias = draw(self, "bias", init, (self.features,))
        return kernel, bias

    def __call__(
        self, x: Float[Array, "*B I"], adds_bias: bool = True
    ) -> Float[Array, "*B O"]:
        kernel, bias = self.read(x.shape[-1])
        bias = bias if adds_bias else None
        return kernels.dense(x.astype(self.spec.compute_dtype), kernel, bias)


def add_scale(module: nn.Module, spec: ModelSpec, width: int) -> Float[Array, "D"]:
    """The factors of a norm, 1 at first: a parameter, or 1 + it with `norm_offset`."""
    if spec.norm_offset:
        return 1 + module.param("scale", nn.initializers.zeros, (width,))
    return module.param("scale", nn.initializers.ones, (width,))


class Norm(nn.Module):
    """LayerNorm, or RMSNorm without mean and bias (T5); computed in float32.

    >>> norm = Norm(ModelSpec(norm_scale=False))
    >>> norm.apply({}, jnp.array([1.0, 3.0])).round(3).tolist()
    [-1.0, 1.0]
    """

    spec: ModelSpec
    has_scale: bool | None = None  # None: by the spec

    @nn.compact
    def __call__(self, x: Float[Array, "*B D"]) -> Float[Array, "*B D"]:
        has_scale = self.spec.norm_scale if self.has_scale is None else self.has_scale
        scale = jnp.ones(x.shape[-1])
        if has_scale:
            scale = add_scale(self, self.spec, x.shape[-1])
        if self.spec.norm == "rmsnorm":
            return kernels.rms_norm(x, scale, self.spec.norm_epsilon)
        bias = jnp.zeros_like(scale)
        if has_scale and self.spec.norm_bias:
            bias = self.param("bias", nn.initializers.zeros, (x.shape[-1],))
        return kernels.layer_norm(x, scale, bias, self.spec.norm_epsilon)


class HeadNorm(nn.Module):
    """RMSNorm of each attention head, or of all; its scale is 1 if "unscaled".

    >>> norm = HeadNorm(ModelSpec(qk_norm="unscaled", norm_epsilon=1e-6))
    >>> [round(x, 4) for x in norm.apply({}, jnp.array([3.0, 4.0])).tolist()]
    [0.8485, 1.1314]
    """

    spec: ModelSpec

    @nn.compact
    def __call__(self, x: Float[Array, "*B H"]) -> Float[Array, "*B H"]:
        scale = jnp.ones(x.shape[-1])
        if self.spec.qk_norm != "unscaled":
            scale = add_scale(self, self.spec, x.shape[-1])
        return kernels.rms_norm(x, scale, self.spec.norm_epsilon)


class ValueEmbedding(nn.Module):
    """g E[token], which self-attention adds to its values, with a gate g of each head.

        g = 3 sigmoid(x[:12] W)

    x is the attention's input, which is normed with pre-norm. Source: nanochat, where
    E has the spread of the value kernel. Departures: W is 0 at first, hence g = 1.5
    (there uniform up to 0.02); E is normal (there uniform) and has the learning rate
    of other tables (there half of it); with Muon, AdamW trains W too.

    >>> module = ValueEmbedding(ModelSpec(vocab_size=2, d_model=2, num_heads=2))
    >>> params = {"table": jnp.array([[9.0, 9.0], [2.0, 4.0]])}
    >>> params["gate"] = jnp.array([[0.0, math.log(2)], [0.0, 0.0]])
    >>> args = jnp.array([[[1.0, 7.0]]]), jnp.array([[1]])
    >>> added = module.apply({"params": params}, *args)  # the gates are 3/2 and 2
    >>> added.round(4).tolist()
    [[[[3.0], [8.0]]]]
    """

    spec: ModelSpec
    width: ClassVar[int] = 12

    @nn.compact
    def __call__(
        self, x: Float[Array, "B T D"], ids: Int[Array, "B T"]
    ) -> Float[Array, "B T K H"]:
        spec = self.spec
        heads = spec.kv_heads, spec.head_width
        std = spec.d_model**-0.5 if spec.init in ("t5", "torch") else spec.init_std
        shape = spec.vocab_size, math.prod(heads)
        table = self.param("table", nn.initializers.normal(std), shape)
        # Trained prompts, whose ids are negative, have no tokens.
        vectors = jnp.where(ids[..., None] < 0, 0, jnp.take(table, ids, axis=0))
        vectors = vectors.astype(spec.compute_dtype).reshape(*ids.shape, *heads)
        x = x[..., : self.width]
        kernel = self.param("gate", nn.initializers.zeros, (x.shape[-1], heads[0]))
        gate = 3 * jax.nn.sigmoid(kernels.dense(x, kernel, out_dtype=jnp.float32))
        return gate[..., None].astype(vectors.dtype) * vectors


class Smear(nn.Module):
    """x_t + c sigmoid(w x_t[:24]) x_{t-1}, where a token attends to the one before it.

    x are the token embeddings, before positions and norm. c and w are 0 at first.
    Sources: modded-nanogpt, which reads 12 numbers, and nanochat, which reads 24 and
    norms before. Departures: no token gets a share of another document's (there it
    does); c and w have the learning rate of norms.

    >>> params = {"scale": jnp.array([2.0]), "gate": jnp.zeros(1)}
    >>> x, before = jnp.array([[[1.0], [5.0]]]), jnp.array([[[7.0], [1.0]]])
    >>> is_seen = jnp.array([[False, True]])
    >>> Smear().apply({"params": params}, x, before, is_seen).tolist()
    [[[1.0], [6.0]]]
    """

    width: ClassVar[int] = 24

    @nn.compact
    def __call__(
        self,
        x: Float[Array, "B T E"],
        before: Float[Array, "B T E"],
        is_seen: Bool[Array, "B T"],
    ) -> Float[Array, "B T E"]:
        read = x[..., : self.width]
        weights = self.param("gate", nn.initializers.zeros, read.shape[-1:])
        scale = self.param("scale", nn.initializers.zeros, (1,))
        share = scale * jax.nn.sigmoid((read * weights).sum(-1, keepdims=True))
        return x + jnp.where(is_seen[..., None], share, 0) * before


class Dropout(nn.Module):
    """Zeroes x with probability `rate` and scales the rest by 1 / (1 - rate)."""

    rate: float

    @nn.compact
    def __call__(self, x: Array, *, deterministic: bool) -> Array:
        if deterministic or self.rate == 0:
            return x
        return dropout(self.make_rng("dropout"), x, self.rate)


class Mlp(nn.Module):
    """Dense to F, activation (optionally as a gate), optional norm, dense to D."""

    spec: ModelSpec

    @nn.compact
    def __call__(self, x: Float[Array, "B T D"]) -> Float[Array, "B T D"]:
        use_bias, activation = self.spec.has_up_bias, self.spec.activation
        up = Dense(self.spec.d_ff, self.spec, use_bias, name="up")
        if self.spec.gated_mlp:
            gate = Dense(self.spec.d_ff, self.spec, use_bias, name="gate")(x)
            hidden = kernels.activate(activation, gate, up(x))
        elif use_bias and self.spec.compute_dtype != "float32":
            _, bias = up.read(x.shape[-1])
            hidden = kernels.activate_biased(activation, up(x, adds_bias=False), bias)
        else:
            hidden = kernels.activate(activation, up(x))
        if self.spec.inner_norm:
            hidden = Norm(self.spec, name="inner_norm")(hidden)
        use_bias = self.spec.has_down_bias
        how = {"is_residual": True, "name": "down"}
        return Dense(self.spec.d_model, self.spec, use_bias, **how)(hidden)
