"""The Transformer, a Linen module, inside a Flax NNX model (docs/python.md)."""

import re
import types
from pathlib import Path

import jax
import numpy as np
from flax import nnx

from jaxpt.nn.networks.one_stack import MaskedLM
from jaxpt.nn.transformer import Transformer
from jaxpt.ops import masks

IDS = jax.random.randint(jax.random.key(7), (2, 8), 0, 11)
SEEN = {"self": masks.causal()}


class Classifier(nnx.Module):
    """A linear NNX layer over the logits of the last position."""

    def __init__(self, body, rngs):
        self.body = nnx.bridge.ToNNX(body, rngs=rngs)
        nnx.bridge.lazy_init(self.body, IDS, SEEN, deterministic=True)
        self.head = nnx.Linear(11, 2, rngs=rngs)

    def __call__(self, ids):
        return self.head(self.body(ids, SEEN, deterministic=True)[:, -1])


def test_a_network_gives_the_same_numbers_and_gradients_inside_nnx(make_spec):
    body = Transformer(make_spec())
    model = Classifier(body, nnx.Rngs(0))
    params = nnx.to_pure_dict(nnx.state(model.body, nnx.Param))
    kernel, bias = model.head.kernel[...], model.head.bias[...]

    def mean(params):
        logits = body.apply({"params": params}, IDS, SEEN, deterministic=True)
        return (logits[:, -1] @ kernel + bias)[:, 0].mean()

    read = nnx.value_and_grad(lambda model: model(IDS)[:, 0].mean())
    loss, grads = nnx.jit(read)(model)
    expected, expected_grads = jax.jit(jax.value_and_grad(mean))(params)
    np.testing.assert_allclose(loss, expected, rtol=1e-6)
    assert abs(loss) > 1e-3
    jax.tree.map(
        lambda one, other: np.testing.assert_allclose(one, other, atol=1e-6),
        nnx.to_pure_dict(grads)["body"],
        expected_grads,
    )


def test_the_program_of_the_documentation_gives_a_run_s_scores(make_spec):
    page = Path(__file__).parents[2] / "docs" / "python.md"
    part = page.read_text(encoding="utf-8").partition("## Flax NNX\n")[2]
    (program,) = re.findall(r"```python\n(.*?)```", part.partition("\n## ")[0], re.S)
    model = MaskedLM(make_spec())
    params = model.init_params(jax.random.key(3))
    tokenizer = types.SimpleNamespace(encode=lambda text: [3, 1, 4, 1, 5])
    run = types.SimpleNamespace(model=model, params=params, tokenizer=tokenizer)
    names = {"run": run}
    exec(program, names)
    expected = model.fill_logits(params, names["ids"])
    np.testing.assert_array_equal(names["logits"], expected)
    assert expected.shape == (1, 5, 11)
