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
it
  is "'s" or ",".
"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from jaxpt.errors import DataError
from jaxpt.text.labelled.tables import Table, TableSpec, read_table

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


def _find(value: Any, allowed: list, where: str, column: str) -> int:
    """The index of a label, which may be a string, among the allowed ones."""
    texts = [str(each).lower() for each in allowed]
    if str(value).lower() not in texts:
        listed = ", ".join(map(str, allowed))
        raise DataError(f"{where}: {column}={value!r}: must be one of {listed}")
    return texts.index(str(value).lower())


def _lettered(row: dict, where: str) -> tuple[list[str], int]:
    """The options of ARC and OpenBookQA, three to five; keys are A, B or 1, 2."""
    choices = row["choices"]
    try:
        texts, keys = list(choices["text"]), list(choices["label"])
    except (TypeError, KeyError):
        raise DataError(f"{where}: choices: must have lists text and label") from None
    if len(texts) != len(keys) or len(texts) < 2:
        raise DataError(
            f"{where}: choices: must have equally many texts and labels, at least 2"
        )
    return texts, _find(row["answerKey"], keys, where, "answerKey")


def ask_arc(row: dict, where: str) -> Question:
    """ARC, easy or challenge (Clark et al. 2018)."""
    options, answer = _lettered(row, where)
    return plain(f"Question: {row['question']}\nAnswer:", options, answer)


def ask_openbookqa(row: dict, where: str) -> Question:
    """OpenBookQA (Mihaylov et al. 2018): the options end the stem."""
    options, answer = _lettered(row, where)
    return plain(row["question_stem"], options, answer)


def ask_piqa(row: dict, where: str) -> Question:
    """PIQA (Bisk et al. 2020)."""
    answer = _find(row["label"], [0, 1], where, "label")
    goal = f"Question: {row['goal']}\nAnswer:"
    return plain(goal, [row["sol1"], row["sol2"]], answer)


def ask_sciq(row: dict, where: str) -> Question:
    """SciQ (Welbl et al. 2017), with its support; the correct answer is the last."""
    support = row["support"].strip()
    lines = [support] if support else []
    lines += [f"Question: {row['question']}", "Answer:"]
    return plain("\n".join(lines), [row[name] for name in SCIQ_OPTIONS], 3)


def ask_boolq(row: dict, where: str) -> Question:
    """BoolQ (Clark et al. 2019); its questions have no question mark."""
    answer = _find(row["answer"], [False, True], where, "answer")
    question = f"{row['passage']}\nQuestion: {row['question']}?\nAnswer:"
    return plain(question, ["no", "yes"], answer)


def ask_copa(row: dict, where: str) -> Question:
    """COPA (Roemmele et al. 2011): a choice continues the premise."""
    words = ("because", "therefore")
    word = words[_find(row["question"], ["cause", "effect"], where, "question")]
    premise = row["premise"].strip().removesuffix(".")
    options = [text[:1].lower() + text[1:] for text in (row["choice1"], row["choice2"])]
    answer = _find(row["label"], [0, 1], where, "label")
    return plain(f"{premise} {word}", options, answer)


def ask_winogrande(row: dict, where: str) -> Question:
    """WinoGrande (Sakaguchi et al. 2020): the text after either name is scored."""
    before, blank, suffix = row["sentence"].partition("_")
    if not blank:
        raise DataError(f"{where}: sentence={row['sentence']!r}: must have a _")
    contexts = tuple(before + row[name] for name in ("option1", "option2"))
    suffix = suffix.rstrip()
    answer = _find(row["answer"], [1, 2], where, "answer")
    return Question(contexts, (suffix, suffix), answer)


CB = ("entailment", "contradiction", "neutral")


def ask_cb(row: dict, where: str) -> Question:
    """CommitmentBank (de Marneffe et al. 2019); labels are 0, 1, 2 or their names."""
    label = row["label"]
    names: list = list(CB) if str(label).lower() in CB else [0, 1, 2]
    answer = _find(label, names, where, "label")
    question = (
        f"{row['premise']}\nQuestion: {row['hypothesis']}. True, False, or Neither?"
        f"\nAnswer:"
    )
    return plain(question, ["True", "False", "Neither"], answer)


class QuestionForm(NamedTuple):
    """The columns of a data set, and the conversion of a row to a question."""

    columns: tuple[str, ...]
    ask: Callable[[dict, str], Question]


FORMS = {
    "arc": QuestionForm(("question", "choices", "answerKey"), ask_arc),
    "boolq": QuestionForm(("passage", "question", "answer"), ask_boolq),
    "cb": QuestionForm(("premise", "hypothesis", "label"), ask_cb),
    "copa": QuestionForm(
        ("premise", "question", "choice1", "choice2", "label"), ask_copa
    ),
    "openbookqa": QuestionForm(
        ("question_stem", "choices", "answerKey"), ask_openbookqa
    ),
    "piqa": QuestionForm(("goal", "sol1", "sol2", "label"), ask_piqa),
    "sciq": QuestionForm(("question", "support", *SCIQ_OPTIONS), ask_sciq),
    "winogrande": QuestionForm(
        ("sentence", "option1", "option2", "answer"), ask_winogrande
    ),
}


def read_questions(name: str, path: str) -> list[Question]:
    """The questions of a data set's file.

    Args:
      name: of `FORMS`.
    """
    form = FORMS[name]
    table = read_table(TableSpec(path), form.columns)
    return [form.ask(row, where) for row, where in _rows(name, table)]


def _rows(name: str, table: Table) -> Iterator[tuple[dict, str]]:
    """Each checked row of a table, and its location for errors."""
    columns = dict(table.columns)
    if name == "boolq":
        columns["passage"] = cut_titles(columns["passage"])
    texts = [c for c in columns if c not in ("choices", "label", "answer", "answerKey")]
    for i in range(len(table)):
        row, where = (
            {name: values[i] for name, values in columns.items()},
            table.where(i),
        )
        for column in texts:
            if not isinstance(row[column], str):
                raise DataError(f"{where}: {column}={row[column]!r}: must be a text")
        yield row, where


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
