"""ModelSpec: everything in which one Transformer differs from another.

A family (GPT-2, BERT, T5 ...) is a set of these values, never a subclass. Only knobs
that a named family needs exist.
"""

import dataclasses

from jaxpt.errors import UserError

NORMS = ("layernorm", "rmsnorm")
NORM_POSITIONS = ("pre", "post")
ACTIVATIONS = ("relu", "gelu", "gelu_tanh")
POSITIONS = ("learned", "sinusoidal", "relative", "none")
INITS = ("normal", "torch")
DTYPES = ("float32", "bfloat16")


@dataclasses.dataclass(frozen=True)
class ModelSpec:
    """Sizes and choices of a Transformer with one stack, or with two.

    Attributes:
      num_layers: layers of the only stack, or of the encoder.
      num_decoder_layers: 0 for one stack; more makes an encoder-decoder.
      max_len: positions of the learned table, and the longest generation.
      embed_width: E; 0 means E = D. Otherwise a projection leads from E to D (ELECTRA).
      norm_position: "pre" (GPT-2, T5: a last norm closes the stack) or "post" (BERT:
        the embeddings are normed too).
      positions: learned and sinusoidal are added to the embeddings; relative is T5's
        bucketed bias, one table per stack.
      tie_embeddings: the vocabulary head reuses the token table.
      head_transform: BERT's dense + activation + norm before the vocabulary.
      dropout: on the output of every attention and MLP; embed_dropout: on the
        embeddings; attention_dropout: on the attention weights.
      init: "normal" (std `init_std`; zero biases) or "torch" (PyTorch's defaults:
        uniform in 1/sqrt(fan in); standard normal embeddings unless they are tied).
      dtype: of the computation; parameters, softmax, norms and losses stay float32.
    """

    vocab_size: int = 0
    num_layers: int = 2
    num_decoder_layers: int = 0
    width: int = 128
    num_heads: int = 4
    mlp_width: int = 512
    max_len: int = 128
    embed_width: int = 0
    norm: str = "layernorm"
    norm_position: str = "pre"
    norm_epsilon: float = 1e-5
    activation: str = "gelu"
    positions: str = "learned"
    relative_buckets: int = 32
    relative_max_distance: int = 128
    use_bias: bool = True
    tie_embeddings: bool = True
    head_bias: bool = False
    head_transform: bool = False
    dropout: float = 0.0
    embed_dropout: float = 0.0
    attention_dropout: float = 0.0
    init: str = "normal"
    init_std: float = 0.02
    dtype: str = "float32"

    def __post_init__(self):
        for name in ("num_layers", "width", "num_heads", "mlp_width", "max_len"):
            _check(getattr(self, name) >= 1, name, getattr(self, name), "at least 1")
        for name in ("vocab_size", "num_decoder_layers", "embed_width"):
            _check(getattr(self, name) >= 0, name, getattr(self, name), "at least 0")
        _check(
            self.width % self.num_heads == 0,
            "num_heads",
            self.num_heads,
            f"a divisor of model.width={self.width}",
        )
        _check(
            self.positions != "sinusoidal" or self.table_width % 2 == 0,
            "embed_width" if self.embed_width else "width",
            self.table_width,
            "even with sinusoidal positions",
        )
        _check(
            self.relative_buckets >= 4 and self.relative_buckets % 4 == 0,
            "relative_buckets",
            self.relative_buckets,
            "a multiple of 4",
        )
        _check(
            self.relative_max_distance > self.relative_buckets // 2,
            "relative_max_distance",
            self.relative_max_distance,
            "more than half of model.relative_buckets",
        )
        for name in ("norm_epsilon", "init_std"):
            _check(getattr(self, name) > 0, name, getattr(self, name), "above 0")
        for name in ("dropout", "embed_dropout", "attention_dropout"):
            rate = getattr(self, name)
            _check(0 <= rate < 1, name, rate, "at least 0 and below 1")
        for name, allowed in (
            ("norm", NORMS),
            ("norm_position", NORM_POSITIONS),
            ("activation", ACTIVATIONS),
            ("positions", POSITIONS),
            ("init", INITS),
            ("dtype", DTYPES),
        ):
            value = getattr(self, name)
            _check(value in allowed, name, value, f"one of {', '.join(allowed)}")

    @property
    def table_width(self) -> int:
        """E: the width of the embedding table."""
        return self.embed_width or self.width

    @property
    def head_width(self) -> int:
        """H: the width of one attention head."""
        return self.width // self.num_heads


def _check(is_good: bool, name: str, value, allowed: str) -> None:
    if not is_good:
        raise UserError(f"model.{name}={value}: must be {allowed}")
