"""Questions as EleutherAI's lm-evaluation-harness asks them without few-shot prompts.

    sentence_pairs      | the cats sleep.          | the cats sleeps.     no context
    prompted_choices    The story so far ...       | He left. | He ate.   a prompt

They are the zero-shot tasks of the multilingual track of BabyLM 2026 (babylm-org/
babylm-eval, multilingual/tasks/): MultiBLiMP, BLiMP, BLiMP-NL, ZhoBLiMP and XCOMPS are
pairs of sentences; HellaSwag, WinoGrande and StoryCloze in MuBench's translations have
prompts. The harness puts its delimiter, one space, before every choice, also before a
sentence without context and in Chinese; so do these tasks. Its accuracy, `acc`, is the
mean over all questions and not over paradigms.

Departure: k options with the best score count 1 / k. The harness takes the first.
"""

import functools
from collections.abc import Mapping, Sequence

import numpy as np

from jaxpt.errors import DataError
from jaxpt.zero_shot.babylm import BabyLMQuestion, evaluate_choices, read_choices
from jaxpt.zero_shot.outcomes import EvalContext, Outcome, ZeroShotTask
from jaxpt.zero_shot.questions import plain

# The fields of the acceptable and the unacceptable sentence, by data set.
SENTENCES = (
    ("sen", "wrong_sen"),
    ("sentence_good", "sentence_bad"),
    ("acceptable_sent", "unacceptable_sent"),
)


def ask_sentences(row: Mapping, stem: str, where: str) -> BabyLMQuestion:
    """A pair of sentences; a paradigm is named by `UID`, else by its file.

    >>> row = {"sen": "Zij slaapt.", "wrong_sen": "Zij slapen.", "phenomenon": "SV-#"}
    >>> ask_sentences(row, "nld", "").question.options
    (' Zij slaapt.', ' Zij slapen.')
    """
    names = next((names for names in SENTENCES if names[0] in row), None)
    if names is None:
        listed = " or ".join(", ".join(each) for each in SENTENCES)
        raise DataError(
            f"{where}: must have the fields {listed}, has {', '.join(map(str, row))}"
        )
    texts = [row.get(name) for name in names]
    for name, text in zip(names, texts, strict=True):
        if not isinstance(text, str) or not text.strip():
            raise DataError(f"{where}: {name} must be a text, is {text!r:.40}")
    paradigm, term = row.get("UID") or stem, row.get("phenomenon") or ""
    return BabyLMQuestion(plain("", list(map(str, texts)), 0), str(paradigm), str(term))


def ask_prompt(row: Mapping, stem: str, where: str) -> BabyLMQuestion:
    """A prompt with choices; the label is an index from 0, or one of the choices.

    >>> row = {"prompt": "Ann ate.", "choices": ["She left.", "It rained."], "label": 1}
    >>> ask_prompt(row, "story", "").question.answer
    1
    """
    prompt, choices = row.get("prompt"), row.get("choices")
    if not isinstance(prompt, str) or not prompt.strip():
        raise DataError(f"{where}: prompt must be a text, is {prompt!r:.40}")
    texts = list(choices) if isinstance(choices, list | tuple | np.ndarray) else []
    if len(texts) < 2 or not all(isinstance(x, str) and x.strip() for x in texts):
        raise DataError(f"{where}: choices must be a list of texts, at least 2")
    label = row.get("label")
    known = [*map(str, range(len(texts))), *texts]
    if isinstance(label, bool) or str(label) not in known:
        raise DataError(
            f"{where}: label must be one of the choices or an index below "
            f"{len(texts)}, is {label!r:.40}"
        )
    answer = known.index(str(label)) % len(texts)
    return BabyLMQuestion(plain(prompt, texts, answer), stem)


def make_tasks() -> dict[str, ZeroShotTask]:
    """The tasks of this module by name."""
    asks = {"sentence_pairs": ask_sentences, "prompted_choices": ask_prompt}
    return {
        name: ZeroShotTask(functools.partial(read_choices, ask), evaluate_by_item)
        for name, ask in asks.items()
    }


def evaluate_by_item(
    eval_context: EvalContext, items: Sequence[BabyLMQuestion], rules: Sequence[str]
) -> dict[str, Outcome]:
    """As `evaluate_choices`, with the mean over all questions first, as `acc`."""
    outcomes = {}
    for rule, outcome in evaluate_choices(eval_context, items, rules).items():
        figures = dict(outcome.figures)
        by_paradigm = figures.pop("accuracy")
        figures = {"accuracy": figures.pop("accuracy_of_questions")} | figures
        if len(outcome.groups["paradigm"]) > 1:
            figures["accuracy_of_paradigms"] = by_paradigm
        is_in = np.isfinite(outcome.columns["hit"])
        columns = outcome.columns | {"weight": np.where(is_in, 1.0, np.nan)}
        sizes = np.array([len(item.question.options) for item in items])
        trivial = {"accuracy_of_chance": float((1 / sizes[is_in]).mean())}
        outcomes[rule] = outcome._replace(
            figures=figures, trivial=trivial, columns=columns
        )
    return outcomes
