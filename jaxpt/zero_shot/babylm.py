"""Tasks of the BabyLM challenge other than minimal pairs.

    entity_tracking   Box 1 contains | the hat. | the bone. | ...   after a story
    comps             A robin | A bee       has a beak.             (COMPS)
    ewok              Ali is indoors.       | It is warm. | ...     (EWoK)
    wug               a wuggish thing: wuggishness | wuggishity     (rates of humans)

The first option is correct; its score is that of its tokens after the context, as in
babylm/evaluation-pipeline-2025 (evaluation_pipeline/sentence_zero_shot/). Accuracy is
the mean over paradigms: those of entity tracking are a file and a number of operations
on boxes; of EWoK a domain; of COMPS a file. With the same number of paradigms in each
file of entity tracking, this is also the pipeline's mean over files.

Departure: k options with the best score count 1 / k. The pipeline takes the first of
them, which is the correct one: `jaxpt babylm` reports both.

The score of `wug` is Spearman's correlation of log p(first) - log p(second) with the
share of humans who prefer the first form. The pipeline correlates the softmax of the
two, which has the same order.
"""

import functools
from collections.abc import Callable, Mapping, Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float, Int
from scipy import stats

from jaxpt.errors import DataError
from jaxpt.judge.bootstrap import Interval, bootstrap, percentile_interval
from jaxpt.zero_shot import pairs
from jaxpt.zero_shot.continuations import make_score
from jaxpt.zero_shot.multiple_choice import (
    count_ties,
    find_hits,
    score_options,
    sum_options,
)
from jaxpt.zero_shot.outcomes import (
    EvalContext,
    Figure,
    Outcome,
    ZeroShotTask,
    make_figures,
)
from jaxpt.zero_shot.questions import Question

# The names of COMPS' files in the pipeline's results; others are "base".
COMPS = {
    "comps_base": "base",
    "comps_wugs": "wugs",
    "comps_wugs_dist-before": "wugs_dist_before",
    "comps_wugs_dist-in-between": "wugs_dist_in_between",
}


class BabyLMQuestion(NamedTuple):
    """A question and its groups; "" for none."""

    question: Question
    paradigm: str
    phenomenon: str = ""
    field: str = ""


class Wug(NamedTuple):
    """Two forms of a word in a sentence, and the share of humans for the first."""

    first: str
    second: str
    ratio: float


def _text(row: Mapping, name: str, where: str) -> str:
    value = row.get(name)
    if not isinstance(value, str) or not value.strip():
        raise DataError(f"{where}: {name} must be a text, is {value!r:.40}")
    return value


def ask_entity(row: Mapping, stem: str, where: str) -> BabyLMQuestion:
    """Entity tracking (Kim and Schuster 2023): the content of a box after a story."""
    context, options = _text(row, "input_prefix", where), row.get("options")
    texts = options if isinstance(options, list) else []
    if len(texts) < 2 or not all(isinstance(x, str) and x.strip() for x in texts):
        raise DataError(f"{where}: options must be a list of texts, at least 2")
    number = row.get("numops")
    if type(number) is not int:
        raise DataError(f"{where}: numops must be a whole number, is {number!r:.40}")
    question = Question((context,) * len(texts), tuple(texts), 0)
    return BabyLMQuestion(question, f"{stem}_{number}_ops", stem)


def ask_comps(row: Mapping, stem: str, where: str) -> BabyLMQuestion:
    """COMPS (Misra et al. 2023): the concept that a property is likelier for."""
    names = "prefix_acceptable", "prefix_unacceptable"
    contexts = tuple(_text(row, name, where) for name in names)
    phrase = " " + _text(row, "property_phrase", where)
    return BabyLMQuestion(
        Question(contexts, (phrase, phrase), 0), COMPS.get(stem, stem)
    )


def ask_ewok(row: Mapping, stem: str, where: str) -> BabyLMQuestion:
    """EWoK (Ivanova et al. 2024): the target that a context makes likelier."""
    context = _text(row, "Context1", where)
    options = tuple(" " + _text(row, name, where) for name in ("Target1", "Target2"))
    paradigm = str(row.get("Domain") or stem)
    return BabyLMQuestion(Question((context, context), options, 0), paradigm)


def read_choices(ask: Callable, path: str) -> list[BabyLMQuestion]:
    """The questions of a file, or of all files of a folder or an archive."""
    return [ask(*each) for each in pairs.read_rows(path, "question")]


def read_wugs(path: str) -> list[Wug]:
    """The pairs of forms of a file, folder or archive."""
    return [_make_wug(*each) for each in pairs.read_rows(path, "pair of forms")]


def _make_wug(row: Mapping, stem: str, where: str) -> Wug:
    del stem
    texts = _text(row, "sentences", where).split("\t")
    if len(texts) != 2 or not all(text.strip() for text in texts):
        raise DataError(f"{where}: sentences must be two texts with a tab between them")
    try:
        ratio = float(row.get("ratio", "nan"))
    except (TypeError, ValueError):
        ratio = np.nan
    if not 0 <= ratio <= 1:
        raise DataError(f"{where}: ratio={row.get('ratio')!r:.40}: must be from 0 to 1")
    return Wug(texts[0], texts[1], ratio)


def evaluate_choices(
    eval_context: EvalContext, items: Sequence[BabyLMQuestion], rules: Sequence[str]
) -> dict[str, Outcome]:
    """The accuracy of the likeliest option by paradigm."""
    outcomes = {}
    for rule in rules:
        score = make_score(eval_context.scorer, eval_context.encode, rule)
        answers = score_options([item.question for item in items], score, False)
        evaluated = [i for i, each in enumerate(answers) if None not in each]
        if not evaluated:
            raise DataError(
                "no question has options that fit the model's window (model.max_len)"
            )
        sums = [sum_options(answers[i]) for i in evaluated]
        pairs.check_finite(np.array([x.sum() for x in sums]), "questions")
        chosen = [items[i] for i in evaluated]
        hits = find_hits(sums, [item.question.answer for item in chosen])
        figures, groups = judge_choices(chosen, hits)
        columns = {
            name: np.full(len(items), np.nan) for name in ("hit", "weight", "choice")
        }
        columns["hit"][evaluated] = hits
        columns["weight"][evaluated] = pairs.weigh(chosen)
        columns["choice"][evaluated] = [int(values.argmax()) for values in sums]
        notes = [f"Ties: {count_ties(sums)}; a tie of k options counts 1 / k."]
        if num_left_out := len(items) - len(evaluated):
            notes.append(
                f"{num_left_out} questions are left out: an option is too long."
            )
        if num_cut := sum(any(x.is_cut for x in answers[i]) for i in evaluated):
            notes.append(f"The context of {num_cut} questions is truncated.")
        chance = np.array([1 / len(item.question.options) for item in chosen])
        weights = pairs.weigh(chosen)
        trivial = {
            "accuracy_of_chance": float((chance * weights).sum() / weights.sum())
        }
        outcomes[rule] = Outcome(figures, trivial, groups, columns, notes)
    return outcomes


def judge_choices(
    items: Sequence[BabyLMQuestion | pairs.TextPair], hits: Float[np.ndarray, "N"]
) -> tuple[dict[str, Figure], dict]:
    """Accuracy by paradigm and by item with intervals, and by group."""
    judged = pairs.judge_hits(items, hits)
    accuracy, of_items = judged.figures.values()
    figures = {"accuracy": accuracy, "accuracy_of_questions": of_items}
    return make_figures(figures), judged.groups


def evaluate_wugs(
    eval_context: EvalContext, items: Sequence[Wug], rules: Sequence[str]
) -> dict[str, Outcome]:
    """Spearman's correlation of the preferences of a model and of humans."""
    forms = [pairs.TextPair(item.first, item.second, "") for item in items]
    sums, _ = pairs.score_pairs(eval_context.scorer, eval_context.encode, forms, rules)
    ratios = np.array([item.ratio for item in items])
    outcomes = {}
    for rule, scores in sums.items():
        pairs.check_finite(scores, "pairs")
        margins = scores[:, 0] - scores[:, 1]
        figures = {"spearman": (spearman(margins, ratios), spread(margins, ratios))}
        notes = []
        if np.ptp(margins) == 0 or np.ptp(ratios) == 0:
            notes.append("All values are equal; the correlation is then 0.")
        columns = {"margin": margins}
        outcomes[rule] = Outcome(make_figures(figures), {}, {}, columns, notes)
    return outcomes


def spearman(values: Float[np.ndarray, "N"], others: Float[np.ndarray, "N"]) -> float:
    """Spearman's rank correlation, with mean ranks for ties; 0 for constant values.

    >>> round(spearman(np.array([1.0, 2, 3, 4]), np.array([0.1, 0.3, 0.2, 0.4])), 6)
    0.8
    """
    return float(_correlate(stats.rankdata(values), stats.rankdata(others)))


def _correlate(
    ranks: Float[np.ndarray, "*S N"], others: Float[np.ndarray, "*S N"]
) -> Float[np.ndarray, "*S"]:
    x = ranks - ranks.mean(-1, keepdims=True)
    y = others - others.mean(-1, keepdims=True)
    norm = np.sqrt((x * x).sum(-1) * (y * y).sum(-1))
    return (x * y).sum(-1) / np.where(norm > 0, norm, 1)


def spread(values: Float[np.ndarray, "N"], others: Float[np.ndarray, "N"]) -> Interval:
    """The interval of `spearman`, by the bootstrap over items."""

    def correlate(drawn: Int[np.ndarray, "B N"]) -> Float[np.ndarray, "B"]:
        ranks = [stats.rankdata(each[drawn], axis=1) for each in (values, others)]
        return _correlate(*ranks)

    num = len(values)
    return percentile_interval(bootstrap(correlate, num), num)


def make_tasks() -> dict[str, ZeroShotTask]:
    """The tasks of this module by name."""
    asks = {"entity_tracking": ask_entity, "comps": ask_comps, "ewok": ask_ewok}
    tasks = {
        name: ZeroShotTask(functools.partial(read_choices, ask), evaluate_choices)
        for name, ask in asks.items()
    }
    return tasks | {"wug": ZeroShotTask(read_wugs, evaluate_wugs)}
