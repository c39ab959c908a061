"""The Transformer, a Linen module, inside a Flax NNX model (docs/python.md)."""

import jax
import numpy as np
from flax import nnx

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
