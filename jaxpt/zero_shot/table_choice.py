r"""Zero-shot multiple choice on a custom table, described by a task file.

    {"table": {"path": "dev.jsonl"},
     "context": "Question: {goal}\nAnswer:",
     "options": ["sol1", "sol2"],
     "label": "label"}

In "context", `{name}` is a column. Each option is scored after the context and
one space, as in lm-evaluation-harness; after a context that ends in a line break,
without the space. "options" names the columns of the options, or one column with a list
of them or ARC's {"text": [...], "label": [...]}. "label" is the column of the correct
option: its number, counted from "first" (0 by default), its letter, or one of ARC's
labels. "shots" is a second table, of training data, for few-shot prompts. Paths are
relative to the folder of the file.
"""

from typing import Any, NamedTuple

from jaxpt.errors import DataError
from jaxpt.text.labelled.options import find_right, read_options
from jaxpt.text.labelled.tables import TableSpec, read_table
from jaxpt.text.labelled.templates import fill, list_slots
from jaxpt.zero_shot.questions import Question
from jaxpt.zero_shot.verbalised import make_table, read_task_file, require_shots

FIELDS = ("table", "context", "options", "label")


class ChoiceSpec(NamedTuple):
    """A validated task file.

    Attributes:
      table, shots: the tables of the questions and, optionally, of training data.
      context: the template of the text before an option.
      options: the columns of the options, or one column of lists.
      label: the column of the correct option.
      first: the number of the first option in this column.
    """

    table: TableSpec
    context: str
    options: tuple[str, ...]
    label: str
    first: int
    shots: TableSpec | None


def read_spec(path: str) -> ChoiceSpec:
    """Reads a task file."""
    values = read_task_file(path, FIELDS, ("first", "shots"))
    context, options = values["context"], values["options"]
    if not isinstance(context, str) or not list_slots(context):
        raise DataError(f"{path}: context={context!r}: must name a column in braces")
    options = [options] if isinstance(options, str) else options
    if not _is_columns(options):
        raise DataError(f"{path}: options={options!r}: must be columns, or one column")
    first = values.get("first", 0)
    if type(first) is not int:
        raise DataError(f"{path}: first={first!r}: must be a whole number")
    return ChoiceSpec(
        make_table(values["table"], path, "table"),
        context,
        tuple(options),
        str(values["label"]),
        first,
        make_table(values["shots"], path, "shots") if "shots" in values else None,
    )


def _is_columns(values: Any) -> bool:
    is_list = isinstance(values, list) and len(values) > 0
    return is_list and all(isinstance(value, str) and value for value in values)


def read_choices(path: str) -> list[Question]:
    """The questions of a task file."""
    spec = read_spec(path)
    return make_questions(spec, spec.table)


def read_choice_shots(path: str) -> list[Question]:
    """The solved questions of a task file; UserError if it has none."""
    spec = read_spec(path)
    return make_questions(spec, require_shots(path, spec.shots))


def make_questions(spec: ChoiceSpec, table_spec: TableSpec) -> list[Question]:
    """The questions of a table, `spec.table` or `spec.shots`."""
    slots = list_slots(spec.context)
    names = dict.fromkeys([*slots, *spec.options, spec.label])
    table = read_table(table_spec, names)
    texts = {name: table.texts(name) for name in slots}
    questions = []
    for row in range(len(table)):
        values = {name: column[row] for name, column in texts.items()}
        context = fill(spec.context, values).removesuffix(" ")
        if not context.strip():
            raise DataError(f"{table.where(row)}: has no text before the options")
        options = read_options(table, spec.options, row)
        right = find_right(table, spec.label, row, options, spec.first)
        space = "" if context[-1].isspace() else " "
        spaced = tuple(space + text for text in options.texts)
        questions.append(Question((context,) * len(spaced), spaced, right))
    return questions
