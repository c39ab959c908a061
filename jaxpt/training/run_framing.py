"""What a run puts around a text: the one place that `fill`, `generate` and exports ask.

Rows of joined text (`data.rows=chunks` and its like) have nothing around them, and so
nothing is put around a text that such a run is to read; what an objective itself puts
there (T5's [EOS]), or a form of rows ([CLS] and [SEP] of pairs), a text gets too.
"""

import dataclasses
from pathlib import Path

from jaxpt.errors import UserError
from jaxpt.files.folder import load_json
from jaxpt.text.rows.forms import SEGMENTED
from jaxpt.text.rows.paired import PAIRS
from jaxpt.text.tokens.framing import Framing, from_json
from jaxpt.text.tokens.vocab import Vocab
from jaxpt.training.task import Task

NAME = "framing.json"


def find_framing(task: Task) -> Framing:
    """What stands around a text for this run, as in the rows it was trained on.

    A model that was made elsewhere keeps what it came with.
    """
    vocab = task.vocab
    if vocab.framing is not None:
        return vocab.framing
    before, after = task.spec.frame(vocab)
    if not (before or after) and task.plan.rows.rows in PAIRS:
        before, after = (vocab.require("cls"),), (vocab.require("sep"),)
    ends = () if vocab.eos is None else (vocab.eos,)
    # A text follows the [EOS] of another in rows of joined text; else nothing that is
    # known precedes it. No rows of ours hold [BOS].
    is_joined = task.plan.rows.rows not in SEGMENTED
    return Framing(before, after, bos=vocab.eos if is_joined else None, ends=ends)


def find_frame(task: Task) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The ids before and after a text whose hidden states are read.

    What stands there in training, UL2's mode token included.
    """
    framing = find_framing(task)
    mode = () if task.vocab.framing else task.spec.feature_mode(task.vocab)
    return framing.before + mode, framing.after


def with_framing(vocab: Vocab, workdir: Path) -> Vocab:
    """The vocabulary with what the model of this folder came with, if it did.

    Raises:
      UserError: the folder's framing is damaged.
    """
    path = workdir / NAME
    if not path.exists():
        return vocab
    values = load_json(path, "import the model again")
    try:
        framing = from_json(values)
    except UserError as error:
        raise UserError(f"{path}: {error}; import the model again") from None
    return dataclasses.replace(vocab, framing=framing)
