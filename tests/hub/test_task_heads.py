"""Fine-tuning compared with transformers' classes: the same numbers and gradients.

Needs torch; `make test-peers` runs it.
"""

import json

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from safetensors.numpy import load_file

from jaxpt.hub.configs import read_config
from jaxpt.hub.convert import from_hf
from jaxpt.hub.task_heads import (
    CHOICES,
    TEXTS,
    TOKENS,
    find_names,
    name_class,
    task_from_hf,
    task_to_hf,
)
from jaxpt.nn.networks.encoder_decoder import EncoderDecoder
from jaxpt.nn.networks.one_stack import CausalLM, MaskedLM
from jaxpt.nn.task_heads import TextHead, TokenHead
from jaxpt.tasks import choice, classification
from jaxpt.tasks.model import TaskModel, class_loss

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
from hub.cases import BART, BERT, CASES, GPT2  # noqa: E402

pytestmark = pytest.mark.peers

SETTINGS = {
    "bert": BERT | {"pad_token_id": 0},
    "roberta": BERT | {"pad_token_id": 1, "type_vocab_size": 1},
    "distilbert": CASES["distilbert"][2],
    "electra": BERT | {"embedding_size": 8},
    "bart": BART | {"pad_token_id": 1, "bos_token_id": 0, "eos_token_id": 2},
    "gpt2": GPT2 | {"pad_token_id": 0},
    "modernbert": CASES["modernbert-local"][2],
    "modernbert_mean": CASES["modernbert-local"][2] | {"classifier_pooling": "mean"},
}
# Forms of heads that are not called as the family.
FORMS = {"electra": "electra_dense"}
KINDS = {"bart": EncoderDecoder, "gpt2": CausalLM}
PURPOSES = {"bart": "seq2seq", "electra": "discriminator", "gpt2": "causal"}
NO_DROPOUT = {
    "hidden_dropout_prob": 0.0,
    "attention_probs_dropout_prob": 0.0,
    "dropout": 0.0,
    "attention_dropout": 0.0,
    "seq_classif_dropout": 0.0,
    "classifier_dropout": 0.0,
    "summary_last_dropout": 0.0,
    "resid_pdrop": 0.0,
    "embd_pdrop": 0.0,
    "attn_pdrop": 0.0,
}
LENGTHS = (9, 5, 3, 7)
NUM_LABELS = 3


def make_batch(name, shape=(4,)):
    """Rows of different lengths, as of BART ending in an [EOS]."""
    draw = np.random.default_rng(0)
    config = SETTINGS[name]
    pad = config.get("pad_token_id", 0)
    ids = draw.integers(3, config["vocab_size"], size=(*shape, 9))
    lengths = np.resize(LENGTHS, shape)
    real = np.arange(9) < lengths[..., None]
    if name == "bart":
        np.put_along_axis(ids, lengths[..., None] - 1, 2, axis=-1)
    ids = np.where(real, ids, pad)
    types = draw.integers(0, 2, size=ids.shape) * real
    has_types = name in ("bert", "electra")
    return ids, real.astype(np.int64), types * has_types, has_types


def make_theirs(name, what, folder):
    """A model of transformers, every weight drawn; its config and its tensors."""
    family = SETTINGS[name] | NO_DROPOUT | {"num_labels": NUM_LABELS}
    name = name.removesuffix("_mean")
    config = transformers.AutoConfig.for_model(name, **family)
    config._attn_implementation = "eager"
    kinds = read_config(config.to_dict() | {"model_type": name})
    torch.manual_seed(0)
    model = getattr(transformers, name_class(kinds[0], what))(config)
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.2 * torch.randn_like(parameter)
    model.save_pretrained(folder)
    data = json.loads((folder / "config.json").read_text())
    return model, data, load_file(folder / "model.safetensors")


def make_ours(name, what, form, config, tensors, num_outputs, head=TextHead):
    """Our network and head with their weights."""
    family, spec = read_config(config)
    network = KINDS.get(name, MaskedLM)(spec)
    shapes = jax.eval_shape(network.init_params, jax.random.key(0))
    purpose = PURPOSES.get(name, "masked")
    params = from_hf(tensors, family, spec, purpose, shapes, is_body=True)
    names = find_names(family, what, form)
    model = TaskModel(network, head(spec, form, num_outputs, 0.0), form, start_id=2)
    params = {"network": params, "head": task_from_hf(tensors, names), "extra": {}}
    params = jax.tree.map(jnp.asarray, params)

    def to_theirs(grads):
        parts = grads["network"], grads["head"]
        return task_to_hf(*parts, family, spec, purpose, names)

    return model, params, to_theirs


def run_theirs(model, batch, labels, **more):
    ids, real, types, has_types = batch
    inputs = {"input_ids": ids, "attention_mask": real, "labels": labels}
    if has_types:
        inputs["token_type_ids"] = types
    inputs = {key: torch.tensor(value) for key, value in inputs.items()}
    result = model(**inputs, **more)
    result.loss.backward()
    grads = {name: p.grad for name, p in model.named_parameters()}
    return result, {k: g.numpy() for k, g in grads.items() if g is not None}


def as_ours(batch):
    ids, real, types, _ = batch
    made = {
        "inputs": jnp.asarray(ids, jnp.int32),
        "segment_ids": jnp.asarray(real, jnp.int32),
        "type_ids": jnp.asarray(types, jnp.int32),
    }
    return made | {"row_weights": jnp.ones(len(ids))}


def check(loss_fn, params, to_theirs, reference, grads, logits_of):
    """The loss, the logits and every gradient at 1e-4 of its greatest number."""
    loss, result = jax.value_and_grad(loss_fn)(params)
    assert abs(float(loss) - float(reference.loss)) < 1e-4
    np.testing.assert_allclose(
        logits_of(params), reference.logits.detach().numpy(), atol=1e-4
    )
    result = to_theirs(result)
    missing = set(result) - set(grads)
    assert not {k for k in missing if np.abs(result[k]).max() > 1e-6}, missing
    for name in sorted(set(result) & set(grads)):
        gap = np.abs(result[name] - grads[name]).max()
        assert gap < 1e-4 * max(1.0, np.abs(grads[name]).max()), (name, gap)


@pytest.mark.parametrize("name", SETTINGS)
def test_classification_is_that_of_transformers(name, tmp_path):
    reference, config, tensors = make_theirs(name, TEXTS, tmp_path)
    form = FORMS.get(name, name)
    made = make_ours(name, TEXTS, form, config, tensors, NUM_LABELS)
    model, params, to_theirs = made
    batch, targets = make_batch(name), np.array([0, 2, 1, 2])
    result, grads = run_theirs(reference, batch, targets)
    ours = as_ours(batch) | {"targets": jnp.asarray(targets)}
    spec = classification.Spec()

    def outputs(params):
        return classification.outputs(model, params, ours, None)

    def loss(params):
        total, weight = classification.loss(outputs(params), ours, spec)["loss"]
        return total / weight

    check(loss, params, to_theirs, result, grads, outputs)


CHOOSING = ["bert", "distilbert", "electra", "modernbert", "modernbert_mean"]
TAGGING = ["bert", "roberta", "distilbert", "electra", "gpt2", "modernbert"]


@pytest.mark.parametrize("name", CHOOSING)
def test_choice_is_that_of_transformers(name, tmp_path):
    reference, config, tensors = make_theirs(name, CHOICES, tmp_path)
    form = FORMS.get(name, name)
    model, params, to_theirs = make_ours(name, CHOICES, form, config, tensors, 1)
    batch, targets = make_batch(name, (2, 3)), np.array([2, 0])
    result, grads = run_theirs(reference, batch, targets)
    ours = as_ours(batch) | {"targets": jnp.asarray(targets)}

    def outputs(params):
        return choice.outputs(model, params, ours, None)

    def loss(params):
        total, weight = choice.loss(outputs(params), ours, choice.Spec())["loss"]
        return total / weight

    check(loss, params, to_theirs, result, grads, outputs)


@pytest.mark.parametrize("name", TAGGING)
def test_tagging_is_that_of_transformers(name, tmp_path):
    reference, config, tensors = make_theirs(name, TOKENS, tmp_path)
    form = "modernbert" if name == "modernbert" else "electra"  # any but that one's
    made = make_ours(name, TOKENS, form, config, tensors, NUM_LABELS, TokenHead)
    model, params, to_theirs = made
    batch = make_batch(name)
    draw = np.random.default_rng(1)
    targets = np.where(batch[1] > 0, draw.integers(-1, 3, batch[0].shape), -1)
    result, grads = run_theirs(reference, batch, np.where(targets < 0, -100, targets))
    ours = as_ours(batch)

    def loss(params):
        logits = model.outputs(params, ours, None)
        total, weight = class_loss(logits, jnp.asarray(targets), jnp.ones((4, 9)))
        return total / weight

    is_text = batch[1][..., None] > 0
    real = lambda x: np.where(is_text, x, 0)  # noqa: E731
    result.logits = torch.tensor(real(result.logits.detach().numpy()))
    check(
        loss,
        params,
        to_theirs,
        result,
        grads,
        lambda params: real(model.outputs(params, ours, None)),
    )


def test_electra_is_one_linear_layer_on_the_first_state(tmp_path, refuses):
    """As the original; the class of transformers has a dense layer and a GELU more."""
    reference, config, tensors = make_theirs("electra", TOKENS, tmp_path)
    names = find_names(read_config(config)[0], TOKENS, "electra")
    made = make_ours("electra", TOKENS, "electra", config, tensors, NUM_LABELS)
    model, params, _ = made
    batch = make_batch("electra")
    ids, real, types, _ = (torch.tensor(x) for x in batch)
    states = reference.electra(ids, attention_mask=real, token_type_ids=types)[0]
    expected = reference.classifier(states[:, 0]).detach().numpy()
    result = model.outputs(params, as_ours(batch), None)
    np.testing.assert_allclose(result, expected, atol=1e-4)
    assert names.form == ""
    with refuses("electra", "SequenceClassification", "task.head=electra_dense"):
        find_names(read_config(config)[0], TEXTS, "electra")
