"""Gates before a verdict: signs that the runs or the text cannot support one.

    uniform ceiling   a run's answers are not better than the uniform distribution
    splits            the symbols of the validation text have other frequencies than
                      those of the training text
    tables            an objective does not beat the exact trigram, or the exact table
                      of both neighbours: it has not used its memory
    leak              a task's answers are right more often than the exact ones allow:
                      with the goal hidden, more often than one in `degree`
    best step         a run was best at its first evaluation, so it did not learn

The second and the last apply to any text, the first to any with a likelihood or cloze,
the third to a language with exact answers (`jaxpt.evaluation.regret`). A gate that
fails is a warning, one line in the report; verdicts are given nevertheless.
"""

import math
import statistics
from collections.abc import Iterator, Mapping, Sequence

import numpy as np
from jaxtyping import Int

from jaxpt.evaluation.regret import TABLES, UNIFORM
from jaxpt.evaluation.whole_answers import best_accuracy
from jaxpt.judge.examples import Examples
from jaxpt.languages import ACCURACY, REGRETS
from jaxpt.languages.parameters import read_language
from jaxpt.report.formats import is_number
from jaxpt.report.types import RunEntry, group_by_name
from jaxpt.runs.exact_answers import is_beyond_training, list_answers
from jaxpt.runs.task import Task
from jaxpt.text.dataset import Split
from jaxpt.training.regret import find_known, has_own_validation

# The largest divergence of token frequencies, in nats, beyond that of samples.
MAX_DIVERGENCE = 0.1
LEAK_ERRORS = 4  # standard errors of an accuracy above the best possible one
SMOOTHING = 0.1  # added to each count of the training text
LOSS = "valid_loss"


def list_gates(
    runs: Sequence[RunEntry],
    tasks: Mapping[str, Task],
    corpora_of: Mapping[str, dict[str, Split]],
) -> list[str]:
    """A line for each gate that fails.

    Args:
      tasks, corpora_of: by name; a name without a text has no gates of the text.
    """
    lines = [*_check_ceilings(runs, tasks), *_check_best_steps(runs)]
    for corpora in {id(x): x for x in corpora_of.values()}.values():
        names = [name for name, x in corpora_of.items() if x is corpora]
        lines += _check_splits(tasks[names[0]], corpora)
    anchors = {name: _find_anchors(tasks[name], x) for name, x in corpora_of.items()}
    lines += _check_tables(runs, tasks, anchors)
    for name, corpora in corpora_of.items():
        known = find_known(tasks[name], corpora)
        if known is not None and known.answers is not None:
            own_runs = [run for run in runs if run.name == name]
            lines += _check_leak(own_runs, *best_accuracy(known.answers))
    return [f"WARNING: {line}" for line in lines]


def _check_ceilings(
    runs: Sequence[RunEntry], tasks: Mapping[str, Task]
) -> Iterator[str]:
    for run in runs:
        # Regret has its own ceiling; these windows may begin within a document.
        if run.name not in tasks or not run.metrics.keys().isdisjoint(REGRETS.values()):
            continue
        size = len(tasks[run.name].vocab.ordinary_ids)
        ceilings = {"val_perplexity": size, "cloze_bits": math.log2(size)}
        for metric, most in ceilings.items():
            value = run.metrics.get(metric)
            if is_number(value) and value > most:
                yield _word_ceiling(run, metric, value, most)


def _word_ceiling(run: RunEntry, metric: str, value: float, most: float) -> str:
    return (
        f"{run.name} seed {run.seed}: {metric} {value:.4g} is above the "
        f"{most:.4g} of the uniform distribution; the model is broken, not only weak"
    )


def _find_anchors(
    task: Task, corpora: dict[str, Split]
) -> dict[str, dict[str, Examples]]:
    known = find_known(task, corpora)
    return {} if known is None else known.anchors


def _check_tables(
    runs: Sequence[RunEntry],
    tasks: Mapping[str, Task],
    anchors: Mapping[str, dict[str, dict[str, Examples]]],
) -> Iterator[str]:
    """The uniform ceiling of each run, then the tables of each name."""
    for name, group in group_by_name(runs).items():
        for question, of in anchors.get(name, {}).items():
            metric = REGRETS[question]
            values = {
                run.seed: float(value)
                for run in group
                if is_number(value := run.metrics.get(metric))
            }
            if not values:
                continue
            broken = [s for s, value in values.items() if value >= of[UNIFORM].mean]
            for run in group:
                if run.seed in broken:
                    yield _word_ceiling(run, metric, values[run.seed], of[UNIFORM].mean)
            table, mean = TABLES[question], statistics.fmean(values.values())
            if not broken and table in of and mean >= of[table].mean:
                best = of[table].mean
                yield (
                    f"{name}: {metric} {mean:.4f} is not below the {best:.4f} of the "
                    f"exact table ({table}); {_explain(tasks[name], metric)}"
                )


def _check_leak(runs: Sequence[RunEntry], most: float, num: int) -> Iterator[str]:
    """Runs that answer better than the prefix allows.

    Args:
      most: the accuracy that exact answers reach; 1 if the prefix determines them.
      num: the number of answers.
    """
    error = math.sqrt(most * (1 - most) / num)
    for run in runs:
        value = run.metrics.get(ACCURACY)
        if is_number(value) and value > most + LEAK_ERRORS * error:
            yield (
                f"{run.name} seed {run.seed}: {ACCURACY} {value:.3f} is above the "
                f"{most:.3f} that the prefix allows; the answers leak"
            )


def _explain(task: Task, metric: str) -> str:
    """What it means that a model does not beat a table of its neighbours."""
    length = read_language(task.plan.text.path).spec.document_length
    for answer in list_answers(task, 1):
        is_far = answer.is_far or is_beyond_training(task, answer, length)
        if answer.metric == metric and is_far:
            return "the question is far from its training"
    return "it has not used its memory"


def _check_best_steps(runs: Sequence[RunEntry]) -> Iterator[str]:
    for run in runs:
        points = [(p.step, p.values.get(LOSS)) for p in run.curve]
        losses = [(step, value) for step, value in points if is_number(value)]
        if len(losses) > 1:
            step, best = min(losses, key=lambda pair: pair[1])
            if step == losses[0][0]:
                yield (
                    f"{run.name} seed {run.seed}: {LOSS} is best at its first "
                    f"evaluation, step {step} ({best:.4g}; at the end "
                    f"{losses[-1][1]:.4g}); the run did not learn its own task"
                )


def _check_splits(task: Task, corpora: dict[str, Split]) -> Iterator[str]:
    if has_own_validation(task):
        return
    size = task.vocab.size
    counts = [corpora[split].count_tokens(size) for split in ("train", "valid")]
    excess = measure_divergence(*counts)
    if excess > MAX_DIVERGENCE:
        yield (
            f"data.split: token frequencies of the validation text diverge from those "
            f"of the training text by {excess:.3f} nats more than samples of one text "
            f"do; at most {MAX_DIVERGENCE:g} is expected of two parts of one text"
        )


def measure_divergence(
    train: Int[np.ndarray, "V"], valid: Int[np.ndarray, "V"]
) -> float:
    """KL(validation, training) of unigram frequencies, without that of sampling.

    Of two samples of n and m tokens of one distribution over K kinds, the expected
    divergence is about (K - 1) / 2 (1 / n + 1 / m).

    >>> measure_divergence(np.array([500, 500]), np.array([50, 50])) < 0
    True
    >>> round(measure_divergence(np.array([9000, 1000]), np.array([1000, 1000])), 2)
    0.51
    """
    smooth = train + SMOOTHING
    p, q = valid / max(valid.sum(), 1), smooth / smooth.sum()
    is_seen = p > 0
    divergence = float((p[is_seen] * np.log(p[is_seen] / q[is_seen])).sum())
    num_kinds = int(((train + valid) > 0).sum())
    sizes = 1 / max(train.sum(), 1) + 1 / max(valid.sum(), 1)
    return divergence - float((num_kinds - 1) / 2 * sizes)
