"""Decides whether lowercasing also strips accents, from the marks of a text.

BERT's uncased tokenizers decompose a text and drop all marks (category Mn). From Latin
letters this removes accents (é -> e). In other scripts marks are letters or parts of
them: vowels in Hindi, Thai and Arabic, voicing in Japanese (が -> か), й in Russian.
"""

import functools
import logging
import unicodedata
from collections.abc import Mapping

_log = logging.getLogger(__name__)

# From this share of characters that are marks of other scripts on, "auto" strips none.
MOST_LOST = 0.001
# From this share of stripped characters on, Latin accents are reported, too.
MOST_UNREPORTED = 0.01


def count_marks(counts: Mapping[str, int]) -> tuple[int, int, int]:
    """The marks on Latin letters, other marks, and all characters of counted texts.

    Characters are those of the composed text, marks those of the decomposed one.

    >>> count_marks({"café": 1, "हिन्दी": 2, "が": 1})
    (1, 3, 17)
    """
    latin = other = total = 0
    for text, count in counts.items():
        total += count * len(text)
        if text.isascii():
            continue
        is_latin = False
        for char in unicodedata.normalize("NFD", text):
            if unicodedata.category(char) != "Mn":
                is_latin = _is_latin(char)
            elif is_latin:
                latin += count
            else:
                other += count
    return latin, other, total


@functools.cache
def _is_latin(char: str) -> bool:
    return "LATIN" in unicodedata.name(char, "")


def choose_strip(
    strip_accents: str, lowercase: bool, counts: Mapping[str, int]
) -> bool | None:
    """BERT's `strip_accents` for a trained tokenizer: None is as `lowercase`.

    Logs the share of characters that stripping removes or would remove.

    Args:
      strip_accents: one of `tokenizer.STRIP_ACCENTS`.
      counts: the number of occurrences of each chunk of the text.
    """
    if strip_accents == "no" or (strip_accents == "auto" and not lowercase):
        return False if lowercase else None
    latin, other, total = count_marks(counts)
    share = other / max(total, 1)
    if strip_accents == "auto" and share >= MOST_LOST:
        _log.info(
            f"tokenizer.strip_accents=auto: accents are kept, because {share:.1%} of "
            f"the characters are marks of letters that are not Latin"
        )
        return False
    stripped = (latin + other) / max(total, 1)
    if other or stripped >= MOST_UNREPORTED:
        _log.warning(
            f"tokenizer.strip_accents={strip_accents}: {stripped:.2%} of the "
            f"characters are marks that are stripped, {share:.2%} of letters that are "
            f"not Latin"
        )
    return None if lowercase else True
