"""ELECTRA's two networks: a generator that fills masks, and one that reads its fills.

The objective defines the second network's task; here are its heads.
"""

import operator
from collections.abc import Callable, Mapping
from typing import Any, ClassVar

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxpt.nn import flops, scan
from jaxpt.nn.heads import Embedder, TokenScore
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.nn.networks.abilities import Gap
from jaxpt.nn.networks.network import TRANSFORMER_RULES, Network
from jaxpt.nn.networks.one_stack import MaskedLM
from jaxpt.nn.transformer import Transformer
from jaxpt.ops import edits, masks

# By variant, the second network's outputs: "score", a logit for each token; "logits",
# those of the vocabulary.
VARIANTS = {
    "full": ("score",),
    "electra_15": ("score",),
    "replace_mlm": ("logits",),
    "all_tokens_mlm": ("score", "logits"),
}
# Variants whose second network is trained at every token, not only at masked ones.
EVERYWHERE = ("full", "all_tokens_mlm")
# What the two networks' embeddings have to do with each other.
SHARING = ("shared", "separate", "disentangled")


class ElectraNetwork(Network, nn.Module):
    """Both networks, Transformers of different widths, on one set of embeddings.

    The second is called the discriminator in every variant. `temperature` is for the
    generator's samples, which the objective draws in the place of `sampled_share` of
    the tokens, hidden by `mask_id`. By `sharing` the parameters are

        shared         embed                      of both
        separate       embed                      the discriminator's
                       generator/embed            the generator's, of its width
        disentangled   embed                      the generator's, E
                       discriminator/embed        D, 0 at first: it reads E + D

    Disentangled (DeBERTa-v3, He et al. 2021, section 3.2), the discriminator's loss has
    no gradient to E and the generator's none to D: tables of tokens, positions and
    types. The norm and the smear of the embeddings, if any, are separate. Weight decay
    on D pulls the discriminator's embeddings towards the generator's. E + D is
    exported.
    """

    HEADS = ("generator", "discriminator")
    SCORING = (*MaskedLM.SCORING, "discriminator")
    RULE_PARTS: ClassVar = {"discriminator": ("embed", "discriminator", "score")}
    FILLS_BY: ClassVar[str] = "its generator"
    RULES = (
        (r"score/(Dense_0|out)/kernel", ("fsdp", None)),
        (r"score/(Dense_0|out)/bias", (None,)),
        *TRANSFORMER_RULES,
    )

    generator_spec: ModelSpec
    discriminator_spec: ModelSpec
    variant: str = "full"
    sharing: str = "shared"
    temperature: float = 1.0
    mask_id: int = 0
    sampled_share: float = 0.15

    def setup(self) -> None:
        self.embed = Embedder(self.discriminator_spec)
        generators = None if self.sharing == "separate" else self.embed
        self.generator = Transformer(self.generator_spec, generators)
        if self.sharing == "disentangled":
            self.discriminator = Transformer(self.discriminator_spec, base=self.embed)
        else:
            self.discriminator = Transformer(self.discriminator_spec, self.embed)
        self.score = TokenScore(self.discriminator_spec)

    @property
    def spec(self) -> ModelSpec:
        """The sizes of the discriminator, which is kept after training."""
        return self.discriminator_spec

    @property
    def answers(self) -> tuple[str, ...]:
        """The second network's outputs."""
        return VARIANTS[self.variant]

    def generate(
        self, batch: Mapping[str, Any], masks: dict, *, deterministic: bool
    ) -> Array:
        """The generator's states [B, P, D] at the masked positions."""
        states = self.generator.batch_states(batch, masks, deterministic=deterministic)
        return edits.gather(states, batch["masked_positions"])

    def discriminate(
        self, batch: Mapping[str, Any], masks: dict, *, deterministic: bool
    ) -> Array:
        """Hidden states [B, T, D] of the discriminator."""
        return self.discriminator.batch_states(
            batch, masks, deterministic=deterministic
        )

    def __call__(self, batch: dict, masks: dict) -> list[Array]:
        """Calls every head once, to initialise its parameters."""
        states = self.generate(batch, masks, deterministic=True)
        self.generator.logits(states)
        states = self.discriminate(batch, masks, deterministic=True)
        heads: dict[str, Callable] = {
            "score": self.score,
            "logits": self.discriminator.logits,
        }
        return [heads[name](states) for name in self.answers]

    def init_params(self, rng: Array) -> Any:
        ids = jnp.zeros((1, 2), jnp.int32)
        batch = {"inputs": ids, "masked_positions": ids[:, :1]}
        return scan.init_params(self, rng, batch, {"self": masks.full()})

    @property
    def task_width(self) -> int:
        return self.discriminator_spec.d_model

    def task_part(self, params: Any) -> tuple[Network, Any]:
        """The discriminator, without the head that scores tokens as replaced."""
        network = MaskedLM(self.discriminator_spec, parent=None)
        return network, self._part(params, "discriminator")

    def features(self, params: Any, tokens: Array) -> Array:
        """The discriminator's."""
        network, part_params = self.task_part(params)
        return network.features(part_params, tokens)

    def layer_features(self, params: Any, tokens: Array) -> Array:
        """The discriminator's."""
        network, part_params = self.task_part(params)
        return network.layer_features(part_params, tokens)

    def find_transformer(self, params: Any) -> tuple[Any, Any]:
        """The discriminator."""
        return self.task_part(params)

    def fill_logits(self, params: Any, tokens: Array) -> Array:
        """The generator's."""
        network = MaskedLM(self.generator_spec, parent=None)
        return network.fill_logits(self._part(params, "generator"), tokens)

    def target_log_probs(
        self, params: Any, batch: dict, view: str, with_ranks: bool = False
    ) -> Any:
        """The generator's, or by the view the discriminator's log P(original).

        If that restores tokens, log p that it writes the same token.
        """
        if view != "discriminator":
            network = MaskedLM(self.generator_spec, parent=None)
            part_params = self._part(params, "generator")
            return network.target_log_probs(part_params, batch, view, with_ranks)
        if with_ranks:
            raise ValueError("a discriminator gives tokens no ranks")

        def read(model: ElectraNetwork) -> Array:
            attn_masks = {"self": masks.segments(batch["segment_ids"])}
            states = model.discriminate(batch, attn_masks, deterministic=True)
            states = edits.gather(states, batch["positions"])
            if "logits" not in model.answers:
                return jax.nn.log_sigmoid(-model.score(states))
            restored = -model.discriminator.nll(states, batch["targets"])
            if "score" not in model.answers:
                return restored
            copied = model.score(states)
            replaced = jax.nn.log_sigmoid(-copied) + restored
            return jnp.logaddexp(jax.nn.log_sigmoid(copied), replaced)

        return self.apply({"params": params}, method=read)

    @property
    def scores_ratio(self) -> bool:
        """A discriminator compares p of a token with that of the generator's fill.

        A second network that restores every token and copies none gives p alone.
        """
        return "score" in self.answers

    def choice_scores(self, params: Any, gap: Gap) -> Array:
        """By the discriminator's logit that each candidate is original.

        If it restores tokens, log p that the candidate was there.
        """

        def score(tokens: Array) -> Array:
            def read(model: ElectraNetwork) -> dict[str, Array]:
                attn_mask = masks.full()
                states = model.discriminator.encode(
                    tokens, attn_mask, deterministic=True
                )
                scores = {}
                if "score" in model.answers:
                    scores["score"] = gap.read(model.score(states))
                if "logits" in model.answers:
                    logits = model.discriminator.logits(gap.read(states))
                    restored = jax.nn.log_softmax(logits)
                    answer = gap.read(tokens)[:, None]
                    scores["logits"] = jnp.take_along_axis(restored, answer, 1)[:, 0]
                return scores

            scores = self.apply({"params": params}, method=read)
            if "logits" not in scores:  # the logit of a replaced token
                return -scores["score"]
            if "score" not in scores:
                return scores["logits"]
            copied = jax.nn.log_sigmoid(scores["score"])
            replaced = jax.nn.log_sigmoid(-scores["score"]) + scores["logits"]
            return jnp.logaddexp(copied, replaced)

        return gap.score_each(score)

    def count_flops(self, lengths: dict[str, int], num_predictions: float) -> float:
        length, total = lengths["generator"], 0.0
        spec = self.discriminator_spec
        num_logits = length if self.variant in EVERYWHERE else num_predictions
        for network, num_scored in (
            (self.generator_spec, num_predictions),
            (spec, num_logits if "logits" in self.answers else 0),
        ):
            total += flops.transformer_flops(network, {"own": length}, num_scored)
        if "score" in self.answers:
            total += 2 * length * spec.d_model * (spec.d_model + 1)
        return flops.TRAIN_FACTOR * total

    def export_parts(self, params: Any) -> dict[str, tuple[ModelSpec, Any]]:
        """A second network that restores tokens is exported as a masked language model.

        Without the head that decides which tokens it copies.
        """
        parts = {"generator": (self.generator_spec, self._part(params, "generator"))}
        discriminator = self._part(params, "discriminator")
        if "logits" in self.answers:
            return parts | {"masked": (self.discriminator_spec, discriminator)}
        discriminator |= {"score": params["score"]}
        return parts | {"discriminator": (self.discriminator_spec, discriminator)}

    def join_parts(self, parts: dict[str, Any]) -> Any:
        """From both networks; missing parts are empty.

        A discriminator alone has no generator, a fine-tuned one no score, either.
        """
        generator = dict(parts.get("generator", {}))
        discriminator = dict(parts.get("discriminator") or parts["masked"])
        embed = discriminator.pop("embed")
        if self.sharing == "disentangled":
            base = generator["embed"] if generator else embed
            discriminator["embed"] = _combine(operator.sub, embed, base)
            embed = base
        if self.sharing != "separate":
            generator.pop("embed", None)
        return {
            "embed": embed,
            "score": discriminator.pop("score", {}),
            "generator": generator,
            "discriminator": discriminator,
        }

    @property
    def has_equal_embeddings(self) -> bool:
        return self.sharing == "shared"

    def _part(self, params: Any, name: str) -> dict:
        part = {"embed": params["embed"]} | params[name]
        if name == "discriminator" and self.sharing == "disentangled":
            part["embed"] = _combine(operator.add, part["embed"], params["embed"])
        return part


def _combine(op: Callable[[Any, Any], Any], own: dict, base: dict) -> dict:
    """Embeddings with `op` of each own table and its base; norm and smear are own."""

    def combine(own: Any, base: Any) -> Any:
        is_shape = isinstance(own, jax.ShapeDtypeStruct)
        return own if is_shape else op(own, base)

    return {
        name: part
        if name in ("norm", "smear")
        else jax.tree.map(combine, part, base[name])
        for name, part in own.items()
    }


class Electra(ElectraNetwork):
    """ELECTRA with a discriminator that scores every token as replaced or not."""

    def replaced_logits(self, params: Any, tokens: Array) -> Array:
        """The discriminator's; if it restores tokens, that it does not copy them."""

        def read(model: Electra) -> Array:
            states = model.discriminator.encode(
                tokens, masks.full(), deterministic=True
            )
            return model.score(states)

        logits = self.apply({"params": params}, method=read)
        return -logits if "logits" in self.answers else logits

    def gap_log_probs(self, params: Any, gap: Gap) -> Array:
        """log p of each candidate, by Bayes' rule from both networks.

        Let the generator fill a share m of the tokens, with g in this gap. A candidate
        c is seen there and is original with p(c) (1 - m + m g(c)), or is replaced with
        m g(c) (1 - p(c)). The discriminator's odds of "original" are their ratio, so

            p / (1 - p) = odds m g / (1 - m + m g)

        If it is trained at the filled tokens alone, p / (1 - p) = odds. Exact for a
        discriminator that is; samples that a generator draws where it is shown the
        token (`electra.replace_mask`) are counted as not replaced.
        """
        log_original = self.choice_scores(params, gap)
        if "logits" in self.answers:  # log P(original), not its odds
            below_one = jnp.minimum(log_original, -jnp.finfo(jnp.float32).tiny)
            odds = below_one - jnp.log(-jnp.expm1(below_one))
        else:
            odds = log_original
        if self.variant not in EVERYWHERE:
            return jax.nn.log_sigmoid(odds)
        masks = jnp.full(len(gap.tokens), self.mask_id, gap.tokens.dtype)
        logits = gap.read(self.fill_logits(params, gap.fill(masks)))
        share = self.sampled_share
        log_filled = gap.pick(jax.nn.log_softmax(logits / self.temperature))
        log_filled += jnp.log(share)
        return jax.nn.log_sigmoid(
            odds + log_filled - jnp.logaddexp(jnp.log1p(-share), log_filled)
        )


class RestoringElectra(ElectraNetwork):
    """ELECTRA whose second network only restores masked tokens (replace MLM)."""

    HEADS = ("generator", "masked")

    variant: str = "replace_mlm"
