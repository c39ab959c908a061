"""Judging written text: likelihood under another model, divergence, repetition.

    generative_perplexity      of a judge, over all tokens of all texts; log_perplexity
                               is its logarithm, nats per token
    mauve                      distance of the distributions of texts and real texts
    entropy, distinct_1 ... 4  how varied the tokens are
    seq_rep_4, repeated_lines  how often a text repeats itself
    tokens                     its length

Tokens are those of the judge, which reads each text alone, with the special tokens of
its training. A model that repeats one likely phrase has a lower perplexity than
real text, and a small entropy (Zheng et al. 2024): no number is read without the
others, nor without those of real text.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple, Protocol

import numpy as np
from jaxtyping import Float, Int

from jaxpt.errors import DataError
from jaxpt.evaluation.text_divergence import count_clusters, make_histograms, mauve
from jaxpt.evaluation.text_statistics import (
    distinct,
    entropy,
    repeated_lines,
    repetition,
)
from jaxpt.judge.bootstrap import Interval
from jaxpt.judge.intervals import map_interval, mean_interval, ratio_interval
from jaxpt.zero_shot.outcomes import Figure, Outcome

NGRAMS = (1, 2, 3, 4)
LOG_PERPLEXITY = "log_perplexity"
# Of one text each; the others are of all texts.
BY_TEXT = ("entropy", "seq_rep_4", "repeated_lines", "tokens")
NO_INTERVAL = Interval(math.nan, math.nan, "none: not a mean over texts")
OF_REAL = "_of_real"
FEW = 10 * 10  # texts below which MAUVE has fewer than ten clusters


class TextJudge(Protocol):
    """A model that judges text.

    Attributes:
      description: the model and its scoring rule, for a note.
    """

    description: str

    def encode(self, text: str) -> Int[np.ndarray, "T"]:
        """The tokens of a text, without special tokens."""
        ...

    def score(
        self, texts: Sequence[str]
    ) -> tuple[Float[np.ndarray, "N"], Int[np.ndarray, "N"]]:
        """-log p in nats of each text, and the number of its scored tokens."""
        ...

    def embed(self, texts: Sequence[str]) -> Float[np.ndarray, "N D"]:
        """A vector of each text."""
        ...


class MeasuredTexts(NamedTuple):
    """Texts, and what is measured of each.

    Attributes:
      nats, scored: -log p of each text, and its scored tokens.
      values: the measures `BY_TEXT`; NaN where a text is too short for one.
      ids: its tokens.
    """

    nats: Float[np.ndarray, "N"]
    scored: Int[np.ndarray, "N"]
    values: dict[str, Float[np.ndarray, "N"]]
    ids: list[Int[np.ndarray, "T"]]


def measure_texts(judge: TextJudge, texts: Sequence[str]) -> MeasuredTexts:
    """All measures of texts."""
    ids = [judge.encode(text) for text in texts]
    values = {
        "entropy": [entropy(each) for each in ids],
        "seq_rep_4": [repetition(each, 4) for each in ids],
        "repeated_lines": [repeated_lines(text) for text in texts],
        "tokens": [float(len(each)) for each in ids],
    }
    nats, scored = judge.score(texts)
    if not np.isfinite(nats).all():
        raise DataError(f"{judge.description}: a text has a score that is not finite")
    arrays = {name: np.array(column) for name, column in values.items()}
    return MeasuredTexts(nats, scored, arrays, ids)


def embed_sets(
    judge: TextJudge, first: Sequence[str], second: Sequence[str]
) -> tuple[Float[np.ndarray, "N D"], Float[np.ndarray, "M D"]]:
    """The vectors of two sets of texts, in which equal texts have equal vectors."""
    distinct_texts = sorted({*first, *second})
    places = {text: i for i, text in enumerate(distinct_texts)}
    vectors = judge.embed(distinct_texts)
    if not np.isfinite(vectors).all():
        raise DataError(f"{judge.description}: a vector of a text is not finite")
    return vectors[[places[x] for x in first]], vectors[[places[x] for x in second]]


def compare_texts(
    judge: TextJudge,
    samples: Sequence[str],
    reference: Sequence[str],
    num_clusters: int = 0,
) -> Outcome:
    """The measures of samples, with those of real text as baselines.

    Args:
      num_clusters: of MAUVE; 0: a tenth of the smaller number of texts.
    """
    if not samples or not reference:
        raise DataError("there must be at least one sample and one text of reference")
    ours, real = (measure_texts(judge, texts) for texts in (samples, reference))
    for texts, name in ((ours, "samples"), (real, "texts of reference")):
        if not texts.scored.sum():
            raise DataError(f"the {name} have no token that is scored")
    num_clusters = num_clusters or count_clusters(len(samples), len(reference))
    vectors = embed_sets(judge, samples, reference)
    histograms = make_histograms(*vectors, num_clusters)
    figures = _find_figures(ours)
    figures["mauve"] = Figure(mauve(*histograms), *NO_INTERVAL)
    trivial = {
        name + OF_REAL: figure.value for name, figure in _find_figures(real).items()
    }
    with np.errstate(invalid="ignore", divide="ignore"):
        rates = ours.nats / ours.scored
    columns = {LOG_PERPLEXITY: rates, "weight": ours.scored} | ours.values
    notes = _write_notes(judge, ours, real, len(histograms[0]))
    return Outcome(figures, trivial, {}, columns, notes)


def _find_figures(texts: MeasuredTexts) -> dict[str, Figure]:
    """The measures that need no other texts."""
    is_scored = texts.scored > 0
    nats = texts.nats[is_scored]
    counts = texts.scored[is_scored].astype(np.float64)
    mean, interval = nats.sum() / counts.sum(), ratio_interval(nats, counts, "texts")
    figures = {
        LOG_PERPLEXITY: Figure(float(mean), *interval),
        "generative_perplexity": Figure(
            float(np.exp(mean)), *map_interval(interval, _exp)
        ),
    }
    for name in BY_TEXT:
        values = texts.values[name]
        own = values[np.isfinite(values)]
        value = float(own.mean()) if len(own) else math.nan
        figures[name] = Figure(value, *mean_interval(own))
        if name == "entropy":
            figures |= {
                f"distinct_{n}": Figure(distinct(texts.ids, n), *NO_INTERVAL)
                for n in NGRAMS
            }
    return {name: x for name, x in figures.items() if math.isfinite(x.value)}


def _exp(value: float) -> float:
    with np.errstate(over="ignore"):
        return float(np.exp(np.float64(value)))


def _write_notes(
    judge: TextJudge, ours: MeasuredTexts, real: MeasuredTexts, num_clusters: int
) -> list[str]:
    num_ours, num_real = (int(x.values["tokens"].sum()) for x in (ours, real))
    notes = [
        f"The judge is {judge.description}; the samples have {num_ours:,} of its "
        f"tokens, the reference {num_real:,}; MAUVE has {num_clusters} clusters."
    ]
    if not 0.8 <= num_ours / max(num_real, 1) <= 1.25:
        notes.append(
            "distinct_n falls with the number of tokens: it does not compare here."
        )
    if len(ours.ids) < FEW or len(real.ids) < FEW:
        notes.append(f"MAUVE of fewer than {FEW} texts is unreliable.")
    if num_empty := int((ours.scored == 0).sum()):
        notes.append(f"{num_empty} samples have no scored token.")
    return notes
