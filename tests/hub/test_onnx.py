"""Runs as ONNX graphs: what onnxruntime gives is what jaxpt gives.

What writes graphs is marked onnx (`make test-onnx`); what is refused is not.
"""

import dataclasses
import importlib.util

import jax
import numpy as np
import pytest
from tiny import make_config, write_run

import jaxpt
from jaxpt.errors import UserError
from jaxpt.hub import onnx_files
from jaxpt.hub.files import read_json
from jaxpt.hub.graphs import list_graphs
from jaxpt.hub.onnx_export import export_onnx
from jaxpt.nn.inspection import attention_weights
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.nn.networks.encoder_decoder import EncoderDecoder
from jaxpt.nn.networks.one_stack import CausalLM, MaskedLM, PrefixLM
from jaxpt.nn.presets import PRESETS
from jaxpt.text.tokens.tokenizer import load

# One run of each kind of graphs and of special ids around texts.
RUNS = (
    *("clm", "mlm", "bert", "electra", "replace_mlm", "span_corruption", "bart"),
    *("prefix_lm", "clm_mlm", "ul2", "masked_diffusion", "distillation", "spanbert"),
    "diffusion_from_causal",
)
GRAPHS = {
    "electra": {"generator", "discriminator"},
    "replace_mlm": {"generator", "restorer"},
    "span_corruption": {"encoder_model", "decoder_model"},
    "bart": {"encoder_model", "decoder_model"},
    "ul2": {"encoder_model", "decoder_model"},
}
# Families by the presets whose code differs, each made small.
FAMILIES = {
    "gpt2": (CausalLM, {}),
    "bert-base": (MaskedLM, {"scan_layers": True}),
    "roberta-base": (MaskedLM, {}),
    "electra-small": (MaskedLM, {"embedding_size": 16}),
    "t5-small": (EncoderDecoder, {}),
    "t5-v1.1-small": (EncoderDecoder, {"head_dim": 12}),
    "bart-base": (EncoderDecoder, {}),
    "llama-135m": (PrefixLM, {"num_kv_heads": 2}),
    "modern-base": (MaskedLM, {"window": 3, "num_layers": 5}),
}
SMALL = {
    "vocab_size": 61,
    "num_layers": 2,
    "d_model": 32,
    "num_heads": 4,
    "d_ff": 48,
    "max_len": 24,
    "head_dim": 0,
    "embedding_size": 0,
}
needs_onnx = pytest.mark.onnx


def make_network(name):
    """A small network of a family, its parameters far from zero."""
    kind, changes = FAMILIES[name]
    fields = PRESETS[name] | SMALL | changes
    if fields.get("num_decoder_layers"):
        fields["num_decoder_layers"] = 2
    network = kind(ModelSpec(**fields).direct(kind.READS_AHEAD))
    params = network.init_params(jax.random.key(0))
    return network, jax.tree.map(
        lambda x: x + 0.1 * jax.random.normal(jax.random.key(x.size), x.shape), params
    )


def run_graph(folder, name, *outputs, **inputs):
    """The outputs of a file of an export."""
    session = onnx_files.open_session((folder / f"{name}.onnx").read_bytes())
    feeds = {key: np.asarray(value, np.int64) for key, value in inputs.items()}
    return session.run(list(outputs), feeds)


def read_text(ids):
    """The inputs of a graph that reads one text."""
    return {"input_ids": [ids], "attention_mask": [np.ones(len(ids))]}


def softmax(logits, left_out=()):
    logits = np.array(logits, np.float64)
    logits[..., list(left_out)] = -np.inf
    powers = np.exp(logits - logits.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


@needs_onnx
@pytest.mark.parametrize("name", FAMILIES)
def test_graphs_give_jaxs_numbers_at_all_lengths(name):
    network, params = make_network(name)
    for graph in list_graphs(network, params, attentions=True):
        result = onnx_files.check(graph, onnx_files.convert(graph))
        assert result.lengths == (1, 2, 5, 16, 24)
        assert result.scores < 1e-4 and result.same_best == 1, (graph.name, result)


@needs_onnx
@pytest.mark.parametrize("name", RUNS)
def test_every_kind_of_run_is_written_and_described(name, runs, tmp_path):
    lines = export_onnx(runs(name), tmp_path, attentions=True)
    output = read_json(tmp_path, "model.json")
    result = {path.stem for path in tmp_path.glob("*.onnx")}
    assert result == GRAPHS.get(name, {"model"})
    assert len(lines) == len(result) + 1
    assert output["difference"] < 1e-4 and output["same_best"] == 1
    assert len(output["tokens"]) == output["vocab_size"]
    run = jaxpt.load(runs(name))
    text = "the people of the union"
    read = load(tmp_path / "tokenizer.json").encode(text)
    assert read.tolist() == run.tokenizer.encode(text).tolist()
    assert output["objective"] == run.objective
    assert output["fake_temperature"] == 1.0


@needs_onnx
def test_a_causal_graph_scores_texts_as_the_run_does(runs, tmp_path):
    export_onnx(runs("clm"), tmp_path)
    run, text = jaxpt.load(runs("clm")), "the people of it"
    ids = [run.tokenizer.vocab.eos, *run.tokenizer.encode(text)]
    (logits,) = run_graph(tmp_path, "model", "logits", **read_text(ids))
    nll = -np.log(softmax(logits[0, :-1]))[np.arange(len(ids) - 1), ids[1:]]
    np.testing.assert_allclose(nll, -run.token_log_probs(text)[0], atol=1e-4)


@needs_onnx
@pytest.mark.parametrize("name", ["mlm", "bert", "clm_mlm", "distillation"])
def test_masks_are_filled_as_the_run_fills_them(name, runs, tmp_path):
    export_onnx(runs(name), tmp_path)
    run, output = jaxpt.load(runs(name)), read_json(tmp_path, "model.json")
    text = "the peo[MASK]le of i[MASK]"
    ids = [*output["before"], *run.tokenizer.encode_prompt(text), *output["after"]]
    inputs = read_text(ids)
    if output["kind"] == "prefix":
        inputs["prefix_lengths"] = [len(ids)]
    if output["has_types"]:
        inputs["token_type_ids"] = [np.zeros(len(ids))]
    (logits,) = run_graph(tmp_path, "model", "logits", **inputs)
    places = np.flatnonzero(np.array(ids) == output["mask"]) - output["fill_offset"]
    result = softmax(logits[0, places], output["nonwords"])
    names = [run.tokenizer.token_name(i) for i in range(run.tokenizer.vocab.size)]
    for row, expected in zip(result, run.fill(text, top_k=5), strict=True):
        for token, probability in expected:
            assert row[names.index(token)] == pytest.approx(probability, abs=1e-4)


@needs_onnx
def test_a_discriminator_finds_what_the_run_finds(runs, tmp_path):
    export_onnx(runs("electra"), tmp_path)
    run = jaxpt.load(runs("electra"))
    ids = run.tokenizer.encode("the people of it")
    (logits,) = run_graph(tmp_path, "discriminator", "logits", **read_text(ids))
    expected = run.model.replaced_logits(run.params, ids[None])
    np.testing.assert_allclose(logits, expected, atol=1e-4)


@needs_onnx
@pytest.mark.parametrize("name", ["span_corruption", "bart"])
def test_a_decoders_graph_writes_what_the_run_writes(name, runs, tmp_path):
    export_onnx(runs(name), tmp_path)
    run, output = jaxpt.load(runs(name)), read_json(tmp_path, "model.json")
    prompt = "the peo[MASK] of" if name == "bart" else "the peo<extra_id_0> of"
    assert not set(output["sentinels"]) & set(output["banned"])  # which an answer has
    ids = [*output["before"], *run.tokenizer.encode_prompt(prompt), *output["after"]]
    inputs = read_text(ids)
    (states,) = run_graph(tmp_path, "encoder_model", "last_hidden_state", **inputs)
    data = (tmp_path / "decoder_model.onnx").read_bytes()
    session, written = onnx_files.open_session(data), [output["start"]]
    while len(written) <= 12 and written[-1] not in output["ends"]:
        (logits,) = session.run(
            ["logits"],
            {
                "input_ids": np.array([written]),
                "encoder_hidden_states": states,
                "encoder_attention_mask": np.ones((1, len(ids)), np.int64),
            },
        )
        written.append(int(softmax(logits[0, -1], output["banned"]).argmax()))
    own = [i for i in written[1:] if i not in output["ends"]]
    (expected,) = run.generate(prompt, num_tokens=12, temperature=0)
    assert run.tokenizer.decode(own) == expected


@needs_onnx
def test_fakes_are_drawn_as_in_training(tmp_path, speech):
    config = make_config(speech, "electra", electra__temperature=2.0)
    export_onnx(write_run(config, tmp_path / "run"), tmp_path / "to")
    assert read_json(tmp_path / "to", "model.json")["fake_temperature"] == 2.0


@needs_onnx
def test_padding_changes_no_number(runs, tmp_path):
    export_onnx(runs("mlm"), tmp_path)
    ids = jaxpt.load(runs("mlm")).tokenizer.encode("the people")
    (alone,) = run_graph(tmp_path, "model", "logits", **read_text(ids))
    padded = {
        "input_ids": [[*ids, 0, 0, 0], [5] * (len(ids) + 3)],
        "attention_mask": [[1] * len(ids) + [0] * 3, [1] * (len(ids) + 3)],
    }
    (padded_row,) = run_graph(tmp_path, "model", "logits", **padded)
    np.testing.assert_allclose(padded_row[0, : len(ids)], alone[0], atol=1e-5)


@needs_onnx
@pytest.mark.parametrize("name", ["clm", "mlm", "span_corruption"])
def test_attentions_are_those_that_are_analysed(name, runs, tmp_path):
    export_onnx(runs(name), tmp_path, attentions=True)
    run = jaxpt.load(runs(name))
    ids = run.tokenizer.encode("the people of it")
    stem = "encoder_model" if name == "span_corruption" else "model"
    (result,) = run_graph(tmp_path, stem, "attentions", **read_text(ids))
    network, params = run.model.find_transformer(run.params)
    expected = attention_weights(network, params, ids[None], start_id=0)["self"]
    np.testing.assert_allclose(result, expected, atol=1e-5)


@needs_onnx
def test_a_decoders_attentions_are_its_own_and_its_sources(runs, tmp_path):
    export_onnx(runs("span_corruption"), tmp_path, attentions=True)
    run = jaxpt.load(runs("span_corruption"))
    ids, start = run.tokenizer.encode("the people of it"), 7
    (states,) = run_graph(
        tmp_path, "encoder_model", "last_hidden_state", **read_text(ids)
    )
    data = (tmp_path / "decoder_model.onnx").read_bytes()
    inputs = {
        "input_ids": np.array([[start, *ids[:-1]]], np.int64),
        "encoder_hidden_states": states,
        "encoder_attention_mask": np.ones((1, len(ids)), np.int64),
    }
    names = {"dec_self": "attentions", "cross": "cross_attentions"}
    result = onnx_files.open_session(data).run(list(names.values()), inputs)
    expected = attention_weights(run.model, run.params, ids[None], start_id=start)
    for name, weights in zip(names, result, strict=True):
        np.testing.assert_allclose(weights, expected[name], atol=1e-5)


@needs_onnx
@pytest.mark.parametrize("precision", ["float16", "int8"])
def test_a_smaller_file_says_what_it_loses(precision, runs, tmp_path, speech):
    config = make_config(
        speech, "mlm", model__d_model=64, model__d_ff=256, model__num_layers=2
    )
    workdir = write_run(config, tmp_path / "run")
    export_onnx(workdir, tmp_path / "whole")
    lines = export_onnx(workdir, tmp_path / "small", precision)
    sizes = [
        (tmp_path / name / "model.onnx").stat().st_size for name in ("whole", "small")
    ]
    assert sizes[1] < 0.7 * sizes[0]
    output = read_json(tmp_path / "small", "model.json")
    assert 1e-6 < output["probability_difference"] < 0.05
    assert f"{precision}; scores differ" in lines[0]


@needs_onnx
def test_large_logits_may_differ_more():
    """T5 1.1 and ModernBERT have logits far above 1, and float32 7 digits."""
    network, params = make_network("gpt2")
    params["embed"]["tokens"] = params["embed"]["tokens"] * 3000
    (graph,) = list_graphs(network, params)
    result = onnx_files.check(graph, onnx_files.convert(graph))
    assert result.scores > onnx_files.TOLERANCE > result.relative > 0


@needs_onnx
def test_a_file_of_other_weights_is_found_out():
    network, params = make_network("gpt2")
    (graph,) = list_graphs(network, params)
    params["embed"]["tokens"] = params["embed"]["tokens"].at[3, 0].add(0.01)
    (other,) = list_graphs(network, params)
    with pytest.raises(UserError, match=r"model\.onnx is wrong: its scores differ"):
        onnx_files.check(graph, onnx_files.convert(other))


@needs_onnx
def test_numbers_that_leave_a_precisions_range_are_refused(refuses):
    network, params = make_network("gpt2")
    params = jax.tree.map(lambda x: x, params)
    params["embed"]["tokens"] = params["embed"]["tokens"] * 1e6
    (graph,) = list_graphs(network, params)
    data = onnx_files.convert(graph, "float16")
    with refuses("model outputs NaN or infinity in float16", "float32"):
        onnx_files.check(graph, data, "float16")


def test_a_check_needs_no_more_memory_than_a_machine_has():
    """A network that reads 8,192 tokens would give 70 GB of attention weights."""
    small, params = make_network("modern-base")
    (graph,) = list_graphs(small, params)
    large = dataclasses.replace(graph, spec=ModelSpec(**PRESETS["modern-base"]))
    assert graph.longest_check == 24 and large.longest_check == 512


@needs_onnx
@pytest.mark.parametrize("name", ["bilm", "skip_gram"])
def test_a_run_without_a_transformer_is_refused(name, tmp_path, speech, refuses):
    settings = {"bilm__filters": (4, 4), "bilm__num_chars": 4} if name == "bilm" else {}
    workdir = write_run(make_config(speech, name, **settings), tmp_path / "run")
    with refuses(f"a {name} run has no Transformer"):
        export_onnx(workdir, tmp_path / "to")
    assert not (tmp_path / "to").exists()


def test_what_lacks_a_package_says_how_to_install_it(monkeypatch, refuses):
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: None)
    with refuses("an ONNX graph: needs jax2onnx", "pip install 'jaxpt[onnx]'"):
        onnx_files.require("float32")


def test_an_unknown_precision_is_refused(tmp_path, refuses):
    with refuses("precision=fp16", "float32, float16, int8"):
        export_onnx(tmp_path, tmp_path / "to", "fp16")
