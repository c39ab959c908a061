"""Commands on text: train a tokenizer, prepare a corpus, look at corrupted rows."""

import contextlib
import tempfile
from pathlib import Path

from absl.flags import FlagValues

from jaxpt import trust
from jaxpt.cli.flags import Command, command, parse, parse_config
from jaxpt.cli.running import read_to, refuse, show, start_jax
from jaxpt.config.settings import AnyConfig
from jaxpt.errors import ConfigError
from jaxpt.files import remote
from jaxpt.objectives import OBJECTIVES

READS_TEXT = {
    "config": "pretraining",
    "sections": ("data", "tokenizer"),
    "short": ("objective", "data"),
    "needs_config": False,
    "common": ("trust",),
}


@command(
    "tokenizer train",
    example="""\
jaxpt tokenizer train --data my.txt --config.tokenizer.kind=bpe \\
    --config.tokenizer.vocab_size=8192 --to tokenizer.json""",
    flags={"to": ("", "the .json file to write")},
    **READS_TEXT,
)
def tokenizer(command: Command, argv: list[str]) -> int:
    """Train a tokenizer on text and write it as one file.

    The text and the tokenizer are those of the config; without --config all settings
    are at their defaults. Use it with tokenizer.kind=file and tokenizer.path=FILE.
    """
    if argv[:1] != ["train"]:
        if argv and argv[0] in ("--help", "-h", "-help"):
            parse(command, argv)
        word = argv[0] if argv else "nothing"
        raise ConfigError(f"tokenizer {word}: must be tokenizer train")
    config, values, _ = parse_config(command, argv[1:])
    if not values.to:
        raise ConfigError("--to: must name the file to write, such as tokenizer.json")
    from jaxpt.training.prepare_text import write_tokenizer

    if not trust.is_url(values.to):
        write_tokenizer(config, Path(values.to))
        return 0
    remote.check_new(values.to)
    with tempfile.TemporaryDirectory() as place:
        path = Path(place, values.to.rpartition("/")[2])
        write_tokenizer(config, path)
        remote.upload(path, values.to)
    return 0


RAY = {
    "ray": (
        "",
        "prepare the parts on a Ray cluster and merge them: local (this machine), auto "
        "(the one this machine belongs to) or its address; needs --to",
    ),
    "ray_parts": (int, "with --ray: the number of parts; default: one for 64 MiB"),
    "ray_cpus": (int, "with --ray: CPUs that each part takes; default: 1"),
    "ray_retries": (
        int,
        "with --ray: how often a part may lose its machine; default: 3",
    ),
}


@command(
    "prepare",
    example="jaxpt prepare --config quickstart --data my.txt --to stores/my",
    flags={
        "to": ("", "the new folder; default: in the cache"),
        "workers": (0, "processes; 0: one per core"),
        "part": (
            "",
            "prepare one part of the text, such as 0/8 to 7/8 on eight machines; needs "
            "--to",
        ),
        "merge": (int, "merge this number of finished parts into --to"),
    }
    | RAY,
    **READS_TEXT,
)
def prepare(command: Command, argv: list[str]) -> int:
    """Tokenize the text of a config and store it on disk.

    `jaxpt train` does this automatically for a new text. A folder written with --to can
    be used in place of the text: --data FOLDER. Several machines share the work with
    --part I/N, then one of them writes the folder with --merge N.
    """
    config, values, _ = parse_config(command, argv)
    if values.part or values.merge is not None:
        refuse(values, RAY, "must be without --part and --merge")
        return _prepare_in_parts(config, values)
    if any(values[name].present for name in RAY):
        return _prepare_on_ray(config, values)
    from jaxpt.training.prepare_text import prepare_text

    to = read_to(values) if values.to else None
    with remote.hold_output(to) if to else contextlib.nullcontext():
        prepare_text(config, to, values.workers)
    return 0


def _prepare_in_parts(config: AnyConfig, values: FlagValues) -> int:
    from jaxpt.training.prepare_text import merge_text_parts, prepare_text_part

    name = "part" if values.part else "merge"
    if not values.to:
        raise ConfigError(f"--{name}={values[name].value}: needs --to, the folder")
    if values.part:
        refuse(values, ["merge"], "must be without --part; merge when all have ended")
        prepare_text_part(config, values.part, values.to, values.workers)
    else:
        refuse(values, ["workers"], "is for the parts; --merge does not tokenize")
        merge_text_parts(config, values.merge, values.to)
    return 0


def _prepare_on_ray(config: AnyConfig, values: FlagValues) -> int:
    from jaxpt.comparison.on_ray import Cluster
    from jaxpt.comparison.prepare_on_ray import prepare_on_ray

    options = {name: values[f"ray_{name}"].value for name in ("cpus", "retries")}
    if not values.ray:
        refuse(values, RAY, "is for --ray")
    if not values.to:
        raise ConfigError(f"--ray={values.ray}: needs --to, the folder")
    refuse(values, ["workers"], "must be without --ray; use --ray_cpus")
    cluster = Cluster.read(values.ray, options | {"gpus": 0})
    assert cluster is not None
    prepare_on_ray(cluster, config, values.to, values.ray_parts)
    return 0


@command(
    "inspect",
    example="""\
jaxpt inspect --config quickstart:mlm --num_rows 3
jaxpt inspect --config quickstart --objectives clm,mlm,electra --to pages/passage""",
    flags={
        "step": (0, "the step whose rows are shown"),
        "num_rows": (2, "how many rows to show"),
        "to": ("", "folder: write one passage as a page"),
        "objectives": ([], "objectives of the page; default: all that are compared"),
        "length": (16, "tokens of the page's passage"),
    },
    **READS_TEXT | {"sections": ("data", "tokenizer", "model", "train", *OBJECTIVES)},
)
def inspect(command: Command, argv: list[str]) -> int:
    """Show rows of tokens before and after an objective's corruption.

    With --to, writes a web page that shows one passage under several objectives.
    """
    config, values, explicit_names = parse_config(command, argv)
    trust.trust(values.objectives)
    start_jax()
    if values.to:
        from jaxpt.report.inspection.rows import inspect_passage

        to = read_to(values)
        options = values.objectives, to, values.length, values.step
        with remote.hold_output(to):
            return show(inspect_passage(config, *options, explicit_names))
    refuse(values, ("objectives", "length"), "is for a page, with --to")
    from jaxpt.config.plan import make_plan
    from jaxpt.report.inspection.rows import inspect_rows
    from jaxpt.runs.data import with_token_counts
    from jaxpt.runs.progress_bars import make_reporter
    from jaxpt.runs.task import make_task
    from jaxpt.text.dataset import load_text

    plan = make_plan(config, explicit_names)
    text, corpora = load_text(plan.text, reporter=make_reporter())
    task = make_task(plan, with_token_counts(plan, text.vocab, corpora["train"]))
    return show(inspect_rows(task, text, corpora, values.step, values.num_rows))
