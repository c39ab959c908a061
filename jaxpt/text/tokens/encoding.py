"""The tokenizer interface."""

import logging
import re
from typing import Any, Protocol

import numpy as np

from jaxpt.errors import DataError
from jaxpt.text.tokens.vocab import SPECIALS, Vocab

_log = logging.getLogger(__name__)


class Tokenizer(Protocol):
    """The interface of tokenizers, which each kind inherits.

    Attributes:
      vocab: its vocabulary.
      kind: char, byte, bpe, wordpiece or unigram.
      strips_left, strips_right: special ids that remove the whitespace before or after
        them in a prompt, as [MASK] does if tokens include the space before a word.
    """

    vocab: Vocab
    kind: str
    strips_left: frozenset[int] = frozenset()
    strips_right: frozenset[int] = frozenset()

    def encode(self, text: str) -> np.ndarray:
        """The int32 ids [n] of plain text; names of specials are not recognized."""
        ...

    def encode_sized(self, text: str) -> tuple[np.ndarray, np.ndarray]:
        """`encode`, and the number of bytes of text of each id, int64 [n].

        These are the UTF-8 bytes from the end of the previous token to the token's own
        end: text between words counts for the next word, text after the last token is
        not counted.
        """
        ids = self.encode(text)
        return ids, np.array(self.vocab.token_bytes, np.int64)[ids]

    def count_unknown(self, text: str) -> int:
        """The number of unknown characters; of subwords, the number of [UNK]s."""
        ...

    def decode(self, ids: np.ndarray) -> str:
        """The text of ids, with specials as their names.

        Char, byte and bpe restore ordinary text exactly; wordpiece and unigram lose
        line ends and repeated spaces when encoding.
        """
        ...

    def token_name(self, id_: int) -> str:
        """A printable name of one id, for plots and tables."""
        ...

    def to_json(self) -> dict[str, Any]:
        """Plain values that determine its ids, for its hash and for web pages."""
        ...

    def identity(self) -> dict[str, Any]:
        """Plain values that determine the ids of plain text, for `fingerprint`."""
        return self.to_json()

    def to_core(self) -> dict[str, Any]:
        """The content of a Hugging Face `tokenizer.json` that gives the same ids.

        It does not have the roles of special tokens, which `tokenizer.save` adds.
        """
        ...

    def encode_prompt(self, text: str, allow_unknown: bool = True) -> np.ndarray:
        """The int32 ids [n] of a prompt, in which names of specials are recognized.

        A special may have its name in the vocabulary (`<mask>`) or in `SPECIALS`
        (`[MASK]`). Subwords are encoded as the `tokenizers` library encodes the prompt:
        a mask with `lstrip` removes the whitespace before it. A character
        outside the vocabulary is read as [UNK], with a warning.
        """
        vocab = self.vocab
        ids = {SPECIALS[role]: getattr(vocab, role) for role in SPECIALS}
        ids = {name: id_ for name, id_ in ids.items() if id_ is not None}
        ids |= {name: id_ for id_, name in vocab.special_names.items()}
        names = "|".join(map(re.escape, sorted(ids, key=len, reverse=True)))
        parts = re.split(f"({names})", text) if names else [text]
        # re.split alternates: plain text, a special, plain text, ...
        # A character may be known only with its neighbour, as an accent with a letter.
        texts = [part for part in parts[::2] if self.count_unknown(part)]
        unknown = {c for part in texts for c in part if self.count_unknown(c)}
        if unknown:
            line = f"prompt has {', '.join(map(repr, sorted(unknown)))}: not in "
            if vocab.unk is None or not allow_unknown:
                raise DataError(f"{line}the tokenizer's vocabulary")
            name = vocab.special_names.get(vocab.unk, SPECIALS["unk"])
            _log.warning(f"{line}the tokenizer's vocabulary, read as {name}")
        return self._join_parts(parts, ids)

    def _join_parts(self, parts: list[str], ids: dict[str, int]) -> np.ndarray:
        """The int32 ids [n] of plain texts with names of specials between them."""
        pieces = [
            np.array([ids[part]]) if i % 2 else self.encode(part)
            for i, part in enumerate(parts)
        ]
        return np.concatenate(pieces).astype(np.int32)


def list_byte_chars() -> list[str]:
    """The character that GPT-2 writes for each byte; printable ones are unchanged."""
    printable = [*range(33, 127), *range(161, 173), *range(174, 256)]
    unprintable = [byte for byte in range(256) if byte not in printable]
    chars = dict(zip(printable, map(chr, printable), strict=True))
    chars |= {byte: chr(256 + i) for i, byte in enumerate(unprintable)}
    return [chars[byte] for byte in range(256)]


def make_visible(text: str) -> str:
    """Replaces spaces, control characters and invalid bytes by visible ones."""
    return "".join(map(_show, text))


def _show(char: str) -> str:
    if char == " ":
        return "␣"
    if "\udc80" <= char <= "\udcff":  # a byte that "surrogateescape" let through
        return f"<0x{ord(char) - 0xDC00:02X}>"
    return char if char.isprintable() else char.encode("unicode_escape").decode()
