"""Metrics of generated texts: ROUGE, BLEU, and classes written as words.

ROUGE is computed by rouge_score and BLEU by sacrebleu. Each function states the choices
made here: the stemmer, the lines of ROUGE-Lsum, and the use of several references.
"""

import warnings
from collections.abc import Sequence

import numpy as np

from jaxpt import optional
from jaxpt.tasks.metrics import class_metrics
from jaxpt.text.stores.sentences import cut_sentences

ROUGES = ("rouge1", "rouge2", "rougeL", "rougeLsum")
OVER_REFERENCES = ("max", "mean")
INVALID = -1  # the class of an answer that is not a label
# The packages of both, as `optional.need` reads them.
ROUGE = "rouge_score.rouge_scorer", "eval", "ROUGE"
BLEU = "sacrebleu", "eval", "BLEU"


def split_into_lines(text: str) -> str:
    """One sentence per line, as ROUGE-Lsum needs it; existing lines are kept.

    Without lines ROUGE-Lsum would be ROUGE-L, which is up to nine points lower on
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
      references: one or more for each text.
      over_references: the "mean" of the scores over several references, or the "max"
        of each of the four separately.
      stemmer: rouge_score's Porter stemmer, of words of more than three letters.

    >>> rouge_metrics(["Cats were running quickly"], [["The cat runs quick"]])["rouge1"]
    0.5
    """
    scorer = optional.need(*ROUGE).rouge_scorer.RougeScorer(
        list(ROUGES), use_stemmer=stemmer
    )
    join = np.max if over_references == "max" else np.mean
    rows = []
    for text, golds in zip(predicted, references, strict=True):
        lines = split_into_lines(text)
        scores = [scorer.score(split_into_lines(gold), lines) for gold in golds]
        rows.append(
            [join([each[name].fmeasure for each in scores], axis=0) for name in ROUGES]
        )
    return dict(zip(ROUGES, np.mean(rows, axis=0).tolist(), strict=True))


def bleu_metrics(
    predicted: Sequence[str], references: Sequence[Sequence[str]], tokenize: str = "13a"
) -> dict[str, float]:
    """BLEU of all texts together, between 0 and 1 (a hundredth of sacrebleu's number).

    Args:
      references: one or more for each text; an n-gram may match in any of them.
      tokenize: sacrebleu's; "13a" is its default, T5 takes "intl".
    """
    most = max(map(len, references))
    padded = [[*golds, *[None] * (most - len(golds))] for golds in references]
    streams = [list(stream) for stream in zip(*padded, strict=True)]
    bleu = optional.need(*BLEU).metrics.BLEU(tokenize=tokenize)
    return {"bleu": bleu.corpus_score(list(predicted), streams).score / 100}


def written_class_metrics(
    predicted: Sequence[int], right: Sequence[int], num_labels: int, positive: int
) -> dict[str, float]:
    """`class_metrics` if a prediction may be INVALID, which is always wrong.

    F1 of two labels counts an invalid answer as the wrong label (T5:
    `f1_score_with_invalid`); macro F1 is over the labels alone; Matthews' correlation
    counts it as a separate class, as in T5.

    Returns:
      The values of `class_metrics`, and "invalid", the share of invalid answers.
    """
    from sklearn.metrics import f1_score

    p, y = np.asarray(predicted), np.asarray(right)
    is_invalid = p == INVALID
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a class that only one of the two has
        values = class_metrics(p.tolist(), y.tolist(), num_labels, positive)
    seen = sorted({*p.tolist(), *y.tolist()} - {INVALID})
    macro = f1_score(y, p, labels=seen, average="macro", zero_division=0)
    values["macro_f1"] = float(macro)
    if num_labels == 2:
        flipped = np.where(is_invalid, 1 - y, p)
        f1 = f1_score(y == positive, flipped == positive, zero_division=0)
        values["f1"] = float(f1)
    return values | {"invalid": float(is_invalid.mean())}
