"""Small networks for the tests of adaptation, and a task on them."""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np

from jaxpt.nn.model_spec import ModelSpec
from jaxpt.nn.networks.bilm import BiLm
from jaxpt.nn.networks.electra import Electra
from jaxpt.nn.networks.encoder_decoder import EncoderDecoder
from jaxpt.nn.networks.one_stack import CausalLM, MaskedLM, PrefixLM
from jaxpt.nn.networks.skip_gram import SkipGram
from jaxpt.nn.networks.student_teacher import MaskedStudent
from jaxpt.nn.task_heads import TextHead
from jaxpt.tasks.model import TaskModel

V = 11
SPEC = ModelSpec(
    vocab_size=V, num_layers=2, d_model=16, num_heads=2, d_ff=24, max_len=16
)
BERT = {"norm_position": "post", "num_types": 2, "head_transform": True}
T5 = {"norm": "rmsnorm", "positions": "relative", "use_bias": False}


def make(kind, **values):
    """A network of a kind, and parameters by NumPy, far enough apart to show."""
    spec = dataclasses.replace(SPEC, **values)
    small = {"d_model": 8, "embedding_size": 16, "num_heads": 1}
    two = dataclasses.replace(spec, num_decoder_layers=1)
    pieces = tuple(bytes([97 + i]) for i in range(V))
    network = {
        "encoder": lambda: MaskedLM(spec),
        "causal": lambda: CausalLM(spec),
        "prefix": lambda: PrefixLM(spec),
        "encoder_decoder": lambda: EncoderDecoder(two),
        "electra": lambda: Electra(dataclasses.replace(spec, **small), spec),
        "student": lambda: MaskedStudent(spec, spec, 2.0),
        "bilm": lambda: BiLm(spec, pieces, (), 6, 4, (4, 8, 4), 1, 3.0, 3.0),
        "skip_gram": lambda: SkipGram(spec),
    }[kind]()
    shapes = jax.eval_shape(network.init_params, jax.random.key(0))
    normal = np.random.default_rng(0).normal
    params = jax.tree.map(
        lambda x: jnp.asarray(normal(0, 0.3, x.shape), x.dtype), shapes
    )
    return network.task_part(params)


FORMS = {
    "encoder_decoder": "bart",
    "bilm": "elmo",
    "causal": "gpt",
    "skip_gram": "mean",
    "encoder": "bert",
}


def make_model(kind, adaptation, **values):
    """A classifier on a network, and its parameters, what is added among them."""
    from jaxpt.nn.adaptation.adapt import init_extra

    network, params = make(kind, **values)
    form = FORMS.get(kind, "electra")
    head = TextHead(network.spec, form, 3)
    model = TaskModel(network, head, form, adaptation=adaptation)
    plain = dataclasses.replace(model, adaptation=type(adaptation)())
    state = {"network": params, "extra": {}}
    rows = make_batch()
    read = lambda params: plain.states({"network": params, "extra": {}}, rows, None)  # noqa: E731
    labels = [[1], [2, 3], [4]]
    state["extra"] = init_extra(adaptation, read, params, jax.random.key(1), labels)
    states = jax.eval_shape(read, params)
    drawn = jax.eval_shape(
        lambda states: head.init(
            jax.random.key(0), states, rows["segment_ids"], deterministic=True
        ),
        states,
    )
    normal = np.random.default_rng(1).normal
    state["head"] = jax.tree.map(
        lambda x: jnp.asarray(normal(0, 0.3, x.shape), x.dtype), drawn["params"]
    )
    return model, state, read


def make_batch():
    """Two texts, the second of them padded."""
    return {
        "inputs": jnp.array([[3, 4, 5, 6], [7, 8, 0, 0]]),
        "segment_ids": jnp.array([[1, 1, 1, 1], [1, 1, 0, 0]]),
    }


def paths_of(tree):
    """The leaves of a tree by their paths."""
    pairs = jax.tree_util.tree_leaves_with_path(tree)
    return {
        jax.tree_util.keystr(path, simple=True, separator="/"): leaf
        for path, leaf in pairs
    }


def shake(tree, seed=2):
    """A tree of such arrays, all of them drawn."""
    normal = np.random.default_rng(seed).normal
    return jax.tree.map(lambda x: jnp.asarray(normal(0, 0.3, x.shape)), tree)
