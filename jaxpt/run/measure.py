"""Every number a run is judged by, from parameters and held-out text."""

import math

from jaxpt.errors import UserError
from jaxpt.eval.cloze import measure_cloze
from jaxpt.eval.evaluation import (
    add_up,
    evaluate,
    measure_likelihood,
    measure_nll_bound,
)
from jaxpt.eval.probe import has_labels, measure_probe
from jaxpt.ops import metrics as sums
from jaxpt.ops.metrics import perplexity
from jaxpt.run.data import held_rows, likelihood_bytes, likelihood_rows
from jaxpt.run.program import Program
from jaxpt.text.dataset import Split


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


def measure_probe_accuracy(
    program: Program, params, corpora: dict[str, Split]
) -> dict[str, float]:
    """The linear probe, where the text has labels; else nothing.

    Raises:
      UserError: a probed window is longer than what the model reads in training.
    """
    if not has_labels(corpora):
        return {}
    task, spec = program.task, program.task.plan.eval
    if spec.probe_length > task.read_length:
        raise UserError(
            f"eval.probe_length={spec.probe_length}: must be at most "
            f"{task.read_length}, what {task.plan.objective_name} reads at once"
        )
    return measure_probe(
        program.features,
        params,
        corpora,
        spec.probe_length,
        spec.probe_windows,
        spec.probe_passages,
        spec.batch_size,
    )


def measure(
    program: Program,
    params,
    corpora: dict[str, Split],
    seed: int,
    known: dict | None = None,
    control: dict | None = None,
) -> dict[str, float]:
    """All of a run's metrics; the keys depend on what the objective can do.

    Args:
      seed: the run's, which drew its first parameters; a program serves several.
      known: what was measured on these parameters already.
      control: what was measured on freshly initialised ones.

    Returns:
      valid_* of the objective; val_perplexity and bits_per_byte (a likelihood), or
      bits_per_byte_bound, which it is at most (a bound of one);
      heldout_top1, heldout_top5 (filling the objective's own masks, on the held-out
      split or else on valid); cloze_accuracy, cloze_bits (filling the same ones for
      every objective);
      probe_accuracy, probe_majority (labelled text). Names that end in _random are the
      same measurement on freshly initialised parameters.
    """
    fresh = program.init_state(seed).params
    metrics = dict(known or measure_valid(program, params, corpora))
    metrics |= _measure_text(program, params, corpora["valid"], metrics)
    if program.fill_logits:
        metrics |= _measure_fills(program, params, fresh, corpora)
    if "probe_accuracy" not in metrics:
        metrics |= measure_probe_accuracy(program, params, corpora)
    if "probe_accuracy" in metrics:
        control = control or {}
        if "probe_accuracy" not in control:
            control = measure_probe_accuracy(program, fresh, corpora)
        metrics["probe_accuracy_random"] = control["probe_accuracy"]
    return metrics


def _measure_text(program: Program, params, valid: Split, own: dict) -> dict:
    """The likelihood of running text, or its bound, where the network has one.

    Args:
      own: the objective's metrics on the same split, as valid_*.
    """
    task, spec, found = program.task, program.task.plan.eval, {}
    if program.token_nll:
        # Of several terms, one is the loss of reading causally; no row may have been.
        terms = task.spec.coefficients
        causal = "valid_clm_loss" if "clm_loss" in terms else "valid_loss"
        if causal in own:
            found["val_perplexity"] = perplexity(own[causal])
    for function, measure_it in (
        (program.token_nll, measure_likelihood),
        (program.nll_bound, measure_nll_bound),
    ):
        if function:
            found |= measure_it(
                function,
                params,
                likelihood_rows(task, valid, spec.num_rows),
                likelihood_bytes(task, valid, spec.num_rows),
                spec.batch_size,
                task.vocab,
            )
    return found


def _measure_fills(program: Program, params, fresh, corpora: dict[str, Split]) -> dict:
    """How the objective's own masks are filled, also by fresh parameters; the cloze."""
    task, spec, found = program.task, program.task.plan.eval, {}
    rows = _rows(program, corpora.get("heldout", corpora["valid"]))
    for suffix, chosen in (("", params), ("_random", fresh)):
        means = evaluate(program.eval_step, chosen, *rows)
        for k in (1, 5):
            found[f"heldout_top{k}{suffix}"] = means[f"fill_top{k}"]
    return found | measure_cloze(
        program.fill_scores,
        params,
        likelihood_rows(task, corpora["valid"], spec.num_rows),
        task.vocab.require("mask"),
        task.nonwords,
        task.model_spec.vocab_size,
        spec.batch_size,
        task.read_length,
    )
