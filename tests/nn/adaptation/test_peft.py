"""LoRA compared with peft on transformers' models: numbers, gradients, merged weights.

Needs torch and peft; `make test-peers` runs it.
"""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hub.cases import CASES, Ours, make_batch
from nn.adaptation.networks import paths_of

from jaxpt.hub.convert import from_hf
from jaxpt.nn.adaptation.adapt import adapted, init_extra, merge
from jaxpt.nn.adaptation.adapt_spec import AdaptSpec
from jaxpt.nn.adaptation.watch import put

torch = pytest.importorskip("torch")
pytest.importorskip("transformers")
peft = pytest.importorskip("peft")
from hub.peers import make_theirs, save  # noqa: E402

pytestmark = pytest.mark.peers
TARGETS = {"bert": ("query", "value"), "t5": ("q", "v"), "llama": ("q_proj", "v_proj")}


def run_theirs(model, batch):
    real = np.arange(batch["input_ids"].shape[1]) < batch["lengths"][:, None]
    inputs = {
        "input_ids": torch.tensor(batch["input_ids"]),
        "attention_mask": torch.tensor(real.astype(np.int64)),
        "output_hidden_states": True,
    }
    if "types" in batch:
        inputs["token_type_ids"] = torch.tensor(batch["types"])
    if "decoder_input_ids" in batch:
        inputs["decoder_input_ids"] = torch.tensor(batch["decoder_input_ids"])
        real = np.ones(batch["decoder_input_ids"].shape, bool)
    return model(**inputs).logits, real


@pytest.mark.parametrize("rslora", [False, True])
@pytest.mark.parametrize("name", TARGETS)
def test_numbers_gradients_and_merged_weights_are_pefts(name, rslora, tmp_path):
    reference = make_theirs(name)
    config, tensors = save(reference, tmp_path)
    ours = Ours(config, tensors, CASES[name][1])
    batch = make_batch(name)
    settings = peft.LoraConfig(
        r=4, lora_alpha=6, use_rslora=rslora, target_modules=list(TARGETS[name])
    )
    model = peft.get_peft_model(reference, settings).eval()
    lora = {n: p for n, p in model.named_parameters() if "lora_" in n}
    _, real = run_theirs(model, batch)
    torch.manual_seed(1)
    with torch.no_grad():
        for parameter in lora.values():
            parameter += 0.3 * torch.randn_like(parameter)

    # Our paths of their matrices.
    table = ours.family.tensors(ours.spec, ours.head)
    places = {e.hf_name.removesuffix(".weight"): e.paths[0].split("/") for e in table}

    def read_lora(values):
        extra: dict = {}
        for path, value in values.items():
            middle = path.removeprefix("base_model.model.").partition(".lora_")
            end = "a" if middle[2].startswith("A") else "b"
            put(extra, (*places[middle[0]][:-1], end), jnp.asarray(value.numpy().T))
        return extra

    spec = AdaptSpec("lora", rank=4, alpha=6, rslora=rslora)
    extra = read_lora({n: p.detach() for n, p in lora.items()})
    run = lambda params: ours.outputs(params, batch)  # noqa: E731
    like = init_extra(spec, run, ours.params, jax.random.key(0))
    assert jax.tree.map(jnp.shape, like) == jax.tree.map(jnp.shape, extra)

    weights = torch.randn(*run_theirs(model, batch)[0].shape)
    weights *= torch.tensor(real[..., None])
    logits, _ = run_theirs(model, batch)
    (logits * weights).mean().backward()

    @jax.jit
    def read(params, extra):
        with adapted(spec, extra):
            result = ours.outputs(params, batch)[1]
        return (result * weights.numpy()).mean(), result

    (_, result), grads = jax.jit(jax.value_and_grad(read, argnums=1, has_aux=True))(
        ours.params, extra
    )
    expected = logits.detach().numpy()
    np.testing.assert_allclose(result[real], expected[real], atol=1e-5, rtol=1e-5)
    theirs_grads = paths_of(read_lora({n: p.grad for n, p in lora.items()}))
    for path, grad in paths_of(grads).items():
        size = np.abs(theirs_grads[path]).max()
        np.testing.assert_allclose(grad, theirs_grads[path], atol=1e-5 * max(size, 1))
    merged = merge(spec, ours.params, extra)
    unloaded = {
        n: p.detach().numpy() for n, p in model.merge_and_unload().named_parameters()
    }
    shapes = jax.eval_shape(lambda: ours.params)
    back = from_hf(tensors | unloaded, ours.family, ours.spec, ours.head, shapes)
    for path, value in paths_of(back).items():
        np.testing.assert_allclose(paths_of(merged)[path], value, atol=1e-5)
    _, result = read(merged, {})
    np.testing.assert_allclose(result[real], expected[real], atol=1e-5, rtol=1e-5)
