"""Commands that evaluate runs: metrics, tasks, fine-tuning, analysis, scaling laws."""

import json
import logging
from pathlib import Path
from typing import Any

from absl.flags import FlagValues

from jaxpt.cli.flags import Command, command, parse, parse_config, repeat_flag
from jaxpt.cli.running import (
    OUTPUT,
    PROCESSES,
    RUNS,
    list_metrics,
    opened,
    read_to,
    read_workdir,
    refuse,
    run_command,
    show,
    show_result,
    start_jax,
)
from jaxpt.errors import ConfigError
from jaxpt.files.remote import fetch, localise
from jaxpt.hub.opened import is_model, load_model

_log = logging.getLogger(__name__)
# Flags of zero-shot tasks: the fields of `zero_shot.outcomes.Options`.
TASK_OPTIONS = {
    "window": (0, "of text: tokens that are read at once; 0: the model's limit"),
    "stride": (0, "of text: from a window to the next; 0: half a window"),
    "shots": ("", "of questions: a file of training data for few-shot prompts"),
    "num_shots": (0, "of questions: solved questions of --shots before each"),
    "num_draws": (1, "of questions: how often other shots are drawn"),
    "num_orders": (1, "of questions: in how many orders each draw is shown"),
    "shot_seed": (0, "of questions: the seed of the draws"),
}


@command(
    "evaluate",
    example="""\
jaxpt evaluate --workdir runs/mlm
jaxpt evaluate --workdir runs/mlm --tasks blimp:blimp.tar.xz,pairs:pairs.tsv""",
    flags=PROCESSES
    | OUTPUT
    | {
        "tasks": (
            [],
            "zero-shot tasks, NAME:PATH separated by commas, such as "
            "blimp:blimp.tar.xz,pairs:pairs.tsv",
        ),
        "rule": (
            "all",
            "of tasks: the rule that texts are scored by; all: every one that the run "
            "has, auto: the first of them",
        ),
        "num_items": (
            0,
            "of tasks: at most this many items of each, spread evenly; 0: all",
        ),
    }
    | TASK_OPTIONS,
)
def evaluate(command: Command, argv: list[str]) -> int:
    """Evaluate a run on held-out text, or on zero-shot tasks with --tasks.

    For --tasks, --workdir may be a model of transformers, a folder or a name on the
    Hugging Face Hub.
    """
    values = parse(command, argv)
    if values.tasks:
        return run_command(values, lambda: _evaluate_tasks(values))
    workdir = read_workdir(values)
    if is_model(values.workdir):
        raise ConfigError(
            f"--workdir={values.workdir}: is a model of transformers, without held-out "
            "text: give --tasks, or first `jaxpt import --from MODEL --data TEXT`"
        )
    refuse(values, ("rule", "num_items", *TASK_OPTIONS), "is for --tasks")
    return run_command(values, lambda: _evaluate(workdir, values))


def _evaluate_tasks(values: FlagValues) -> int:
    from jaxpt.distributed import processes
    from jaxpt.runs.zero_shot_results import evaluate_tasks, format_result
    from jaxpt.zero_shot.outcomes import TaskOptions

    options: dict[str, Any] = {name: values[name].value for name in TASK_OPTIONS}
    request = values.tasks, values.rule, values.num_items
    with opened(values) as workdir:
        results = evaluate_tasks(
            workdir, *request, TaskOptions(**options), load_model=load_model
        )
    place = None if is_model(values.workdir) else workdir
    if processes.is_first():
        lines = [x for each in results for x in format_result(each, place)]
        show_result(values, results, lines)
    return 0


def _evaluate(workdir: Path, values: FlagValues) -> int:
    from jaxpt.distributed import processes
    from jaxpt.runs.random_parts import describe_random_parts
    from jaxpt.runs.workdir import load_corpora, load_run
    from jaxpt.training.measure import measure

    program, tokenizer, params, step = load_run(workdir)
    if (text := describe_random_parts(program.task)) and processes.is_first():
        _log.warning(text)
    corpora = processes.first_then_rest(
        lambda: load_corpora(workdir, program.task, tokenizer)
    )
    metrics = measure(program, params, corpora, program.task.plan.train.seed).metrics
    if processes.is_first():
        note = " (average of the parameters)" if program.task.has_ema else ""
        result = {"step": step, "metrics": metrics}
        show_result(values, result, [f"step {step}{note}", *list_metrics(metrics)])
    return 0


@command(
    "judge-text",
    example="""\
jaxpt judge-text --samples samples.txt --reference heldout.txt --judge runs/clm
jaxpt judge-text --samples a.jsonl --reference b.jsonl --judge openai-community/gpt2""",
    flags=OUTPUT
    | {
        "samples": ("", "the generated text: a sample on each line, or JSON lines"),
        "reference": ("", "real text in the same form"),
        "judge": (
            "",
            "the model that judges: a run's folder, a model that comes with jaxpt such "
            "as demo:clm, or a folder or a name of transformers",
        ),
        "num_items": (0, "at most this many texts of each, spread evenly; 0: all"),
        "num_clusters": (0, "of MAUVE; 0: a tenth of the smaller number of texts"),
    },
    common=("trust",),
)
def judge_text(command: Command, argv: list[str]) -> int:
    """Judge generated text by a model: perplexity, MAUVE, repetition, entropy.

    Every measure is printed next to that of real text. To judge what a run writes, use
    jaxpt evaluate --tasks generation:FILE.json.
    """
    values = parse(command, argv)
    for name in ("samples", "reference", "judge"):
        if not values[name].value:
            raise ConfigError(f"--{name}: must be given")

    def work() -> int:
        from jaxpt.hub.judged_text import format_judged
        from jaxpt.hub.judged_text import judge_text as judge

        samples, reference = map(localise, (values.samples, values.reference))
        options = values.judge, values.num_items, values.num_clusters
        result = judge(samples, reference, *options)
        show_result(values, result, format_judged(result))
        return 0

    return run_command(values, work)


@command(
    "babylm",
    example="""\
jaxpt babylm --workdir runs/mlm --data evaluation_data/full_eval
jaxpt babylm --workdir runs/mlm --data zeroshot.tar.xz --glue glue_filtered
jaxpt babylm --workdir runs/clm --year 2026 --data multilingual
jaxpt babylm --workdir runs/clm --year 2026 --against runs/mlm,runs/electra""",
    flags=OUTPUT
    | {
        "year": (
            2025,
            "of the challenge; 2026 is its multilingual track (the others are as 2025)",
        ),
        "data": (
            "",
            "the zero-shot data: a folder or an archive with blimp_filtered, "
            "supplement_filtered, entity_tracking and others; of 2026 a folder with "
            "multiblimp_eng, blimp_nl, zhoblimp and others",
        ),
        "glue": (
            "",
            "the data of the fine-tunings: a folder with boolq.train.jsonl, "
            "boolq.valid.jsonl and others; of 2026 with en/arc/arc_en.train.jsonl and "
            "others; default: no fine-tuning",
        ),
        "against": (
            [],
            "other evaluated runs, separated by commas, that the run is compared with",
        ),
        "rule": (
            "auto",
            "the rule that texts are scored by; all: every one that the run has, auto: "
            "the first of them",
        ),
        "num_items": (
            0,
            "at most this many items of each zero-shot task, spread evenly; 0: all",
        ),
        "bos": (
            True,
            "causal rules give a text the token that precedes texts in training; "
            "--nobos: nothing, and its first token is not scored, as in the official "
            "pipeline with an exported run",
        ),
    },
)
def babylm(command: Command, argv: list[str]) -> int:
    """Evaluate a run as the BabyLM challenge does.

    Repeat the command to resume an evaluation that was stopped.
    """
    values = parse(command, argv)
    workdir = read_workdir(values)
    year = values["year"].value
    if year not in (2025, 2026):
        raise ConfigError(f"--year={year}: must be 2025 or 2026")
    if not (values.data or values.glue or values.against):
        raise ConfigError(
            "--data, --glue, --against: at least one of them must be given"
        )

    def work() -> int:
        lines: list[str] = []
        result: dict[str, Any] = {}
        if values.data or values.glue:
            result, lines = _evaluate_babylm(workdir, year, values)
        if values.against:
            from jaxpt.external.submissions import judge_submissions

            places = [workdir, *map(Path, values.against)]
            verdicts = judge_submissions(places, year, values.rule)
            result = result | {"verdicts": json.loads(verdicts.format("json"))}
            lines.append(verdicts.format("text"))
        show_result(values, result, lines)
        return 0

    return run_command(values, work)


def _evaluate_babylm(
    workdir: Path, year: int, values: FlagValues
) -> tuple[dict, list[str]]:
    """The scores of a run, and their lines for the terminal."""
    from jaxpt.finetuning import babylm as of_2025

    data, glue = map(localise, (values.data, values.glue))
    request = data, glue, values.rule, values.num_items, values.bos
    if year == 2026:
        from jaxpt.finetuning.multilingual import evaluate_multilingual

        result = evaluate_multilingual(workdir, *request, _log.info)
    else:
        result = of_2025.evaluate_babylm(workdir, *request, _log.info)
    return result, of_2025.format_scores(result)


@command(
    "finetune",
    example="""\
jaxpt finetune --from runs/mlm --config tasks/sst2 --to runs/sst2
jaxpt finetune --from google-bert/bert-base-uncased --config tasks/sst2 --to runs/b
jaxpt finetune --from runs/mlm --config tasks/sst2 --lr "(1e-4,3e-4)" \\
    --config.train.epochs="(3,)" --to runs/sst2_grid""",
    flags=OUTPUT
    | {
        "from": (
            "",
            "the run to fine-tune, its folder (--workdir is the same); scratch:FOLDER "
            "is its network with random initialization; or a model of transformers, a "
            "folder or a name on the Hugging Face Hub (ORG/NAME or ORG/NAME@REVISION)",
        ),
        "to": ("", "the fine-tuning's folder"),
    },
    config="finetuning",
)
def finetune(command: Command, argv: list[str]) -> int:
    """Fine-tune a run on a downstream task, over a grid of settings.

    Repeat the command to resume a grid that was stopped.
    """
    config, values, _ = parse_config(command, argv)
    source = values["from"].value or values.workdir
    if not source or (values["from"].value and values.workdir):
        raise ConfigError("--from: must name a run's folder, or --workdir, not both")
    to = read_to(values)
    from jaxpt.config.finetuning import make_finetune_plan

    plan = make_finetune_plan(config)

    def work() -> int:
        from jaxpt.finetuning.grid import finetune as run_grid
        from jaxpt.finetuning.summary import format_summary

        result = run_grid(plan, source, to, _log.info, for_export=True)
        show_result(values, result, [format_summary(result), values.to])
        return 0

    return run_command(values, work)


@command(
    "analyse",
    example="jaxpt analyse --runs runs/mlm runs/clm --to runs/analysis",
    flags=RUNS
    | {
        "to": ("", "the folder to write"),
        "file": ("", "a text to read; default: the first run's held-out text"),
        "text": ("", "a sentence whose attention is drawn"),
        "num_tokens": (4096, "tokens of the text that are read"),
        "length": (0, "tokens of a row; 0: 64, or less if a model reads less"),
        "layer": (0, "with --text: the layer that is drawn, from 1; 0: the last"),
        "head": (0, "with --text: the head that is drawn, from 1; 0: their mean"),
    },
    common=("trust",),
)
def analyse(command: Command, argv: list[str]) -> int:
    """Analyse the layers of runs on one text.

    Reports which layers are similar (CKA), how contextual the states are, and what
    attention heads attend to.
    """
    values = parse(command, repeat_flag(command, "runs", argv))
    to = read_to(values)
    start_jax()
    from jaxpt.distributed import processes
    from jaxpt.report.inspection.layers import AnalysisSpec
    from jaxpt.report.inspection.layers import analyse as analyse_runs
    from jaxpt.report.inspection.layers_page import format_states
    from jaxpt.runs.finished_runs import find_folders

    processes.check_alone()
    options: dict[str, Any] = {n: values[n].value for n in AnalysisSpec._fields}
    result = analyse_runs(find_folders(values.runs or []), AnalysisSpec(**options), to)
    return show([*format_states(result), f"\nanalysis: {to / 'analysis.html'}"])


@command(
    "fit-scaling",
    example="""\
jaxpt fit-scaling --runs runs/sizes/* --to runs/scaling
jaxpt fit-scaling --csv runs.csv""",
    flags=RUNS
    | {
        "to": ("", "the folder to write"),
        "csv": (
            "",
            "instead of --runs: a file with the columns params, tokens, loss and "
            "optionally flops and name",
        ),
        "metric": ("valid_loss", "of the runs: what is fitted"),
        "count": (
            "all",
            "which of the runs' trained parameters are N",
            ("all", "no_embeddings"),
        ),
        "num_draws": (200, "resampled fits, for the intervals"),
    },
    common=("trust",),
)
def fit_scaling(command: Command, argv: list[str]) -> int:
    """Fit scaling laws to runs of several sizes, or to a table of them.

    `jaxpt fit` is another command: it reports whether a run fits a device.
    """
    values = parse(command, repeat_flag(command, "runs", argv))
    if bool(values.runs) == bool(values.csv):
        raise ConfigError("--runs, --csv: exactly one of them must be given")
    from jaxpt.report import scaling

    if values.csv:
        refuse(values, ("metric", "count"), "is for --runs")
        groups = scaling.read_csv(fetch(values.csv))
    else:
        start_jax()
        from jaxpt.comparison.studies import load_all_runs
        from jaxpt.runs.finished_runs import find_folders

        runs = load_all_runs(find_folders(values.runs))
        groups = scaling.read_runs(runs, values.metric, str(values["count"].value))
    to = read_to(values) if values.to else None
    return show(scaling.fit_scaling(groups, to, values.num_draws))
