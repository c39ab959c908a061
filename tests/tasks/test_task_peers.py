"""Taggers, question answering and written answers against transformers' own classes.

Needs torch; `make test-peers` runs it. Gradients are compared as the norm of all
differences over the norm of theirs, logits where there is no padding.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hub.cases import CASES, Ours, V

from jaxpt.hub.convert import to_hf
from jaxpt.nn.networks.encoder_decoder import EncoderDecoder
from jaxpt.nn.networks.one_stack import MaskedLM
from jaxpt.nn.task_heads import TokenHead
from jaxpt.tasks import span_qa, tagging, text_to_text
from jaxpt.tasks.model import TaskModel
from jaxpt.tasks.writing import Writing
from jaxpt.text_form import TextForm

torch = pytest.importorskip("torch")
transformers = pytest.importorskip("transformers")
from hub.peers import make_theirs, save  # noqa: E402

pytestmark = pytest.mark.peers
LENGTHS = np.array([9, 13, 5])
NAMES = {
    "bert": ("Bert", "bert"),
    "roberta": ("Roberta", "roberta"),
    "distilbert": ("DistilBert", "distilbert"),
    "electra-discriminator": ("Electra", "electra"),
}


def make_pair(name, task, num_outputs, folder):
    """Their model with a fresh head, and ours with the same weights."""
    head = CASES[name][1]
    base = make_theirs(name)
    config = base.config
    config.num_labels = num_outputs
    for key in ("hidden_dropout_prob", "attention_probs_dropout_prob", "qa_dropout"):
        if hasattr(config, key):
            setattr(config, key, 0.0)
    prefix, body = NAMES[name]
    torch.manual_seed(1)
    reference = getattr(transformers, f"{prefix}For{task}")(config).eval()
    getattr(reference, body).load_state_dict(
        getattr(base, body).state_dict(), strict=False
    )
    with torch.no_grad():
        out = (
            reference.qa_outputs
            if task == "QuestionAnswering"
            else reference.classifier
        )
        out.weight.normal_()
        out.bias.normal_()
    ours = Ours(*save(base, folder), head)
    network = MaskedLM(ours.spec)
    own = {k: v for k, v in ours.params.items() if k != "score"}
    weights = {"kernel": out.weight.detach().numpy().T, "bias": out.bias.detach()}
    params = {
        "network": own,
        "head": {"out": jax.tree.map(jnp.asarray, weights)},
        "extra": {},
    }
    model = TaskModel(network, TokenHead(ours.spec, "bert", num_outputs, 0.0), "bert")
    return reference, ours, model, params, out


def make_batch(name, ours):
    rng = np.random.default_rng(1)
    real = np.arange(13) < LENGTHS[:, None]
    pad = 1 if name == "roberta" else 0
    batch = {
        "inputs": np.where(real, rng.integers(4, V, real.shape), pad),
        "segment_ids": real.astype(np.int32),
        "row_weights": np.ones(3, np.float32),
    }
    if ours.spec.num_types > 1:
        batch["type_ids"] = rng.integers(0, 2, real.shape) * real
    return batch, real


def give(batch, rows=slice(None), length=None):
    """A batch as their models take it."""
    names = {"inputs": "input_ids", "segment_ids": "attention_mask"}
    names["type_ids"] = "token_type_ids"
    return {
        names[key]: torch.tensor(np.asarray(value)[rows, :length], dtype=torch.long)
        for key, value in batch.items()
        if key in names
    }


def compare(reference, ours, out, model, params, batch, task, spec):
    """The gap of the loss, and of all gradients as one."""

    def loss(params):
        total, weight = task.loss(
            task.outputs(model, params, batch, None), batch, spec
        )["loss"]
        return total / weight

    value, grads = jax.jit(jax.value_and_grad(loss))(params)
    network = dict(grads["network"])
    if "score" in ours.params:
        network["score"] = jax.tree.map(jnp.zeros_like, ours.params["score"])
    result = to_hf(network, ours.family, ours.spec, ours.head)
    held = {n: p.grad for n, p in reference.named_parameters() if p.grad is not None}
    gradients = {id(out.weight): grads["head"]["out"]["kernel"].T}
    gradients[id(out.bias)] = grads["head"]["out"]["bias"]
    parts = dict(reference.named_parameters())
    pairs = [
        (
            held[name].numpy(),
            np.asarray(gradients.get(id(parts[name]), result.get(name))),
        )
        for name in held
    ]
    assert len(pairs) > 10
    apart = sum(np.sum(np.square(a - b)) for a, b in pairs)
    size = sum(np.sum(np.square(a)) for a, _ in pairs)
    return float(value), float(np.sqrt(apart / size))


@pytest.mark.parametrize("name", NAMES)
def test_token_classification(name, tmp_path):
    reference, ours, model, params, out = make_pair(
        name, "TokenClassification", 5, tmp_path
    )
    batch, real = make_batch(name, ours)
    rng = np.random.default_rng(2)
    is_target = real & (rng.random(real.shape) < 0.6)
    batch["targets"] = np.where(is_target, rng.integers(0, 5, real.shape), -100)
    output = reference(**give(batch), labels=torch.tensor(batch["targets"]))
    output.loss.backward()
    logits = jax.jit(lambda p: tagging.outputs(model, p, batch, None))(params)
    gap = np.abs(np.asarray(logits) - output.logits.detach().numpy())[real].max()
    args = reference, ours, out, model, params, batch, tagging, tagging.Spec()
    value, grads = compare(*args)
    print(f"{name}: logits {gap:.1e}, gradients {grads:.1e}")
    assert gap < 1e-4 and abs(value - output.loss.item()) < 1e-5 and grads < 1e-4


@pytest.mark.parametrize("name", NAMES)
def test_question_answering(name, tmp_path):
    """Their loss takes padding for places of the answer, so each row is given alone."""
    reference, ours, model, params, out = make_pair(
        name, "QuestionAnswering", 2, tmp_path
    )
    batch, _ = make_batch(name, ours)
    batch["targets"] = np.array([[2, 5], [12, 12], [0, 0]])
    total, logits = (
        0.0,
        jax.jit(lambda p: span_qa.outputs(model, p, batch, None))(params),
    )
    for row, length in enumerate(LENGTHS):
        places = batch["targets"][row : row + 1]
        start, end = torch.tensor(places).unbind(1)
        output = reference(
            **give(batch, slice(row, row + 1), length),
            start_positions=start,
            end_positions=end,
        )
        (output.loss / len(LENGTHS)).backward()
        total += output.loss.item() / len(LENGTHS)
        both = torch.stack([output.start_logits[0], output.end_logits[0]], -1).detach()
        gap = np.abs(np.asarray(logits[row, :length]) - both.numpy()).max()
        assert gap < 1e-4
    args = reference, ours, out, model, params, batch, span_qa, span_qa.Spec()
    value, grads = compare(*args)
    print(f"{name}: gradients {grads:.1e}")
    assert abs(value - total) < 1e-5 and grads < 1e-4


WRITINGS = {
    "t5": {"form": TextForm(start=0, ends=(1,)), "end": 1, "pad": 0},
    "t5-1.1": {"form": TextForm(start=0, ends=(1,)), "end": 1, "pad": 0},
    "bart": {"form": TextForm(start=2, ends=(2,), last=2), "end": 2, "pad": 1},
}


@pytest.mark.parametrize("num_beams", [1, 3])
@pytest.mark.parametrize("name", WRITINGS)
def test_answers_after_a_step(name, num_beams, tmp_path):
    """The same gradient; and one step later the same texts."""
    reference = make_theirs(name)
    ours = Ours(*save(reference, tmp_path), "seq2seq")
    writing = Writing(True, False, max_len=20, **WRITINGS[name])
    spec = text_to_text.Spec(kind="text", max_target=9, num_beams=num_beams)
    network = EncoderDecoder(ours.spec)
    model = TaskModel(network, None, "mean", writing=writing, spec=spec)
    rng = np.random.default_rng(3)
    real = np.arange(13) < LENGTHS[:, None]
    batch = {
        "inputs": np.where(real, rng.integers(4, V, real.shape), writing.pad),
        "segment_ids": real.astype(np.int32),
        "row_weights": np.ones(3, np.float32),
    }
    answers = rng.integers(4, V, (3, 6))
    answers[:, -1] = writing.end
    answers[1, 3:] = [writing.end, -1, -1]
    output = reference(
        **give(batch), labels=torch.tensor(np.where(answers < 0, -100, answers))
    )
    output.loss.backward()
    params = {"network": ours.params, "head": {}, "extra": {}}

    def loss(params):
        outputs = text_to_text.outputs(model, params, batch | {"answer": answers}, None)
        total, weight = text_to_text.loss(outputs, batch, spec)["loss"]
        return total / weight

    value, grads = jax.jit(jax.value_and_grad(loss))(params)
    assert abs(float(value) - output.loss.item()) < 1e-5
    result = to_hf(grads["network"], ours.family, ours.spec, "seq2seq")
    held = {n: p.grad.numpy() for n, p in reference.named_parameters()}
    apart = sum(np.sum(np.square(held[n] - result[n])) for n in held)
    size = sum(np.sum(np.square(grad)) for grad in held.values())
    gap = float(np.sqrt(apart / size))
    print(f"{name}: gradients {gap:.1e}")
    assert gap < 1e-4
    rate = 0.5 / float(np.sqrt(size))
    with torch.no_grad():
        for parameter in reference.parameters():
            parameter -= rate * parameter.grad
    params = jax.tree.map(lambda x, g: x - rate * g, params, grads)
    result = jax.jit(lambda p: text_to_text.outputs(model, p, batch, None))(params)
    expected = reference.generate(
        **give(batch), max_new_tokens=9, num_beams=num_beams, do_sample=False
    ).numpy()[:, 1:]
    for tokens, count, row in zip(result["tokens"], result["counts"], expected):
        ids = [i for i in row.tolist() if i != writing.pad]
        assert np.asarray(tokens)[: int(count)].tolist() == ids
