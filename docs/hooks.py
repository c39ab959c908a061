"""Pages that are made of the code when the site is built, so that they cannot differ.

objectives/NAME.md       a module's docstring, its settings and its own functions, and a
                         picture of what it makes of a passage, objectives/NAME.png
reference/settings.md    every setting, its default and what it is
reference/tasks.md       the same of fine-tuning
reference/commands.md    what `jaxpt` and `jaxpt list` print
reference/api.md         the names of `import jaxpt`
"""

import html
import inspect
import os

from mkdocs.structure.files import File

# What is drawn computes little: most of the time would go into compiling it well.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")

import jaxpt
from jaxpt.cli import USAGE
from jaxpt.config.described import describe_finetuning, describe_settings
from jaxpt.config.plan import make_plans
from jaxpt.config.shipped import list_configs
from jaxpt.objectives import OBJECTIVES
from jaxpt.report import passage
from jaxpt.report.passage_plot import draw_views
from jaxpt.report.plots import render_figure
from jaxpt.tasks import TASKS
from jaxpt.text.dataset import load_text

# The passage that all are shown on: subwords of the embedded corpus's beginning.
PASSAGE = {
    "tokenizer.kind": "bpe",
    "tokenizer.vocab_size": 2000,
    "data.limit_chars": 2_000_000,
}
LENGTH, STEP = 10, 5  # tokens, and the step whose first row is drawn


def on_config(config):
    """MkDocs calls it first: a line of the navigation for each objective."""
    for entry in config["nav"]:
        if "Objectives" in entry:
            pages = [{name: f"objectives/{name}.md"} for name in OBJECTIVES]
            entry["Objectives"] = ["objectives/index.md", *pages]
    return config


def on_files(files, config):
    """MkDocs calls it with the files of docs/, to which the pages are added."""
    settings = describe_settings()
    pages = {
        f"objectives/{name}.md": make_objective(name, module, settings[name])
        for name, module in OBJECTIVES.items()
    }
    pages["reference/settings.md"] = make_settings(settings)
    pages["reference/tasks.md"] = make_task_settings()
    pages["reference/commands.md"] = make_commands()
    pages["reference/api.md"] = make_api()
    for name, picture in draw_pictures().items():
        pages[f"objectives/{name}.png"] = picture
    for path, text in pages.items():
        files.append(File.generated(config, path, content=text))
    return files


def draw_pictures() -> dict[str, bytes]:
    """A PNG of each objective: one passage as it is read, its targets and its mask."""
    names, drawn = list(OBJECTIVES), {}
    config = jaxpt.read_config("quickstart", PASSAGE)
    plans = make_plans(config, names, list(PASSAGE))
    tokenizer, corpora = load_text(next(iter(plans.values())).text)
    for name, plan in plans.items():
        seen = passage.view(name, plan, tokenizer, corpora["train"], LENGTH, STEP)
        drawn[name] = render_figure(draw_views([seen], ""), dpi=100)
    return drawn


def make_objective(name, module, settings) -> str:
    """A page of an objective: what its module says of itself."""
    title, _, text = module.__doc__.partition("\n")
    alt = f"One passage under {name}: the text, the inputs, the targets, the mask"
    lines = [f"# {name}", "", f"**{title}**", escape_prose(text), ""]
    # As HTML, of which MkDocs does not know that the page lies in a folder of its own.
    shown = f'<img src="../{name}.png" alt="{alt}">'
    lines += [f'<div class="wide">{shown}</div>', ""]
    lines += [
        f"Drawn by `jaxpt inspect --config quickstart --objectives={name}` with "
        + " ".join(f"`--config.{key}={value}`" for key, value in PASSAGE.items())
        + f" `--length={LENGTH} --step={STEP} --to page`.",
        "",
    ]
    lines += ["## Settings", ""]
    lines += make_table(settings) if settings else ["It has none of its own."]
    path = f"jaxpt/{module.__name__.partition('.')[2].replace('.', '/')}.py"
    lines += ["", "## Functions", "", f"As they stand in `{path}`.", ""]
    for function in "corrupt masks loss train_step".split():
        source = inspect.getsource(getattr(module, function)).rstrip()
        lines += [f"### {function}", "", "```python", source, "```", ""]
    return "\n".join(lines)


def make_settings(sections) -> str:
    """A table for each section."""
    lines = ["# Settings", ""]
    lines += [
        "Each is a flag: `--config.train.steps=100`. `jaxpt settings` prints them.",
        "",
    ]
    for name, settings in sections.items():
        if settings:
            lines += [f"## {name}", "", *make_table(settings), ""]
    return "\n".join(lines)


def make_task_settings() -> str:
    """Those of `jaxpt finetune`: a table for each task, and what all share."""
    lines = ["# Settings of fine-tuning", ""]
    lines += [
        "Flags of `jaxpt finetune`, as `jaxpt settings --task NAME` prints them.",
        "",
    ]
    for task in TASKS:
        lines += [
            f"## task: {task}",
            "",
            *make_table(describe_finetuning(task)["task"]),
            "",
        ]
    for name, settings in describe_finetuning().items():
        lines += [f"## {name}", "", *make_table(settings), ""]
    return "\n".join(lines)


def make_commands() -> str:
    """The usage, and the configs by their names."""
    lines = ["# Commands", "", "```", USAGE.rstrip(), "```", "", "## Configs", ""]
    lines += ["| `--config` | |", "|---|---|"]
    lines += [f"| `{name}` | {escape(text)} |" for name, text in list_configs().items()]
    return "\n".join([*lines, ""])


def make_api() -> str:
    """The public names, each by its own docstring."""
    lines = ["# Python", "", "The names of `import jaxpt`.", ""]
    for name in jaxpt.__all__:
        if name in jaxpt.PLACES:
            lines += [f"::: {jaxpt.PLACES[name]}.{name}", "    options:"]
            lines += ["      heading_level: 2", ""]
    return "\n".join(lines)


def make_table(settings) -> list[str]:
    """A line for each setting."""
    rows = ["| setting | default | |", "|---|---|---|"]
    for each in settings:
        default = each.default.replace("|", "\\|")
        rows.append(f"| `{each.name}` | `{default}` | {escape(each.text)} |")
    return rows


def escape(text: str) -> str:
    """Plain text in a cell of a table, code in backticks kept."""
    parts = text.split("`")
    for i in range(0, len(parts), 2):
        plain = html.escape(parts[i], quote=False)
        for mark in "*_[]":
            plain = plain.replace(mark, "\\" + mark)
        parts[i] = plain
    return "`".join(parts).replace("|", "\\|")


def escape_prose(text: str) -> str:
    """A docstring's paragraphs; what is indented there is a block of code."""
    lines = text.splitlines()
    return "\n".join(
        x if x.startswith("    ") else escape(x).replace("\\|", "|") for x in lines
    )
