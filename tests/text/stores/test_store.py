"""A store on disk: what it gives back, and that nothing altered passes for whole."""

import hashlib
import json
import shutil

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxpt.errors import UserError
from jaxpt.text.sources.documents import Document
from jaxpt.text.stores.prepare import Sizes, write_store
from jaxpt.text.stores.store import open_store, read_card, seal_card, token_dtype
from jaxpt.text.tokens.symbols import ByteTokenizer, CharTokenizer
from jaxpt.text.tokens.tokenizer import fingerprint, save

TOKENIZER = CharTokenizer("abc. ", ("eos", "unk"))
DOCUMENTS = [
    Document("ab. ca.", "1", "x"),
    Document("cXé", "2"),
    Document(". b", "3", "a"),
]


def about(tokenizer, **settings):
    settings = {"limit_chars": 0, "heldout_chars": 0, "sentences": ""} | settings
    tokenizer = {"sha256": fingerprint(tokenizer), "spec": {"kind": tokenizer.kind}}
    return {"path": "x", "settings": settings, "sources": [], "tokenizer": tokenizer}


@pytest.fixture(scope="module")
def intact(tmp_path_factory):
    folder = tmp_path_factory.mktemp("stores") / "intact"
    write_store(
        iter(DOCUMENTS),
        TOKENIZER,
        folder,
        about=about(TOKENIZER, sentences="punctuation"),
        log=lambda line: None,
        sizes=Sizes(shard_tokens=6),
    )
    return folder


@pytest.fixture
def folder(intact, tmp_path):
    return shutil.copytree(intact, tmp_path / "store")


def test_what_is_in_it(intact):
    store = open_store(intact)
    ids = store.tokens.read(0, store.tokens.num_tokens)
    assert store.tokenizer.decode(ids) == "ab. ca.[EOS]c[UNK][UNK][EOS]. b[EOS]"
    assert [len(shard) for shard in store.tokens.shards] == [6, 6, 4]
    assert store.doc_starts.tolist() == [0, 8, 12, 16]
    assert store.doc_bytes.tolist() == [7, 4, 3]
    sizes = store.token_bytes.read(0, 16).tolist()
    assert sizes == [1] * 7 + [0, 1, 1, 2, 0, 1, 1, 1, 0]  # [EOS] has none, é has two
    assert list(store.card["label_names"]) == ["x", "a"]
    assert store.labels.tolist() == [0, -1, 1]
    assert store.sentence_starts.tolist() == [0, 3, 8, 12, 13, 16]
    for array in (store.doc_starts, store.doc_bytes, store.sentence_starts):
        assert array.dtype == np.int64 and not array.flags.writeable
    assert store.labels.dtype == np.int32
    card = store.card
    assert card["vocab_size"] == 7 and card["dtype"] == "<u2"
    output = {
        "tokens": 16,
        "documents": 3,
        "main": 3,
        "sentences": 5,
        "bytes": 14,
        "unknown": 2,
    }
    assert {name: card[f"num_{name}"] for name in output} == output
    assert sorted(card["files"]) == sorted(
        path.name for path in intact.iterdir() if path.name != "card.json"
    )


def test_numbers_are_little_endian(intact):
    data = (intact / "tokens-00000.bin").read_bytes()
    assert len(data) == 12 and data[1::2] == bytes(6)
    assert (intact / "documents.bin").read_bytes()[8:16] == b"\x08" + bytes(7)
    assert (intact / "labels.bin").read_bytes()[4:8] == b"\xff" * 4


def test_dtype_of_the_ids():
    assert token_dtype(1 << 16) == "<u2"
    assert token_dtype((1 << 16) + 1) == "<u4"


def test_large_vocabulary(tmp_path):
    characters = [chr(code) for code in range(0x20000, 0x20000 + (1 << 16) + 1)]
    tokenizer = CharTokenizer(characters)
    text = characters[0] + characters[-1]
    store = write_store(
        [Document(text, "1")], tokenizer, tmp_path / "store", about=about(tokenizer)
    )
    assert store.card["dtype"] == "<u4"
    assert store.tokens.read(0, 2).tolist() == [0, 1 << 16]
    assert store.sentence_starts is None and store.card["num_sentences"] is None


def test_fingerprint_is_of_the_content(intact, tmp_path):
    def make(name, documents, **kinds):
        return write_store(
            documents,
            TOKENIZER,
            tmp_path / name,
            about=about(TOKENIZER, **kinds) | {"path": name},
        ).fingerprint

    first = make("a", DOCUMENTS)
    # Stored with runs, so that it stays the same from version to version; of the bytes
    # of tokens, which older stores did not have, it knows nothing.
    assert first == "6a6c81f4ff2c43c601f598f51ede59b2e80da3086f1cb9f6238626ada884ef49"
    assert make("b", DOCUMENTS) == first
    assert make("c", DOCUMENTS, sentences="lines") != first
    assert make("d", DOCUMENTS[:2]) != first
    relabelled = [Document(doc.text, doc.name, doc.label and "q") for doc in DOCUMENTS]
    assert make("e", relabelled[:2]) != make("f", DOCUMENTS[:2])


def names():
    return [
        "card.json",
        "doc_bytes.bin",
        "documents.bin",
        "labels.bin",
        "sentences.bin",
        "token_bytes.bin",
        "tokenizer.json",
        "tokens-00000.bin",
        "tokens-00002.bin",
    ]


@pytest.mark.parametrize("name", names())
@pytest.mark.parametrize("how", ["missing", "empty", "cut", "longer", "folder"])
def test_damaged_files(folder, refuses, name, how):
    path = folder / name
    data = path.read_bytes()
    path.unlink()
    if how == "folder":
        path.mkdir()
    elif how != "missing":
        path.write_bytes({"empty": b"", "cut": data[:-1], "longer": data + b"\0"}[how])
    words = {
        "missing": "is missing",
        "empty": "is empty",
        "cut": f"{len(data) - 1} bytes",
        "longer": f"{len(data) + 1} bytes",
        "folder": "",
    }
    word = words[how]
    if name == "card.json" and how != "missing":
        # Its size is not recorded; it is valid without the last newline.
        if how == "cut":
            path.write_bytes(data[:-3])
        word = "" if how == "folder" else "altered"
    for verify in (True, False):
        with refuses(str(path), word):
            open_store(folder, verify=verify)


@pytest.mark.parametrize("name", names())
@settings(max_examples=40, deadline=None)
@given(data=st.data())
def test_no_flipped_bit_passes(intact, tmp_path_factory, name, data):
    folder = shutil.copytree(intact, tmp_path_factory.mktemp("flipped") / "store")
    content = bytearray((folder / name).read_bytes())
    place = data.draw(st.integers(0, len(content) - 1))
    content[place] ^= 1 << data.draw(st.integers(0, 7))
    (folder / name).write_bytes(content)
    with pytest.raises(UserError) as caught:
        open_store(folder)
    message = str(caught.value)
    assert len(message.splitlines()) == 1 and str(folder / name) in message


FILE = {"bytes": 0, "sha256": ""}  # of a card


def reseal(folder, **changes):
    """A card changed by someone who keeps the checksums right."""
    card = read_card(folder)
    for path in folder.iterdir():
        if path.name in card["files"]:
            digest = hashlib.sha256(path.read_bytes()).hexdigest()
            output = {"bytes": path.stat().st_size, "sha256": digest}
            card["files"][path.name] = output
    (folder / "card.json").write_bytes(seal_card(card | changes))


def test_a_resealed_card_is_read(folder):
    reseal(folder)
    assert open_store(folder).fingerprint


@pytest.mark.parametrize(
    "changes, parts",
    [
        ({"num_tokens": 15}, ["tokens-00000.bin", "16", "15"]),
        ({"num_documents": 4}, ["documents.bin", "3", "4"]),
        ({"num_sentences": 6}, ["sentences.bin", "5", "6"]),
        ({"vocab_size": 8}, ["tokenizer.json", "7", "8"]),
        ({"format": 1}, ["card.json", "format 1", "format 2; prepare the text again"]),
        ({"format": 3}, ["card.json", "format 3", "format 2"]),
        ({"files": {"../x": FILE}}, ["card.json", "'../x'", "not a file of a store"]),
        ({"format": "1"}, ["card.json", "format '1'"]),
    ],
)
def test_a_card_that_does_not_fit(folder, refuses, changes, parts):
    reseal(folder, **changes)
    with refuses(*parts):
        open_store(folder)


def test_ids_outside_the_vocabulary(folder, refuses):
    path = folder / "tokens-00001.bin"
    path.write_bytes(np.array([1, 2, 3, 7, 1, 1], "<u2").tobytes())
    reseal(folder)
    with refuses(str(path), "id 7", "vocabulary of 7"):
        open_store(folder)


def test_another_tokenizer(folder, refuses):
    save(CharTokenizer("abd. ", ("eos", "unk")), folder / "tokenizer.json")
    reseal(folder)
    with refuses(str(folder / "tokenizer.json"), "not the tokenizer"):
        open_store(folder)


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", "\xff", "[" * 100_000])
def test_a_card_that_is_none(folder, refuses, text):
    (folder / "card.json").write_text(text, encoding="latin-1")
    with refuses(str(folder / "card.json")):
        open_store(folder)


def test_no_store(tmp_path, refuses):
    with refuses(str(tmp_path / "gone"), "does not exist"):
        open_store(tmp_path / "gone")
    with refuses(str(tmp_path / "card.json"), "is incomplete"):
        open_store(tmp_path)
    (tmp_path / "file").write_text("")
    with refuses(str(tmp_path / "file")):
        open_store(tmp_path / "file")


def test_a_card_holds_no_time_and_no_place(intact, tmp_path):
    card = json.loads((intact / "card.json").read_text())
    assert card["path"] == "x"
    assert str(intact.parent) not in (intact / "card.json").read_text()
    again = tmp_path / "again"
    write_store(
        DOCUMENTS,
        TOKENIZER,
        again,
        about=about(TOKENIZER, sentences="punctuation"),
        sizes=Sizes(shard_tokens=6, task_chars=3),
    )
    assert (again / "card.json").read_bytes() == (intact / "card.json").read_bytes()


def test_opening_loads_nothing(tmp_path):
    tokenizer = ByteTokenizer()
    store = write_store(
        [Document("a" * 100_000, "1")],
        tokenizer,
        tmp_path / "s",
        about=about(tokenizer),
    )
    assert isinstance(store.tokens.shards[0].base, np.memmap)
