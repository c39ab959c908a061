"""Prompts of multiple-choice data sets: questions with options.

    context    Question: Which is a gas?\\nAnswer:
    options    ice | steam          scored after the context and one space

The prompts are those of EleutherAI/lm-evaluation-harness (lm_eval/tasks/<name>/),
except:

- An empty support of SciQ (113 of 1,000) leaves no empty line before the question.
- BoolQ's official file begins each passage with the title of its article and " -- ",
  other files do not. Titles are removed if most passages of a file have one, because a
  sentence may contain a dash ("Mary II (30 April 1662 -- 28 December 1694)").
- COPA's delimiter is the space before each choice; the harness adds a second one.
- WinoGrande's suffix is scored unchanged; the harness puts a space before it, also if
  it is "'s" or ",".
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from jaxpt.errors import DataError
from jaxpt.text.labelled.tables import TableSpec, read_table

TITLE = 100  # the maximum number of characters of a title of BoolQ
SCIQ_OPTIONS = ("distractor1", "distractor2", "distractor3", "correct_answer")


class Question(NamedTuple):
    """One question.

    Attributes:
      contexts: the text before each option; the same for all except in WinoGrande.
      options: the texts to score, with the space before them.
      answer: the index of the correct option.
      after: the text after each option, or "".
    """

    contexts: tuple[str, ...]
    options: tuple[str, ...]
    answer: int
    after: str = ""

    @property
    def solved(self) -> str:
        """The question with its correct answer, for few-shot prompts."""
        return self.contexts[self.answer] + self.options[self.answer] + self.after

    @property
    def bare_options(self) -> tuple[str, ...]:
        """The options without the space before them, for their lengths."""
        return tuple(option.removeprefix(" ") for option in self.options)

    def behind(self, before: str) -> "Question":
        """The question with other text before it."""
        contexts = tuple(before + context for context in self.contexts)
        return self._replace(contexts=contexts)


def plain(context: str, options: list[str], answer: int, after: str = "") -> Question:
    """A question with one context for all options, and a space before each."""
    spaced = tuple(" " + option for option in options)
    return Question((context,) * len(options), spaced, answer, after)


@dataclasses.dataclass(frozen=True)
class QuestionRow:
    """A row of a data set; `where` is its location, for errors."""

    values: dict[str, Any]
    where: str

    def __getitem__(self, column: str) -> Any:
        return self.values[column]

    def find(self, column: str, allowed: Sequence) -> int:
        """The index of a label, which may be a string, among the allowed ones."""
        value, texts = self[column], [str(each).lower() for each in allowed]
        if str(value).lower() not in texts:
            raise self.refuse(column, f"must be one of {', '.join(map(str, allowed))}")
        return texts.index(str(value).lower())

    def read_choices(self) -> tuple[list[str], int]:
        """The options of ARC and OpenBookQA, three to five; keys are A, B or 1, 2."""
        choices = self["choices"]
        try:
            texts, keys = list(choices["text"]), list(choices["label"])
        except (TypeError, KeyError):
            problem = "must have lists text and label"
            raise DataError(f"{self.where}: choices: {problem}") from None
        if len(texts) != len(keys) or len(texts) < 2:
            problem = "must have equally many texts and labels, at least 2"
            raise DataError(f"{self.where}: choices: {problem}")
        return texts, self.find("answerKey", keys)

    def refuse(self, column: str, problem: str) -> DataError:
        """The error of a value."""
        return DataError(f"{self.where}: {column}={self[column]!r}: {problem}")


def _prompt(question: str, *before: str) -> str:
    """A prompt that ends with "Answer:", below other lines."""
    return "\n".join([*before, f"Question: {question}", "Answer:"])


def ask_arc(row: QuestionRow) -> Question:
    """ARC, easy or challenge (Clark et al. 2018)."""
    return plain(_prompt(row["question"]), *row.read_choices())


def ask_openbookqa(row: QuestionRow) -> Question:
    """OpenBookQA (Mihaylov et al. 2018): the options end the stem."""
    return plain(row["question_stem"], *row.read_choices())


def ask_piqa(row: QuestionRow) -> Question:
    """PIQA (Bisk et al. 2020)."""
    options = [row["sol1"], row["sol2"]]
    return plain(_prompt(row["goal"]), options, row.find("label", (0, 1)))


def ask_sciq(row: QuestionRow) -> Question:
    """SciQ (Welbl et al. 2017), with its support; the correct answer is the last."""
    support = filter(None, [row["support"].strip()])
    options = [row[name] for name in SCIQ_OPTIONS]
    return plain(_prompt(row["question"], *support), options, 3)


def ask_boolq(row: QuestionRow) -> Question:
    """BoolQ (Clark et al. 2019); its questions have no question mark."""
    prompt = _prompt(f"{row['question']}?", row["passage"])
    return plain(prompt, ["no", "yes"], row.find("answer", (False, True)))


def ask_copa(row: QuestionRow) -> Question:
    """COPA (Roemmele et al. 2011): a choice continues the premise."""
    word = ("because", "therefore")[row.find("question", ("cause", "effect"))]
    premise = row["premise"].strip().removesuffix(".")
    options = [text[:1].lower() + text[1:] for text in (row["choice1"], row["choice2"])]
    return plain(f"{premise} {word}", options, row.find("label", (0, 1)))


def ask_winogrande(row: QuestionRow) -> Question:
    """WinoGrande (Sakaguchi et al. 2020): the text after either name is scored."""
    before, blank, suffix = row["sentence"].partition("_")
    if not blank:
        raise row.refuse("sentence", "must have a _")
    contexts = before + row["option1"], before + row["option2"]
    return Question(contexts, (suffix.rstrip(),) * 2, row.find("answer", (1, 2)))


CB = ("entailment", "contradiction", "neutral")


def ask_cb(row: QuestionRow) -> Question:
    """CommitmentBank (de Marneffe et al. 2019); labels are 0, 1, 2 or their names."""
    is_named = str(row["label"]).lower() in CB
    answer = row.find("label", CB if is_named else (0, 1, 2))
    question = f"{row['hypothesis']}. True, False, or Neither?"
    options = ["True", "False", "Neither"]
    return plain(_prompt(question, row["premise"]), options, answer)


class QuestionForm(NamedTuple):
    """The columns of a data set, and the conversion of a row to a question.

    Attributes:
      texts: the columns of texts, which the question is made of.
      labels: those with the options or the correct one.
    """

    ask: Callable[[QuestionRow], Question]
    texts: tuple[str, ...]
    labels: tuple[str, ...] = ()


LETTERED = ("choices", "answerKey")
FORMS = {
    "arc": QuestionForm(ask_arc, ("question",), LETTERED),
    "boolq": QuestionForm(ask_boolq, ("passage", "question"), ("answer",)),
    "cb": QuestionForm(ask_cb, ("premise", "hypothesis"), ("label",)),
    "copa": QuestionForm(
        ask_copa, ("premise", "question", "choice1", "choice2"), ("label",)
    ),
    "openbookqa": QuestionForm(ask_openbookqa, ("question_stem",), LETTERED),
    "piqa": QuestionForm(ask_piqa, ("goal", "sol1", "sol2"), ("label",)),
    "sciq": QuestionForm(ask_sciq, ("question", "support", *SCIQ_OPTIONS)),
    "winogrande": QuestionForm(
        ask_winogrande, ("sentence", "option1", "option2"), ("answer",)
    ),
}


def read_questions(name: str, path: str) -> list[Question]:
    """The questions of a data set's file.

    Args:
      name: of `FORMS`.

    Raises:
      DataError: a column is missing, or a value is not a text or a known label.
    """
    form = FORMS[name]
    table = read_table(TableSpec(path), [*form.texts, *form.labels])
    columns = dict(table.columns)
    if name == "boolq":
        columns["passage"] = cut_titles(columns["passage"])
    questions = []
    for i in range(len(table)):
        values = {column: cells[i] for column, cells in columns.items()}
        row = QuestionRow(values, table.where(i))
        for column in form.texts:
            if not isinstance(row[column], str):
                raise row.refuse(column, "must be a text")
        questions.append(form.ask(row))
    return questions


def cut_titles(passages: list[str]) -> list[str]:
    """Removes the titles from passages, if most of them begin with one.

    >>> cut_titles(["Ethanol -- It is a fuel.", "Jazz -- It is music."])
    ['It is a fuel.', 'It is music.']
    """
    parts = [passage.partition(" -- ") for passage in passages]
    is_titled = [bool(dash) and len(head) < TITLE for head, dash, _ in parts]
    if 2 * sum(is_titled) <= len(passages):
        return passages
    return [
        part[2] if titled else passage
        for passage, part, titled in zip(passages, parts, is_titled, strict=True)
    ]
