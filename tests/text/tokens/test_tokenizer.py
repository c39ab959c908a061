import json

import pytest

from jaxpt.text.tokens import tokenizer as tok
from jaxpt.text.tokens.symbols import ByteTokenizer, CharTokenizer
from jaxpt.text.tokens.tokenizer import TokenizerSpec
from jaxpt.text.tokens.training import train_subword


@pytest.mark.parametrize(
    "tokenizer",
    [
        CharTokenizer("aé\n\ud83d\ude00", ("unk", "mask"), 2),
        ByteTokenizer(("eos", "bos"), 1),
    ],
)
def test_save_and_load(tokenizer, tmp_path):
    path = tmp_path / "tokenizer.json"
    tok.save(tokenizer, path)
    again = tok.load(path)
    assert again.vocab == tokenizer.vocab
    assert again.to_json() == tokenizer.to_json()
    assert tok.fingerprint(again) == tok.fingerprint(tokenizer)
    assert again.encode("aé\ud83d\ude00").tolist() == (
        tokenizer.encode("aé\ud83d\ude00").tolist()
    )


def test_fingerprint():
    # Stored, so that it stays the same from version to version.
    assert tok.fingerprint(CharTokenizer("ab", ("mask",))) == (
        "8a28cd7eaac75cbcb2ee4ae0426f762c4d979f1809ba04c7b3041e13066b700a"
    )
    prints = {
        tok.fingerprint(tokenizer)
        for tokenizer in (
            CharTokenizer("ab"),
            CharTokenizer("abc"),
            CharTokenizer("ab", ("mask",)),
            CharTokenizer("ab", ("mask", "unk")),
            CharTokenizer("ab", ("unk", "mask")),
            CharTokenizer("ab", (), 1),
            ByteTokenizer(),
        )
    }
    assert len(prints) == 7


@pytest.mark.parametrize(
    "spec, parts",
    [
        ({"specials": ("msk",)}, ["tokenizer.specials", "'msk'", "mask"]),
        ({"specials": ("eos", "eos")}, ["tokenizer.specials", "once"]),
        ({"kind": "bpe", "specials": ("msk",)}, ["tokenizer.specials", "'msk'"]),
        ({"kind": "unigram"}, ["tokenizer.specials", "'unk'"]),
    ],
)
def test_bad_spec(spec, parts, refuses):
    with refuses(*parts):
        tok.make_tokenizer(TokenizerSpec(**spec), ["ab"])


def test_no_text(refuses):
    with refuses("data.path"):
        tok.make_tokenizer(TokenizerSpec(), [""])


GOOD = {"kind": "char", "specials": [], "num_sentinels": 0, "characters": ["a", "b"]}


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[" * 100_000,
        "[]",
        "{}",
        '{"model": {"type": "BPE"}}',
        json.dumps(GOOD | {"kind": ["char"]}),
        json.dumps(GOOD | {"kind": "bpe"}),
        json.dumps(GOOD | {"specials": "mask"}),
        json.dumps(GOOD | {"specials": [["mask"]]}),
        json.dumps(GOOD | {"specials": ["nope"]}),
        json.dumps(GOOD | {"num_sentinels": "2"}),
        json.dumps(GOOD | {"num_sentinels": True}),
        json.dumps(GOOD | {"characters": ["b", "a"]}),
        json.dumps(GOOD | {"characters": ["ab"]}),
        json.dumps(GOOD | {"characters": "ab"}),
        json.dumps({key: GOOD[key] for key in ("kind", "specials", "num_sentinels")}),
    ],
)
def test_bad_file(text, tmp_path, refuses):
    path = tmp_path / "tokenizer.json"
    path.write_text(text)
    with refuses("tokenizer.json"):
        tok.load(path)


def test_good_file(tmp_path):
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps(GOOD))
    assert tok.load(path).encode("ba").tolist() == [1, 0]


def test_unreadable_file(tmp_path, refuses):
    with refuses("gone.json"):
        tok.load(tmp_path / "gone.json")
    with refuses(tmp_path.name):
        tok.load(tmp_path)
    (tmp_path / "latin.json").write_bytes(b'{"kind": "\xe9"}')
    with refuses("latin.json"):
        tok.load(tmp_path / "latin.json")


def test_texts_are_streamed():
    # Each text is requested after the previous one is processed; a file reads none.
    read = []

    def texts():
        for i in range(3):
            read.append(i)
            yield "a b c "

    for kind in ("char", "bpe", "wordpiece", "unigram"):
        tok.make_tokenizer(TokenizerSpec(kind, specials=("unk",)), texts())
        assert read == [0, 1, 2]
        read.clear()
    tok.make_tokenizer(TokenizerSpec("byte"), texts())
    assert read == []


def test_file_of_a_char_tokenizer(tmp_path, refuses):
    path = tmp_path / "tokenizer.json"
    tok.export(CharTokenizer("ab", ("mask",), 1), path)  # has no other form
    for where in (path, tmp_path):  # a prepared store is such a folder
        spec = TokenizerSpec("file", str(where), specials=("mask",), num_sentinels=1)
        made = tok.make_tokenizer(spec, [])
        assert (made.kind, made.vocab.size) == ("char", 4)
    for lacks in ({"specials": ("eos",)}, {"num_sentinels": 2}):
        with refuses(str(path), "a char tokenizer must be made with all"):
            tok.make_tokenizer(TokenizerSpec("file", str(path), **lacks), [])


def test_kinds_are_told(tmp_path):
    for kind in ("char", "byte", "bpe", "wordpiece", "unigram"):
        spec = TokenizerSpec(kind, vocab_size=300, specials=("unk",))
        assert tok.make_tokenizer(spec, ["a b"]).kind == kind


@pytest.mark.parametrize("kind", ["char", "bpe"])
def test_no_link_is_written_through(tmp_path, kind):
    made = tok.make_tokenizer(TokenizerSpec(kind, vocab_size=300), ["a b"])
    victim, path = tmp_path / "victim", tmp_path / "tokenizer.json"
    victim.write_text("dear diary")
    for write in (tok.save, tok.export):
        path.unlink(missing_ok=True)
        path.symlink_to(victim)
        write(made, path)
        assert tok.load(path).vocab == made.vocab
    assert victim.read_text() == "dear diary"


@pytest.mark.parametrize(
    "kind, sha256",
    [
        ("bpe", "852444f2b898d23d66a1e9c3118e0fb75dd00444bdf9f76583611e9db02448d2"),
        (
            "wordpiece",
            "70f5f97ae91f3d0c9a749dc3c08913c55327f4270c1a7856faa70670b6b7137a",
        ),
    ],
)
def test_fingerprints_of_before_hold(kind, sha256):
    """Stores and runs that were made with a tokenizer know it again."""
    made = train_subword(kind, ["the cat sat. " * 9], 300, ("unk", "mask"), 2)
    assert tok.fingerprint(made) == sha256
