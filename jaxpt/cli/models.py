"""Commands that use a run: generate, fill, neighbours, applet, import, export."""

from collections.abc import Iterable
from typing import Any

from jaxpt.cli.flags import Command, command, parse, parse_config, repeat_flag
from jaxpt.cli.running import (
    opened,
    read_to,
    read_workdir,
    refuse,
    show,
    start_jax,
)
from jaxpt.errors import ConfigError
from jaxpt.files.remote import fetch

PRECISION = {
    "precision": (
        "float32",
        "of ONNX graphs: float32; or float16 or int8, smaller and less exact",
    )
}
# Flags of `jaxpt export` that apply to one format alone.
FORMAT_FLAGS: dict[str, tuple[str, ...]] = {
    "transformers": (
        *("family", "dtype", "max_shard_size"),
        *("license", "language", "push", "private"),
    ),
    "onnx": ("precision", "attentions"),
    "stablehlo": (),
}


@command(
    "export",
    example="""\
jaxpt export --workdir runs/mlm --to exported
jaxpt export --workdir runs/mlm --to half --dtype bfloat16 --max_shard_size 2GB
jaxpt export --workdir runs/mlm --to hf --license mit --push ORG/NAME --private
jaxpt export --workdir runs/compared --to models --push ORG/NAME
jaxpt export --workdir runs/mlm --to graphs --format onnx --precision int8
jaxpt export --workdir runs/mlm --to functions --format stablehlo""",
    flags=PRECISION
    | {
        "to": ("", "the new folder to write"),
        "format": ("transformers", "what to write", tuple(FORMAT_FLAGS)),
        "family": (
            "",
            "model_type of transformers, such as bert; default: the first that fits",
        ),
        "dtype": ("float32", "of the tensors: float32, bfloat16 or float16"),
        "max_shard_size": (
            "5GB",
            "of a file of tensors; KB, MB, GB, TB: powers of 1000",
        ),
        "license": (
            "",
            "for the model card, such as apache-2.0; default: the card states none",
        ),
        "language": ([], "of the text, for the model card, such as en or en,fr"),
        "push": ("", "upload the folder to this repository of the Hugging Face Hub"),
        "private": (False, "with --push: the repository must be private"),
        "attentions": (False, "ONNX graphs also return the attention weights"),
    },
)
def export(command: Command, argv: list[str]) -> int:
    """Write a run as a model of transformers, as ONNX graphs or as StableHLO.

    Of a comparison, the first seed of each objective becomes a folder of transformers
    in --to, whose model card has the comparison's verdicts. --push ORG/NAME uploads
    them to ORG/NAME-clm, ORG/NAME-mlm and so on. Objectives that no class of
    transformers represents are left out and listed, with exit code 1.
    """
    values = parse(command, argv)
    workdir, to = read_workdir(values), read_to(values)
    for name, unused in FORMAT_FLAGS.items():
        if name != values.format:
            refuse(values, unused, f"must be left out with --format={values.format}")
    if not values.push:
        refuse(values, ("private",), "must be left out without --push")
    start_jax()
    if values.format == "onnx":
        from jaxpt.hub.onnx_export import export_onnx

        return show(export_onnx(workdir, to, values.precision, values.attentions))
    if values.format == "stablehlo":
        from jaxpt.hub.stablehlo_export import export_stablehlo

        return show(export_stablehlo(workdir, to))
    from jaxpt.comparison.exports import export_comparison, is_comparison
    from jaxpt.finetuning.export import export_finetuned, is_finetuned
    from jaxpt.hub.export import ExportOptions, export_run
    from jaxpt.hub.upload import check_name, push_folder

    options = ExportOptions(
        values.dtype, values.max_shard_size, values.license, tuple(values.language)
    )
    if values.push:
        check_name(values.push)
    last: list[str] = []
    if is_comparison(workdir):
        refuse(values, ("family",), "must be left out for a comparison")
        repositories = {}
        exported = export_comparison(workdir, to, options)
        for name, lines in exported.lines.items():
            show(lines)
            repositories[f"{values.push}-{name}"] = to / name
        last = exported.summarise()
    else:
        write = export_finetuned if is_finetuned(workdir) else export_run
        show(write(workdir, to, values.family, options))
        repositories = {values.push: to}
    if values.push:
        for repository, folder in repositories.items():
            show(push_folder(folder, repository, values.private))
    show(last)
    return 1 if last else 0


@command(
    "applet",
    example="jaxpt applet --workdir runs/mlm runs/clm --to site",
    flags=PRECISION
    | {
        "workdir": (
            (),
            "folders of runs, separated by spaces; a comparison's folder means its "
            "runs of the first seed",
        ),
        "to": ("", "the new folder to write, a site"),
        "runtime": (
            "",
            "onnxruntime's WebAssembly (.wasm), or the archive of its npm package "
            "(.tgz), for use without a network; without the flag it is downloaded "
            "once",
        ),
    },
    common=("trust",),
)
def applet(command: Command, argv: list[str]) -> int:
    """Write a web page that runs models interactively in the browser."""
    values = parse(command, repeat_flag(command, "workdir", argv))
    to = read_to(values)
    start_jax()
    from jaxpt.hub.applets.site import write_site

    workdirs = [fetch(each) for each in values.workdir or []]
    return show(write_site(workdirs, to, values.precision, values.runtime))


@command(
    "import",
    example="""\
jaxpt import --from google-bert/bert-base-uncased --workdir runs/bert
jaxpt import --from openai-community/gpt2@main --workdir runs/gpt2
jaxpt import --from bert-base-uncased/ --workdir runs/bert""",
    flags={
        "from": (
            "",
            "a folder in the format of transformers; a model that comes with jaxpt, "
            "demo:NAME; or a name on the Hugging Face Hub: ORG/NAME or "
            "ORG/NAME@REVISION",
        ),
        "new_tokenizer": (
            "",
            "the file or folder of another tokenizer, for a new domain or language; "
            "embeddings of new tokens are means of old ones",
        ),
        "workdir": ("", "the new run's folder"),
    },
    config="pretraining",
    needs_config=False,
    common=("trust",),
)
def import_(command: Command, argv: list[str]) -> int:
    """Turn a model of Hugging Face transformers into a run."""
    config, values, explicit_names = parse_config(command, argv)
    workdir = read_workdir(values)
    if not values["from"].value:
        raise ConfigError(
            "--from: must name a folder that transformers wrote, or a model of the Hub"
        )
    start_jax()
    from jaxpt.hub.imports import import_run

    source, tokenizer = values["from"].value, values.new_tokenizer
    return show(import_run(source, workdir, config, explicit_names, tokenizer))


@command(
    "generate",
    example="""\
jaxpt generate --workdir runs/clm --prompt "The " --num_tokens 50
jaxpt generate --workdir gpt2 --prompt "The " --num_tokens 50""",
    flags={
        "prompt": ((), "text to continue; may be repeated"),
        "prompt_file": ("", "a file of prompts, one per line"),
        "num_tokens": (
            0,
            "at most this many new tokens; 0: up to the model's maximum length, beyond "
            "which the last tokens are read (nanoGPT)",
        ),
        "num_samples": (1, "texts per prompt"),
        "temperature": (1.0, "divides the logits; 0: greedy"),
        "top_k": (0, "sample from the k likeliest tokens; 0: all"),
        "top_p": (1.0, "nucleus sampling; 1: all tokens"),
        "repetition_penalty": (1.0, "above 1: repeats less"),
        "num_beams": (1, "above 1: beam search"),
        "length_penalty": (1.0, "of beam search; above 0: favours long texts"),
        "no_repeat_ngram_size": (0, "no sequence of n tokens occurs twice; 0: off"),
        "min_new_tokens": (0, "a text has at least this many new tokens"),
        "stop": ("", "a text that ends generation"),
        "num_steps": (0, "of unmasking; 0: one for each token, or left to right"),
        "seed": (0, "of the draws"),
    },
)
def generate(command: Command, argv: list[str]) -> int:
    """Generate text from a prompt.

    A causal model continues it; an encoder-decoder reads it with its encoder; a masked
    diffusion model unmasks tokens after it. A model that can do both continues it, and
    unmasks with --num_steps. Flags that are not given have the values that an imported
    model names. --workdir may be a model of transformers, a folder or a name on the
    Hugging Face Hub.
    """
    values = parse(command, argv)
    start_jax()
    from jaxpt.runs.predictions import generate_texts, read_prompts
    from jaxpt.runs.workdir import load_run

    prompts = read_prompts(values.prompt or [], values.prompt_file)
    # Settings that are not given are those of the model.
    names = set(command.flags) - {"prompt", "prompt_file"}
    names = {name for name in names if values[name].present}
    options: dict[str, Any] = {name: values[name].value for name in names}
    with opened(values) as workdir:
        return show(generate_texts(load_run(workdir), prompts, **options))


@command(
    "fill",
    example="""\
jaxpt fill --workdir runs/mlm --text "the st[MASK]te of the union"
jaxpt fill --workdir bert-base-uncased --text "the [MASK] of it" --top_k 3""",
    flags={
        "text": ("", "text with [MASK] in it"),
        "top_k": (5, "tokens per [MASK], or texts if the model writes a gap"),
    },
)
def fill(command: Command, argv: list[str]) -> int:
    """Predict the token at each [MASK] of a text, or write a gap of any length.

    --workdir may be a model of transformers, a folder or a name on the Hugging Face
    Hub.
    """
    values = parse(command, argv)
    start_jax()
    from jaxpt.runs.predictions import fill_text
    from jaxpt.runs.workdir import load_run

    with opened(values) as workdir:
        fills = fill_text(load_run(workdir), values.text, values.top_k)
    return show(
        f"[MASK] {number}: "
        + "  ".join(f"{name!r} {value:.3f}" for name, value in candidates)
        for number, candidates in enumerate(fills, 1)
    )


@command(
    "neighbours",
    example="jaxpt neighbours --workdir runs/mlm --word freedom",
    flags={
        "word": ("", "a word of the text"),
        "sentences": (4, "occurrences of the word to show"),
        "top_k": (6, "neighbours of each"),
    },
)
def neighbours(command: Command, argv: list[str]) -> int:
    """List the nearest neighbours of a word's vectors."""
    values = parse(command, argv)
    workdir = read_workdir(values)
    start_jax()
    from jaxpt.runs.predictions import neighbour_words

    result = neighbour_words(workdir, values.word, values.sentences, values.top_k)

    def format_similar(similar: Iterable[tuple[str, float]]) -> str:
        return "    " + "  ".join(f"{name} {cosine:.2f}" for name, cosine in similar)

    for text, similar in result.occurrences:
        show([text, format_similar(similar)])
    mean = f"mean vector of all {result.num_occurrences} occurrences"
    return show([mean, format_similar(result.overall)])
