"""Which kernel of attention is taken, from the platform, sizes and structure alone."""

import dataclasses

import jax
import jax.numpy as jnp
import pytest
from jax.sharding import AbstractMesh, AxisType, PartitionSpec, use_abstract_mesh

from jaxpt.errors import UserError
from jaxpt.ops import attention, kernel_choice, masks
from jaxpt.ops.kernel_choice import AttentionRequest, select_kernel

NVIDIA = AttentionRequest("nvidia", "bfloat16", 512, 512, 64)
TPU = dataclasses.replace(NVIDIA, platform="tpu")
CPU = AttentionRequest("cpu", "float32", 512, 512, 64)


# The changes, and the kernel on an NVIDIA GPU, on a TPU, on CPU in float32.
TABLE = [
    ({}, "cudnn", "splash", "cpu"),
    ({"has_segments": True}, "cudnn", "splash", "cpu"),
    ({"is_array": True}, "cudnn", "xla", "cpu"),
    ({"has_bias": True}, "cudnn", "xla", "cpu"),
    ({"has_bias": True, "has_segments": True}, "xla", "xla", "cpu"),
    ({"has_bias": True, "is_array": True}, "xla", "xla", "cpu"),
    ({"has_dropout": True}, "xla", "xla", "xla"),
    ({"has_softcap": True}, "xla", "xla", "xla"),
    ({"num_queries": 128}, "cudnn", "splash", "cpu"),
    ({"num_queries": 114}, "cudnn", "xla", "cpu"),
    ({"num_keys": 511}, "cudnn", "xla", "cpu"),
    ({"num_queries": 511, "has_segments": True}, "xla", "xla", "cpu"),
    ({"num_keys": 511, "has_bias": True}, "xla", "xla", "cpu"),
    ({"num_keys": 511, "is_array": True}, "xla", "xla", "cpu"),
    ({"head_width": 128}, "cudnn", "splash", "cpu"),
    ({"head_width": 24}, "cudnn", "xla", "cpu"),
    ({"head_width": 20}, "xla", "xla", "cpu"),
    ({"head_width": 136}, "xla", "xla", "cpu"),
    ({"head_width": 256}, "xla", "splash", "cpu"),
    ({"is_shared": False}, "cudnn", "xla", "cpu"),
    ({"num_spans": 2}, "cudnn", "xla", "cpu"),
    ({"looks_ahead_in_window": True}, "xla", "splash", "cpu"),
]


@pytest.mark.parametrize("changes, nvidia, tpu, cpu", TABLE, ids=lambda x: str(x))
def test_auto_takes_the_fused_kernel_that_can(changes, nvidia, tpu, cpu):
    for need, expected in ((NVIDIA, nvidia), (TPU, tpu), (CPU, cpu)):
        assert select_kernel("auto", dataclasses.replace(need, **changes)) == expected


def test_precision_and_platform_matter():
    def auto(need, **changes):
        return select_kernel("auto", dataclasses.replace(need, **changes))

    assert auto(NVIDIA, dtype="float32") == "xla"
    assert auto(TPU, dtype="float32") == "splash"
    assert auto(CPU, dtype="bfloat16") == "xla"
    assert auto(NVIDIA, platform="other") == "xla"


@pytest.mark.parametrize(
    "kernel, need, changes, lacking",
    [
        ("cudnn", CPU, {}, "cudnn needs an NVIDIA GPU"),
        ("cudnn", NVIDIA, {"dtype": "float32"}, "cudnn needs model.dtype=bfloat16"),
        ("cudnn", NVIDIA, {"has_dropout": True}, "has no model.attention_dropout"),
        ("cudnn", NVIDIA, {"has_softcap": True}, "has no model.attention_softcap"),
        ("splash", TPU, {"has_softcap": True}, "has no model.attention_softcap"),
        ("cudnn", NVIDIA, {"head_width": 20}, "at most 128 in steps of 8, not 20"),
        (
            "cudnn",
            NVIDIA,
            {"has_bias": True, "has_segments": True},
            "relative positions only with a full or causal mask",
        ),
        (
            "cudnn",
            NVIDIA,
            {"has_segments": True, "num_keys": 511},
            "even lengths with packed rows or relative positions, not 512 and 511",
        ),
        ("splash", NVIDIA, {}, "splash needs a TPU"),
        (
            "splash",
            TPU,
            {"is_shared": False},
            "rows and heads that divide evenly among devices",
        ),
        ("splash", TPU, {"num_spans": 2}, "has no train.context"),
        ("splash", TPU, {"has_dropout": True}, "has no model.attention_dropout"),
        ("splash", TPU, {"has_bias": True}, "has no relative positions"),
        ("splash", TPU, {"is_array": True}, "has no prefix"),
        ("splash", TPU, {"num_queries": 64}, "multiples of 128, not 64 and 512"),
        ("splash", TPU, {"head_width": 96}, "multiples of 64, not 96"),
    ],
)
def test_a_kernel_that_was_named_and_cannot_is_refused(
    kernel, need, changes, lacking, refuses
):
    need = dataclasses.replace(need, **changes)
    with refuses(f"model.attention={kernel}: must be auto or xla here: ", lacking):
        select_kernel(kernel, need)
    assert select_kernel(kernel, need, strict=False) == "xla"
    assert select_kernel("auto", need) != kernel


def test_a_kernel_that_was_named_and_can_is_taken():
    assert (
        select_kernel("cudnn", NVIDIA)
        == select_kernel("cudnn", NVIDIA, False)
        == "cudnn"
    )
    assert select_kernel("splash", TPU) == "splash"
    assert all(select_kernel("xla", need) == "xla" for need in (NVIDIA, TPU, CPU))


ONES = jnp.ones((1, 4, 2, 8), jnp.bfloat16)
IDS = jnp.ones((1, 4), jnp.int32)
LENGTHS = jnp.ones(1, jnp.int32)


@pytest.mark.slow_cases("False-mask0-features0")
@pytest.mark.parametrize(
    "mask, features",
    [
        (masks.full(), {}),
        (masks.causal(), {}),
        (masks.key_padding(LENGTHS), {}),
        (masks.segments(IDS), {"has_segments": True}),
        (masks.causal(IDS), {"has_segments": True}),
        (masks.prefix(LENGTHS), {"is_array": True}),
        (masks.prefix_keys(IDS > 0), {"is_array": True}),
        (masks.prefix_keys(IDS > 0, IDS), {"is_array": True, "has_segments": True}),
        (jnp.ones((1, 1, 4, 4), bool), {"is_array": True}),
    ],
)
@pytest.mark.parametrize("with_bias", [False, True])
def test_what_a_mask_asks_for(mask, features, with_bias, monkeypatch):
    needs = []
    monkeypatch.setattr(
        kernel_choice,
        "select_kernel",
        lambda kernel, need, _: needs.append(need) or "xla",
    )
    bias = jnp.zeros((1, 2, 4, 4)) if with_bias else None
    attention.attend(ONES, ONES, ONES, mask, bias)
    # Under jit the arrays have no values to look at.
    jax.jit(lambda mask: attention.attend(ONES, ONES, ONES, mask, bias))(mask)
    expected = AttentionRequest(
        "cpu", "bfloat16", 4, 4, 8, has_bias=with_bias, **features
    )
    assert needs == [expected, expected]
    if with_bias:  # one for each row has the size of the logits
        attention.attend(ONES, ONES, ONES, mask, jnp.zeros((1, 1, 4, 4)))
        assert needs[2].is_array


def test_the_refusal_reaches_whoever_asks_for_attention():
    for rate in (0.0, 0.5):
        with pytest.raises(UserError, match="cudnn needs an NVIDIA GPU"):
            key = jax.random.key(0)
            attention.attend(
                ONES, ONES, ONES, masks.full(), None, rate, key, kernel="cudnn"
            )
    args = ONES, ONES, ONES, masks.full()
    result = attention.attend(*args, kernel="cudnn", strict=False)
    assert (result == attention.attend(*args)).all()


@pytest.mark.parametrize(
    "platform, capability, expected",
    [
        ("cpu", None, "cpu"),
        ("tpu", None, "tpu"),
        ("gpu", "9.0", "nvidia"),
        ("gpu", "10.3", "nvidia"),
        ("gpu", "8.0", "nvidia"),
        ("gpu", "7.5", "other"),
        ("gpu", "gfx942", "other"),
        ("gpu", None, "other"),
        ("metal", None, "other"),
    ],
)
def test_platforms(platform, capability, expected, monkeypatch):
    values = {"platform": platform}
    if capability:
        values["compute_capability"] = capability
    monkeypatch.setattr(jax, "local_devices", lambda: [type("Device", (), values)()])
    assert kernel_choice.find_platform() == expected


def test_rows_and_heads_are_shared_out_over_the_mesh_in_context(monkeypatch):
    assert attention.partition_specs(3, 5) == ()  # one device
    monkeypatch.setattr(jax, "device_count", lambda: 8)
    assert attention.partition_specs(8, 4) is None  # the sharding is unknown
    shape, names = (2, 2, 2), ("data", "fsdp", "tensor")
    automatic = (AxisType.Auto,) * 3
    with use_abstract_mesh(AbstractMesh(shape, names, axis_types=automatic)):
        rows, heads = attention.partition_specs(8, 4)
        assert rows == PartitionSpec(("data", "fsdp"), "tensor")
        assert heads == PartitionSpec(("data", "fsdp"))
        assert (
            attention.partition_specs(6, 4) is attention.partition_specs(8, 3) is None
        )
    names = ("data", "fsdp", "context", "tensor")
    with use_abstract_mesh(
        AbstractMesh((2, 1, 2, 2), names, axis_types=4 * automatic[:1])
    ):
        assert attention.partition_specs(2, 4)[0] == PartitionSpec(
            ("data", "fsdp"), "tensor"
        )
    with use_abstract_mesh(AbstractMesh((8,), ("data",), axis_types=automatic[:1])):
        assert attention.partition_specs(8, 3)[0] == PartitionSpec(("data",), None)


def test_splash_gives_each_device_its_own_rows_and_heads(monkeypatch):
    monkeypatch.setattr(jax, "device_count", lambda: 8)
    monkeypatch.setattr(kernel_choice, "find_platform", lambda: "tpu")
    mask = masks.causal(jnp.ones((8, 128), jnp.int32))
    q = jax.ShapeDtypeStruct((8, 128, 4, 64), jnp.bfloat16)
    k = jax.ShapeDtypeStruct((8, 128, 2, 64), jnp.bfloat16)

    def trace():
        run = jax.make_jaxpr(lambda q, k, v: attention.attend(q, k, v, mask))
        return str(run(q, k, k))

    assert "pallas_call" not in trace()  # without a mesh, XLA's
    # As jaxpt's own meshes are; of an abstract one it is not the default everywhere.
    mesh = AbstractMesh((4, 2), ("data", "tensor"), axis_types=2 * (AxisType.Auto,))
    with use_abstract_mesh(mesh):
        program = trace()
    assert "shard_map" in program and "pallas_call" in program
    assert "bf16[2,2,128,64]" in program and "bf16[2,1,128,64]" in program
