"""Adapters: their formula and their position."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from nn.adaptation.networks import BERT, make, make_batch, paths_of, shake
from tiny import slow

from jaxpt.nn.adaptation.adapt import adapted, init_extra, merge
from jaxpt.nn.adaptation.adapt_spec import AdaptSpec

HOULSBY, PFEIFFER = AdaptSpec("houlsby", size=3), AdaptSpec("pfeiffer", size=3)
both_norms = pytest.mark.parametrize("position", ["pre", "post"])


def add_all(spec, kind="encoder", batch=None, **values):
    network, params = make(kind, **values)
    batch = make_batch() if batch is None else batch
    read = lambda params: network.task_states(params, batch)  # noqa: E731
    extra = init_extra(spec, read, params, jax.random.key(0))

    @jax.jit
    def states(params, extra, rngs=None):
        with adapted(spec, extra):
            return network.task_states(params, batch, rngs=rngs)

    return states, params, extra


def norm(x, params):
    centred = x - x.mean(-1, keepdims=True)
    scaled = centred / np.sqrt(np.square(centred).mean(-1, keepdims=True) + 1e-5)
    return scaled * params["scale"] + params["bias"]


def dense(x, params):
    return x @ np.asarray(params["kernel"]) + params["bias"]


def gelu_tanh(x):
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def mlp(x, params):
    """With relu, as the tests' networks have it."""
    return dense(np.maximum(dense(x, params["up"]), 0), params["down"])


def by_hand(params, extra, spec, position, scale):
    """One layer in NumPy, whose attention adds nothing, by the norms' place.

    Args:
      scale: the factor of its branches.
    """
    ids = np.asarray(make_batch()["inputs"])
    embed, layer = params["embed"], params["encoder"]["layer_0"]
    x = np.asarray(embed["tokens"])[ids] + embed["positions"]["table"][:4]
    if position == "post":
        x = norm(x, embed["norm"])
    own = extra["encoder"]["layer_0"]
    if spec.method == "houlsby":  # of h = 0
        hidden = gelu_tanh(dense(np.zeros_like(x), own["attention"]["down"]))
        x = x + scale * dense(hidden, own["attention"]["up"])
    if position == "post":
        x = norm(x, layer["attention_norm"])
    read = norm(x, layer["mlp_norm"]) if position == "pre" else x
    h = mlp(read, layer["mlp"])
    if spec.method == "houlsby":
        hidden = gelu_tanh(dense(h, own["mlp"]["down"]))
    else:
        n = x + scale * h
        n = norm(n, layer["mlp_norm"]) if position == "post" else n
        hidden = np.maximum(dense(n, own["mlp"]["down"]), 0)
    y = x + scale * (h + dense(hidden, own["mlp"]["up"]))
    return norm(
        y, layer["mlp_norm"] if position == "post" else params["encoder"]["norm"]
    )


@pytest.mark.slow_cases("houlsby-pre-1", "houlsby-pre-2")
@pytest.mark.parametrize("position, scale", [("pre", 1), ("post", 1), ("pre", 2)])
@pytest.mark.parametrize("spec", [HOULSBY, PFEIFFER], ids=lambda spec: spec.method)
def test_a_layer_by_hand(spec, position, scale):
    values = {"norm_position": position, "activation": "relu", "num_layers": 1}
    if scale > 1:
        values |= {"parametrization": "completep", "base_depth": scale}
    states, params, extra = add_all(spec, **values)
    out = params["encoder"]["layer_0"]["attention"]["out"]
    for name in out:
        out[name] = jnp.zeros_like(out[name])
    extra = shake(extra)
    result = np.asarray(states(params, extra))
    expected = by_hand(params, extra, spec, position, scale)
    is_text = np.asarray(make_batch()["segment_ids"]) > 0
    np.testing.assert_allclose(result[is_text], expected[is_text], atol=1e-5)


@pytest.mark.slow_cases("pre")
@both_norms
def test_houlsbys_stand_after_every_sublayers_dropout(position):
    """Sublayers that give 0 show nothing of dropout, and adapters none either."""
    states, params, extra = add_all(
        HOULSBY, norm_position=position, dropout=0.5, num_layers=1
    )
    layer = params["encoder"]["layer_0"]
    for part in (layer["attention"]["out"], layer["mlp"]["down"]):
        for name in part:
            part[name] = jnp.zeros_like(part[name])
    extra = shake(extra)
    dropped = states(params, extra, {"dropout": jax.random.key(0)})
    np.testing.assert_array_equal(dropped, states(params, extra))


def test_which_sublayers_have_adapters():
    batch = make_batch()
    batch |= {"dec_inputs": batch["inputs"], "dec_segment_ids": batch["segment_ids"]}

    def places(spec):
        _, _, extra = add_all(spec, "encoder_decoder", batch)
        return {path.rpartition("/")[0].rpartition("/")[0] for path in paths_of(extra)}

    encoder = [f"encoder/layer_{i}" for i in (0, 1)]
    parts = {f"{layer}/{part}" for layer in encoder for part in ("attention", "mlp")}
    decoder = {f"decoder/layer_0/{part}" for part in ("attention", "cross", "mlp")}
    assert places(HOULSBY) == parts | decoder
    assert places(PFEIFFER) == {f"{x}/mlp" for x in (*encoder, "decoder/layer_0")}


def test_a_first_layer_without_a_norm():
    """ModernBERT's, whose input the embeddings' norm has normed."""
    states, params, extra = add_all(PFEIFFER, embed_norm=True)
    base = states(params, {})
    assert np.abs(states(params, shake(extra)) - base).max() > 1e-2


@pytest.mark.parametrize(
    "spec, std, bound",
    [
        slow(AdaptSpec("houlsby", size=512), 1e-3, 2e-3),
        (AdaptSpec("pfeiffer", size=512), 0.02, 1),
    ],
)
def test_how_they_begin(spec, std, bound):
    states, params, extra = add_all(spec, **BERT)
    own = extra["encoder"]["layer_1"]["mlp"]
    assert own["down"]["kernel"].shape == (16, 512)
    assert own["up"]["kernel"].shape == (512, 16)
    for part in own.values():
        kernel = np.asarray(part["kernel"])
        # One that is cut at two deviations has .88 of them.
        expected = 0.8796 * std if bound < 1 else std
        assert kernel.std() == pytest.approx(expected, rel=0.03)
        assert np.abs(kernel).max() <= bound
        assert not np.any(np.asarray(part["bias"]))
    if spec.method == "houlsby":
        np.testing.assert_allclose(states(params, extra), states(params, {}), atol=1e-3)


@pytest.mark.slow_cases("houlsby-bilm")
@pytest.mark.parametrize("kind", ["bilm", "skip_gram"])
@pytest.mark.parametrize("spec", [HOULSBY, PFEIFFER], ids=lambda spec: spec.method)
def test_networks_without_such_layers_are_refused(kind, spec, refuses):
    with refuses(f"adapt.method={spec.method}", "no layers of attention and MLP"):
        add_all(spec, kind)


def test_they_cannot_be_merged(refuses):
    _, params, extra = add_all(HOULSBY)
    with refuses("adapt.method=houlsby", "cannot be merged"):
        merge(HOULSBY, params, extra)
