"""ELECTRA's two networks: a generator that fills masks, and one that reads its fills.

Which questions the second one is asked is the objective's; here are its heads.
"""

import flax.linen as nn

from jaxpt.nn.heads import Embedder, TokenScore
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.nn.transformer import Transformer
from jaxpt.ops import edits

# By variant, what the second network answers with: "score", a logit a token; "logits",
# those of the vocabulary.
VARIANTS = {
    "full": ("score",),
    "electra_15": ("score",),
    "replace_mlm": ("logits",),
    "all_tokens_mlm": ("score", "logits"),
}


class Electra(nn.Module):
    """Both networks, each a Transformer of its own width, on one set of embeddings.

    The second is called the discriminator, whatever it is asked. With `is_shared`
    False the generator has embeddings of its own.
    """

    generator_spec: ModelSpec
    discriminator_spec: ModelSpec
    variant: str = "full"
    is_shared: bool = True

    def setup(self):
        self.embed = Embedder(self.discriminator_spec)
        shared = self.embed if self.is_shared else None
        self.generator = Transformer(self.generator_spec, shared)
        self.discriminator = Transformer(self.discriminator_spec, self.embed)
        self.score = TokenScore(self.discriminator_spec)

    def generate(self, ids, positions, attn_mask, position_ids=None, *, deterministic):
        """The generator's states [B, P, D] at the hidden positions."""
        hidden = self.generator.encode(
            ids, attn_mask, position_ids, deterministic=deterministic
        )
        return edits.gather(hidden, positions)

    def encode(self, ids, attn_mask, position_ids=None, *, deterministic):
        """Hidden states [B, T, D] of the discriminator, which is what is kept."""
        return self.discriminator.encode(
            ids, attn_mask, position_ids, deterministic=deterministic
        )

    def discriminate(self, ids, attn_mask, position_ids=None, *, deterministic):
        """A logit [B, T] a token: high where it seems replaced."""
        return self.score(
            self.encode(ids, attn_mask, position_ids, deterministic=deterministic)
        )

    def fill(self, ids, attn_mask):
        """The generator's logits [B, T, V] at every position."""
        hidden = self.generator.encode(ids, attn_mask, deterministic=True)
        return self.generator.logits(hidden)

    def __call__(self, ids, positions, attn_mask):
        hidden = self.generate(ids, positions, attn_mask, deterministic=True)
        self.generator.logits(hidden)
        hidden = self.encode(ids, attn_mask, deterministic=True)
        heads = {"score": self.score, "logits": self.discriminator.logits}
        return [heads[name](hidden) for name in VARIANTS[self.variant]]
