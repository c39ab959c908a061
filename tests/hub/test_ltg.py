"""LTG-BERT and its relatives against numbers of their published code.

transformers has no class of them. `ltg_peers.py` ran their code for the fixtures; with
the variables that it names, tests marked `peers` run it live.
"""

import dataclasses
import json

import jax
import numpy as np
import pytest
import tiny
from hub.cases import Ours, check, compare, pad_before
from hub.ltg_cases import CASES, ODD, SMALL, make_batch, make_config, read_fixture
from safetensors.numpy import save_file

from jaxpt.config.plan import make_plan
from jaxpt.hub.configs import read_config, write_config
from jaxpt.hub.convert import check_names, from_hf, modernise, to_hf
from jaxpt.hub.export import write_notes
from jaxpt.hub.family import find_family
from jaxpt.hub.source_folder import read_networks
from jaxpt.nn.scan import stack_layers
from jaxpt.nn.transformer import Transformer
from jaxpt.ops import masks
from jaxpt.runs.task import make_task
from jaxpt.text.tokens.vocab import Vocab

every = pytest.mark.parametrize("name", CASES)
KINDS = sorted({kind for kind, _, _ in CASES.values()})
# config.json of HPLT/hplt_bert_base_2_0_* and of babylm/ltgbert-10m-2024.
HPLT = {
    "architectures": ["LtgbertForMaskedLM"],
    "auto_map": {"AutoConfig": "configuration_ltgbert.LtgbertConfig"},
    "attention_probs_dropout_prob": 0.1,
    "hidden_dropout_prob": 0.1,
    "hidden_size": 768,
    "intermediate_size": 2560,
    "layer_norm_eps": 1e-07,
    "max_position_embeddings": 512,
    "num_attention_heads": 12,
    "num_hidden_layers": 12,
    "position_bucket_size": 32,
    "torch_dtype": "float32",
    "vocab_size": 32768,
}
BABYLM = {
    "architectures": ["LtgBertForMaskedLM"],
    "auto_map": {"AutoModelForMaskedLM": "modeling_ltgbert.LtgBertForMaskedLM"},
    "attention_probs_dropout_prob": 0.1,
    "classifier_dropout": None,
    "hidden_dropout_prob": 0.1,
    "hidden_size": 384,
    "intermediate_size": 1024,
    "layer_norm_eps": 1e-7,
    "max_position_embeddings": 512,
    "num_attention_heads": 6,
    "num_hidden_layers": 12,
    "output_all_encoded_layers": True,
    "position_bucket_size": 32,
    "vocab_size": 16384,
}


def read_ours(name):
    config, tensors, batch, theirs = read_fixture(name)
    if name == "elc_bert":  # whose class has another's name
        config |= {"model_type": name}
    return Ours(config, tensors, CASES[name][1]), tensors, batch, theirs


@every
def test_numbers_are_those_of_their_code(name):
    ours, _, batch, theirs = read_ours(name)
    check(compare(ours, batch, theirs))


@every
def test_padding_before_the_tokens_changes_nothing(name):
    ours, _, batch, theirs = read_ours(name)
    before = pad_before(batch, 3)
    _, logits = ours.outputs(ours.params, before)
    for row, length in enumerate(batch["lengths"]):
        expected = theirs["logits"][row, :length]
        np.testing.assert_allclose(logits[row, -length:], expected, atol=1e-4)


@every
def test_what_is_read_is_written(name, tmp_path):
    ours, tensors, _, _ = read_ours(name)
    back = to_hf(ours.params, ours.family, ours.spec, ours.head)
    assert tensors.keys() - back.keys() == ours.family.copies.keys()
    for key, value in back.items():
        np.testing.assert_array_equal(value, tensors[key])
    kind = ours.family.name
    head = next(iter(ours.family.heads))
    family, written = write_config(ours.spec, head, kind)
    shown = "ltgbert" if kind == "elc_bert" else kind  # which tensors distinguish
    assert (family, written["model_type"]) == (ours.family, shown)
    assert family.read(written) == ours.spec
    for key in SMALL:
        assert written[key] == read_fixture(name)[0][key]
    (tmp_path / "config.json").write_text(json.dumps(written))
    save_file(back, tmp_path / "model.safetensors", {"format": "pt"})
    network = read_networks(tmp_path)[head]
    assert (network.family, network.spec) == (family, ours.spec)


@every
def test_a_model_is_exported_as_its_family_without_its_name(name):
    ours, _, _, _ = read_ours(name)
    assert write_config(ours.spec, next(iter(ours.family.heads)))[0] is ours.family


@every
def test_an_export_says_whose_code_it_needs(name):
    ours, _, _, _ = read_ours(name)
    head = next(iter(ours.family.heads))
    kind, config = write_config(ours.spec, head)
    vocab = Vocab(size=9, pad=0, eos=1)
    task = make_task(make_plan(tiny.make_config("no.txt", "clm")), vocab)
    notes = write_notes(task, vocab, head, kind, config)
    code = config["auto_map"]["AutoConfig"].partition("--")[0]
    assert "/" in code
    assert any("trust_remote_code=True" in n and f" {code} " in n for n in notes)


@every
def test_scanned_layers_give_the_same_numbers(name):
    ours, _, batch, theirs = read_ours(name)
    if ours.spec.keeps_results:
        return  # its layers differ
    spec = dataclasses.replace(ours.spec, scan_layers=True)
    model, params = Transformer(spec), stack_layers(ours.params)
    seen = masks.key_padding(batch["lengths"])
    states = {"self": seen}
    logits = model.apply(
        {"params": params}, batch["input_ids"], states, deterministic=True
    )
    for row, length in enumerate(batch["lengths"]):
        expected = theirs["logits"][row, :length]
        np.testing.assert_allclose(logits[row, :length], expected, atol=1e-4)
    shapes = jax.eval_shape(lambda: params)
    args = ours.family, spec, ours.head, shapes
    again = from_hf(read_fixture(name)[1], *args)
    jax.tree.map(np.testing.assert_array_equal, again, params)


@every
def test_buffers_are_ignored_and_other_tensors_refused(name, refuses):
    ours, tensors, _, _ = read_ours(name)
    args = ours.family, ours.spec, ours.head, ours.params
    some = next(each for each in tensors if "in_proj_qk.weight" in each)
    buffer = some.replace("in_proj_qk.weight", "position_indices")
    from_hf(tensors | {buffer: np.zeros((20, 20), np.int64)}, *args)
    with refuses(f"{some}.more", "no place"):
        from_hf(tensors | {f"{some}.more": np.zeros(1)}, *args)
    with refuses(some, "is missing"):
        check_names({k: tensors[k] for k in tensors.keys() - {some}}, *args[:3])
    copy = next(iter(ours.family.copies))
    with refuses(copy, "differs"):
        from_hf(tensors | {copy: tensors[copy] + 1}, *args)


def test_published_configs():
    family, spec = read_config(HPLT)
    assert family.name == "ltgbert"
    assert (spec.relative_buckets, spec.relative_max_distance) == (63, 512)
    assert (spec.d_ff, spec.norm_epsilon, spec.max_len) == (2560, 1e-7, 512)
    assert (spec.activation, spec.transform_activation) == ("gelu_tanh", "gelu")
    assert round(spec.init_std, 6) == 0.022822  # sqrt(2 / (5 x 768))
    family, spec = read_config(BABYLM)
    assert family.name == "ltgbert" and (spec.d_model, spec.vocab_size) == (384, 16384)
    for nothing in (None, ""):
        assert read_config(BABYLM | {"model_type": nothing})[1] == spec


def test_an_elc_bert_is_recognized_by_its_tensors(tmp_path, refuses):
    """With the config of lgcharpe/ELC_BERT_small_baby_10M, which is LTG-BERT's."""
    ours, tensors, _, _ = read_ours("elc_bert")
    more = {"classifier_dropout": 0.2, "model_type": "ltgbert", "pad_token_id": 4}
    config = BABYLM | SMALL | more | {"num_hidden_layers": 3}
    assert read_config(config)[0].name == "ltgbert"
    (tmp_path / "config.json").write_text(json.dumps(config))

    def read(weights):
        save_file(weights, tmp_path / "model.safetensors", {"format": "pt"})
        return read_networks(tmp_path)["masked"]

    assert (read(tensors).family, read(tensors).spec) == (ours.family, ours.spec)
    sums = [name for name in tensors if "prev_layer_weights" in name]
    assert [tensors[name].shape for name in sums] == [(1,), (2,), (3,)]
    plain = {name: x for name, x in tensors.items() if name not in sums}
    assert read(plain).family.name == "ltgbert" and not read(plain).spec.layer_sums
    with refuses(sums[1], "is missing"):
        read({name: x for name, x in tensors.items() if name != sums[1]})
    weighted = tensors | {"transformer.prev_layer_weights": tensors[sums[1]]}
    with refuses("transformer.prev_layer_weights", "no place in a elc_bert"):
        args = ours.family, ours.spec, "masked", ours.params
        from_hf(read(weighted).tensors, *args)


def test_an_older_code_is_refused(refuses, tmp_path):
    """With `model_type` bert it has other products with distances."""
    config = BABYLM | {"model_type": "bert"}
    (tmp_path / "config.json").write_text(json.dumps(config))
    tensors = {"a.weight": np.zeros(1, np.float32)}
    save_file(tensors, tmp_path / "model.safetensors", {"format": "pt"})
    with refuses("architectures=['LtgBertForMaskedLM']", "BertForMaskedLM"):
        read_networks(tmp_path)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "changes, parts",
    [
        ({"is_relative": True}, ["is_relative=True", "is not known"]),
        ({"hidden_act": "relu"}, ["hidden_act='relu'", "is not known"]),
        ({"layer_norm_eps": None}, ["layer_norm_eps=None", "a number"]),
        ({"tie_word_embeddings": False}, ["tie_word_embeddings=False", "True"]),
        ({"num_attention_heads": 5}, ["num_heads=5"]),
        ({"num_attention_heads": 0}, ["num_attention_heads=0", "at least 1"]),
        ({"hidden_size": 0}, ["d_model=0"]),
        ({"position_bucket_size": 2}, ["position_bucket_size=2", "at least 3"]),
        (
            {"position_bucket_size": 38},
            ["max_position_embeddings=20", "at least 21", "position_bucket_size=38"],
        ),
    ],
)
def test_refusals_name_the_field(kind, changes, parts, refuses):
    with refuses(*parts):
        read_config(make_config(kind, {}) | {"model_type": kind} | changes)


@pytest.mark.parametrize("kind", KINDS)
def test_fields_change_what_they_say(kind):
    family = find_family(kind)
    config = make_config(kind, {}) | {"model_type": kind}
    spec = read_config(config)[1]
    others = {"num_attention_heads": 8} | dict.fromkeys(
        ("hidden_dropout_prob", "attention_probs_dropout_prob"), 0.3
    )
    free = {"is_decoder", "tie_word_embeddings", "num_layers"}
    for name in family.defaults.keys() - free:
        value = others.get(name, 2 * config.get(name, family.defaults[name]))
        assert read_config(config | {name: value})[1] != spec, name
    for name in ("classifier_dropout", "output_all_encoded_layers", "auto_map"):
        assert read_config(config | {name: 3})[1] == spec


@pytest.mark.parametrize("kind", KINDS)
def test_ids_of_an_export_are_known(kind):
    config = make_config(kind, {}) | {"model_type": kind}
    ids = {"mask_token_id": 2, "forced_eos_token_id": None, "bos_token_id": 3}
    assert read_config(config | ids)[1] == read_config(config)[1]


def test_a_gpt_bert_has_another_class_for_both_directions():
    advice = find_family("gpt_bert").mask_advice
    assert "GPTBERTForMaskedLM" in advice and "finfo" not in advice
    assert "finfo" in find_family("gpt2").mask_advice


def test_purposes_of_an_ltgbert(refuses):
    with refuses("is_decoder=True", "False"):
        read_config(HPLT | {"is_decoder": True})


def test_gpt_berts_of_either_publisher():
    """`ltg/gpt-bert-babylm-*` has its own classes and names of tensors."""
    ours, tensors, _, _ = read_ours("gpt_bert")
    back = {"model.embedding.": "embedding.", "lm_head.": "classifier."}
    back |= {"model.": "transformer."}
    names = {
        key: next(key.replace(a, b, 1) for a, b in back.items() if key.startswith(a))
        for key in tensors
    }
    renamed = modernise({names[k]: x for k, x in tensors.items()}, ours.family.renamed)
    args = ours.family, ours.spec, "masked", ours.params
    again = from_hf(renamed, *args)
    jax.tree.map(np.testing.assert_array_equal, again, ours.params)
    config = {**SMALL, "architectures": ["LtgbertForMaskedLM"]}
    code = "modeling_ltgbert.Ltgbert"
    auto = {"AutoModelForMaskedLM": f"{code}ForMaskedLM"}
    assert read_config(config | {"auto_map": auto})[0].name == "ltgbert"
    auto |= {"AutoModelForCausalLM": f"{code}ForCausalLM"}
    family, spec = read_config(config | {"auto_map": auto})
    assert (family.name, spec) == ("gpt_bert", ours.spec)


def test_the_layers_of_a_gpt_bert_have_two_names(refuses):
    config = make_config("gpt_bert", {})
    spec = read_config(config)[1]
    del config["num_hidden_layers"]
    assert read_config(config)[1].num_layers == 12
    assert read_config(config | {"num_layers": 2})[1] == spec
    with refuses("num_layers=2", "num_hidden_layers=3"):
        read_config(config | {"num_layers": 2, "num_hidden_layers": 3})


@pytest.mark.peers
@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize("kind", KINDS)
def test_their_code_live(kind, odd, monkeypatch):
    from hub import ltg_peers

    if (module := ltg_peers.load_code(kind)) is None:
        pytest.skip(f"needs JAXPT_{kind.upper()}, the file of its published code")
    heads = {head for each, head, _ in CASES.values() if each == kind}
    for head in sorted(heads):
        config = make_config(kind, ODD[odd], head)
        model = ltg_peers.make_theirs(module, config)
        ours = Ours(
            config | {"model_type": kind}, ltg_peers.list_tensors(model, kind), head
        )
        # Longer than the published 512, from which on their buckets are the same, but
        # for ELC-BERT's.
        is_long = config["max_position_embeddings"] == 512 and kind != "elc_bert"
        batch = make_batch(head, 520 if is_long else 13)
        for rows in (batch, pad_before(batch, 3)):
            theirs = ltg_peers.run_theirs(model, rows, kind, head)
            gaps = compare(ours, rows, theirs)
            print(f"{odd}, {head}:", {k: f"{v:.1e}" for k, v in gaps.items()})
            check(gaps)
