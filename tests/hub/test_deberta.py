"""DeBERTa's configs and checkpoints as they are published."""

import numpy as np
import pytest
from hub.test_families import Fixture

from jaxpt.errors import UserError
from jaxpt.hub.configs import read_config, write_config
from jaxpt.hub.convert import from_hf, list_unread, modernise
from jaxpt.nn.model_differences import find_differences
from jaxpt.nn.presets import get_preset

# config.json of microsoft/deberta-v3-base.
V3 = {
    "model_type": "deberta-v2",
    "attention_probs_dropout_prob": 0.1,
    "hidden_act": "gelu",
    "hidden_dropout_prob": 0.1,
    "hidden_size": 768,
    "initializer_range": 0.02,
    "intermediate_size": 3072,
    "max_position_embeddings": 512,
    "relative_attention": True,
    "position_buckets": 256,
    "norm_rel_ebd": "layer_norm",
    "share_att_key": True,
    "pos_att_type": "p2c|c2p",
    "layer_norm_eps": 1e-7,
    "max_relative_positions": -1,
    "position_biased_input": False,
    "num_attention_heads": 12,
    "num_hidden_layers": 12,
    "type_vocab_size": 0,
    "vocab_size": 128100,
}
HEAD = "lm_predictions.lm_head"


def test_the_published_config_is_the_preset():
    _, spec = read_config(V3)
    assert find_differences(spec, get_preset("deberta-v3-base")) == []
    assert read_config(V3 | {"pos_att_type": ["c2p", "p2c"]})[1] == spec
    kind, written = write_config(spec, "masked")
    assert kind.name == "deberta-v2" and written["max_relative_positions"] == -1


@pytest.mark.parametrize(
    "changes, words",
    [
        ({"conv_kernel_size": 3}, "conv_kernel_size=3: must be 0"),
        ({"relative_attention": False}, "relative_attention=False: must be true"),
        ({"embedding_size": 128}, "embedding_size=128: must be 768"),
        ({"attention_head_size": 32}, "attention_head_size=32: must be hidden_size"),
        ({"position_buckets": 512}, "position_buckets=512: must be even and below 512"),
        ({"position_buckets": 255}, "position_buckets=255: must be even"),
        ({"pos_att_type": "p2p|c2p"}, "pos_att_type='p2p|c2p': must be c2p, p2c or"),
        ({"tie_word_embeddings": False}, "tie_word_embeddings=False: must be True"),
        (
            {"position_buckets": -1, "max_relative_positions": 3},
            "max_relative_positions=3: must be even and at least 2 without",
        ),
    ],
)
def test_what_is_not_supported_is_named(changes, words):
    with pytest.raises(UserError) as caught:
        read_config(V3 | changes)
    assert f"config.json: {words}" in str(caught.value)


def test_the_head_under_its_published_names():
    """A discriminator of v3 has the head for masked tokens and its own."""
    fixture = Fixture("deberta-v2")
    ours = fixture.ours
    published = {
        name.replace("cls.predictions.transform", HEAD).replace(
            "cls.predictions", HEAD
        ): x
        for name, x in fixture.tensors.items()
    }
    assert f"{HEAD}.dense.weight" in published and f"{HEAD}.bias" in published
    published["mask_predictions.dense.weight"] = np.zeros((16, 16), np.float32)
    renamed = modernise(published, ours.family.renamed)
    params = from_hf(renamed, ours.family, ours.spec, "masked", ours.params)
    for part in ("transform", "norm"):
        for name, value in ours.params["head"][part].items():
            np.testing.assert_array_equal(params["head"][part][name], value)
    np.testing.assert_array_equal(params["head"]["bias"], ours.params["head"]["bias"])
    unread = list_unread(renamed, ours.family, ours.spec, "masked")
    assert unread == ["mask_predictions.dense.weight"]


def test_both_heads_are_refused():
    fixture = Fixture("deberta-v2")
    twice = fixture.tensors | {f"{HEAD}.bias": np.zeros(30, np.float32)}
    with pytest.raises(UserError, match="cls.predictions.bias: appears twice"):
        modernise(twice, fixture.ours.family.renamed)
