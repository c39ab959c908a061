import json

import pytest
import tokenizers

from jaxpt.text.tokens import tokenizer as tok
from jaxpt.text.tokens.exported import export_tokenizer
from jaxpt.text.tokens.symbols import ByteTokenizer, CharTokenizer, make_byt5
from jaxpt.text.tokens.tokenizer import TokenizerSpec
from jaxpt.text.tokens.training import train_subword


@pytest.mark.parametrize(
    "tokenizer",
    [
        CharTokenizer("aé\n\ud83d\ude00", ("unk", "mask"), 2),
        CharTokenizer("\0]^-\\[a", ("mask",), 0),
        CharTokenizer("\ud83d"),
        ByteTokenizer(("eos", "bos"), 1),
        make_byt5(),
        train_subword("bpe", ["the cat sat. " * 9], 300, ("unk", "mask"), 2),
        train_subword("wordpiece", ["the cat sat. " * 9], 40, ("mask", "unk"), 2),
        train_subword("unigram", ["the cat sat. " * 9], 20, ("mask", "unk"), 2),
    ],
    ids=lambda tokenizer: f"{tokenizer.kind}-{tokenizer.vocab.size}",
)
def test_save_and_load(tokenizer, tmp_path):
    path = tmp_path / "tokenizer.json"
    tok.save(tokenizer, path)
    again = tok.load(path)
    assert again.vocab == tokenizer.vocab
    assert again.to_json() == tokenizer.to_json()
    assert tok.fingerprint(again) == tok.fingerprint(tokenizer)
    assert type(again) is type(tokenizer)
    text = "aé\ud83d\ude00 the cat[MASK]\0\n]"
    assert again.encode(text).tolist() == tokenizer.encode(text).tolist()
    assert again.strips_left == tokenizer.strips_left
    # The file is one of the library, whose ids are the same.
    core = tokenizers.Tokenizer.from_file(str(path))
    core.encode_special_tokens = True
    text = text.encode("utf-8", "replace").decode()
    if tokenizer.kind in ("char", "byte"):
        assert core.encode(text).ids == tokenizer.encode(text).tolist()
    for id_, name in tokenizer.vocab.special_names.items():
        assert core.token_to_id(name) == id_


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


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        "[" * 100_000,
        "[]",
        "{}",
        '{"model": {"type": "BPE"}}',
        '{"kind": "char", "specials": [], "num_sentinels": 0}',
    ],
)
def test_bad_file(text, tmp_path, refuses):
    path = tmp_path / "tokenizer.json"
    path.write_text(text)
    with refuses("tokenizer.json"):
        tok.load(path)


DAMAGES = {
    "another version": ({"version": 4}, ["model.jaxpt.version is 4"]),
    "no version": ({"version": None}, ["model.jaxpt.version is None"]),
    "a role of no kind": ({"specials": {"msk": 0}}, ["'msk'", "mask"]),
    "an id of text": ({"specials": {"mask": "0"}}, ["specials.mask is '0'"]),
    "an id beyond": ({"specials": {"mask": 99}}, ["must be ids below"]),
    "sentinels of another": ({"sentinels": [0]}, ["'WordLevel'"]),
    "a letter as a special": ({"specials": {"mask": 1}}, ["'WordLevel'"]),
}


@pytest.mark.parametrize("damage, parts", DAMAGES.values(), ids=DAMAGES)
def test_damaged_roles(damage, parts, tmp_path, refuses):
    path = tmp_path / "tokenizer.json"
    tok.save(CharTokenizer("ab", ("mask",), 1), path)
    data = json.loads(path.read_text())
    data["model"]["jaxpt"] |= damage
    path.write_text(json.dumps(data))
    with refuses(str(path), *parts):
        tok.load(path)


def test_other_words_are_refused(tmp_path, refuses):
    """A WordLevel model is read if it is one of characters."""
    path = tmp_path / "tokenizer.json"
    tok.save(CharTokenizer("ab"), path)
    text = path.read_text()
    for old, new in (('"b": 1', '"bc": 1'), ('"Isolated"', '"Removed"')):
        assert old in text
        path.write_text(text.replace(old, new))
        with refuses(str(path), "'WordLevel'"):
            tok.load(path)


def test_roles_may_share_an_id(tmp_path):
    """As in an export whose texts begin with [EOS]."""
    path = tmp_path / "tokenizer.json"
    made = CharTokenizer("ab", ("eos", "mask"), 1)
    tok.save(made, path)
    data = json.loads(path.read_text())
    data["model"]["jaxpt"]["specials"]["bos"] = 0
    path.write_text(json.dumps(data))
    for _ in range(2):
        again = tok.load(path)
        assert (again.vocab.bos, again.vocab.eos, again.vocab.mask) == (0, 0, 1)
        assert again.vocab.special_names == made.vocab.special_names
        assert tok.fingerprint(again) == tok.fingerprint(made)
        tok.save(again, path)


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
    export_tokenizer(CharTokenizer("ab", ("mask",), 1), path)
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
    for write in (tok.save, export_tokenizer):
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
