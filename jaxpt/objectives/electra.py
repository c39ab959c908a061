"""Replaced-token detection: a generator fills masks, a discriminator spots fakes.

Clark et al. 2020; google-research/electra, `run_pretraining.py`. Departures: positions
are drawn without replacement (theirs repeat; about 17.7 of 19 are distinct).
"""

import dataclasses
import typing

import jax
import jax.numpy as jnp

from jaxpt.errors import UserError
from jaxpt.learn import update
from jaxpt.nn import flops, scan
from jaxpt.nn.electra import VARIANTS, Electra
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.objectives.masking import Masking, choose, map_rows
from jaxpt.ops import edits, losses
from jaxpt.ops import masks as attention_masks
from jaxpt.ops.segments import segment_positions
from jaxpt.rng import row_keys
from jaxpt.text.tokens.vocab import Vocab

# The keys of rows that this objective can read (`jaxpt.dims.ROW_KEYS`).
READS = frozenset({"tokens", "index", "segment_ids", "progress"})
# What its networks are for, as `jaxpt.hub.families` names it.
HEADS = ("generator", "discriminator")


@dataclasses.dataclass(frozen=True)
class Spec(Masking):
    """Masking (see `Masking`), the networks, and the weights of the two losses.

    Attributes:
      replace_mask: of what is hidden, the share the generator sees as [MASK]; the rest
        it sees as it is.
      generator_size: width, MLP and heads of the generator over the discriminator's.
      share_embeddings: the generator reads and writes with the discriminator's
        embeddings; otherwise it has its own, as wide as itself.
      variant: what the second network is asked (Clark et al. 2020, section 3.4 and
        table 5). "full": which tokens of all are replaced; "electra_15": the same of
        the hidden ones alone; "replace_mlm": the originals of the hidden ones (BERT
        without [MASK]); "all_tokens_mlm": the original of every token, which it may
        copy.
      temperature: of the generator's samples.
      generator_weight: of its loss; discriminator_weight: of the second network's where
        that is binary. Restoring tokens weighs 1, for which the paper has no number.
    """

    SECTION: typing.ClassVar[str] = "electra"

    replace_mask: float = 0.85
    generator_size: float = 0.25
    temperature: float = 1.0
    generator_weight: float = 1.0
    discriminator_weight: float = 50.0
    _: dataclasses.KW_ONLY
    share_embeddings: bool = True
    variant: str = "full"

    def __post_init__(self):
        super().__post_init__()
        for name, is_good, allowed in (
            ("replace_mask", 0 <= self.replace_mask <= 1, "from 0 to 1"),
            ("generator_size", 0 < self.generator_size <= 1, "above 0, at most 1"),
            ("temperature", self.temperature > 0, "above 0"),
            ("generator_weight", self.generator_weight > 0, "above 0"),
            ("discriminator_weight", self.discriminator_weight > 0, "above 0"),
            ("variant", self.variant in VARIANTS, f"one of {', '.join(VARIANTS)}"),
        ):
            self.check(name, is_good, allowed)

    @property
    def heads(self) -> tuple[str, ...]:
        """What the second network answers with."""
        return VARIANTS[self.variant]

    @property
    def is_asked_everywhere(self) -> bool:
        """Whether it is asked at every token, or at the hidden ones alone."""
        return self.variant in ("full", "all_tokens_mlm")


def make_spec(seq_len: int, **settings) -> Spec:
    """The spec whose rows let the model read `seq_len` tokens."""
    return Spec(row_length=seq_len, **settings)


def model_lengths(spec: Spec) -> dict[str, int]:
    """Positions each stack works on."""
    return {"generator": spec.row_length, "discriminator": spec.row_length}


def widen(model_spec: ModelSpec, spec: Spec) -> ModelSpec:
    """The second network; one that restores tokens has the generator's kind of head."""
    shared = dataclasses.replace(model_spec, tie_embeddings=True)
    if "logits" not in spec.heads:
        return shared
    return dataclasses.replace(shared, head_bias=True, head_transform=True)


def shrink(model_spec: ModelSpec, spec: Spec) -> ModelSpec:
    """The generator: as deep as the discriminator, narrower, on the same embeddings.

    Raises:
      UserError: the generator's width is not a whole number of heads.
    """
    width = round(model_spec.d_model * spec.generator_size)
    num_heads = max(1, round(model_spec.num_heads * spec.generator_size))
    if width < 1 or width % num_heads:
        raise UserError(
            f"electra.generator_size={spec.generator_size}: gives width {width} and "
            f"{num_heads} heads from model.d_model={model_spec.d_model} and "
            f"model.num_heads={model_spec.num_heads}; the heads must divide the width"
        )
    return dataclasses.replace(
        model_spec,
        d_model=width,
        num_heads=num_heads,
        d_ff=max(1, round(model_spec.d_ff * spec.generator_size)),
        embedding_size=model_spec.embedding_dim if spec.share_embeddings else 0,
        tie_embeddings=True,
        head_bias=True,
        head_transform=True,
    )


def count_flops(model_spec: ModelSpec, spec: Spec) -> float:
    """Training operations for one row (convention: `jaxpt.nn.flops`), both networks."""
    length, generator = spec.row_length, shrink(model_spec, spec)
    forward = flops.head_flops(generator, spec.num_slots)
    for network in (generator, model_spec):
        forward += flops.project_flops(network, length)
        forward += flops.stack_flops(network, network.num_layers, length)
    if "score" in spec.heads:
        forward += 2 * length * model_spec.d_model * (model_spec.d_model + 1)
    if "logits" in spec.heads:
        num_positions = length if spec.is_asked_everywhere else spec.num_slots
        forward += flops.head_flops(widen(model_spec, spec), num_positions)
    return flops.TRAIN_FACTOR * forward


def make_model(model_spec: ModelSpec, spec: Spec, vocab: Vocab) -> Electra:
    """The two networks.

    Raises:
      UserError: the vocabulary has no [MASK], or the spec needs words and it tells of
        none, or the model has a decoder, or ids that the generator would sample and no
        text holds.
    """
    spec.check_vocab(vocab)
    if model_spec.vocab_size != vocab.size:
        raise UserError(
            f"model.vocab_size={model_spec.vocab_size}: must be 0 or {vocab.size} for "
            f"electra, whose generator may write any of them"
        )
    if model_spec.num_decoder_layers:
        raise UserError(
            f"model.num_decoder_layers={model_spec.num_decoder_layers}: must be 0 for "
            f"electra, whose networks have one stack each (model.num_layers)"
        )
    main = widen(model_spec, spec)
    return Electra(shrink(main, spec), main, spec.variant, spec.share_embeddings)


def init_params(rng, model: Electra, spec: Spec):
    """Fresh parameters of both networks."""
    ids = jnp.zeros((1, spec.row_length), jnp.int32)
    positions = jnp.zeros((1, spec.num_slots), jnp.int32)
    return scan.init_params(model, rng, ids, positions, attention_masks.full())


def corrupt(rng, rows: dict, vocab: Vocab, spec: Spec) -> dict:
    """Hides an exact count of each row's tokens from the generator: 85 % as [MASK].

    The second corruption, the generator's samples, is in `loss`; the batch also says
    where the second network is asked, and what: "real" whether tokens are replaced,
    "restored" what they were.

    >>> vocab, spec = Vocab(size=6, mask=0), Spec(4, 0.5, replace_mask=1.0)
    >>> rows = {"tokens": jnp.array([[3, 4, 5, 5]]), "index": jnp.array([0])}
    >>> batch = corrupt(jax.random.key(1), rows, vocab, spec)
    >>> batch["inputs"].tolist(), batch["original"].tolist(), batch["real"].tolist()
    ([[3, 4, 0, 0]], [[3, 4, 5, 5]], [[1.0, 1.0, 1.0, 1.0]])
    """
    asked = "restored" if "logits" in spec.heads else "real"

    def corrupt_row(rng, tokens, segments, progress):
        rng_choose, rng_replace = jax.random.split(rng)
        positions, weights = choose(rng_choose, tokens, segments, vocab, spec, progress)
        targets = tokens[positions]
        is_mask = jax.random.uniform(rng_replace, targets.shape) < spec.replace_mask
        shown = jnp.where(is_mask, vocab.mask, targets)
        where = segments > 0
        if not spec.is_asked_everywhere:
            nowhere = jnp.zeros_like(tokens)
            where = edits.put(nowhere, positions, jnp.ones_like(targets), weights)
        return {
            "inputs": edits.put(tokens, positions, shown, weights),
            "original": tokens,
            "targets": targets,
            "positions": positions,
            "loss_weights": weights,
            asked: where.astype(jnp.float32),
        }

    return map_rows(corrupt_row, rng, rows, spec)


def masks(batch: dict) -> dict:
    """Everything sees everything, within its document, in both networks."""
    return {"self": attention_masks.segments(batch.get("segment_ids"))}


def coefficients(spec: Spec) -> dict[str, float]:
    """What each loss term counts for."""
    terms = {"generator_loss": spec.generator_weight}
    if "logits" in spec.heads:
        return terms | {"restoring_loss": 1.0}
    return terms | {"discriminator_loss": spec.discriminator_weight}


def weights(batch: dict) -> dict:
    """What each loss term is divided by."""
    terms = {"real": "discriminator_loss", "restored": "restoring_loss"}
    asked = {terms[key]: batch[key].sum() for key in terms if key in batch}
    return {"generator_loss": batch["loss_weights"].sum()} | asked


def replace(batch: dict, samples):
    """The discriminator's task: generator samples written over the original row.

    Args:
      samples: int32 [B, P], at the hidden positions.

    Returns:
      ids [B, T] and labels [B, T], 1 where a token differs from the original: a sample
      that happens to be right is labelled original.
    """
    ids = jax.vmap(edits.put)(
        batch["original"], batch["positions"], samples, batch["loss_weights"]
    )
    return ids, (ids != batch["original"]).astype(jnp.float32)


def spot(model: Electra, batch: dict, ids, states):
    """Binary cross-entropy of "replaced", at every token or at the hidden ones."""
    labels = (ids != batch["original"]).astype(jnp.float32)
    scores, asked = model.score(states), batch["real"]
    terms = {"discriminator_loss": losses.binary_cross_entropy(scores, labels, asked)}
    is_right = ((scores > 0) == (labels > 0)).astype(jnp.float32)
    found = jnp.sum((scores > 0) * labels * asked)
    return terms, {
        "accuracy": (jnp.sum(is_right * asked), jnp.sum(asked)),
        "recall": (found, jnp.sum(labels * asked)),
    }


def restore(model: Electra, batch: dict, ids, states):
    """Cross-entropy of the originals at the hidden positions (replace MLM)."""
    states = edits.gather(states, batch["positions"])
    scores = model.discriminator.score(states, batch["targets"], batch["loss_weights"])
    hits = losses.rank_hits(scores.ranks, batch["loss_weights"])
    return {"restoring_loss": scores.loss}, {"accuracy": hits}


def restore_all(model: Electra, batch: dict, ids, states):
    """Cross-entropy of every token's original, which may be copied (all-tokens MLM).

    A token counts as right where its original has more than half of the probability,
    and a replaced one as found where it is copied with less.
    """
    asked, is_input = batch["restored"], ids == batch["original"]
    nll, _ = model.discriminator.token_scores(states, batch["original"])
    copy = model.score(states)
    nll = losses.copy_losses(nll, copy, is_input)
    is_right = nll < jnp.log(2.0)
    is_found = ~is_input & (copy < 0)
    return {"restoring_loss": (jnp.sum(nll * asked), jnp.sum(asked))}, {
        "accuracy": (jnp.sum(is_right * asked), jnp.sum(asked)),
        "recall": (jnp.sum(is_found * asked), jnp.sum(~is_input * asked)),
    }


# What the second network is asked: (model, batch, ids, states) -> terms, metrics.
READERS = {
    "full": spot,
    "electra_15": spot,
    "replace_mlm": restore,
    "all_tokens_mlm": restore_all,
}


def loss(params, model: Electra, batch: dict, masks: dict, rngs: dict, temperature=1.0):
    """The generator's cross-entropy at P positions, and the second network's loss.

    `rngs` holds "sample" for the generator's draws, and "dropout" to switch dropout on.
    """
    deterministic = "dropout" not in rngs
    seen = masks["self"], segment_positions(batch.get("segment_ids"))
    targets, hidden = batch["targets"], batch["loss_weights"]
    draw = row_keys(rngs["sample"], batch["index"]), temperature

    def predict(model):
        states = model.generate(
            batch["inputs"], batch["positions"], *seen, deterministic=deterministic
        )
        guesses = model.generator.score(states, targets, hidden, draw)
        ids, labels = replace(batch, guesses.samples)
        states = model.encode(ids, *seen, deterministic=deterministic)
        return guesses, labels, READERS[model.variant](model, batch, ids, states)

    guesses, labels, (terms, metrics) = model.apply(
        {"params": params}, rngs=rngs, method=predict
    )
    terms = {"generator_loss": guesses.loss} | terms
    asked = batch["real"] if "real" in batch else batch["restored"]
    return terms, terms | metrics | {
        "fill_top1": losses.rank_hits(guesses.ranks, hidden),
        "fill_top5": losses.rank_hits(guesses.ranks, hidden, k=5),
        "replaced": (jnp.sum(labels * asked), jnp.sum(asked)),
    }


def make_train_step(
    model, vocab: Vocab, spec: Spec, optimizer, num_microbatches=1, axis=None
):
    """step(state, rows, rng) -> state, {name: (sum, weight)}; `axis` names pmap's."""

    def train_step(state, rows, rng):
        rng_corrupt, rng_dropout, rng_sample = jax.random.split(rng, 3)
        batch = corrupt(rng_corrupt, rows, vocab, spec)
        totals = update.add_devices(weights(batch), axis)

        def loss_fn(params, micro, rngs):
            terms, metrics = loss(
                params, model, micro, masks(micro), rngs, spec.temperature
            )
            return update.weigh(terms, totals, coefficients(spec)), metrics

        rngs = {"dropout": rng_dropout, "sample": rng_sample}
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
        rng_corrupt, rng_sample = jax.random.split(rng)
        batch = update.weigh_rows(corrupt(rng_corrupt, rows, vocab, spec), rows)
        rngs = {"sample": rng_sample}
        return loss(params, model, batch, masks(batch), rngs, spec.temperature)[1]

    return eval_step


def features(params, model: Electra, tokens):
    """Frozen hidden states [B, T, D] of the discriminator on plain text [B, T]."""
    return model.apply(
        {"params": params},
        tokens,
        attention_masks.full(),
        deterministic=True,
        method="encode",
    )


def fill_logits(params, model: Electra, tokens):
    """The generator's scores [B, T, V] for text with [MASK]s in it."""
    mask = attention_masks.full()
    return model.apply({"params": params}, tokens, mask, method="fill")


def networks(params, model_spec: ModelSpec, spec: Spec) -> dict:
    """What is kept of a run: for what use -> (its spec, its parameters).

    A second network that restores tokens is a masked language model; the head that says
    what it copies is left out.
    """
    shared = {"embed": params["embed"]}
    main = shared | params["discriminator"]
    found = {"generator": (shrink(model_spec, spec), shared | params["generator"])}
    if "logits" in spec.heads:
        return found | {"masked": (widen(model_spec, spec), main)}
    return found | {"discriminator": (model_spec, main | {"score": params["score"]})}


def join_networks(parts: dict):
    """The parameters of a run from those of its networks, whose embeddings are one."""
    generator, discriminator = dict(parts["generator"]), dict(parts["discriminator"])
    generator.pop("embed")
    return {
        "embed": discriminator.pop("embed"),
        "score": discriminator.pop("score"),
        "generator": generator,
        "discriminator": discriminator,
    }
