"""Scoring rules: the network inputs for a text, and where each token's score is read.

    causal          a b c             b is read at a, c at b
    pll             _ b c, a _ c ...  each masked token (Salazar 2020)
    pll_word_l2r    also masks the rest of the word (Kauf and Ivanova 2023)
    mntp            as pll, read one position before the mask (GPT-BERT)
    infill          the encoder reads a gap, the decoder generates the token
    suffix          the encoder reads the given text, the decoder generates the rest
    prefix          the same on one stack, with bidirectional attention in the prefix
    both            log p given the past plus log p given the future (ELMo)
    discriminator   log P(original) of each token of the unmodified text (ELECTRA)
    bound           a lower bound of log p, by masked diffusion (LLaDA, equation 6),
                    or by block diffusion: of each block, after the clean ones

NumPy only. The form adds the ids around a text. Tokens before `start` are given: they
are visible and not scored.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int

from jaxpt.text_form import TextForm

# The number of corruptions of a text over which the bound is averaged.
BOUND_SAMPLES = 32


class ScoredRows(NamedTuple):
    """Inputs of equal length, and the positions to score.

    Attributes:
      view: how the network reads them (`ScoresTexts.target_log_probs`).
      rules: the rules to which the scores belong.
      arrays: "inputs" int32 [n, T], "positions" and "targets" int32 [n, P], and other
        arrays of the view.
      places: int [n, P], the index of each target in the text.
      weights: float [n, P], the weight of each score.
    """

    view: str
    rules: tuple[str, ...]
    arrays: dict[str, np.ndarray]
    places: Int[np.ndarray, "n P"]
    weights: Float[np.ndarray, "n P"]

    def pick(self, part: slice) -> "ScoredRows":
        """Some of the rows."""
        return self._replace(
            arrays={name: values[part] for name, values in self.arrays.items()},
            places=self.places[part],
            weights=self.weights[part],
        )


class ScoredText(NamedTuple):
    """A text to score.

    Attributes:
      tokens: its ids, without those that the form adds.
      start: the first token that is scored; those before it are given.
      form: how the network is shown a text.
      rules: the rules to score by.
      seed: the seed of random masks.
    """

    tokens: Int[np.ndarray, "T"]
    start: int
    form: TextForm
    rules: tuple[str, ...]
    seed: int

    @property
    def scored(self) -> Int[np.ndarray, "N"]:
        """The indices of the scored tokens."""
        return np.arange(self.start, len(self.tokens))

    @property
    def around(self) -> Int[np.ndarray, "S"]:
        """The tokens with the ids around a text that is read in both directions."""
        return self.form.wrap_read(self.tokens)

    def make_rows(
        self,
        view: str,
        arrays: dict[str, np.ndarray],
        places: np.ndarray,
        weights: np.ndarray | None = None,
    ) -> list[ScoredRows]:
        """The rows, or an empty list if nothing is read from them."""
        if not places.size:
            return []
        weights = np.ones(places.shape) if weights is None else weights
        arrays = arrays | {"targets": self.tokens[places]}
        arrays = {name: values.astype(np.int32) for name, values in arrays.items()}
        return [ScoredRows(view, self.rules, arrays, places, weights)]


Planner = Callable[[ScoredText], list[ScoredRows]]


def plan_causal(text: ScoredText) -> list[ScoredRows]:
    """Each token is predicted at the token before it."""
    return _plan_directed(text, "causal")


def plan_both(text: ScoredText) -> list[ScoredRows]:
    """Each token is predicted at the token before it, and at the token after it."""
    rows = []
    for view in ("forward", "backward"):
        rules = tuple(rule for rule in text.rules if rule in (view, "both"))
        if rules:
            rows += _plan_directed(text._replace(rules=rules), view)
    return rows


def _plan_directed(text: ScoredText, view: str) -> list[ScoredRows]:
    first, places = len(text.form.left), text.scored
    inputs = np.concatenate([text.form.left, text.tokens])
    if view == "backward":
        inputs = np.concatenate([inputs, text.form.right])
        places = places[places + first + 1 < len(inputs)]
        positions = places + first + 1
    else:
        inputs = inputs[:-1]  # the last token is not read
        places = places[places + first > 0]
        positions = places + first - 1
    arrays = {"inputs": inputs[None], "positions": positions[None]}
    return text.make_rows(view, arrays, places[None])


def plan_masked(text: ScoredText) -> list[ScoredRows]:
    """Each token is predicted with it masked, alone or with the rest of its word."""
    return _plan_fills(text, text.around, len(text.form.opening), 0)


def plan_mntp(text: ScoredText) -> list[ScoredRows]:
    """As `plan_masked`, but predicted one position before the mask.

    The first token is not scored if no token precedes it.
    """
    before = text.form.left
    around = np.concatenate([before, text.tokens, text.form.after])
    text = text._replace(start=max(text.start, 1 - len(before)))
    return _plan_fills(text, around, len(before), -1)


def _plan_fills(
    text: ScoredText, around: np.ndarray, first: int, offset: int
) -> list[ScoredRows]:
    """Rows of masked copies of a text that begins at position `first` of `around`."""
    words, places = text.form.words(text.tokens), text.scored
    follows = np.append(words[1:] == words[:-1], False)[places]
    plain = tuple(rule for rule in text.rules if not rule.endswith("word_l2r"))
    by_word = tuple(rule for rule in text.rules if rule.endswith("word_l2r"))
    rows = []
    # At the last token of a word both kinds of rules mask the same token.
    for rules, masked, is_alone in (
        (text.rules, places[~follows], True),
        (plain, places[follows], True),
        (by_word, places[follows], False),
    ):
        if not rules or not len(masked):
            continue
        inputs = np.repeat(around[None], len(masked), axis=0)
        if is_alone:
            inputs[np.arange(len(masked)), masked + first] = text.form.gap[0]
        else:
            is_hidden = words == words[masked, None]
            is_hidden &= np.arange(len(words)) >= masked[:, None]
            inputs[:, first : first + len(words)][is_hidden] = text.form.gap[0]
        arrays = {"inputs": inputs, "positions": masked[:, None] + first + offset}
        rows += text._replace(rules=rules).make_rows("full", arrays, masked[:, None])
    return rows


def plan_infill(text: ScoredText) -> list[ScoredRows]:
    """Each token where the encoder has a gap and the decoder generates it.

    The input of a decoder that rewrites the text is the text before the token.
    """
    form, places = text.form, text.scored
    inputs = np.repeat(text.around[None], len(places), axis=0)
    inputs[np.arange(len(places)), places + len(form.opening)] = form.gap[0]
    if form.rewrites:
        dec_inputs = np.concatenate([[form.start], form.opening, text.tokens[:-1]])
        positions = places + len(form.opening)
    else:
        dec_inputs = np.array([form.start, *form.gap])
        positions = np.full(len(places), len(form.gap))
    arrays = {
        "inputs": inputs,
        "dec_inputs": np.repeat(dec_inputs[None], len(places), axis=0),
        "positions": positions[:, None],
    }
    return text.make_rows("seq2seq", arrays, places[:, None])


def plan_suffix(text: ScoredText) -> list[ScoredRows]:
    """The encoder reads the given text and a mark; the decoder generates the rest."""
    tokens, start, form = text.tokens, text.start, text.form
    source = np.concatenate([form.lead, tokens[:start], form.mark, form.after])
    if form.rewrites:
        dec_inputs = np.concatenate([[form.start], form.lead, tokens[:-1]])
        positions = text.scored + len(form.lead)
    else:
        dec_inputs = np.concatenate([[form.start], form.mark, tokens[start:-1]])
        positions = text.scored - start + len(form.mark)
    arrays = {
        "inputs": source[None],
        "dec_inputs": dec_inputs[None],
        "positions": positions[None],
    }
    return text.make_rows("seq2seq", arrays, text.scored[None])


def plan_prefix(text: ScoredText) -> list[ScoredRows]:
    """The given text, with the ids that precede texts, is the prefix."""
    tokens, start, form, places = text.tokens, text.start, text.form, text.scored
    source = np.concatenate([form.lead, tokens[:start], form.mark])
    positions = len(source) + len(form.mark) + places - start - 1
    places, positions = places[positions >= 0], positions[positions >= 0]
    arrays = {
        "inputs": np.concatenate([source, form.mark, tokens[start:-1]])[None],
        "positions": positions[None],
        "prefix_lengths": np.array([len(source)]),
    }
    return text.make_rows("prefix", arrays, places[None])


def plan_discriminator(text: ScoredText) -> list[ScoredRows]:
    """The unmodified text, with all tokens at once."""
    places = text.scored[None]
    arrays = {"inputs": text.around[None], "positions": places + len(text.form.opening)}
    return text.make_rows("discriminator", arrays, places)


def plan_bound(text: ScoredText) -> list[ScoredRows]:
    """l of a block's n tokens are masked, l evenly spread over 1..n, the weight n / l.

    The block is the whole text, or each of the text's blocks after the clean ones
    before it (block diffusion), with its own draws. The masks depend only on the seed
    and on the number and the place of the scored tokens. So texts of equal length and
    seed are compared under the same masks, which reduces the variance of their
    difference.
    """
    first, num = len(text.form.opening), len(text.scored)
    begin, size = first + text.start, text.form.block_size
    places = begin + np.arange(num)
    _, starts, blocks, counts = np.unique(
        places // size if size else np.zeros(num, int),
        return_index=True,
        return_inverse=True,
        return_counts=True,
    )
    rng = np.random.default_rng([text.seed, num])
    shares = rng.random(len(counts)) + np.arange(BOUND_SAMPLES)[:, None]
    sizes = np.minimum(1 + np.floor(counts * (shares / BOUND_SAMPLES)), counts)
    draws = blocks + rng.random((BOUND_SAMPLES, num))
    ranks = draws.argsort(1).argsort(1) - starts[blocks]
    num_masked, counts = sizes[:, blocks], counts[blocks]
    is_masked = ranks < num_masked
    inputs = np.repeat(text.around[None], BOUND_SAMPLES, axis=0)
    arrays = (
        {"inputs": inputs, "original": inputs.copy()} if size else {"inputs": inputs}
    )
    inputs[:, begin : begin + num][is_masked] = text.form.gap[0]
    scored = np.broadcast_to(text.scored, is_masked.shape)
    weights = is_masked * counts / num_masked / BOUND_SAMPLES
    arrays |= {"positions": scored + first}
    return text.make_rows("blocks" if size else "full", arrays, scored, weights)


# By rule, its planner and its description.
RULES: dict[str, tuple[Planner, str]] = {
    "causal": (plan_causal, "log p of each token given those before it"),
    "pll": (
        plan_masked,
        "pseudo-log-likelihood: log p of each token where it alone is masked",
    ),
    "pll_word_l2r": (
        plan_masked,
        "pseudo-log-likelihood: log p of each token where it and the rest of its "
        "word are masked",
    ),
    "mntp": (
        plan_mntp,
        "log p of each token where it alone is masked, read one position before it",
    ),
    "mntp_word_l2r": (
        plan_mntp,
        "log p of each token where it and the rest of its word are masked, read one "
        "position before it",
    ),
    "infill": (
        plan_infill,
        "log p of each token by the decoder where the encoder reads a gap in its place",
    ),
    "suffix": (
        plan_suffix,
        "log p of each token by the decoder, given those before it; the encoder reads "
        "the given text alone",
    ),
    "prefix": (
        plan_prefix,
        "log p of each token given those before it; attention in the given text is "
        "bidirectional",
    ),
    "both": (
        plan_both,
        "log p of each token given those before it, plus log p given those after it",
    ),
    "forward": (plan_both, "log p of each token given those before it"),
    "backward": (plan_both, "log p of each token given those after it"),
    "discriminator": (
        plan_discriminator,
        "log P(original) of each token of the whole text, by the discriminator",
    ),
    "bound": (
        plan_bound,
        f"a lower bound of log p, estimated with {BOUND_SAMPLES} random masks",
    ),
}
# Rules whose scores are random.
RANDOM_RULES = frozenset({"bound"})
# Rules that score the first token only if the form puts ids before the text.
NEED_LEFT = frozenset({"causal", "mntp", "mntp_word_l2r", "forward"})
