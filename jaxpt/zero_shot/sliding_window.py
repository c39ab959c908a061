"""Perplexity of long texts in overlapping windows, so that each token has a context.

    window 6, stride 2            scored       with a context of
    t0 t1 t2 t3 t4 t5             0-5          0 ... 5 tokens
          t2 t3 t4 t5 t6 t7       6, 7         4, 5
                t4 t5 t6 t7 t8    8            4

With a stride of the length of the window nothing overlaps, and the first tokens of each
window have little context; this cheaper and worse result is also reported. The windows
are those of transformers' guide to perplexity: window k begins at token k stride.

Every token is scored once. The sums are divided by

    per_token   the tokens of the model; not comparable between tokenizers
    per_word    the words of the original text, separated by white space
    per_word_and_line   words and line ends, because WikiText's convention counts each
                line end as one <eos>
    bits_per_byte   nats / ln 2 by the bytes of UTF-8

The GPT-2 paper removes WikiText's tokenisation before the model reads the text ("de-
tokenisers") and divides by the number of words of the original; here the text is read
unchanged. The text that an [UNK] replaces is charged as raw bytes in all four. The
first token of a text is scored if the form puts an id ([BOS]) before it;
otherwise neither the token nor its bytes are counted, and a note reports it.
"""

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

import numpy as np

from jaxpt.errors import ConfigError, DataError, argument
from jaxpt.judge.bootstrap import Interval
from jaxpt.judge.intervals import map_interval, ratio_interval
from jaxpt.zero_shot.scoring import TextScorer

# Rules whose sums are log p of the text, a bound of it, or a pseudo-log-likelihood; the
# first that a network supports is the default.
ALLOWED = (
    "causal",
    "prefix",
    "suffix",
    "forward",
    "pll",
    "mntp",
    "pll_word_l2r",
    "mntp_word_l2r",
    "infill",
    "bound",
)
CHUNK = 256  # windows that are scored at once


class Window(NamedTuple):
    """Tokens `begin` to `end` of a text, of which those from `scored` on are scored."""

    begin: int
    scored: int
    end: int


def cut_windows(
    num_tokens: int, window: int, stride: int, has_start: bool = True
) -> list[Window]:
    """Windows in which each token is scored once.

    Args:
      has_start: an id precedes each window, so that its first token can be scored.
        Otherwise the first token of the text is not scored, and windows must overlap.

    >>> [tuple(w) for w in cut_windows(9, 6, 2)]
    [(0, 0, 6), (2, 6, 8), (4, 8, 9)]
    >>> [tuple(w) for w in cut_windows(7, 4, 3, has_start=False)]
    [(0, 1, 4), (3, 4, 7)]
    """
    limit = window if has_start else window - 1
    if not 1 <= stride <= limit:
        raise ConfigError(
            f"{argument('stride')}={stride}: must be at least 1 and at most {limit}, "
            f"with windows of {window} tokens"
        )
    windows, scored = [], 0 if has_start else 1
    for begin in range(0, num_tokens, stride):
        end = min(num_tokens, begin + window)
        if scored >= end:
            break
        windows.append(Window(begin, scored, end))
        scored = end
    return windows


class Counts(NamedTuple):
    """The denominators: counts of the scored part of a text."""

    tokens: int
    words: int
    lines: int
    num_bytes: int


def count_text(text: str, num_tokens: int) -> Counts:
    """The counts of a text of `num_tokens`.

    >>> tuple(count_text("a naïve\\nword\\n", 5))
    (5, 3, 2, 14)
    """
    lines = text.count("\n")
    return Counts(num_tokens, len(text.split()), lines, len(text.encode()))


def find_rates(nats: float, counts: Counts) -> dict[str, float]:
    """The metrics of a sum of -log p; NaN if a count is 0.

    >>> round(find_rates(13 * math.log(2), Counts(13, 1, 0, 13))["bits_per_byte"], 6)
    1.0
    """

    def perplexity(num: int) -> float:
        if not num:
            return math.nan
        with np.errstate(over="ignore"):
            return float(np.exp(np.float64(nats) / num))

    bits = nats / math.log(2) / counts.num_bytes if counts.num_bytes else math.nan
    return {
        "perplexity_per_token": perplexity(counts.tokens),
        "perplexity_per_word": perplexity(counts.words),
        "perplexity_per_word_and_line": perplexity(counts.words + counts.lines),
        "bits_per_byte": bits,
    }


def unigram_nats(texts: Sequence[np.ndarray]) -> float:
    """-log p of texts by the frequencies of their tokens.

    The best possible result of a model that knows the token frequencies of these texts
    but not their order.

    >>> round(unigram_nats([np.array([1, 2]), np.array([1, 2])]) / math.log(2), 6)
    4.0
    """
    counts = np.bincount(np.concatenate(texts)).astype(np.float64)
    counts = counts[counts > 0]
    return float(-(counts * np.log(counts / counts.sum())).sum())


class WindowScores(NamedTuple):
    """The scores of texts in windows.

    Attributes:
      nats: -log p of the scored tokens of each window, float64, and of the text that
        unknown tokens replace.
      sizes: the bytes of their text.
      counts: those of the scored parts of all texts.
      num_unscored: the number of texts whose first token is not scored.
    """

    nats: np.ndarray
    sizes: np.ndarray
    counts: Counts
    num_unscored: int

    def find_figures(self) -> dict[str, tuple[float, Interval]]:
        """Each metric with its interval, by the bootstrap over windows.

        The ratios of words and tokens to bytes are constant in the bootstrap.
        """
        total, sizes = self.nats.sum(), self.sizes.astype(np.float64)
        per_byte = ratio_interval(self.nats, sizes, "windows")
        rates = find_rates(total, self.counts)

        def name(figure: str) -> Callable[[float], float]:
            def convert(nats_per_byte: float) -> float:
                return find_rates(nats_per_byte * sizes.sum(), self.counts)[figure]

            return convert

        return {
            figure: (value, map_interval(per_byte, name(figure)))
            for figure, value in rates.items()
        }


def read_texts(
    texts: Sequence[str],
    encode_sized: Callable[[str], tuple[np.ndarray, np.ndarray]],
    scorer: TextScorer,
    rule: str,
    window: int,
    stride: int,
    unknown_bits: Callable[[np.ndarray, np.ndarray], np.ndarray] | None = None,
) -> WindowScores:
    """Scores every token of the texts once, in windows.

    Args:
      encode_sized: text -> ids and the bytes of each.
      unknown_bits: (ids, bytes of each) -> the bits of the text that unknown tokens
        replace (`Vocab.unknown_bits`), which are added to the scores.
    """
    has_start = scorer.is_first_scored(rule)
    parts, starts, sizes, charges = [], [], [], []
    total, num_unscored = np.zeros(4, np.int64), 0
    for text in texts:
        ids, bytes_of = encode_sized(text)
        windows = cut_windows(len(ids), window, stride, has_start)
        if not windows:
            continue
        charged = unknown_bits(ids, bytes_of) if unknown_bits else np.zeros(len(ids))
        for begin, scored, end in windows:
            charges.append(float(charged[scored:end].sum()) * math.log(2))
            parts.append(ids[begin:end])
            starts.append(scored - begin)
            sizes.append(int(bytes_of[scored:end].sum()))
        first = 0 if has_start else int(bytes_of[0])
        num_unscored += not has_start
        remaining = text.encode()[first:]
        sizes[-1] += len(remaining) - int(bytes_of[0 if has_start else 1 :].sum())
        whole = count_text(
            remaining.decode("utf-8", "ignore"), len(ids) - (not has_start)
        )
        total += whole._replace(num_bytes=len(remaining))
    if not parts:
        raise DataError("the text has no token that is scored")
    nats = []
    for at in range(0, len(parts), CHUNK):
        piece = slice(at, at + CHUNK)
        scores = scorer.score(parts[piece], starts[piece], (rule,))[rule]
        nats += [-float(values.sum(dtype=np.float64)) for values in scores]
    return WindowScores(
        np.array(nats) + charges,
        np.array(sizes),
        Counts(*total.tolist()),
        num_unscored,
    )


def pick_rule(rules: Sequence[str]) -> str:
    """The default rule for texts."""
    for rule in ALLOWED:
        if rule in rules:
            return rule
    raise DataError(
        f"a model with the rules {', '.join(rules)}: has no perplexity; must have one "
        f"of {', '.join(ALLOWED)}"
    )
