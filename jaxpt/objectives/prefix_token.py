"""Prefix tokens: the next token, and the token that begins its spelling.

KellerJordan/modded-nanogpt, record 88, `train_gpt.py`. The logits z_t that predict the
next token v also predict pi(v), the token whose bytes are the longest proper prefix of
those of v. With p the fraction of the run that is done:

    next token   the   pi: th       weight .25 until p = 1/3, 0 from p = 2/3 on,
    next token   t     none                linear between them

    loss = mean over t of l(z_t, v) + w(p) l(z_t, pi(v)),  l(z, v) = lse(z) - z[v]

As in `multi_token`, the mean is over the next tokens, is not divided by 1 + w, and the
softmax is computed once, so that FLOPs are those of `clm`. `offset_weights` adds its
larger offsets; the prefix is that of offset 1 alone. In evaluation only `clm_loss` is
left, which is that of `clm`.

The source reports 3.2809 -> 3.2778 (mean of 10 runs each) at 1,375 steps, on top of
`multi_token`, and that prefixes alone are worse than `multi_token` alone. It predicts
spellings that the tokenizer does not produce, so compare bits per byte.

Controls: `target="ranked"`, a token next to pi(v) by frequency, without its spelling;
`target="uniform"`, a random token in place of pi(v), which in mean is label smoothing;
`clm`; with offsets `multi_token`.

Departures: the loss is a mean over tokens, in the source a sum. Continuing pieces of
WordPiece have prefixes among such pieces alone.
"""

import dataclasses
import functools
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import jax
import jax.numpy as jnp
import numpy as np
from jaxtyping import Array, Float, Int

from jaxpt.dims import Batch, Rows
from jaxpt.objectives import multi_token
from jaxpt.objectives.multi_token import read_targets, shift_targets
from jaxpt.objectives.objective import Keys, Masks, Sums, make_train_step
from jaxpt.objectives.spec import Needs, Term
from jaxpt.ops import losses
from jaxpt.rng import row_keys
from jaxpt.setting_types import Fraction, NonNegativeFloat, OneOf
from jaxpt.text.tokens.vocab import Vocab

if TYPE_CHECKING:
    from jaxpt.nn.networks.one_stack import CausalLM

CONTINUES = b"##"  # begins the pieces of WordPiece that continue a word


@dataclasses.dataclass(frozen=True)
class Spec(multi_token.Spec):
    """The weight of prefixes, when it ends, and what takes their place in controls.

    Attributes:
      prefix_weight: of the prefix of the next token.
      prefix_fade: fractions of the training steps, the last ones with this weight and
        the first ones with weight 0; between them it fades linearly.
      target: "prefix"; "ranked", the token next to the prefix by its frequency in the
        training text; or "uniform", a random token if there is a prefix.
      offset_weights: of the tokens 2, 3, ... positions ahead, as in `multi_token`.
    """

    SECTION: ClassVar[str] = "prefix_token"

    prefix_weight: NonNegativeFloat = 0.25
    prefix_fade: tuple[Fraction, Fraction] = (1 / 3, 2 / 3)
    target: Annotated[str, OneOf("prefix", "ranked", "uniform")] = "prefix"
    offset_weights: tuple[NonNegativeFloat, ...] = ()

    def __post_init__(self) -> None:
        super().__post_init__()
        start, end = self.prefix_fade
        self.check("prefix_fade", start <= end, "two fractions, the second not smaller")

    @property
    def needs(self) -> Needs:
        return Needs(pieces=True, counts=self.target == "ranked")

    @property
    def terms(self) -> dict[str, Term]:
        """All have coefficient 1: the weights are factors in their sums."""
        terms = super().terms
        if not self.offset_weights:
            del terms["offset_loss"]
        label, targets = "prefix of the next token", "prefix_targets"
        prefix = Term(label, targets=targets, selects="prefix_weights")
        return terms | {"prefix_loss": prefix}

    def controls(self) -> dict[str, dict[str, Any]]:
        controls: dict[str, dict[str, Any]] = {"clm": {"objective": "clm"}}
        if self.offset_weights:
            offsets = {"offset_weights": self.offset_weights, "fade_end": self.fade_end}
            controls["multi_token-same"] = {
                "objective": "multi_token",
                "multi_token": offsets,
            }
        if self.target == "prefix":
            controls["ranked"] = {self.SECTION: {"target": "ranked"}}
            controls["uniform"] = {self.SECTION: {"target": "uniform"}}
        return controls


def find_prefixes(
    pieces: tuple[bytes, ...], is_piece: np.ndarray, groups: np.ndarray
) -> Int[np.ndarray, "V"]:
    """The token of the longest proper prefix of each token's bytes; -1 if none.

    Of several tokens with the same bytes the first one is a prefix.

    Args:
      pieces: the bytes of each token.
      is_piece: bool [V], whether it is compared.
      groups: [V], numbers; prefixes are of the same group.

    >>> pieces = b"a", b"ab", b"abc", b"b", b"bc"
    >>> find_prefixes(pieces, np.ones(5, bool), np.zeros(5)).tolist()
    [-1, 0, 1, -1, 3]
    """
    prefixes = np.full(len(pieces), -1, np.int32)
    ids = [i for i, piece in enumerate(pieces) if is_piece[i] and piece]
    ids.sort(key=lambda i: (groups[i], pieces[i]))  # stable: equal ones by their id
    before: list[int] = []  # prefixes of the current token, the longest last
    for i in ids:
        while before and not (
            groups[before[-1]] == groups[i] and pieces[i].startswith(pieces[before[-1]])
        ):
            before.pop()
        if before and pieces[before[-1]] == pieces[i]:
            prefixes[i] = prefixes[before[-1]]
            continue
        prefixes[i] = before[-1] if before else -1
        before.append(i)
    return prefixes


@functools.lru_cache(maxsize=8)
def prefix_table(vocab: Vocab) -> Int[np.ndarray, "V"]:
    """`find_prefixes` of the ordinary tokens of a vocabulary; -1 at all others."""
    is_piece = ~vocab.is_special
    pieces, groups = vocab.pieces, np.zeros(vocab.size, np.int32)
    if vocab.word_starts:
        continues = is_piece & ~np.array(vocab.word_starts)
        marked = np.array([piece.startswith(CONTINUES) for piece in pieces])
        if continues.any() and marked[continues].all():  # WordPiece
            groups = continues.astype(np.int32)
            pieces = tuple(
                piece[len(CONTINUES) :] if is_marked else piece
                for piece, is_marked in zip(pieces, continues.tolist(), strict=True)
            )
    return find_prefixes(pieces, is_piece, groups)


def neighbour_table(vocab: Vocab) -> Int[np.ndarray, "V"]:
    """A token next to each ordinary one by frequency; neighbours are swapped.

    >>> neighbour_table(Vocab(size=5, mask=0, counts=(0, 9, 1, 5, 7))).tolist()
    [0, 4, 3, 2, 1]
    """
    table, ordinary = np.arange(vocab.size), vocab.ordinary_ids
    order = ordinary[np.argsort(-np.asarray(vocab.counts)[ordinary], kind="stable")]
    pairs = order[: len(order) // 2 * 2].reshape(-1, 2)
    table[pairs] = pairs[:, ::-1]
    return table


def find_weight(spec: Spec, progress: Float[Array, "B"]) -> Float[Array, "B"]:
    """The weight of prefixes at a fraction of the run.

    >>> find_weight(Spec(4), jnp.array([0, 0.5, 1])).round(3).tolist()
    [0.25, 0.125, 0.0]
    """
    start, end = spec.prefix_fade
    if start == end:
        return spec.prefix_weight * (progress < end)
    return spec.prefix_weight * jnp.clip((end - progress) / (end - start), 0, 1)


def corrupt(rng: Array, rows: Rows, vocab: Vocab, spec: Spec) -> Batch:
    """Shifts by one, as `clm` does, and looks up prefixes of the targets.

    >>> rows = {"tokens": jnp.array([[1, 2, 3]]), "index": jnp.array([0])}
    >>> rows["progress"] = jnp.zeros(1)
    >>> vocab = Vocab(size=4, pad=0, pieces=(b"", b"a", b"ab", b"b"))
    >>> batch = corrupt(None, rows, vocab, Spec(row_length=3))
    >>> [batch[key].tolist() for key in ("targets", "prefix_targets", "prefix_weights")]
    [[[2, 3]], [[1, 0]], [[0.25, 0.0]]]
    """
    batch = multi_token.corrupt(rng, rows, vocab, spec)
    weights = batch["weights"]["clm_loss"]
    prefixes = jnp.asarray(prefix_table(vocab))[batch["targets"]]
    has_prefix = prefixes >= 0
    if spec.target == "ranked":
        prefixes = jnp.asarray(neighbour_table(vocab), jnp.int32)[prefixes]
    elif spec.target == "uniform":
        ordinary, shape = jnp.asarray(vocab.ordinary_ids), prefixes.shape[1:]
        draw = lambda key: jax.random.choice(key, ordinary, shape)  # noqa: E731
        prefixes = jax.vmap(draw)(row_keys(rng, rows["index"]))
    in_training = jnp.zeros(len(weights))
    if "progress" in rows:  # absent in evaluation
        in_training = find_weight(spec, rows["progress"])
    of_terms = dict.fromkeys(spec.terms, weights)
    if not spec.offset_weights:  # XLA's compiler crashes on empty arrays under pmap
        del batch["offset_weights"]
    return batch | {
        "prefix_targets": jnp.where(has_prefix, prefixes, 0),
        "prefix_weights": has_prefix * weights * in_training[:, None],
        "weights": of_terms,
    }


masks = multi_token.masks


def loss(
    params: Any, model: "CausalLM", batch: Batch, masks: Masks, rngs: Keys
) -> tuple[Sums, Sums]:
    """Cross-entropy of the next token, of its prefix, and of the tokens after it.

    As in `multi_token`, the gradient of all passes through `clm_loss`.
    """
    weights = batch["weights"]["clm_loss"]
    factors = jnp.ones((len(weights), 1, 1))  # of the next token
    if "offset_weights" in batch:
        later = batch["offset_weights"][:, None]
        factors = jnp.concatenate([factors, later], axis=-1)
    targets, is_valid = shift_targets(batch["targets"], weights, factors.shape[-1])
    targets = jnp.concatenate([targets, batch["prefix_targets"][..., None]], -1)
    of_prefix = batch["prefix_weights"][..., None]
    weights_BTK = jnp.concatenate([is_valid * factors, of_prefix], -1)
    nll_BTK, zero, ranks = read_targets(
        params, model, batch, masks, rngs, targets, weights_BTK
    )
    num = jnp.sum(weights)
    terms = {
        "clm_loss": (jnp.sum(nll_BTK[..., 0]) + zero, num),
        "prefix_loss": (jnp.sum(nll_BTK[..., -1]), num),
    }
    if "offset_loss" in batch["weights"]:
        terms["offset_loss"] = (jnp.sum(nll_BTK[..., 1:-1]), num)
    return terms, {"accuracy": losses.rank_hits(ranks, weights)}


train_step = make_train_step(corrupt, masks, loss)
