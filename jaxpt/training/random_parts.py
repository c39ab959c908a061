"""Parts of an imported network that its checkpoint lacked, drawn at random.

A body without a language model's head (`BertModel`) is a good start for training or
fine-tuning, but what its new head predicts means nothing. An import records such parts
in the run's folder; they count until the run has been trained.
"""

from collections.abc import Iterable
from pathlib import Path

from jaxpt.errors import DataError
from jaxpt.files.folder import CHECKPOINTS, load_json, write_json
from jaxpt.training import manifest
from jaxpt.training.task import Task

NAME = "random_parts.json"
# Heads that predict no tokens.
OTHER_HEADS = ("pair_score", "boundary")


def write_random_parts(workdir: Path, parts: Iterable[str]) -> None:
    """Records which parts of the run's network were drawn at random, if any were."""
    if names := list(parts):
        write_json(workdir / NAME, {"parts": names})


def read_random_parts(workdir: Path) -> tuple[str, ...]:
    """The parts that are still random: () once a later step than 0 is saved.

    Raises:
      UserError: the file is damaged.
    """
    path = workdir / NAME
    if not path.exists() or any(manifest.list_finished(workdir / CHECKPOINTS)):
        return ()
    return tuple(load_json(path, "import the model again")["parts"])


def describe_random_parts(task: Task) -> str:
    """One line about the parts that are random; "" if there are none.

    >>> from types import SimpleNamespace
    >>> describe_random_parts(SimpleNamespace(random_parts=("head",)))
    'the checkpoint has no head; its weights were drawn at random'
    """
    if not task.random_parts:
        return ""
    names = " and no ".join(task.random_parts)
    return f"the checkpoint has no {names}; its weights were drawn at random"


def check_language_model(task: Task, name: str) -> None:
    """Refuses to predict tokens by a head that was drawn at random.

    Args:
      name: the command that needs the predictions, such as "fill".

    Raises:
      UserError: the head is random.
    """
    if any(part.split("/")[0] not in OTHER_HEADS for part in task.random_parts):
        raise DataError(f"{name}: {describe_random_parts(task)}; train the run first")
