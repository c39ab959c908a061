"""The task of writing: a run continues held-out text, and another model judges it.

    {"reference": "heldout.txt", "judge": "runs/judge"}

The reference is cut into passages of `prompt_words` and `num_words` words; a run reads
the first words of a passage and writes at most the number of tokens of the others. Its
text without the prompt is judged next to the real continuations
(`zero_shot.written_text`).
Paths are relative to the folder of the file; the judge is a run's folder or whatever
else `jaxpt.load` reads.
"""

import dataclasses
import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple, Protocol

from jaxpt.errors import DataError
from jaxpt.evaluation.scores import SampleSpec
from jaxpt.setting_types import (
    NonNegativeFloat,
    NonNegativeInt,
    PositiveFraction,
    PositiveInt,
    Settings,
)
from jaxpt.zero_shot.outcomes import SAMPLES, Outcome, ZeroShotTask
from jaxpt.zero_shot.text_tasks import read_texts
from jaxpt.zero_shot.verbalised import read_task_file
from jaxpt.zero_shot.written_text import LOG_PERPLEXITY, TextJudge, compare_texts

WORD = re.compile(r"\s*\S+")
RULE = "written"
RULES = {RULE: "written: texts that the run wrote after the prompts"}


@dataclasses.dataclass(frozen=True)
class GenerationSpec(Settings):
    """A validated task file.

    Attributes:
      reference: the held-out text.
      judge: the model that judges.
      num_samples: at most this many passages, evenly spaced.
      prompt_words, num_words: of a passage: those that are read, and the others.
      temperature, top_k, top_p: as of `SampleSpec`.
      num_steps: of unmasking; 0: one for each token, or from left to right.
      seed: of the draws.
      num_clusters: of MAUVE; 0: a tenth of the number of passages.
    """

    reference: str
    judge: str
    num_samples: PositiveInt = 256
    prompt_words: PositiveInt = 8
    num_words: PositiveInt = 48
    temperature: NonNegativeFloat = 1.0
    top_k: NonNegativeInt = 0
    top_p: PositiveFraction = 1.0
    num_steps: NonNegativeInt = 0
    seed: int = 0
    num_clusters: NonNegativeInt = 0

    @classmethod
    def full_name(cls, name: str) -> str:
        return name

    @property
    def sampling(self) -> SampleSpec:
        """How tokens are drawn."""
        return SampleSpec(self.temperature, self.top_k, self.top_p)


class PromptedText(NamedTuple):
    """A prompt, the real text after it, and the task's settings."""

    prompt: str
    truth: str
    spec: GenerationSpec


class Continue(Protocol):
    """Continues prompts by a run."""

    def __call__(
        self,
        prompts: Sequence[str],
        truths: Sequence[str],
        sampling: SampleSpec,
        seed: int,
        num_steps: int,
    ) -> list[tuple[str, str]]:
        """What was written after each prompt, and the real text of that length."""
        ...


class WritingContext(NamedTuple):
    """What the task reads of a run, and how its judge is loaded."""

    continue_texts: Continue
    load_judge: Callable[[str], TextJudge]


def read_generation_spec(path: str) -> GenerationSpec:
    """Reads a task file."""
    names = [field.name for field in dataclasses.fields(GenerationSpec)]
    values = read_task_file(path, names[:2], names[2:])
    try:
        spec = GenerationSpec(**values)
    except DataError:
        raise
    except ValueError as error:
        raise DataError(f"{path}: {error}") from None
    folder = Path(path).parent
    judge = folder / spec.judge
    return dataclasses.replace(
        spec,
        reference=str(folder / spec.reference),
        judge=str(judge) if judge.exists() else spec.judge,
    )


def cut_passages(
    texts: Sequence[str], prompt_words: int, num_words: int
) -> list[tuple[str, str]]:
    """Prompts and the text after each, one after the other; the rest is left out.

    >>> cut_passages(["a b c d  e f g"], 1, 2)
    [('a', ' b c'), (' d', '  e f')]
    """
    size, passages = prompt_words + num_words, []
    for text in texts:
        words = WORD.findall(text)
        for start in range(0, len(words) - size + 1, size):
            middle = start + prompt_words
            prompt = "".join(words[start:middle])
            passages.append((prompt, "".join(words[middle : start + size])))
    return passages


def read_passages(path: str) -> list[PromptedText]:
    """The passages of a task file's reference."""
    spec = read_generation_spec(path)
    texts = read_texts(spec.reference)
    passages = cut_passages(texts, spec.prompt_words, spec.num_words)
    if len(passages) < 2:
        raise DataError(
            f"{spec.reference}: has {len(passages)} passages of "
            f"{spec.prompt_words + spec.num_words} words; must have at least 2"
        )
    num = min(spec.num_samples, len(passages))
    chosen = [passages[i * len(passages) // num] for i in range(num)]
    return [PromptedText(prompt, truth, spec) for prompt, truth in chosen]


def evaluate_generation(
    context: WritingContext, items: Sequence[PromptedText], rules: Sequence[str]
) -> dict[str, Outcome]:
    """The measures of a run's texts, with those of the real ones."""
    spec = items[0].spec
    judge = context.load_judge(spec.judge)
    pairs = context.continue_texts(
        [item.prompt for item in items],
        [item.truth for item in items],
        spec.sampling,
        spec.seed,
        spec.num_steps,
    )
    written, real = map(list, zip(*pairs, strict=True))
    outcome = compare_texts(judge, written, real, spec.num_clusters)
    return dict.fromkeys(rules, outcome)


TASK = ZeroShotTask(
    read_passages,
    evaluate_generation,
    reads=SAMPLES,
    own_rules=RULES,
    compared={
        LOG_PERPLEXITY: False,
        "mauve": True,
        "entropy": True,
        "seq_rep_4": False,
    },
)
