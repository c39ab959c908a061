"""Samples of each model's work in a report: taken, on the page, in the terminal.

Every objective is given the same passages, which nobody chose: they are spread evenly
over the held-out text.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from jaxpt.generation.samples import Piece, write_line
from jaxpt.text.dataset import Split
from jaxpt.text.tokens.tokenizer import Tokenizer
from jaxpt.training import passage_samples
from jaxpt.training.program import Program
from jaxpt.training.workdir import load_task

NUM_PASSAGES = 3


class Form(NamedTuple):
    """How a form of samples is called, and what is seen in it."""

    title: str
    text: str


FORMS = {
    "fakes": Form(
        "spots fakes",
        "one token in seven was filled by its generator, which draws as in training; "
        "what differs from the text is a fake. As many tokens as there are fakes are "
        "marked: those that the discriminator finds most likely replaced.",
    ),
    "spans": Form(
        "fills spans",
        "up to three spans of three tokens were hidden behind sentinels; the decoder's "
        "likeliest answer stands in their place.",
    ),
    "rewriting": Form(
        "writes a text again",
        "up to three spans of three tokens were hidden behind one [MASK] each; this is "
        "the whole of what the decoder wrote.",
    ),
    "continuation": Form(
        "continues",
        "the first half of the passage was read; the likeliest tokens follow, and "
        "below them how the text continues.",
    ),
    "fills": Form(
        "fills [MASK]s",
        "one token in seven was a [MASK]; the likeliest token stands in its place.",
    ),
}
RULE = (
    "The passages are spread evenly over the held-out text, the first one beginning "
    "with its first token and the last one ending with its last, and are the same for "
    "all that read this text; nobody chose them. What is hidden lies at fixed places. "
    "Samples are of the first seed of an objective; they illustrate, and measure "
    "nothing."
)


class Collector:
    """Takes samples of runs as they are drawn.

    Attributes:
      found: {name: {"seed", "forms": {form: [a list of (text, kind, truth) of each
        passage]}}}, as report.json has it under "samples".
    """

    def __init__(
        self, report: dict, corpora_of: Mapping[str, dict[str, Split]], workdir: Path
    ):
        self._corpora_of = corpora_of
        first: dict[str, dict] = {}
        for entry in report["runs"]:
            first.setdefault(entry["name"], entry)
        lengths = [
            passage_samples.passage_length(load_task(workdir / entry["workdir"])[0])
            for name, entry in first.items()
            if name in corpora_of
        ]
        self._length = min(lengths, default=0)
        self.found: dict[str, dict] = {}

    def add(self, entry: dict, program: Program, tokenizer: Tokenizer, params) -> None:
        """Samples of one run's parameters, in every form that its network can give."""
        corpora = self._corpora_of[entry["name"]]
        split = corpora.get("heldout", corpora["valid"])
        passages = passage_samples.choose_passages(split, self._length, NUM_PASSAGES)
        forms = passage_samples.list_forms(program.task) if len(passages) else []
        taken = {
            form: passage_samples.make_taker(form, program, tokenizer, passages)(params)
            for form in forms
        }
        self.found[entry["name"]] = {
            "seed": entry["seed"],
            "forms": {
                form: [[list(piece) for piece in sample] for sample in of_passages]
                for form, of_passages in taken.items()
            },
        }


def list_samples(report: dict) -> list[str]:
    """Of each objective what it is trained for, on the first passage, a line each."""
    lines = []
    for name, taken in report.get("samples", {}).items():
        for form, of_passages in list(taken["forms"].items())[:1]:
            line = write_line([Piece(*piece) for piece in of_passages[0]])
            lines.append(f"{name} {FORMS[form].title}: {line}")
    if not lines:
        return []
    legend = (
        "[right], [wrong≠truth]; of fakes [found≠truth], (not found≠truth), !no fake!"
    )
    return ["", f"samples of the first held-out passage: {legend}", *lines]
