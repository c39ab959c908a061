"""How each kind of network answers the questions of regret, and its answers.

    network                      left to right                 two-sided
    causal                       at the token before           by Bayes' rule
    masked, diffusion            it and all after it masked    it alone masked
    causal and masked            at the token before           it alone masked
    prefix LM                    after the prefix              by Bayes' rule
    encoder and decoder          the decoder continues         q(v) q(end | v) at a gap
    fill-in-the-middle           at the token before           q(v) q(EOT | v)
    ELECTRA                      its generator, as masked      its discriminator and
                                                               generator, inverted
    two directions (ELMo)        its forward direction         by Bayes' rule, forward
    skip-gram                    no                            no

Only direct answers have the metrics by which objectives are compared. An answer by
Bayes' rule, q(v) ~ q(v | x_<i) prod q(x_j | x_<j, v), is a separate metric: it is what
a model knows if it is read once for every symbol. So is that of ELECTRA's generator.
"""

import dataclasses
import functools
from collections.abc import Iterator
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int, PyTree

from jaxpt.evaluation.likelihood import map_batches
from jaxpt.evaluation.regret import ExactQuestions, renormalise
from jaxpt.languages import BOTH, LEFT, REGRETS
from jaxpt.nn.flops import TRAIN_FACTOR
from jaxpt.nn.networks.abilities import (
    BoundsLikelihood,
    FillsGaps,
    FillsMasks,
    ResolvesRatio,
    ScoresCandidates,
)
from jaxpt.runs.program import Program
from jaxpt.runs.random_parts import list_predicting
from jaxpt.runs.task import Task
from jaxpt.zero_shot.next_token import (
    LEFT_RULES,
    ONE_PASS,
    count_places,
    find_left_rule,
    read_left_to_right,
)
from jaxpt.zero_shot.scoring import TextScorer, list_rules

BAYES, GENERATOR = "_bayes", "_generator"  # suffixes of metrics that are not compared
# Rules that mask most of a text, which only a model of all rates has seen.
FAR_RULES = ("pll_word_l2r", "mntp_word_l2r")


@dataclasses.dataclass(frozen=True)
class NetworkAnswer:
    """A way in which a network answers a question.

    Attributes:
      metric: of its regret.
      question: LEFT or BOTH.
      reads: a rule of `LEFT_RULES`, or a reader of `jaxpt.runs.readers`.
      passes: of the network for each position; 0 if one serves a whole document.
      how: in words.
      is_far: whether training showed the network nothing like it.
    """

    metric: str
    question: str
    reads: str
    passes: int
    how: str
    is_far: bool = False

    @property
    def is_direct(self) -> bool:
        """Whether objectives are compared by it."""
        return self.metric == REGRETS[self.question]


def list_answers(task: Task, num_symbols: int) -> list[NetworkAnswer]:
    """The ways in which a run's network answers, the direct ones first."""
    answers = [*_answer_left(task), *_answer_both(task, num_symbols)]
    return sorted(answers, key=lambda answer: not answer.is_direct)


def _answer_left(task: Task) -> Iterator[NetworkAnswer]:
    rule = find_left_rule(list_rules(task.model, task.text_form))
    if not rule or list_predicting(task):
        return
    how, passes = LEFT_RULES[rule], int(rule not in ONE_PASS)
    is_far = rule in FAR_RULES and not isinstance(task.model, BoundsLikelihood)
    yield NetworkAnswer(REGRETS[LEFT], LEFT, rule, passes, how, is_far)


def _answer_both(task: Task, num_symbols: int) -> Iterator[NetworkAnswer]:
    model: Any = task.model
    name, fills = REGRETS[BOTH], isinstance(model, FillsMasks)
    if list_predicting(task):
        return
    if fills and not model.FILLS_BY:
        yield NetworkAnswer(name, BOTH, "gap_fill_scores", 1, "with it alone masked")
        return
    if fills:
        how = f"by {model.FILLS_BY}, with it alone masked"
        yield NetworkAnswer(name + GENERATOR, BOTH, "gap_fill_scores", 1, how)
    shows_gaps = bool(task.text_form.gap) or not model.HAS_DECODER
    if not isinstance(task.model, ScoresCandidates) or not shows_gaps:
        return
    if model.GAP_BY_LIKELIHOOD:
        how = "by Bayes' rule, from the likelihood of the text with each symbol"
        yield NetworkAnswer(name + BAYES, BOTH, "gap_scores", num_symbols, how)
    elif not model.scores_ratio or isinstance(model, ResolvesRatio):
        how = "by the probability of each symbol and of the end of the gap after it"
        if fills:
            how = "by both networks, with each symbol in its place"
        yield NetworkAnswer(name, BOTH, "gap_scores", num_symbols, how)


def count_price(task: Task, answer: NetworkAnswer) -> float:
    """FLOPs of an answer for one position: those of its passes of a row."""
    forward = task.model.count_flops(task.spec.lengths, 1) / TRAIN_FACTOR
    return answer.passes * forward


def count_answer_places(task: Task, answer: NetworkAnswer, length: int) -> int:
    """Positions of the longest stack when it answers about documents of this length."""
    form, model = task.text_form, task.model
    if answer.reads in LEFT_RULES:
        return count_places(form, answer.reads, length)
    places = length + form.num_special()
    if answer.reads == "gap_scores" and model.GAP_BY_LIKELIHOOD:
        return places + (0 if form.before else len(form.left)) - 1
    if answer.reads == "gap_scores" and isinstance(model, FillsGaps):
        return places + model.GAP_MARKS
    return places


def explain_no_answer(task: Task, answer: NetworkAnswer, length: int) -> str:
    """Why a run does not answer about documents of this length; "" if it does."""
    most, places = task.text_form.max_len, count_answer_places(task, answer, length)
    if most and places > most:
        return (
            f"documents have {length} tokens, and {task.plan.objective_name} reads "
            f"{most - places + length} at once (model.max_len={most})"
        )
    return ""


def is_beyond_training(task: Task, answer: NetworkAnswer, length: int) -> bool:
    """Whether it reads rows of a table of positions that no row of training reads."""
    if task.model_spec.positions != "learned":
        return False
    spec, rows = task.spec, task.plan.rows
    if rows.rows == "packed" and rows.isolate_documents:  # each begins at position 0
        changes = {"row_length": min(spec.row_length, length + 1)}  # with [EOS]
        if hasattr(spec, "max_documents"):
            changes["max_documents"] = 1
        spec = dataclasses.replace(spec, **changes)
    most = max(spec.lengths.values())
    return count_answer_places(task, answer, length) > most


def read_answers(
    program: Program, params: PyTree, questions: ExactQuestions, answer: NetworkAnswer
) -> tuple[Float[np.ndarray, "N P V"], Float[np.ndarray, "N P"] | None]:
    """log q of the symbols at each position, and the mass of other ids, if it is known.

    Only answers that score all ids of the vocabulary give the mass.
    """
    if answer.reads in LEFT_RULES:
        scorer = _make_scorer(program, params)
        asked = questions.tokens, questions.positions, answer.reads
        return renormalise(read_left_to_right(scorer, *asked), questions.ids)
    is_whole = answer.passes == 1
    size = program.task.model_spec.vocab_size
    ids = np.arange(size) if is_whole else questions.ids
    places = questions.tokens, questions.positions
    scores = _score_positions(program, params, answer.reads, *places, ids)
    if is_whole:
        return renormalise(scores, questions.ids)
    return renormalise(scores, np.arange(len(ids)))[0], None


def fill_masks(
    program: Program,
    params: PyTree,
    questions: ExactQuestions,
    rows: Int[np.ndarray, "N T"],
    is_hidden: Bool[np.ndarray, "N T"],
) -> Float[np.ndarray, "N P V"]:
    """log q of the symbols at each position, with some positions masked.

    Args:
      rows: symbols.
      is_hidden: the masked positions; a position that is asked is masked, too.
    """
    task, ids = program.task, questions.ids
    tokens = np.where(is_hidden, task.vocab.require("mask"), ids[rows])
    scores = _score_positions(
        program, params, "gap_fill_scores", tokens, questions.positions, ids
    )
    return renormalise(scores, np.arange(len(ids)))[0]


def _score_positions(
    program: Program,
    params: PyTree,
    name: str,
    tokens: Int[np.ndarray, "N T"],
    positions: Int[np.ndarray, "N P"],
    candidates: Int[np.ndarray, "K"],
) -> Float[np.ndarray, "N P K"]:
    """The scores that a reader gives candidates at each position."""
    shape = positions.shape
    arrays = {
        "tokens": np.repeat(tokens.astype(np.int32), shape[1], axis=0),
        "positions": positions.reshape(-1).astype(np.int32),
        "candidates": np.broadcast_to(
            candidates.astype(np.int32), (positions.size, len(candidates))
        ),
    }
    read = functools.partial(program.readers[name], params)
    batch_size = program.task.plan.eval.batch_size
    scores = np.concatenate(list(map_batches(read, arrays, batch_size)))
    return scores.reshape(*shape, len(candidates))


def _make_scorer(program: Program, params: PyTree) -> TextScorer:
    """A scorer whose compiled functions are readers, which evaluations share."""

    def find_reader(function: Any) -> Any:
        return program.readers[f"log_probs_{function.keywords['view']}"]

    task = program.task
    name, form = task.plan.objective_name, task.text_form
    return TextScorer(task.model, params, form, name, find_reader)
