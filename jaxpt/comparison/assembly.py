"""Assembles the report of measured runs, for `jaxpt compare` and `jaxpt report`."""

import dataclasses
import datetime
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from jaxpt.comparison.gates import list_gates
from jaxpt.comparison.known_truth import find_truth, measure_exact_baselines
from jaxpt.distributed import processes
from jaxpt.evaluation.bigram_pairs import (
    measure_pair_bigrams,
    measure_pair_frequency,
)
from jaxpt.evaluation.choices import measure_bigrams, measure_frequency
from jaxpt.evaluation.references import measure_ngrams, measure_unigrams
from jaxpt.evaluation.words import measure_ngram_baseline
from jaxpt.files import checksums
from jaxpt.files.stored import to_plain
from jaxpt.judge.examples import Examples
from jaxpt.report import figures
from jaxpt.report.conventions import judge_conventions, judge_whole_cost
from jaxpt.report.costs import add_costs, word_conventions
from jaxpt.report.figures import Collector
from jaxpt.report.metrics import measure_reliability
from jaxpt.report.page import write_report
from jaxpt.report.ratios import add_ratios
from jaxpt.report.summary import summarise
from jaxpt.report.tables import write_tables
from jaxpt.report.types import Conventions, Report, read_runs
from jaxpt.report.wording import FREQUENCY_SUFFIX
from jaxpt.runs.data import likelihood_bytes, likelihood_documents, likelihood_rows
from jaxpt.runs.task import Task
from jaxpt.runs.xla_flops import describe_counter
from jaxpt.text.dataset import Split, has_labels
from jaxpt.text.text_spec import TextSpec
from jaxpt.text.tokens.tokenizer import Tokenizer
from jaxpt.training.measure import (
    list_choices,
    list_pairs,
    list_parts,
    list_questions,
)
from jaxpt.version import __version__

FLOPS_NOTE = (
    "Counted from the sizes: 2 operations a multiply-add of every matrix product, "
    "attention in full (a causal mask saves nothing), the vocabulary head on predicted "
    "positions only, both networks of ELECTRA and both stacks of an encoder-decoder; a "
    "training step is three forward passes, and the products of the optimizer (Muon's) "
    "once. A student's steps include its teacher's forward pass; the cost of training "
    "the teacher has separate columns. Embedding look-ups, norms, softmax and other "
    "element-wise operations are not counted. Runs trained before the optimizer was "
    "counted are counted again from their settings."
)
ROUNDING = 1e-3  # of a budget in FLOPs, which no run exceeds
OLD_COUNT = "; the budget was counted without the products of the optimizer"
NOTES = {
    "flops": FLOPS_NOTE,
    "operations": "All operations of the training steps by XLA's cost analysis before "
    "compilation: two for each multiply-add, one for each element of a sum, a "
    "comparison or a random bit's shift. Exp, tanh and similar functions are counted "
    "separately and are not included. Every iteration of a loop counts. By "
    f"{describe_counter()}.",
    "flops_left_out": "The share of the operations of a training step that FLOPs do "
    "not include.",
    "conventions": "Each verdict is also given at equal FLOPs, operations, raw tokens "
    "and seconds: an objective that costs more than the cheapest is read before its "
    "end, between two evaluations of its learning curve. Errors due to test documents "
    "are those of the examples at the end. Seconds are the operations of a run times "
    "the fewest seconds per operation of any seed of its objective, because seconds of "
    "a loaded machine are unreliable; with a budget of seconds they are those of each "
    "run's clock.",
    "teacher and tuning": "The cost of a teacher, with its own teacher, and of all "
    "trials of an objective; each is paid once, for any number of seeds.",
    "source": "The cost of the run that a run started from (train.init_from), with all "
    "runs before it. The costs of a run are those it added; the total is their sum. "
    "compare.source_cost states which of the two is equal. Unless it is the total, "
    "sources that differ are part of the second verdict.",
    "model_tokens": "Positions through a stack: ELECTRA reads each row twice.",
    "seconds": "train_seconds is the time in training steps, without compilation, "
    "evaluation and checkpoints. first_step_seconds is from the start of a run to its "
    "first finished call, compilation included (later seeds reuse the compiled step).",
    "probe": "Logistic regression on the hidden states of passages, held out by "
    "document. The layer and the pooling (mean, first or last state) are chosen for "
    "each run on separate training documents, and only this choice is evaluated on the "
    "held-out passages. probe_accuracy_random is the same for random initialization.",
}


def measure_references(
    tasks: Mapping[str, Task], corpora: dict[str, Split]
) -> dict[str, dict[str, Examples]]:
    """The baselines without a network on each name's test examples, by metric.

    The baseline of token frequencies has the metric's name and `FREQUENCY_SUFFIX`.

    Args:
      tasks: by name; all of them read `corpora`.
    """
    valid, references = corpora["valid"], {}
    known: dict[tuple, dict[str, Examples]] = {}
    for name, task in tasks.items():
        spec = task.plan.eval
        key = task.spec.row_length, task.model_spec.vocab_size, spec
        if key not in known:
            counts = corpora["train"].count_tokens(task.model_spec.vocab_size)
            frequencies = measure_unigrams(
                counts,
                likelihood_rows(task, valid, spec.num_rows),
                likelihood_bytes(task, valid, spec.num_rows),
                likelihood_documents(task, valid, spec.num_rows),
                task.vocab,
                task.nonwords,
            )
            known[key] = {}
            if spec.probe_passages and has_labels(corpora):
                sizes = spec.probe_length, spec.probe_windows, spec.probe_passages
                known[key] |= measure_ngrams(corpora, *sizes)
            if spec.num_words:
                known[key] |= measure_ngram_baseline(list_questions(task, corpora))
            if (pairs := list_pairs(task, corpora)) is not None:
                known[key] |= measure_pair_bigrams(pairs)
                frequencies |= measure_pair_frequency(pairs)
            tables, unigrams = measure_exact_baselines(task, corpora)
            known[key] |= tables
            frequencies |= unigrams
            if spec.num_choices:
                choices = list_choices(task, corpora)
                known[key] |= measure_bigrams(corpora["train"], choices)
                frequencies |= measure_frequency(choices)
            known[key] |= {k + FREQUENCY_SUFFIX: x for k, x in frequencies.items()}
        references[name] = known[key]
    return references


def _measure_each_text(
    tasks: Mapping[str, Task], corpora_of: Mapping[str, dict[str, Split]]
) -> dict[str, dict[str, Examples]]:
    """`measure_references` of each text with the names that read it."""
    references: dict[str, dict[str, Examples]] = {}
    for corpora in {id(x): x for x in corpora_of.values()}.values():
        text_tasks = {
            name: tasks[name] for name, x in corpora_of.items() if x is corpora
        }
        references |= measure_references(text_tasks, corpora)
    return references


def add_parts(runs: list[dict], tasks: Mapping[str, Task]) -> list[dict]:
    """The runs with "parts": by metric, the part of the network that it measures.

    Only for metrics of a part that is not the trained result.

    Args:
      tasks: by name.
    """
    parts = {name: list_parts(task) for name, task in tasks.items()}
    return [
        run | ({"parts": run_parts} if (run_parts := parts[run["name"]]) else {})
        for run in runs
    ]


def note_rows(lengths: Collection[int], forms: Collection[str]) -> str:
    """A note on whether all objectives read the same rows.

    Args:
      lengths: the different lengths of rows, in tokens.
      forms: the different values of data.rows.

    >>> note_rows({64}, {"pairs", "chunks"})
    'rows of 64 tokens of the same text: chunks, pairs'
    """
    if len(lengths) > 1:
        return "each objective reads rows of a different length"
    (length,) = lengths
    if len(forms) > 1:
        return f"rows of {length} tokens of the same text: {', '.join(sorted(forms))}"
    return f"every objective reads the same rows of {length} tokens"


def make_text_facts(
    text: TextSpec, tokenizer: Tokenizer, corpora: dict[str, Split]
) -> dict:
    """The "data" of report.json: the text and the tokenizer."""
    return {
        "path": text.path,
        "documents": sum(split.num_documents for split in corpora.values()),
        "train_tokens": corpora["train"].num_tokens,
        "valid_tokens": corpora["valid"].num_tokens,
        "vocab_size": tokenizer.vocab.size,
        "tokenizer": text.tokenizer.kind,
    }


def assemble(
    *,
    config: dict,
    budget: dict,
    data: dict,
    runs: list[dict],
    diverged: list[dict],
    examples: Mapping[tuple[str, int], Mapping[str, Examples]],
    tasks: Mapping[str, Task],
    corpora_of: Mapping[str, dict[str, Split]],
    alpha: float,
    control: str,
    tests: Mapping[str, list[set[str]]] | None = None,
    tuning: Mapping[str, dict] | None = None,
    counts_source: bool = False,
) -> Report:
    """The report without its figures: costs, baselines, verdicts.

    Args:
      budget: {"kind", "amount", "note"} of each run.
      data: facts about the text.
      runs: each run's result.json with its "name" and its "workdir", relative to the
        report's folder.
      diverged: the entries of runs that diverged (`report.diverged`).
      examples, tests: as in `report.summary.summarise`.
      tasks, corpora_of: by name; without a text there are no baselines.
      alpha, control: of the verdicts, as in `report.summary.summarise`.
      tuning: the records of `tuning.tune`, by name.
      counts_source: as in `report.costs.add_costs`.
    """
    runs = add_parts(add_costs(runs, tasks, tuning, counts_source), tasks)
    references = _measure_each_text(tasks, corpora_of)
    report: dict[str, Any] = {
        "title": "Which objective taught the model most?",
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "version": __version__,
        "config": config,
        "budget": with_count_note(budget, runs),
        "data": data,
        "runs": runs,
        "alpha": alpha,
        "notes": NOTES,
        "figures": {},
    }
    if control:
        report["control"] = control
    if diverged:
        report["diverged"] = diverged
    report |= judge_runs(report, runs, examples, references, tests)
    if gates := list_gates(read_runs(runs), tasks, corpora_of):
        report["gates"] = gates
    if truth := find_truth(tasks, corpora_of):
        report["known_truth"] = truth.to_json()
    return Report.from_json(to_plain(report))


def with_count_note(budget: Mapping[str, Any], runs: list[dict]) -> dict[str, Any]:
    """The budget, with a note if its FLOPs were counted without the optimizer's.

    Args:
      budget: "kind", "amount" and "note".
      runs: with the columns of `report.costs`.
    """
    note = budget["note"].removesuffix(OLD_COUNT)
    most = budget["amount"] * (1 + ROUNDING)
    if budget["kind"] == "flops" and any(run["flops"] > most for run in runs):
        note += OLD_COUNT
    return {**budget, "note": note}


def judge_runs(
    report: Mapping[str, Any],
    runs: list[dict],
    examples: Mapping[tuple[str, int], Mapping[str, Examples]],
    references: Mapping[str, Mapping[str, Examples]],
    tests: Mapping[str, list[set[str]]] | None = None,
) -> dict[str, Any]:
    """What report.json states about its runs: verdicts, also at other equal costs.

    Args:
      report: "budget", "alpha" and "control" are read.
      runs: its entries of runs with the columns of `report.costs`.
      examples, references, tests: as in `report.summary.summarise`.

    Returns:
      "metrics", "reliability", and if there are any "conventions" and "whole_cost".
    """
    budget, alpha = report["budget"], report["alpha"]
    control = report.get("control", "")
    known = read_runs(runs)
    metrics = summarise(known, examples, references, tests, alpha, control)
    kind = "" if budget["note"].endswith(OLD_COUNT) else budget["kind"]
    costs, metrics = judge_conventions(
        known, metrics, kind, examples, tests, alpha, control
    )
    metrics = add_ratios(known, metrics, costs, kind, [examples], alpha)
    parts: dict[str, Any] = {"metrics": [metric.to_json() for metric in metrics]}
    parts["reliability"] = measure_reliability(known, examples)
    if lines := word_conventions(costs, metrics):
        parts["conventions"] = Conventions(kind, costs, tuple(lines)).to_json()
    whole = judge_whole_cost(known, budget["kind"], examples, alpha, control)
    return parts | ({"whole_cost": whole.to_json()} if whole else {})


def publish(
    report: Report, corpora_of: Mapping[str, dict[str, Split]], workdir: Path
) -> Report:
    """Writes a report: samples, figures (SVG), tables, report.json and report.html.

    Args:
      report: without figures and samples.
      corpora_of: the text of each name; a name without a text has no samples.

    Returns:
      The report with its figures and samples.
    """
    collector = Collector(report, corpora_of, workdir)
    drawn = figures.draw(report, corpora_of, workdir, collector.add)
    samples = {**(report.samples or {}), **collector.by_name}
    whole = dataclasses.replace(report, figures=drawn, samples=samples)

    def write() -> str:
        write_tables(whole, workdir)
        path = write_report(whole, workdir)
        checksums.record(workdir, [path.name, *drawn.values()])
        return str(path)

    processes.on_first(write)
    return whole
