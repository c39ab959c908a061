"""All metrics of a run, from its parameters and held-out text."""

import dataclasses
import functools
import logging
import math
from typing import TYPE_CHECKING, Any, NamedTuple

from jaxpt.by_name import ByName, load_place
from jaxpt.errors import ConfigError
from jaxpt.evaluation.cloze import measure_cloze
from jaxpt.evaluation.likelihood import (
    add_up,
    evaluate,
    measure_likelihood,
    measure_nll_bound,
    unknown_share,
)
from jaxpt.judge.examples import Examples, means
from jaxpt.languages import ACCURACY, LEFT, REGRETS, SECOND, is_language
from jaxpt.nn.networks.abilities import (
    FillsGaps,
    FillsMasks,
    ResolvesRatio,
    ScoresCandidates,
)
from jaxpt.ops import metrics as sums
from jaxpt.ops.metrics import perplexity
from jaxpt.runs.data import (
    held_rows,
    likelihood_bytes,
    likelihood_documents,
    likelihood_rows,
)
from jaxpt.runs.program import Program
from jaxpt.runs.task import Task
from jaxpt.text.dataset import Split, has_labels
from jaxpt.text.stores.prepare import UNKNOWN_SHARE

if TYPE_CHECKING:
    from jaxpt.evaluation.bigram_pairs import Pairs
    from jaxpt.evaluation.choices import Choices
    from jaxpt.evaluation.words import Questions

_log = logging.getLogger(__name__)

# The modules of the metrics of frozen parameters; each is imported when it is measured.
FROZEN: ByName[Any] = ByName(
    {
        "probe": "jaxpt.evaluation.probe",
        "words": "jaxpt.evaluation.words",
        "pairs": "jaxpt.evaluation.bigram_pairs",
        "choices": "jaxpt.evaluation.choices",
    }
)

# Metrics of `measure_frozen`, which are also measured of an untrained model.
FROM_FEATURES = (
    "pair_accuracy",
    "pair_nats",
    "probe_accuracy",
    "word_accuracy",
    "choice_bayes_accuracy",
)
# Metrics of `measure_text`, of held-out text.
FROM_TEXT = ("bits_per_byte", "cloze_accuracy", "cloze_bits")
# Metrics of masked tokens, if the objective returns both.
MASKED = ("masked_accuracy", "masked_top5_accuracy")


class Measured(NamedTuple):
    """Metrics of one set of parameters.

    Attributes:
      metrics: by name.
      examples: of metrics that are means over test examples, the value of each example.
      probes: which states labels were read from, of the "trained" and the "untrained"
        parameters.
    """

    metrics: dict[str, float]
    examples: dict[str, Examples]
    probes: dict[str, dict]


NO_RESULTS = Measured({}, {}, {})


def list_parts(task: Task) -> dict[str, str]:
    """By metric, the part of the network that it measures, if it is not the whole."""
    part = task.model.FILLS_BY if isinstance(task.model, FillsMasks) else ""
    names = ["cloze_accuracy", "cloze_bits"]
    if is_language(task.plan.text.path):
        names += [REGRETS[LEFT], "regret_own_masks", ACCURACY, SECOND]
    return dict.fromkeys(names, part) if part else {}


def total_loss(program: Program, metrics: dict, progress: float | None = None) -> float:
    """The loss that is trained on: each term's mean times its coefficient.

    Args:
      metrics: {name: (sum, weight)}; a term of weight 0 adds nothing, as in training.
        NaN if all terms have weight 0.
      progress: the fraction of the training that was done; None in evaluation.
    """
    spec = program.task.spec
    coefficients = spec.coefficients
    if progress is not None:
        coefficients = spec.coefficients_at(progress)
    means = sums.divide(sums.counted({name: metrics[name] for name in coefficients}))
    if not means:
        return math.nan
    return sum(coefficients[name] * mean for name, mean in means.items())


def measure_valid(program: Program, params, corpora: dict[str, Split]) -> dict:
    """The objective's own metrics on the validation split, as valid_*."""
    totals = add_up(
        program.readers["eval_step"], params, *_rows(program, corpora["valid"])
    )
    means = sums.divide(sums.counted(totals)) | {"loss": total_loss(program, totals)}
    return {f"valid_{name}": value for name, value in means.items()}


def _rows(program: Program, split: Split):
    spec = program.task.plan.eval
    return held_rows(program.task, split, spec.num_rows), spec.batch_size


def measure_frozen(program: Program, params, corpora: dict[str, Split]) -> Measured:
    """The shared metrics of frozen parameters that the settings ask for.

    Labels and words, predicted by a linear layer from frozen states, bigram-matched
    pairs, and multiple choice. The probe, if there is one, is that of "trained"
    parameters.
    """
    spec = program.task.plan.eval
    examples: dict[str, Examples] = {}
    probes: dict[str, dict] = {}
    if spec.probe_passages and has_labels(corpora):
        _check_length(program, "probe_length", spec.probe_length)
        of_labels, probes["trained"] = FROZEN["probe"].measure_probe(
            program.readers["pooled_layers"],
            params,
            corpora,
            spec.probe_length,
            spec.probe_windows,
            spec.probe_passages,
            spec.batch_size,
        )
        examples |= of_labels
    if spec.num_words:
        gap = program.task.text_form.shown_gap
        _check_length(program, "word_context", spec.word_context, len(gap), 2)
        questions = list_questions(program.task, corpora)
        examples |= FROZEN["words"].measure_words(
            program.readers["read_gap"], params, questions, spec.batch_size
        )
    examples |= _measure_gaps(program, params, corpora)
    return Measured(means(examples), examples, probes)


def _measure_gaps(
    program: Program, params, corpora: dict[str, Split]
) -> dict[str, Examples]:
    """The questions that a network answers by scoring candidates, if it can."""
    task, spec = program.task, program.task.plan.eval
    model, scores = task.model, program.readers.get("choice_scores")
    examples: dict[str, Examples] = {}
    if not scores or not isinstance(model, ScoresCandidates):
        return examples
    if not explain_no_pairs(program, corpora):
        pairs = list_pairs(task, corpora)
        assert pairs is not None  # else there is a reason
        is_ratio = model.scores_ratio and not isinstance(model, ResolvesRatio)
        args = params, pairs, spec.batch_size, is_ratio
        examples |= FROZEN["pairs"].measure_pairs(program.readers["pair_scores"], *args)
    if spec.num_choices:
        _check_length(program, "word_context", spec.word_context, _gap_size(program), 2)
        choices = list_choices(task, corpora)
        how = spec.batch_size, model.scores_ratio
        examples |= FROZEN["choices"].measure_choices(scores, params, choices, *how)
    return examples


def _gap_size(program: Program) -> int:
    """The number of ids that a network reads for a gap of one token."""
    model = program.task.model
    return 1 + (model.GAP_MARKS if isinstance(model, FillsGaps) else 0)


def explain_no_pairs(program: Program, corpora: dict[str, Split]) -> str:
    """Why a run does not answer the bigram-matched cloze; "" if it does."""
    task, spec = program.task, program.task.plan.eval
    name, context = task.plan.objective_name, spec.word_context
    if not spec.pair_questions:
        return "eval.pair_questions=0"
    if "choice_scores" not in program.readers:
        return f"{name} cannot choose among tokens for a gap"
    most = (program.text_length - _gap_size(program)) // 2
    if context > most:
        return (
            f"{name} reads {task.read_length} tokens at once, so eval.word_context="
            f"{context} must be at most {most}"
        )
    if list_pairs(task, corpora) is None:
        return (
            f"the held-out text has fewer than {2 * context + 1} tokens, or the "
            f"training text has fewer than two kinds of tokens"
        )
    return ""


def list_pairs(task: Task, corpora: dict[str, Split]) -> "Pairs | None":
    """The bigram-matched questions: the same for all runs on this text.

    None if there are none, as the settings say so, or as the text is too short or has
    too few kinds of tokens.
    """
    spec = task.plan.eval
    if not spec.pair_questions:
        return None
    # Without counts, in which the vocabularies of objectives differ.
    vocab = dataclasses.replace(task.vocab, counts=())
    numbers = spec.pair_questions, spec.word_context
    pairs: Pairs | None = FROZEN["pairs"].recall_pairs(
        corpora["train"], corpora["valid"], vocab, *numbers
    )
    return pairs


def _check_length(
    program: Program, name: str, length: int, more: int = 0, sides: int = 1
) -> None:
    most = (program.text_length - more) // sides
    if length > most:
        raise ConfigError(
            f"eval.{name}={length}: must be at most {most}, as "
            f"{program.task.plan.objective_name} reads {program.task.read_length} "
            f"tokens at once"
        )


def list_choices(task: Task, corpora: dict[str, Split]) -> "Choices":
    """The multiple-choice questions: the same for all runs on this text."""
    spec, size = task.plan.eval, task.vocab.size
    choices: Choices | None = FROZEN["choices"].find_choices(
        corpora["valid"],
        corpora["train"].count_tokens(size),
        task.vocab,
        spec.num_choices,
        spec.choice_questions,
        spec.word_context,
    )
    if choices is None:
        raise ConfigError(
            f"eval.num_choices={spec.num_choices}: the validation text has fewer than "
            f"{2 * spec.word_context + 1} tokens, or the text too few kinds of them; "
            f"must be 0"
        )
    return choices


def list_questions(
    task: Task, corpora: dict[str, Split]
) -> "tuple[Questions, Questions]":
    """The masked-word questions: the same for all runs on this text."""
    spec = task.plan.eval
    # Without counts, in which the vocabularies of objectives differ.
    vocab = dataclasses.replace(task.vocab, counts=())
    questions: tuple[Questions, Questions] | None = FROZEN["words"].find_questions(
        corpora["train"],
        corpora["valid"],
        vocab,
        spec.num_words,
        spec.word_questions,
        spec.word_context,
    )
    if questions is None:
        raise ConfigError(
            f"eval.num_words={spec.num_words}: the text or its tokenizer gives fewer "
            f"than two words that occur often enough in both splits; must be 0"
        )
    return questions


def measure(
    program: Program,
    params,
    corpora: dict[str, Split],
    seed: int,
    known: Measured = NO_RESULTS,
    control: Measured = NO_RESULTS,
) -> Measured:
    """All of a run's metrics; the names depend on the objective.

    Args:
      seed: of the run, from which its initial parameters are drawn.
      known: what was measured of these parameters already.
      control: what was measured of random initialization already.

    Returns:
      valid_*, the objective's own; val_perplexity, bits_per_byte and, if above 0, the
      share unknown_bytes (a likelihood), or
      bits_per_byte_bound (an upper bound of it); masked_accuracy, masked_top5_accuracy
      (filling the objective's own masks, on the held-out split; without one on valid,
      and then not as valid_*, too); cloze_accuracy, cloze_bits (filling masks that are
      the same for every objective); probe_accuracy, probe_majority (labelled text);
      pair_accuracy, pair_nats (eval.pair_questions); word_accuracy (eval.num_words);
      choice_bayes_accuracy (eval.num_choices); regret_left_to_right, regret_two_sided,
      of other answers regret_*_bayes and regret_*_generator, and special_mass_* (text
      of a language). Names that end in _random are of random initialization.
    """
    fresh = program.init_params(seed)
    metrics = dict(known.metrics or measure_valid(program, params, corpora))
    likelihood = _find_likelihood(program.task, metrics)
    if likelihood is not None:
        metrics["val_perplexity"] = perplexity(likelihood)
    if {"token_nll", "nll_bound"} & {*program.readers}:
        metrics |= _measure_unknown(program, corpora["valid"])
    if "fill_logits" in program.readers:
        own_fills = _measure_own_fills(program, params, fresh, corpora)
        if own_fills and "heldout" not in corpora:  # the same values
            for name in MASKED:
                metrics.pop(f"valid_{name}", None)
        metrics |= own_fills
    earlier: dict[str, Examples] = {}
    new: dict[str, Examples] = {}
    probes: dict[str, dict] = {}
    for name, suffix, chosen, before in (
        ("trained", "", params, known),
        ("untrained", "_random", fresh, control),
    ):
        text_examples = measure_text(program, chosen, corpora["valid"])
        is_quick = name == "untrained"
        of_language, masses = measure_exact(program, chosen, corpora, is_quick)
        text_examples |= of_language
        metrics |= {f"{k}{suffix}": value for k, value in masses.items()}
        is_measured = [k for k in FROM_FEATURES if k in before.metrics]
        if is_measured:
            metrics |= {f"{k}{suffix}": before.metrics[k] for k in is_measured}
            earlier |= {f"{k}{suffix}": e for k, e in before.examples.items()}
        else:
            before = measure_frozen(program, chosen, corpora)
            text_examples |= before.examples
        new |= {f"{k}{suffix}": e for k, e in text_examples.items()}
        if before.probes:
            (probes[name],) = before.probes.values()
    examples = earlier | new
    examples.pop("probe_majority_random", None)  # the same as of trained parameters
    new.pop("probe_majority_random", None)
    return Measured(metrics | means(new), examples, probes)


def measure_exact(
    program: Program, params, corpora: dict[str, Split], is_quick: bool = False
) -> tuple[dict[str, Examples], dict[str, float]]:
    """`training.regret.measure_regret`, if the text is of a language."""
    if not is_language(program.task.plan.text.path):
        return {}, {}
    measure_regret = load_place("jaxpt.training.regret:measure_regret")
    return measure_regret(program, params, corpora, is_quick)


def _find_likelihood(task: Task, metrics: dict[str, float]) -> float | None:
    """-log p of a token of valid text: the mean of the terms that are likelihoods.

    A term may have had no row. A term called "loss" shares its name with the loss of
    all terms, which `metrics` has: its own mean is the rest, without the others.
    """
    terms = {
        name: term
        for name, term in task.spec.terms.items()
        if f"valid_{name}" in metrics and term.coefficient
    }
    parts = {
        name: term.coefficient * metrics[f"valid_{name}"]
        for name, term in terms.items()
    }
    if "loss" in parts:
        others = sum(part for name, part in parts.items() if name != "loss")
        parts["loss"] = metrics["valid_loss"] - others
    likely = [name for name, term in terms.items() if term.is_likelihood]
    if not likely:
        return None
    total = sum(terms[name].coefficient for name in likely)
    return sum(parts[name] for name in likely) / total


def measure_text(program: Program, params, valid: Split) -> dict[str, Examples]:
    """Metrics on running text: the likelihood or its bound, and the cloze."""
    task, spec = program.task, program.task.plan.eval
    examples: dict[str, Examples] = {}
    readers = program.readers
    if not {"token_nll", "nll_bound", "fill_scores"} & {*readers}:
        return examples
    rows = likelihood_rows(task, valid, spec.num_rows)
    documents = likelihood_documents(task, valid, spec.num_rows)
    for name, measure_it in (
        ("token_nll", measure_likelihood),
        ("nll_bound", measure_nll_bound),
    ):
        if name in readers:
            num_bytes = likelihood_bytes(task, valid, spec.num_rows)
            args = rows, num_bytes, spec.batch_size, task.vocab, documents
            examples |= measure_it(readers[name], params, *args)
    if "fill_scores" in readers:
        examples |= measure_cloze(
            readers["fill_scores"],
            params,
            rows,
            task.vocab.require("mask"),
            task.nonwords,
            task.model_spec.vocab_size,
            spec.batch_size,
            task.read_length,
            documents,
        )
    return examples


def _measure_unknown(program: Program, valid: Split) -> dict[str, float]:
    """The share of the validation text's bytes in [UNK]; {} for 0. Warns if large."""
    task, num = program.task, program.task.plan.eval.num_rows
    num_bytes = likelihood_bytes(task, valid, num)
    share = unknown_share(likelihood_rows(task, valid, num), num_bytes, task.vocab)
    if share >= UNKNOWN_SHARE:
        _warn_once(
            f"{share:.1%} of the bytes of the validation text are unknown to the "
            f"tokenizer; bits per byte charge 8 bits for each, and no model learns them"
        )
    return {"unknown_bytes": share} if share else {}


@functools.cache
def _warn_once(line: str) -> None:
    _log.warning(line)


def _measure_own_fills(
    program: Program, params, fresh, corpora: dict[str, Split]
) -> dict[str, float]:
    """Accuracy on the objective's own masks, also of the initial parameters."""
    metrics: dict[str, float] = {}
    rows = _rows(program, corpora.get("heldout", corpora["valid"]))
    for suffix, chosen in (("", params), ("_random", fresh)):
        of_these = evaluate(program.readers["eval_step"], chosen, *rows)
        if of_these.keys() >= set(MASKED):  # an objective need not count them
            metrics |= {f"{name}{suffix}": of_these[name] for name in MASKED}
    return metrics
