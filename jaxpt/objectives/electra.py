"""Replaced-token detection: a generator fills masks, a discriminator finds its fills.

Clark et al. 2020; google-research/electra, `run_pretraining.py`. Departures: positions
are drawn without replacement (theirs repeat; about 17.7 of 19 are distinct).

    generator        the [MASK] sat on    -> samples one: dog
    discriminator    the  dog   sat on    -> p(replaced) of every token
    loss = mean over masked i of -log p_generator(x_i | row)
           + 50 mean over all i of -log p(whether token i was replaced)

DeBERTa-v3's embeddings (He et al. 2021) are `share_embeddings="disentangled"`: the
generator reads E, and the discriminator stop_gradient(E) + D. Departures from its code:
one optimizer and one clipping for both networks (theirs has two, so under Adam its
weight of 10, or 50 in the paper, hardly matters); the generator is as deep as the
discriminator, not as wide and half as deep.

Controls: the ablations of its paper (`variant`), and `mlm` at equal FLOPs.
"""

import dataclasses
from collections.abc import Callable
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxpt.dims import Batch, Rows
from jaxpt.errors import ConfigError
from jaxpt.learn.state import TrainState
from jaxpt.learn.update import Update
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.nn.networks.electra import (
    EVERYWHERE,
    SHARING,
    VARIANTS,
    Electra,
    RestoringElectra,
)
from jaxpt.objectives.masking import MASKED, Masking, choose, map_masked_rows
from jaxpt.objectives.objective import Keys, Masks, Sums
from jaxpt.objectives.spec import Term
from jaxpt.ops import edits, losses
from jaxpt.ops import masks as attention_masks
from jaxpt.rng import row_keys
from jaxpt.setting_types import Fraction, OneOf, PositiveFloat, PositiveFraction
from jaxpt.text.tokens.vocab import Vocab
from jaxpt.text_form import TextForm

if TYPE_CHECKING:
    from jaxpt.nn.networks.electra import ElectraNetwork
    from jaxpt.nn.networks.network import Network


@dataclasses.dataclass(frozen=True)
class Spec(Masking):
    """Masking (see `Masking`), the networks, and the weights of the two losses.

    Attributes:
      replace_mask: fraction of the hidden tokens that the generator sees as [MASK]; it
        sees the others as they are.
      generator_size: width, MLP and heads of the generator as a fraction of the
        discriminator's.
      share_embeddings: "shared": both networks use the same embeddings; "separate": the
        generator has its own, of its width; "disentangled": the discriminator reads the
        generator's, to which its loss has no gradient, plus separate tables, 0 at
        first, which weight decay pulls back to 0.
      variant: the second network's task (Clark et al. 2020, section 3.4 and table 5).
        "full": which of all tokens are replaced; "electra_15": the same, for the hidden
        ones alone; "replace_mlm": the originals of the hidden ones (BERT without
        [MASK]); "all_tokens_mlm": the original of every token, which it may copy.
      temperature: of the generator's samples.
      generator_weight: of its loss.
      discriminator_weight: of the second network's loss if that is binary. Restoring
        tokens has weight 1; the paper gives no number.
    """

    SECTION: ClassVar[str] = "electra"
    NETWORKS: ClassVar = (Electra,)

    replace_mask: Fraction = 0.85
    generator_size: PositiveFraction = 0.25
    temperature: PositiveFloat = 1.0
    generator_weight: PositiveFloat = 1.0
    discriminator_weight: PositiveFloat = 50.0
    _: dataclasses.KW_ONLY
    share_embeddings: Annotated[str, OneOf(*SHARING)] = "shared"
    variant: Annotated[str, OneOf(*VARIANTS)] = "full"

    @property
    def lengths(self) -> dict[str, int]:
        return {"generator": self.row_length, "discriminator": self.row_length}

    @property
    def restores(self) -> bool:
        """Whether the second network predicts the original tokens."""
        return "logits" in VARIANTS[self.variant]

    @property
    def second_term(self) -> str:
        """The loss term of the second network."""
        return "restoring_loss" if self.restores else "discriminator_loss"

    @property
    def terms(self) -> dict[str, Term]:
        label = "original?" if self.restores else "replaced?"
        factor = 1.0 if self.restores else self.discriminator_weight
        return {
            "generator_loss": dataclasses.replace(
                MASKED, coefficient=self.generator_weight
            ),
            self.second_term: Term(label, factor, targets=""),
        }

    def controls(self) -> dict[str, dict[str, Any]]:
        controls: dict[str, dict[str, Any]] = {"mlm": {"objective": "mlm"}}
        if self.variant == "full":
            controls["replace_mlm"] = {self.SECTION: {"variant": "replace_mlm"}}
        return controls

    def text_form(self, vocab: Vocab) -> TextForm:
        """The generator fills [MASK]s; the second network, which is kept, sees none."""
        return TextForm(gap=(vocab.require("mask"),), reads_gap=False)

    def make_network(
        self, model_spec: ModelSpec, vocab: Vocab, **fields: Any
    ) -> "Network":
        """Both networks."""
        self.check_network(model_spec, vocab)
        if model_spec.vocab_size != vocab.size:
            raise ConfigError(
                f"model.vocab_size={model_spec.vocab_size}: must be 0 or {vocab.size} "
                f"for electra, whose generator may write any of them"
            )
        # A second network that restores tokens has the generator's kind of head.
        head: dict[str, Any] = {}
        if self.restores:
            head = {"head_bias": True, "head_transform": True}
        main = dataclasses.replace(model_spec, tie_embeddings=True, **head)
        kind = Electra if "score" in VARIANTS[self.variant] else RestoringElectra
        return kind(
            shrink(main, self),
            main,
            self.variant,
            self.share_embeddings,
            self.temperature,
            vocab.require("mask"),
            self.mask_rate * self.replace_mask,
        )


def shrink(model_spec: ModelSpec, spec: Spec) -> ModelSpec:
    """The generator: as deep as the discriminator, narrower, on the same embeddings."""
    is_separate = spec.share_embeddings == "separate"
    width = round(model_spec.d_model * spec.generator_size)
    num_heads = max(1, round(model_spec.num_heads * spec.generator_size))
    if width < 1 or width % num_heads:
        raise ConfigError(
            f"electra.generator_size={spec.generator_size}: gives width {width} and "
            f"{num_heads} heads from model.d_model={model_spec.d_model} and "
            f"model.num_heads={model_spec.num_heads}; the heads must divide the width"
        )
    return dataclasses.replace(
        model_spec,
        d_model=width,
        num_heads=num_heads,
        d_ff=max(1, round(model_spec.d_ff * spec.generator_size)),
        embedding_size=0 if is_separate else model_spec.embedding_dim,
        tie_embeddings=True,
        head_bias=True,
        head_transform=True,
    )


def corrupt(rng: Array, rows: Rows, vocab: Vocab, spec: Spec) -> Batch:
    """Masks an exact count of each row's tokens for the generator: 85 % as [MASK].

    The second corruption, by the generator's samples, is in the loss. The weights of
    the second network's term are 1 at the tokens that it predicts.

    >>> vocab, spec = Vocab(size=6, mask=0), Spec(4, 0.5, replace_mask=1.0)
    >>> rows = {"tokens": jnp.array([[3, 4, 5, 5]]), "index": jnp.array([0])}
    >>> batch = corrupt(jax.random.key(1), rows, vocab, spec)
    >>> batch["inputs"].tolist(), batch["original"].tolist()
    ([[3, 4, 0, 0]], [[3, 4, 5, 5]])
    >>> batch["weights"]["discriminator_loss"].tolist()
    [[1.0, 1.0, 1.0, 1.0]]
    """
    mask_id = vocab.require("mask")

    def corrupt_row(
        rng: Array,
        tokens: Array,
        segments: Array,
        progress: Array | None,
    ) -> Batch:
        rng_choose, rng_replace = jax.random.split(rng)
        positions, weights = choose(rng_choose, tokens, segments, vocab, spec, progress)
        targets = tokens[positions]
        is_mask = jax.random.uniform(rng_replace, targets.shape) < spec.replace_mask
        replaced = jnp.where(is_mask, mask_id, targets)
        where = segments > 0
        if spec.variant not in EVERYWHERE:
            zeros = jnp.zeros_like(tokens)
            where = edits.put(zeros, positions, jnp.ones_like(targets), weights)
        return {
            "inputs": edits.put(tokens, positions, replaced, weights),
            "original": tokens,
            "targets": targets,
            "masked_positions": positions,
            "weights": {
                "generator_loss": weights,
                spec.second_term: where.astype(jnp.float32),
            },
        }

    return map_masked_rows(corrupt_row, rng, rows, spec)


def masks(batch: Batch) -> Masks:
    """Every position attends to its whole document, in both networks."""
    return {"self": attention_masks.segments(batch.get("segment_ids"))}


def fill(
    model: "ElectraNetwork", batch: Batch, masks: Masks, rngs: Keys
) -> tuple[losses.Scores, Array]:
    """Phase 1: the generator's scores and its samples at the masked positions."""
    states = model.generate(batch, masks, deterministic="dropout" not in rngs)
    targets, weights = batch["targets"], batch["weights"]["generator_loss"]
    sampling = row_keys(rngs["sample"], batch["index"]), model.temperature
    scores = model.generator.score(states, targets, weights, sampling)
    assert scores.samples is not None  # as `sampling` is given
    return scores, scores.samples


def replace(batch: Batch, samples: Array) -> tuple[Array, Array]:
    """The discriminator's input: generator samples written over the original row.

    Args:
      samples: int32 [B, P], at the masked positions; no gradient passes through them.

    Returns:
      ids [B, T] and labels [B, T], 1 where a token differs from the original: a sample
      that happens to be right is labelled original.
    """
    ids = jax.vmap(edits.put)(
        batch["original"],
        batch["masked_positions"],
        samples,
        batch["weights"]["generator_loss"],
    )
    return ids, (ids != batch["original"]).astype(jnp.float32)


def spot(
    model: "ElectraNetwork",
    batch: Batch,
    ids: Array,
    labels: Array,
    masks: Masks,
    rngs: Keys,
) -> tuple[Sums, Sums]:
    """Phase 2: the second network's loss term and metrics on the generator's fills."""
    read = batch | {"inputs": ids}
    states = model.discriminate(read, masks, deterministic="dropout" not in rngs)
    return SECOND_LOSSES[model.variant](model, batch, labels, states)


def rtd_loss(
    model: Electra, batch: Batch, labels: Array, states: Array
) -> tuple[Sums, Sums]:
    """Binary cross-entropy of "replaced", at every token or at the masked ones."""
    scores, weights = model.score(states), batch["weights"]["discriminator_loss"]
    terms = {"discriminator_loss": losses.binary_cross_entropy(scores, labels, weights)}
    is_right = ((scores > 0) == (labels > 0)).astype(jnp.float32)
    detected = jnp.sum((scores > 0) * labels * weights)
    return terms, {
        "accuracy": (jnp.sum(is_right * weights), jnp.sum(weights)),
        "recall": (detected, jnp.sum(labels * weights)),
    }


def mlm_loss(
    model: "ElectraNetwork", batch: Batch, labels: Array, states: Array
) -> tuple[Sums, Sums]:
    """Cross-entropy of the originals at the masked positions (replace MLM)."""
    weights = batch["weights"]["generator_loss"]
    states = edits.gather(states, batch["masked_positions"])
    scores = model.discriminator.score(states, batch["targets"], weights)
    hits = losses.rank_hits(scores.ranks, weights)
    return {"restoring_loss": scores.loss}, {"accuracy": hits}


def all_tokens_loss(
    model: Electra, batch: Batch, labels: Array, states: Array
) -> tuple[Sums, Sums]:
    """Cross-entropy of every token's original, which may be copied (all-tokens MLM).

    A token is right if its original has more than half of the probability. A replaced
    one is detected if it is copied with less.
    """
    weights, is_input = batch["weights"]["restoring_loss"], labels == 0
    nll, _ = model.discriminator.token_scores(states, batch["original"])
    copy = model.score(states)
    nll = losses.copy_losses(nll, copy, is_input)
    is_right = nll < jnp.log(2.0)
    is_detected = ~is_input & (copy < 0)
    return {"restoring_loss": (jnp.sum(nll * weights), jnp.sum(weights))}, {
        "accuracy": (jnp.sum(is_right * weights), jnp.sum(weights)),
        "recall": (jnp.sum(is_detected * weights), jnp.sum(~is_input * weights)),
    }


# The second network's task: (model, batch, labels of `replace`, states) -> its loss
# term and metrics.
SECOND_LOSSES: dict[str, Callable[..., tuple[Sums, Sums]]] = {
    "full": rtd_loss,
    "electra_15": rtd_loss,
    "replace_mlm": mlm_loss,
    "all_tokens_mlm": all_tokens_loss,
}


def join(
    batch: Batch, guesses: losses.Scores, labels: Array, second: tuple[Sums, Sums]
) -> tuple[Sums, Sums]:
    """The loss terms and metrics of both phases."""
    terms, metrics = second
    (term,) = terms
    masked, weights = batch["weights"]["generator_loss"], batch["weights"][term]
    return {"generator_loss": guesses.loss} | terms, metrics | {
        "masked_accuracy": losses.rank_hits(guesses.ranks, masked),
        "masked_top5_accuracy": losses.rank_hits(guesses.ranks, masked, k=5),
        "replaced": (jnp.sum(labels * weights), jnp.sum(weights)),
    }


def loss(
    params: Any, model: "ElectraNetwork", batch: Batch, masks: Masks, rngs: Keys
) -> tuple[Sums, Sums]:
    """The generator's cross-entropy at P positions, and the second network's loss.

    `rngs` holds "sample" for the generator's samples, and "dropout" to enable dropout.
    """

    def both_phases(model: "ElectraNetwork") -> tuple:
        guesses, samples = fill(model, batch, masks, rngs)
        ids, labels = replace(batch, samples)
        return guesses, labels, spot(model, batch, ids, labels, masks, rngs)

    phases = model.apply({"params": params}, rngs=rngs, method=both_phases)
    return join(batch, *phases)


def train_step(
    state: TrainState,
    rows: Rows,
    rngs: Keys,
    *,
    model: "ElectraNetwork",
    vocab: Vocab,
    spec: Spec,
    update: Update,
) -> tuple[TrainState, Sums]:
    """Mask tokens; fill them with the generator; find its fills; learn from both."""
    batch = corrupt(rngs["corrupt"], rows, vocab, spec)

    def loss_fn(params: Any, batch: Batch, rngs: Keys) -> tuple[Sums, Sums]:
        attn_masks = masks(batch)

        def both_phases(model: "ElectraNetwork") -> tuple:
            guesses, samples = fill(model, batch, attn_masks, rngs)  # 1: the generator
            ids, labels = replace(batch, samples)
            spotted = spot(model, batch, ids, labels, attn_masks, rngs)  # 2
            return guesses, labels, spotted

        phases = model.apply({"params": params}, rngs=rngs, method=both_phases)
        return join(batch, *phases)

    return update(state, batch, loss_fn, rngs, spec.coefficients)
