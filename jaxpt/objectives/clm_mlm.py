"""Causal and masked rows in one batch, on the same parameters and the same head.

Charpentier and Samuel 2024 (GPT-BERT). A causal row `a b c d` reads a b c and predicts
b c d. A masked row reads it with some tokens hidden, sees all of it, and predicts each
hidden token at the place before, where the causal head predicts it too.

The kind is drawn for each row: masked with probability `mlm_share`, but causal for the
first `clm_first` of training. GPT-BERT shares out whole devices instead. There as here
each kind's loss is a mean of its own, and counts for its share.
"""

import dataclasses

import jax
import jax.numpy as jnp

from jaxpt.errors import UserError
from jaxpt.learn import update
from jaxpt.nn import decoding, flops, scan
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.nn.transformer import Transformer
from jaxpt.objectives.mlm import check_rate
from jaxpt.ops import edits, losses, noise
from jaxpt.ops import masks as attention_masks
from jaxpt.ops.segments import segment_positions
from jaxpt.rng import row_keys
from jaxpt.text.tokens.vocab import Vocab

# The keys of rows that this objective can read (`jaxpt.dims.ROW_KEYS`).
READS = frozenset({"tokens", "index", "segment_ids", "progress"})
# What its networks are for, as `jaxpt.hub.families` names it.
HEADS = ("causal",)


@dataclasses.dataclass(frozen=True)
class Spec:
    """How many rows are masked, and when; how much of one is hidden, and behind what.

    Attributes:
      mlm_share: of rows that are masked rows; what is evaluated has it, too.
      clm_first: share of the training steps, from the first on, in which every row is
        causal. Above 0, either kind's loss counts in full.
      mask_rate: of a masked row's tokens that have one before them, an exact count.
      replace_mask: of those, the share shown as [MASK]; replace_random: as a random
        token; the rest are shown as they are.
    """

    row_length: int
    mlm_share: float = 0.5
    clm_first: float = 0.0
    mask_rate: float = 0.15
    replace_mask: float = 0.8
    replace_random: float = 0.1

    def __post_init__(self):
        if self.row_length < 2:
            raise UserError(
                f"data.row_length={self.row_length}: clm_mlm needs at least 2"
            )
        check_rate("clm_mlm.mask_rate", self.mask_rate)
        for name, is_good, allowed in (
            ("mlm_share", 0 < self.mlm_share <= 1, "above 0, at most 1"),
            ("clm_first", 0 <= self.clm_first < 1, "at least 0, below 1"),
        ):
            if not is_good:
                raise UserError(
                    f"clm_mlm.{name}={getattr(self, name)}: must be {allowed}"
                )
        shares = (self.replace_mask, self.replace_random)
        if not (min(shares) >= 0 and sum(shares) <= 1 + 1e-9):
            raise UserError(
                f"clm_mlm.replace_mask={shares[0]}, clm_mlm.replace_random={shares[1]}:"
                f" both must be at least 0, and their sum at most 1"
            )

    @property
    def num_slots(self) -> int:
        """P: predictions in a full masked row."""
        return int(noise.count_table(self.row_length - 1, self.mask_rate)[-1])


def make_spec(seq_len: int, **settings) -> Spec:
    """The spec whose rows let the model read `seq_len` tokens."""
    return Spec(row_length=seq_len + 1, **settings)


def model_lengths(spec: Spec) -> dict[str, int]:
    """Positions each stack works on."""
    return {"decoder": spec.row_length - 1}


def count_flops(model_spec: ModelSpec, spec: Spec) -> float:
    """Training operations for one row (convention: `jaxpt.nn.flops`), of either kind.

    Which it is is drawn, so what each predicts meets the vocabulary: every place of a
    causal row, and the P of a masked one.
    """
    length = spec.row_length - 1
    forward = flops.project_flops(model_spec, length)
    forward += flops.stack_flops(model_spec, model_spec.num_layers, length)
    forward += flops.head_flops(model_spec, length + spec.num_slots)
    return flops.TRAIN_FACTOR * forward


def make_model(model_spec: ModelSpec, spec: Spec, vocab: Vocab) -> Transformer:
    """One stack, whose relative positions tell both directions apart.

    Raises:
      UserError: the vocabulary has no [MASK], or the model has a second stack.
    """
    vocab.require("mask")
    if model_spec.num_decoder_layers:
        raise UserError(
            f"model.num_decoder_layers={model_spec.num_decoder_layers}: must be 0 for "
            f"clm_mlm, which has one stack (model.num_layers)"
        )
    return Transformer(model_spec)


def init_params(rng, model: Transformer, spec: Spec):
    """Fresh parameters."""
    ids = jnp.zeros((1, spec.row_length - 1), jnp.int32)
    mask = {"self": attention_masks.full()}
    return scan.init_params(model, rng, ids, mask, deterministic=True)


def corrupt(rng, rows: dict, vocab: Vocab, spec: Spec) -> dict:
    """Shifts by one, as clm does; in masked rows hides an exact count of tokens.

    A row of two tokens, of which only the second can be predicted:

    >>> rows = {"tokens": jnp.array([[7, 8]]), "index": jnp.array([0])}
    >>> batch = corrupt(jax.random.key(0), rows, Vocab(9, mask=4), Spec(2, mlm_share=1))
    >>> [batch[key].tolist() for key in ("inputs", "targets", "loss_weights")]
    [[[7]], [[8]], [[0.0]]]
    >>> [batch[key].tolist() for key in ("fill_positions", "fill_weights")]
    [[[0]], [[1.0]]]
    """
    ordinary = jnp.asarray(vocab.ordinary_ids)
    is_special = jnp.asarray(vocab.is_special)
    table = jnp.asarray(noise.count_table(spec.row_length - 1, spec.mask_rate))
    tokens = rows["tokens"]
    inputs, targets = tokens[:, :-1], tokens[:, 1:]
    segments = rows.get("segment_ids", jnp.ones_like(tokens))
    is_next = (segments[:, 1:] == segments[:, :-1]) & (segments[:, 1:] > 0)
    progress = rows.get("progress", jnp.ones(len(tokens)))  # lacks where none is made

    def corrupt_row(rng, inputs, targets, is_next, progress):
        rng_kind, rng_choose, rng_replace = jax.random.split(rng, 3)
        is_masked = jax.random.uniform(rng_kind) < spec.mlm_share
        is_masked &= progress >= spec.clm_first
        # Of hidden tokens, the places where they are predicted: one before their own.
        positions, weights = noise.sample_positions(
            rng_choose,
            is_next & ~is_special[targets],
            table[is_next.sum()],
            spec.num_slots,
        )
        shown = edits.replace_tokens(
            rng_replace,
            targets[positions],
            vocab.mask,
            ordinary,
            spec.replace_mask,
            spec.replace_random,
        )
        # The last token is no input: what is put behind the row is dropped.
        hidden = edits.put(inputs, positions + 1, shown, weights)
        return {
            "inputs": jnp.where(is_masked, hidden, inputs),
            "is_prefix": jnp.broadcast_to(is_masked, inputs.shape),
            "loss_weights": (is_next & ~is_masked).astype(jnp.float32),
            "fill_positions": positions,
            "fill_weights": weights * is_masked,
        }

    keys = row_keys(rng, rows["index"])
    batch = jax.vmap(corrupt_row)(keys, inputs, targets, is_next, progress)
    batch |= {"index": rows["index"], "targets": targets}
    if "segment_ids" not in rows:
        return batch
    return batch | {"segment_ids": segments[:, :-1]}


def masks(batch: dict) -> dict:
    """In a document all is seen if its row is masked, else the past; nothing beyond."""
    segments = batch.get("segment_ids")
    return {"self": attention_masks.prefix_keys(batch["is_prefix"], segments)}


def coefficients(spec: Spec) -> dict[str, float]:
    """What each loss term counts for: its share of the rows.

    With `clm_first` it is 1, so that each phase has its whole loss.
    """
    if spec.clm_first:
        return {"clm_loss": 1.0, "mlm_loss": 1.0}
    return {"clm_loss": 1 - spec.mlm_share, "mlm_loss": spec.mlm_share}


def weights(batch: dict) -> dict:
    """What each loss term is divided by."""
    return {
        "clm_loss": batch["loss_weights"].sum(),
        "mlm_loss": batch["fill_weights"].sum(),
    }


def loss(params, model: Transformer, batch: dict, masks: dict, rngs: dict):
    """Cross-entropy of causal rows at every place, of masked ones where they fill."""
    deterministic = "dropout" not in rngs
    places = segment_positions(batch.get("segment_ids"))
    targets, positions = batch["targets"], batch["fill_positions"]
    filled = jnp.take_along_axis(targets, positions, axis=1)
    of_causal, of_masked = batch["loss_weights"], batch["fill_weights"]

    def predict(model):
        hidden = model.encode(
            batch["inputs"], masks["self"], places, deterministic=deterministic
        )
        causal = model.score(hidden, targets, of_causal)
        return causal, model.score(edits.gather(hidden, positions), filled, of_masked)

    causal, masked = model.apply({"params": params}, rngs=rngs, method=predict)
    terms = {"clm_loss": causal.loss, "mlm_loss": masked.loss}
    return terms, terms | {
        "accuracy": losses.rank_hits(causal.ranks, of_causal),
        "fill_top1": losses.rank_hits(masked.ranks, of_masked),
        "fill_top5": losses.rank_hits(masked.ranks, of_masked, k=5),
    }


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
    """Frozen hidden states [B, T, D] of plain text [B, T], read as masked rows are."""
    return model.apply(
        {"params": params},
        tokens,
        attention_masks.full(),
        deterministic=True,
        method="encode",
    )


def fill_logits(params, model: Transformer, tokens):
    """Scores [B, T, V] of every token at every position of text with [MASK]s in it.

    Each is read one place before; of the first nothing is known, and all score 0.
    """
    mask = {"self": attention_masks.full()}
    logits = model.apply({"params": params}, tokens, mask, deterministic=True)
    return jnp.pad(logits[:, :-1], ((0, 0), (1, 0), (0, 0)))


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


def describe_mask(spec: Spec) -> str:
    """What the stack was trained to see, for those who use it elsewhere."""
    return (
        f"Trained under two masks: a share of {spec.mlm_share:g} of the rows, with "
        "[MASK] in them, saw all of the text and had each hidden token to tell at the "
        "place before it; the others saw their past. To fill a [MASK] all must be seen."
    )


def join_networks(parts: dict):
    """The parameters of a run from those of its networks."""
    return parts["causal"]
