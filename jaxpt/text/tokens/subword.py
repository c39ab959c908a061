"""Subword tokenizers: byte-level BPE, WordPiece, Unigram.

They wrap the `tokenizers` library and contain its JSON (`tokenizer.json`).
GPT-2: Radford et al. 2019; WordPiece as in BERT, arXiv:1810.04805; Unigram,
arXiv:1804.10959, as in T5.
"""

import functools
import itertools
import json
from dataclasses import replace
from typing import Any, cast

import numpy as np
import tokenizers

from jaxpt.errors import DataError
from jaxpt.text.tokens.chunks import ChunkEncoder, choose_cut, replace_surrogates
from jaxpt.text.tokens.core import check_ids, is_byte_level
from jaxpt.text.tokens.encoding import Tokenizer, list_byte_chars, make_visible
from jaxpt.text.tokens.vocab import SPECIALS, Vocab

NUM_WORDS = 64  # on which it is measured whether tokens mark words
KINDS = {"BPE": "bpe", "WordPiece": "wordpiece", "Unigram": "unigram"}


class SubwordTokenizer(Tokenizer):
    """A tokenizer of the `tokenizers` library, with named special ids.

    Plain text never becomes special tokens. The post-processor, truncation and padding
    are not applied, and a lone surrogate is read as U+FFFD.

    Args:
      core: the library's tokenizer; every special of `roles` and `sentinels` must be
        one of its special added tokens.
      roles: ids by keys of `vocab.SPECIALS`.
      sentinels: their ids, `<extra_id_0>` first.
    """

    def __init__(
        self,
        core: tokenizers.Tokenizer,
        roles: dict[str, int],
        sentinels: tuple[int, ...] = (),
    ):
        self._core = core
        check_ids(core)
        data = json.loads(core.to_str())
        self.kind = check_core(core, data)
        self._is_byte_level = is_byte_level(data)
        self.strips_left = _list_flagged(data, "lstrip")
        self.strips_right = _list_flagged(data, "rstrip")
        id_of = core.get_vocab(with_added_tokens=True)
        names = sorted(id_of, key=lambda name: id_of[name])
        special = {token["id"] for token in data["added_tokens"] if token["special"]}
        self._names = {id_: names[id_] for id_ in special}
        self._bytes = self._list_bytes(names, special, data["model"])
        self.vocab = self._make_vocab(names, special, roles, sentinels, data)
        self._encoder = _make_encoder(data)
        if not self._marks_words(data["model"].get("end_of_word_suffix")):
            self.vocab = replace(self.vocab, word_starts=())

    def _marks_words(self, suffix: str | None) -> bool:
        """Whether ids mark where words begin, measured on words of the vocabulary.

        They do not if whitespace is dropped before the text is split into tokens, or if
        tokens mark the ends of words.
        """
        texts = (self._bytes[i] for i in self.vocab.ordinary_ids.tolist())
        pieces = (text.decode("utf-8", "replace").strip() for text in texts)
        plain = (piece.removesuffix(suffix or "") for piece in pieces)
        words = list(itertools.islice(filter(str.isalpha, plain), NUM_WORDS))
        starts = np.array(self.vocab.word_starts)[self.encode(" ".join(words))]
        return len(words) < 2 or int(starts.sum()) > len(words) / 2

    def encode(self, text: str) -> np.ndarray:
        return self._encoder.encode(text)

    def encode_sized(self, text: str) -> tuple[np.ndarray, np.ndarray]:
        return self._encoder.encode_sized(text)

    def _join_parts(self, parts: list[str], ids: dict[str, int]) -> np.ndarray:
        """Encodes the prompt whole: text after a special may be split otherwise."""
        text = "".join(
            self._names[ids[part]] if i % 2 else part for i, part in enumerate(parts)
        )
        encoding = self._whole.encode(
            replace_surrogates(text), add_special_tokens=False
        )
        return np.array(encoding.ids, np.int32)

    @functools.cached_property
    def _whole(self) -> tokenizers.Tokenizer:
        """The library's tokenizer, without what cuts a text off or pads it."""
        if self._core.truncation is None and self._core.padding is None:
            return self._core
        core = tokenizers.Tokenizer.from_str(self._core.to_str())
        core.no_truncation()
        core.no_padding()
        return core

    def count_unknown(self, text: str) -> int:
        if self.vocab.unk is None:
            return 0
        return int(np.count_nonzero(self.encode(text) == self.vocab.unk))

    def decode(self, ids: np.ndarray) -> str:
        """See `Tokenizer.decode`; invalid UTF-8 becomes U+FFFD."""
        listed = np.asarray(ids).tolist()
        if self._is_byte_level:
            data = b"".join(self._bytes[i] for i in listed)
            return data.decode("utf-8", "replace")
        return self._core.decode(listed, skip_special_tokens=False)

    def token_name(self, id_: int) -> str:
        if self._is_byte_level:
            text = self._bytes[id_].decode("utf-8", "surrogateescape")
        else:
            text = self._core.id_to_token(int(id_)) or ""
        return make_visible(text)

    def find_id(self, name: str) -> int | None:
        """The id of a token by its name in the vocabulary, or None."""
        return self._core.token_to_id(name)

    def to_json(self) -> dict[str, Any]:
        roles = {role: getattr(self.vocab, role) for role in SPECIALS}
        return {
            "kind": self.kind,
            "version": 2,  # of these values; part of the identity of prepared texts
            "specials": {role: id_ for role, id_ in roles.items() if id_ is not None},
            "sentinels": list(self.vocab.sentinels),
            "core": self.to_core(),
        }

    def identity(self) -> dict[str, Any]:
        """Without the post-processor, and how specials in a prompt are recognized."""
        data = self.to_json()
        del data["version"]
        data["core"] |= {"post_processor": None, "truncation": None, "padding": None}
        for token in data["core"]["added_tokens"]:
            if token["special"]:
                token |= {"lstrip": False, "rstrip": False}
        return data

    def to_core(self) -> dict[str, Any]:
        return json.loads(self._core.to_str())

    def _list_bytes(
        self, names: list[str], special: set[int], model: dict[str, Any]
    ) -> list[bytes]:
        """The bytes of each id's text; a special's are those of its name."""
        prefix = model.get("continuing_subword_prefix") or ""
        byte_of = {char: byte for byte, char in enumerate(list_byte_chars())}
        byte_of = byte_of if self._is_byte_level else {}
        out = []
        for id_, name in enumerate(names):
            if id_ in special:
                out.append(name.encode())
            elif byte_of.keys() >= set(name):
                out.append(bytes(byte_of[c] for c in name))
            elif model.get("byte_fallback") and _is_byte_name(name):
                out.append(bytes([int(name[3:5], 16)]))
            elif self.kind == "wordpiece":
                out.append(name.removeprefix(prefix).encode())
            else:
                out.append(name.replace("▁", " ").encode())
        return out

    def _make_vocab(
        self,
        names: list[str],
        special: set[int],
        roles: dict[str, int],
        sentinels: tuple[int, ...],
        data: dict[str, Any],
    ) -> Vocab:
        known = {*roles.values(), *sentinels}
        if known - special or len(set(sentinels)) < len(sentinels):
            raise DataError(
                f"specials {roles} and sentinels {list(sentinels)}: each must be one "
                "of its special tokens, a sentinel once"
            )
        prefix = data["model"].get("continuing_subword_prefix")
        if self.kind == "wordpiece":
            begins = [not name.startswith(prefix) for name in names]
        else:
            texts = (data.decode("utf-8", "replace") for data in self._bytes)
            begins = [text[:1].isspace() for text in texts]
        sizes = tuple(
            0 if i in special else len(data) for i, data in enumerate(self._bytes)
        )
        vocab = Vocab(
            size=len(names),
            sentinels=sentinels,
            others=tuple(sorted(special - known)),
            token_bytes=sizes if _keeps_bytes(data) else (),
            word_starts=tuple(i in special or begins[i] for i in range(len(names))),
            pieces=tuple(self._bytes),
            **cast(dict[str, Any], roles),
        )
        written = vocab.special_names.items()
        special_texts = tuple(
            (i, names[i]) for i, text in sorted(written) if names[i] != text
        )
        return replace(vocab, special_texts=special_texts)


def check_core(core: tokenizers.Tokenizer, data: dict[str, Any]) -> str:
    """Checks a tokenizer of the library, whose JSON is `data`, and returns its kind."""
    model = data["model"]
    name = model.get("type")
    if name not in KINDS:
        raise DataError(
            f"its model is {name!r}: must be one of {', '.join(KINDS)}, or a WordLevel "
            "model of characters as jaxpt writes it"
        )
    for id_, token in core.get_added_tokens_decoder().items():
        # The library panics where it looks for an empty token.
        if token.normalized and core.normalizer is not None:
            if not core.normalizer.normalize_str(token.content):
                raise DataError(
                    f"its added token {token.content!r} (id {id_}) is empty after "
                    "normalization: must have normalized=false"
                )
    if model.get("dropout"):
        raise DataError(f"its model has dropout={model['dropout']}: must be null")
    vocab = core.get_vocab(with_added_tokens=True)
    if name == "WordPiece" and model["unk_token"] not in model["vocab"]:
        raise DataError(f"its vocabulary lacks {model['unk_token']}")
    if name == "Unigram" and model["unk_id"] is None:
        raise DataError("its vocabulary has no token for the unknown (unk_id)")
    if is_byte_level(data) and name == "BPE" and not model.get("unk_token"):
        num_missing = sum(char not in vocab for char in list_byte_chars())
        if num_missing:
            raise DataError(
                f"its vocabulary lacks {num_missing} of the 256 bytes and has no token "
                "for the unknown: text would be lost"
            )
    return KINDS[name]


def _make_encoder(data: dict[str, Any]) -> ChunkEncoder:
    """The encoder of plain text for the tokenizer of this JSON."""
    data, prefix = _hide_specials(data), ""
    cut, split = choose_cut(data), data["pre_tokenizer"]
    if split and split["type"] == "ByteLevel" and split["add_prefix_space"]:
        # The space belongs before a text, not before each chunk; it is added here.
        plain = data | {"pre_tokenizer": split | {"add_prefix_space": False}}
        cut = choose_cut(plain)
        if cut:
            data, prefix = plain, " "
    core = tokenizers.Tokenizer.from_str(json.dumps(data))
    core.encode_special_tokens = True
    return ChunkEncoder(core, cut, prefix)


def _hide_specials(data: dict[str, Any]) -> dict[str, Any]:
    """Renames specials in the JSON to names with a space, which no text matches.

    Otherwise the library finds specials in plain text. Even if that is turned off, a
    Unigram model encodes "</s>" as the piece of that name.
    """
    hidden = {
        token["content"]: f"special {token['id']}"
        for token in data["added_tokens"]
        if token["special"]
    }
    model = dict(data["model"])
    if isinstance(model["vocab"], dict):
        model["vocab"] = {hidden.get(k, k): id_ for k, id_ in model["vocab"].items()}
    else:
        model["vocab"] = [[hidden.get(k, k), score] for k, score in model["vocab"]]
    if model.get("unk_token"):
        model["unk_token"] = hidden.get(model["unk_token"], model["unk_token"])
    if "merges" in model:
        merges = [m for m in model["merges"] if not hidden.keys() & set(m)]
        model["merges"] = [m for m in merges if "".join(m) not in hidden]
    added = [
        token | {"content": hidden.get(token["content"], token["content"])}
        for token in data["added_tokens"]
    ]
    without = {"post_processor": None, "truncation": None, "padding": None}
    return data | without | {"model": model, "added_tokens": added}


def _keeps_bytes(data: dict[str, Any]) -> bool:
    """Whether ids preserve the bytes of any text.

    Other tokenizers change spaces, line ends or case, or add a space before a text.
    """
    model, split = data["model"], data["pre_tokenizer"] or {}
    added = [token for token in data["added_tokens"] if not token["special"]]
    return (
        model["type"] == "BPE"
        and split.get("type") == "ByteLevel"
        and not split["add_prefix_space"]
        and data["normalizer"] is None
        and set(list_byte_chars()) <= set(model["vocab"])
        and not model.get("continuing_subword_prefix")
        and not model.get("end_of_word_suffix")
        and all(token["content"].isascii() for token in added)
        and not any(token["lstrip"] or token["rstrip"] for token in added)
    )


def _list_flagged(data: dict[str, Any], flag: str) -> frozenset[int]:
    """The ids of special tokens that have one of the library's flags."""
    tokens = data["added_tokens"]
    return frozenset(t["id"] for t in tokens if t["special"] and t[flag])


def _is_byte_name(name: str) -> bool:
    return len(name) == 6 and name.startswith("<0x") and name.endswith(">")
