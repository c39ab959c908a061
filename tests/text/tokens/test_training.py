import itertools
import subprocess
import sys
import unicodedata
from pathlib import Path

import pytest
import tokenizers

from jaxpt.text.tokens import tokenizer as tok
from jaxpt.text.tokens import training
from jaxpt.text.tokens.tokenizer import TokenizerSpec
from jaxpt.text.tokens.training import train_subword

ROOT = Path(__file__).resolve().parents[3]
ROLES = ("pad", "unk", "mask")
TEXTS = [
    "low lower lowest new newer newest wide wider widest. ",
    "“He's slow,” said naïve Zoë; 中文 slowly, newly, widely…\n\n",
] * 8
KINDS = ("bpe", "wordpiece", "unigram")


def test_bpe_by_hand():
    # 256 bytes, then the most frequent pairs: "l"+"o", then "lo"+"w".
    bpe = train_subword("bpe", ["low\nlow\nlow\nlot"], 3 + 256 + 2 + 1, ROLES, 1)
    assert bpe.vocab.size == 262
    assert [bpe.token_name(i) for i in (0, 1, 2)] == ["[PAD]", "[UNK]", "[MASK]"]
    assert [bpe.token_name(i) for i in (259, 260)] == ["lo", "low"]
    assert bpe.vocab.sentinels == (261,)
    assert len(bpe.encode("low")) == 1
    assert len(bpe.encode("lot")) == 2


def test_bpe_is_the_library_s_own():
    core = tokenizers.Tokenizer(tokenizers.models.BPE())
    core.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=340,
        initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    core.train_from_iterator(TEXTS, trainer)
    tokenizer = train_subword("bpe", iter(TEXTS), 340)
    assert tokenizer.to_json()["core"]["model"]["vocab"] == core.get_vocab()
    text = TEXTS[1]
    assert tokenizer.encode(text).tolist() == core.encode(text).ids


class Spy:
    """A tokenizer of the library that records the longest word of its training."""

    longest = 0

    def __init__(self, core):
        self.core = core

    def __getattr__(self, name):
        return getattr(self.core, name)

    def train_from_iterator(self, texts, trainer):
        texts = list(texts)
        for text in texts:
            for word, _ in self.core.pre_tokenizer.pre_tokenize_str(text):
                Spy.longest = max(Spy.longest, len(word))
        self.core.train_from_iterator(texts, trainer)


@pytest.mark.parametrize("kind", ["bpe", "wordpiece"])
@pytest.mark.parametrize("long", ["abcab" * 4000, " " * 20_000, "中文字" * 4000])
def test_words_are_bounded(kind, long, monkeypatch):
    """The time of training is quadratic in the longest word."""
    make, Spy.longest = getattr(training, f"make_{kind}"), 0
    monkeypatch.setattr(training, f"make_{kind}", lambda *args: Spy(make(*args)))
    texts = [f"ab c {long} ab c"]
    made = train_subword(kind, texts, 300, ("unk",))
    width = 3 if kind == "bpe" else 1  # characters are bytes
    assert 0 < Spy.longest <= width * (training.MAX_WORD + 1)
    assert made.encode("ab").size > 0


def test_only_long_words_are_cut():
    text = "ab " * 1000 + "c" * training.MAX_WORD + "\n" * training.MAX_WORD + "d"
    assert list(training._cut_long(text)) == [text]
    longer = f"a {'b' * (2 * training.MAX_WORD + 1)} c"
    parts = list(training._cut_long(longer))
    assert "".join(parts) == longer and len(parts) == 3


def test_wordpiece_by_hand():
    # Characters by code point, those inside of words with "##", then merges. "lo" comes
    # 4 times, and so does "ow"; of these the one of lower ids is first.
    made = train_subword("wordpiece", ["low low low lo ow"], 9, ("unk",))
    names = [made.token_name(i) for i in range(made.vocab.size)]
    assert names[:6] == ["[UNK]", "l", "o", "w", "##o", "##w"]
    assert names[6:] == ["lo", "low", "ow"]
    assert made.encode("low lo").tolist() == [7, 6]


def test_lowercase():
    cased = train_subword("wordpiece", ["Élan élan"], 60, ("unk",))
    plain = train_subword("wordpiece", ["Élan élan"], 60, ("unk",), 0, True)
    assert plain.decode(plain.encode("ÉLAN")) == "elan"
    assert cased.decode(cased.encode("Élan")) == "Élan"


def test_alphabet_of_wordpiece_is_bounded(monkeypatch):
    monkeypatch.setattr(training, "MAX_ALPHABET", 2)
    made = train_subword("wordpiece", ["aa aa ba ca cb"], 40, ("unk",))
    # a comes 6 times, b and c twice: b is before c.
    names = {made.token_name(i) for i in range(made.vocab.size)}
    assert {"a", "b", "##a", "##b"} <= names and not {"c", "##c"} & names
    assert made.encode("c").tolist() == [0]


def test_unigram_keeps_frequent_words():
    made = train_subword("unigram", TEXTS, 80, ROLES, 2)
    assert made.vocab.size <= 80
    assert made.vocab.unk == 1
    assert made.decode(made.encode("newest  lower")) == "newest lower"
    assert len(made.encode("newest")) <= 3


CODE = """
from jaxpt.text.tokens.tokenizer import TokenizerSpec, fingerprint, make_tokenizer
texts = %r
for kind in %r:
    spec = TokenizerSpec(kind, vocab_size=300, specials=%r, num_sentinels=2)
    print(fingerprint(make_tokenizer(spec, texts)))
"""


def test_two_trainings_are_alike():
    # In separate processes: the library seeds its tables at random in each.
    code = CODE % (TEXTS, KINDS, ROLES)
    command = [sys.executable, "-c", code]
    outputs = [
        subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
        for _ in range(3)
    ]
    first, *others = [output.stdout.split() for output in outputs]
    assert len(first) == 3
    assert all(other == first for other in others)


@pytest.mark.parametrize("kind", KINDS)
def test_size(kind):
    for size in (300, 320):
        made = train_subword(kind, TEXTS, size, ROLES, 4)
        assert made.vocab.size <= size
        assert made.vocab.num_sentinels == 4
        assert made.vocab.sentinels[0] == made.vocab.size - 1
    assert train_subword("bpe", TEXTS, 300, ROLES, 4).vocab.size == 300


@pytest.mark.parametrize("kind", KINDS)
def test_how_texts_are_parted_does_not_matter(kind):
    spec = TokenizerSpec(kind, vocab_size=300, specials=ROLES)
    whole = "".join(TEXTS)
    # Parts begin with whitespace, as those of a long document do.
    places = [whole.index(" ", i) for i in range(0, 600, 100)]
    parts = [whole[: places[0]]]
    parts += [whole[a:b] for a, b in itertools.pairwise([*places, len(whole)])]
    assert "".join(parts) == whole
    one, many = (tok.make_tokenizer(spec, iter(t)) for t in ([whole], parts))
    assert tok.fingerprint(one) == tok.fingerprint(many)


def test_counts_are_scaled_down(monkeypatch):
    counts = training.Counter({"ab": 10, "c": 5, "d": 1})
    assert training._scale(counts) == counts
    monkeypatch.setattr(training, "MAX_CHARS", 25)
    # 3*10 + 2*5 + 2*1 = 42 characters in 25: by 2, halves up.
    assert training._scale(counts) == {"ab": 5, "c": 3, "d": 1}
    monkeypatch.setattr(training, "MAX_CHARS", 11)
    assert training._scale(counts) == {"ab": 3, "c": 1}


def test_counting_is_bounded(monkeypatch):
    monkeypatch.setattr(training, "MAX_COUNTED", 3)
    counts = training._count_chunks(["a a a b b", "c", "d e", "a f"], training.WORDS)
    # "d e" makes five: those that came once are let go. "a f" makes three.
    assert counts == {"a": 4, "b": 2, "f": 1}


@pytest.mark.parametrize("kind", KINDS)
def test_no_text(kind, refuses):
    for texts in ([], [""], [" \n", "\t"]):
        with refuses("data.path", kind):
            train_subword(kind, texts, 400, ROLES)


@pytest.mark.slow_cases("bpe")
@pytest.mark.parametrize("kind", KINDS)
def test_odd_texts(kind):
    for text in ("a", "ab\ud800", "x" * 5_000, "a\tb\x1f5\n", "▁a", "中" * 9_000):
        made = train_subword(kind, [text], 400, ROLES)
        assert made.encode(text).dtype == "int32"


def test_nothing_that_is_kept(refuses):
    with refuses("data.path", "unigram"):
        train_subword("unigram", ["\u200b"], 400, ROLES)


@pytest.mark.parametrize(
    "kind, size, parts",
    [
        ("bpe", 3 + 256 + 1, ["vocab_size=260", "at least 261"]),
        ("wordpiece", 4, ["vocab_size=4", "at least 6"]),
        ("wordpiece", 20, ["vocab_size=20", "at least 45"]),
        ("unigram", 20, ["vocab_size=20", "at least 31"]),
    ],
)
def test_too_small(kind, size, parts, refuses):
    with refuses("tokenizer.vocab_size", *parts):
        train_subword(kind, TEXTS, size, ROLES, 2)


@pytest.mark.parametrize("kind, least", [("wordpiece", 45), ("unigram", 31)])
def test_the_least_size_is_enough(kind, least, refuses):
    assert train_subword(kind, TEXTS, least, ROLES, 2).vocab.size == least
    with refuses("tokenizer.vocab_size", f"at least {least}"):
        train_subword(kind, TEXTS, least - 1, ROLES, 2)


@pytest.mark.parametrize("kind", ["wordpiece", "unigram"])
def test_needs_unk(kind, refuses):
    with refuses("tokenizer.specials", "'unk'", kind):
        train_subword(kind, TEXTS, 300, ("pad",))
    assert train_subword("bpe", TEXTS, 300, ("pad",)).vocab.unk is None


ENGLISH = ("The café was open. " + "There are few accents in English. " * 9) * 9
SCRIPTS = {
    "hindi": "यह एक हिन्दी वाक्य है और की में। ",
    "thai": "ที่นี่มีน้ำดื่ม สวัสดีครับ ",
    "arabic": "مُحَمَّدٌ رَسُولٌ آخر ",
    "hebrew": "שָׁלוֹם עֲלֵיכֶם ",
    "japanese": "がぎぐげご ばびぶ だから ",
    "russian": "Мой новый ёж — хороший ",
    "tamil": "தமிழ் மொழி ",
    "korean": "한국어 문장 ",
}


@pytest.mark.parametrize("script", SCRIPTS)
def test_lowercasing_keeps_the_marks_of_other_scripts(script, caplog):
    text = SCRIPTS[script] * 50
    with caplog.at_level("INFO", "jaxpt"):
        made = train_subword("wordpiece", [text], 400, ("unk",), 0, True)
    composed = unicodedata.normalize("NFC", made.decode(made.encode(text)))
    expected = unicodedata.normalize("NFC", text.lower())
    assert "".join(composed.split()) == "".join(expected.split())
    if script != "korean":  # which has no marks
        (line,) = {record.getMessage() for record in caplog.records}
        assert "strip_accents=auto: accents are kept" in line
        caplog.clear()
        stripped = train_subword("wordpiece", [text], 400, ("unk",), 0, True, "yes")
        assert stripped.decode(stripped.encode(text)) != composed
        (line,) = {record.getMessage() for record in caplog.records}
        assert "of the characters are marks that are stripped" in line


def test_accents_of_latin_letters_are_stripped_with_case_as_in_bert(caplog):
    decode = {}
    for lowercase, strip in [(True, x) for x in tok.STRIP_ACCENTS] + [(False, "yes")]:
        made = train_subword("wordpiece", [ENGLISH], 400, ("unk",), 0, lowercase, strip)
        decode[lowercase, strip] = made.decode(made.encode("The café"))
        stored = made.to_json()["core"]["normalizer"]["strip_accents"]
        assert stored == {"auto": None, "yes": None if lowercase else True}.get(
            strip, False
        )
    assert decode == {
        (True, "auto"): "the cafe",
        (True, "yes"): "the cafe",
        (True, "no"): "the café",
        (False, "yes"): "The cafe",
    }
    assert not caplog.records
    french = "Été, où l'élève répète: ça a été décidé. "
    train_subword("wordpiece", [french], 400, ("unk",), 0, True)
    assert "of the characters are marks that are stripped" in caplog.text
