"""The special tokens that a run puts around a text, for its use, scores and exports.

Rows of joined text (`data.rows=chunks` and similar) have nothing around them unless
`data.add_special_tokens` is set, so such a run reads a text without special tokens.
Whatever an objective adds (T5's [EOS]), or the rows ([CLS] and [SEP]), is added to a
text too.
"""

import dataclasses
from pathlib import Path

from jaxpt.errors import CheckpointError, UserError
from jaxpt.files.folder import load_json
from jaxpt.nn.model_spec import LIMITED
from jaxpt.nn.text_form import TextForm, mark_words
from jaxpt.runs.task import Task
from jaxpt.text.rows.rows_spec import PAIRS, SEGMENTED
from jaxpt.text.tokens.framing import Framing, from_json
from jaxpt.text.tokens.vocab import Vocab

NAME = "framing.json"

Ids = tuple[int, ...]


def find_framing(task: Task) -> Framing:
    """The special tokens around a text, as in the rows of training.

    A model that was imported keeps its own.
    """
    vocab = task.vocab
    if vocab.framing is not None:
        return vocab.framing
    form = task.spec.text_form(vocab)
    before, after = form.before, form.after
    rows = task.plan.rows
    has_frame = rows.rows in PAIRS or rows.add_special_tokens
    if not (before or after) and has_frame:
        before, after = (vocab.require("cls"),), (vocab.require("sep"),)
    ends = () if vocab.eos is None else (vocab.eos,)
    # In rows of joined text a text follows the [EOS] of another one; otherwise nothing
    # known precedes it. No rows of ours contain [BOS].
    is_joined = rows.rows not in SEGMENTED
    return Framing(before, after, bos=vocab.eos if is_joined else None, ends=ends)


def find_form(task: Task) -> TextForm:
    """How a text is written for this run's network (`TextForm`).

    Before a text that is read from left to right: the imported model's ids, or else the
    [EOS] that closed the previous text if rows are joined texts, or nothing.
    """
    vocab, spec, framing = task.vocab, task.model_spec, find_framing(task)
    form = task.spec.text_form(vocab)
    left = framing.before
    if not left and framing.bos is not None:
        left = (framing.bos,)
    return dataclasses.replace(
        form,
        before=framing.before + (form.mode if vocab.framing is None else ()),
        after=framing.after,
        mode=(),
        lead=framing.before + (form.lead if vocab.framing is None else ()),
        left=left,
        right=() if vocab.eos is None else (vocab.eos,),
        tail=framing.after,
        start=vocab.start if task.model.HAS_DECODER else 0,
        is_word_start=mark_words(vocab.word_starts, vocab.pieces, spec.vocab_size),
        max_len=spec.max_len if spec.positions in LIMITED else 0,
    )


def find_frame(task: Task) -> tuple[Ids, Ids]:
    """The ids before and after a text whose hidden states are read, mode included."""
    form = find_form(task)
    return form.before, form.after


def with_framing(vocab: Vocab, workdir: Path) -> Vocab:
    """The vocabulary with the special tokens of the folder's imported model, if any."""
    path = workdir / NAME
    if not path.exists():
        return vocab
    values = load_json(path, {str: object}, "import the model again")
    try:
        framing = from_json(values)
    except UserError as error:
        raise CheckpointError(f"{path}: {error}; import the model again") from None
    return dataclasses.replace(vocab, framing=framing)
