"""The LSTM and the characters' network by hand, by ELMo's own numbers, by PyTorch."""

import dataclasses
import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from nn.hdf5 import read_hdf5
from shared import find_shared

from jaxpt.nn import recurrent
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.nn.recurrent import CharCnn, Lstm, LstmStack, ScalarMix, mix_layers

SPEC = ModelSpec(num_layers=2, d_model=6, num_heads=2, d_ff=10)


def sigmoid(x):
    return 1 / (1 + np.exp(-x))


def lstm(params, x, clip, fresh=()):
    """One row [T, D], step by step: the equations of TensorFlow's LSTMCell."""
    cell, out, result = 0, np.zeros(params["project"].shape[1]), []
    for t, now in enumerate(x):
        if t in fresh:
            cell, out = 0, 0 * out
        gates = now @ params["input"]["kernel"] + out @ params["state"]
        i, j, f, o = np.split(gates + params["input"]["bias"], 4)
        cell = sigmoid(f + 1) * cell + sigmoid(i) * np.tanh(j)
        cell = np.clip(cell, -clip, clip)
        out = np.clip((sigmoid(o) * np.tanh(cell)) @ params["project"], -clip, clip)
        result.append(out)
    return np.stack(result)


def draw(module, *args, scale=1.0, **kwargs):
    """Parameters far from where they begin."""
    make = np.random.default_rng(0).normal
    shapes = jax.eval_shape(
        lambda key: module.init(key, *args, **kwargs)["params"], jax.random.key(0)
    )
    return jax.tree.map(lambda x: jnp.float32(make(0, scale, x.shape)), shapes)


@pytest.mark.slow_except("True-*")
@pytest.mark.parametrize("clip", [3.0, 0.4])
@pytest.mark.parametrize("is_reversed", [False, True])
def test_the_cell_by_hand(clip, is_reversed):
    x = np.random.default_rng(1).normal(0, 1, (2, 7, 6)).astype(np.float32)
    fresh = np.zeros((2, 7), bool)
    fresh[0, 3] = fresh[1, 5] = True
    layer = Lstm(SPEC, clip, clip, is_reversed)
    params = draw(layer, x, fresh)
    result = layer.apply({"params": params}, x, jnp.asarray(fresh))
    turn = (lambda a: a[::-1]) if is_reversed else lambda a: a
    for row in range(2):
        cuts = np.flatnonzero(turn(fresh[row]))
        expected = turn(lstm(params, turn(x[row]), clip, cuts))
        np.testing.assert_allclose(result[row], expected, rtol=2e-4, atol=2e-5)
    assert np.abs(result).max() <= clip
    assert clip > 1 or (np.abs(result) > clip - 1e-6).any()


@pytest.mark.slow_except("True")
@pytest.mark.parametrize("is_reversed", [False, True])
def test_its_gradient_is_autodiffs(is_reversed, monkeypatch):
    draw = np.random.default_rng(1).normal
    shapes = {"gates": (3, 9, 40), "state": (6, 40), "project": (10, 6)}
    made = {k: jnp.float32(draw(0, 0.7, shape)) for k, shape in shapes.items()}
    fresh = jnp.zeros((3, 9), bool).at[1, 4].set(True).at[0, 2].set(True)
    counts, how = draw(0, 1, (3, 9, 6)), ((0.5, 0.5), is_reversed, jnp.float32)

    def gradient(gates, state, project):
        return (recurrent._run(gates, fresh, state, project, *how) * counts).sum()

    def plain(gates, state, project):
        rest = jnp.zeros((3, 9, 6)), fresh, state, project
        return (recurrent._steps(gates, *rest, *how)[0] * counts).sum()

    result = jax.jit(jax.grad(gradient, argnums=(0, 1, 2)))(*made.values())
    monkeypatch.setattr(recurrent, "_push", jnp.dot)
    expected = jax.jit(jax.grad(plain, argnums=(0, 1, 2)))(*made.values())
    for a, b in zip(result, expected, strict=True):
        np.testing.assert_allclose(a, b, rtol=1e-4, atol=1e-5)
    # Both clips stop some of it.
    assert 0.02 < float((result[0] == 0).mean()) < 0.9


@pytest.mark.slow_except("True")
@pytest.mark.parametrize("is_reversed", [False, True])
def test_it_reads_one_way_only_and_never_over_a_border(is_reversed):
    x = jnp.float32(np.random.default_rng(1).normal(0, 1, (1, 8, 6)))
    fresh = jnp.zeros((1, 8), bool).at[0, 3 if is_reversed else 4].set(True)
    layer = Lstm(SPEC, is_reversed=is_reversed)
    params = draw(layer, x, fresh)
    read = lambda x: layer.apply({"params": params}, x, fresh)[0]  # noqa: E731
    reach = jax.jit(jax.jacobian(read))(x)
    seen = np.abs(reach[:, :, 0]).max((1, 3)) > 0  # [to, from]
    way = np.tri(8, dtype=bool).T if is_reversed else np.tri(8, dtype=bool)
    apart = np.arange(8) >= 4
    np.testing.assert_array_equal(seen, way & (apart[:, None] == apart))


def test_a_layers_input_is_added_from_the_second_on():
    """Guards against a skip round the first layer too, which bilm-tf has not."""
    x = jnp.float32(np.random.default_rng(1).normal(0, 1, (1, 5, 6)))
    fresh = jnp.zeros((1, 5), bool)
    stack = LstmStack(SPEC, 3.0, 3.0, False)
    params = draw(stack, x, fresh, deterministic=True)
    first, second = stack.apply({"params": params}, x, fresh, deterministic=True)
    expected = lstm(params["lstm_0"], x[0], 3.0)
    np.testing.assert_allclose(first[0], expected, rtol=1e-4, atol=1e-5)
    expected = expected + lstm(params["lstm_1"], expected, 3.0)
    np.testing.assert_allclose(second[0], expected, rtol=1e-3, atol=1e-4)


def test_words_by_hand():
    cnn = CharCnn(SPEC, char_width=3, filters=(2, 4), num_highway=1)
    chars = jnp.asarray([recurrent.spell(b"cat", 6), recurrent.spell(b"a", 6)])
    params = jax.device_get(draw(cnn, chars))
    result = cnn.apply({"params": params}, chars)
    for row, vector in zip(params["table"][chars], result, strict=True):
        parts = []
        for width in (1, 2):
            kernel, bias = (params[f"filter_{width}"][k] for k in ("kernel", "bias"))
            places = range(6 - width + 1)
            scores = [row[p : p + width].ravel() @ kernel + bias for p in places]
            parts.append(np.maximum(np.max(scores, axis=0), 0))
        x = np.concatenate(parts)
        carry, change = (
            x @ params[n]["kernel"] + params[n]["bias"]
            for n in ("carry_0", "transform_0")
        )
        # The gate weighs the transform, and passes the input if it is low.
        x = sigmoid(carry) * np.maximum(change, 0) + (1 - sigmoid(carry)) * x
        expected = x @ params["project"]["kernel"] + params["project"]["bias"]
        np.testing.assert_allclose(vector, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.slow
def test_fresh_parameters_are_those_of_the_source():
    chars = jnp.zeros((1, 50), jnp.int32)
    cnn = CharCnn(SPEC, 16, (32, 32, 64, 128, 256, 512, 1024), 2)
    params = cnn.init(jax.random.key(0), chars)["params"]
    assert params["table"].shape == (261, 16) and np.abs(params["table"]).max() <= 1
    assert params["filter_7"]["kernel"].shape == (7 * 16, 1024)
    assert np.abs(params["filter_7"]["kernel"]).max() <= 0.05
    assert (params["carry_1"]["bias"] == -2).all()
    assert (params["transform_1"]["bias"] == 0).all()
    assert params["carry_0"]["kernel"].std() == pytest.approx(2048**-0.5, rel=0.01)


def test_the_spelling_is_allennlps():
    """Bytes of UTF-8 between 258 and 259, padded with 260; at most 48 of them."""
    assert recurrent.spell("ü".encode(), 6) == [258, 0xC3, 0xBC, 259, 260, 260]
    long = recurrent.spell(b"x" * 60, 50)
    assert len(long) == 50 and long[-1] == 259 and long.count(ord("x")) == 48
    marks = {2: recurrent.BEGIN_TEXT}
    table = recurrent.spell_table((b"a", b"", b"[BOS]"), 4, 5, marks)
    assert table.tolist() == [
        [258, 97, 259, 260, 260],
        [258, 259, 260, 260, 260],
        [258, 256, 259, 260, 260],
        [258, 259, 260, 260, 260],
    ]


def test_the_mix_of_allennlps_test():
    """tests/modules/scalar_mix_test.py: w = (.1, .2, .3), gamma = .5."""
    layers = np.random.default_rng(0).normal(0, 1, (3, 4, 5)).astype(np.float32)
    weights = np.array([0.1, 0.2, 0.3])
    shares = np.exp(weights) / np.exp(weights).sum()
    expected = 0.5 * sum(s * x for s, x in zip(shares, layers, strict=True))
    result = mix_layers(jnp.asarray(layers), jnp.asarray(weights), 0.5)
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)
    # As a module it begins as the mean.
    result, variables = ScalarMix().init_with_output(jax.random.key(0), layers)
    np.testing.assert_allclose(result, layers.mean(0), rtol=1e-5, atol=1e-6)
    assert variables["params"]["weights"].tolist() == [0, 0, 0]
    assert variables["params"]["gamma"] == 1


def elmo():
    """The fixture of allennlp/test_fixtures/elmo, if available."""
    return find_shared("oracles/elmo", "ELMo's own embeddings of its own weights")


def read_layer(weights, direction, layer):
    """bilm-tf's one kernel is of the input's rows, then the state's."""
    path = f"RNN_{direction}/RNN/MultiRNNCell/Cell{layer}/LSTMCell"
    kernel, width = weights[f"{path}/W_0"], weights[f"{path}/W_P_0"].shape[1]
    return {
        "input": {"kernel": kernel[:-width], "bias": weights[f"{path}/B"]},
        "state": kernel[-width:],
        "project": weights[f"{path}/W_P_0"],
    }


@pytest.mark.slow
def test_the_published_fixture():
    """AllenNLP's biLM on its 30 sentences: `test_elmo_bilm`, atol 1e-6 there.

    Its states continue from sentence to sentence, in either direction: so the sentences
    of a file are one row for each direction, those of the backward one turned round.
    """
    folder = elmo()
    options = json.loads((folder / "options.json").read_text())
    sizes, char_cnn = options["lstm"], options["char_cnn"]
    weights = read_hdf5(folder / "lm_weights.hdf5")
    spec = dataclasses.replace(
        SPEC,
        d_model=sizes["projection_dim"],
        d_ff=sizes["dim"],
        num_layers=sizes["n_layers"],
        dtype="float32",
    )
    filters = tuple(number for _, number in char_cnn["filters"])
    cnn = CharCnn(spec, 4, filters, char_cnn["n_highway"])
    words = {"table": weights["char_embed"]}
    for i in range(len(filters)):
        kernel = weights[f"CNN/W_cnn_{i}"]
        bias = weights[f"CNN/b_cnn_{i}"]
        words[f"filter_{i + 1}"] = {
            "kernel": kernel.reshape(-1, bias.size),
            "bias": bias,
        }
    for i in range(char_cnn["n_highway"]):
        for name in ("carry", "transform"):
            parts = [weights[f"CNN_high_{i}/{kind}_{name}"] for kind in "Wb"]
            words[f"{name}_{i}"] = dict(zip(("kernel", "bias"), parts, strict=True))
    parts = [weights[f"CNN_proj/{kind}_proj"] for kind in "Wb"]
    words["project"] = dict(zip(("kernel", "bias"), parts, strict=True))

    def spell(word):
        marks = {"<S>": [256], "</S>": [257]}
        return recurrent.spell_chars(marks.get(word, list(word.encode())), 50)

    for k, sentences in enumerate(json.loads((folder / "sentences.json").read_text())):
        expected = read_hdf5(folder / f"lm_embeddings_{k}.hdf5")
        texts = [["<S>", *text.split(), "</S>"] for text in sentences]
        for direction in (0, 1):
            read = [text[::-1] if direction else text for text in texts]
            chars = np.array([spell(word) for text in read for word in text])
            x = jax.jit(cnn.apply)({"params": words}, jnp.asarray(chars[None]))
            layers = {f"lstm_{i}": read_layer(weights, direction, i) for i in (0, 1)}
            stack = LstmStack(spec, sizes["cell_clip"], sizes["proj_clip"], False)
            fresh = jnp.zeros(x.shape[:2], bool)
            top = stack.apply({"params": layers}, x, fresh, deterministic=True)[-1][0]
            ends = np.cumsum([len(text) for text in texts])
            for i, end in enumerate(ends):
                result = top[end - len(texts[i]) : end]
                result = (result[::-1] if direction else result)[1:-1]
                assert result.shape == expected[str(i)][direction].shape
                np.testing.assert_allclose(
                    result, expected[str(i)][direction], atol=2e-6, rtol=1e-5
                )


@pytest.mark.peers
def test_the_cell_is_pytorchs_but_for_the_clip():
    """torch.nn.LSTM with proj_size: gates i f g o, no bias on the forget gate."""
    torch = pytest.importorskip("torch")
    x = np.random.default_rng(1).normal(0, 1, (2, 7, 6)).astype(np.float32)
    fresh = jnp.zeros((2, 7), bool)
    layer = Lstm(SPEC, 1e9, 1e9)
    params = jax.device_get(draw(layer, x, fresh, scale=0.5))
    reference = torch.nn.LSTM(6, 10, proj_size=6, batch_first=True)

    def turn(kernel):
        i, j, f, o = np.split(np.array(kernel), 4, axis=-1)
        return torch.from_numpy(np.concatenate([i, f, j, o], axis=-1).T.copy())

    bias = params["input"]["bias"].copy()
    bias[20:30] += 1  # TensorFlow's forget bias
    with torch.no_grad():
        reference.weight_ih_l0.copy_(turn(params["input"]["kernel"]))
        reference.weight_hh_l0.copy_(turn(params["state"]))
        reference.weight_hr_l0.copy_(torch.from_numpy(params["project"].T.copy()))
        reference.bias_ih_l0.copy_(turn(bias))
        reference.bias_hh_l0.zero_()
        expected = reference(torch.from_numpy(x))[0].numpy()
    result = layer.apply({"params": params}, x, fresh)
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-5)
