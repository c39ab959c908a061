"""Commands that use a run: export, import, applets, text, fills, neighbours."""

from pathlib import Path

from absl import flags

from jaxpt.commands.running import (
    read_workdir,
    start_jax,
)
from jaxpt.config.flags import (
    define_generation,
    list_given,
    parse,
    parse_config,
    repeat_flag,
)
from jaxpt.errors import UserError

FORMATS = ("transformers", "onnx")


def _define_precision(values) -> None:
    flags.DEFINE_string(
        "precision",
        "float32",
        "of ONNX graphs: float32; or float16 or int8, smaller and less exact",
        flag_values=values,
    )


def export(argv: list[str]) -> int:
    """jaxpt export: writes a run as transformers loads it, or as ONNX graphs."""

    def define(values):
        flags.DEFINE_string("to", "", "the new folder to write", flag_values=values)
        flags.DEFINE_enum(
            "format", "transformers", FORMATS, "what to write", flag_values=values
        )
        flags.DEFINE_string(
            "family",
            "",
            "model_type of transformers, such as bert; default: the first that fits",
            flag_values=values,
        )
        _define_precision(values)
        flags.DEFINE_bool(
            "attentions",
            False,
            "ONNX graphs give the weights of all attention heads, too",
            flag_values=values,
        )

    values = parse("export", argv, define)
    workdir = read_workdir(values)
    if not values.to:
        raise UserError("--to: must name the folder to write")
    is_onnx = values.format == "onnx"
    for name in ("family",) if is_onnx else ("precision", "attentions"):
        if values[name].present:
            raise UserError(
                f"--{name}={values[name].value}: must be left out with "
                f"--format={values.format}"
            )
    start_jax()
    if is_onnx:
        from jaxpt.hub.onnx_export import export_onnx

        to = Path(values.to)
        for line in export_onnx(workdir, to, values.precision, values.attentions):
            print(line)
        return 0
    from jaxpt.finetuning.export import export_finetuned, is_finetuned
    from jaxpt.hub.export import export_run

    if is_finetuned(workdir):
        for line in export_finetuned(workdir, Path(values.to), values.family):
            print(line)
        return 0
    for line in export_run(workdir, Path(values.to), values.family):
        print(line)
    return 0


def applet(argv: list[str]) -> int:
    """jaxpt applet: writes runs as a page on which one plays with their models."""

    def define(values):
        flags.DEFINE_multi_string(
            "workdir",
            None,
            "folders of runs, with spaces between; a comparison's folder stands for "
            "its runs of the first seed",
            flag_values=values,
        )
        flags.DEFINE_string(
            "to", "", "the new folder to write, a site", flag_values=values
        )
        _define_precision(values)

    values = parse("applet", repeat_flag("workdir", argv), define)
    if not values.to:
        raise UserError("--to: must name the folder to write")
    start_jax()
    from jaxpt.applets.site import write_site

    workdirs = [Path(each) for each in values.workdir or []]
    for line in write_site(workdirs, Path(values.to), values.precision):
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
    workdir = read_workdir(values)
    if not values["from"].value:
        raise UserError("--from: must name a folder that transformers wrote")
    start_jax()
    from jaxpt.hub.imports import import_run

    source, given = Path(values["from"].value), list_given(values)
    for line in import_run(source, workdir, config, given):
        print(line)
    return 0


def generate(argv: list[str]) -> int:
    """jaxpt generate: continues prompts, or decodes from them as an encoder's input."""
    values = parse("generate", argv, define_generation)
    workdir = read_workdir(values)
    start_jax()
    from jaxpt.inference.predictions import generate_texts, read_prompts
    from jaxpt.training.workdir import load_run

    prompts = read_prompts(values.prompt or [], values.prompt_file)
    for text in generate_texts(
        load_run(workdir),
        prompts,
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
    workdir = read_workdir(values)
    start_jax()
    from jaxpt.inference.predictions import fill_text
    from jaxpt.training.workdir import load_run

    found = fill_text(load_run(workdir), values.text, values.top_k)
    for number, candidates in enumerate(found):
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
    workdir = read_workdir(values)
    start_jax()
    from jaxpt.inference.predictions import neighbour_words

    found = neighbour_words(workdir, values.word, values.sentences, values.top_k)
    show = "  ".join
    for text, near in found.occurrences:
        print(text)
        print("    " + show(f"{name} {cosine:.2f}" for name, cosine in near))
    print(f"mean vector of all {found.num_occurrences} occurrences")
    print("    " + show(f"{name} {cosine:.2f}" for name, cosine in found.overall))
    return 0
