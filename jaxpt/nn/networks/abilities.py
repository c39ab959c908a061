"""What a network can do beyond `Network`: one protocol per ability, for `isinstance`.

A class has an ability by having its methods. `params` are the whole network's and
`tokens` int32 [B, T]; every method is a pure function that can be compiled.
"""

from typing import (
    TYPE_CHECKING,
    Any,
    ClassVar,
    NamedTuple,
    Protocol,
    runtime_checkable,
)

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Float, Int, PRNGKeyArray

if TYPE_CHECKING:
    from jaxpt.nn.decoding import Decoder


class Gap(NamedTuple):
    """A text with a gap of one token, and candidates for it.

    Attributes:
      tokens: int32 [B, T], the text with any token in the gap.
      position: of the gap; one for all texts, or int32 [B].
      gapped: int32 [B, T], with what replaces a gap in training; or [B, T - 1].
      candidates: int32 [B, N].
      answer: int32 [B, S], the decoder's first input, then what it writes, with any
        token in the gap.
      answer_position: of the gap in the answer.
      ends: ids of which one follows the answer, whose probabilities are added; () if
        nothing does.
    """

    tokens: Array
    position: int | Array
    gapped: Array
    candidates: Array
    answer: Array | None = None
    answer_position: int | Array = 0
    ends: tuple[int, ...] = ()

    @property
    def positions(self) -> Int[Array, "B"]:
        """The position of the gap in each text."""
        return jnp.broadcast_to(jnp.asarray(self.position), len(self.tokens))

    def fill(self, candidate: Int[Array, "B"]) -> Int[Array, "B T"]:
        """The texts with a token in their gaps."""
        rows = jnp.arange(len(self.tokens))
        return self.tokens.at[rows, self.positions].set(candidate)

    def read(self, values: Float[Array, "B T *D"]) -> Float[Array, "B *D"]:
        """The values at the gaps."""
        return values[jnp.arange(len(values)), self.positions]

    def score_each(self, score: Any) -> Array:
        """Scores [B, N] from those [B] of the text with a candidate in its gap."""
        return jax.lax.map(lambda c: score(self.fill(c)), self.candidates.T).T

    def pick(self, logits: Array) -> Array:
        """The candidates' scores [B, N] of logits [B, V]."""
        return jnp.take_along_axis(logits, self.candidates, axis=1)


@runtime_checkable
class HasTransformer(Protocol):
    """Its features are read from a Transformer, whose attention can be shown."""

    def find_transformer(self, params: Any) -> tuple[Any, Any]:
        """That Transformer as a network, and its parameters."""


@runtime_checkable
class FillsMasks(Protocol):
    """Predicts the tokens behind [MASK]s."""

    # The part that fills them, if it is not the trained result.
    FILLS_BY: ClassVar[str]

    def fill_logits(
        self, params: Any, tokens: Int[Array, "B T"]
    ) -> Float[Array, "B T V"]:
        """Scores of every token, at every position of text with [MASK]s."""


@runtime_checkable
class PredictsNext(Protocol):
    """Predicts the next token."""

    def next_logits(
        self, params: Any, tokens: Int[Array, "B T"]
    ) -> Float[Array, "B T V"]:
        """Scores of the token that follows each position."""


@runtime_checkable
class HasLikelihood(Protocol):
    """Gives a text an exact likelihood."""

    def token_nll(
        self, params: Any, tokens: Int[Array, "B T"]
    ) -> Float[Array, "B T-1"]:
        """-log p in nats of every token after the first of its row."""


@runtime_checkable
class BoundsLikelihood(Protocol):
    """Gives an upper bound of a text's -log p."""

    def nll_bound(
        self,
        params: Any,
        tokens: Int[Array, "B T"],
        is_text: Bool[Array, "B T"],
        rngs: PRNGKeyArray,
    ) -> Float[Array, "B T"] | Float[Array, "B T-1"]:
        """An upper bound of -log p in nats, estimated by Monte Carlo.

        Of every token, or of all but the first if that must be given.

        Args:
          is_text: the tokens that are predicted; the others are known.
          rngs: a key for each row.
        """


# The views of rows that predict each token given those before it, or given a mask.
VIEWS = ("causal", "forward", "prefix", "seq2seq", "full")


@runtime_checkable
class ScoresTexts(Protocol):
    """Scores the tokens of a text, by rules that depend on their order."""

    # The rules (`zero_shot.score_rows`), the best known first.
    SCORING: ClassVar[tuple[str, ...]]

    def target_log_probs(
        self, params: Any, batch: dict, view: str, with_ranks: bool = False
    ) -> Any:
        """log p of targets in nats, float32 [B, P], each read at its position.

        Only these positions meet the vocabulary; padding changes no number.

        Args:
          batch: "inputs" int32 [B, T] and "segment_ids" (1, on padding after it 0),
            "positions" and "targets" int32 [B, P]. For a decoder "dec_inputs" and
            "dec_segment_ids" [B, S], to which the positions then refer; for a prefix LM
            "prefix_lengths" [B].
          view: how the rows are read, one of the rules' views.
          with_ranks: also return their ranks (`ops.losses.target_ranks`).
        """


@runtime_checkable
class ScoresCandidates(Protocol):
    """Chooses among candidates for a gap in a text."""

    @property
    def scores_ratio(self) -> bool:
        """Whether a score compares a candidate's probability with another one.

        Otherwise it is log p of the candidate, up to a constant.
        """

    def choice_scores(self, params: Any, gap: Gap) -> Float[Array, "B N"]:
        """How well each candidate fits the gap; the best is the largest."""


@runtime_checkable
class ResolvesRatio(ScoresCandidates, Protocol):
    """Knows the distribution with which its scores compare a candidate."""

    def gap_log_probs(self, params: Any, gap: Gap) -> Float[Array, "B N"]:
        """log p of each candidate for the gap, from its ratio to that distribution."""


@runtime_checkable
class DetectsReplaced(Protocol):
    """Detects replaced tokens."""

    def replaced_logits(
        self, params: Any, tokens: Int[Array, "B T"]
    ) -> Float[Array, "B T"]:
        """Logits that each token of a text has replaced another."""


@runtime_checkable
class FillsGaps(Protocol):
    """Writes the missing tokens between two parts of a text, from left to right."""

    # The number of ids that `gap_prompt` adds to both parts.
    GAP_MARKS: ClassVar[int]

    def gap_prompt(
        self, left: Int[Array, "B L"], right: Int[Array, "B C"]
    ) -> Int[Array, "B T"]:
        """The prompt after which the missing tokens and an [EOS] follow."""


@runtime_checkable
class WritesText(Protocol):
    """Writes text from left to right."""

    def make_decoder(self, start_id: int | None) -> "Decoder":
        """What writes text token by token.

        Args:
          start_id: the first input of a decoder that has an encoder.
        """


@runtime_checkable
class Unmasks(FillsMasks, Protocol):
    """Writes text by filling a row of masks step by step."""

    mask_id: int
    # Tokens that are filled before the next ones are, from left to right; 0: all.
    block_size: int


@runtime_checkable
class DecodesAnswers(Protocol):
    """Reads a text with an encoder, and writes an answer with a decoder."""

    def answer_states(
        self, params: Any, tokens: Int[Array, "B T"], dec_tokens: Int[Array, "B S"]
    ) -> Float[Array, "B S D"]:
        """The decoder's states, with an encoder that reads `tokens`."""


def name_writing(network: object) -> str:
    """How a network writes text: "left_to_right", "unmasking", or "" (not at all)."""
    if isinstance(network, WritesText):
        return "left_to_right"
    return "unmasking" if isinstance(network, Unmasks) else ""


def choose_by_fill(network: FillsMasks, params: Any, gap: Gap) -> Float[Array, "B N"]:
    """`choice_scores` by the logits at a mask in the gap."""
    return gap.pick(gap.read(network.fill_logits(params, gap.gapped)))


def choose_by_likelihood(
    network: HasLikelihood, params: Any, gap: Gap
) -> Float[Array, "B N"]:
    """`choice_scores` by the likelihood of the whole text."""
    return gap.score_each(lambda tokens: -network.token_nll(params, tokens).sum(1))
