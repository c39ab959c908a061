"""The command line: which commands there are; `jaxpt.commands` has them."""

import os
import sys
from collections.abc import Callable

from jaxpt.commands import discovery, downstream, models, texts, training
from jaxpt.errors import UserError, suggest
from jaxpt.version import __version__

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
            or as ONNX graphs       --workdir DIR --to FOLDER --format onnx
  applet    write runs as a page to play with their models, in a browser
                            --workdir RUN [RUN ...] --to SITE
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
  settings  every setting, its default and what it is       [SECTION] [--task NAME]
  list      what there is of objectives, presets, configs, tasks or corpora
  completion   for bash or zsh:   eval "$(jaxpt completion bash)"

Any setting of a config is a flag: --config.optim.lr=3e-4 --config.data.path=my.txt
A run's config.json is a config file too: --config runs/a/config.json
A config that comes with jaxpt goes by its name: --config quickstart
train, compare and evaluate run on several processes with --distributed (see launch/).
compare spreads its runs over processes and machines with --part or --ray (see launch/).
tokenizer, prepare, inspect and import work without --config, from default settings;
train works without it if --workdir holds a run, and then resumes that run.
A stored run whose objective is a module outside jaxpt needs --trust MODULE.
jaxpt COMMAND --help lists a command's flags.
"""


def main(argv: list[str] | None = None) -> int:
    """Runs one command; returns its exit code (2 for bad input)."""
    argv = sys.argv[1:] if argv is None else argv
    if not argv or argv[0] in ("help", "-h", "--help", "-help"):
        print(USAGE, end="")
        return 0 if argv else 2
    if argv[0] in ("version", "--version", "-version"):
        print(f"jaxpt {__version__}")
        return 0
    try:
        if argv[0] not in COMMANDS:
            raise UserError(
                f"{argv[0]}: unknown command{suggest(argv[0], COMMANDS)}; must be one "
                f"of {', '.join(COMMANDS)}"
            )
        return COMMANDS[argv[0]](argv[1:])
    except UserError as error:
        print(f"jaxpt: error: {error}", file=sys.stderr)
        return 2
    except BrokenPipeError:  # who read the output has enough: jaxpt list ... | head
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 141
    except KeyboardInterrupt:
        print("jaxpt: interrupted", file=sys.stderr)
        return 130


COMMANDS: dict[str, Callable[[list[str]], int]] = {
    "train": training.train,
    "compare": training.compare,
    "report": training.report,
    "analyse": downstream.analyse,
    "fit-scaling": downstream.fit_scaling,
    "tokenizer": texts.tokenizer,
    "prepare": texts.prepare,
    "inspect": texts.inspect,
    "finetune": downstream.finetune,
    "export": models.export,
    "applet": models.applet,
    "import": models.import_,
    "evaluate": downstream.evaluate,
    "generate": models.generate,
    "fill": models.fill,
    "neighbours": models.neighbours,
    "settings": discovery.settings,
    "list": discovery.list_,
    "completion": lambda argv: discovery.completion(COMMANDS, argv),
}
