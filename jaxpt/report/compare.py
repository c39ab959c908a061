"""Several objectives on the same rows and seeds, at one budget; then the report."""

import contextlib
import datetime
from collections.abc import Collection
from functools import partial
from pathlib import Path

import jaxpt
from jaxpt import processes
from jaxpt.config.plan import Plan, make_compare_spec, make_plans, named_by
from jaxpt.config.sections import CompareSpec
from jaxpt.config.settings import to_dict
from jaxpt.errors import UserError
from jaxpt.eval.examples import Examples
from jaxpt.eval.probe import has_labels
from jaxpt.eval.references import measure_ngrams, measure_unigrams
from jaxpt.eval.words import measure_beside
from jaxpt.folder import hold, load_config, write_config
from jaxpt.objectives import OBJECTIVES
from jaxpt.report import figures
from jaxpt.report.budget import (
    fit_warmup,
    steps_for_budget,
    without_schedule,
    write_steps,
)
from jaxpt.report.report_page import write_report
from jaxpt.report.summary import summarise
from jaxpt.report.tuning import Text, check_choice, check_trials, tune
from jaxpt.run.check import check_measures, check_run
from jaxpt.run.data import (
    likelihood_bytes,
    likelihood_documents,
    likelihood_rows,
    with_token_counts,
)
from jaxpt.run.loop import train
from jaxpt.run.measure import list_questions
from jaxpt.run.program import Program
from jaxpt.run.task import make_task
from jaxpt.run.teacher import lacks_teacher, with_teacher
from jaxpt.run.workdir import flatten, load_examples, with_defaults
from jaxpt.text.dataset import Split, load_text
from jaxpt.text.text_spec import TextSpec
from jaxpt.text.tokens.tokenizer import Tokenizer
from jaxpt.text.tokens.vocab import Vocab

FLOPS_NOTE = (
    "Counted from the sizes: 2 operations a multiply-add of every matrix product, "
    "attention in full (a causal mask saves nothing), the vocabulary head on predicted "
    "positions only, both networks of ELECTRA and both stacks of an encoder-decoder; a "
    "training step is three forward passes. A student's teacher reads along; what it "
    "cost to train is in no column. Embedding look-ups, norms, softmax and the "
    "optimizer are not counted."
)
NOTES = {
    "flops": FLOPS_NOTE,
    "model_tokens": "Positions through a stack: ELECTRA reads each row twice.",
    "seconds": "train_seconds is time in training steps; compilation, evaluation and "
    "checkpoints are apart. first_step_seconds is from the start of a run to its first "
    "finished call, compilation included (later seeds reuse the compiled step).",
    "probe": "Logistic regression on the mean of the last hidden states of a passage; "
    "passages are held out by document. probe_accuracy_random is the same on freshly "
    "initialised parameters.",
}


def compare(config, workdir: Path, given: Collection[str] = ()) -> dict:
    """Trains every objective with every seed and writes report.json, report.html, PNGs.

    Runs that are finished are not repeated, so it resumes where it was stopped.

    Args:
      given: full names of the settings that the user has set (`config.plan.make_plan`).

    Raises:
      UserError: the config is wrong, `workdir` holds another comparison, or another
        process writes there.
    """
    with contextlib.ExitStack() as held:
        held.enter_context(hold(workdir))
        return _compare(to_dict(config), workdir, held, given)


def _compare(
    config: dict, workdir: Path, held: contextlib.ExitStack, given: Collection[str]
) -> dict:
    spec, plans, text = processes.run_on_all(lambda: _make_plans(config, given))
    tokenizer, corpora = processes.first_then_rest(lambda: load_text(text))
    vocabs = {
        name: with_token_counts(plan, tokenizer.vocab, corpora["train"])
        for name, plan in plans.items()
    }
    processes.on_first(lambda: _check_folder(workdir, config))
    taught = {name: plan for name, plan in plans.items() if lacks_teacher(plan)}
    others = {name: plan for name, plan in plans.items() if name not in taught}
    processes.run_on_all(lambda: _check_runs(others, spec, vocabs, tokenizer, corpora))
    if taught:
        processes.on_first(lambda: write_config(workdir / "compare.json", config))
    for name, plan in taught.items():
        folder = workdir / "teachers" / name
        plans[name] = with_teacher(plan, tokenizer, corpora, folder, given)
        taught[name] = plans[name]
    processes.run_on_all(lambda: _check_runs(taught, spec, vocabs, tokenizer, corpora))
    tuning = {}
    if spec.tune:
        processes.on_first(lambda: write_config(workdir / "compare.json", config))
        for name, plan in plans.items():
            plans[name], tuning[name] = _tune(
                name, plan, spec, vocabs[name], tokenizer, corpora, workdir, given
            )
    plans = {
        name: steps_for_budget(name, plan, spec, vocabs[name], corpora, workdir)
        for name, plan in plans.items()
    }
    plans = {
        name: fit_warmup(plan, _list_given(name, spec, given))
        for name, plan in plans.items()
    }
    processes.run_on_all(lambda: _check_steps(plans, vocabs))
    # Its runs are its own also while others of them train.
    for name in plans:
        for seed in spec.seeds:
            held.enter_context(hold(_run_path(workdir, name, seed)))
    # What is wrong has been found by now; only then is anything written.
    if processes.is_first():
        write_config(workdir / "compare.json", config)
        for name, plan in plans.items():
            write_steps(workdir, name, plan)
    runs = []
    for name, plan in plans.items():
        program = None
        for seed in spec.seeds:
            task = make_task(plan.change({"train": {"seed": seed}}), vocabs[name])
            program = program or processes.run_on_all(partial(Program, task))
            folder = _run_path(workdir, name, seed)
            label = f"{name} seed {seed}"
            run = train(task, tokenizer, corpora, folder, program, label)
            place = str(folder.relative_to(workdir))
            runs.append({"name": name} | run | {"workdir": place})
    examples = {
        (run["name"], run["seed"]): load_examples(workdir / run["workdir"])
        for run in runs
    }
    references = _measure_references(plans, vocabs, corpora)
    yardsticks = summarise(runs, examples, references)
    report = _assemble(config, spec, plans, tokenizer, corpora, runs, yardsticks)
    if tuning:
        report["tuning"] = tuning
    report["figures"] = figures.draw(report, corpora, workdir)
    processes.on_first(lambda: str(write_report(report, workdir)))
    return report


def _make_plans(
    config: dict, given: Collection[str]
) -> tuple[CompareSpec, dict[str, Plan], TextSpec]:
    """The comparison, each objective's plan, and the text that all read.

    Raises:
      UserError: one of them is wrong.
    """
    spec = make_compare_spec(config)
    for name, sections in spec.overrides.items():
        # Of what is not compared this time nothing is read.
        is_named = isinstance(sections, dict) and "objective" in sections
        if name not in (*spec.objectives, *OBJECTIVES) and not is_named:
            raise UserError(
                f"compare.overrides.{name}: must be one of compare.objectives="
                f"{', '.join(spec.objectives)}, or another objective"
            )
    plans = make_plans(config, spec.objectives, given)
    text = next(iter(plans.values())).text
    for name, plan in plans.items():
        if plan.text != text:
            raise UserError(
                f"compare.overrides.{name}: must leave the text and tokenizer as they "
                f"are, so that all read the same rows"
            )
    return spec, plans, text


@contextlib.contextmanager
def _naming(name: str):
    """Says of an error whose it is: each may have settings of its own."""
    try:
        yield
    except UserError as error:
        raise UserError(f"{error} (for {name})") from error


def _check_runs(
    plans: dict[str, Plan],
    spec: CompareSpec,
    vocabs: dict[str, Vocab],
    tokenizer: Tokenizer,
    corpora: dict[str, Split],
) -> None:
    """Raises UserError for what no number of steps mends: they are not known yet."""
    for name, plan in plans.items():
        with _naming(name):
            task = make_task(without_schedule(plan), vocabs[name])
            checked = check_run(task, tokenizer, corpora)
            if spec.tune:
                check_trials(plan, spec)
            if spec.tune and not spec.tune_by.startswith("valid_"):
                check_choice(check_measures(checked[0], corpora), spec)


def _list_given(name: str, spec: CompareSpec, given: Collection[str]) -> set[str]:
    """Settings that are never changed: the user's, the name's own, those tuned."""
    tuned = {key for trial in spec.list_trials() for key in trial}
    return {*given, *named_by(spec.overrides.get(name, {})), *tuned}


def _tune(
    name: str,
    plan: Plan,
    spec: CompareSpec,
    vocab: Vocab,
    tokenizer: Tokenizer,
    corpora: dict[str, Split],
    workdir: Path,
    given: Collection[str],
) -> tuple[Plan, dict]:
    """`tuning.tune` with the steps and the warm-up of this comparison."""
    folder = workdir / "tuning" / name

    def fit_steps(trial: Plan, index: int) -> Plan:
        key = f"{name}-trial{index}"
        share = spec.tune_share
        fitted = steps_for_budget(key, trial, spec, vocab, corpora, workdir, share)
        processes.on_first(lambda: write_steps(workdir, key, fitted))
        return fit_warmup(fitted, _list_given(name, spec, given))

    text = Text(vocab, tokenizer, corpora)
    return tune(name, plan, spec, fit_steps, text, folder)


def _check_steps(plans: dict[str, Plan], vocabs: dict[str, Vocab]) -> None:
    """Raises UserError for what the steps that a budget buys forbid."""
    for name, plan in plans.items():
        with _naming(name):
            make_task(plan, vocabs[name])


def _check_folder(workdir: Path, config: dict) -> None:
    """Raises UserError where the folder holds something else than this comparison."""
    path = workdir / "compare.json"
    if (workdir / "config.json").exists():
        raise UserError(f"--workdir={workdir}: holds a training run; use another")
    if not path.exists():
        return
    stored = flatten(with_defaults(load_config(path, "use another --workdir")))
    wanted = flatten(with_defaults(config))
    for name in sorted(stored.keys() | wanted.keys()):
        if stored.get(name) != wanted.get(name):
            raise UserError(
                f"--workdir={workdir}: holds a comparison with {name}="
                f"{stored.get(name)}, not {wanted.get(name)}; use another folder"
            )


def _run_path(workdir: Path, name: str, seed: int) -> Path:
    return workdir / "runs" / f"{name}-seed{seed}"


def _measure_references(
    plans: dict[str, Plan], vocabs: dict[str, Vocab], corpora: dict[str, Split]
) -> dict[str, dict[str, Examples]]:
    """What answers without a network give on each objective's own test examples."""
    valid, known, found = corpora["valid"], {}, {}
    for name, plan in plans.items():
        task, spec = make_task(plan, vocabs[name]), plan.eval
        key = task.spec.row_length, task.model_spec.vocab_size, spec
        if key not in known:
            counts = corpora["train"].count_tokens(task.model_spec.vocab_size)
            known[key] = measure_unigrams(
                counts,
                likelihood_rows(task, valid, spec.num_rows),
                likelihood_bytes(task, valid, spec.num_rows),
                likelihood_documents(task, valid, spec.num_rows),
                task.vocab,
                task.nonwords,
            )
            if spec.probe_passages and has_labels(corpora):
                sizes = spec.probe_length, spec.probe_windows, spec.probe_passages
                known[key] |= measure_ngrams(corpora, *sizes)
            if spec.num_words:
                known[key] |= measure_beside(list_questions(task, corpora))
        found[name] = known[key]
    return found


def _assemble(
    config, spec: CompareSpec, plans, tokenizer, corpora, runs, yardsticks
) -> dict:
    lengths = {plan.spec.row_length for plan in plans.values()}
    forms = sorted({plan.rows.rows for plan in plans.values()})
    if len(lengths) > 1:
        rows = "each objective reads rows of its own length"
    elif len(forms) > 1:
        rows = f"rows of {lengths.pop()} tokens of the same text: {', '.join(forms)}"
    else:
        rows = f"every objective reads the same rows of {lengths.pop()} tokens"
    if spec.budget == "steps":
        note = f"steps as each objective's settings say, not matched; {rows}"
    else:
        note = f"for every run, in whole calls; {rows}"
    text = next(iter(plans.values())).text
    return {
        "title": "Which objective taught the model most?",
        "created": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "version": jaxpt.__version__,
        "config": config,
        "budget": {"kind": spec.budget, "amount": spec.amount, "note": note},
        "data": {
            "path": text.path,
            "documents": sum(split.num_documents for split in corpora.values()),
            "train_tokens": corpora["train"].num_tokens,
            "valid_tokens": corpora["valid"].num_tokens,
            "vocab_size": tokenizer.vocab.size,
            "tokenizer": text.tokenizer.kind,
        },
        "runs": runs,
        "yardsticks": yardsticks,
        "notes": NOTES,
        "figures": {},
    }
