"""Takes samples of each model for a report, and prints them in the terminal.

Every objective reads the same passages, spread evenly over the held-out text.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from jaxpt.evaluation.samples import Piece, write_line
from jaxpt.report.formats import first_runs
from jaxpt.runs import passage_samples
from jaxpt.runs.program import Program
from jaxpt.runs.workdir import load_task
from jaxpt.text.dataset import Split
from jaxpt.text.tokens.tokenizer import Tokenizer

NUM_PASSAGES = 3


class Form(NamedTuple):
    """The title of a form of samples, and its description."""

    title: str
    text: str


FORMS = {
    "fakes": Form(
        "detects replaced tokens",
        "one token in seven was drawn from its generator, as in training, and counts "
        "as replaced if it differs from the text. With n replaced tokens, the n that "
        "the discriminator finds most likely replaced are marked.",
    ),
    "spans": Form(
        "fills spans",
        "up to three spans of three tokens were replaced by sentinels; the decoder's "
        "likeliest answer is inserted.",
    ),
    "rewriting": Form(
        "reconstructs the text",
        "up to three spans of three tokens were replaced by one [MASK] each; this is "
        "the decoder's whole output.",
    ),
    "gaps": Form(
        "fills a gap",
        "a span of three tokens was removed; the likeliest tokens, written after both "
        "sides of the gap, are inserted.",
    ),
    "continuation": Form(
        "continues",
        "the first half of the passage is the prompt; the likeliest tokens follow, and "
        "below them the text's continuation.",
    ),
    "fills": Form(
        "fills [MASK]s",
        "one token in seven was a [MASK]; the likeliest token is inserted.",
    ),
}
RULE = (
    "The passages are spread evenly over the held-out text, from its first token to "
    "its last, and are the same for all objectives with this text; they were not "
    "selected by hand. The hidden positions are fixed. Samples are of an objective's "
    "first seed; they are illustrations and not measurements."
)


class Collector:
    """Takes samples of runs while their figures are drawn.

    Attributes:
      by_name: {name: {"seed", "forms": {form: [a list of (text, kind, truth) of each
        passage]}}}, as report.json has it under "samples".
    """

    def __init__(
        self, report: dict, corpora_of: Mapping[str, dict[str, Split]], workdir: Path
    ):
        self._corpora_of = corpora_of
        lengths = [
            passage_samples.passage_length(load_task(workdir / entry["workdir"])[0])
            for name, entry in first_runs(report["runs"]).items()
            if name in corpora_of
        ]
        self._length = min(lengths, default=0)
        self.by_name: dict[str, dict] = {}

    def add(self, entry: dict, program: Program, tokenizer: Tokenizer, params) -> None:
        """Takes samples of one run's parameters, in every form that its network has."""
        corpora = self._corpora_of[entry["name"]]
        split = corpora.get("heldout", corpora["valid"])
        passages = passage_samples.choose_passages(split, self._length, NUM_PASSAGES)
        forms = passage_samples.list_forms(program.task) if len(passages) else []
        taken = {
            form: passage_samples.make_taker(form, program, tokenizer, passages)(params)
            for form in forms
        }
        self.by_name[entry["name"]] = {
            "seed": entry["seed"],
            "forms": {
                form: [[list(piece) for piece in sample] for sample in of_passages]
                for form, of_passages in taken.items()
            },
        }


def list_samples(report: dict) -> list[str]:
    """A line for each objective: a sample of its task, on the first passage."""
    lines = []
    for name, taken in report.get("samples", {}).items():
        for form, of_passages in list(taken["forms"].items())[:1]:
            line = write_line([Piece(*piece) for piece in of_passages[0]])
            lines.append(f"{name} {FORMS[form].title}: {line}")
    if not lines:
        return []
    legend = (
        "[right], [wrong≠truth]; replaced tokens: [detected≠truth], (missed≠truth), "
        "!false alarm!"
    )
    return ["", f"samples of the first held-out passage: {legend}", *lines]
