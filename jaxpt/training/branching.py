"""What a run shares with runs of other lengths (`jaxpt.training.branches`)."""

import dataclasses
from pathlib import Path


@dataclasses.dataclass(frozen=True)
class Branching:
    """The states that a run shares with runs of other lengths.

    Attributes:
      kept: the steps whose states it keeps for its branches.
      evaluated: the steps at which it is also evaluated, for its branches' curves.
      trunk: the folder of the run that it branches from; None for no run.
      until: the last step that it shares with it.
    """

    kept: tuple[int, ...] = ()
    evaluated: frozenset[int] = frozenset()
    trunk: Path | None = None
    until: int = 0


ALONE = Branching()
