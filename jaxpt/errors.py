"""The one exception a user should ever see: a single line and exit code 2."""

import difflib
from collections.abc import Iterable


class UserError(Exception):
    """Bad input, said in one line: the setting or file, its value, what is allowed.

    The command line prints the message after `jaxpt: error:` and exits with 2. Raise it
    where the fault is found; never for a bug of our own.

    >>> print(UserError("train.steps=0: must be above 0"))
    train.steps=0: must be above 0
    """

    def __init__(self, message: str):
        super().__init__(" ".join(message.split()))


class RandomWeightsWarning(UserWarning):
    """An imported network has parts that its checkpoint lacked, drawn at random.

    >>> import warnings
    >>> with warnings.catch_warnings():
    ...     warnings.simplefilter("error", RandomWeightsWarning)
    ...     warnings.warn("no head", RandomWeightsWarning)
    Traceback (most recent call last):
    jaxpt.errors.RandomWeightsWarning: no head
    """


class DivergedError(UserError):
    """The loss is not finite; the run stops and keeps its last good checkpoint."""

    is_known = True  # to all processes (`processes.guard`)


def suggest(given: str, known: Iterable[str]) -> str:
    """ " (did you mean X?)", where something known is spelt almost like it; else "".

    >>> suggest("train.step", ["train.steps", "train.seed"])
    ' (did you mean train.steps?)'
    """
    near = difflib.get_close_matches(given, list(known), n=1, cutoff=0.7)
    return f" (did you mean {near[0]}?)" if near else ""
