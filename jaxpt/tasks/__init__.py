"""The downstream tasks by name: one module each."""

from jaxpt.tasks import choice, classification, regression
from jaxpt.tasks.task import Task

TASKS: dict[str, Task] = {
    "classification": classification,
    "regression": regression,
    "choice": choice,
}
