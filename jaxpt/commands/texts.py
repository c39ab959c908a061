"""Commands on text: its tokenizer, what is prepared of it, rows to look at."""

from pathlib import Path

from absl import flags

from jaxpt import trust
from jaxpt.commands.running import (
    start_jax,
)
from jaxpt.config.flags import (
    list_given,
    parse_config,
)
from jaxpt.errors import UserError


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
    from jaxpt.training.prepare_text import write_tokenizer

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
    from jaxpt.training.prepare_text import prepare_text

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
    trust.trust(values.objectives)
    start_jax()
    from jaxpt.config.plan import make_plan
    from jaxpt.report.inspect import inspect_rows
    from jaxpt.text.dataset import load_text
    from jaxpt.training.data import with_token_counts
    from jaxpt.training.task import make_task
    from jaxpt.training.text_progress import make_reporter

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
