"""Metrics of texts that a model writes: ROUGE, BLEU, and classes told in words.

ROUGE is rouge_score's and BLEU is sacrebleu's; what is decided here is stated with each
function: the stemmer, the lines of ROUGE-Lsum, and what several references count.
"""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np

from jaxpt.errors import UserError
from jaxpt.tasks.metrics import class_metrics
from jaxpt.text.stores.sentences import cut_sentences

ROUGES = ("rouge1", "rouge2", "rougeL", "rougeLsum")
OVER_REFERENCES = ("max", "mean")
INVALID = -1  # the class of an answer that is none of the labels


def need_rouge() -> Any:
    """The package rouge_score, imported only when asked for.

    Raises:
      UserError: it is not installed.
    """
    try:
        import rouge_score.rouge_scorer
    except ImportError as error:
        raise UserError("ROUGE needs rouge-score: pip install 'jaxpt[eval]'") from error
    return rouge_score


def need_sacrebleu() -> Any:
    """The package sacrebleu, imported only when asked for.

    Raises:
      UserError: it is not installed.
    """
    try:
        import sacrebleu
    except ImportError as error:
        raise UserError("BLEU needs sacrebleu: pip install 'jaxpt[eval]'") from error
    return sacrebleu


def split_into_lines(text: str) -> str:
    """A text with a sentence a line, as ROUGE-Lsum needs it; lines it has are kept.

    Without lines ROUGE-Lsum would be ROUGE-L, which is up to nine points less on
    summaries of several sentences.

    >>> split_into_lines("One here. Two there!")
    'One here.\\nTwo there!'
    """
    if "\n" in text.strip():
        return text
    pieces = cut_sentences(text, "punctuation")
    return "\n".join(piece.strip() for piece in pieces)


def rouge_metrics(
    predicted: Sequence[str],
    references: Sequence[Sequence[str]],
    over_references: str = "max",
    stemmer: bool = True,
) -> dict[str, float]:
    """Mean F1 of ROUGE-1, -2, -L and -Lsum, between 0 and 1.

    Args:
      references: of each text, one or more.
      over_references: of several references, the mean of the scores or, for each of
        the four by itself, their maximum.
      stemmer: rouge_score's Porter stemmer, of words of more than three letters.

    >>> found = rouge_metrics(["Cats were running quickly"], [["The cat runs quick"]])
    >>> found["rouge1"]
    0.5
    """
    scorer = need_rouge().rouge_scorer.RougeScorer(list(ROUGES), use_stemmer=stemmer)
    join = np.max if over_references == "max" else np.mean
    rows = []
    for text, golds in zip(predicted, references, strict=True):
        said = split_into_lines(text)
        found = [scorer.score(split_into_lines(gold), said) for gold in golds]
        rows.append(
            [join([each[name].fmeasure for each in found], axis=0) for name in ROUGES]
        )
    return dict(zip(ROUGES, np.mean(rows, axis=0).tolist(), strict=True))


def bleu_metrics(
    predicted: Sequence[str],
    references: Sequence[Sequence[str]],
    tokenize: str = "13a",
) -> dict[str, float]:
    """BLEU of all texts together, between 0 and 1 (a hundredth of sacrebleu's number).

    Args:
      references: of each text, one or more; an n-gram is matched in any of them.
      tokenize: sacrebleu's; "13a" is its default, T5 takes "intl".
    """
    most = max(map(len, references))
    padded = [[*golds, *[None] * (most - len(golds))] for golds in references]
    streams = [list(stream) for stream in zip(*padded, strict=True)]
    bleu = need_sacrebleu().metrics.BLEU(tokenize=tokenize)
    return {"bleu": bleu.corpus_score(list(predicted), streams).score / 100}


def told_class_metrics(
    predicted: Sequence[int], right: Sequence[int], num_labels: int, positive: int
) -> dict[str, float]:
    """`class_metrics` where a prediction may be INVALID, which is always wrong.

    F1 of two labels takes an invalid answer for the wrong label (T5:
    `f1_score_with_invalid`); macro F1 is over the labels alone; Matthews' correlation
    counts it as a class of its own, as T5's does.

    Returns:
      What `class_metrics` gives, and "invalid", the share of such answers.
    """
    from sklearn.metrics import f1_score

    p, y = np.asarray(predicted), np.asarray(right)
    is_invalid = p == INVALID
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a class that is in one of the two alone
        found = class_metrics(p.tolist(), y.tolist(), num_labels, positive)
    seen = sorted({*p.tolist(), *y.tolist()} - {INVALID})
    macro = f1_score(y, p, labels=seen, average="macro", zero_division=0)
    found["macro_f1"] = float(macro)
    if num_labels == 2:
        flipped = np.where(is_invalid, 1 - y, p)
        f1 = f1_score(y == positive, flipped == positive, zero_division=0)
        found["f1"] = float(f1)
    return found | {"invalid": float(is_invalid.mean())}
