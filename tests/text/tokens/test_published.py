"""The published vocabularies give transformers' ids, and SentencePiece's."""

import contextlib
import json
import lzma
import os
import shutil
import unicodedata
from pathlib import Path

import numpy as np
import pytest
import sentencepiece
from sentencepiece import sentencepiece_model_pb2
from shared import find_shared

from jaxpt.text.tokens import tokenizer as tok
from jaxpt.text.tokens.chunks import FINE_WORDS, WITH_SPACE, WORDS
from jaxpt.text.tokens.exported import export_tokenizer
from jaxpt.text.tokens.published import make_wordpiece, read_published
from jaxpt.text.tokens.tokenizer import TokenizerSpec

BERT = {"pad": 0, "unk": 100, "cls": 101, "sep": 102, "mask": 103}
ROBERTA = {"mask": 0, "pad": 1, "unk": 2, "cls": 3, "sep": 4, "bos": 3, "eos": 4}
# File, size, how it may be cut, roles.
VOCABS = {
    "gpt2": ("gpt2", 50257, WITH_SPACE, {"bos": 50256, "eos": 50256}),
    "bert-uncased": ("bert/bert-base-uncased-vocab.txt", 30522, FINE_WORDS, BERT),
    "bert-cased": ("bert/bert-base-cased-vocab.txt", 28996, FINE_WORDS, BERT),
    "t5": ("t5/sentencepiece.model", 32000, WORDS, {"pad": 0, "eos": 1, "unk": 2}),
    "babyberta": ("babyberta/babyberta.json", 8192, WITH_SPACE, ROBERTA),
}
NASTY = [
    "",
    " ",
    "\n",
    "   \t\n\r\n  ",
    "Hello, world!  Two  spaces,\ttab\n\n\nlines.\r\nCRLF and a lone \r return",
    "I'm you're it's we'll they'd I've don't DON'T 'S 's ''s '’s’s",
    "The house is wonderful.",
    "🙂👍🏽 👨‍👩‍👧‍👦 🇩🇪🏴󠁧󠁢󠁳󠁣󠁴󠁿 ❤️ 1️⃣",
    "中文字符，没有空格。日本語のテキスト カタカナ ﾊﾝｶｸ 한국어 텍스트",
    "e\u0301 é a\u0300\u0301\u0302\u0303 Z͑ͫ̓ͪ̂ͫA̴̵̜̰ͬͥL̶G̊Ō \u0301x \u0338= ≠",
    "شكرا لك עִבְרִית \u202eright to left\u202c \u200fمرحبا \u0600 1",
    "हिन्दी में पाठ ไทยไม่มีช่องว่าง தமிழ் বাংলা",
    "\x00 a\x00b \x01\x02 c\x7fd \x1b[31m \x85 e\x1cf\x1dg",
    "a\xa0b \xa0 c\u2003d \u2028e\u2029f\u3000g \u200bh\u200c\u200di\u2060j\ufeffk",
    "soft\xadhyphen ﬁ ligature ½ ² ① Ⅷ ㎏ ｆｕｌｌ İı ſ ẞ ß Σ ς ΣΑΣ ᾳ ΐ Ǆ ǆ",
    "1234567890 3.14159 1,000,000 $9.99 50% 2³ x² ٣٤٥ 一二三",
    "“Quotes” ‘single’ «guillemets» – en — em … • ´ ` ¨ ^ ~ <tag> &amp; </p>",
    "http://example.com/a?b=c&d=%20#e user@example.org C:\\path\\x.txt __init__",
    "\U0001d518\U0001d52b\U0001d526 \U00020000 \U000e0001 \U0010fffd \ufffe \ufffd",
    "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa"
    * 3,
    "▁ ▁▁ a▁b Ġ Ċ ## ##ing a##b @@ </w>",
    "the end   ",
]
NAMES = "[MASK] <mask> [PAD] <pad> </s> <s> [UNK] <unk> <|endoftext|> <extra_id_0> x"
LONG = {
    "1 MB line": ("the quick brown fox, " * 50_000)[:1_000_000],
    "no space": "abcdefghij" * 10_000,
    "spaces": " " * 100_000 + "x",
    "中": "中文" * 50_000,
}


def locate(name: str) -> Path:
    return find_shared(
        f"tokenizers/{VOCABS[name][0]}",
        "that published vocabularies give the ids of transformers",
    )


@pytest.fixture(scope="module")
def load_ours():
    """`mine("gpt2")`: our tokenizer, loaded once."""
    loaded = {}

    def get(name):
        if name not in loaded:
            loaded[name] = read_published(locate(name))
        return loaded[name]

    return get


@pytest.fixture(scope="module")
def load_hf(tmp_path_factory):
    """`theirs("gpt2")`: transformers' tokenizer, loaded once."""
    os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
    import transformers

    loaded = {}

    def load(name):
        path, folder = locate(name), tmp_path_factory.mktemp(name)
        plain = {"split_special_tokens": True}
        if name == "gpt2":
            shutil.copy(path / "encoder.json", folder / "vocab.json")
            shutil.copy(path / "vocab.bpe", folder / "merges.txt")
            return transformers.GPT2Tokenizer.from_pretrained(folder, **plain)
        if name == "t5":
            shutil.copy(path, folder / "spiece.model")
            return transformers.T5Tokenizer.from_pretrained(folder, **plain)
        if name == "babyberta":
            return transformers.PreTrainedTokenizerFast(
                tokenizer_file=str(path), **plain
            )
        shutil.copy(path, folder / "vocab.txt")
        return transformers.BertTokenizer.from_pretrained(
            folder, do_lower_case=name == "bert-uncased", **plain
        )

    def get(name):
        if name not in loaded:
            loaded[name] = load(name)
        made = loaded[name]
        return lambda text: made(text, add_special_tokens=False)["input_ids"]

    return get


@pytest.fixture(scope="module")
def lines():
    """2,000 lines of WikiText-2 that are not empty, line ends and all."""
    path = find_shared(
        "corpora/wikitext-2/wiki.valid.raw.xz",
        "that published vocabularies give the ids of transformers on real text",
    )
    with lzma.open(path, "rt", encoding="utf-8", newline="") as file:
        result = [line for line in file if line.strip()][:2000]
    assert len(result) == 2000
    return result


@pytest.mark.slow_except("babyberta")
@pytest.mark.parametrize("name", VOCABS)
def test_wikitext_as_transformers(name, load_ours, load_hf, lines):
    ours, other = load_ours(name), load_hf(name)
    for line in lines:
        assert ours.encode(line).tolist() == other(line)


@pytest.mark.slow_cases("t5", "gpt2", "bert-cased")
@pytest.mark.parametrize("name", VOCABS)
def test_nasty_as_transformers(name, load_ours, load_hf):
    ours, other = load_ours(name), load_hf(name)
    for text in [*NASTY, "\n".join(NASTY), "".join(NASTY)]:
        assert ours.encode(text).tolist() == other(text), text


@pytest.mark.slow_except(
    "no space-*",
    "spaces-t5",
    "\\u4e2d-t5",
    "spaces-babyberta",
    "spaces-bert-cased",
    "spaces-bert-uncased",
)
@pytest.mark.parametrize("name", VOCABS)
@pytest.mark.parametrize("what", LONG)
def test_long_as_transformers(name, what, load_ours, load_hf):
    assert load_ours(name).encode(LONG[what]).tolist() == load_hf(name)(LONG[what])


@pytest.mark.parametrize("name", ["gpt2", "bert-uncased", "bert-cased", "babyberta"])
def test_special_names_as_transformers(name, load_ours, load_hf):
    # Not T5: transformers reads "</s>" in a text as the end of it.
    assert load_ours(name).encode(NAMES).tolist() == load_hf(name)(NAMES)


@pytest.fixture(scope="module")
def spm():
    return sentencepiece.SentencePieceProcessor(model_file=str(locate("t5")))


def test_t5_as_sentencepiece(spm, load_ours, lines):
    t5 = load_ours("t5")
    assert t5.encode("The house is wonderful.").tolist() == [37, 629, 19, 1627, 5]
    for text in [*lines, NAMES]:
        assert t5.encode(text).tolist() == spm.encode(text), text


# Where transformers departs from SentencePiece, and we with it: a letter with several
# combining marks is normalized as one, and U+0085 is whitespace.
APART = {9, 12}


def test_nasty_t5_as_sentencepiece(spm, load_ours):
    differs = {
        i
        for i, t in enumerate(NASTY)
        if load_ours("t5").encode(t).tolist() != spm.encode(t)
    }
    assert differs == APART


def test_by_hand(load_ours):
    assert load_ours("gpt2").encode("Hello world").tolist() == [15496, 995]
    assert load_ours("gpt2").encode(" Hello world").tolist() == [18435, 995]
    uncased = load_ours("bert-uncased").encode("The house is wonderful.")
    assert uncased.tolist() == [1996, 2160, 2003, 6919, 1012]


@pytest.mark.parametrize("name", VOCABS)
def test_vocab(name, load_ours):
    _, size, cut, roles = VOCABS[name]
    vocab = load_ours(name).vocab
    assert load_ours(name).to_json()["specials"] == roles
    assert vocab.size == size
    assert vocab.sentinels == vocab.others == ()
    assert len(vocab.word_starts) == vocab.size
    # BabyBERTa's puts a space before a text, which has one byte more then.
    assert len(vocab.token_bytes) == (vocab.size if name == "gpt2" else 0)
    assert set(vocab.special_ids.tolist()) == set(roles.values())
    # The fast way of encoding is taken.
    assert cut in load_ours(name)._encoder._cut.pattern


def test_word_starts(load_ours):
    """As fairseq's `get_whole_word_mask` has it."""
    for name, text, starts in (
        # An | unbeliev abl eness , | ok | \n | \n Yes
        ("gpt2", "An unbelievableness, ok\n\nYes", [0, 1, 0, 0, 0, 1, 1, 1, 0]),
        # An | un ##believable ##ness | , | ok
        ("bert-cased", "An unbelievableness, ok", [1, 1, 0, 0, 1, 1]),
        # An | unbelievable ness , | _ ok
        ("t5", "An unbelievableness, ok", [1, 1, 0, 0, 1, 0]),
        # an | un b el ie v ab l eness , | ok
        ("babyberta", "an unbelievableness, ok", [1, 1, *[0] * 8, 1]),
    ):
        ids = load_ours(name).encode(text)
        results = [int(load_ours(name).vocab.word_starts[i]) for i in ids]
        assert results == starts, [load_ours(name).token_name(i) for i in ids]


def test_bytes_of_gpt2(load_ours, lines):
    gpt2 = load_ours("gpt2")
    text = "".join(lines[:300]) + "".join(NASTY)
    ids = gpt2.encode(text)
    assert sum(gpt2.vocab.token_bytes[i] for i in ids) == len(text.encode())
    assert gpt2.decode(ids) == text


def plain(text):
    """A text as uncased BERT has it: small letters without accents."""
    parts = unicodedata.normalize("NFD", text.lower())
    return "".join(c for c in parts if unicodedata.category(c) != "Mn")


# The name of a token -> its possible spellings in a text.
READINGS = {
    "gpt2": lambda piece, span: span == piece,
    # A space before the text is the tokenizer's own.
    "babyberta": lambda piece, span: span.lower() in (piece, piece[1:]),
    "bert-cased": lambda piece, span: span.strip() == piece,
    "bert-uncased": lambda piece, span: plain(span.strip()) == piece,
    "t5": lambda piece, span: (
        unicodedata.normalize("NFKC", span).strip() == piece.strip()
    ),
}


@pytest.mark.parametrize("name", VOCABS)
def test_a_token_has_the_bytes_that_it_stands_for(name, load_ours, lines):
    tokenizer, text = load_ours(name), "".join(lines[:120]) + " Ünïcode  – ﬁne\t… end"
    ids, sizes = tokenizer.encode_sized(text)
    assert ids.tolist() == tokenizer.encode(text).tolist()
    data, ends = text.encode(), np.cumsum(sizes).tolist()
    assert ends[-1] == len(data)
    num_read = 0
    for id_, start, end in zip(ids.tolist(), [0, *ends], ends):
        span, piece = data[start:end], tokenizer.vocab.pieces[id_]
        with contextlib.suppress(UnicodeDecodeError):  # of a part of a character
            if id_ != tokenizer.vocab.unk and span and piece.decode().isascii():
                assert READINGS[name](piece.decode(), span.decode()), (piece, span)
                num_read += 1
    assert num_read > 0.95 * len(ids)


@pytest.mark.parametrize("name", VOCABS)
def test_no_byte_is_lost_or_counted_twice(name, load_ours):
    tokenizer = load_ours(name)
    for text in (*NASTY, NAMES, *(long[:3000] for long in LONG.values())):
        ids, sizes = tokenizer.encode_sized(text + " end.")
        assert len(ids) == len(sizes) and sizes.min() >= 0
        assert sizes.sum() == len((text + " end.").encode())
        ids, sizes = tokenizer.encode_sized(text)
        rest = text.encode()[sizes.sum() :]
        assert not len(tokenizer.encode(rest.decode())) or tokenizer.kind == "bpe"


def test_unknown_is_counted(load_ours):
    assert load_ours("gpt2").count_unknown("".join(NASTY)) == 0
    assert load_ours("bert-cased").count_unknown("a ᛗ b ✂✂ c") == 2
    assert load_ours("t5").count_unknown("a < b") == 1


@pytest.mark.slow
def test_adding_specials(load_ours):
    # T5's file does not have the sentinels, nor GPT-2's [MASK].
    t5 = read_published(locate("t5"), ("mask", "pad"), 100)
    assert t5.vocab.size == 32101
    assert t5.vocab.mask == 32000
    assert t5.vocab.sentinels == tuple(range(32100, 32000, -1))
    ids = t5.encode_prompt("Thank you <extra_id_0> me</s>").tolist()
    assert ids == [1562, 25, 32100, 140, 1]
    plain = read_published(locate("t5"), num_sentinels=100)
    assert plain.vocab.sentinels[0] == 32099  # as transformers has it
    gpt2 = read_published(locate("gpt2"), ("mask", "eos"))
    assert (gpt2.vocab.mask, gpt2.vocab.eos) == (50257, 50256)
    assert gpt2.vocab.size == 50258
    assert gpt2.encode("[MASK]").max() < 50257
    before = load_ours("gpt2").encode("The [MASK] cat")
    assert gpt2.encode("The [MASK] cat").tolist() == before.tolist()


def test_a_special_that_is_missing_is_named(refuses):
    vocab = read_published(locate("t5"), num_sentinels=3).vocab
    assert vocab.num_sentinels == 3
    with refuses("tokenizer.specials", "'cls'"):
        vocab.require("cls")


@pytest.mark.slow_except("babyberta")
@pytest.mark.parametrize("name", VOCABS)
def test_save_load_export(name, load_ours, tmp_path, lines):
    one = load_ours(name)
    if name in ("t5", "bert-cased"):
        one = read_published(locate(name), ("mask", "bos"), 2)
    tok.save(one, tmp_path / "own.json")
    export_tokenizer(one, tmp_path / "hub.json")
    text = "".join(lines[:50]) + NAMES
    for each in ("own.json", "hub.json"):
        again = tok.load(tmp_path / each)
        assert again.vocab == one.vocab
        assert tok.fingerprint(again) == tok.fingerprint(one)
        assert again.encode(text).tolist() == one.encode(text).tolist()
        assert again.encode(text).tolist() == load_ours(name).encode(text).tolist()


def test_folders(tmp_path):
    path = locate("gpt2")
    folder = tmp_path / "gpt2"
    folder.mkdir()
    shutil.copy(path / "encoder.json", folder / "vocab.json")
    shutil.copy(path / "vocab.bpe", folder / "merges.txt")
    made = tok.make_tokenizer(TokenizerSpec("file", str(folder)), [])
    assert made.encode("Hello world").tolist() == [15496, 995]
    folder = tmp_path / "bert"
    folder.mkdir()
    shutil.copy(locate("bert-cased"), folder / "vocab.txt")
    assert tok.load(folder).vocab.size == 28996


TOKENS = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", "a", "##b"]


@pytest.mark.parametrize(
    "name, content, parts",
    [
        ("vocab.txt", "\n".join(TOKENS).replace("##b", "a"), ["line 7", "twice"]),
        ("vocab.txt", "\n".join(TOKENS).replace("\na", "\n\na"), ["line 6", "empty"]),
        ("vocab.txt", "just\nsome\ntext", ["lacks [UNK]"]),
        ("vocab.txt", "", ["lacks [UNK]"]),
        ("vocab.txt", b"\xff\xfe", ["not UTF-8"]),
        ("x.model", b"", ["not a SentencePiece model"]),
        ("x.model", b"{}", ["not a SentencePiece model"]),
        ("x.model", b"\x00" * 64, ["not a SentencePiece model"]),
        ("x.json", "{", ["not JSON"]),
        ("x.json", '{"a": 0, "b": 1}', ["x.json"]),
        ("x.json", '{"model": {}}', ["not a Hugging Face tokenizer.json"]),
        ("x.json", '{"model": 1}', ["not a Hugging Face tokenizer.json"]),
    ],
)
def test_bad_file(name, content, parts, tmp_path, refuses):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    for read in (read_published, tok.load):
        with refuses(str(path), *parts):
            read(path)


def test_small_vocab_txt(tmp_path):
    # No upper-case letter but in the specials' names: uncased.
    (tmp_path / "v.txt").write_text("\n".join(TOKENS) + "\n")
    published = read_published(tmp_path / "v.txt")
    assert published.encode("AB ab X").tolist() == [5, 6, 5, 6, 1]
    (tmp_path / "v.txt").write_text("\n".join([*TOKENS, "A"]) + "\n")
    assert read_published(tmp_path / "v.txt").encode("Ab a").tolist() == [7, 6, 5]


@pytest.mark.parametrize(
    "files, parts",
    [
        ({}, ["encoder.json and vocab.bpe", "vocab.txt"]),
        ({"encoder.json": "{}"}, ["must hold"]),
        ({"vocab.json": "{", "merges.txt": ""}, ["vocab.json: not JSON"]),
        ({"vocab.json": "[]", "merges.txt": ""}, ["vocab.json: not a JSON object"]),
        ({"vocab.json": '{"a": 0}', "merges.txt": "b c"}, ["not a byte-level BPE"]),
        ({"vocab.json": '{"a": 0}', "merges.txt": ""}, ["of the 256 bytes"]),
        ({"tokenizer.json": "{}"}, ["not a tokenizer: it has no model"]),
    ],
)
def test_bad_folder(files, parts, tmp_path, refuses):
    for name, content in files.items():
        (tmp_path / name).write_text(content)
    with refuses(str(tmp_path), *parts):
        tok.load(tmp_path)


def test_missing(tmp_path, refuses):
    for name in ("x.json", "x.model", "x.txt", "x"):
        with refuses(str(tmp_path / name), "No such file"):
            tok.load(tmp_path / name)


@pytest.mark.parametrize(
    "change",
    [
        lambda proto: setattr(proto.trainer_spec, "model_type", 2),
        lambda proto: setattr(proto.pieces[9], "type", 4),
        lambda proto: setattr(proto.normalizer_spec, "add_dummy_prefix", False),
        lambda proto: setattr(proto.normalizer_spec, "remove_extra_whitespaces", False),
        lambda proto: setattr(proto.normalizer_spec, "escape_whitespaces", False),
        lambda proto: setattr(proto.trainer_spec, "treat_whitespace_as_suffix", True),
    ],
)
def test_other_sentencepiece_models(change, tmp_path, refuses):
    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(locate("t5").read_bytes())
    change(proto)
    (tmp_path / "x.model").write_bytes(proto.SerializeToString())
    with refuses("x.model", "Unigram of T5's form"):
        read_published(tmp_path / "x.model")


def test_odd_sentencepiece_model(tmp_path, refuses):
    proto = sentencepiece_model_pb2.ModelProto()
    proto.ParseFromString(locate("t5").read_bytes())
    proto.trainer_spec.unk_id = 32_000
    (tmp_path / "x.model").write_bytes(proto.SerializeToString())
    with refuses("x.model", "not a Unigram model"):
        read_published(tmp_path / "x.model")
    del proto.pieces[:]
    (tmp_path / "x.model").write_bytes(proto.SerializeToString())
    with refuses("x.model", "no pieces"):
        read_published(tmp_path / "x.model")


def write_json(path, names, special):
    """A WordPiece tokenizer.json, some of whose tokens are special."""
    flags = dict.fromkeys(("single_word", "lstrip", "rstrip", "normalized"), False)
    ids = {name: id_ for id_, name in enumerate(names)}
    added = [
        {"id": ids[name], "content": name, "special": True} | flags for name in special
    ]
    core = make_wordpiece(ids, lowercase=False)
    path.write_text(json.dumps(json.loads(core.to_str()) | {"added_tokens": added}))


def test_roles_of_a_file_that_only_lists_special_tokens(tmp_path):
    """Ordinary entries of the vocabulary have none, whatever their names."""
    path = tmp_path / "x.json"
    names = ["[UNK]", "</s>", "a", "<s>", "[MASK]"]
    # </s> is a separator if <s> is special (RoBERTa), not otherwise (T5).
    for special, sep in ((["</s>"], None), (["</s>", "<s>"], 1)):
        write_json(path, names, special)
        vocab = tok.load(path).vocab
        assert (vocab.unk, vocab.eos, vocab.sep, vocab.mask) == (0, 1, sep, None)
        assert vocab.bos == vocab.cls == (None if sep is None else 3)
        assert vocab.special_names[1] == "</s>"
    (tmp_path / "v.txt").write_text("\n".join(names))
    vocab = read_published(tmp_path / "v.txt").vocab  # BERT's
    assert (vocab.unk, vocab.mask, vocab.eos, vocab.bos) == (0, 4, None, None)


def test_sentinels_are_special_tokens(tmp_path):
    names = ["[UNK]", "<extra_id_1>", "a", "<extra_id_0>", "<extra_id_3>"]
    write_json(tmp_path / "x.json", names, ())
    assert tok.load(tmp_path / "x.json").vocab.sentinels == ()
    write_json(tmp_path / "x.json", names, [name for name in names if "extra" in name])
    assert tok.load(tmp_path / "x.json").vocab.sentinels == (3, 1)
    # 2 is added, 3 is there.
    more = read_published(tmp_path / "x.json", (), 5).vocab
    assert more.sentinels == (3, 1, 6, 4, 5)


def test_whole_json_is_used(tmp_path):
    # A tokenizer.json with truncation to 128: nothing is cut off.
    path = locate("babyberta")
    assert json.loads(path.read_text())["truncation"]["max_length"] == 128
    assert len(read_published(path).encode("a b " * 400)) == 801
