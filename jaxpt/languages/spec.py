"""LanguageSpec: the base of the parameters of every language."""

import dataclasses
from typing import Annotated, ClassVar

import numpy as np

from jaxpt.languages.language import Language
from jaxpt.setting_types import Limits, NonNegativeInt, Settings

# The most symbols that a language may have, and the longest document.
MAX_SYMBOLS, MAX_LENGTH = 2**14, 2**16
NumDocuments = Annotated[int, Limits(least=1, most=10_000_000)]
NumSymbols = Annotated[int, Limits(least=2, most=8192)]
Length = Annotated[int, Limits(least=2, most=MAX_LENGTH)]
Concentration = Annotated[float, Limits(least=0.001, most=1000)]


@dataclasses.dataclass(frozen=True, kw_only=True)
class LanguageSpec(Settings):
    """The parameters that all languages have.

    Attributes:
      seed: draws the language: its probabilities, its facts.
      documents: of the finite training text, which `jaxpt prepare` writes, and from
        which baselines are counted.
      valid_documents: of the validation text.
      fresh: whether each row of training is drawn for its step, from a stream without
        end; False trains on the finite text, in epochs.
    """

    SECTION: ClassVar[str] = ""
    # Whether only some symbols are answers (`Language.asked`).
    HAS_ANSWERS: ClassVar[bool] = False

    seed: NonNegativeInt = 0
    documents: NumDocuments = 4096
    valid_documents: NumDocuments = 1000
    fresh: bool = True

    @classmethod
    def full_name(cls, name: str) -> str:
        """A parameter as it is in a path."""
        return name

    @property
    def document_length(self) -> int:
        """The symbols of a document."""
        raise NotImplementedError

    def make(self, rng: np.random.Generator) -> Language:
        """Draws the language.

        Raises:
          ConfigError: the parameters give none.
        """
        raise NotImplementedError
