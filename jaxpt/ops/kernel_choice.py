"""Which kernel computes attention: the fastest one that is able.

The choice depends on the platform, on sizes and on the mask's structure, never on
values:

| mask, bias                   | NVIDIA GPU       | TPU              | elsewhere |
|------------------------------|------------------|------------------|-----------|
| all keys, or causal          | cuDNN            | splash           | XLA       |
| key lengths, or causal + them| cuDNN, lengths   | splash, segments | XLA       |
| packed segments, causal + so | cuDNN, array     | splash, segments | XLA       |
| prefix, or a bool array      | cuDNN, array     | XLA              | XLA       |
| T5's bias, with the first two| cuDNN, bfloat16  | XLA              | XLA       |
| T5's bias, with the others   | XLA              | XLA              | XLA       |
| dropout of weights, training | XLA              | XLA              | XLA       |
| window, causal, no array     | cuDNN            | splash           | blocks    |
| window on both sides         | blocks           | splash           | blocks    |

On CPU in float32 and without dropout of weights, "XLA" is the hand-written form of
`ops/cpu.py`. The fused kernels have conditions, and where one is not met XLA is used:
cuDNN needs bfloat16, compute capability 8.0, a head width of at most 128 in steps of 8,
and even lengths where there is a bias or an array; splash needs lengths that are
multiples of 128, a head width that is a multiple of 64, and rows and heads that divide
evenly among the devices: `jit` cannot partition it, so the mesh in context says which
device has which.

"cuDNN, array" means that the mask is materialised as a bool array [B, 1, T, S], which
cuDNN adds to the logits; causality remains a flag, which skips half of the work. cuDNN
takes T5's bias in bfloat16 (float32 gives NaN, jax#32242), and as [1, N, T, S], whose
gradient is known to be right (jax#30593); with an array it would be [B, N, T, S], as
large as the logits that a fused kernel is to avoid, hence XLA.

"blocks" are XLA's: the queries of a block see their own and the neighbouring blocks, so
that memory and work are linear in the length. A prefix, a bias and an array have the
whole array of weights instead.

For a query without visible keys XLA gives the mean of v, and the others something
finite; such a query must have no loss.
"""

import dataclasses

import jax

from jaxpt.errors import UserError

KERNELS = ("auto", "xla", "cudnn", "splash")


@dataclasses.dataclass(frozen=True)
class AttentionRequest:
    """The properties of a call to attention that the choice of a kernel depends on.

    Attributes:
      platform: "cpu", "nvidia" (with bfloat16), "tpu" or "other".
      is_shared: whether rows and heads divide evenly among devices (`partition_specs`).
      looks_ahead_in_window: the mask has a window on both sides of a query.
      has_segments, is_array: what the mask needs beyond a causal flag and lengths; a
        prefix needs an array too, as does a bias that is not [1, N, T, S].
    """

    platform: str
    dtype: str
    num_queries: int
    num_keys: int
    head_width: int
    is_shared: bool = True
    has_segments: bool = False
    is_array: bool = False
    has_bias: bool = False
    has_dropout: bool = False
    looks_ahead_in_window: bool = False


def select_kernel(kernel: str, need: AttentionRequest, strict: bool = True) -> str:
    """The kernel to use: "cpu", "xla", "cudnn" or "splash".

    Args:
      kernel: a setting, one of `KERNELS`.
      strict: whether a fused kernel that is named but not able is an error; if not, XLA
        replaces it.

    Raises:
      UserError: `strict`, and the named kernel is not able.

    >>> select_kernel("auto", AttentionRequest("nvidia", "bfloat16", 512, 512, 64))
    'cudnn'
    """
    if kernel == "auto":
        fused = {"nvidia": "cudnn", "tpu": "splash"}.get(need.platform)
        if fused and not _lacks(fused, need):
            return fused
        is_written = need.platform == "cpu" and need.dtype == "float32"
        return "cpu" if is_written and not need.has_dropout else "xla"
    lacks = _lacks(kernel, need)
    if lacks and strict:
        raise UserError(
            f"model.attention={kernel}: must be auto or xla here: {kernel} {lacks}"
        )
    return "xla" if lacks else kernel


def explain_kernel(kernel: str, need: AttentionRequest) -> str:
    """The kernel to use, and why it is not the platform's fused one, if it is not.

    >>> explain_kernel("auto", AttentionRequest("nvidia", "float32", 512, 512, 64))
    'xla, as cudnn needs model.dtype=bfloat16'
    """
    chosen = select_kernel(kernel, need, strict=False)
    fused = {"nvidia": "cudnn", "tpu": "splash"}.get(need.platform)
    why = _lacks(fused, need) if fused and chosen != fused else ""
    return f"{chosen}, as {fused} {why}" if why else chosen


def _lacks(kernel: str, need: AttentionRequest) -> str:
    """Why a kernel cannot serve this request; "" if it can."""
    lengths = need.num_queries, need.num_keys
    conditions = {
        "xla": (),
        "cudnn": (
            (need.platform == "nvidia", "needs an NVIDIA GPU with bfloat16"),
            (need.dtype == "bfloat16", "needs model.dtype=bfloat16"),
            (not need.has_dropout, "has no model.attention_dropout"),
            (not need.looks_ahead_in_window, "has no window on both sides"),
            (
                need.head_width % 8 == 0 and need.head_width <= 128,
                f"needs heads of at most 128 in steps of 8, not {need.head_width}",
            ),
            (
                not need.has_bias or not (need.has_segments or need.is_array),
                "takes relative positions only of rows that are not packed",
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
            (not need.has_dropout, "has no model.attention_dropout"),
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
    return next((why for is_met, why in conditions[kernel] if not is_met), "")


def find_platform() -> str:
    """The platform, as `AttentionRequest` names it."""
    device = jax.local_devices()[0]
    if device.platform in ("cpu", "tpu"):
        return device.platform
    capability = str(getattr(device, "compute_capability", ""))  # "9.0"; AMD: "gfx90a"
    is_number = capability.replace(".", "", 1).isdigit()
    return "nvidia" if is_number and float(capability) >= 8 else "other"
