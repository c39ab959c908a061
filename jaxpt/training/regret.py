"""Regret of a run whose text is a language with exact answers (`evaluation.regret`)."""

import dataclasses
import functools
import logging

import numpy as np
from jaxtyping import Int, PyTree

from jaxpt.evaluation.regret import (
    ExactQuestions,
    exact_regret,
    find_questions,
    list_anchors,
)
from jaxpt.evaluation.whole_answers import score_by_confidence, score_left_to_right
from jaxpt.judge.examples import Examples
from jaxpt.languages import LEFT, is_language
from jaxpt.languages.language import Language
from jaxpt.languages.parameters import NamedLanguage, read_language
from jaxpt.runs.exact_answers import (
    BAYES,
    FAR_RULES,
    NetworkAnswer,
    explain_no_answer,
    fill_masks,
    list_answers,
    read_answers,
)
from jaxpt.runs.own_masks import measure_own_masks
from jaxpt.runs.program import Program
from jaxpt.runs.task import Task
from jaxpt.text.dataset import Split
from jaxpt.text.tokens.vocab import Vocab

_log = logging.getLogger(__name__)

OWN_MASKS = "regret_own_masks"
MASS = "special_mass"  # of a metric of regret, the mass on ids that are not symbols


@dataclasses.dataclass(frozen=True, eq=False)
class Known:
    """A language, and the questions about its validation text.

    Attributes:
      answers: all positions of a task's answers; None if the text is not of a task.
    """

    language: Language
    questions: ExactQuestions
    answers: ExactQuestions | None

    @functools.cached_property
    def anchors(self) -> dict[str, dict[str, Examples]]:
        """By question, the baselines without training."""
        return list_anchors(self.language, self.questions)


def find_known(task: Task, corpora: dict[str, Split]) -> Known | None:
    """The questions of regret, the same for all runs on this text.

    None if its text is not of a language, or the settings ask for none.
    """
    spec, path = task.plan.eval, task.plan.text.path
    if not is_language(path) or not spec.regret_documents:
        return None
    ids = find_ids(read_language(path), task.vocab)
    if ids is None:
        _warn_once(f"regret is not measured: the tokenizer lacks symbols of {path}")
        return None
    numbers = spec.regret_documents, spec.regret_positions
    return _find_known(path, corpora["valid"], tuple(ids.tolist()), *numbers)


@functools.lru_cache(maxsize=4)
def _find_known(
    path: str,
    valid: Split,
    ids: tuple[int, ...],
    num_documents: int,
    num_positions: int,
) -> Known | None:
    language = read_language(path).language.for_validation()
    rows, documents = list_documents(valid, np.array(ids), num_documents)
    numbers = np.array(ids), documents
    questions = find_questions(language, rows, *numbers, num_positions)
    if questions is None:
        return None
    is_task = not language.asked(rows).all()
    answers = find_questions(language, rows, *numbers, rows.shape[1])
    return Known(language, questions, answers if is_task else None)


def list_documents(
    valid: Split, ids: Int[np.ndarray, "V"], most: int
) -> tuple[Int[np.ndarray, "N T"], Int[np.ndarray, "N"]]:
    """Documents as symbols, evenly spaced over a split, and their numbers.

    Ids that are not symbols (an [EOS]) are left out. Documents of another length than
    most have are, too: a split may cut one.
    """
    symbols = np.full(int(ids.max()) + 1, -1)
    symbols[ids] = np.arange(len(ids))
    texts, before = [], 0
    for part in valid.parts:
        for i in range(len(part.labels)):
            tokens = part.read(int(part.doc_starts[i]), int(part.doc_starts[i + 1]))
            text = symbols[tokens[tokens < len(symbols)]]
            texts.append((before + i, text[text >= 0]))
        before += len(part.labels)
    if not texts:
        return np.zeros((0, 1), int), np.zeros(0, int)
    lengths, counts = np.unique([len(text) for _, text in texts], return_counts=True)
    length = lengths[counts.argmax()]
    texts = [each for each in texts if len(each[1]) == length]
    chosen = np.unique(np.linspace(0, len(texts) - 1, most).round().astype(int))
    rows = np.stack([texts[i][1] for i in chosen])
    return rows, np.array([texts[i][0] for i in chosen])


def measure_regret(
    program: Program, params: PyTree, corpora: dict[str, Split], is_quick: bool = False
) -> tuple[dict[str, Examples], dict[str, float]]:
    """Regret of each of a network's answers, and the mass on other ids than symbols.

    Args:
      is_quick: only of answers with at most one pass of the network for each position.

    Returns:
      regret_left_to_right and regret_two_sided of each document; with the suffix _bayes
      or _generator of answers that objectives are not compared by; regret_own_masks of
      a network that fills masks; answer_accuracy and second_token_accuracy of a task's
      whole answers.
    """
    task, known = program.task, find_known(program.task, corpora)
    examples: dict[str, Examples] = {}
    masses: dict[str, float] = {}
    if known is None:
        return examples, masses
    for answer in _list_possible(task, known.language.num_symbols, known.questions):
        questions = _choose_questions(task, known.questions, answer)
        if questions is None or (is_quick and answer.passes > 1):
            continue
        log_q, mass = read_answers(program, params, questions, answer)
        truth = questions.truth[answer.question]
        examples[answer.metric] = questions.average(exact_regret(truth, log_q))
        if mass is not None:
            name = f"{MASS}_{answer.metric}"
            masses[name] = questions.average(mass).mean
    examples |= _measure_own_masks(program, params, known)
    if known.answers is not None:
        examples |= _measure_answers(program, params, known.answers)
    return examples, masses


def _measure_own_masks(
    program: Program, params: PyTree, known: Known
) -> dict[str, Examples]:
    """The regret under the own masks, if the network has room for the documents."""
    questions, language = known.questions, known.language
    possible = _list_possible(program.task, language.num_symbols, questions)
    if not any(answer.reads == "gap_fill_scores" for answer in possible):
        return {}
    regret = measure_own_masks(program, params, language, questions)
    return {} if regret is None else {OWN_MASKS: regret}


def _measure_answers(
    program: Program, params: PyTree, questions: ExactQuestions
) -> dict[str, Examples]:
    """The accuracy of whole answers, by the network's way from left to right."""
    kinds = _list_possible(program.task, len(questions.ids), questions)
    ways = [kind for kind in kinds if kind.question == LEFT]
    if not ways:
        return {}
    if ways[0].reads in FAR_RULES:
        fill = functools.partial(fill_masks, program, params, questions)
        return score_by_confidence(questions, fill)
    log_q, _ = read_answers(program, params, questions, ways[0])
    return score_left_to_right(questions, log_q)


def _list_possible(
    task: Task, num_symbols: int, questions: ExactQuestions
) -> list[NetworkAnswer]:
    """The answers for which the network has enough positions; warns about others."""
    possible = []
    for answer in list_answers(task, num_symbols):
        reason = explain_no_answer(task, answer, questions.rows.shape[1])
        if reason:
            _warn_once(f"{answer.metric} is not measured: {reason}")
        else:
            possible.append(answer)
    return possible


def _choose_questions(
    task: Task, questions: ExactQuestions, answer: NetworkAnswer
) -> ExactQuestions | None:
    """The questions of an answer: by Bayes' rule, those of a few documents."""
    if not answer.metric.endswith(BAYES):
        return questions
    num = task.plan.eval.regret_bayes_documents
    return questions.pick(num) if num else None


@functools.cache
def _warn_once(line: str) -> None:
    _log.warning(line)


def has_own_validation(task: Task) -> bool:
    """Whether a language's validation text asks for what training leaves out."""
    path = task.plan.text.path
    if not is_language(path):
        return False
    language = read_language(path).language
    return language.for_validation() is not language


def find_ids(named: NamedLanguage, vocab: Vocab) -> Int[np.ndarray, "V"] | None:
    """The id of each symbol; None if the vocabulary does not have each of them."""
    places = {
        piece.decode("utf-8", "replace"): i for i, piece in enumerate(vocab.pieces)
    }
    ids = [places.get(character, -1) for character in named.characters]
    return np.array(ids, np.int32) if min(ids) >= 0 else None
