"""Zero-shot classification with a template and a verbaliser, a word for each label.

A task file in JSON describes the table and the conversion of rows to questions:

    {"table": {"path": "dev.tsv", "header": false},
     "label": "1",
     "template": "{3} It was {answer}.",
     "words": {"0": "terrible", "1": "great"}}

`{name}` is a column and `{answer}` the place of the words (verbalisers; Schick and
Schuetze 2021), which may have several tokens. Models that read in both directions score
the words between both sides; left-to-right models score the words and the text after
them, which should therefore be a full stop only. "shots" is a second table, of training
data, for few-shot prompts. Paths are relative to the folder of the file.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

from jaxpt.errors import ConfigError, DataError, argument
from jaxpt.text.labelled.tables import TableSpec, read_table
from jaxpt.text.labelled.templates import fill, list_slots
from jaxpt.text.sources.files import parse_object, read_whole
from jaxpt.text.sources.missing import is_empty, is_missing
from jaxpt.text.sources.reading import is_data_set
from jaxpt.zero_shot.questions import Question

ANSWER = "answer"
FIELDS = ("table", "label", "template", "words")


class ClozeSpec(NamedTuple):
    """A validated task file.

    Attributes:
      table, shots: the tables of the rows and, optionally, of training data.
      label: the column of the labels.
      template: the text around the words.
      words: label -> word.
    """

    table: TableSpec
    label: str
    template: str
    words: dict[str, str]
    shots: TableSpec | None


def read_task_file(path: str, fields: Sequence[str], optional: Sequence[str]) -> dict:
    """The fields of a task file."""
    values = parse_object(read_whole(Path(path), ""), path)
    if not set(fields) <= set(values):
        raise DataError(f"{path}: must be an object with {', '.join(fields)}")
    if unknown := sorted(set(values) - {*fields, *optional}):
        allowed = ", ".join([*fields, *optional])
        raise DataError(f"{path}: {unknown[0]}: must be one of {allowed}")
    return values


def read_cloze(path: str) -> ClozeSpec:
    """Reads a task file."""
    values = read_task_file(path, FIELDS, ("shots",))
    template, words = values["template"], values["words"]
    if not isinstance(template, str) or list_slots(template).count(ANSWER) != 1:
        raise DataError(f"{path}: template={template!r}: must have {{answer}} once")
    if template.startswith("{answer}"):
        raise DataError(
            f"{path}: template={template!r}: must have text before {{answer}}"
        )
    if not _is_words(words):
        raise DataError(
            f"{path}: words={words!r}: must have a text for each of 2 labels"
        )
    shots = values.get("shots")
    return ClozeSpec(
        make_table(values["table"], path, "table"),
        str(values["label"]),
        template,
        words,
        None if shots is None else make_table(shots, path, "shots"),
    )


def _is_words(words: Any) -> bool:
    if not isinstance(words, dict) or len(words) < 2:
        return False
    texts = list(words.values())
    return all(isinstance(text, str) and text.strip() for text in texts)


def make_table(values: Any, path: str, name: str) -> TableSpec:
    """The table described by the field `name` of a task file."""
    if not isinstance(values, dict) or not isinstance(values.get("path"), str):
        raise DataError(f"{path}: {name}: must be an object with a path")
    place = values["path"]
    if not is_data_set(place):
        place = str(Path(path).parent / place)
    try:
        return TableSpec(**(values | {"path": place}))
    except TypeError as error:
        raise DataError(f"{path}: {name}: {error}") from None


def require_shots(path: str, shots: TableSpec | None) -> TableSpec:
    """The table of training data of a task file; UserError if it has none."""
    if shots is None:
        raise ConfigError(
            f"{argument('shots')}={path}: must have shots, a table of training data"
        )
    return shots


def ask_all(spec: ClozeSpec, table_spec: TableSpec) -> list[Question]:
    """The questions of a table, `spec.table` or `spec.shots`."""
    slots = [name for name in list_slots(spec.template) if name != ANSWER]
    table = read_table(table_spec, (*dict.fromkeys(slots), spec.label))
    before, after = spec.template.split("{answer}")
    labels, words = list(spec.words), list(spec.words.values())
    # The space before the words belongs to their tokens.
    space = " " if before.endswith(" ") else ""
    before = before.removesuffix(" ")
    options = tuple(space + word for word in words)
    questions = []
    for i in range(len(table)):
        label = str(value := table.columns[spec.label][i])
        if label not in labels or (is_missing(value) and not isinstance(value, str)):
            raise DataError(
                f"{table.where(i)}: {spec.label}={label!r}: must be one of "
                f"{', '.join(labels)}, the labels that have words"
            )
        row = {}
        for name in slots:
            if is_empty(value := table.columns[name][i]):
                raise DataError(f"{table.where(i)}: {name}={value!r}: must be a text")
            row[name] = str(value).strip()
        before_text, after_text = (fill(text, row) for text in (before, after))
        if not before_text.strip():
            raise DataError(f"{table.where(i)}: has no text before {{answer}}")
        contexts = (before_text,) * len(options)
        questions.append(Question(contexts, options, labels.index(label), after_text))
    return questions
