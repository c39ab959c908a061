"""ModelSpec refuses what no model can be, in one line that names the setting."""

import dataclasses
import json
import types

import jax
import pytest

from jaxpt.nn.model_differences import COMPUTING, LAYOUT, TRAINING, find_differences
from jaxpt.nn.model_spec import ModelSpec


def test_widths_follow_from_the_others():
    spec = ModelSpec(d_model=96, num_heads=4)
    assert (spec.embedding_dim, spec.head_width) == (96, 24)
    assert ModelSpec(d_model=96, num_heads=4, embedding_size=32).embedding_dim == 32


@pytest.mark.parametrize(
    "backend, capability, expected",
    [
        ("cpu", None, "float32"),
        ("tpu", None, "bfloat16"),
        ("gpu", "7.5", "float32"),  # T4
        ("gpu", "8.0", "bfloat16"),
        ("gpu", "12.0", "bfloat16"),
        ("gpu", "gfx90a", "bfloat16"),  # AMD
    ],
)
def test_the_dtype_follows_the_device_unless_it_is_said(
    backend, capability, expected, monkeypatch
):
    device = types.SimpleNamespace(compute_capability=capability)
    monkeypatch.setattr(jax, "default_backend", lambda: backend)
    monkeypatch.setattr(jax, "local_devices", lambda: [device])
    assert ModelSpec().dtype == "auto" and ModelSpec().compute_dtype == expected
    for dtype in ("float32", "bfloat16"):
        assert ModelSpec(dtype=dtype).compute_dtype == dtype


def test_directions_are_the_objectives_unless_they_are_said():
    relative = ModelSpec(positions="relative")
    assert relative.direct(True).relative_directions == "both"
    assert relative.direct(False).relative_directions == "past"
    assert not relative.direct(False).is_bidirectional
    spec = ModelSpec(positions="relative", relative_directions="both")
    assert spec.direct(False) == spec and spec.is_bidirectional
    assert ModelSpec().direct(False) == ModelSpec()  # of others nothing depends on it


def test_a_spec_of_json_has_tuples():
    scaling = (8.0, 1.0, 4.0, 64)
    values = dataclasses.asdict(ModelSpec(rotary_scaling=scaling))
    spec = ModelSpec(**json.loads(json.dumps(values)))
    assert spec.rotary_scaling == scaling and hash(spec)


def test_windows_that_no_layer_has_make_no_other_model():
    plain = ModelSpec(num_layers=3)
    assert not find_differences(
        plain, ModelSpec(num_layers=3, window=8, global_every=1)
    )
    one, two = (ModelSpec(num_layers=3, window=8, global_every=n) for n in (3, 9))
    assert not find_differences(one, two)  # the first layer alone sees all
    assert find_differences(plain, one)


# Another value for each field that is neither a number nor a yes or no.
OTHER = {
    "norm": "rmsnorm",
    "qk_norm": "scaled",
    "qkv_bias": "no",
    "out_bias": "no",
    "up_bias": "no",
    "down_bias": "no",
    "attention_out_norm": "after",
    "head_activation": "relu2",
    "transform_bias": "no",
    "norm_position": "post",
    "activation": "relu",
    "positions": "none",
    "rotary_scaling": (8.0, 1.0, 4.0, 64.0),
    "rotary_factors": (8.0, 1.2, *[1.0] * 16, *[2.0] * 16),
    "relative_directions": "past",
    "sinusoids": "halves",
    "decoder_window": 3,
    "token_dropout": 3,
    "disentangled": "both",
    "multipliers": (12.0, 0.25, 8.0),
    "init": "t5",
    "parametrization": "completep",
    "dtype": "bfloat16",
    "attention": "xla",
    "remat": "full",
}
# What must be so for a field to matter, or to be allowed to change.
WHERE = {
    "position_offset": {"positions": "learned"},
    "max_len": {"positions": "learned"},
    "rotary_base": {"positions": "rotary"},
    "rotary_scaling": {"positions": "rotary"},
    "rotary_factors": {"positions": "rotary"},
    "rotary_fraction": {"positions": "rotary", "head_dim": 20},
    "positions": {"positions": "learned"},
    "relative_buckets": {"relative_max_distance": 256},
    "num_heads": {"head_dim": 8},
    "num_kv_heads": {"num_heads": 8},
    "global_every": {"window": 8, "num_layers": 6},
    "relative_bias": {"positions": "learned"},
    "disentangled": {"positions": "none"},
    "disentangled_projections": {"positions": "none", "disentangled": "both"},
    "disentangled_norm": {"positions": "none", "disentangled": "both"},
    "global_last": {"window": 8, "num_layers": 6, "global_every": 2},
    "unrotated_every": {"positions": "rotary", "num_layers": 4},
    "shared_norm": {"parallel_residual": True},
    "first_norm": {"embed_norm": True},
    "post_embed_norm": {"norm_position": "post"},
    "sinusoids": {"positions": "sinusoidal"},
    "decoder_window": {"num_decoder_layers": 2},
    "transform_size": {"head_transform": True, "tie_embeddings": False},
    "decoder_tokens": {"num_decoder_layers": 2},
    "transform_bias": {"head_transform": True},
    "local_rotary_base": {"positions": "rotary", "window": 8},
    "base_width": {"parametrization": "completep"},
    "base_depth": {"parametrization": "completep"},
}


@pytest.mark.parametrize("field", [f.name for f in dataclasses.fields(ModelSpec)])
def test_specs_differ_in_all_that_is_not_computing_or_training(field):
    values = {"positions": "relative", "dtype": "float32"} | WHERE.get(field, {})
    spec = ModelSpec(**values)
    old = getattr(spec, field)
    if isinstance(old, bool):
        new = not old
    elif isinstance(old, float):
        new = old / 2 + 0.1
    else:
        new = OTHER.get(field, old * 2 if isinstance(old, int) and old else 4)
    other = dataclasses.replace(spec, **{field: new})
    result = dict(find_differences(spec, other))
    is_free = field in (*COMPUTING, *TRAINING)
    assert (result.get(field) == new) != is_free and bool(result) != is_free
    assert field not in dict(find_differences(spec, other, free=(field,)))
    assert not set(LAYOUT) & {*COMPUTING, *TRAINING}


@pytest.mark.parametrize("scaling", [(), (2.0,)])
def test_a_local_base_differs_from_none_if_positions_are_scaled(scaling):
    """Local layers with a base of their own are not scaled."""
    shared = {"positions": "rotary", "window": 3, "rotary_base": 7.0}
    shared["rotary_scaling"] = scaling
    specs = ModelSpec(**shared), ModelSpec(**shared, local_rotary_base=7.0)
    assert bool(find_differences(*specs)) == bool(scaling)


@pytest.mark.parametrize(
    "shared, one, two",
    [
        ({}, {"rotary_base": 5.0}, {"rotary_base": 6.0}),
        ({}, {"rotary_fraction": 0.5}, {}),
        ({}, {"unrotated_every": 1}, {}),
        ({}, {"attention_scalar": 32}, {}),
        ({"scale_attention": False, "head_dim": 8}, {}, {"global_last": True}),
        ({"window": 3}, {"global_every": 0}, {"global_every": 3, "global_last": True}),
        ({"window": 3, "global_every": 1}, {"global_last": True}, {}),
        ({"positions": "rotary"}, {"unrotated_every": 3}, {"unrotated_every": 4}),
        ({}, {"rotary_scaling": (8.0, 1.0, 4.0, 64.0)}, {}),
        ({}, {"relative_directions": "past"}, {"relative_directions": "both"}),
        ({"positions": "relative"}, {}, {"relative_directions": "both"}),
        ({"positions": "none"}, {"position_offset": 1, "max_len": 9}, {}),
        ({"norm": "rmsnorm"}, {"norm_bias": True}, {"norm_bias": False}),
        ({}, {"down_bias": "auto"}, {"down_bias": "yes"}),
        ({}, {"head_activation": "auto"}, {"head_activation": "gelu"}),
        ({}, {"head_dim": 0, "num_kv_heads": 0}, {"head_dim": 32, "num_kv_heads": 4}),
        ({}, {"embedding_size": 0}, {"embedding_size": 128}),
        ({}, {"qkv_bias": "auto"}, {"qkv_bias": "yes"}),
        ({"use_bias": False}, {"qkv_bias": "auto"}, {"qkv_bias": "no"}),
    ],
)
def test_what_nothing_depends_on_makes_no_difference(shared, one, two):
    specs = [ModelSpec(**shared | values) for values in (one, two)]
    assert specs[0] != specs[1] and find_differences(*specs) == []


def test_rows_of_any_length_have_no_one_list_of_factors(refuses):
    """And generation, whose rows grow, stays within the first."""
    spec = ModelSpec(positions="rotary", max_len=64)
    assert spec.generation_len == 64 and spec.choose_factors("any") is spec
    factors = (8.0, 1.2, *[1.0] * 16, *[2.0] * 16)
    spec = dataclasses.replace(spec, rotary_factors=factors)
    assert spec.generation_len == 8
    assert spec.choose_factors(9).rotary_factors[2:] == (2.0,) * 32
    with refuses("model.rotary_factors=(8.0,)", "any length"):
        spec.choose_factors("any")
