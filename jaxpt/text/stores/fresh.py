"""Documents of a language without end, as token ids: a function of their numbers."""

from dataclasses import dataclass

import numpy as np

from jaxpt.languages.parameters import FRESH, NamedLanguage
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

    def read(self, numbers: np.ndarray) -> np.ndarray:
        """The documents of these numbers, int32 [n, length]."""
        tokens = self.ids[self.named.read(FRESH, numbers)]
        ends = np.tile(np.array(self.ends, np.int32), (len(tokens), 1))
        return np.concatenate([tokens, ends], 1)


def make_fresh(named: NamedLanguage, tokenizer: Tokenizer) -> FreshDocuments:
    """The documents of a language in the ids of a tokenizer of its symbols."""
    eos = tokenizer.vocab.eos
    ends = () if eos is None else (eos,)
    return FreshDocuments(named, tokenizer.encode(named.characters), ends)
