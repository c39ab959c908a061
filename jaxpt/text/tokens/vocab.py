"""Vocabularies: which ids are ordinary tokens, named specials or sentinels."""

from dataclasses import dataclass, field

import numpy as np

from jaxpt.errors import DataError
from jaxpt.text_form import TextForm

SPECIALS = {
    "pad": "[PAD]",
    "unk": "[UNK]",
    "cls": "[CLS]",
    "sep": "[SEP]",
    "mask": "[MASK]",
    "bos": "[BOS]",
    "eos": "[EOS]",
    "nlu": "[NLU]",
    "nlg": "[NLG]",
    "s2s": "[S2S]",
}
MODES = ("nlu", "nlg", "s2s")  # UL2's mode tokens, which name an input's corruption


@dataclass(frozen=True)
class Vocab:
    """The ids of a tokenizer; hashable, so that a compiled step can depend on it.

    Two roles may share an id, as GPT-2's `<|endoftext|>` is both bos and eos.

    Attributes:
      sentinels: T5's, in order of use: `<extra_id_0>` first.
      others: special ids without a role.
      text_form: how texts are written for an imported model, else None.
      special_texts: (id, text) of each special whose name is not that of `SPECIALS`.
      token_bytes: the number of UTF-8 bytes of each id (0 for specials), for bits per
        byte; empty if ids do not determine it (see `Tokenizer.encode_sized`).
      word_starts: whether each id begins a word: its text begins with whitespace, or
        does not begin with "##"; True for specials (fairseq's `get_whole_word_mask`).
        Empty if ids do not mark words.
      pieces: the text of each id in UTF-8; for a special, its name.
      counts: the frequency of each id in the training text, or in an evenly spaced
        sample of a long one; set if the objective needs it.
    """

    size: int
    pad: int | None = None
    unk: int | None = None
    cls: int | None = None
    sep: int | None = None
    mask: int | None = None
    bos: int | None = None
    eos: int | None = None
    nlu: int | None = None
    nlg: int | None = None
    s2s: int | None = None
    sentinels: tuple[int, ...] = ()
    others: tuple[int, ...] = ()
    text_form: TextForm | None = None
    # Part of equality but not of the hash, which each call of a compiled step computes:
    # these have an entry for every id.
    special_texts: tuple[tuple[int, str], ...] = field(default=(), hash=False)
    token_bytes: tuple[int, ...] = field(default=(), hash=False)
    word_starts: tuple[bool, ...] = field(default=(), hash=False)
    pieces: tuple[bytes, ...] = field(default=(), hash=False)
    counts: tuple[int, ...] = field(default=(), hash=False)

    @property
    def start(self) -> int:
        """The first input of a decoder: the form's `start`, else [PAD], as in T5."""
        if self.text_form is None or self.text_form.start is None:
            return self.require("pad")
        return self.text_form.start

    @property
    def num_sentinels(self) -> int:
        """The number of sentinels."""
        return len(self.sentinels)

    @property
    def special_names(self) -> dict[int, str]:
        """The name of each special id, such as `[MASK]` and `<extra_id_0>`."""
        ids = {name: getattr(self, name) for name in SPECIALS}
        names = {ids[name]: SPECIALS[name] for name in ids if ids[name] is not None}
        names |= {id_: f"<extra_id_{i}>" for i, id_ in enumerate(self.sentinels)}
        names |= {id_: f"<special_{id_}>" for id_ in self.others}
        return names | dict(self.special_texts)

    @property
    def special_ids(self) -> np.ndarray:
        """The named specials, the sentinels and the others, sorted, int32."""
        return np.array(sorted(self.special_names), np.int32)

    @property
    def is_special(self) -> np.ndarray:
        """True at each special id, bool [size]."""
        is_special = np.zeros(self.size, bool)
        is_special[self.special_ids] = True
        return is_special

    @property
    def ordinary_ids(self) -> np.ndarray:
        """The ids that are not special, sorted, int32."""
        return np.flatnonzero(~self.is_special).astype(np.int32)

    def unknown_bits(self, tokens: np.ndarray, num_bytes: np.ndarray) -> np.ndarray:
        """The bits of the text that unknown tokens replace, float64, 0 elsewhere.

        A model predicts [UNK] but not the text that it replaces. This text is charged
        as raw bytes: 8 bits for each, and 8 for a last byte 0xFF, which is in no UTF-8
        and ends it. The sum with the model's own bits is the length of a code, so an
        upper bound of those of the text. If a vocabulary of characters drops unknown
        ones instead, their place in the row is charged as well.

        Args:
          tokens: int [..., R].
          num_bytes: int [..., R], the bytes of the text of each token.

        >>> Vocab(size=3, unk=1).unknown_bits(np.array([0, 1, 1]), np.array([2, 3, 0]))
        array([ 0., 32.,  0.])
        """
        tokens, num_bytes = np.asarray(tokens), np.asarray(num_bytes)
        place = 0.0
        if self.unk is not None:
            num_lost = np.where(tokens == self.unk, num_bytes, 0)
        elif self._has_only_characters:
            own = np.array(list(map(len, self.pieces)))[tokens]
            num_lost = np.where(self.is_special[tokens], 0, num_bytes - own)
            place = float(np.log2(max(tokens.shape[-1], 1)))
        else:
            num_lost = np.zeros(tokens.shape, np.int64)
        return np.where(num_lost > 0, 8.0 * (num_lost + 1) + place, 0.0)

    @property
    def _has_only_characters(self) -> bool:
        """Whether ordinary ids are characters, of which unknown ones are dropped."""
        if self.token_bytes or not self.pieces:
            return False
        texts = (self.pieces[i] for i in self.ordinary_ids.tolist())
        return all(len(text.decode("utf-8", "surrogatepass")) == 1 for text in texts)

    def require(self, name: str) -> int:
        """The id of a special token that an objective needs."""
        id_ = getattr(self, name)
        if id_ is None:
            listed = [key for key in SPECIALS if getattr(self, key) is not None]
            raise DataError(
                f"tokenizer.specials must list {name!r}: the objective needs "
                f"{SPECIALS[name]}, the vocabulary has {', '.join(listed) or 'none'}"
            )
        return id_
