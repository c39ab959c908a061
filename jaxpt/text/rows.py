"""Documents to splits of tokens, and splits to rows of one length."""

import bisect
import hashlib
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from fractions import Fraction

import numpy as np

from jaxpt.errors import UserError
from jaxpt.text.sources import Document, read_documents
from jaxpt.text.tokenizer import Tokenizer, TokenizerSpec, make_tokenizer
from jaxpt.text.vocab import Vocab

SPLITS = ("auto", "documents", "position")


@dataclass(frozen=True)
class TextSpec:
    """Which text, how much of it, and what is kept apart; the settings `data.*`.

    Attributes:
      split: "documents" gives evenly spaced whole documents to valid, "position" the
        last of the tokens.
      limit_chars: use only the first so many characters, over documents in order; 0 is
        all.
      heldout_chars: the next so many characters become a third split that nothing sees.
    """

    path: str = "sotu"
    text_field: str = "text"
    label_field: str = ""
    tfds_data_dir: str = ""
    split: str = "auto"
    valid_fraction: float = 0.1
    limit_chars: int = 0
    heldout_chars: int = 0
    tokenizer: TokenizerSpec = field(default_factory=TokenizerSpec)


@dataclass(frozen=True, eq=False)
class Corpus:
    """The tokens of a split and where its documents lie.

    Attributes:
      tokens: int32 [n], all documents joined; [EOS] ends each where the vocabulary has
        it and the text has more than one document.
      doc_starts: int64 [D+1]; document i is tokens[doc_starts[i]:doc_starts[i+1]].
      labels: int32 [D], places in `label_names`, -1 for none.
      label_names: the labels of the whole text, alike in all its splits.
      num_unknown: characters that the vocabulary lacks: [UNK], or left out.
      fingerprint: sha256 of tokens and doc_starts, in hex.
    """

    tokens: np.ndarray
    doc_starts: np.ndarray
    labels: np.ndarray
    label_names: tuple[str, ...]
    num_unknown: int
    fingerprint: str

    def num_bytes(self, vocab: Vocab) -> int:
        """How many bytes of UTF-8 the tokens stand for."""
        counts = np.bincount(self.tokens, minlength=vocab.size)
        return int(counts @ np.array(vocab.token_bytes, np.int64))


def load_text(
    spec: TextSpec, tokenizer: Tokenizer | None = None
) -> tuple[Tokenizer, dict[str, Corpus]]:
    """Read a text and split it into "train", "valid" and, if asked for, "heldout".

    Args:
      tokenizer: the one to use; None makes the spec's from the text of train and valid.

    Raises:
      UserError: the text cannot be read or split as the spec says.
    """
    _check_spec(spec)
    documents = read_documents(
        spec.path,
        text_field=spec.text_field,
        label_field=spec.label_field,
        tfds_data_dir=spec.tfds_data_dir,
    )
    main, heldout = _take(documents, spec)
    if tokenizer is None:
        tokenizer = make_tokenizer(spec.tokenizer, (doc.text for doc in main))
    label_names = tuple(sorted({doc.label for doc in main + heldout} - {""}))
    eos = tokenizer.vocab.eos if len(main) > 1 else None

    def join(documents: list[Document]) -> Corpus:
        return _join(documents, tokenizer, label_names, eos)

    # Exact: in floats (1 - 0.1) * 80000 and 3 * 0.1 may fall beside the whole number.
    fraction = Fraction(str(float(spec.valid_fraction)))
    by_documents = spec.split == "documents"
    if spec.split == "auto":
        by_documents = int(len(main) * fraction) >= 1 and len(main) > 1
    if by_documents:
        train, valid = _split_documents(main, fraction)
        corpora = {"train": join(train), "valid": join(valid)}
    else:
        train, valid = _split_position(join(main), main, tokenizer, fraction)
        corpora = {"train": train, "valid": valid}
    if spec.heldout_chars:
        corpora["heldout"] = join(heldout)
    for name, corpus in corpora.items():
        if not corpus.tokens.size:
            raise UserError(
                f"data.path={spec.path}: the {name} split holds no token; "
                "it needs more text, or a tokenizer that knows its characters"
            )
    return tokenizer, corpora


def windows(corpus: Corpus, length: int, num: int) -> np.ndarray:
    """Rows that cover the split evenly, documents joined.

    Args:
      num: 0 for all rows that do not overlap, else how many; their starts are spread
        evenly from the first token to the last whole row, and may overlap.

    Returns:
      int32 [m, length].

    Raises:
      UserError: the split is shorter than one row.
    """
    check_length(corpus, length)
    num_tokens = len(corpus.tokens)
    if num == 0:
        num_rows = num_tokens // length
        return corpus.tokens[: num_rows * length].reshape(num_rows, length)
    starts = np.arange(num) * (num_tokens - length) // max(num - 1, 1)
    return _gather(corpus, starts, length)


def passages(corpus: Corpus, length: int, num: int) -> tuple[np.ndarray, np.ndarray]:
    """Labelled rows that each lie inside one document, spread evenly over documents.

    They do not overlap; documents without a label or shorter than a row are skipped.

    Args:
      num: the most to return.

    Returns:
      tokens: int32 [m, length].
      labels: int32 [m], places in `corpus.label_names`.
    """
    room = np.where(corpus.labels >= 0, np.diff(corpus.doc_starts) // length, 0)
    rows, docs = [], []
    for doc, quota in enumerate(_share(room, num)):
        chunks = np.arange(quota) * room[doc] // max(quota, 1)
        rows.append(corpus.doc_starts[doc] + chunks * length)
        docs.append(np.full(quota, doc))
    rows = np.concatenate([np.zeros(0, np.int64), *rows])
    docs = np.concatenate([np.zeros(0, np.int64), *docs])
    return _gather(corpus, rows, length), corpus.labels[docs]


def check_length(corpus: Corpus, length: int) -> None:
    """Check that a split holds at least one row of so many tokens.

    Raises:
      UserError: it does not.
    """
    if len(corpus.tokens) < length:
        raise UserError(
            f"data.path: a split has {len(corpus.tokens)} tokens, "
            f"fewer than one row of {length}"
        )


def _check_spec(spec: TextSpec) -> None:
    if spec.split not in SPLITS:
        raise UserError(f"data.split={spec.split!r}: one of {', '.join(SPLITS)}")
    if not 0 < spec.valid_fraction < 1:
        raise UserError(
            f"data.valid_fraction={spec.valid_fraction}: must lie between 0 and 1"
        )
    for name in ("limit_chars", "heldout_chars"):
        if getattr(spec, name) < 0:
            raise UserError(f"data.{name}={getattr(spec, name)}: must be 0 or more")
    if spec.heldout_chars and not spec.limit_chars:
        raise UserError(
            f"data.heldout_chars={spec.heldout_chars}: needs data.limit_chars, "
            "after which it begins"
        )


def _take(
    documents: Iterable[Document], spec: TextSpec
) -> tuple[list[Document], list[Document]]:
    """The documents of train and valid, and those held out; a cut one lies in both."""
    if not spec.limit_chars:
        return [doc for doc in documents if doc.text], []
    wanted = spec.limit_chars + spec.heldout_chars
    main, heldout, seen = [], [], 0
    for doc in documents:
        head = doc.text[: max(0, spec.limit_chars - seen)]
        rest = doc.text[len(head) : wanted - seen]
        if head:
            main.append(replace(doc, text=head))
        if rest:
            heldout.append(replace(doc, text=rest))
        seen += len(doc.text)
        if seen >= wanted:
            return main, heldout
    raise UserError(
        f"data.path={spec.path} has {seen} characters: data.limit_chars and "
        f"data.heldout_chars ask for {spec.limit_chars} + {spec.heldout_chars}"
    )


def _join(
    documents: list[Document],
    tokenizer: Tokenizer,
    label_names: tuple[str, ...],
    eos: int | None,
) -> Corpus:
    ending = np.array([] if eos is None else [eos], np.int32)
    pieces = [np.concatenate([tokenizer.encode(d.text), ending]) for d in documents]
    places = {name: place for place, name in enumerate(label_names)}
    labels = [places.get(doc.label, -1) for doc in documents]
    num_unknown = sum(tokenizer.count_unknown(doc.text) for doc in documents)
    return _make_corpus(
        np.concatenate([ending[:0], *pieces]),
        np.cumsum([0, *map(len, pieces)]),
        np.array(labels),
        label_names,
        num_unknown,
    )


def _make_corpus(tokens, doc_starts, labels, label_names, num_unknown) -> Corpus:
    tokens = np.ascontiguousarray(tokens, np.int32)
    doc_starts = np.ascontiguousarray(doc_starts, np.int64)
    digest = hashlib.sha256(tokens)
    digest.update(doc_starts)
    return Corpus(
        tokens,
        doc_starts,
        labels.astype(np.int32),
        label_names,
        num_unknown,
        digest.hexdigest(),
    )


def _split_documents(
    documents: list[Document], fraction: Fraction
) -> tuple[list[Document], list[Document]]:
    """Give valid its share of the documents, evenly spaced."""
    train, valid = [], []
    for i, doc in enumerate(documents):
        is_valid = int((i + 1) * fraction) > int(i * fraction)
        (valid if is_valid else train).append(doc)
    if not valid or not train:
        raise UserError(
            f"data.split='documents': {len(documents)} document(s) leave none for "
            f"valid at data.valid_fraction {float(fraction)}; use data.split=position"
        )
    return train, valid


def _split_position(
    whole: Corpus, documents: list[Document], tokenizer: Tokenizer, fraction: Fraction
) -> tuple[Corpus, Corpus]:
    """Cut all tokens in two; a document across the cut lies in both parts."""
    num_tokens = len(whole.tokens)
    cut = int((1 - fraction) * num_tokens)
    if cut == 0:
        raise UserError(
            f"data.valid_fraction={float(fraction)}: of {num_tokens} tokens it "
            "leaves none for train"
        )
    starts, ends = whole.doc_starts[:-1], whole.doc_starts[1:]
    in_train, in_valid = starts < cut, ends > cut
    last = np.flatnonzero(in_train)[-1]
    unknown = sum(tokenizer.count_unknown(doc.text) for doc in documents[:last])
    unknown += _count_unknown_before(
        tokenizer, documents[last].text, int(cut - starts[last])
    )
    train = _make_corpus(
        whole.tokens[:cut],
        np.append(starts[in_train], cut),
        whole.labels[in_train],
        whole.label_names,
        unknown,
    )
    valid = _make_corpus(
        whole.tokens[cut:],
        np.append(np.maximum(starts[in_valid], cut), num_tokens) - cut,
        whole.labels[in_valid],
        whole.label_names,
        whole.num_unknown - unknown,
    )
    return train, valid


def _count_unknown_before(tokenizer: Tokenizer, text: str, num_tokens: int) -> int:
    """Unknown characters in the longest prefix that has at most so many tokens."""
    if not tokenizer.count_unknown(text):
        return 0
    end = bisect.bisect_right(
        range(len(text) + 1),
        num_tokens,
        key=lambda length: len(tokenizer.encode(text[:length])),
    )
    return tokenizer.count_unknown(text[: end - 1])


def _share(room: np.ndarray, num: int) -> np.ndarray:
    """Share `num` out as evenly as each place's room allows.

    Returns:
      int64, shaped as room, at most room everywhere; its sum is the lesser of num and
      the sum of room.
    """
    levels = range(int(room.max(initial=0)) + 1)
    level = bisect.bisect_right(
        levels, num, key=lambda level: np.minimum(room, level).sum()
    )
    level = max(level - 1, 0)
    quota = np.minimum(room, level)
    # What is left is less than the places that have room for one more.
    wider = np.flatnonzero(room > level)
    left = max(min(num - int(quota.sum()), len(wider)), 0)
    quota[wider[np.arange(left) * len(wider) // max(left, 1)]] += 1
    return quota


def _gather(corpus: Corpus, starts: np.ndarray, length: int) -> np.ndarray:
    return corpus.tokens[starts[:, None] + np.arange(length)]
