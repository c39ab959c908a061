"""Downstream tasks for fine-tuning, by name: one module each."""

from jaxpt.tasks import (
    choice,
    classification,
    regression,
    span_qa,
    tagging,
    text_to_text,
)
from jaxpt.tasks.task import TaskModule

TASKS: dict[str, TaskModule] = {
    "classification": classification,
    "regression": regression,
    "choice": choice,
    "tagging": tagging,
    "span_qa": span_qa,
    "text_to_text": text_to_text,
}
