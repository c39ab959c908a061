"""The settings of rows: their form, its keys and the special tokens around texts."""

from dataclasses import dataclass
from typing import Annotated, ClassVar

from jaxpt.errors import ConfigError
from jaxpt.setting_types import Fraction, NonNegativeInt, OneOf, PositiveInt, Settings
from jaxpt.text.tokens.vocab import Vocab
from jaxpt.text_form import TextForm

PLAIN = ("chunks", "windows")
PACKED = ("packed", "full_sentences", "doc_sentences")
# The forms of pairs, and the key of their label.
PAIRS = {"pairs": "is_random_next", "ordered_pairs": "is_swapped"}
PAIR_KEYS = ("tokens", "segment_ids", "type_ids")
NUM_SPECIALS = 3  # of a pair: [CLS] A [SEP] B [SEP]
SEGMENTED = (*PACKED, *PAIRS)  # their rows have segment_ids
FORMS = (*PLAIN, *PACKED, *PAIRS)
LONG_DOCUMENTS = ("split", "truncate")
# The settings that add optional keys to rows.
CARRIERS = {
    "segment_ids": "data.rows=packed",
    "type_ids": "data.rows=pairs",
    "is_random_next": "data.rows=pairs",
    "is_swapped": "data.rows=ordered_pairs",
    "sentence_ids": "data.sentence_ids=True",
    "answers": "data.answers_only=True",
}


@dataclass(frozen=True)
class RowsSpec(Settings):
    """The form of rows; the settings `data.*` of the same names.

    Attributes:
      row_length: tokens in a row.
      rows: the form. "chunks": consecutive rows of the joined documents. "windows":
        rows that begin at a random token, as in nanoGPT. "packed": whole documents,
        packed by best fit. "full_sentences", "doc_sentences": consecutive whole
        sentences, across documents or not (RoBERTa). "pairs": two segments, the second
        one often from another document (BERT). "ordered_pairs": two consecutive
        segments, often swapped (ALBERT).
      long_documents: whether "packed" splits documents longer than a row or truncates
        them. The sentence forms always split sentences longer than a row.
      max_documents: the maximum number of documents in a packed row.
      isolate_documents: whether the documents of a packed row are separate segments.
      sentence_ids: whether rows have the sentence number of each token.
      answers_only: whether losses are read in the answers of a task only, and nothing
        else is hidden: the nodes of the path in `star:`, the values in `recall:`, and
        in `facts:` keys and values. Filled in for these languages, if the objective can
        do so; others read the whole text.
      add_special_tokens: whether each row of chunks or windows begins and ends with the
        special tokens that a text has: those of an imported model, else [CLS] and
        [SEP].
      dupe_factor: the number of passes over the text in an epoch of pairs.
      short_seq_prob: the probability that pairs aim at a random shorter length.
      seed: of the random choices of pairs.
    """

    SECTION: ClassVar[str] = "data"

    row_length: PositiveInt
    rows: Annotated[str, OneOf(*FORMS)] = "chunks"
    long_documents: Annotated[str, OneOf(*LONG_DOCUMENTS)] = "split"
    max_documents: PositiveInt = 8
    isolate_documents: bool = True
    sentence_ids: bool = False
    answers_only: bool = False
    add_special_tokens: bool = False
    dupe_factor: PositiveInt = 10
    short_seq_prob: Fraction = 0.1
    seed: NonNegativeInt = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        least = NUM_SPECIALS + 2
        is_good = self.rows not in PAIRS or self.row_length >= least
        self.check("row_length", is_good, f"at least {least} for sentence pairs")
        if self.sentence_ids and self.rows in PAIRS:
            raise ConfigError(
                f"data.sentence_ids=True: must be False with data.rows={self.rows!r}, "
                "whose type_ids mark the two sentences"
            )
        if self.answers_only and self.rows in PAIRS:
            raise ConfigError(
                f"data.answers_only=True: must be False with data.rows={self.rows!r}"
            )
        is_other = self.rows not in PLAIN or self.sentence_ids
        if self.add_special_tokens and is_other:
            raise ConfigError(
                f"data.add_special_tokens=True: must be False with data.rows="
                f"{self.rows!r} and data.sentence_ids={self.sentence_ids}; rows of "
                f"{' and '.join(PLAIN)} have special tokens"
            )

    @property
    def keys(self) -> tuple[str, ...]:
        """The keys of rows of this form."""
        if self.rows in PAIRS:
            return (*PAIR_KEYS, PAIRS[self.rows])
        flags = ("sentence_ids",) * self.sentence_ids + ("answers",) * self.answers_only
        return ("tokens", *("segment_ids",) * (self.rows in PACKED), *flags)

    def text_form(self, vocab: Vocab) -> TextForm:
        """The special tokens of rows: those around a text, and the one before it.

        A pair is written as [CLS] A [SEP] B [SEP]. In rows of joined texts a text
        follows the [EOS] of another one (`bos`); otherwise nothing known precedes it.
        No rows contain [BOS].
        """
        before: tuple[int, ...] = ()
        after: tuple[int, ...] = ()
        if self.rows in PAIRS or self.add_special_tokens:
            form = vocab.text_form or TextForm(
                (vocab.require("cls"),), (vocab.require("sep"),)
            )
            before, after = form.before, form.after
        bos = None if self.rows in SEGMENTED else vocab.eos
        return TextForm(before, after, bos=bos)

    def num_ordinary(self, form: TextForm) -> int:
        """The tokens of text in a row between the special ones; at least 1."""
        num = self.row_length - form.num_special()
        if num < 1:
            raise ConfigError(
                f"data.row_length={self.row_length}: must be at least "
                f"{form.num_special() + 1} with data.add_special_tokens=True"
            )
        return num
