"""Trains BPE, WordPiece and Unigram vocabularies deterministically.

The `tokenizers` library trains BPE and WordPiece. Its WordPiece breaks ties in the
order of a randomly seeded hash table, so it gets the alphabet in a fixed order. Its
Unigram is random in the same way and cannot be fixed; SentencePiece trains it instead.
"""

import io
import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator

import sentencepiece
import tokenizers
from sentencepiece import sentencepiece_model_pb2
from tokenizers import models, normalizers, pre_tokenizers, trainers

from jaxpt.errors import DataError, UserError
from jaxpt.text.tokens.accents import choose_strip
from jaxpt.text.tokens.chunks import FINE_WORDS, WORDS
from jaxpt.text.tokens.encoding import Tokenizer
from jaxpt.text.tokens.published import (
    make_bpe,
    make_unigram,
    make_wordpiece,
)
from jaxpt.text.tokens.special_names import name_specials
from jaxpt.text.tokens.vocab import SPECIALS

MAX_ALPHABET = 1000  # of wordpiece, as in BERT: rarer characters become [UNK]
MAX_COUNTED = 1 << 21  # distinct chunks at a time, about 300 MB; the rarest are dropped
# Characters that wordpiece and unigram are trained on; for more text, counts are scaled
# down. SentencePiece repeats a word by its count, at about 25 bytes per character.
MAX_CHARS = 1 << 24
# Characters; longer words are cut. SentencePiece ignores words of more than 4192 bytes,
# and the time of the other trainers is quadratic in the length of a word.
MAX_WORD = 1000
_LONG = re.compile(rf"(?<!\S)\S{{{MAX_WORD + 1},}}|(?<!\s)\s{{{MAX_WORD + 1},}}")


def train_subword(
    kind: str,
    texts: Iterable[str],
    vocab_size: int,
    specials: tuple[str, ...] = (),
    num_sentinels: int = 0,
    lowercase: bool = False,
    strip_accents: str = "auto",
) -> Tokenizer:
    """Trains a vocabulary; the same texts in the same order give the same vocabulary.

    The ids are the specials as listed, the trained tokens, and the sentinels descending
    from the last id. A short text may give a smaller vocabulary than `vocab_size`.

    Args:
      kind: "bpe" (GPT-2's byte-level), "wordpiece" (BERT's) or "unigram" (T5's).
      vocab_size: including specials and sentinels.
      lowercase: whether wordpiece removes case and accents, as BERT's uncased does.
      strip_accents: whether it strips accents ("yes", "no"); "auto" does with
        `lowercase`, unless the text has marks of letters that are not Latin.
    """
    if kind != "bpe" and "unk" not in specials:
        raise DataError(
            f"tokenizer.specials={specials}: must list 'unk', which tokenizer.kind "
            f"{kind!r} needs for characters that it does not know"
        )
    least = len(specials) + num_sentinels + (256 if kind == "bpe" else 1)
    if vocab_size < least:
        raise _too_small(vocab_size, f"at least {least}")
    names = [SPECIALS[role] for role in specials]
    size = vocab_size - num_sentinels
    texts = _with_text(texts, kind)
    if kind == "bpe":
        core = _train_bpe(texts, size, names)
    elif kind == "wordpiece":
        core = _train_wordpiece(texts, size, names, lowercase, strip_accents)
    else:
        core = _train_unigram(texts, size, names, vocab_size)
    num_ids = core.get_vocab_size(with_added_tokens=True)
    if num_ids > size:
        raise _too_small(vocab_size, f"at least {num_ids + num_sentinels}")
    roles = {role: id_ for id_, role in enumerate(specials)}
    return name_specials(core, (), num_sentinels, roles, (), is_own=True)


def _train_bpe(
    texts: Iterable[str], size: int, names: list[str]
) -> tokenizers.Tokenizer:
    core = make_bpe(models.BPE())
    trainer = trainers.BpeTrainer(
        vocab_size=size,
        special_tokens=names,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    parts = (part for text in texts for part in _cut_long(text))
    core.train_from_iterator(parts, trainer)
    return core


def _train_wordpiece(
    texts: Iterable[str],
    size: int,
    names: list[str],
    lowercase: bool,
    strip_accents: str,
) -> tokenizers.Tokenizer:
    chunks = _count_chunks(texts, FINE_WORDS)
    strip = choose_strip(strip_accents, lowercase, chunks)
    normalizer = normalizers.BertNormalizer(lowercase=lowercase, strip_accents=strip)
    core = make_wordpiece({SPECIALS["unk"]: 0}, lowercase)
    core.normalizer = normalizer
    counts: Counter[str] = Counter()
    for chunk, count in chunks.items():
        chunk = core.normalizer.normalize_str(chunk)
        for word, _ in core.pre_tokenizer.pre_tokenize_str(chunk):
            for part in _cut_word(word):
                counts[part] += count
    counts = _scale(counts)
    chars: Counter[str] = Counter()
    later: set[str] = set()
    for word, count in counts.items():
        later.update(word[1:])
        for char in word:
            chars[char] += count
    # The most frequent characters; ties are broken by code point.
    alphabet = sorted(sorted(chars, key=lambda c: (-chars[c], c))[:MAX_ALPHABET])
    inner = [f"##{char}" for char in alphabet if char in later]
    trainer = trainers.WordPieceTrainer(
        vocab_size=size,
        special_tokens=[*names, *alphabet, *inner],
        limit_alphabet=0,  # no other
        show_progress=False,
    )
    repeated = (f"{word} " * count for word, count in sorted(counts.items()))
    core.train_from_iterator(repeated, trainer)
    # A new tokenizer, as the alphabet must not be special tokens.
    ids = json.loads(core.to_str())["model"]["vocab"]
    made = make_wordpiece(ids, lowercase)
    made.normalizer = normalizer
    return made


def _train_unigram(
    texts: Iterable[str], size: int, names: list[str], vocab_size: int
) -> tokenizers.Tokenizer:
    counts: Counter[str] = Counter()
    for chunk, count in _count_chunks(texts, WORDS).items():
        for word in chunk.split():
            for part in _cut_word(word):
                counts[part] += count
    out = io.BytesIO()
    try:
        sentencepiece.SentencePieceTrainer.train(
            sentence_iterator=(f"{w}\t{n}" for w, n in sorted(_scale(counts).items())),
            input_format="tsv",
            model_writer=out,
            model_type="unigram",
            vocab_size=size - len(names) + 1,
            hard_vocab_limit=False,
            unk_id=0,
            bos_id=-1,
            eos_id=-1,
            pad_id=-1,
            num_threads=4,  # fixed, as the result depends on it
            minloglevel=2,
        )
    except RuntimeError as error:
        if short := re.search(r"required_chars. (\d+) vs (\d+)", str(error)):
            least = vocab_size + int(short[2]) - int(short[1])
            raise _too_small(vocab_size, f"at least {least}") from error
        raise DataError(f"data.path: no text to train a unigram on: {error}") from error
    proto = sentencepiece_model_pb2.ModelProto.FromString(out.getvalue())
    learnt = [(piece.piece, piece.score) for piece in proto.pieces[1:]]
    return make_unigram(
        [(name, 0.0) for name in names] + learnt,
        names.index(SPECIALS["unk"]),
        proto.normalizer_spec.precompiled_charsmap,
    )


def _too_small(vocab_size: int, least: str) -> UserError:
    return DataError(
        f"tokenizer.vocab_size={vocab_size}: must be {least}, for the specials, the "
        "sentinels and the alphabet of the text"
    )


def _count_chunks(texts: Iterable[str], cut: str) -> Counter:
    """Counts chunks; if there are too many, rare ones are dropped."""
    counts: Counter[str] = Counter()
    find, least = re.compile(cut).findall, 1
    for text in texts:
        counts.update(find(text))
        while len(counts) > MAX_COUNTED:
            counts = Counter({k: n for k, n in counts.items() if n > least})
            least *= 2
    return counts


def _cut_word(word: str) -> list[str]:
    """The parts of a word, of at most MAX_WORD characters."""
    if len(word) <= MAX_WORD:
        return [word]
    return [word[i : i + MAX_WORD] for i in range(0, len(word), MAX_WORD)]


def _cut_long(text: str) -> Iterator[str]:
    """Parts of a text, cut only within text without whitespace, and within whitespace.

    >>> [len(part) for part in _cut_long("a b " + "c" * 2500 + " d")]
    [1004, 1000, 502]
    """
    start = 0
    for match in _LONG.finditer(text):
        for end in range(match.start() + MAX_WORD, match.end(), MAX_WORD):
            yield text[start:end]
            start = end
    yield text[start:]


def _scale(counts: Counter) -> Counter:
    """Scales counts of words so that their text has at most MAX_CHARS characters."""
    num_chars = sum((len(word) + 1) * count for word, count in counts.items())
    divisor = -(-num_chars // MAX_CHARS)
    scaled = {w: (n + divisor // 2) // divisor for w, n in counts.items()}
    return Counter({word: count for word, count in scaled.items() if count})


def _with_text(texts: Iterable[str], kind: str) -> Iterator[str]:
    """Yields the texts with lone surrogates as U+FFFD."""
    is_blank = True
    for text in texts:
        is_blank = is_blank and not text.strip()
        try:
            text.encode()
        except UnicodeEncodeError:
            text = re.sub("[\ud800-\udfff]", "\ufffd", text)
        yield text
    if is_blank:
        raise DataError(f"data.path holds no text: tokenizer.kind {kind!r} needs some")
