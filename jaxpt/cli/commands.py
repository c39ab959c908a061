"""The commands by name: what `jaxpt --help` lists, without the code behind them."""

from typing import Any

from jaxpt.by_name import ByName

# {group: {name: (place, first line of its help)}}, as a user meets them.
GROUPS: dict[str, dict[str, tuple[str, str]]] = {
    "Data": {
        "tokenizer": (
            "jaxpt.cli.texts:tokenizer",
            "Train a tokenizer on text and write it as one file",
        ),
        "prepare": (
            "jaxpt.cli.texts:prepare",
            "Tokenize the text of a config and store it on disk",
        ),
        "inspect": (
            "jaxpt.cli.texts:inspect",
            "Show rows of tokens before and after an objective's corruption",
        ),
    },
    "Train": {
        "train": (
            "jaxpt.cli.train:train",
            "Train a model under one objective, or resume its training",
        ),
        "fit": (
            "jaxpt.cli.fit:fit",
            "Report whether a run fits a GPU or TPU that you do not have",
        ),
        "finetune": (
            "jaxpt.cli.downstream:finetune",
            "Fine-tune a run on a downstream task, over a grid of settings",
        ),
    },
    "Use": {
        "generate": ("jaxpt.cli.models:generate", "Generate text from a prompt"),
        "fill": (
            "jaxpt.cli.models:fill",
            "Predict the token at each [MASK] of a text, or write a gap of any length",
        ),
        "neighbours": (
            "jaxpt.cli.models:neighbours",
            "List the nearest neighbours of a word's vectors",
        ),
        "applet": (
            "jaxpt.cli.models:applet",
            "Write a web page that runs models interactively in the browser",
        ),
    },
    "Evaluate": {
        "evaluate": (
            "jaxpt.cli.downstream:evaluate",
            "Evaluate a run on held-out text, or on zero-shot tasks with --tasks",
        ),
        "judge-text": (
            "jaxpt.cli.downstream:judge_text",
            "Judge generated text by a model: perplexity, MAUVE, repetition, entropy",
        ),
        "babylm": (
            "jaxpt.cli.downstream:babylm",
            "Evaluate a run as the BabyLM challenge does",
        ),
        "analyse": (
            "jaxpt.cli.downstream:analyse",
            "Analyse the layers of runs on one text",
        ),
    },
    "Compare": {
        "compare": (
            "jaxpt.cli.compare:compare",
            "Train several objectives at equal cost and report which learned most",
        ),
        "report": (
            "jaxpt.cli.compare:report",
            "Report on finished runs, as `jaxpt compare` does; train nothing",
        ),
        "verdict": (
            "jaxpt.cli.verdict:verdict",
            "Rank systems by their results, from lm-eval samples or a table of scores",
        ),
        "fit-scaling": (
            "jaxpt.cli.downstream:fit_scaling",
            "Fit scaling laws to runs of several sizes, or to a table of them",
        ),
        "archive": (
            "jaxpt.cli.results:archive",
            "Store a finished comparison as a study of a few small files",
        ),
        "reproduce": (
            "jaxpt.cli.results:reproduce",
            "Train the runs of an archived study again and compare the means",
        ),
    },
    "Check": {
        "doctor": (
            "jaxpt.cli.results:doctor",
            "Verify the files of a run, comparison, store, export or study",
        ),
    },
    "Import and export": {
        "import": (
            "jaxpt.cli.models:import_",
            "Turn a model of Hugging Face transformers into a run",
        ),
        "export": (
            "jaxpt.cli.models:export",
            "Write a run as a model of transformers, or as ONNX graphs",
        ),
    },
    "Help": {
        "settings": (
            "jaxpt.cli.discovery:settings",
            "Describe the settings of a config",
        ),
        "list": (
            "jaxpt.cli.discovery:list_",
            "List the objectives, presets, configs, tasks, models or corpora",
        ),
        "completion": (
            "jaxpt.cli.discovery:completion",
            "Print a completion script for bash, zsh or fish",
        ),
    },
}
# Each a `jaxpt.cli.flags.Command`, whose module is imported when it is looked up.
COMMANDS: ByName[Any] = ByName(
    {name: place for group in GROUPS.values() for name, (place, _) in group.items()}
)
