"""Parts of an imported network that its checkpoint lacked, drawn at random.

A body without a language model's head (`BertModel`) is a good start for training or
fine-tuning, but what its new head predicts means nothing. An import records such parts
in the run's folder; they count until the run has been trained. A run that lacks one of
its networks (ELECTRA's discriminator alone, without its generator) is not trained: it
is used and fine-tuned.
"""

from collections.abc import Iterable
from pathlib import Path

from jaxpt.errors import DataError
from jaxpt.files.folder import CHECKPOINTS, load_json, write_json
from jaxpt.runs import manifest
from jaxpt.runs.task import Task

NAME = "random_parts.json"
# Heads that predict no tokens.
OTHER_HEADS = ("pair_score", "boundary")


def write_random_parts(workdir: Path, parts: Iterable[str]) -> None:
    """Records which parts of the run's network were drawn at random, if any were."""
    if names := list(parts):
        write_json(workdir / NAME, {"parts": names})


def read_random_parts(workdir: Path) -> tuple[str, ...]:
    """The parts that are still random: () once a later step than 0 is saved."""
    path = workdir / NAME
    if not path.exists() or any(manifest.list_finished(workdir / CHECKPOINTS)):
        return ()
    form = {"parts": [str]}
    return tuple(load_json(path, form, "import the model again")["parts"])


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


def list_predicting(task: Task) -> list[str]:
    """The random parts that predict tokens, by the first segment of their path.

    >>> from types import SimpleNamespace
    >>> list_predicting(SimpleNamespace(random_parts=("pair_score", "head/out")))
    ['head']
    """
    names = [part.split("/")[0] for part in task.random_parts]
    return [name for name in names if name not in OTHER_HEADS]


def list_missing(task: Task) -> list[str]:
    """The networks of a run, keys of `Network.HEADS`, that are random as a whole."""
    return [part for part in task.random_parts if part in task.model.HEADS]


def check_networks(task: Task, name: str) -> None:
    """Refuses what needs all networks of a run, if one was drawn at random.

    Args:
      name: what needs them, such as "train".
    """
    if list_missing(task):
        raise DataError(f"{name}: {describe_random_parts(task)}; {_advise(task)}")


def _advise(task: Task) -> str:
    """How the parts that are random can be had."""
    if not list_missing(task):
        return "train the run first"
    heads = " and ".join(repr(head) for head in task.model.HEADS)
    return f"import both networks, as a folder with the folders {heads}"


def check_language_model(task: Task, name: str) -> None:
    """Refuses to predict tokens by a head that was drawn at random.

    Args:
      name: the command that needs the predictions, such as "fill".
    """
    if list_predicting(task):
        raise DataError(f"{name}: {describe_random_parts(task)}; {_advise(task)}")
