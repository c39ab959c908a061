"""Causal language modelling: predict every next token from what came before.

Radford et al. 2018; GPT-2. Row `a b c d` gives inputs `a b c`, targets `b c d`.
"""

import dataclasses

import jax
import jax.numpy as jnp

from jaxpt.errors import UserError
from jaxpt.learn import update
from jaxpt.nn import decoding, flops, scan
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.nn.transformer import Transformer
from jaxpt.ops import losses
from jaxpt.ops import masks as attention_masks
from jaxpt.ops.segments import segment_positions
from jaxpt.text.tokens.vocab import Vocab

# The keys of rows that this objective can read (`jaxpt.dims.ROW_KEYS`).
READS = frozenset({"tokens", "index", "segment_ids"})
# What its networks are for, as `jaxpt.hub.families` names it.
HEADS = ("causal",)
# Whether a token may see what follows it.
READS_AHEAD = False


@dataclasses.dataclass(frozen=True)
class Spec:
    """A row of R tokens gives R - 1 predictions."""

    row_length: int

    def __post_init__(self):
        if self.row_length < 2:
            raise UserError(f"data.row_length={self.row_length}: clm needs at least 2")


def make_spec(seq_len: int, **settings) -> Spec:
    """The spec whose rows let the model read `seq_len` tokens."""
    return Spec(row_length=seq_len + 1, **settings)


def model_lengths(spec: Spec) -> dict[str, int]:
    """Positions each stack works on."""
    return {"decoder": spec.row_length - 1}


def count_flops(model_spec: ModelSpec, spec: Spec) -> float:
    """Training operations for one row (convention: `jaxpt.nn.flops`)."""
    length = spec.row_length - 1
    forward = flops.project_flops(model_spec, length)
    forward += flops.stack_flops(model_spec, model_spec.num_layers, length)
    forward += flops.head_flops(model_spec, length)
    return flops.TRAIN_FACTOR * forward


def make_model(model_spec: ModelSpec, spec: Spec, vocab: Vocab) -> Transformer:
    """One stack.

    Raises:
      UserError: the model has a decoder beside its one stack.
    """
    if model_spec.num_decoder_layers:
        raise UserError(
            f"model.num_decoder_layers={model_spec.num_decoder_layers}: must be 0 for "
            f"clm, which has one stack (model.num_layers)"
        )
    return Transformer(model_spec.direct(READS_AHEAD))


def init_params(rng, model: Transformer, spec: Spec):
    """Fresh parameters."""
    ids = jnp.zeros((1, spec.row_length - 1), jnp.int32)
    mask = {"self": attention_masks.causal()}
    return scan.init_params(model, rng, ids, mask, deterministic=True)


def corrupt(rng, rows: dict, vocab: Vocab, spec: Spec) -> dict:
    """Shifts by one; nothing is drawn.

    >>> rows = {"tokens": jnp.array([[7, 8, 9]]), "index": jnp.array([0])}
    >>> batch = corrupt(None, rows, None, Spec(row_length=3))
    >>> batch["inputs"].tolist(), batch["targets"].tolist()
    ([[7, 8]], [[8, 9]])
    """
    tokens = rows["tokens"]
    batch = {"index": rows["index"], "inputs": tokens[:, :-1], "targets": tokens[:, 1:]}
    if "segment_ids" not in rows:
        return batch | {"loss_weights": jnp.ones(batch["targets"].shape, jnp.float32)}
    segments = rows["segment_ids"]
    is_next = (segments[:, 1:] == segments[:, :-1]) & (segments[:, 1:] > 0)
    weights = is_next.astype(jnp.float32)
    return batch | {"loss_weights": weights, "segment_ids": segments[:, :-1]}


def masks(batch: dict) -> dict:
    """Each position sees itself and its past, within its document."""
    return {"self": attention_masks.causal(batch.get("segment_ids"))}


def coefficients(spec: Spec) -> dict[str, float]:
    """What each loss term counts for."""
    return {"loss": 1.0}


def weights(batch: dict) -> dict:
    """What each loss term is divided by."""
    return {"loss": batch["loss_weights"].sum()}


def loss(params, model: Transformer, batch: dict, masks: dict, rngs: dict):
    """Cross-entropy at every position; with "dropout" in `rngs`, dropout is on."""
    deterministic = "dropout" not in rngs
    places = segment_positions(batch.get("segment_ids"))
    targets, loss_weights = batch["targets"], batch["loss_weights"]

    def predict(model):
        hidden = model.encode(
            batch["inputs"], masks["self"], places, deterministic=deterministic
        )
        return model.score(hidden, targets, loss_weights)

    scores = model.apply({"params": params}, rngs=rngs, method=predict)
    terms = {"loss": scores.loss}
    return terms, terms | {"accuracy": losses.rank_hits(scores.ranks, loss_weights)}


def make_train_step(
    model, vocab: Vocab, spec: Spec, optimizer, num_microbatches=1, axis=None
):
    """step(state, rows, rng) -> state, {name: (sum, weight)}; `axis` names pmap's."""

    def train_step(state, rows, rng):
        rng_corrupt, rng_dropout = jax.random.split(rng)
        batch = corrupt(rng_corrupt, rows, vocab, spec)
        totals = update.add_devices(weights(batch), axis)

        def loss_fn(params, micro, rngs):
            terms, metrics = loss(params, model, micro, masks(micro), rngs)
            return update.weigh(terms, totals, coefficients(spec)), metrics

        rngs = {"dropout": rng_dropout}
        grads, metrics = update.accumulate(
            loss_fn, state.params, batch, rngs, num_microbatches, axis
        )
        grads, metrics = update.add_devices((grads, metrics), axis)
        state = update.apply_gradients(state, grads, optimizer)
        return state, metrics | update.gradient_norm(grads)

    return train_step


def make_eval_step(model, vocab: Vocab, spec: Spec):
    """step(params, rows, rng) -> {name: (sum, weight)}, without dropout."""

    def eval_step(params, rows, rng):
        batch = update.weigh_rows(corrupt(rng, rows, vocab, spec), rows)
        return loss(params, model, batch, masks(batch), {})[1]

    return eval_step


def features(params, model: Transformer, tokens):
    """Frozen hidden states [B, T, D] of plain text [B, T], under the causal mask."""
    return model.apply(
        {"params": params},
        tokens,
        attention_masks.causal(),
        deterministic=True,
        method="encode",
    )


def next_logits(params, model: Transformer, tokens):
    """Scores [B, T, V] of the token that follows each place."""
    mask = {"self": attention_masks.causal()}
    return model.apply({"params": params}, tokens, mask, deterministic=True)


def make_decoder(model: Transformer, vocab: Vocab) -> decoding.Decoder:
    """What goes on from a prompt, token by token."""
    return decoding.make_decoder(model)


def token_nll(params, model: Transformer, tokens):
    """-log p in nats [B, R - 1] of every token of rows [B, R] after their first."""

    def predict(model):
        seen = attention_masks.causal()
        hidden = model.encode(tokens[:, :-1], seen, deterministic=True)
        return model.nll(hidden, tokens[:, 1:])

    return model.apply({"params": params}, method=predict)


def networks(params, model_spec: ModelSpec, spec: Spec) -> dict:
    """What is kept of a run: for what use -> (its spec, its parameters)."""
    return {"causal": (model_spec, params)}


def join_networks(parts: dict):
    """The parameters of a run from those of its networks."""
    return parts["causal"]
