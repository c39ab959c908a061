"""Documents of a language without end, as token ids: a function of their numbers."""

from dataclasses import dataclass

import numpy as np

from jaxpt.languages.parameters import FINITE, FRESH, VALID, NamedLanguage
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

        Of a language that is no task, all symbols are answers.
        """
        symbols = self.named.read(FRESH, numbers)
        ends = np.tile(np.array(self.ends, np.int32), (len(symbols), 1))
        tokens = np.concatenate([self.ids[symbols], ends], 1)
        answers = self.named.language.asked(symbols).astype(np.int32)
        return tokens, np.concatenate([answers, np.zeros_like(ends)], 1)


def mark_answers(named: NamedLanguage, split: str, num_ends: int) -> np.ndarray:
    """The answers of the finite text of a split, uint8 [tokens], as a store has it."""
    numbers = np.arange(named.count_documents(split))
    stream = VALID if split == "valid" else FINITE
    answers = named.language.asked(named.read(stream, numbers)).astype(np.uint8)
    return np.pad(answers, ((0, 0), (0, num_ends))).ravel()


def make_fresh(named: NamedLanguage, tokenizer: Tokenizer) -> FreshDocuments:
    """The documents of a language in the ids of a tokenizer of its symbols."""
    eos = tokenizer.vocab.eos
    ends = () if eos is None else (eos,)
    return FreshDocuments(named, tokenizer.encode(named.characters), ends)
