"""Span corruption: spans of the text become sentinels; the decoder writes them out.

Raffel et al. 2020; t5/data/preprocessors.py. `Thank you for inviting me` may become
inputs `Thank <s0> inviting me </s>` and targets `<s0> you for </s>`. Sentinels descend
from the top of the vocabulary, and no sentinel closes the targets.
"""

import dataclasses

import jax
import jax.numpy as jnp

from jaxpt.errors import UserError
from jaxpt.learn import update
from jaxpt.nn import flops
from jaxpt.nn.spec import ModelSpec
from jaxpt.nn.transformer import Transformer
from jaxpt.objectives.mlm import check_rate
from jaxpt.ops import edits, losses, noise
from jaxpt.ops import masks as attention_masks
from jaxpt.rng import row_keys
from jaxpt.text.vocab import Vocab


@dataclasses.dataclass(frozen=True)
class Spec:
    """How much to hide, in spans of which mean length (T5: 0.15 and 3)."""

    row_length: int
    noise_density: float = 0.15
    mean_span_length: float = 3.0

    def __post_init__(self):
        check_noise(self.noise_density, self.mean_span_length)
        if self.row_length < 2:
            raise UserError(
                f"data.row_length={self.row_length}: span_corruption needs at least 2"
            )
        num_noise, num_spans = noise.count_spans(*self.noise)
        num_clean = self.row_length - num_noise
        if num_spans > min(num_noise, num_clean):
            raise UserError(
                f"span_corruption.noise_density={self.noise_density}: {num_spans} "
                f"spans do not fit {num_noise} hidden and {num_clean} clean tokens; "
                f"raise span_corruption.mean_span_length"
            )

    @property
    def noise(self) -> tuple[int, float, float]:
        """The arguments of `ops.noise`'s functions."""
        return self.row_length, self.noise_density, self.mean_span_length


def check_noise(density: float, mean_span: float) -> None:
    """Raises UserError where T5's arithmetic would have no answer."""
    check_rate("span_corruption.noise_density", density)
    if not mean_span >= 1:
        raise UserError(
            f"span_corruption.mean_span_length={mean_span}: must be at least 1"
        )


def make_spec(
    seq_len: int, noise_density: float = 0.15, mean_span_length: float = 3.0
) -> Spec:
    """The spec whose rows fill an encoder of `seq_len` places: T5's helper."""
    check_noise(noise_density, mean_span_length)
    if seq_len < 3:
        raise UserError(f"data.seq_len={seq_len}: span_corruption needs at least 3")
    length = noise.raw_length(seq_len, noise_density, mean_span_length)
    return Spec(length, noise_density, mean_span_length)


def model_lengths(spec: Spec) -> dict[str, int]:
    """Positions each stack works on, EOS included."""
    inputs, targets = noise.corrupted_lengths(*spec.noise)
    return {"encoder": inputs, "decoder": targets}


def count_flops(model_spec: ModelSpec, spec: Spec) -> float:
    """Training operations for one row (convention: `jaxpt.nn.flops`)."""
    source, target = model_lengths(spec).values()
    forward = flops.project_flops(model_spec, source + target)
    forward += flops.stack_flops(model_spec, model_spec.num_layers, source)
    forward += flops.stack_flops(
        model_spec, model_spec.num_decoder_layers, target, source
    )
    forward += flops.head_flops(model_spec, target)
    return flops.TRAIN_FACTOR * forward


def make_model(model_spec: ModelSpec, spec: Spec, vocab: Vocab) -> Transformer:
    """An encoder and a decoder.

    Raises:
      UserError: no decoder; or the vocabulary lacks [PAD], [EOS] or enough sentinels.
    """
    if not model_spec.num_decoder_layers:
        raise UserError(
            "model.num_decoder_layers=0: must be at least 1 for span_corruption"
        )
    vocab.require("pad"), vocab.require("eos")
    vocab.require_sentinels(noise.count_spans(*spec.noise)[1])
    return Transformer(model_spec)


def init_params(rng, model: Transformer, spec: Spec):
    """Fresh parameters."""
    lengths = model_lengths(spec)
    inputs, targets = (
        jnp.zeros((1, lengths[n]), jnp.int32) for n in ("encoder", "decoder")
    )
    return model.init(rng, inputs, masks({}), targets, deterministic=True)["params"]


def corrupt(rng, rows: dict, vocab: Vocab, spec: Spec) -> dict:
    """Each row becomes an input with sentinels and a target with the spans behind them.

    The decoder starts from [PAD], as T5's does.

    Raises:
      ValueError: rows with segment ids; spans run over concatenated text.
    """
    if "segment_ids" in rows:
        raise ValueError("span corruption reads rows without segment_ids")
    sentinels = jnp.asarray(vocab.sentinels, jnp.int32)
    lengths = model_lengths(spec)

    def corrupt_row(rng, tokens):
        hidden = noise.random_spans(rng, *spec.noise)
        return {
            # What is left over behind the text is one place, filled with [EOS].
            "inputs": edits.spans_to_sentinels(
                tokens, hidden, sentinels, lengths["encoder"], vocab.eos
            ),
            "targets": edits.spans_to_sentinels(
                tokens, ~hidden, sentinels, lengths["decoder"], vocab.eos
            ),
        }

    batch = jax.vmap(corrupt_row)(row_keys(rng, rows["index"]), rows["tokens"])
    return batch | {
        "index": rows["index"],
        "dec_inputs": edits.shift_right(batch["targets"], vocab.pad),
        "loss_weights": jnp.ones(batch["targets"].shape, jnp.float32),
    }


def masks(batch: dict) -> dict:
    """The encoder sees all its input, the decoder its past and all of the encoder."""
    return {
        "self": attention_masks.full(),
        "dec_self": attention_masks.causal(),
        "cross": attention_masks.full(),
    }


def coefficients(spec: Spec) -> dict[str, float]:
    """What each loss term counts for."""
    return {"loss": 1.0}


def weights(batch: dict) -> dict:
    """What each loss term is divided by."""
    return {"loss": batch["loss_weights"].sum()}


def loss(params, model: Transformer, batch: dict, masks: dict, rngs: dict):
    """Cross-entropy at every target position, sentinels and [EOS] included (T5)."""
    logits = model.apply(
        {"params": params},
        batch["inputs"],
        masks,
        batch["dec_inputs"],
        deterministic="dropout" not in rngs,
        rngs=rngs,
    )
    targets, loss_weights = batch["targets"], batch["loss_weights"]
    terms = {"loss": losses.cross_entropy(logits, targets, loss_weights)}
    hits = losses.top_k_hits(logits, targets, loss_weights)
    return terms, terms | {"accuracy": hits}


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
        return update.apply_gradients(state, grads, optimizer), metrics

    return train_step


def make_eval_step(model, vocab: Vocab, spec: Spec):
    """step(params, rows, rng) -> {name: (sum, weight)}, without dropout."""

    def eval_step(params, rows, rng):
        batch = corrupt(rng, rows, vocab, spec)
        return loss(params, model, batch, masks(batch), {})[1]

    return eval_step


def features(params, model: Transformer, tokens):
    """Frozen hidden states [B, T, D] of the encoder on plain text [B, T]."""
    return model.apply(
        {"params": params},
        tokens,
        attention_masks.full(),
        deterministic=True,
        method="encode",
    )
