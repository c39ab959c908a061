"""Questions with options, as language models are asked them: each data set's prompt.

    context    Question: Which is a gas?\\nAnswer:
    options    ice | steam          scored behind the context and one space

The prompts are those of EleutherAI/lm-evaluation-harness (lm_eval/tasks/<name>/), but:

- An empty support of SciQ (113 of 1,000) leaves no empty line before the question.
- BoolQ's official file begins each passage with its article's title and " -- ", others
  leave both out. They are cut off where most passages of a file begin so: a dash in the
  first sentence of one passage is none ("Mary II (30 April 1662 -- 28 December 1694)").
- COPA's delimiter is the one space before each choice; the harness adds a second one.
- WinoGrande's suffix is scored as it stands in the sentence; the harness puts a space
  before each, also where it is "'s" or ",".
"""

from collections.abc import Callable
from typing import Any, NamedTuple

from jaxpt.errors import UserError
from jaxpt.text.labelled.tables import Table, TableSpec, read_table

TITLE = 100  # characters within which a title of BoolQ ends


class Question(NamedTuple):
    """One question.

    Attributes:
      contexts: what each option stands behind; the same text but in WinoGrande.
      options: what is scored, with the space before it.
      answer: which of them is right.
      after: what follows each option; "" where the option is the end.
    """

    contexts: tuple[str, ...]
    options: tuple[str, ...]
    answer: int
    after: str = ""

    @property
    def solved(self) -> str:
        """The question with its right answer, as a shot of a prompt."""
        return self.contexts[self.answer] + self.options[self.answer] + self.after

    @property
    def bare_options(self) -> tuple[str, ...]:
        """The options without the space before them, whose lengths count."""
        return tuple(option.removeprefix(" ") for option in self.options)

    def behind(self, before: str) -> "Question":
        """The question behind other text."""
        contexts = tuple(before + context for context in self.contexts)
        return self._replace(contexts=contexts)


def plain(context: str, options: list[str], answer: int, after: str = "") -> Question:
    """A question with one context for all of its options, and a space before each."""
    spaced = tuple(" " + option for option in options)
    return Question((context,) * len(options), spaced, answer, after)


def _find(value: Any, allowed: list, where: str, column: str) -> int:
    """The index of a label among the allowed ones, which may be written as text.

    Raises:
      UserError: it is none of them.
    """
    texts = [str(each).lower() for each in allowed]
    if str(value).lower() not in texts:
        listed = ", ".join(map(str, allowed))
        raise UserError(f"{where}: {column}={value!r}: must be one of {listed}")
    return texts.index(str(value).lower())


def _lettered(row: dict, where: str) -> tuple[list[str], int]:
    """The options of ARC and OpenBookQA, three to five; keys are A, B or 1, 2."""
    held = row["choices"]
    try:
        texts, keys = list(held["text"]), list(held["label"])
    except (TypeError, KeyError):
        raise UserError(f"{where}: choices: must have lists text and label") from None
    if len(texts) != len(keys) or len(texts) < 2:
        raise UserError(
            f"{where}: choices: must have as many labels as texts, 2 at least"
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
    """SciQ (Welbl et al. 2017), with its support; the right answer is the last."""
    support = row["support"].strip()
    lines = [support] if support else []
    lines += [f"Question: {row['question']}", "Answer:"]
    names = ("distractor1", "distractor2", "distractor3", "correct_answer")
    return plain("\n".join(lines), [row[name] for name in names], 3)


def ask_boolq(row: dict, where: str) -> Question:
    """BoolQ (Clark et al. 2019); its questions have no question mark."""
    answer = _find(row["answer"], [False, True], where, "answer")
    asked = f"{row['passage']}\nQuestion: {row['question']}?\nAnswer:"
    return plain(asked, ["no", "yes"], answer)


def ask_copa(row: dict, where: str) -> Question:
    """COPA (Roemmele et al. 2011): the premise goes on with a choice."""
    words = ("because", "therefore")
    word = words[_find(row["question"], ["cause", "effect"], where, "question")]
    premise = row["premise"].strip().removesuffix(".")
    options = [text[:1].lower() + text[1:] for text in (row["choice1"], row["choice2"])]
    answer = _find(row["label"], [0, 1], where, "label")
    return plain(f"{premise} {word}", options, answer)


def ask_winogrande(row: dict, where: str) -> Question:
    """WinoGrande (Sakaguchi et al. 2020): the text behind either name is scored."""
    before, blank, suffix = row["sentence"].partition("_")
    if not blank:
        raise UserError(f"{where}: sentence={row['sentence']!r}: must have a _")
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
    asked = (
        f"{row['premise']}\nQuestion: {row['hypothesis']}. True, False, or Neither?"
        f"\nAnswer:"
    )
    return plain(asked, ["True", "False", "Neither"], answer)


class Form(NamedTuple):
    """How a data set's rows become questions: the columns read, and of each row."""

    columns: tuple[str, ...]
    ask: Callable[[dict, str], Question]


FORMS = {
    "arc": Form(("question", "choices", "answerKey"), ask_arc),
    "boolq": Form(("passage", "question", "answer"), ask_boolq),
    "cb": Form(("premise", "hypothesis", "label"), ask_cb),
    "copa": Form(("premise", "question", "choice1", "choice2", "label"), ask_copa),
    "openbookqa": Form(("question_stem", "choices", "answerKey"), ask_openbookqa),
    "piqa": Form(("goal", "sol1", "sol2", "label"), ask_piqa),
    "sciq": Form(
        (
            "question",
            "support",
            "distractor1",
            "distractor2",
            "distractor3",
            "correct_answer",
        ),
        ask_sciq,
    ),
    "winogrande": Form(("sentence", "option1", "option2", "answer"), ask_winogrande),
}


def read_questions(name: str, path: str) -> list[Question]:
    """The questions of a data set's file.

    Args:
      name: of `FORMS`.

    Raises:
      UserError: the file is missing, or a row has not what its form has.
    """
    form = FORMS[name]
    table = read_table(TableSpec(path), form.columns)
    return [form.ask(row, where) for row, where in _rows(name, table)]


def _rows(name: str, table: Table):
    """Each row of a table, checked, and where it stands."""
    columns = dict(table.columns)
    if name == "boolq":
        columns["passage"] = cut_titles(columns["passage"])
    texts = [c for c in columns if c not in ("choices", "label", "answer", "answerKey")]
    for i in range(len(table)):
        row, where = {column: values[i] for column, values in columns.items()}, ""
        where = table.where(i)
        for column in texts:
            if not isinstance(row[column], str):
                raise UserError(f"{where}: {column}={row[column]!r}: must be a text")
        yield row, where


def cut_titles(passages: list[str]) -> list[str]:
    """Passages without the titles of their articles, if most of them begin with one.

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
