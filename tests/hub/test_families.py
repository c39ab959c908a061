"""Every family computes transformers' numbers, and exports what was imported.

The fixtures were made by `make_fixtures.py`; `make test-peers` compares live.
"""

import dataclasses
import json
from pathlib import Path

import numpy as np
import pytest
from hub.cases import CASES, Ours, check, check_equal, compare
from tiny import slow_but

from jaxpt.errors import UserError
from jaxpt.hub.configs import read_config, write_config
from jaxpt.hub.convert import (
    check_names,
    from_hf,
    list_unread,
    move_places,
    refine_spec,
    to_hf,
)
from jaxpt.hub.family import find_family
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.nn.presets import PRESETS, get_preset
from jaxpt.text.tokens.vocab import Vocab

FIXTURES = Path(__file__).with_name("fixtures")
every = pytest.mark.parametrize("name", CASES)
# Forms of a family that differ from another case in a size, an activation or a tie.
FORMS = ("gpt2-inner", "bert-relu", "electra-same", "llama-tied", "camembert")
FORMS += ("gpt_neox-serial",)


class Fixture:
    """A checkpoint of transformers with a batch and its outputs."""

    def __init__(self, name):
        with np.load(FIXTURES / f"{name}.npz") as arrays:
            self.config = json.loads(str(arrays["config"]))
            parts = {key: {} for key in ("tensor", "batch", "theirs", "grads")}
            for key in arrays.files:
                kind, _, rest = key.partition("/")
                if rest:
                    parts[kind][rest] = arrays[key]
        self.tensors, self.batch = parts["tensor"], parts["batch"]
        self.theirs = parts["theirs"] | {"grads": parts["grads"]}
        self.ours = Ours(self.config, self.tensors, CASES[name][1])


@pytest.fixture(scope="module")
def load():
    """Fixtures by name, each read once."""
    known = {}
    return lambda name: known.get(name) or known.setdefault(name, Fixture(name))


@pytest.mark.parametrize("name", slow_but(set(CASES) - set(FORMS), CASES))
def test_numbers_are_those_of_transformers(name, load):
    fixture = load(name)
    check(compare(fixture.ours, fixture.batch, fixture.theirs))


@every
def test_what_is_read_is_written(name, load):
    fixture = load(name)
    ours = fixture.ours
    back = to_hf(ours.params, ours.family, ours.spec, ours.head)
    unread = list_unread(fixture.tensors, ours.family, ours.spec, ours.head)
    left = set(fixture.tensors) - set(back) - set(unread)
    assert left <= set(ours.family.copies)
    check_equal(ours, back, fixture.tensors)
    assert set(back) - set(fixture.tensors) <= set(ours.family.computed(ours.spec))
    _, config = write_config(ours.spec, ours.head, ours.family.name)
    pairs = [(config, fixture.config)]
    pairs += [(config[part], fixture.config[part]) for part in ours.family.stacks]
    for written, read in pairs:
        kept = set(written) & set(read)
        kept -= {"architectures", "rope_parameters", *ours.family.stacks}
        assert len(kept) >= 7
        for key in kept - {k for k in kept if read[k] is None}:
            value = read[key]
            if isinstance(value, dict):  # of which transformers writes all options
                value = {name: value[name] for name in written[key]}
            assert written[key] == value, key


@pytest.mark.parametrize("option", ["value_embeddings", "smear"])
def test_options_that_no_family_has_are_refused(option):
    spec = dataclasses.replace(get_preset("gpt2"), **{option: True})
    words = f"the nearest, gpt2, needs model.{option}=False \\(now True\\)$"
    with pytest.raises(UserError, match=words):
        write_config(spec, "causal")


@every
def test_bad_tensors_are_named(name, load):
    fixture = load(name)
    ours, tensors = fixture.ours, fixture.tensors

    def read(changed):
        return from_hf(changed, ours.family, ours.spec, ours.head, ours.params)

    some = sorted(set(tensors) - set(ours.family.copies))[3]
    for changed, parts in (
        ({k: v for k, v in tensors.items() if k != some}, [some, "missing"]),
        (tensors | {"extra.weight": np.zeros(3)}, ["extra.weight", "no place"]),
        (tensors | {some: tensors[some][:-1]}, [some, "shape", "config"]),
    ):
        with pytest.raises(UserError) as caught:
            read(changed)
        for part in parts:
            assert part in str(caught.value)


@pytest.mark.parametrize(
    "name, change", [("pegasus", np.roll), ("marian", lambda table, _: table[1:])]
)
def test_other_tables_of_sinusoids_are_refused(name, change, load, refuses):
    ours, tensors = load(name).ours, load(name).tensors
    key = "model.encoder.embed_positions.weight"
    table = ours.family.computed(ours.spec)[key].make()
    read = ours.family, ours.spec, ours.head, ours.params
    from_hf({**tensors, key: table}, *read)
    with refuses(key, "sinusoidal"):
        from_hf({**tensors, key: change(table, 1)}, *read)


def test_a_copy_of_a_tied_tensor_must_be_equal(load):
    ours, tensors = load("gpt2").ours, load("gpt2").tensors
    table = tensors["transformer.wte.weight"]
    same = tensors | {"lm_head.weight": table}
    from_hf(same, ours.family, ours.spec, ours.head, ours.params)
    with pytest.raises(UserError, match="lm_head.weight: differs"):
        other = tensors | {"lm_head.weight": table + 1}
        from_hf(other, ours.family, ours.spec, ours.head, ours.params)


def test_names_without_the_models_prefix_are_known(load):
    ours, tensors = load("gpt2").ours, load("gpt2").tensors
    bare = {key.removeprefix("transformer."): value for key, value in tensors.items()}
    result = from_hf(bare, ours.family, ours.spec, ours.head, ours.params)
    np.testing.assert_array_equal(
        result["embed"]["tokens"], tensors["transformer.wte.weight"]
    )


@pytest.mark.slow_except("29")
@pytest.mark.parametrize("pad", [0, 1, 3, 29])
def test_a_roberta_is_laid_out_for_its_padding(pad, load):
    """Exported and imported again, it has the same positions for all other ids."""
    ours, vocab = load("roberta").ours, Vocab(30, pad=pad)
    assert ours.spec.position_offset == 2
    kind, config = write_config(ours.spec, "masked", "roberta", vocab)
    export_spec = kind.lay_out(ours.spec, pad)
    tensors = to_hf(
        move_places(ours.params, ours.spec, export_spec), kind, export_spec, "masked"
    )
    table = tensors["roberta.embeddings.position_embeddings.weight"]
    assert config["pad_token_id"] == pad
    assert config["max_position_embeddings"] == 18 + pad + 1
    ids = np.array([[i for i in range(30) if i != pad][:18], [28] * 18])
    positions = np.asarray(ours.params["embed"]["positions"]["table"])
    np.testing.assert_array_equal(table[roberta_places(ids, pad)], [positions[2:]] * 2)
    again = Ours(config, tensors, "masked")
    kind.check_pad(again.spec, pad)
    batch = {"input_ids": ids, "lengths": np.array([18, 18])}
    for one, two in zip(
        ours.outputs(ours.params, batch),
        again.outputs(again.params, batch),
        strict=True,
    ):
        np.testing.assert_array_equal(one, two)


def test_a_roberta_needs_a_padding(load, refuses):
    spec = load("roberta").ours.spec
    with refuses("no [PAD]", "roberta", "tokenizer.specials"):
        write_config(spec, "masked", vocab=Vocab(30))
    bare = dataclasses.replace(spec, position_offset=0)
    assert write_config(bare, "masked", vocab=Vocab(30))[0].name == "bert"


def roberta_places(ids, pad):
    """`create_position_ids_from_input_ids` of transformers' modeling_roberta.py."""
    is_token = (ids != pad).astype(int)
    return np.cumsum(is_token, axis=1) * is_token + pad


@pytest.mark.parametrize("name", PRESETS)
def test_presets_are_of_their_family(name):
    spec = get_preset(name)
    head = {"generator": "generator"}.get(name.rpartition("-")[2], "masked")
    if name.startswith("electra") and head == "masked":
        head = "discriminator"
    if name.startswith(("gpt", "llama", "mistral", "qwen", "pythia", "tinystories")):
        head = "causal"
    if spec.num_decoder_layers:
        head = "seq2seq"
    family, config = write_config(spec, head)
    names = {"gpt3": "gpt2", "modern": "modernbert", "qwen2.5": "qwen2"}
    names |= {"pythia": "gpt_neox", "tinystories": "gpt_neo", "deberta": "deberta-v2"}
    begin = name.partition("-")[0]
    assert family.name == names.get(begin, begin)
    assert read_config(config)[0] is family


@pytest.mark.parametrize(
    "changes, parts",
    [
        ({"model_type": "flaubert"}, ["model_type='flaubert'", "gpt2"]),
        ({"model_type": "deberta"}, ["'deberta'", "one layer", "deberta-v2"]),
        (
            {"model_type": None, "auto_map": {"AutoModel": "a.B"}},
            ["model_type=None", "(auto_map), which is not executed", "gpt2"],
        ),
        ({"model_type": "albert"}, ["model_type='albert'", "share one set"]),
        ({"model_type": "gemma3"}, ["model_type='gemma3'", "gemma3_text"]),
        ({"model_type": ["gpt2"]}, ["model_type=['gpt2']", "gpt2"]),
        ({"architectures": [3]}, ["architectures=[3]", "a list of names"]),
        ({"architectures": "GPT2Model"}, ["architectures='GPT2Model'", "a list"]),
        ({"vocab_size": 10**12}, ["vocab_size=1000000000000", "at most 2147483647"]),
        ({"activation_function": "swish2"}, ["activation_function='swish2'", "gelu"]),
        ({"scale_attn_by_inverse_layer_idx": True}, ["scale_attn_by_inverse", "False"]),
        ({"n_embd": None}, ["config.json: n_embd=None", "integer"]),
        ({"n_head": 5}, ["num_heads=5"]),
    ],
)
def test_bad_configs_are_named(changes, parts):
    config = find_family("gpt2").write(get_preset("gpt2")) | {"model_type": "gpt2"}
    with pytest.raises(UserError) as caught:
        read_config(config | changes)
    for part in parts:
        assert part in str(caught.value)


def test_a_config_with_too_many_layers_is_refused_at_once(load):
    """Without making anything for layers that the checkpoint lacks."""
    for name in ("gpt2", "bert", "t5", "bart", "llama", "gpt_neox", "modernbert"):
        ours, tensors = load(name).ours, load(name).tensors
        deep = dataclasses.replace(ours.spec, num_layers=200)
        with pytest.raises(UserError, match=r"tensor .*\.2\..*: is missing"):
            check_names(tensors, ours.family, deep, ours.head)
        check_names(tensors, ours.family, ours.spec, ours.head)


@pytest.mark.parametrize("name", ["xlm-roberta", "camembert"])
def test_robertas_form_has_the_families_of_other_languages(name, load):
    """Their spec is RoBERTa's, as which it is exported unless --family names them."""
    spec = load(name).ours.spec
    assert write_config(spec, "masked")[0].name == "roberta"
    kind, config = write_config(spec, "masked", name)
    assert kind.name == config["model_type"] == name
    assert config["architectures"] == [kind.heads["masked"]]


def test_a_model_of_no_family_is_told_how_it_differs():
    spec = ModelSpec(vocab_size=30, positions="relative")
    with pytest.raises(
        UserError, match="nearest, gpt2, .*positions=learned .now relat"
    ):
        write_config(spec, "causal")
    with pytest.raises(UserError, match="family=bert: must be one that has a causal"):
        write_config(spec, "causal", "bert")


def test_what_only_the_tensors_determine():
    """BART's bias, which a new model has as zeros, and whether mT5's head is tied."""
    table, zeros = np.arange(6.0).reshape(3, 2), np.zeros((1, 3))
    spec = ModelSpec(vocab_size=3)
    for family, name, tensors, expected in (
        ("bart", "head_bias", {}, False),
        ("bart", "head_bias", {"final_logits_bias": zeros}, False),
        ("bart", "head_bias", {"final_logits_bias": zeros + 1}, True),
        ("mt5", "tie_embeddings", {"shared.weight": table}, True),
        (
            "mt5",
            "tie_embeddings",
            {"shared.weight": table, "lm_head.weight": table},
            True,
        ),
        (
            "mt5",
            "tie_embeddings",
            {"shared.weight": table, "lm_head.weight": -table},
            False,
        ),
    ):
        result = refine_spec(spec, find_family(family), tensors)
        assert getattr(result, name) is expected, (family, tensors.keys())
        assert result == dataclasses.replace(spec, **{name: expected})
    kept = dataclasses.replace(spec, head_bias=True)
    assert refine_spec(kept, find_family("bart"), {}) == kept
