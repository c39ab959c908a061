"""BERT with its sentence head is transformers' BertForPreTraining, there and back."""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hub.cases import make_batch
from hub.test_families import Fixture
from hub.test_runs import settings, write_folder
from safetensors.numpy import load_file

from jaxpt.hub.configs import read_config
from jaxpt.hub.convert import from_hf
from jaxpt.hub.export import export_run
from jaxpt.hub.family import find_family
from jaxpt.hub.imports import import_run
from jaxpt.objectives import bert
from jaxpt.ops import masks as attention_masks
from jaxpt.runs.workdir import load_run
from jaxpt.text.tokens.vocab import Vocab

HEAD = {"bert.pooler.dense": (16, 16), "cls.seq_relationship": (2, 16)}


def make_fixture():
    """The small BERT of the fixtures with a sentence head of random numbers."""
    fixture, draw = Fixture("bert"), np.random.default_rng(0)
    for name, shape in HEAD.items():
        weight = draw.normal(size=shape).astype(np.float32)
        fixture.tensors[f"{name}.weight"] = weight
        fixture.tensors[f"{name}.bias"] = weight[:, 0].copy()
    fixture.config["architectures"] = ["BertForPreTraining"]
    return fixture


def pair_settings(tmp_path):
    config = settings(tmp_path)
    config.data.rows, config.data.sentences = "pairs", "punctuation"
    return config


def test_import_and_export(tmp_path):
    write_folder(tmp_path / "theirs", make_fixture())
    import_run(tmp_path / "theirs", tmp_path / "run", pair_settings(tmp_path))
    program, _, params, _ = load_run(tmp_path / "run")
    assert program.task.plan.objective_name == "bert"
    # Ours are [in, out].
    expected = load_file(tmp_path / "theirs" / "model.safetensors")
    weight = expected["cls.seq_relationship.weight"]
    np.testing.assert_array_equal(params["pair_score"]["out"]["kernel"], weight.T)
    export_run(tmp_path / "run", tmp_path / "back")
    config = json.loads((tmp_path / "back" / "config.json").read_text())
    assert config["architectures"] == ["BertForPreTraining"]
    file = load_file(tmp_path / "back" / "model.safetensors")
    assert set(expected) - set(file) <= set(find_family("bert").copies)
    for key, value in file.items():
        np.testing.assert_array_equal(value, expected[key])


def test_a_head_that_the_settings_leave_out(tmp_path, refuses):
    write_folder(tmp_path / "theirs", make_fixture())
    config = pair_settings(tmp_path)
    config.bert.sentence_task = "none"
    with refuses("from=", "holds a pretraining model", "masked"):
        import_run(tmp_path / "theirs", tmp_path / "run", config)
    assert not (tmp_path / "run").exists()


@pytest.mark.peers
def test_scores_are_those_of_transformers(tmp_path):
    """Of tokens and of pairs, and the label 1 means the same: B does not follow."""
    torch = pytest.importorskip("torch")
    transformers = pytest.importorskip("transformers")
    from hub.peers import make_theirs, save

    name, batch = "bert", make_batch("bert")
    config = make_theirs(name).config
    torch.manual_seed(0)
    reference = transformers.BertForPreTraining(config).eval()
    with torch.no_grad():
        for parameter in reference.parameters():
            parameter += 0.2 * torch.randn_like(parameter)
    config, tensors = save(reference, tmp_path)
    family, spec = read_config(config)
    vocab = Vocab(size=spec.vocab_size, pad=0, cls=1, sep=2, mask=4)
    task = bert.Spec.for_seq_len(13)
    model = task.make_network(spec, vocab)
    like = jax.eval_shape(model.init_params, jax.random.key(0))
    params = from_hf(tensors, family, spec, "pretraining", like)
    lengths, types = batch["lengths"], batch["types"]
    real, labels = np.arange(13) < lengths[:, None], np.array([1, 0, 1])
    out = reference(
        input_ids=torch.tensor(batch["input_ids"]),
        attention_mask=torch.tensor(real.astype(np.int64)),
        token_type_ids=torch.tensor(types),
        labels=torch.full(real.shape, -100).index_fill_(1, torch.tensor([2]), 7),
        next_sentence_label=torch.tensor(labels),
    )

    def run(model):
        seen = attention_masks.key_padding(jnp.asarray(lengths))
        hidden = model.encode(
            batch["input_ids"], seen, types=jnp.asarray(types), deterministic=True
        )
        return model.logits(hidden), model.pair_score(hidden)

    tokens, pairs = model.apply({"params": params}, method=run)
    for result, expected in (
        (np.asarray(tokens)[real], out.prediction_logits.detach().numpy()[real]),
        (pairs, out.seq_relationship_logits.detach().numpy()),
    ):
        np.testing.assert_allclose(result, expected, atol=1e-4)
    loss = {
        "inputs": jnp.asarray(batch["input_ids"]),
        "type_ids": jnp.asarray(types),
        "segment_ids": jnp.asarray(real.astype(np.int32)),
        "masked_positions": jnp.full((3, 1), 2),
        "targets": jnp.full((3, 1), 7),
        "nsp_labels": jnp.asarray(labels),
        "weights": {"mlm_loss": jnp.ones((3, 1)), "nsp_loss": jnp.ones(3)},
    }
    terms, _ = bert.loss(params, model, loss, bert.masks(loss), {})
    total = sum(total / weight for total, weight in terms.values())
    assert float(total) == pytest.approx(out.loss.item(), abs=1e-5)
