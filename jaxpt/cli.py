"""The commands and their flags; `jaxpt.config.flags` reads configs and settings."""

import sys
from pathlib import Path
from typing import Any

from absl import flags

from jaxpt.config.flags import (
    TASK_OPTIONS,
    define_analysis,
    define_generation,
    define_parts,
    define_scaling,
    define_tasks,
    list_given,
    parse,
    parse_config,
    repeat_flag,
)
from jaxpt.errors import UserError

USAGE = """usage: jaxpt COMMAND [flags]

  train     train one run; resumes if it was stopped
                            --config configs/quickstart.py --workdir DIR
  compare   train several objectives at an equal budget and write a report
                            --config configs/quickstart.py --workdir DIR
  report    the same report of runs that exist, without training
                            --runs runs/a runs/b --workdir DIR
  tokenizer train   train a tokenizer on text   --config FILE --to tokenizer.json
  prepare   tokenise a text and store it on disk       --config FILE [--to DIR]
  inspect   show rows before and after an objective's corruption  --config FILE
  finetune  train a run for a downstream task
                            --from RUN --config configs/tasks/sst2.py --to DIR
  export    write a run as a transformers model      --workdir DIR --to FOLDER
  import    turn a transformers model into a run   --from FOLDER --workdir DIR
  evaluate  a run's metrics on held-out text                    --workdir DIR
            or zero-shot tasks    --workdir DIR --tasks blimp:PATH,pairs:FILE
  analyse   runs on one text: alike layers, contextual states, attention heads
                            --runs runs/a runs/b --to DIR
  fit-scaling   scaling laws of runs of several sizes   --runs runs/* [--to DIR]
  generate  text from a causal model or an encoder-decoder
                            --workdir DIR --prompt TEXT
  fill      predict each [MASK]  --workdir DIR --text "... [MASK] ..."
  neighbours  nearest neighbours of a word's vectors
                            --workdir DIR --word TEXT

Any setting of a config is a flag: --config.optim.lr=3e-4 --config.data.path=my.txt
A run's config.json is a config file too: --config runs/a/config.json
train, compare and evaluate run on several processes with --distributed (see launch/).
compare spreads its runs over processes and machines with --part or --ray (see launch/).
tokenizer, prepare, inspect and import work without --config, from default settings;
train works without it if --workdir holds a run, and then resumes that run.
jaxpt COMMAND --help lists a command's flags.
"""


def main(argv: list[str] | None = None) -> int:
    """Runs one command; returns its exit code (2 for bad input)."""
    argv = sys.argv[1:] if argv is None else argv
    if not argv or argv[0] in ("help", "-h", "--help", "-help"):
        print(USAGE, end="")
        return 0 if argv else 2
    try:
        if argv[0] not in COMMANDS:
            raise UserError(
                f"{argv[0]}: unknown command; must be one of {', '.join(COMMANDS)}"
            )
        return COMMANDS[argv[0]](argv[1:])
    except UserError as error:
        print(f"jaxpt: error: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("jaxpt: interrupted", file=sys.stderr)
        return 130


def _define_processes(values: flags.FlagValues) -> None:
    """The flags of commands that can run as one of several processes."""
    flags.DEFINE_boolean(
        "distributed", False, "run as one of several processes", flag_values=values
    )
    flags.DEFINE_integer(
        "heartbeat_seconds",
        100,
        "seconds without a heartbeat until a process counts as dead",
        flag_values=values,
    )


def _run(values: flags.FlagValues, function) -> int:
    """Runs a command's work, together with the other processes if there are any."""
    _start_jax()
    from jaxpt import processes
    from jaxpt.run.signals import Stopped

    if values.distributed:
        processes.start(values.heartbeat_seconds)
    else:
        processes.check_alone()
    try:
        return processes.guard(function)
    except Stopped as stop:
        if processes.is_first():
            print(f"jaxpt: {stop}", file=sys.stderr)
        return 128 + stop.signum


def _workdir(values) -> Path:
    from jaxpt.run.workdir import check_workdir

    return check_workdir(values.workdir)


def _start_jax() -> None:
    from jaxpt.processes import set_cache

    set_cache()


def train(argv: list[str]) -> int:
    """jaxpt train: one run; started again, it resumes."""
    config, values = _config_or_stored(argv)
    workdir, given = _workdir(values), None
    if "config" in values:
        given = list_given(values)
    return _run(values, lambda: _train(config, workdir, given))


def _train(config, workdir: Path, given: list[str] | None) -> int:
    """Trains; without the names that the user has given, the config is a run's own."""
    from jaxpt import processes
    from jaxpt.config.plan import make_plan
    from jaxpt.folder import hold
    from jaxpt.run import loop
    from jaxpt.run.data import with_token_counts
    from jaxpt.run.run_framing import with_framing
    from jaxpt.run.task import make_task
    from jaxpt.run.teacher import with_teacher
    from jaxpt.run.text_progress import SILENT, make_reporter
    from jaxpt.text.dataset import load_text

    plan = processes.run_on_all(
        lambda: make_plan(config, given or (), given is None, is_run=True)
    )
    reporter = make_reporter() if processes.is_first() else SILENT
    with hold(workdir):  # locked before the text, which may take long to prepare
        tokenizer, corpora = processes.first_then_rest(
            lambda: load_text(plan.text, reporter=reporter)
        )
        plan = with_teacher(plan, tokenizer, corpora, workdir / "teacher", given or ())
        held = with_framing(tokenizer.vocab, workdir)
        vocab = with_token_counts(plan, held, corpora["train"])
        task = processes.run_on_all(lambda: make_task(plan, vocab))
        result = loop.train(task, tokenizer, corpora, workdir)
    if processes.is_first():
        _print_metrics(result["metrics"])
        print(f"{result['steps']} steps in {result['train_seconds']:.1f} s; {workdir}")
    return 0


def _flag_names(argv: list[str]) -> set[str]:
    return {arg.lstrip("-").partition("=")[0].partition(".")[0] for arg in argv}


def _config_or_stored(argv: list[str]):
    """The config of --config; without it, that of the run in --workdir."""
    names = _flag_names(argv)
    if "config" in names or "workdir" not in names:
        return parse_config("train", argv, _define_processes)
    values = parse("train", argv, _define_processes)
    from jaxpt.folder import load_config

    what = "without --config, --workdir must hold a run"
    return load_config(_workdir(values) / "config.json", what), values


def compare(argv: list[str]) -> int:
    """jaxpt compare: trains several objectives at one budget and writes a report."""

    def define(values):
        _define_processes(values)
        define_parts(values)

    names, given = _flag_names(argv), []
    is_kept = "part" in names and "config" not in names
    if is_kept and (values := parse("compare", argv, define)).part != "prepare":
        from jaxpt.report.parts import load_compared

        config = load_compared(_workdir(values))
    else:
        config, values = parse_config("compare", argv, define)
        given = list_given(values)
    return _compare(config, _workdir(values), given, values)


def _compare(config, workdir: Path, given: list[str], values) -> int:
    from jaxpt import processes
    from jaxpt.report.on_ray import Cluster, compare_on_ray
    from jaxpt.report.parts import Part, do_part

    part = Part(values.part, values.run, values.run_index)
    asked = {name: values[f"ray_{name}"].value for name in Cluster.FLAGS}
    if cluster := Cluster.read(values.ray, asked):
        if part.what or values.distributed:
            raise UserError("--ray: must be without --part and --distributed")
        print(compare_on_ray(cluster, config, workdir, given))
        return 0

    def do():
        told = do_part(part, config, workdir, given)
        if processes.is_first():
            print(told)
        return 0

    return _run(values, do)


def report(argv: list[str]) -> int:
    """jaxpt report: compares finished runs, whoever trained them; trains nothing."""

    def define(values):
        flags.DEFINE_multi_string(
            "runs",
            None,
            "folders of finished runs, or globs of them: one or several, with spaces "
            "or commas between; may be repeated",
            flag_values=values,
        )

    values = parse("report", repeat_flag("runs", argv), define)
    workdir = _workdir(values)
    _start_jax()
    from jaxpt import processes
    from jaxpt.report.found_runs import find_folders
    from jaxpt.report.runs_report import report_runs
    from jaxpt.report.summary import format_table

    processes.check_alone()
    print(format_table(report_runs(find_folders(values.runs or []), workdir)))
    print(f"\nreport: {workdir / 'report.html'}")
    return 0


def analyse(argv: list[str]) -> int:
    """jaxpt analyse: what is in the layers of runs, on one text."""
    values = parse("analyse", repeat_flag("runs", argv), define_analysis)
    if not values.to:
        raise UserError("--to: must name the folder to write")
    _start_jax()
    from jaxpt import processes
    from jaxpt.report.analysis import AnalysisSpec
    from jaxpt.report.analysis import analyse as analyse_runs
    from jaxpt.report.analysis_page import format_states
    from jaxpt.report.found_runs import find_folders

    processes.check_alone()
    given: dict[str, Any] = {n: values[n].value for n in AnalysisSpec._fields}
    spec = AnalysisSpec(**given)
    result = analyse_runs(find_folders(values.runs or []), spec, Path(values.to))
    for line in format_states(result):
        print(line)
    print(f"\nanalysis: {Path(values.to) / 'analysis.html'}")
    return 0


def fit_scaling(argv: list[str]) -> int:
    """jaxpt fit-scaling: scaling laws of finished runs, or of a table of them."""

    values = parse("fit-scaling", repeat_flag("runs", argv), define_scaling)
    if bool(values.runs) == bool(values.csv):
        raise UserError("--runs, --csv: exactly one of them must be given")
    for name in ("metric", "count"):
        if values.csv and values[name].present:
            raise UserError(f"--{name}={values[name].value}: is for --runs")
    from jaxpt.report import scaling

    if values.csv:
        groups = scaling.read_csv(Path(values.csv))
    else:
        _start_jax()
        from jaxpt.report.found_runs import find_folders, load_runs

        runs = load_runs(find_folders(values.runs))
        groups = scaling.read_runs(runs, values.metric, str(values["count"].value))
    to = Path(values.to) if values.to else None
    for line in scaling.fit_scaling(groups, to, values.num_draws):
        print(line)
    return 0


def tokenizer(argv: list[str]) -> int:
    """jaxpt tokenizer train: trains the config's tokenizer on its text."""
    if argv[:1] != ["train"]:
        given = argv[0] if argv else "nothing"
        raise UserError(f"tokenizer {given}: must be tokenizer train")

    def define(values):
        flags.DEFINE_string("to", "", "the .json file to write", flag_values=values)

    config, values = parse_config("tokenizer train", argv[1:], define)
    if not values.to:
        raise UserError("--to: must name the file to write, such as tokenizer.json")
    from jaxpt.run.prepare_text import write_tokenizer

    write_tokenizer(config, Path(values.to))
    return 0


def prepare(argv: list[str]) -> int:
    """jaxpt prepare: tokenises the config's text and stores it, as train also does."""

    def define(values):
        flags.DEFINE_string(
            "to", "", "the new folder; default: in the cache", flag_values=values
        )
        flags.DEFINE_integer(
            "workers", 0, "processes; 0: one per core", flag_values=values
        )

    config, values = parse_config("prepare", argv, define)
    from jaxpt.run.prepare_text import prepare_text

    prepare_text(config, Path(values.to) if values.to else None, values.workers)
    return 0


def inspect(argv: list[str]) -> int:
    """jaxpt inspect: shows rows, or one passage under several objectives as a page."""

    def define(values):
        flags.DEFINE_integer(
            "step", 0, "the step whose rows are shown", flag_values=values
        )
        flags.DEFINE_integer("num_rows", 2, "how many rows to show", flag_values=values)
        flags.DEFINE_string(
            "to", "", "folder: write one passage as a page", flag_values=values
        )
        flags.DEFINE_list(
            "objectives",
            [],
            "objectives of the page; default: all of compare.objectives",
            flag_values=values,
        )
        flags.DEFINE_integer(
            "length", 16, "tokens of the page's passage", flag_values=values
        )

    config, values = parse_config("inspect", argv, define)
    _start_jax()
    from jaxpt.config.plan import make_plan
    from jaxpt.report.inspect import inspect_rows
    from jaxpt.run.data import with_token_counts
    from jaxpt.run.task import make_task
    from jaxpt.run.text_progress import make_reporter
    from jaxpt.text.dataset import load_text

    if values.to:
        from jaxpt.report.inspect import inspect_passage

        lines = inspect_passage(
            config,
            values.objectives,
            Path(values.to),
            values.length,
            values.step,
            list_given(values),
        )
        for line in lines:
            print(line)
        return 0
    for name in ("objectives", "length"):
        if values[name].present:
            raise UserError(f"--{name}={values[name].value}: is for a page, with --to")
    plan = make_plan(config, list_given(values))
    tokenizer, corpora = load_text(plan.text, reporter=make_reporter())
    task = make_task(plan, with_token_counts(plan, tokenizer.vocab, corpora["train"]))
    for line in inspect_rows(task, tokenizer, corpora, values.step, values.num_rows):
        print(line)
    return 0


def export(argv: list[str]) -> int:
    """jaxpt export: writes a run, or a fine-tuned one, as transformers loads it."""

    def define(values):
        flags.DEFINE_string("to", "", "the new folder to write", flag_values=values)
        flags.DEFINE_string(
            "family",
            "",
            "model_type of transformers, such as bert; default: the first that fits",
            flag_values=values,
        )

    values = parse("export", argv, define)
    workdir = _workdir(values)
    if not values.to:
        raise UserError("--to: must name the folder to write")
    _start_jax()
    from jaxpt.finetune.export import export_finetuned, is_finetuned
    from jaxpt.hub.export import export_run

    if is_finetuned(workdir):
        for line in export_finetuned(workdir, Path(values.to), values.family):
            print(line)
        return 0
    for line in export_run(workdir, Path(values.to), values.family):
        print(line)
    return 0


def import_(argv: list[str]) -> int:
    """jaxpt import: makes a run from a folder of transformers, to train further."""

    def define(values):
        flags.DEFINE_string(
            "from", "", "the folder that transformers wrote", flag_values=values
        )
        flags.DEFINE_string("workdir", "", "the new run's folder", flag_values=values)

    config, values = parse_config("import", argv, define)
    workdir = _workdir(values)
    if not values["from"].value:
        raise UserError("--from: must name a folder that transformers wrote")
    _start_jax()
    from jaxpt.hub.imports import import_run

    source, given = Path(values["from"].value), list_given(values)
    for line in import_run(source, workdir, config, given):
        print(line)
    return 0


def finetune(argv: list[str]) -> int:
    """jaxpt finetune: trains a run for a downstream task, a grid of settings and seeds.

    Started again, it goes on.
    """

    def define(values):
        flags.DEFINE_string(
            "from",
            "",
            "the run to fine-tune, its folder (--workdir says the same); "
            "scratch:FOLDER is its network with fresh parameters; or a folder of "
            "transformers",
            flag_values=values,
        )
        flags.DEFINE_string("to", "", "the fine-tuning's folder", flag_values=values)

    config, values = parse_config("finetune", argv, define)
    source = values["from"].value or values.workdir
    if not source or (values["from"].value and values.workdir):
        raise UserError("--from: must name a run's folder, or --workdir, not both")
    if not values.to:
        raise UserError("--to: must name the folder to write")
    from jaxpt.config.finetuning import make_finetune_plan

    plan = make_finetune_plan(config)

    def do():
        from jaxpt.finetune.grid import finetune as run_grid
        from jaxpt.finetune.grid import show

        print(show(run_grid(plan, source, Path(values.to), _say)))
        print(values.to)
        return 0

    return _alone(do)


def _say(line: str) -> None:
    print(line, flush=True)


def _alone(function) -> int:
    """Runs work of one process that a signal may stop."""
    _start_jax()
    from jaxpt import processes
    from jaxpt.run.signals import Stopped

    processes.check_alone()
    try:
        return function()
    except Stopped as stop:
        print(f"jaxpt: {stop}", file=sys.stderr)
        return 128 + stop.signum


def evaluate(argv: list[str]) -> int:
    """jaxpt evaluate: a run's metrics on held-out text, from its last checkpoint."""

    def define(values):
        _define_processes(values)
        define_tasks(values)

    values = parse("evaluate", argv, define)
    workdir = _workdir(values)
    if values.tasks:
        options = {name: values[name].value for name in TASK_OPTIONS}
        asked = values.tasks, values.rule, values.num_items, options
        return _run(values, lambda: _evaluate_tasks(workdir, *asked))
    for name in ("rule", "num_items", *TASK_OPTIONS):
        if values[name].present:
            raise UserError(f"--{name}={values[name].value}: is for --tasks")
    return _run(values, lambda: _evaluate(workdir))


def _evaluate_tasks(
    workdir: Path, told: list[str], rule: str, num_items: int, options: dict
) -> int:
    from jaxpt import processes
    from jaxpt.eval.outcomes import Options
    from jaxpt.run.zero_shot import evaluate_tasks, format_result

    for result in evaluate_tasks(workdir, told, rule, num_items, Options(**options)):
        if processes.is_first():
            print("\n".join(format_result(result, workdir)))
    return 0


def _evaluate(workdir: Path) -> int:
    from jaxpt import processes
    from jaxpt.run.measure import measure
    from jaxpt.run.workdir import load_corpora, load_run

    program, tokenizer, params, step = load_run(workdir)
    corpora = processes.first_then_rest(
        lambda: load_corpora(workdir, program.task, tokenizer)
    )
    metrics = measure(program, params, corpora, program.task.plan.train.seed)
    if processes.is_first():
        whose = " (EMA of the parameters)" if program.task.has_ema else ""
        print(f"step {step}{whose}")
        _print_metrics(metrics)
    return 0


def generate(argv: list[str]) -> int:
    """jaxpt generate: continues prompts, or decodes from them as an encoder's input."""
    values = parse("generate", argv, define_generation)
    workdir = _workdir(values)
    _start_jax()
    from jaxpt.run.inference import generate_texts, read_prompts

    for text in generate_texts(
        workdir,
        read_prompts(values.prompt or [], values.prompt_file),
        values.num_tokens,
        values.num_samples,
        values.seed,
        values.stop,
        values.num_steps,
        temperature=values.temperature,
        top_k=values.top_k,
        top_p=values.top_p,
        repetition_penalty=values.repetition_penalty,
        num_beams=values.num_beams,
        length_penalty=values.length_penalty,
    ):
        print(text)
    return 0


def fill(argv: list[str]) -> int:
    """jaxpt fill: the likeliest tokens for each [MASK], by a masked language model."""

    def define(values):
        flags.DEFINE_string("text", "", "text with [MASK] in it", flag_values=values)
        flags.DEFINE_integer("top_k", 5, "tokens per [MASK]", flag_values=values)

    values = parse("fill", argv, define)
    workdir = _workdir(values)
    _start_jax()
    from jaxpt.run.inference import fill_text

    for number, candidates in enumerate(fill_text(workdir, values.text, values.top_k)):
        shown = "  ".join(f"{name!r} {value:.3f}" for name, value in candidates)
        print(f"[MASK] {number + 1}: {shown}")
    return 0


def neighbours(argv: list[str]) -> int:
    """jaxpt neighbours: a word's nearest neighbours, by occurrence and overall."""

    def define(values):
        flags.DEFINE_string("word", "", "a word of the text", flag_values=values)
        flags.DEFINE_integer(
            "sentences", 4, "occurrences of the word to show", flag_values=values
        )
        flags.DEFINE_integer("top_k", 6, "neighbours of each", flag_values=values)

    values = parse("neighbours", argv, define)
    workdir = _workdir(values)
    _start_jax()
    from jaxpt.run.inference import neighbour_words

    found = neighbour_words(workdir, values.word, values.sentences, values.top_k)
    show = "  ".join
    for text, near in found.occurrences:
        print(text)
        print("    " + show(f"{name} {cosine:.2f}" for name, cosine in near))
    print(f"mean vector of all {found.num_occurrences} occurrences")
    print("    " + show(f"{name} {cosine:.2f}" for name, cosine in found.overall))
    return 0


def _print_metrics(metrics: dict[str, float]) -> None:
    for name, value in metrics.items():
        print(f"{name:28s} {value:.4f}")


COMMANDS = {
    "train": train,
    "compare": compare,
    "report": report,
    "analyse": analyse,
    "fit-scaling": fit_scaling,
    "tokenizer": tokenizer,
    "prepare": prepare,
    "inspect": inspect,
    "finetune": finetune,
    "export": export,
    "import": import_,
    "evaluate": evaluate,
    "generate": generate,
    "fill": fill,
    "neighbours": neighbours,
}
