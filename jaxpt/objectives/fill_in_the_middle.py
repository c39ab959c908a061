"""Fill in the middle: a causal model learns to write gaps, which move to the end.

Bavarian et al. 2022 (FIM). A document is cut at two uniform places into prefix, middle
and suffix, of which any may be empty; PRE, SUF and MID are three sentinels, and EOT is
[EOS]:

    text  the cat | sat on | the mat
    PSM   PRE the cat SUF the mat MID sat on EOT
    SPM   PRE SUF the mat MID the cat sat on EOT

    loss = mean over t of -log p(x_t | x_1 ... x_t-1), sentinels and EOT included

With probability `rate` a document is transformed, into SPM with probability `spm_share`
(the paper's joint training has both); all others are read from left to right, as in
`clm`, whose attention, loss and network these are. To fill a gap, the model reads what
precedes the middle and writes until EOT. The prompt is in SPM unless `spm_share` is 0:
there the prefix is next to the middle, which small models need. In evaluation,
`valid_loss` is that of transformed documents too; bits per byte are of plain text.

Rows have room for the 4 ids that a document gains (3 if it ends in [EOS]), so nothing
is trimmed; the rest is padding. A packed row (`segment_ids`) has room for
`max_documents`. A chunk of joined text has room for one: among the texts between its
[EOS]s one is drawn by a uniform token, and transformed at that rate. So no middle
contains an [EOS].

Control: `rate=0` is `clm` bit by bit. On WikiText-2 at 6e11 FLOPs (five seeds, 300
steps against 320, because rows are longer) left-to-right text costs 2.575 +- .006 bits
per byte against 2.565 +- .008 for `clm`, which is not a significant difference. The
bigram-matched cloze asks for the gap: .682 against .852 (docs/results/objectives.md).
In the paper rates up to .9 cost nothing (100 billion tokens).

Departures: cuts are between tokens, in the paper between characters. The paper
transforms any number of the texts of a chunk; Megatron-LM trims the end of the row
afterwards, which cuts middles.
"""

import dataclasses
from typing import TYPE_CHECKING, Any, ClassVar

import jax
import jax.numpy as jnp
from jaxtyping import Array, Bool, Int

from jaxpt.dims import Batch, Rows
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.nn.networks.one_stack import (
    CausalLM,
)
from jaxpt.objectives import clm
from jaxpt.objectives.objective import get_segments, make_train_step, target_loss
from jaxpt.objectives.spec import Needs, ObjectiveSpec, Term, filled_by
from jaxpt.ops import masks as attention_masks
from jaxpt.ops.segments import is_last, segment_lengths, segment_positions
from jaxpt.rng import row_keys
from jaxpt.setting_types import Fraction
from jaxpt.text.tokens.vocab import Vocab
from jaxpt.text_form import TextForm

if TYPE_CHECKING:
    from jaxpt.nn.networks.abilities import Gap
    from jaxpt.nn.networks.network import Network, TransformerNetwork

NUM_ADDED = 4  # PRE, SUF, MID, EOT


class FillInTheMiddleLM(CausalLM):
    """A causal model that writes the middle of a text after its prefix and suffix."""

    GAP_BY_LIKELIHOOD = False
    GAP_MARKS: ClassVar[int] = NUM_ADDED - 1

    fim_ids: tuple[int, ...] = (0, 0, 0, 0)  # PRE, SUF, MID, EOT
    asks_spm: bool = False

    def gap_prompt(self, left: Array, right: Array) -> Array:
        """The ids [B, T] of both parts: in SPM if the model was trained with it.

        >>> model = FillInTheMiddleLM(None, fim_ids=(1, 2, 3, 0), parent=None)
        >>> model.gap_prompt(jnp.array([[10, 11]]), jnp.array([[15]])).tolist()
        [[1, 10, 11, 2, 15, 3]]
        """
        pre, suf, mid, _ = (
            jnp.full((len(left), 1), id_, left.dtype) for id_ in self.fim_ids
        )
        parts = [pre, left, suf, right, mid]
        if self.asks_spm:
            parts = [pre, suf, right, mid, left]
        return jnp.concatenate(parts, axis=1)

    def _ask_gaps(self, tokens: Array, position: Array) -> Array:
        """`gap_prompt` [B, T + 2] of texts without the token at each position [B, 1].

        >>> model = FillInTheMiddleLM(None, fim_ids=(1, 2, 3, 0), parent=None)
        >>> tokens, position = jnp.array([[10, 11, 12, 15]]), jnp.array([[2]])
        >>> model._ask_gaps(tokens, position).tolist()
        [[1, 10, 11, 2, 15, 3]]
        >>> model.clone(asks_spm=True)._ask_gaps(tokens, position).tolist()
        [[1, 2, 15, 3, 10, 11]]
        """
        pre, suf, mid, _ = (
            jnp.full((len(tokens), 1), id_, tokens.dtype) for id_ in self.fim_ids
        )
        places = jnp.arange(tokens.shape[1])
        if not self.asks_spm:
            marked = jnp.where(places == position, suf, tokens)
            return jnp.concatenate([pre, marked, mid], axis=1)
        num_right = tokens.shape[1] - 1 - position
        is_right = places < num_right
        source = jnp.where(is_right, position + 1 + places, places - num_right - 1)
        moved = jnp.take_along_axis(tokens, jnp.maximum(source, 0), axis=1)
        moved = jnp.where(places == num_right, mid, moved)
        return jnp.concatenate([pre, suf, moved], axis=1)

    def choice_scores(self, params: Any, gap: "Gap") -> Array:
        """log p of a candidate and the end after it, given both sides."""
        prompt = self._ask_gaps(gap.tokens, gap.positions[:, None])

        def score(candidate: Array) -> Array:
            token = candidate[:, None]
            targets = jnp.concatenate(
                [token, jnp.full_like(token, self.fim_ids[-1])], axis=1
            )

            def read(model: "TransformerNetwork") -> Array:
                inputs = jnp.concatenate([prompt, token], axis=1)
                attn_mask = attention_masks.causal()
                states = model.encode(inputs, attn_mask, deterministic=True)
                return model.nll(states[:, -2:], targets)

            return -self.apply({"params": params}, method=read).sum(1)

        return jax.lax.map(score, gap.candidates.T).T


@dataclasses.dataclass(frozen=True)
class Spec(ObjectiveSpec):
    """How many documents are transformed, and how.

    Attributes:
      rate: probability that a document is transformed.
      spm_share: probability that a transformed document is in SPM; otherwise PSM.
      max_documents: the most that are packed into a row; 0 if a row is one text.
    """

    SECTION: ClassVar[str] = "fill_in_the_middle"
    NETWORKS: ClassVar = (FillInTheMiddleLM,)
    MIN_LENGTH: ClassVar[int] = 2

    rate: Fraction = 0.5
    spm_share: Fraction = 0.5
    max_documents: int = filled_by("max_documents", 0)

    @property
    def whole_length(self) -> int:
        """Tokens of a transformed row at most; of a row itself at rate 0."""
        num_transformed = max(self.max_documents, 1) * (self.rate > 0)
        return self.row_length + NUM_ADDED * num_transformed

    @property
    def lengths(self) -> dict[str, int]:
        """The last token is only a target."""
        return {"decoder": self.whole_length - 1}

    @property
    def terms(self) -> dict[str, Term]:
        """Not the likelihood of plain text, as documents are transformed."""
        return {"loss": Term("next token")}

    @property
    def needs(self) -> Needs:
        return Needs(specials=("eos",), num_sentinels=3)

    def controls(self) -> dict[str, dict[str, Any]]:
        return {"clm": {"objective": "clm"}}

    def text_form(self, vocab: Vocab) -> TextForm:
        """A text is plain; the network itself writes a prompt with a gap."""
        return TextForm()

    def make_network(
        self, model_spec: ModelSpec, vocab: Vocab, **fields: Any
    ) -> "Network":
        """A plain causal model at rate 0, where no sentinel is trained."""
        if not self.rate:
            self.check_network(model_spec, vocab)
            return CausalLM(model_spec.direct(CausalLM.READS_AHEAD), **fields)
        fields |= {"fim_ids": find_ids(vocab), "asks_spm": self.spm_share > 0}
        return super().make_network(model_spec, vocab, **fields)


def find_ids(vocab: Vocab) -> tuple[int, ...]:
    """PRE, SUF, MID and EOT: the first three sentinels, and [EOS]."""
    return (*vocab.sentinels[: NUM_ADDED - 1], vocab.require("eos"))


def measure_texts(
    tokens: Int[Array, "R"], texts: Int[Array, "R"], eot: int
) -> tuple[Int[Array, "R"], Int[Array, "R"], Int[Array, "R"]]:
    """Each token's place in its text, where that begins, and its size without EOT."""
    place, size = segment_positions(texts), segment_lengths(texts)
    starts = jnp.arange(len(tokens)) - place
    is_close = is_last(texts) & (tokens == eot)
    num = size - is_close[jnp.maximum(starts + size - 1, 0)]
    return place, starts, jnp.maximum(num, 0)


def transform(
    tokens: Int[Array, "R"],
    texts: Int[Array, "R"],
    cuts: tuple[Int[Array, "R"], Int[Array, "R"]],
    is_moved: Bool[Array, "R"],
    is_spm: Bool[Array, "R"],
    ids: tuple[int, ...],
    length: int,
) -> tuple[Int[Array, "T"], Int[Array, "T"]]:
    """Moves the middles of the texts of a row to their ends.

    Args:
      texts: the number of each token's text, 0 at padding after them.
      cuts: at each token, where the middle of its text begins and ends.
      is_moved, is_spm: at each token, whether its text is transformed, and into SPM.
      ids: of PRE, SUF, MID and EOT, which may already end a text.

    Returns:
      The row and the numbers of its texts, both of static `length`.

    >>> tokens, ones = jnp.arange(10, 18), jnp.ones(8, int)
    >>> cuts, ids = (3 * ones, 5 * ones), (1, 2, 3, 0)
    >>> transform(tokens, ones, cuts, ones > 0, ones < 0, ids, 12)[0].tolist()
    [1, 10, 11, 12, 2, 15, 16, 17, 3, 13, 14, 0]
    >>> transform(tokens, ones, cuts, ones > 0, ones > 0, ids, 12)[0].tolist()
    [1, 2, 15, 16, 17, 3, 10, 11, 12, 13, 14, 0]
    """
    eot = ids[-1]
    place, starts, num = measure_texts(tokens, texts, eot)
    is_closed, (first, second) = segment_lengths(texts) > num, cuts
    is_start = (place == 0) & is_moved & (texts > 0)
    added = is_moved * (NUM_ADDED - is_closed)
    starts += jnp.cumsum(is_start * added) - added
    before_suffix = jnp.where(is_spm, 0, first)  # tokens of the prefix
    at_mid = 2 + before_suffix + num - second
    # The prefix of SPM and the middle follow MID.
    target = 3 + num - second + place
    target = jnp.where((place < first) & ~is_spm, 1 + place, target)
    target = jnp.where(place >= second, 2 + before_suffix + place - second, target)
    target = jnp.where(place >= num, 3 + num, target)
    target = jnp.where(is_moved, target, place)
    marks = (0, 1 + before_suffix, at_mid, 3 + num)  # of PRE, SUF, MID, EOT
    places = [jnp.where(texts > 0, starts + target, length)]
    places += [jnp.where(is_start, starts + mark, length) for mark in marks]
    index = jnp.concatenate(places)

    def put(*values: Array) -> Array:
        row = jnp.zeros(length, tokens.dtype)
        return row.at[index].set(jnp.concatenate(values), mode="drop")

    row = put(tokens, *(jnp.full_like(tokens, id_) for id_ in ids))
    return row, put(*[texts] * (1 + len(ids)))


def corrupt(rng: Array, rows: Rows, vocab: Vocab, spec: Spec) -> Batch:
    """Transforms documents, then shifts by one, as `clm` does.

    Raises:
      ValueError: packed rows, and a spec whose `max_documents` is 0.
    """
    if not spec.rate:
        return clm.corrupt(rng, rows, vocab, clm.Spec(spec.row_length))
    is_packed, ids = "segment_ids" in rows, find_ids(vocab)
    if is_packed and not spec.max_documents:
        raise ValueError("rows with segment_ids need a Spec with max_documents > 0")

    def corrupt_row(rng: Array, tokens: Array, texts: Array) -> tuple[Array, Array]:
        rng_text, rng_kind, rng_cut = jax.random.split(rng, 3)
        is_moved = jnp.ones_like(texts, bool)
        if not is_packed:  # a chunk: one of the texts between [EOS]s
            is_eos = tokens == ids[-1]
            texts = 1 + jnp.cumsum(is_eos) - is_eos
            is_moved = texts == texts[jax.random.randint(rng_text, (), 0, len(texts))]
        _, starts, num = measure_texts(tokens, texts, ids[-1])
        # One sample per token; a text uses that of its first token.
        uniform = jax.random.uniform(rng_kind, (2, len(tokens)))[:, starts]
        cuts = jax.random.randint(rng_cut, (2, len(tokens)), 0, num + 1)[:, starts]
        is_moved &= (uniform[0] < spec.rate) & (num > 0)
        is_spm, cuts = uniform[1] < spec.spm_share, jnp.sort(cuts, axis=0)
        how = (cuts[0], cuts[1]), is_moved, is_spm
        return transform(tokens, texts, *how, ids, spec.whole_length)

    keys = row_keys(rng, rows["index"])
    tokens, texts = jax.vmap(corrupt_row)(keys, rows["tokens"], get_segments(rows))
    texts = texts if is_packed else (texts > 0).astype(texts.dtype)
    moved: Rows = {"tokens": tokens, "segment_ids": texts, "index": rows["index"]}
    batch = clm.corrupt(rng, moved, vocab, clm.Spec(spec.whole_length))
    if not is_packed:
        del batch["segment_ids"]  # padding is after all that is read
    return batch


masks = clm.masks
loss = target_loss
train_step = make_train_step(corrupt, masks, loss)
