"""Example sentences for the page of a model."""

import re
from pathlib import Path
from typing import NamedTuple

from jaxpt.errors import UserError
from jaxpt.runs.workdir import LoadedRun, load_corpora

# For a run without its text, such as an imported model.
DEFAULT = (
    "The president will speak to the congress about the new law.",
    "We must make peace with all the nations of the world.",
    "The people of this country have the right to vote.",
)
WORDS = 6, 24  # of a sentence, at least and at most
SENTENCE = re.compile(r"[A-Z][^.!?\n]*[.!?]")
NUM_TOKENS = 100_000  # of held-out text, from which sentences are taken


class ExampleTexts(NamedTuple):
    """Example sentences, and whether they are from the run's held-out text."""

    texts: list[str]
    are_own: bool


def choose_examples(run: LoadedRun, workdir: Path, num: int) -> ExampleTexts:
    """Whole sentences of the run's held-out text, evenly spread.

    They have a length that the model reads at once. A run without its text, or with too
    few sentences, has general ones.
    """
    fitting = [text for text in _heldout_sentences(run, workdir) if _fits(run, text)]
    step = max(1, len(fitting) // num)
    chosen = fitting[::step][:num]
    if len(chosen) >= min(num, len(DEFAULT)):
        return ExampleTexts(chosen, are_own=True)
    general = [text for text in DEFAULT if _fits(run, text)]
    return ExampleTexts(general or list(DEFAULT), are_own=False)


def _heldout_sentences(run: LoadedRun, workdir: Path) -> list[str]:
    try:
        corpora = load_corpora(workdir, run.program.task, run.tokenizer)
    except UserError:
        return []
    part = corpora["valid"].parts[0]
    text = run.tokenizer.decode(part.read(0, min(part.num_tokens, NUM_TOKENS)))
    return [" ".join(each.split()) for each in SENTENCE.findall(text)]


def _fits(run: LoadedRun, text: str) -> bool:
    """Whether the model reads it at once, without an unknown character."""
    if not WORDS[0] <= len(text.split()) <= WORDS[1]:
        return False
    task = run.program.task
    room = min(task.read_length, task.model_spec.max_len)
    room -= len(task.text_form.before) + len(task.text_form.after)
    return len(run.tokenizer.encode(text)) <= room and not run.tokenizer.count_unknown(
        text
    )
