"""The functions of a run's networks that are exported as ONNX or StableHLO.

There is one for each exported network (`Network.export_parts`), with the names of
inputs and outputs of Hugging Face's Optimum. Texts have any length and are padded on
the right. Masks and positions are computed from the inputs, as a graph that is traced
for any length has no number of positions.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Bool, Int

from jaxpt.nn import scan
from jaxpt.nn.attention import WEIGHTS
from jaxpt.nn.heads import PairScore, TokenScore
from jaxpt.nn.inspection import collect_weights
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.nn.networks.network import Network
from jaxpt.nn.transformer import Transformer

# Axes of inputs: rows, positions, positions of a decoder's source.
BATCH, LENGTH, SOURCE = "batch", "length", "source_length"
MIN_CHECK_LENGTH = 512  # tokens
# Maximum outputs of one check: 1 GiB.
MAX_OUTPUTS = 1 << 28


@dataclasses.dataclass(frozen=True)
class Graph:
    """One function of a run.

    Attributes:
      name: of its file, without the suffix.
      run: takes the inputs and returns the outputs, in their order.
      inputs: the axes of each; a number is the size of an axis.
      outputs: their names.
      spec: of the network.
    """

    name: str
    run: Callable[..., tuple[Array, ...]]
    inputs: dict[str, tuple[str | int, ...]]
    outputs: tuple[str, ...]
    spec: ModelSpec

    @property
    def longest_check(self) -> int:
        """The longest text with at most `MAX_OUTPUTS` scores and attention weights."""
        spec, length = self.spec, self.spec.max_len
        num_heads = spec.num_heads * (spec.num_layers + 2 * spec.num_decoder_layers)
        while (
            length > MIN_CHECK_LENGTH
            and length * (spec.vocab_size + num_heads * length) > MAX_OUTPUTS
        ):
            length //= 2
        return length

    def draw_inputs(self, rng: np.random.Generator, length: int) -> dict[str, Any]:
        """Draws inputs of two rows, the second with padding if it is long enough.

        Long inputs have one row, as all scores are in memory at once.
        """
        rows = 2 if length <= MIN_CHECK_LENGTH else 1
        sizes = {BATCH: rows, LENGTH: length, SOURCE: max(1, length // 2)}
        inputs: dict[str, Any] = {}
        for name, axes in self.inputs.items():
            shape = [a if isinstance(a, int) else sizes[a] for a in axes]
            if name.endswith("input_ids"):
                inputs[name] = rng.integers(0, self.spec.vocab_size, shape)
            elif name.endswith("attention_mask"):
                inputs[name] = np.ones(shape, np.int64)
                inputs[name][1:, 1 + shape[1] // 2 :] = 0
            elif name == "prefix_lengths":
                inputs[name] = np.array([length // 2, 0])[:rows]
            elif name == "token_type_ids":
                inputs[name] = rng.integers(0, 2, shape)
            else:
                inputs[name] = rng.standard_normal(shape, np.float32)
        return inputs


def list_graphs(network: Network, params: Any, attentions: bool = False) -> list[Graph]:
    """The graphs of a run's network; none if it has no Transformer.

    Args:
      attentions: whether to return the attention weights of all heads, too,
        float [L, B, N, T, S].
    """
    graphs, parts = [], network.export_parts(params)
    for head, (spec, part) in parts.items():
        make = _MAKERS.get(head, _make_stack)
        graph_spec = dataclasses.replace(
            spec, dtype="float32", remat="none", scan_layers=False
        )
        plain = scan.unstack_layers(part)
        graphs += make(head, network, graph_spec, plain, attentions)
    if len(parts) == 1:
        return graphs
    # With a generator, the masked model restores the tokens that it replaced.
    return [
        dataclasses.replace(graph, name="restorer") if graph.name == "model" else graph
        for graph in graphs
    ]


def _make_stack(
    head: str, network: Network, spec: ModelSpec, params: Any, attentions: bool
) -> list[Graph]:
    """The graph of one stack and its head: logits at every position."""
    is_causal, has_pairs = head == "causal", head == "pretraining"
    model, inputs = Transformer(spec), _text_inputs(spec.num_types > 1)
    if is_causal and network.READS_AHEAD:
        inputs["prefix_lengths"] = (BATCH,)

    def run(ids: Array, attention_mask: Array, *more: Array) -> tuple[Array, ...]:
        rest = dict(zip(list(inputs)[2:], more, strict=True))
        places = _count_places(ids)
        mask = _make_mask(places, attention_mask, is_causal, rest.get("prefix_lengths"))

        def predict(model: Transformer) -> tuple[Array, Array]:
            states = model.encode(
                ids, mask, places, rest.get("token_type_ids"), deterministic=True
            )
            return model.logits(states), states

        (logits, states), weights = _apply(model, params, predict, read)
        if not has_pairs:
            return logits, *weights
        pairs = PairScore(spec).apply({"params": params["pair_score"]}, states)
        return logits, pairs, *weights

    read = ("self",) * attentions
    outputs = ["logits", *["seq_relationship_logits"] * has_pairs]
    outputs += ["attentions"] * attentions
    name = "generator" if head == "generator" else "model"
    return [_graph(name, run, inputs, outputs, spec)]


def _make_discriminator(
    head: str, network: Network, spec: ModelSpec, params: Any, attentions: bool
) -> list[Graph]:
    """The graph of a discriminator: a logit for each token that it was replaced."""
    model, inputs = Transformer(spec), _text_inputs(spec.num_types > 1)

    def run(ids: Array, attention_mask: Array, *more: Array) -> tuple[Array, ...]:
        places = _count_places(ids)
        mask = _make_mask(places, attention_mask)

        def predict(model: Transformer) -> Array:
            return model.encode(ids, mask, places, *more, deterministic=True)

        states, weights = _apply(model, params, predict, ("self",) * attentions)
        score = TokenScore(spec).apply({"params": params["score"]}, states)
        return score, *weights

    outputs = ["logits"] + ["attentions"] * attentions
    return [_graph("discriminator", run, inputs, outputs, spec)]


def _make_pair_of_stacks(
    head: str, network: Network, spec: ModelSpec, params: Any, attentions: bool
) -> list[Graph]:
    """The graphs of an encoder, which gives states, and of a decoder with its head."""
    model = Transformer(spec)

    def encode(ids: Array, attention_mask: Array) -> tuple[Array, ...]:
        places = _count_places(ids)
        mask = _make_mask(places, attention_mask)

        def predict(model: Transformer) -> Array:
            return model.encode(ids, mask, places, deterministic=True)

        states, weights = _apply(model, params, predict, ("self",) * attentions)
        return states, *weights

    def decode(ids: Array, source: Array, source_mask: Array) -> tuple[Array, ...]:
        places = _count_places(ids)
        self_mask = _make_mask(places, jnp.ones_like(ids), is_causal=True)
        every = jnp.ones_like(ids)[:, None, :, None] > 0
        cross = every & (source_mask[:, None, None, :] > 0)

        def predict(model: Transformer) -> Array:
            states = model.decode(
                ids, self_mask, source, cross, places, deterministic=True
            )
            return model.logits(states)

        named = ("dec_self", "cross") * attentions
        logits, weights = _apply(model, params, predict, named)
        return logits, *weights

    weights_names = ["attentions"] * attentions
    source = {
        "encoder_hidden_states": (BATCH, SOURCE, spec.d_model),
        "encoder_attention_mask": (BATCH, SOURCE),
    }
    inputs = {"input_ids": (BATCH, LENGTH)} | source
    outputs = ["logits", *weights_names, *(["cross_attentions"] * attentions)]
    states = ["last_hidden_state", *weights_names]
    return [
        _graph("encoder_model", encode, _text_inputs(False), states, spec),
        _graph("decoder_model", decode, inputs, outputs, spec),
    ]


_MAKERS = {"discriminator": _make_discriminator, "seq2seq": _make_pair_of_stacks}


def _graph(
    name: str, run: Callable, inputs: dict, outputs: list[str], spec: ModelSpec
) -> Graph:
    return Graph(name, run, inputs, tuple(outputs), spec)


def _text_inputs(has_types: bool) -> dict[str, tuple[str | int, ...]]:
    text: tuple[str | int, ...] = (BATCH, LENGTH)
    inputs = {"input_ids": text, "attention_mask": text}
    return inputs | {"token_type_ids": text} if has_types else inputs


def _count_places(ids: Int[Array, "B T"]) -> Int[Array, "B T"]:
    """Positions 0, 1, ... of each row, computed without its length."""
    return jnp.cumsum(jnp.ones_like(ids), axis=1) - 1


def _make_mask(
    places: Int[Array, "B T"],
    attention_mask: Int[Array, "B T"],
    is_causal: bool = False,
    prefix_lengths: Int[Array, "B"] | None = None,
) -> Bool[Array, "B 1 T T"]:
    """The attention mask: no padding; with `is_causal`, only the past."""
    query, key = places[:, :, None], places[:, None, :]
    mask = (attention_mask[:, None, :] > 0) & (query >= 0)
    if is_causal:
        past = key <= query
        if prefix_lengths is not None:
            past = past | (key < prefix_lengths[:, None, None])
        mask = mask & past
    return mask[:, None]


def _apply(
    model: Transformer, params: Any, predict: Callable, attentions: tuple[str, ...]
) -> tuple[Any, tuple[Array, ...]]:
    """Returns the predictions and the weights of the named attentions."""
    variables = {"params": params}
    if not attentions:
        return model.apply(variables, method=predict), ()
    predictions, stored = model.apply(variables, method=predict, mutable=[WEIGHTS])
    weights = collect_weights(stored[WEIGHTS])
    return predictions, tuple(weights[name] for name in attentions)
