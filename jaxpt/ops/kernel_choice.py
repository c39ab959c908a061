"""Selection of the attention kernel: the fastest one that supports the request.

The choice depends on the platform, the sizes and the structure of the mask, never on
values:

| mask, bias                   | NVIDIA GPU       | TPU              | elsewhere |
|------------------------------|------------------|------------------|-----------|
| all keys, or causal          | cuDNN            | splash           | XLA       |
| key lengths, or causal + them| cuDNN, lengths   | splash, segments | XLA       |
| segments, or causal + them   | cuDNN, array     | splash, segments | XLA       |
| prefix, or a bool array      | cuDNN, array     | XLA              | XLA       |
| bias, with the first two     | cuDNN, bfloat16  | XLA              | XLA       |
| bias, with the others        | XLA              | XLA              | XLA       |
| dropout of weights, training | XLA              | XLA              | XLA       |
| soft cap of logits           | XLA              | XLA              | XLA       |
| window, causal, no array     | cuDNN            | splash           | blocks    |
| window on both sides         | blocks           | splash           | blocks    |

On CPU in float32 and without dropout of weights, "XLA" is the hand-written form of
`ops/cpu.py`. If a condition of a fused kernel is not met, XLA is used. cuDNN needs
bfloat16, compute capability 8.0, a head width of at most 128 in steps of 8, and even
lengths with a bias or an array. Splash needs lengths that are multiples of 128, a head
width that is a multiple of 64, and rows and heads that divide evenly among the devices:
`jit` cannot partition it, so it is sharded by the mesh in context.

"cuDNN, array" means that the mask is materialised as a bool array [B, 1, T, S], which
cuDNN adds to the logits; causality remains a flag, which skips half of the work. A bias
is T5's or ALiBi's. cuDNN takes it in bfloat16 (float32 gives NaN, jax#32242) and as
[1, N, T, S], whose gradient is correct (jax#30593). With an array the bias would be
[B, N, T, S], as large as the logits that a fused kernel avoids, hence XLA.

"blocks" is XLA in blocks: queries attend to their own and the neighbouring blocks, so
that memory and compute are linear in the length. With a prefix, a bias or an array the
weights are computed for all keys.

With `train.context`, the positions of a row are divided over devices. cuDNN then gets
the keys and values of the whole row and, if causal or with a window, an array;
splash is not used; "XLA" is the ring of `ops/context.py`, or with dropout of weights
XLA over all keys.

For a query without visible keys XLA returns the mean of v, the other kernels any finite
value; such a query must have no loss.
"""

import dataclasses
from typing import Any

import jax

from jaxpt.errors import DeviceError

KERNELS = ("auto", "xla", "cudnn", "splash")
BFLOAT16_CAPABILITY = 8.0  # of NVIDIA's GPUs: Ampere
# The forward kernels of fused attention: cuDNN's, and Pallas's on a TPU.
FUSED = ("dot_product_attention_fwd", "pallas_call")
RING = "ring_attention"  # the name of the results of `ops/context.py`'s ring


@dataclasses.dataclass(frozen=True)
class AttentionRequest:
    """The properties of an attention call that determine its kernel.

    Attributes:
      platform: "cpu", "nvidia" (with bfloat16), "tpu" or "other".
      num_queries, num_keys: with spans, the queries of one and all keys.
      num_spans: devices that the positions of a row are divided over.
      is_shared: whether rows and heads divide evenly among devices (`partition_specs`).
      looks_ahead_in_window: the mask has a window on both sides of a query.
      has_segments, is_array: whether the mask needs segments or an array, and not only
        a causal flag and lengths; a prefix and a bias that is not [1, N, T, S] need an
        array.
    """

    platform: str
    dtype: str
    num_queries: int
    num_keys: int
    head_width: int
    num_spans: int = 1
    is_shared: bool = True
    has_segments: bool = False
    is_array: bool = False
    has_bias: bool = False
    has_dropout: bool = False
    has_softcap: bool = False
    looks_ahead_in_window: bool = False


def select_kernel(kernel: str, need: AttentionRequest, strict: bool = True) -> str:
    """The kernel to use: "cpu", "xla", "cudnn" or "splash".

    Args:
      kernel: a setting, one of `KERNELS`.
      strict: raise an error if the named kernel does not support the request; otherwise
        XLA is used.

    >>> select_kernel("auto", AttentionRequest("nvidia", "bfloat16", 512, 512, 64))
    'cudnn'
    """
    if kernel == "auto":
        fused = {"nvidia": "cudnn", "tpu": "splash"}.get(need.platform)
        if fused and not _find_obstacle(fused, need):
            return fused
        is_written = need.platform == "cpu" and need.dtype == "float32"
        is_written &= not need.has_dropout and not need.has_softcap
        return "cpu" if is_written else "xla"
    reason = _find_obstacle(kernel, need)
    if reason and strict:
        raise DeviceError(
            f"model.attention={kernel}: must be auto or xla here: {kernel} {reason}"
        )
    return "xla" if reason else kernel


def explain_kernel(kernel: str, need: AttentionRequest) -> str:
    """The kernel to use and, if it is not the platform's fused one, the reason.

    >>> explain_kernel("auto", AttentionRequest("nvidia", "float32", 512, 512, 64))
    'xla, as cudnn needs model.dtype=bfloat16'
    """
    chosen = select_kernel(kernel, need, strict=False)
    fused = {"nvidia": "cudnn", "tpu": "splash"}.get(need.platform)
    reason = _find_obstacle(fused, need) if fused and chosen != fused else ""
    return f"{chosen}, as {fused} {reason}" if reason else chosen


def _find_obstacle(kernel: str, need: AttentionRequest) -> str:
    """The reason why a kernel does not support this request; "" if it does."""
    lengths = need.num_queries, need.num_keys
    conditions = {
        "xla": (),
        "cudnn": (
            (need.platform == "nvidia", "needs an NVIDIA GPU with bfloat16"),
            (need.dtype == "bfloat16", "needs model.dtype=bfloat16"),
            (not need.has_dropout, "has no model.attention_dropout"),
            (not need.has_softcap, "has no model.attention_softcap"),
            (not need.looks_ahead_in_window, "has no window on both sides"),
            (
                need.head_width % 8 == 0 and need.head_width <= 128,
                f"needs heads of at most 128 in steps of 8, not {need.head_width}",
            ),
            (
                not need.has_bias or not (need.has_segments or need.is_array),
                "takes relative positions only with a full or causal mask and rows "
                "that are not packed",
            ),
            (
                not (need.has_bias or need.has_segments or need.is_array)
                or all(length % 2 == 0 for length in lengths),
                "needs even lengths with packed rows or relative positions, not "
                f"{lengths[0]} and {lengths[1]}",
            ),
        ),
        "splash": (
            (need.platform == "tpu", "needs a TPU"),
            (need.is_shared, "needs rows and heads that divide evenly among devices"),
            (need.num_spans == 1, "has no train.context"),
            (not need.has_dropout, "has no model.attention_dropout"),
            (not need.has_softcap, "has no model.attention_softcap"),
            (not need.has_bias, "has no relative positions"),
            (not need.is_array, "has no prefix and no mask as an array"),
            (
                all(length % 128 == 0 for length in lengths),
                f"needs lengths that are multiples of 128, not {lengths[0]} and "
                f"{lengths[1]}",
            ),
            (
                need.head_width % 64 == 0,
                f"needs heads that are multiples of 64, not {need.head_width}",
            ),
        ),
    }
    return next((reason for is_met, reason in conditions[kernel] if not is_met), "")


def is_attention(primitive: Any, *args: Any, **params: Any) -> bool:
    """Whether an operation gives results of attention, as a `jax.checkpoint` policy."""
    return primitive.name.startswith(FUSED) or params.get("name") == RING


def find_platform() -> str:
    """The platform, as `AttentionRequest` names it."""
    device = jax.local_devices()[0]
    if device.platform in ("cpu", "tpu"):
        return device.platform
    return "nvidia" if read_capability(device) >= BFLOAT16_CAPABILITY else "other"


def has_bfloat16() -> bool:
    """Whether this machine's devices multiply in bfloat16, and do not emulate it.

    TPUs do, AMD's GPUs too, NVIDIA's from compute capability 8.0 on (a T4 has 7.5).
    """
    if jax.default_backend() == "cpu":
        return False
    return not 0 < read_capability(jax.local_devices()[0]) < BFLOAT16_CAPABILITY


def read_capability(device: Any) -> float:
    """The compute capability of an NVIDIA GPU; 0 for other devices."""
    capability = str(getattr(device, "compute_capability", ""))  # "9.0"; AMD: "gfx90a"
    is_number = capability.replace(".", "", 1).isdigit()
    return float(capability) if is_number else 0.0
