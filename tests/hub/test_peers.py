"""Every family against transformers itself: numbers, gradients, there and back.

Needs torch; `make test-peers` runs it.
"""

import dataclasses
import json
import os
import time

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hub.cases import (
    CASES,
    SCALED,
    SPECIALS,
    Ours,
    V,
    check,
    check_equal,
    compare,
    count,
    draw_settings,
    make_batch,
    pad_before,
)
from hub.test_fields import INERT, list_values
from safetensors.numpy import save_file

from jaxpt.evaluation.sampling import generate, pad_left
from jaxpt.evaluation.scores import SampleSpec
from jaxpt.hub.configs import read_config, write_config
from jaxpt.hub.convert import list_unread, move_places, to_hf
from jaxpt.hub.family import find_family
from jaxpt.hub.files import read_tensors
from jaxpt.hub.source_folder import read_networks
from jaxpt.hub.task_heads import (
    QUESTIONS,
    TEXTS,
    TOKENS,
    list_entries,
    name_class,
)
from jaxpt.nn.decoding import make_decoder
from jaxpt.nn.heads import TokenScore
from jaxpt.nn.model_differences import find_differences
from jaxpt.nn.positions import rotary_rates
from jaxpt.nn.presets import PRESETS, get_preset
from jaxpt.nn.transformer import Transformer
from jaxpt.objectives import prefix_lm
from jaxpt.text.tokens.vocab import Vocab

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
from hub.peers import correct, make_theirs, run_theirs, save  # noqa: E402

pytestmark = pytest.mark.peers


@pytest.mark.parametrize("name", CASES)
def test_numbers_are_those_of_transformers(name, tmp_path):
    reference = make_theirs(name)
    config, tensors = save(reference, tmp_path)
    ours = Ours(config, tensors, CASES[name][1])
    unread = list_unread(tensors, ours.family, ours.spec, ours.head)
    num_theirs = sum(
        p.numel()
        for name, p in reference.named_parameters()
        if p.requires_grad and name not in unread
    )
    if ours.spec.num_decoder_layers and ours.spec.head_bias:
        num_theirs += reference.final_logits_bias.numel()  # a buffer
    assert count(ours.params) == num_theirs
    batch = make_batch(name)
    gaps = compare(ours, batch, run_theirs(reference, batch, name))
    print(f"{name}: {num_theirs} parameters", {k: f"{v:.1e}" for k, v in gaps.items()})
    check(gaps)


# Other sizes, and settings that published models have and the small cases do not.
ODD = {
    "gpt2": {"n_embd": 51, "n_head": 3, "n_layer": 4, "n_inner": 35},
    "gpt2 relu": {"n_embd": 128, "n_head": 2, "activation_function": "relu"},
    "bert": {"hidden_size": 60, "num_attention_heads": 5, "intermediate_size": 17},
    "bert tanh": {"hidden_act": "gelu_new", "layer_norm_eps": 1e-3},
    "roberta": {"hidden_size": 128, "num_attention_heads": 2, "num_hidden_layers": 4},
    "distilbert": {"dim": 96, "n_heads": 3, "n_layers": 1, "activation": "relu"},
    "electra-generator": {"embedding_size": 16, "hidden_size": 16},
    "electra-discriminator": {"embedding_size": 40, "num_hidden_layers": 3},
    "t5": {
        "num_layers": 1,
        "num_decoder_layers": 3,
        "relative_attention_num_buckets": 8,
    },
    # Its head begins at a deviation of 1: logits of 30, whose rounding is no 1e-4.
    "t5-1.1": {
        "d_kv": 10,
        "d_model": 64,
        "relative_attention_max_distance": 20,
        "initializer_factor": 0.5,
    },
    "bart": {"encoder_layers": 1, "decoder_layers": 3, "d_model": 48},
    "llama": {"num_key_value_heads": 4, "rope_theta": 500000.0, "rms_norm_eps": 1e-3},
    "mistral": {"sliding_window": None, "num_key_value_heads": 4},
    "modernbert": {"hidden_size": 96, "intermediate_size": 40},
}


@pytest.mark.parametrize("odd", ODD)
def test_other_sizes_and_settings(odd, tmp_path, monkeypatch):
    name = odd.split()[0]
    kind, head, settings = CASES[name]
    monkeypatch.setitem(CASES, name, (kind, head, settings | ODD[odd]))
    reference = make_theirs(name)
    config, tensors = save(reference, tmp_path)
    batch = make_batch(name)
    gaps = compare(
        Ours(config, tensors, head), batch, run_theirs(reference, batch, name)
    )
    print(f"{odd}:", {k: f"{v:.1e}" for k, v in gaps.items()})
    check(gaps)


DRAWN = ("llama", "mistral", "qwen2", "qwen3", "gpt_neo", "gpt_neox")
DRAWN += ("xlm-roberta", "camembert", "opt", "smollm3", "olmo2", "phi", "phi3")
DRAWN += ("mpnet", "mt5", "gemma", "gemma2", "gemma3_text", "olmo3")
DRAWN += ("modernbert-decoder", "ernie", "megatron-bert", "data2vec-text")
DRAWN += (
    "gpt_bigcode",
    "roberta-prelayernorm",
    "nomic_bert",
    "gte",
    "jina_embeddings_v3",
)
DRAWN += ("eurobert", "stablelm", "starcoder2", "gpt_neox-masked", "blenderbot")
DRAWN += ("t5gemma", "umt5", "longt5", "mbart", "pegasus", "marian", "m2m_100")
DRAWN += ("deberta-v2", "olmo", "granite", "gptj", "falcon")
DRAWN += ("bloom", "mpt", "nanochat", "nemotron", "ernie4_5", "codegen")
DRAWN += ("openai-gpt", "esm", "rembert", "xlm")
DRAWN += ("gemma3_text-masked",)


# Others on each day. A failure prints them: JAXPT_PEERS_DAY=2026-11-25 repeats it.
DAY = os.environ.get("JAXPT_PEERS_DAY") or time.strftime("%Y-%m-%d")


@pytest.mark.parametrize("seed", [f"{DAY} {i}" for i in range(10)])
@pytest.mark.parametrize("kind", DRAWN)
def test_random_sizes_and_settings(kind, seed, tmp_path, monkeypatch):
    """Numbers, padding on either side, the way back, and what is generated."""
    kind, head, settings = CASES[kind]
    settings = settings | draw_settings(kind, seed)
    monkeypatch.setitem(CASES, "drawn", (kind, head, settings))
    reference = make_theirs("drawn")
    config, tensors = save(reference, tmp_path / "a")
    ours = Ours(config, tensors, head)
    batch = make_batch("drawn")
    # Most encoder-decoders of theirs with a table of positions count them from the
    # padding.
    has_table = ours.spec.positions in ("learned", "sinusoidal")
    is_fixed = head == "seq2seq" and has_table and not ours.family.counts_from_pad
    before = () if is_fixed else (pad_before(batch, settings["pad_token_id"]),)
    for padded in (batch, *before):
        theirs = run_theirs(reference, padded, "drawn")
        # Drawn heads have two dimensions or more, whose norms amplify rounding. Of a
        # gemma3_text whose gap was 7e-4, theirs was 6e-4 from its numbers in float64,
        # ours 6e-5.
        check(compare(ours, padded, theirs), 2e-3)
    back = to_hf(ours.params, ours.family, ours.spec, head)
    unread = list_unread(tensors, ours.family, ours.spec, head)
    assert set(tensors) - set(back) - set(unread) <= set(ours.family.copies)
    assert set(back) - set(tensors) <= set(ours.family.computed(ours.spec))
    check_equal(ours, back, tensors)
    written = write_config(ours.spec, head, kind)[1]
    written |= {name: config[name] for name in SPECIALS if name in config}
    assert read_config(written) == (ours.family, read_config(config)[1])
    again = load_written(tmp_path / "b", written, back, type(reference))
    result = run_theirs(again, padded, "drawn")
    for name in ("hidden", "logits"):
        np.testing.assert_allclose(result[name], theirs[name], rtol=1e-5, atol=1e-5)
    # Beyond it, ours follows from the last tokens (LongRoPE).
    if head in ("causal", "seq2seq") and ours.spec.generation_len >= 16:
        check_generation(reference, ours, num_beams=1)


@pytest.mark.parametrize(
    "width, rope", [(128, {}), (64, {"beta_slow": 4, "mscale": 1})]
)
@pytest.mark.parametrize("kind", ["linear", "yarn"])
@pytest.mark.parametrize("factor", [1.0, 8.0, 40.0])
def test_scaled_frequencies_of_longer_texts(kind, width, rope, factor):
    """OLMo 3's, DeepSeek's and others at published lengths."""
    rope = {"rope_theta": 5e5, "rope_type": kind, "factor": factor} | rope
    if kind == "yarn":
        rope["original_max_position_embeddings"] = 8192
    else:
        rope = {name: rope[name] for name in ("rope_theta", "rope_type", "factor")}
    config = transformers.LlamaConfig(
        hidden_size=width, num_attention_heads=1, rope_parameters=rope
    )
    scale = transformers.modeling_rope_utils.ROPE_INIT_FUNCTIONS[kind]
    expected, magnitude = scale(config)
    spec = read_config(config.to_dict() | {"model_type": "llama"})[1]
    rates = rotary_rates(spec.head_width, spec.rotary_base, spec.rotary_scaling)
    np.testing.assert_allclose(rates, expected.numpy(), rtol=2e-6)
    assert magnitude == pytest.approx((*spec.rotary_scaling, *[1.0] * 4)[4], rel=1e-12)


@pytest.mark.parametrize("factor", [8.0, 32.0])
def test_scaled_frequencies_of_published_sizes(factor):
    """Llama 3.1's and 3.2's, at a head width of 128 and 64."""
    rope = SCALED | {"rope_theta": 5e5, "factor": factor}
    rope["original_max_position_embeddings"] = 8192
    config = transformers.LlamaConfig(
        hidden_size=128 if factor == 8 else 64,
        num_attention_heads=1,
        max_position_embeddings=131072,
        rope_parameters=rope,
    )
    scale = transformers.modeling_rope_utils.ROPE_INIT_FUNCTIONS["llama3"]
    expected, attention_factor = scale(config)
    spec = read_config(config.to_dict() | {"model_type": "llama"})[1]
    rates = rotary_rates(spec.head_width, spec.rotary_base, spec.rotary_scaling)
    np.testing.assert_allclose(rates, expected.numpy(), rtol=2e-6)
    assert attention_factor == 1


@pytest.mark.parametrize("dtype", ["bfloat16", "float16"])
@pytest.mark.parametrize("name", ["gpt2", "bert", "t5", "llama"])
def test_a_checkpoint_of_half_precision(name, dtype, tmp_path):
    """What is stored in two bytes is computed in float32, on both sides."""
    reference = make_theirs(name).to(getattr(torch, dtype))
    reference.save_pretrained(tmp_path)
    config = json.loads((tmp_path / "config.json").read_text())
    assert config["dtype"] == dtype
    ours = Ours(config, read_tensors(tmp_path), CASES[name][1])
    batch = make_batch(name)
    gaps = compare(ours, batch, run_theirs(reference.float(), batch, name))
    check(gaps)


@pytest.mark.parametrize("name", CASES)
def test_there_and_back(name, tmp_path):
    reference = make_theirs(name)
    config, tensors = save(reference, tmp_path / "a")
    ours = Ours(config, tensors, CASES[name][1])
    _, written = write_config(ours.spec, ours.head, ours.family.name)
    keep = ("pad_token_id", "bos_token_id", "eos_token_id", "decoder_start_token_id")
    written |= {key: config[key] for key in keep if key in config}
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "config.json").write_text(json.dumps(written))
    back = to_hf(ours.params, ours.family, ours.spec, ours.head)
    check_equal(ours, back, tensors)
    save_file(back, tmp_path / "b" / "model.safetensors", {"format": "pt"})
    kind = type(reference)
    again, info = kind.from_pretrained(
        tmp_path / "b", output_loading_info=True, attn_implementation="eager"
    )
    unread = list_unread(tensors, ours.family, ours.spec, ours.head)
    assert set(info["missing_keys"]) == set(unread)  # what a language model lacks
    assert not info["unexpected_keys"], info
    assert not info["mismatched_keys"]
    batch = make_batch(name)
    again = correct(again.eval(), written)
    one, two = (run_theirs(m, batch, name) for m in (reference, again))
    for key in ("hidden", "logits"):
        np.testing.assert_allclose(one[key], two[key], atol=1e-6)


def load_written(folder, config, tensors, kind, **settings):
    """The model that transformers makes of a config and tensors."""
    folder.mkdir()
    (folder / "config.json").write_text(json.dumps(config))
    save_file(tensors, folder / "model.safetensors", {"format": "pt"})
    settings = {"attn_implementation": "eager"} | settings
    return correct(kind.from_pretrained(folder, **settings).eval(), config)


@pytest.mark.parametrize("pad", [0, 1, 3, 29, None])
def test_a_roberta_counts_places_from_any_padding(pad, tmp_path, refuses):
    """With positions after [PAD] it computes our numbers for all other ids."""
    reference = make_theirs("roberta")
    config, tensors = save(reference, tmp_path / "a")
    ours, vocab = Ours(config, tensors, "masked"), Vocab(V, pad=pad)
    if pad is None:
        with refuses("no [PAD]", "tokenizer.specials"):
            write_config(ours.spec, "masked", "roberta", vocab)
        return
    kind, written = write_config(ours.spec, "masked", "roberta", vocab)
    export_spec = kind.lay_out(ours.spec, pad)
    back = to_hf(
        move_places(ours.params, ours.spec, export_spec), kind, export_spec, "masked"
    )
    again = load_written(tmp_path / "b", written, back, type(reference))
    others = [i for i in range(V) if i != pad]
    ids = np.stack([np.roll(others, k)[:17] for k in (0, 13)])
    lengths = np.array([17, 9])
    real = np.arange(17) < lengths[:, None]
    ids = np.where(real, ids, pad)
    with torch.no_grad():
        result = again(torch.tensor(ids), attention_mask=torch.tensor(real.astype(int)))
    batch = {"input_ids": ids, "lengths": lengths}
    imported = Ours(written, back, "masked")
    for model in (ours, imported):
        _, logits = model.outputs(model.params, batch)
        assert np.abs(np.asarray(logits) - result.logits.numpy())[real].max() < 1e-4


@pytest.mark.parametrize("what", [TEXTS, TOKENS, QUESTIONS])
@pytest.mark.parametrize(
    "name",
    ["roberta", "xlm-roberta", "camembert", "data2vec-text", "ernie", "megatron-bert"]
    + ["roberta-prelayernorm", "esm", "rembert", "xlm"],
)
def test_fine_tuned_heads_have_the_names_of_the_classes(name, what):
    kind, head, settings = CASES[name]
    family, spec = read_config(settings | {"model_type": kind})
    config = transformers.AutoConfig.for_model(kind, **settings)
    if what not in family.task_heads:
        # ESM has no such class, and XLM one with another head.
        assert (name, what) in (("esm", QUESTIONS), ("xlm", QUESTIONS))
        return
    reference = getattr(transformers, name_class(family, what))(config)
    (names,) = family.task_heads[what]
    entries = list_entries(family, spec, head, names)
    expected = {
        name
        for name in reference.state_dict().keys() - family.computed(spec).keys()
        if "position_ids" not in name and "contact_head" not in name
    }
    assert {entry.hf_name for entry in entries} == expected


def test_an_ernie_without_task_ids_is_of_task_0(tmp_path, monkeypatch):
    kind, head, settings = CASES["ernie"]
    changed = settings | {"use_task_id": True, "task_type_vocab_size": 3}
    monkeypatch.setitem(CASES, "ernie", (kind, head, changed))
    reference, batch = make_theirs("ernie"), make_batch("ernie")
    config, _ = save(reference, tmp_path)
    ours = Ours(config, read_networks(tmp_path)[head].tensors, head)
    theirs = run_theirs(reference, batch, "ernie")
    hidden, logits = ours.outputs(ours.params, batch)
    real = np.arange(13) < batch["lengths"][:, None]
    assert np.abs(np.asarray(hidden) - theirs["hidden"])[real].max() < 1e-4
    assert np.abs(np.asarray(logits) - theirs["logits"])[real].max() < 1e-4


# Fields of `test_fields.INERT` that change the form of the outputs.
NOT_SHOWN = {
    "dtype": "the precision of the computation",
    "return_dict": "a tuple without names",
    "sparse_prediction": "only at the positions that have labels",
    "legacy": "the names of the head's tensors",
    "use_task_id": "a further table, which an import adds to another one",
    "init_device": "transformers accepts no other type of value",
}


# A case for each family.
ONE = list({kind: name for name, (kind, _, _) in reversed(CASES.items())}.values())


@pytest.mark.parametrize("name", ONE)
def test_inert_fields_change_nothing_in_transformers(name, tmp_path):
    """All of them changed at once."""
    kind, _, _ = CASES[name]
    reference, batch = make_theirs(name), make_batch(name)
    config, tensors = save(reference, tmp_path / "own")
    expected, changes = run_theirs(reference, batch, name), {}
    for field in sorted(set(INERT[kind]) - set(NOT_SHOWN)):
        # An id must be one; its own value is of a larger vocabulary.
        is_id = field.endswith(("_token_id", "_index"))
        changes[field] = 5 if is_id else list_values(kind, field)[0]
    again = load_written(tmp_path / "b", config | changes, tensors, type(reference))
    for field in ("pad_token_id", "problem_type", "chunk_size_feed_forward"):
        assert field not in changes or getattr(again.config, field) == changes[field]
    result = run_theirs(again, batch, name)
    for key in ("hidden", "logits"):
        np.testing.assert_allclose(result[key], expected[key], atol=1e-5)


def test_the_mask_of_a_prefix_lm_is_given_as_its_card_says(tmp_path):
    """The same numbers under that mask, others without it."""
    reference = make_theirs("gpt2")
    config, tensors = save(reference, tmp_path / "a")
    ours, kind = Ours(config, tensors, "causal"), type(reference)
    ids = np.random.default_rng(0).integers(4, V, (2, 9))
    task = prefix_lm.Spec.for_seq_len(9)
    texts = {"tokens": jnp.asarray(ids), "index": jnp.arange(2)}
    batch = prefix_lm.corrupt(jax.random.key(1), texts, Vocab(V, pad=0), task)
    args = batch["inputs"], prefix_lm.masks(batch)
    logits = ours.model.apply({"params": ours.params}, *args, deterministic=True)
    inputs = torch.tensor(np.array(batch["inputs"]))
    is_prefix = torch.tensor(np.array(batch["is_prefix"]))
    sees = torch.ones(9, 9, dtype=torch.bool).tril() | is_prefix[:, None]
    sees = torch.where(sees[:, None], 0.0, torch.finfo(torch.float32).min)
    for implementation in ("eager", "sdpa"):
        again = load_written(
            tmp_path / implementation,
            config,
            tensors,
            kind,
            attn_implementation=implementation,
        )
        with torch.no_grad():
            result = again(inputs, attention_mask=sees).logits.numpy()
            causal = again(inputs).logits.numpy()
        np.testing.assert_allclose(np.asarray(logits), result, atol=1e-4)
        assert np.abs(np.asarray(logits) - causal).max() > 1e-2


@pytest.mark.parametrize("name", ["bart", "t5"])
def test_the_start_is_thawed_as_the_card_says(name, tmp_path, monkeypatch):
    """PyTorch freezes a BART's [PAD] as an input, not a T5's; thawed it is as ours."""
    kind, head, settings = CASES[name]
    changed = settings | {"pad_token_id": 0, "decoder_start_token_id": 0}
    monkeypatch.setitem(CASES, name, (kind, head, changed))
    reference, batch = make_theirs(name), make_batch(name)
    config, tensors = save(reference, tmp_path)
    assert np.all(batch["decoder_input_ids"][:, 0] == 0)
    ours = Ours(config, tensors, head)
    grads, _ = jax.jit(jax.grad(ours.loss, has_aux=True))(ours.params, batch)
    grads = to_hf(grads, ours.family, ours.spec, head)
    table = "shared.weight" if name == "t5" else "model.shared.weight"
    expected = grads[table][0]
    frozen = run_theirs(reference, batch, name)["grads"][table][0]
    assert (np.abs(frozen - expected).max() > 1e-3) == ours.family.freezes_pad
    for module in reference.modules():
        if isinstance(module, torch.nn.Embedding):
            module.padding_idx = None
    thawed = run_theirs(reference, batch, name)["grads"][table][0]
    np.testing.assert_allclose(thawed, expected, atol=1e-5)


@pytest.mark.parametrize("name", ONE)
def test_which_families_freeze_their_padding(name):
    kind, _, _ = CASES[name]
    reference = make_theirs(name)
    is_frozen = reference.get_input_embeddings().padding_idx is not None
    assert is_frozen == (
        find_family(kind).freezes_pad and reference.config.pad_token_id is not None
    )


# Published configs, as far as they differ from the defaults of their classes.
SIZES = {
    "gpt2": ("n_embd", "n_layer", "n_head"),
    "t5": ("d_model", "d_ff", "num_layers", "num_heads"),
}
BERT_SIZES = ("hidden_size", "num_hidden_layers")
BERT_SIZES += ("num_attention_heads", "intermediate_size")


def published(kind, head, *sizes, **more):
    """Family, head and the fields that differ from those of transformers' class.

    Sizes are in the order of `SIZES`; 0 is the class's own.
    """
    names = zip(SIZES.get(kind, BERT_SIZES), sizes)
    return kind, head, {name: size for name, size in names if size} | more


GATED = {"feed_forward_proj": "gated-gelu", "tie_word_embeddings": False}
ROBERTA = {"vocab_size": 50265, "max_position_embeddings": 514, "type_vocab_size": 1}
ROBERTA["layer_norm_eps"] = 1e-5
BART = {"d_model": 768} | {f"{part}_layers": 6 for part in ("encoder", "decoder")}
BART |= {f"{part}_attention_heads": 12 for part in ("encoder", "decoder")}
BART |= {f"{part}_ffn_dim": 3072 for part in ("encoder", "decoder")}
SMOL = {"vocab_size": 49152, "num_key_value_heads": 3, "tie_word_embeddings": True}
LLAMA_3 = {"vocab_size": 128256, "num_key_value_heads": 8, "tie_word_embeddings": True}
LLAMA_3 |= {"head_dim": 64, "max_position_embeddings": 131072, "rope_theta": 5e5}
LLAMA_3["rope_scaling"] = {"rope_type": "llama3", "factor": 32.0}
LLAMA_3["rope_scaling"] |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
LLAMA_3["rope_scaling"]["original_max_position_embeddings"] = 8192
QWEN = {"tie_word_embeddings": True, "rope_theta": 1e6}
QWEN_2 = QWEN | {"num_key_value_heads": 2}
QWEN_3 = QWEN | {"num_key_value_heads": 8, "max_position_embeddings": 40960}
TINY = {"num_layers": 4, "hidden_size": 768, "num_heads": 16}
TINY["attention_types"] = [[["global", "local"], 2]]
DEBERTA = {"layer_norm_eps": 1e-7, "relative_attention": True, "position_buckets": 256}
DEBERTA |= {"norm_rel_ebd": "layer_norm", "pos_att_type": "p2c|c2p"}
DEBERTA |= {"position_biased_input": False, "share_att_key": True}
XSMALL, DEBERTA_3 = (384, 12, 6, 1536), ("deberta-v2", "masked")
WIDE, WIDER = {"embedding_size": 768}, {"embedding_size": 1024}
TELLS, MAKES = ("electra", "discriminator"), ("electra", "generator")
PUBLISHED = {
    "gpt2": published("gpt2", "causal"),
    "gpt2-medium": published("gpt2", "causal", 1024, 24, 16),
    "gpt2-large": published("gpt2", "causal", 1280, 36, 20),
    "gpt2-xl": published("gpt2", "causal", 1600, 48, 25),
    "gpt3-small": published("gpt2", "causal", n_positions=2048),
    "bert-base": published("bert", "masked"),
    "bert-large": published("bert", "masked", 1024, 24, 16, 4096),
    "roberta-base": published("roberta", "masked", **ROBERTA),
    "roberta-large": published("roberta", "masked", 1024, 24, 16, 4096, **ROBERTA),
    "distilbert": published("distilbert", "masked"),
    "electra-small": published(*TELLS, 256, 0, 4, 1024),
    "electra-small-generator": published(*MAKES, 64, 0, 1, 256),
    "electra-base": published(*TELLS, 768, 0, 12, 3072, **WIDE),
    "electra-base-generator": published(*MAKES, 256, 0, 4, 1024, **WIDE),
    "electra-large": published(*TELLS, 1024, 24, 16, 4096, **WIDER),
    "electra-large-generator": published(*MAKES, 256, 24, 4, 1024, **WIDER),
    "deberta-v3-xsmall": published(*DEBERTA_3, *XSMALL, **DEBERTA),
    "deberta-v3-small": published(*DEBERTA_3, 768, 6, 12, 3072, **DEBERTA),
    "deberta-v3-base": published(*DEBERTA_3, 768, 12, 12, 3072, **DEBERTA),
    "deberta-v3-large": published(*DEBERTA_3, 1024, 24, 16, 4096, **DEBERTA),
    "t5-small": published("t5", "seq2seq"),
    "t5-base": published("t5", "seq2seq", 768, 3072, 12, 12),
    "t5-v1.1-small": published("t5", "seq2seq", 0, 1024, 8, 6, **GATED),
    "t5-v1.1-base": published("t5", "seq2seq", 768, 2048, 12, 12, **GATED),
    "bart-base": published("bart", "seq2seq", attention_dropout=0.1, **BART),
    "bart-large": published("bart", "seq2seq", attention_dropout=0.1),
    "llama-135m": published(
        "llama", "causal", 576, 30, 9, 1536, rms_norm_eps=1e-5, **SMOL
    ),
    "llama-1.1b": published(
        "llama", "causal", 2048, 22, 32, 5632, rms_norm_eps=1e-5, num_key_value_heads=4
    ),
    "llama-3.2-1b": published(
        "llama", "causal", 2048, 16, 32, 8192, rms_norm_eps=1e-5, **LLAMA_3
    ),
    "qwen2.5-0.5b": published("qwen2", "causal", 896, 24, 14, 4864, **QWEN_2),
    "qwen3-0.6b": published("qwen3", "causal", 1024, 28, 16, 3072, **QWEN_3),
    "pythia-160m": published("gpt_neox", "causal", 768, 12, 12, 3072, vocab_size=50304),
    "tinystories-33m": published("gpt_neo", "causal", **TINY),
    "mistral-7b": published(
        "mistral", "causal", rms_norm_eps=1e-5, max_position_embeddings=32768
    ),
    "modern-base": published("modernbert", "masked"),
    "modern-large": published("modernbert", "masked", 1024, 28, 16, 2624),
}


def test_every_preset_is_compared():
    assert set(PUBLISHED) == set(PRESETS)


@pytest.mark.parametrize("name", PUBLISHED)
def test_presets_are_the_published_models(name):
    kind, head, settings = PUBLISHED[name]
    config = transformers.AutoConfig.for_model(kind, **settings)
    output = config.to_dict() | {"model_type": kind} | settings
    family, spec = read_config(output)
    preset = get_preset(name)
    keep = ("init", "init_std")
    changes = {key: getattr(preset, key) for key in keep}
    read = dataclasses.replace(spec, **changes)
    assert find_differences(preset, read) == []
    for key in ("dropout", "embed_dropout", "attention_dropout"):
        assert getattr(preset, key) == getattr(spec, key), key
    with torch.device("meta"):
        reference = getattr(transformers, family.heads[head])(config)
    ours = object.__new__(Ours)
    ours.spec, ours.head = preset, head
    ours.model = Transformer(preset)
    ours.score = TokenScore(preset)
    num_ours = count(jax.eval_shape(ours._init))
    num_theirs = sum(p.numel() for p in reference.parameters())
    if not preset.tie_embeddings and kind == "t5":  # a new model of theirs is tied
        num_theirs += preset.vocab_size * preset.d_model
    print(f"{name}: {num_ours:,} parameters, {num_theirs:,}")
    assert num_ours == num_theirs


@pytest.mark.parametrize(
    "name",
    ["gpt2", "llama", "llama-tied", "llama-3.1", "mistral", "qwen2", "qwen3-local"]
    + [
        "gpt_bigcode",
        "gpt_bigcode-heads",
        "openai-gpt",
        "gpt_neo",
        "gpt_neox",
        "t5",
        "t5-1.1",
        "mt5",
        "umt5",
        "longt5",
        "t5gemma",
        "blenderbot",
        "mbart",
        "pegasus",
        "marian",
        "m2m_100",
        "opt",
        "smollm3",
        "olmo",
        "olmo2",
        "olmo3",
        "granite",
        "gptj",
        "codegen",
        "falcon",
        "falcon-new",
        "bloom",
        "mpt",
        "nanochat",
        "phi",
        "phi3",
        "stablelm",
        "stablelm-parallel",
        "starcoder2",
        "nemotron",
        "ernie4_5",
        "gemma",
        "gemma2",
        "gemma3_text",
        "modernbert-decoder-local",
    ],
)
@pytest.mark.parametrize("num_beams", [1, 3])
def test_generated_tokens_are_those_of_transformers(name, num_beams, tmp_path):
    reference = make_theirs(name)
    config, tensors = save(reference, tmp_path)
    check_generation(reference, Ours(config, tensors, CASES[name][1]), num_beams)


OPTIONS = {
    "no_repeat_ngram_size": 2,
    "repetition_penalty": 1.3,
    "min_new_tokens": 6,
    "suppress_tokens": (5, 11),
}


@pytest.mark.parametrize("name", ["gpt2", "t5"])
@pytest.mark.parametrize("num_beams", [1, 3])
@pytest.mark.parametrize("names", [*OPTIONS, " ".join(OPTIONS)])
def test_options_of_generation_are_those_of_transformers(
    name, num_beams, names, tmp_path
):
    reference = make_theirs(name)
    config, tensors = save(reference, tmp_path)
    ours = Ours(config, tensors, CASES[name][1])
    options = {key: OPTIONS[key] for key in names.split()}
    check_generation(reference, ours, num_beams, **options)


def check_generation(reference, ours, num_beams, **options):
    """Prompts of several lengths at once give transformers' tokens for each alone."""
    two = ours.spec.num_decoder_layers > 0
    decoder = make_decoder(ours.model, start_id=0 if two else None)
    rng = np.random.default_rng(0)
    prompts = [rng.integers(4, 30, n).astype(np.int32) for n in (5, 3, 7)]
    padded, lengths = pad_left(prompts)
    spec = SampleSpec(temperature=0, num_beams=num_beams, **options)
    result, counts = generate(
        decoder, ours.params, padded, lengths, 9, jax.random.key(0), spec, stop=(2,)
    )
    for prompt, row, num in zip(prompts, result, counts, strict=True):
        with torch.no_grad():
            expected = reference.generate(
                torch.tensor(prompt[None]),
                attention_mask=torch.ones((1, len(prompt)), dtype=torch.int64),
                max_new_tokens=9,
                do_sample=False,
                num_beams=num_beams,
                **options,
                eos_token_id=2,
                pad_token_id=0,
            )[0]
        expected = expected[1 if two else len(prompt) :].tolist()
        assert row[:num].tolist() == expected
