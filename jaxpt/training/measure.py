"""Every number a run is judged by, from parameters and held-out text."""

import dataclasses
import math

from jaxpt.errors import UserError
from jaxpt.evaluation.choices import Choices, find_choices, measure_choices
from jaxpt.evaluation.cloze import measure_cloze
from jaxpt.evaluation.likelihood import (
    add_up,
    evaluate,
    measure_likelihood,
    measure_nll_bound,
)
from jaxpt.evaluation.probe import has_labels, measure_probe
from jaxpt.evaluation.words import Questions, find_questions, measure_words
from jaxpt.nn.networks.abilities import FillsMasks, ScoresCandidates
from jaxpt.ops import metrics as sums
from jaxpt.ops.metrics import perplexity
from jaxpt.statistics.examples import Examples, means
from jaxpt.text.dataset import Split
from jaxpt.training.data import (
    held_rows,
    likelihood_bytes,
    likelihood_documents,
    likelihood_rows,
)
from jaxpt.training.program import Program
from jaxpt.training.task import Task

# Metrics that `measure_frozen` gives, of which an untrained model has its own.
FROM_FEATURES = ("probe_accuracy", "word_accuracy", "choice_bayes_accuracy")


def list_parts(task: Task) -> dict[str, str]:
    """By metric, the part of the network that it measures, if not the result."""
    part = task.model.FILLS_BY if isinstance(task.model, FillsMasks) else ""
    return dict.fromkeys(("cloze_accuracy", "cloze_bits"), part) if part else {}


def total_loss(program: Program, found: dict) -> float:
    """The loss that is trained on: each term's mean times its coefficient.

    Args:
      found: {name: (sum, weight)}; a term that was not there (weight 0) adds nothing,
        as it does in training. NaN where there was none.
    """
    coefficients = program.task.spec.coefficients
    means = sums.divide(sums.counted({name: found[name] for name in coefficients}))
    if not means:
        return math.nan
    return sum(coefficients[name] * mean for name, mean in means.items())


def measure_valid(program: Program, params, corpora: dict[str, Split]) -> dict:
    """The objective's own metrics on the validation split, as valid_*."""
    found = add_up(program.eval_step, params, *_rows(program, corpora["valid"]))
    means = sums.divide(sums.counted(found)) | {"loss": total_loss(program, found)}
    return {f"valid_{name}": value for name, value in means.items()}


def _rows(program: Program, split: Split):
    spec = program.task.plan.eval
    return held_rows(program.task, split, spec.num_rows), spec.batch_size


def measure_frozen(
    program: Program, params, corpora: dict[str, Split], probes: list | None = None
) -> dict[str, Examples]:
    """What every objective's model is asked, as far as the settings say so.

    Labels and words, read by a linear layer from frozen states, and choices.

    Args:
      probes: is given which states the labels were read from, if they were.

    Raises:
      UserError: a text that is probed is longer than what the model reads in training,
        or words are asked for of which the text has none.
    """
    spec = program.task.plan.eval
    found: dict[str, Examples] = {}
    if spec.probe_passages and has_labels(corpora):
        _check_length(program, "probe_length", spec.probe_length)
        of_labels, chosen = measure_probe(
            program.pooled_layers,
            params,
            corpora,
            spec.probe_length,
            spec.probe_windows,
            spec.probe_passages,
            spec.batch_size,
        )
        found |= of_labels
        if probes is not None:
            probes.append(chosen)
    if spec.num_words:
        gap = program.task.spec.text_form(program.task.vocab).shown_gap
        _check_length(program, "word_context", spec.word_context, len(gap), 2)
        questions = list_questions(program.task, corpora)
        found |= measure_words(program.read_gap, params, questions, spec.batch_size)
    model, scores = program.task.model, program.choice_scores
    if spec.num_choices and scores and isinstance(model, ScoresCandidates):
        _check_length(program, "word_context", spec.word_context, 1, 2)
        asked = list_choices(program.task, corpora)
        found |= measure_choices(
            scores,
            params,
            asked,
            spec.batch_size,
            model.scores_ratio,
        )
    return found


def _check_length(
    program: Program, name: str, length: int, more: int = 0, sides: int = 1
) -> None:
    most = (program.text_length - more) // sides
    if length > most:
        raise UserError(
            f"eval.{name}={length}: must be at most {most}, as "
            f"{program.task.plan.objective_name} reads {program.task.read_length} "
            f"tokens at once"
        )


def list_choices(task: Task, corpora: dict[str, Split]) -> Choices:
    """The gaps and their candidates, alike for all that read this text.

    Raises:
      UserError: the text has none.
    """
    spec, size = task.plan.eval, task.vocab.size
    found = find_choices(
        corpora["valid"],
        corpora["train"].count_tokens(size),
        task.vocab,
        spec.num_choices,
        spec.choice_questions,
        spec.word_context,
    )
    if found is None:
        raise UserError(
            f"eval.num_choices={spec.num_choices}: the validation text has fewer than "
            f"{2 * spec.word_context + 1} tokens, or the text too few kinds of them; "
            f"must be 0"
        )
    return found


def list_questions(
    task: Task, corpora: dict[str, Split]
) -> tuple[Questions, Questions]:
    """The words that are asked for, alike for all that read this text.

    Raises:
      UserError: the text has none.
    """
    spec = task.plan.eval
    vocab = dataclasses.replace(task.vocab, counts=())  # else no two are equal
    found = find_questions(
        corpora["train"],
        corpora["valid"],
        vocab,
        spec.num_words,
        spec.word_questions,
        spec.word_context,
    )
    if found is None:
        raise UserError(
            f"eval.num_words={spec.num_words}: the text or its tokenizer gives fewer "
            f"than two words that stand often enough in both splits; must be 0"
        )
    return found


def measure(
    program: Program,
    params,
    corpora: dict[str, Split],
    seed: int,
    known: dict | None = None,
    control: dict | None = None,
    examples: dict[str, Examples] | None = None,
    probes: dict[str, dict] | None = None,
) -> dict[str, float]:
    """All of a run's metrics; the keys depend on what the objective can do.

    Args:
      seed: the run's, which drew its first parameters; a program serves several.
      known: what was measured on these parameters already.
      control: what was measured on freshly initialised ones.
      examples: is filled with what each common measure found on each test example.
      probes: is filled with which states labels were read from, of "trained" and of
        "untrained" parameters.

    Returns:
      valid_* of the objective; val_perplexity and bits_per_byte (a likelihood), or
      bits_per_byte_bound, which it is at most (a bound of one);
      heldout_top1, heldout_top5 (filling the objective's own masks, on the held-out
      split or else on valid); cloze_accuracy, cloze_bits (filling the same ones for
      every objective);
      probe_accuracy, probe_majority (labelled text); word_accuracy (eval.num_words),
      choice_bayes_accuracy (eval.num_choices).
      Names that end in _random are the
      same measurement on freshly initialised parameters.
    """
    fresh = program.init_state(seed).params
    metrics = dict(known or measure_valid(program, params, corpora))
    likelihood = _find_likelihood(program.task, metrics)
    if likelihood is not None:
        metrics["val_perplexity"] = perplexity(likelihood)
    if program.fill_logits:
        metrics |= _measure_own_fills(program, params, fresh, corpora)
    found: dict[str, Examples] = {}
    for suffix, chosen, told in (
        ("", params, metrics),
        ("_random", fresh, control or {}),
    ):
        of_these = _measure_text(program, chosen, corpora["valid"])
        known_already = [name for name in FROM_FEATURES if name in told]
        metrics |= {f"{name}{suffix}": told[name] for name in known_already}
        if not known_already:
            read: list[dict] = []
            of_these |= measure_frozen(program, chosen, corpora, read)
            if probes is not None and read:
                probes["untrained" if suffix else "trained"] = read[0]
        if suffix:
            of_these.pop("probe_majority", None)  # the same as the first time
        found |= {f"{name}{suffix}": e for name, e in of_these.items()}
    if examples is not None:
        examples |= found
    return metrics | means(found)


def _find_likelihood(task: Task, metrics: dict[str, float]) -> float | None:
    """-log p of a token of valid text: the mean of the terms that are likelihoods.

    A term may have had no row.
    """
    terms = {
        name: term.coefficient
        for name, term in task.spec.terms.items()
        if term.is_likelihood and f"valid_{name}" in metrics
    }
    total = sum(terms.values())
    if not total:
        return None
    return sum(metrics[f"valid_{name}"] * (x / total) for name, x in terms.items())


def _measure_text(program: Program, params, valid: Split) -> dict[str, Examples]:
    """On rows of running text: the likelihood or its bound, and the cloze."""
    task, spec = program.task, program.task.plan.eval
    found: dict[str, Examples] = {}
    if not (program.token_nll or program.nll_bound or program.fill_scores):
        return found
    rows = likelihood_rows(task, valid, spec.num_rows)
    documents = likelihood_documents(task, valid, spec.num_rows)
    for function, measure_it in (
        (program.token_nll, measure_likelihood),
        (program.nll_bound, measure_nll_bound),
    ):
        if function:
            num_bytes = likelihood_bytes(task, valid, spec.num_rows)
            given = rows, num_bytes, spec.batch_size, task.vocab, documents
            found |= measure_it(function, params, *given)
    if program.fill_scores:
        found |= measure_cloze(
            program.fill_scores,
            params,
            rows,
            task.vocab.require("mask"),
            task.nonwords,
            task.model_spec.vocab_size,
            spec.batch_size,
            task.read_length,
            documents,
        )
    return found


def _measure_own_fills(
    program: Program, params, fresh, corpora: dict[str, Split]
) -> dict[str, float]:
    """How the objective's own masks are filled, also by fresh parameters."""
    found = {}
    rows = _rows(program, corpora.get("heldout", corpora["valid"]))
    for suffix, chosen in (("", params), ("_random", fresh)):
        of_these = evaluate(program.eval_step, chosen, *rows)
        for k in (1, 5):  # an objective need not count them
            if f"fill_top{k}" in of_these:
                found[f"heldout_top{k}{suffix}"] = of_these[f"fill_top{k}"]
    return found
