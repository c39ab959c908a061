"""Which inputs a rule of scoring makes of a text, and where each token's score is read.

    causal          a b c             b read at a, c at b
    pll             _ b c, a _ c ...  each token where it is masked (Salazar 2020)
    pll_word_l2r    masks what follows in the same word, too (Kauf and Ivanova 2023)
    mntp            as pll, read one position before (GPT-BERT)
    infill          an encoder reads a gap, the decoder writes what stood there
    suffix          an encoder reads what is given, the decoder writes the rest
    prefix          the same on one stack, whose given part sees all of itself
    both            log p by what is ahead plus log p by what is behind (ELMo)
    discriminator   log P(original) of each token of the text as it is (ELECTRA)
    bound           what log p is at least, by masked diffusion (LLaDA, equation 6)

NumPy only. A text is its own tokens; what stands around it the form says. Tokens before
`start` are given: they are seen, and not scored.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np
from jaxtyping import Bool, Float, Int

from jaxpt.nn.text_form import TextForm

# Corruptions of a text that the bound is the mean of.
BOUND_SAMPLES = 32


class Rows(NamedTuple):
    """Inputs of one length, and what is read of them.

    Attributes:
      view: how the network reads them (`ScoresTexts.target_log_probs`).
      rules: the rules that these scores belong to.
      arrays: "inputs" int32 [n, T], "positions" and "targets" int32 [n, P], and what
        else the view needs.
      places: int [n, P], which token of the text each target is.
      weights: float [n, P], what each score counts.
    """

    view: str
    rules: tuple[str, ...]
    arrays: dict[str, np.ndarray]
    places: Int[np.ndarray, "n P"]
    weights: Float[np.ndarray, "n P"]

    def pick(self, part: slice) -> "Rows":
        """Some of the rows."""
        return self._replace(
            arrays={name: values[part] for name, values in self.arrays.items()},
            places=self.places[part],
            weights=self.weights[part],
        )


# (tokens [T], start, form, rules that are asked for, seed) -> rows
Planner = Callable[[np.ndarray, int, TextForm, tuple[str, ...], int], list[Rows]]


def mark_words(
    word_starts: tuple[bool, ...], pieces: tuple[bytes, ...], size: int
) -> Bool[np.ndarray, "V"] | None:
    """By id, whether a token begins a word: also punctuation does.

    A tokenizer's words (`word_ids` of the `tokenizers` library), as far as an id says
    it; a letter behind punctuation goes on.

    Args:
      word_starts, pieces: of the vocabulary; without the first, None.
      size: ids of the model; those that the vocabulary lacks begin a word.
    """
    if not word_starts:
        return None
    found = np.ones(size, bool)
    found[: len(word_starts)] = word_starts
    for id_, piece in enumerate(pieces):
        text = piece.decode("utf-8", "replace").removeprefix("##").strip()
        if text and not any(c.isalnum() or c == "\ufffd" for c in text):
            found[id_] = True
    return found


def plan_causal(tokens, start, form, rules, seed) -> list[Rows]:
    """Each token is read at the one before it."""
    return _plan_directed(tokens, start, form, "causal", rules)


def plan_both(tokens, start, form, rules, seed) -> list[Rows]:
    """Each token at the one before it, and at the one behind it."""
    found = []
    for view in ("forward", "backward"):
        asked = tuple(rule for rule in rules if rule in (view, "both"))
        if asked:
            found += _plan_directed(tokens, start, form, view, asked)
    return found


def _plan_directed(tokens, start, form, view: str, rules) -> list[Rows]:
    first = len(form.left)
    inputs = np.concatenate([form.left, tokens])
    places = np.arange(start, len(tokens))
    if view == "backward":
        inputs = np.concatenate([inputs, form.right])
        positions = places + first + 1
        places = places[positions < len(inputs)]
        positions = places + first + 1
    else:
        inputs = inputs[:-1]  # nothing reads the last
        places = places[places + first > 0]
        positions = places + first - 1
    arrays = {"inputs": inputs[None], "positions": positions[None]}
    return _rows(view, rules, arrays, tokens, places[None])


def plan_masked(tokens, start, form, rules, seed) -> list[Rows]:
    """Each token where it is masked, alone or with what follows in its word."""
    around = np.concatenate([form.before, tokens, form.after])
    return _plan_fills(tokens, start, form, rules, around, len(form.before), 0)


def plan_mntp(tokens, start, form, rules, seed) -> list[Rows]:
    """As `plan_masked`, read one position before the mask.

    The first token is left out where nothing stands before it.
    """
    around = np.concatenate([form.left, tokens, form.after])
    start = max(start, 1 - len(form.left))
    return _plan_fills(tokens, start, form, rules, around, len(form.left), -1)


def _plan_fills(tokens, start, form, rules, around, first: int, offset: int):
    """Rows of masked copies of a text that begins at position `first` of `around`."""
    words = form.words(tokens)
    places = np.arange(start, len(tokens))
    follows = np.append(words[1:] == words[:-1], False)[places]
    plain = tuple(rule for rule in rules if not rule.endswith("word_l2r"))
    by_word = tuple(rule for rule in rules if rule.endswith("word_l2r"))
    found = []
    # Where nothing of its word follows, both rules mask the same.
    for asked, own, is_alone in (
        (rules, places[~follows], True),
        (plain, places[follows], True),
        (by_word, places[follows], False),
    ):
        if not asked or not len(own):
            continue
        inputs = np.repeat(around[None], len(own), axis=0)
        if is_alone:
            inputs[np.arange(len(own)), own + first] = form.gap[0]
        else:
            is_hidden = words == words[own, None]
            is_hidden &= np.arange(len(tokens)) >= own[:, None]
            inputs[:, first : first + len(tokens)][is_hidden] = form.gap[0]
        arrays = {"inputs": inputs, "positions": own[:, None] + first + offset}
        found += _rows("full", asked, arrays, tokens, own[:, None])
    return found


def plan_infill(tokens, start, form, rules, seed) -> list[Rows]:
    """Each token where the encoder has a gap for it and the decoder comes to it.

    A decoder that rewrites the text is fed what stands before the token.
    """
    around = np.concatenate([form.before, tokens, form.after])
    places = np.arange(start, len(tokens))
    inputs = np.repeat(around[None], len(places), axis=0)
    inputs[np.arange(len(places)), places + len(form.before)] = form.gap[0]
    if form.rewrites:
        written = np.concatenate([[form.start], form.before, tokens[:-1]])
        positions = places + len(form.before)
    else:
        written = np.array([form.start, *form.gap])
        positions = np.full(len(places), len(form.gap))
    decoder = np.repeat(written[None], len(places), axis=0)
    arrays = {
        "inputs": inputs,
        "dec_inputs": decoder,
        "positions": positions[:, None],
    }
    return _rows("seq2seq", rules, arrays, tokens, places[:, None])


def plan_suffix(tokens, start, form, rules, seed) -> list[Rows]:
    """The encoder reads what is given, a mark where the rest is missing, no more."""
    source = np.concatenate([form.lead, tokens[:start], form.mark, form.tail])
    places = np.arange(start, len(tokens))
    if form.rewrites:
        written = np.concatenate([[form.start], form.lead, tokens[:-1]])
        positions = places + len(form.lead)
    else:
        written = np.concatenate([[form.start], form.mark, tokens[start:-1]])
        positions = places - start + len(form.mark)
    arrays = {
        "inputs": source[None],
        "dec_inputs": written[None],
        "positions": positions[None],
    }
    return _rows("seq2seq", rules, arrays, tokens, places[None])


def plan_prefix(tokens, start, form, rules, seed) -> list[Rows]:
    """What is given is the prefix; without anything given, what stands before texts."""
    source = np.concatenate([form.lead, tokens[:start], form.mark])
    places = np.arange(start, len(tokens))
    positions = len(source) + len(form.mark) + places - start - 1
    places, positions = places[positions >= 0], positions[positions >= 0]
    arrays = {
        "inputs": np.concatenate([source, form.mark, tokens[start:-1]])[None],
        "positions": positions[None],
        "prefix_lengths": np.array([len(source)]),
    }
    return _rows("prefix", rules, arrays, tokens, places[None])


def plan_discriminator(tokens, start, form, rules, seed) -> list[Rows]:
    """The text as it is, all tokens at once."""
    around = np.concatenate([form.before, tokens, form.after])
    places = np.arange(start, len(tokens))
    arrays = {"inputs": around[None], "positions": places[None] + len(form.before)}
    return _rows("discriminator", rules, arrays, tokens, places[None])


def plan_bound(tokens, start, form, rules, seed) -> list[Rows]:
    """Of n tokens l of 1..n are masked, spread evenly over l, and count n / l.

    What is masked the seed and n decide, so that texts of one length and seed are
    compared under the same masks: what they differ in is then less the draw's doing.
    """
    first, num = len(form.before), len(tokens) - start
    rng = np.random.default_rng([seed, num])
    shares = (rng.random() + np.arange(BOUND_SAMPLES)) / BOUND_SAMPLES
    num_masked = np.minimum(1 + np.floor(num * shares), num).astype(int)[:, None]
    ranks = rng.random((BOUND_SAMPLES, num)).argsort(1).argsort(1)
    is_masked = ranks < num_masked
    around = np.concatenate([form.before, tokens, form.after])
    inputs = np.repeat(around[None], BOUND_SAMPLES, axis=0)
    inputs[:, first + start : first + len(tokens)][is_masked] = form.gap[0]
    places = np.broadcast_to(np.arange(start, len(tokens)), is_masked.shape)
    weights = is_masked * num / num_masked / BOUND_SAMPLES
    arrays = {"inputs": inputs, "positions": places + first}
    return _rows("full", rules, arrays, tokens, places, weights)


def _rows(view, rules, arrays, tokens, places, weights=None) -> list[Rows]:
    """The rows, unless there are none to read."""
    if not places.size:
        return []
    weights = np.ones(places.shape) if weights is None else weights
    arrays = arrays | {"targets": tokens[places]}
    arrays = {name: values.astype(np.int32) for name, values in arrays.items()}
    return [Rows(view, rules, arrays, places, weights)]


# By rule, what makes its rows and what is said of it.
RULES: dict[str, tuple[Planner, str]] = {
    "causal": (plan_causal, "log p of each token given those before it"),
    "pll": (
        plan_masked,
        "pseudo-log-likelihood: log p of each token where it alone is masked",
    ),
    "pll_word_l2r": (
        plan_masked,
        "pseudo-log-likelihood: log p of each token where it and what follows it in "
        "its word are masked",
    ),
    "mntp": (
        plan_mntp,
        "log p of each token where it alone is masked, read one position before it",
    ),
    "mntp_word_l2r": (
        plan_mntp,
        "log p of each token where it and what follows it in its word are masked, read "
        "one position before it",
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
        "log p of each token given those before it; the given text sees all of itself",
    ),
    "both": (
        plan_both,
        "log p of each token given those before it, plus log p given those behind it",
    ),
    "forward": (plan_both, "log p of each token given those before it"),
    "backward": (plan_both, "log p of each token given those behind it"),
    "discriminator": (
        plan_discriminator,
        "log P(original) of each token of the whole text, by the discriminator",
    ),
    "bound": (
        plan_bound,
        f"a lower bound of log p, estimated with {BOUND_SAMPLES} random masks",
    ),
}
# Those whose numbers depend on a draw.
DRAWN = frozenset({"bound"})
# Those of which only what stands before a text has a first token scored.
NEED_LEFT = frozenset({"causal", "mntp", "mntp_word_l2r", "forward"})
