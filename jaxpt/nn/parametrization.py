"""muP and CompleteP: settings tuned at one width and depth that apply at others.

With m_N = D / base_width, m_L = layers of the stack / base_depth (1 for "mup"), and
alpha = 1 ("completep") or 1/2 ("depth_mup"), the values of a standard model times

    parameters                   initial std  learning rate            weight decay
    embeddings, relative tables  1            1                        1
    kernels of layers            m_N^-1/2     m_N^-1 m_L^(alpha - 1)   m_N
    norms and biases of layers                m_L^(alpha - 1)
    other kernels                m_N^-1/2     m_N^-1                   m_N
    other norms and biases                    1
    heads, tied or not           1            1                        1

    Adam's epsilon               m_N^-1 m_L^-alpha
    layer                        x + m_L^-alpha f(norm(x))
    logits                       x W / m_N + b

Weight decay is multiplied by the learning rate, so for kernels their product does not
depend on the width. Other kernels are those of a masked language model's head, a pooled
state, or the merge of an extra head. Muon's steps do not depend on the width of
matrices of the same shape: kernels that it trains have its rate times m_L^(alpha - 1).
If m_N = m_L = 1, all factors are 1.

Sources: Dey et al. 2025 (CompleteP), table 1; EleutherAI/nanoGPT-mup, branch completep.
As there, epsilon has its factor in all parameters; outside of a decoder m_L is that of
the only stack or of the encoder. Departures: embeddings and logits have no further
factors; norms, biases and T5's relative bias have no decay, as everywhere here. The
sources have neither encoder-decoders nor Muon: a stack's m_L is by its own layers,
cross-attention is a branch like the others, and the rule for Muon is derived.

Attention divides by sqrt(H), which is right if all widths have heads of the same width
H: `num_heads` grows with `d_model`, as `d_ff` does. If H grows instead, set
`attention_scalar` to H^2 / H at the base width.
"""

import re
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, NamedTuple

import flax.traverse_util
import numpy as np

from jaxpt.errors import ConfigError
from jaxpt.nn.model_spec import DEPTH_EXPONENTS, ModelSpec
from jaxpt.setting_types import refuse

# Parameters by path: of the branches of layers, and outside of them.
IN_BRANCH = re.compile(r"(^|/)(attention|cross|mlp)(_norm)?/")
KERNELS = re.compile(r"(^|/)(transform(_\d)?|pool|merge|score/Dense_0)/kernel$")
UNSCALED = re.compile(
    r"embed/(tokens|types|positions/table)$|(relative|disentangled)/table$"
    r"|boundary/positions$|(head|score)/out/kernel$|bias$|norm/scale$|smear/(gate|scale)$"
)
# What a branch adds to the residual stream.
BRANCH_ENDS = re.compile(r"(attention|cross)/out/|mlp/down/")


class LeafScale(NamedTuple):
    """The factors of one parameter's optimizer.

    Attributes:
      width: of the learning rate; weight decay is divided by it.
      depth: of the learning rate.
      epsilon: of Adam's epsilon.
    """

    width: float = 1.0
    depth: float = 1.0
    epsilon: float = 1.0


def find_scale(spec: ModelSpec, path: str) -> LeafScale:
    """The factors of a parameter, by its path in the network.

    >>> spec = ModelSpec(
    ...     d_model=1024, num_layers=16, parametrization="depth_mup"
    ... )
    >>> find_scale(spec, "encoder/layer_3/mlp/up/kernel").width
    0.25
    >>> [round(x, 6) for x in find_scale(spec, "encoder/layer_3/mlp/up/bias")]
    [1.0, 0.353553, 0.088388]
    """
    parts = path.split("/")
    is_decoder = "decoder" in parts
    num_layers = spec.num_decoder_layers if is_decoder else spec.num_layers
    branch = spec.residual_scale(num_layers)  # m_L^-alpha
    epsilon = branch / spec.width_ratio
    is_kernel, depth = bool(KERNELS.search(path)), 1.0
    if IN_BRANCH.search(path):
        is_kernel = parts[-1] == "kernel"
        if exponent := DEPTH_EXPONENTS[spec.parametrization]:
            depth = (num_layers / spec.base_depth) ** (exponent - 1)
    elif not is_kernel and not UNSCALED.search(path):
        raise ConfigError(
            f"model.parametrization={spec.parametrization}: must be standard for this "
            f"network: the rules do not cover its parameter {path}"
        )
    return LeafScale(1 / spec.width_ratio if is_kernel else 1.0, depth, epsilon)


def check_model(spec: ModelSpec) -> None:
    """Raises UserError for a model to which the rules do not apply."""
    after = f"with model.parametrization={spec.parametrization}"
    for name, is_good, allowed in (
        ("norm_position", spec.norm_position == "pre", "pre"),
        ("norm_scale", spec.norm_scale, "True"),
        ("attention_out_norm", spec.attention_out_norm != "after", "none or before"),
        ("init", spec.init in ("normal", "truncated"), "normal or truncated"),
        ("embedding_size", spec.embedding_dim == spec.d_model, "0 or model.d_model"),
        ("transform_size", spec.transform_width == spec.d_model, "0 or model.d_model"),
        ("scale_attention", spec.scale_attention, "True"),
        ("scale_embeddings", not spec.scale_embeddings, "False"),
        ("scale_logits", not spec.scale_logits, "False"),
        ("depth_sums", not spec.depth_sums, "False"),
        ("layer_sums", not spec.layer_sums, "False"),
        ("multipliers", not spec.multipliers, "()"),
        ("value_embeddings", not spec.value_embeddings, "False"),
    ):
        if not is_good:
            value = getattr(spec, name)
            raise refuse(spec.full_name(name), value, f"{allowed} {after}")


def fold(
    spec: ModelSpec, params: Any, head: str = ""
) -> tuple[ModelSpec, dict[str, Any]]:
    """The standard model that computes the same, and its parameters.

    The factor of branches goes into their last kernels and biases, that of logits into
    an untied head's kernel, or into the last norm before a tied one.

    Args:
      params: of a `Transformer`, scanned or not, with the heads of `export_parts`.
      head: the purpose of the network, a key of `Network.HEADS`; "" for its states
        without a head, which are then those of the original.
    """
    if spec.parametrization == "standard":
        return spec, params
    flat = flax.traverse_util.flatten_dict(params, sep="/")
    for path in filter(BRANCH_ENDS.search, flat):
        is_decoder = path.startswith("decoder/")
        num_layers = spec.num_decoder_layers if is_decoder else spec.num_layers
        scale = np.float32(spec.residual_scale(num_layers))
        flat[path] = np.asarray(flat[path]) * scale
    for path, factor in _list_head_factors(spec, head).items():
        if path not in flat:
            continue
        is_offset = spec.norm_offset and path.endswith("norm/scale")
        one = np.float32(is_offset)  # that scale is 1 + the parameter
        flat[path] = (one + np.asarray(flat[path])) * np.float32(factor) - one
    return standardise(spec), flax.traverse_util.unflatten_dict(flat, sep="/")


def _list_head_factors(spec: ModelSpec, head: str) -> Mapping[str, float]:
    """The factors of the parameters by which 1 / m_N is folded into heads."""
    factor = 1 / spec.width_ratio
    own = {"score/out/kernel": factor, "pair_score/out/kernel": factor}
    if head in ("", "discriminator"):  # which has no vocabulary
        return own if head else {}
    if not spec.tie_embeddings:
        return own | {"head/out/kernel": factor}
    if spec.head_transform:
        norm = "head/norm"
    else:  # a pair's head reads the same states
        norm = "decoder/norm" if spec.num_decoder_layers else "encoder/norm"
        own |= {"pair_score/pool/kernel": spec.width_ratio}
    return own | {f"{norm}/scale": factor, f"{norm}/bias": factor}


def standardise(spec: ModelSpec) -> ModelSpec:
    """The spec of `fold`."""
    plain = ModelSpec()
    return replace(
        spec,
        parametrization=plain.parametrization,
        base_width=plain.base_width,
        base_depth=plain.base_depth,
    )
