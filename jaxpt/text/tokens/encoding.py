"""What every tokenizer can do, whatever its tokens are."""

import re
from typing import Protocol

import numpy as np

from jaxpt.errors import UserError
from jaxpt.text.tokens.vocab import SPECIALS, Vocab

# Unicode's White_Space, which the library strips; `str.isspace` has \x1c to \x1f more.
WHITESPACE = (
    "\t\n\x0b\x0c\r \x85\xa0\u1680\u2000\u2001\u2002\u2003\u2004\u2005\u2006\u2007"
    "\u2008\u2009\u200a\u2028\u2029\u202f\u205f\u3000"
)


class Tokenizer(Protocol):
    """What every tokenizer can do; a kind inherits from it.

    Attributes:
      vocab: its ids.
      kind: char, byte, bpe, wordpiece or unigram.
      strips_left, strips_right: special ids that take the whitespace beside them in a
        prompt, as a mask does where a word's token begins with its space (bpe).
    """

    vocab: Vocab
    kind: str
    strips_left: frozenset[int] = frozenset()
    strips_right: frozenset[int] = frozenset()

    def encode(self, text: str) -> np.ndarray:
        """The int32 ids [n] of plain text: a special's name is ordinary characters."""
        ...

    def encode_sized(self, text: str) -> tuple[np.ndarray, np.ndarray]:
        """`encode`, and how many bytes of the text each id stands for, int64 [n].

        That is the UTF-8 from the end of the token before it to its own: what stands
        between words belongs to the word after it. What follows the last token is in
        no number.
        """
        ids = self.encode(text)
        return ids, np.array(self.vocab.token_bytes, np.int64)[ids]

    def count_unknown(self, text: str) -> int:
        """How often the text has what the vocabulary lacks: characters, or [UNK]s."""
        ...

    def decode(self, ids: np.ndarray) -> str:
        """The text of ids, specials by their name.

        Ordinary text comes back exactly from char, byte and bpe; wordpiece and unigram
        have already lost line ends, runs of spaces and the like.
        """
        ...

    def token_name(self, id_: int) -> str:
        """A visible name of one id, for plots and tables."""
        ...

    def to_json(self) -> dict:
        """All that `from_json` needs to make this tokenizer again."""
        ...

    def encode_prompt(self, text: str) -> np.ndarray:
        """The int32 ids [n] of a prompt, where `[MASK]` or `<extra_id_0>` are tokens.

        A special may be written as the vocabulary does (`<mask>`) or as `SPECIALS` does
        (`[MASK]`). Where words carry the space before them (bpe), whitespace before a
        mask or a sentinel is dropped: the token in its place brings its own. So the
        `tokenizers` library does with a token's `lstrip`, line ends and all.

        Raises:
          UserError: a character is outside the vocabulary.
        """
        vocab = self.vocab
        ids = {SPECIALS[role]: getattr(vocab, role) for role in SPECIALS}
        ids = {name: id_ for name, id_ in ids.items() if id_ is not None}
        ids |= {name: id_ for id_, name in vocab.special_names.items()}
        names = "|".join(map(re.escape, sorted(ids, key=len, reverse=True)))
        parts = re.split(f"({names})", text) if names else [text]
        # re.split alternates: plain text, a special, plain text, ...
        for i in range(1, len(parts), 2):
            if ids[parts[i]] in self.strips_left:
                parts[i - 1] = parts[i - 1].rstrip(WHITESPACE)
            if ids[parts[i]] in self.strips_right:
                parts[i + 1] = parts[i + 1].lstrip(WHITESPACE)
        # A character may be known with its neighbour alone, as an accent with a letter.
        texts = [part for part in parts[::2] if self.count_unknown(part)]
        unknown = {c for part in texts for c in part if self.count_unknown(c)}
        if unknown:
            raise UserError(
                f"prompt holds {', '.join(map(repr, sorted(unknown)))}: "
                "not in the tokenizer's vocabulary"
            )
        pieces = [
            np.array([ids[part]]) if i % 2 else self.encode(part)
            for i, part in enumerate(parts)
        ]
        return np.concatenate(pieces).astype(np.int32)


def make_visible(text: str) -> str:
    """A text with its spaces, control characters and stray bytes to be seen."""
    return "".join(map(_show, text))


def _show(char: str) -> str:
    if char == " ":
        return "␣"
    if "\udc80" <= char <= "\udcff":  # a byte that "surrogateescape" let through
        return f"<0x{ord(char) - 0xDC00:02X}>"
    return char if char.isprintable() else char.encode("unicode_escape").decode()
