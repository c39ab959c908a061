"""Checkpoints at numbers of words that a run has read, as separate runs.

    <workdir>/words/1M/    config.json, tokenizer.json, ...
                           checkpoints/STEP, the parameters alone

Commands that read a run (evaluate, babylm, export, finetune) accept such a folder. It
has no optimizer state. A milestone is the end of the first call of `train_call` after
which a run has read this number of words.

Words are separated by white space in the decoded text. If the tokenizer is lossless,
they are those of the text itself. Every row counts as the mean number of words of a
row, and repeated epochs count again. Of more than `LIMIT` tokens, an evenly spaced
sample is counted.
"""

from pathlib import Path
from typing import Any

import numpy as np

from jaxpt.config.sections import TrainSpec
from jaxpt.distributed import processes
from jaxpt.errors import ConfigError
from jaxpt.files import checksums
from jaxpt.runs.checkpoint import Checkpointer
from jaxpt.runs.workdir import IDENTITY_NAMES
from jaxpt.text.dataset import Split
from jaxpt.text.feed import Feed
from jaxpt.text.phases import count_rows
from jaxpt.text.rows.corpus import Corpus
from jaxpt.text.tokens.tokenizer import Tokenizer

FOLDER = "words"
LIMIT = 1_000_000  # tokens that are decoded
PIECE = 1 << 14  # tokens that are decoded at once


def count_words(corpus: Corpus, tokenizer: Tokenizer, limit: int = LIMIT) -> float:
    """The number of words of a corpus; an estimate if it has more than `limit` tokens.

    A word does not continue in the next document.
    """
    num_words = num_tokens = 0
    step = max(1, -(-corpus.num_tokens // limit))
    for start in range(0, corpus.num_tokens, PIECE * step):
        stop = min(start + PIECE, corpus.num_tokens)
        first, last = np.searchsorted(corpus.doc_starts, (start, stop), "right")
        borders = [start, *corpus.doc_starts[first:last].tolist(), stop]
        ids = corpus.read(start, stop)
        for begin, end in zip(borders, borders[1:], strict=False):
            text = tokenizer.decode(ids[begin - start : end - start])
            num_words += len(text.split())
        num_tokens += stop - start
    return num_words / num_tokens * corpus.num_tokens


def count_words_of_row(
    train: Split, feed: Feed, tokenizer: Tokenizer, row_length: int
) -> float:
    """The mean number of words of a row of training."""
    total = 0.0
    for part, rows, share in zip(train.parts, feed.parts, train.fractions, strict=True):
        num = part.num_tokens / row_length if rows.is_sampled else rows.num_rows
        total += share * count_words(part, tokenizer) / num
    return total


def plan_milestones(spec: TrainSpec, words_of_row: float) -> dict[int, list[str]]:
    """The names of the milestones after each step that has any.

    >>> spec = TrainSpec(steps=100, batch_size=2, checkpoint_words=(101, 2_000))
    >>> plan_milestones(spec, 10.0)
    {10: ['101'], 100: ['2000']}
    """
    milestones: dict[int, list[str]] = {}
    for words in spec.checkpoint_words:
        step = next(
            (
                step
                for step in (*range(0, spec.steps, spec.steps_per_call), spec.steps)
                if count_rows(spec.phases, step) * words_of_row >= words
            ),
            None,
        )
        if step is None:
            most = count_rows(spec.phases, spec.steps) * words_of_row
            raise ConfigError(
                f"train.checkpoint_words={spec.checkpoint_words}: must be at most "
                f"{most:,.0f}, the words that the run reads in "
                f"train.steps={spec.steps}"
            )
        milestones.setdefault(step, []).append(name_words(words))
    return milestones


def name_words(words: int) -> str:
    """The name of a number of words.

    >>> name_words(3_000_000), name_words(1_500)
    ('3M', '1500')
    """
    return f"{words // 1_000_000}M" if words % 1_000_000 == 0 else str(words)


def write_milestone(workdir: Path, name: str, step: int, state: Any) -> None:
    """Writes the folder of a milestone; all processes call it together.

    Args:
      state: in the form that is saved.
    """
    folder = workdir / FOLDER / name
    _copy_identity(workdir, folder)
    with Checkpointer(folder / "checkpoints", keep=1) as checkpointer:
        checkpointer.save(step, {state.eval_name: state.eval_params})


@processes.from_first
def _copy_identity(workdir: Path, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for name in IDENTITY_NAMES:
        if (workdir / name).exists():
            checksums.write(folder / name, checksums.read(workdir / name))
