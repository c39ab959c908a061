"""ELECTRA's two networks: a generator that fills masks, and one that reads its fills.

Which questions the second one is asked is the objective's; here are its heads.
"""

from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp

from jaxpt.nn import flops, scan
from jaxpt.nn.heads import Embedder, TokenScore
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.nn.networks.network import TRANSFORMER_RULES, Network
from jaxpt.nn.networks.one_stack import MaskedLM
from jaxpt.nn.transformer import Transformer
from jaxpt.ops import edits, masks

# By variant, what the second network answers with: "score", a logit a token; "logits",
# those of the vocabulary.
VARIANTS = {
    "full": ("score",),
    "electra_15": ("score",),
    "replace_mlm": ("logits",),
    "all_tokens_mlm": ("score", "logits"),
}
# Those whose second network is trained at every token, not at the masked ones alone.
EVERYWHERE = ("full", "all_tokens_mlm")


class Electra(Network, nn.Module):
    """Both networks, each a Transformer of its own width, on one set of embeddings.

    The second is called the discriminator, whatever it is asked. With `is_shared`
    False the generator has embeddings of its own. `temperature` is that of the
    generator's samples, which the objective draws.
    """

    HEADS = ("generator", "discriminator")
    ABILITIES = frozenset({"fill_logits"})
    SCORING = (*MaskedLM.SCORING, "discriminator")
    FILLS_BY = "its generator"
    HAS_ATTENTION = True
    RULES = (
        (r"score/(Dense_0|out)/kernel", ("fsdp", None)),
        (r"score/(Dense_0|out)/bias", (None,)),
        *TRANSFORMER_RULES,
    )

    generator_spec: ModelSpec
    discriminator_spec: ModelSpec
    variant: str = "full"
    is_shared: bool = True
    temperature: float = 1.0

    def setup(self):
        self.embed = Embedder(self.discriminator_spec)
        shared = self.embed if self.is_shared else None
        self.generator = Transformer(self.generator_spec, shared)
        self.discriminator = Transformer(self.discriminator_spec, self.embed)
        self.score = TokenScore(self.discriminator_spec)

    @property
    def spec(self) -> ModelSpec:
        """The sizes of the discriminator, which is what is kept."""
        return self.discriminator_spec

    @property
    def answers(self) -> tuple[str, ...]:
        """What the second network answers with."""
        return VARIANTS[self.variant]

    def generate(self, batch: dict, masks: dict, *, deterministic: bool):
        """The generator's states [B, P, D] at the masked positions."""
        states = self.generator.batch_states(batch, masks, deterministic=deterministic)
        return edits.gather(states, batch["masked_positions"])

    def discriminate(self, batch: dict, masks: dict, *, deterministic: bool):
        """Hidden states [B, T, D] of the discriminator."""
        return self.discriminator.batch_states(
            batch, masks, deterministic=deterministic
        )

    def __call__(self, batch: dict, masks: dict):
        """Every head once: which parameters there are."""
        states = self.generate(batch, masks, deterministic=True)
        self.generator.logits(states)
        states = self.discriminate(batch, masks, deterministic=True)
        heads: dict[str, Callable] = {
            "score": self.score,
            "logits": self.discriminator.logits,
        }
        return [heads[name](states) for name in self.answers]

    def init_params(self, rng):
        ids = jnp.zeros((1, 2), jnp.int32)
        batch = {"inputs": ids, "masked_positions": ids[:, :1]}
        return scan.init_params(self, rng, batch, {"self": masks.full()})

    @property
    def task_width(self):
        return self.discriminator_spec.d_model

    def task_part(self, params):
        """The discriminator, without what says of each token whether it is original."""
        network = MaskedLM(self.discriminator_spec, parent=None)
        return network, self._part(params, "discriminator")

    def features(self, params, tokens):
        """The discriminator's."""
        network = MaskedLM(self.discriminator_spec, parent=None)
        return network.features(self._part(params, "discriminator"), tokens)

    def layer_features(self, params, tokens):
        """The discriminator's."""
        network = MaskedLM(self.discriminator_spec, parent=None)
        return network.layer_features(self._part(params, "discriminator"), tokens)

    def find_transformer(self, params):
        """The discriminator."""
        network = MaskedLM(self.discriminator_spec, parent=None)
        return network, self._part(params, "discriminator")

    def fill_logits(self, params, tokens):
        """The generator's."""
        network = MaskedLM(self.generator_spec, parent=None)
        return network.fill_logits(self._part(params, "generator"), tokens)

    def target_log_probs(self, params, batch, view, with_ranks=False):
        """The generator's, or what the second network says of tokens that are there.

        log P(original); where it restores tokens, that it would write the same one.
        """
        if view != "discriminator":
            network = MaskedLM(self.generator_spec, parent=None)
            own = self._part(params, "generator")
            return network.target_log_probs(own, batch, view, with_ranks)
        if with_ranks:
            raise NotImplementedError

        def read(model):
            seen = {"self": masks.segments(batch["segment_ids"])}
            states = model.discriminate(batch, seen, deterministic=True)
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
    def scores_ratio(self):
        """A discriminator compares p of a token with that of the generator's fill.

        A second network that restores every token and copies none gives p alone.
        """
        return self.can_spot

    def choice_scores(self, params, gap):
        """By how original the second network finds each candidate in its place.

        Where it restores tokens: log p that the candidate was there.
        """

        def score(tokens):
            def read(model):
                seen = masks.full()
                states = model.discriminator.encode(tokens, seen, deterministic=True)
                scores = {}
                if "score" in model.answers:
                    scores["score"] = model.score(states)[:, gap.position]
                if "logits" in model.answers:
                    logits = model.discriminator.logits(states[:, gap.position])
                    restored = jax.nn.log_softmax(logits)
                    own = tokens[:, gap.position, None]
                    scores["logits"] = jnp.take_along_axis(restored, own, 1)[:, 0]
                return scores

            found = self.apply({"params": params}, method=read)
            if "logits" not in found:  # the logit of a replaced token
                return -found["score"]
            if "score" not in found:
                return found["logits"]
            copied = jax.nn.log_sigmoid(found["score"])
            replaced = jax.nn.log_sigmoid(-found["score"]) + found["logits"]
            return jnp.logaddexp(copied, replaced)

        return gap.score_each(score)

    @property
    def can_spot(self):
        return "score" in self.answers

    def replaced_logits(self, params, tokens):
        """The discriminator's; where it restores tokens, that it does not copy them."""

        def read(model):
            states = model.discriminator.encode(
                tokens, masks.full(), deterministic=True
            )
            return model.score(states)

        found = self.apply({"params": params}, method=read)
        return -found if "logits" in self.answers else found

    def count_flops(self, lengths, num_predictions):
        length, total = lengths["generator"], 0.0
        spec = self.discriminator_spec
        asked = length if self.variant in EVERYWHERE else num_predictions
        for network, num_scored in (
            (self.generator_spec, num_predictions),
            (spec, asked if "logits" in self.answers else 0),
        ):
            total += flops.transformer_flops(network, {"own": length}, num_scored)
        if "score" in self.answers:
            total += 2 * length * spec.d_model * (spec.d_model + 1)
        return flops.TRAIN_FACTOR * total

    def export_parts(self, params):
        """A second network that restores tokens is a masked language model.

        The head that says what it copies is left out then.
        """
        parts = {"generator": (self.generator_spec, self._part(params, "generator"))}
        kept = self._part(params, "discriminator")
        if "logits" in self.answers:
            return parts | {"masked": (self.discriminator_spec, kept)}
        kept |= {"score": params["score"]}
        return parts | {"discriminator": (self.discriminator_spec, kept)}

    def join_parts(self, parts):
        """Of networks whose embeddings are one; what a checkpoint lacks is empty.

        A fine-tuned one has neither the generator nor the discriminator's score.
        """
        generator = dict(parts.get("generator", {}))
        discriminator = dict(parts["discriminator"])
        generator.pop("embed", None)
        return {
            "embed": discriminator.pop("embed"),
            "score": discriminator.pop("score", {}),
            "generator": generator,
            "discriminator": discriminator,
        }

    def _part(self, params, name: str) -> dict:
        return {"embed": params["embed"]} | params[name]
