"""Documents of a language without end, as token ids: a function of their numbers."""

from dataclasses import dataclass

import numpy as np

from jaxpt.errors import DataError
from jaxpt.languages import is_language
from jaxpt.languages.parameters import (
    FINITE,
    FRESH,
    SPLITS,
    VALID,
    NamedLanguage,
    read_language,
    split_path,
)
from jaxpt.text.sources.language_texts import identify_language
from jaxpt.text.stores.store import Store
from jaxpt.text.stores.stream import TokenStream
from jaxpt.text.tokens.tokenizer import Tokenizer


@dataclass(frozen=True, eq=False)
class FreshDocuments:
    """Documents that training reads once each.

    Attributes:
      named: the language.
      ids: int32 [V], the id of each symbol.
      ends: the ids after each document, as in a store: [EOS], if there is one.
    """

    named: NamedLanguage
    ids: np.ndarray
    ends: tuple[int, ...]

    @property
    def length(self) -> int:
        """The tokens of a document."""
        return self.named.spec.document_length + len(self.ends)

    def read(self, numbers: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The documents of these numbers, int32 [n, length], and their answers, 0 or 1.

        Of a language that is not a task, all symbols are answers.
        """
        symbols = self.named.read(FRESH, numbers)
        ends = np.tile(np.array(self.ends, np.int32), (len(symbols), 1))
        tokens = np.concatenate([self.ids[symbols], ends], 1)
        answers = self.named.language.asked(symbols).astype(np.int32)
        return tokens, np.concatenate([answers, np.zeros_like(ends)], 1)


def find_fresh(path: str, tokenizer: Tokenizer) -> FreshDocuments | None:
    """The documents that training reads, if those of a language's path are fresh.

    Args:
      tokenizer: of the language's symbols.
    """
    named = read_language(path)
    if split_path(path)[1] != "train" or not named.spec.fresh:
        return None
    eos = tokenizer.vocab.eos
    ends = () if eos is None else (eos,)
    return FreshDocuments(named, tokenizer.encode(named.characters), ends)


def mark_answers(store: Store) -> TokenStream | None:
    """The answers of a store, 1 and 0 elsewhere; None if its text is not a task's."""
    about = store.card["sources"][0]
    path, split = about["language"], about.get("split", "")
    if not (isinstance(path, str) and is_language(path) and split in SPLITS):
        raise _refuse_store(store)
    named = read_language(path)
    if not named.spec.HAS_ANSWERS:
        return None
    if about != identify_language(f"{path}:{split}"):
        raise _refuse_store(store)
    numbers = np.arange(named.count_documents(split))
    stream = VALID if split == "valid" else FINITE
    answers = named.language.asked(named.read(stream, numbers)).astype(np.uint8)
    num_ends = store.tokenizer.vocab.eos is not None
    return TokenStream([np.pad(answers, ((0, 0), (0, num_ends))).ravel()])


def _refuse_store(store: Store) -> DataError:
    return DataError(
        f"data.path={store.card['path']}: the text was prepared by another version of "
        "its language; prepare it again"
    )
