"""Pages that are generated from the code when the site is built.

objectives/NAME.md       docstring, settings and functions of an objective's module, and
                         a picture of one passage under it, objectives/NAME.svg
reference/settings.md    every setting with its default and description
reference/tasks.md       the same for fine-tuning
reference/commands.md    the output of `jaxpt` and `jaxpt list`
reference/api.md         the names of `import jaxpt`
reference/PACKAGE.md     functions and classes of jaxpt.objectives, .ops, .nn, .judge
results.md               the studies and records of results/, with their pictures
negative.md              results/negative.md
"""

import html
import inspect
import logging
import os
import pathlib
import re
import sys

from mkdocs.structure.files import File

# The pictures need little computation, so fast compilation matters more.
os.environ.setdefault("XLA_FLAGS", "--xla_backend_optimization_level=0")

sys.path.insert(0, str(pathlib.Path(__file__).parents[1] / "results" / "tools"))

from results_page import make_results_page

import jaxpt
from jaxpt.cli.main import USAGE
from jaxpt.config.described import describe_settings
from jaxpt.config.finetuning import describe_finetuning
from jaxpt.config.plan import make_plans
from jaxpt.config.shipped import list_configs
from jaxpt.objectives import OBJECTIVES
from jaxpt.report.inspection import passage
from jaxpt.report.inspection.passage_drawing import draw_views
from jaxpt.tasks import TASKS
from jaxpt.text.dataset import load_text

# The passage of all pictures: subwords of the beginning of the embedded corpus.
PASSAGE = {
    "tokenizer.kind": "bpe",
    "tokenizer.vocab_size": 2000,
    "data.limit_chars": 2_000_000,
    "future_summary.horizon": 4,  # of few tokens
    "latent_prediction.horizon": 4,
}
LENGTH, STEP = 10, 5  # tokens; the step whose first row is drawn
# Subpackages whose modules have a reference page.
PACKAGES = ("objectives", "ops", "nn", "judge")
RESULTS = pathlib.Path(__file__).parents[1] / "results"


def on_config(config):
    """Called first by MkDocs: adds a navigation entry for each objective."""
    for entry in config["nav"]:
        if "Objectives" in entry:
            pages = [{name: f"objectives/{name}.md"} for name in OBJECTIVES]
            entry["Objectives"] = ["objectives/index.md", *pages]
    return config


def on_files(files, config):
    """Called by MkDocs with the files of docs/: adds the generated pages."""
    settings = describe_settings()
    pages = {
        f"objectives/{name}.md": make_objective(name, module, settings[name])
        for name, module in OBJECTIVES.items()
    }
    pages["reference/settings.md"] = make_settings(settings)
    pages["reference/tasks.md"] = make_task_settings()
    pages["reference/commands.md"] = make_commands()
    pages["reference/api.md"] = make_api()
    for package in PACKAGES:
        pages[f"reference/{package}.md"] = make_package(package)
    pages |= make_results_page(RESULTS)
    pages["negative.md"] = (RESULTS / "negative.md").read_text(encoding="utf-8")
    for name, picture in draw_pictures().items():
        pages[f"objectives/{name}.svg"] = picture
    for path, text in pages.items():
        files.append(File.generated(config, path, content=text))
    return files


def on_page_markdown(markdown, page, **_) -> str:
    """Prints a file of the repository in the place of `<!-- source: FILE -->`."""
    if page.is_homepage:  # its output of 100 columns needs the room
        page.meta["hide"] = ["toc"]

    def show(match) -> str:
        source = (pathlib.Path(__file__).parents[1] / match[1]).read_text().rstrip()
        return f"```python\n{source}\n```"

    return re.sub(r"^<!-- source: (\S+) -->$", show, markdown, flags=re.M)


def draw_pictures() -> dict[str, bytes]:
    """An SVG for each objective: one passage as inputs, targets and attention mask."""
    names, pictures = list(OBJECTIVES), {}
    # Its warnings concern training on rows as short as a picture's.
    logging.getLogger("jaxpt").setLevel(logging.ERROR)
    config = jaxpt.read_config("quickstart", PASSAGE)
    plans = make_plans(config, names, list(PASSAGE))
    tokenizer, corpora = load_text(next(iter(plans.values())).text)
    for name, plan in plans.items():
        view = passage.view(name, plan, tokenizer, corpora["train"], LENGTH, STEP)
        pictures[name] = draw_views([view], "").encode()
    return pictures


def make_objective(name, module, settings) -> str:
    """The page of an objective, from its module."""
    title, _, text = module.__doc__.partition("\n")
    alt = f"One passage under {name}: the text, the inputs, the targets, the mask"
    lines = [f"# {name}", "", f"**{title}**", escape_prose(text), ""]
    # As HTML, because MkDocs serves the page from its own folder.
    image = f'<img src="../{name}.svg" alt="{alt}">'
    lines += [f'<div class="wide">{image}</div>', ""]
    lines += [
        f"Drawn by `jaxpt inspect --config quickstart --objectives={name}` with "
        + " ".join(f"`--config.{key}={value}`" for key, value in PASSAGE.items())
        + f" `--length={LENGTH} --step={STEP} --to page`.",
        "",
    ]
    lines += ["## Settings", ""]
    lines += make_table(settings) if settings else ["None."]
    path = f"jaxpt/{module.__name__.partition('.')[2].replace('.', '/')}.py"
    lines += ["", "## Functions", "", f"From `{path}`.", ""]
    for function in "corrupt masks loss train_step".split():
        source = inspect.getsource(getattr(module, function)).rstrip()
        lines += [f"### {function}", "", "```python", source, "```", ""]
    return "\n".join(lines)


def make_settings(sections) -> str:
    """A page with a table for each section of settings."""
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
    """The settings of `jaxpt finetune`: of each task, and those that all share."""
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
    """The usage of `jaxpt`, and the names of the configs."""
    lines = ["# Commands", "", "```", USAGE.rstrip(), "```", "", "## Configs", ""]
    lines += ["| `--config` | |", "|---|---|"]
    lines += [f"| `{name}` | {escape(text)} |" for name, text in list_configs().items()]
    return "\n".join([*lines, ""])


def make_api() -> str:
    """The public names with their docstrings."""
    lines = ["# Python", "", "The names of `import jaxpt`.", ""]
    for name in jaxpt.__all__:
        if name in jaxpt.PLACES:
            lines += [f"::: {jaxpt.PLACES[name]}.{name}", "    options:"]
            lines += ["      heading_level: 2", ""]
    return "\n".join(lines)


def make_package(package) -> str:
    """A page with the documented functions and classes of a subpackage."""
    root = pathlib.Path(jaxpt.__file__).parent / package
    # Other pages come first in the search.
    lines = ["---", "search:", "  boost: 0.001", "---", f"# jaxpt.{package}", ""]
    lines += ["`jaxpt/dims.py` explains the letters of array shapes.", ""]
    for path in sorted(root.rglob("*.py")):
        parts = path.relative_to(root.parent).with_suffix("").parts
        if path.name != "__init__.py":
            lines += [f"::: jaxpt.{'.'.join(parts)}", "    options:"]
            lines += ["      heading_level: 2", "      show_root_full_path: true", ""]
    return "\n".join(lines)


def make_table(settings) -> list[str]:
    """A table of settings, for which extra.css has a form on phones."""
    rows = ['<div class="settings" markdown>', ""]
    rows += ["| setting | default | |", "|---|---|---|"]
    for each in settings:
        default = each.default.replace("|", "\\|")
        rows.append(f"| `{each.name}` | `{default}` | {escape(each.text)} |")
    return [*rows, "", "</div>"]


def escape(text: str) -> str:
    """Plain text for a table cell; code in backticks is kept."""
    parts = text.split("`")
    for i in range(0, len(parts), 2):
        plain = html.escape(parts[i], quote=False)
        for mark in "*_[]":
            plain = plain.replace(mark, "\\" + mark)
        parts[i] = plain
    return "`".join(parts).replace("|", "\\|")


def escape_prose(text: str) -> str:
    """The paragraphs of a docstring; indented text becomes a code block."""
    lines = text.splitlines()
    return "\n".join(
        x if x.startswith("    ") else escape(x).replace("\\|", "|") for x in lines
    )
