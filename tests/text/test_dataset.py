"""From settings to splits: what is kept apart, prepared once, mixed by weight."""

import dataclasses
import json
import os
import shutil

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from jaxpt.errors import UserError
from jaxpt.text import library
from jaxpt.text.dataset import Split, load_text
from jaxpt.text.library import Reporter, open_stores
from jaxpt.text.rows.corpus import Corpus, split_count
from jaxpt.text.text_spec import TextSpec
from jaxpt.text.tokens import tokenizer as tokenizers
from jaxpt.text.tokens.exported import export_tokenizer
from jaxpt.text.tokens.tokenizer import ByteTokenizer, CharTokenizer, TokenizerSpec


def write_lines(folder, texts, labels=None, name="docs") -> str:
    """A .jsonl file with one document a text, labelled if labels are given."""
    path = folder / f"{name}.jsonl"
    labels = labels or [""] * len(texts)
    lines = [
        json.dumps({"text": t, "kind": k}) for t, k in zip(texts, labels, strict=True)
    ]
    path.write_text("\n".join(lines), encoding="utf-8")
    return str(path)


def load(spec, tokenizer=None):
    """The tokenizer, and each split's one part."""
    tokenizer, splits = load_text(spec, tokenizer, reporter=Reporter(lambda text: None))
    assert all(len(split.parts) == 1 for split in splits.values())
    return tokenizer, {name: split.parts[0] for name, split in splits.items()}


def read(corpus: Corpus) -> np.ndarray:
    return corpus.read(0, corpus.num_tokens)


def read_bytes(corpus: Corpus) -> list[int]:
    """The bytes of text of each token."""
    return read(dataclasses.replace(corpus, stream=corpus.byte_stream)).tolist()


def decode_documents(tokenizer, corpus: Corpus) -> list[str]:
    starts = corpus.doc_starts.tolist()
    pairs = zip(starts[:-1], starts[1:], strict=True)
    return [tokenizer.decode(corpus.read(a, b)) for a, b in pairs]


def test_founding_experiment(tinyshakespeare):
    spec = TextSpec(
        path=str(tinyshakespeare),
        split="position",
        valid_fraction=0.1,
        limit_chars=80_000,
        heldout_chars=20_000,
        tokenizer=TokenizerSpec(specials=("mask",)),
    )
    tokenizer, corpora = load(spec)
    assert tokenizer.vocab.size == 62
    assert tokenizer.vocab.mask == 0
    sizes = {name: corpus.num_tokens for name, corpus in corpora.items()}
    assert sizes == {"train": 72_000, "valid": 8_000, "heldout": 20_000}
    text = tinyshakespeare.read_bytes().decode()
    assert tokenizer.decode(read(corpora["train"])) == text[:72_000]
    assert tokenizer.decode(read(corpora["valid"])) == text[72_000:80_000]
    assert tokenizer.decode(read(corpora["heldout"])) == text[80_000:100_000]
    for corpus in corpora.values():
        assert corpus.doc_starts.tolist() == [0, corpus.num_tokens]
        assert read_bytes(corpus) == [1] * corpus.num_tokens


def test_split_documents_by_hand(tmp_path):
    texts = [f"{i}" * (i + 1) for i in range(7)]
    labels = ["b", "a", "", "b", "a", "b", "c"]
    path = write_lines(tmp_path, texts, labels)
    spec = TextSpec(path=path, label_field="kind", valid_fraction=0.3)
    tokenizer, corpora = load(spec)
    # floor(0.3 * (i + 1)) steps up at i = 3 and i = 6.
    assert decode_documents(tokenizer, corpora["valid"]) == ["3333", "6666666"]
    assert decode_documents(tokenizer, corpora["train"]) == [
        texts[i] for i in (0, 1, 2, 4, 5)
    ]
    for corpus in corpora.values():
        assert corpus.label_names == ("a", "b", "c")
    assert corpora["train"].labels.tolist() == [1, 0, -1, 0, 1]
    assert corpora["valid"].labels.tolist() == [1, 2]
    for corpus in corpora.values():
        assert read_bytes(corpus) == [1] * corpus.num_tokens
        assert read(corpus).dtype == corpus.labels.dtype == np.int32
        assert corpus.doc_starts.dtype == np.int64


def test_split_is_exact(tmp_path):
    # In floats (1 - 0.9) * 10 is less than 1, so that a plain int() of it goes astray.
    path = write_lines(tmp_path, ["abcdefghij"], name="one")
    for tenths in range(1, 10):
        spec = TextSpec(path=path, split="position", valid_fraction=tenths / 10)
        assert load(spec)[1]["valid"].num_tokens == tenths
    path = write_lines(tmp_path, ["ab"] * 10, name="ten")
    for tenths in range(1, 10):
        spec = TextSpec(path=path, valid_fraction=tenths / 10)
        assert len(load(spec)[1]["valid"].labels) == tenths


def test_split_position_by_hand(tmp_path):
    path = write_lines(tmp_path, ["aa", "bbbb", "cc"], ["x", "y", "z"])
    spec = TextSpec(path=path, label_field="kind", split="position", valid_fraction=0.5)
    tokenizer, corpora = load(spec)
    assert decode_documents(tokenizer, corpora["train"]) == ["aa", "bb"]
    assert decode_documents(tokenizer, corpora["valid"]) == ["bb", "cc"]
    assert corpora["train"].labels.tolist() == [0, 1]
    assert corpora["valid"].labels.tolist() == [1, 2]


def test_eos_ends_each_document(tmp_path):
    specials = TokenizerSpec(specials=("eos",))
    path = write_lines(tmp_path, ["ab", "c", "d"])
    spec = TextSpec(path=path, valid_fraction=0.4, tokenizer=specials)
    tokenizer, corpora = load(spec)
    assert decode_documents(tokenizer, corpora["train"]) == ["ab[EOS]", "c[EOS]"]
    assert decode_documents(tokenizer, corpora["valid"]) == ["d[EOS]"]
    assert read_bytes(corpora["train"]) == [1, 1, 0, 1, 0]
    path = write_lines(tmp_path, ["abcd"], name="one")
    spec = TextSpec(path=path, split="position", tokenizer=specials, valid_fraction=0.5)
    assert tokenizer.vocab.eos not in read(load(spec)[1]["valid"])


def test_limit_and_heldout_cross_documents(tmp_path):
    path = write_lines(tmp_path, ["abc", "", "def", "ghi", "jkl"])
    spec = TextSpec(path=path, valid_fraction=0.5, limit_chars=5, heldout_chars=3)
    tokenizer, corpora = load(spec, CharTokenizer("abcdefghijkl"))
    assert decode_documents(tokenizer, corpora["train"]) == ["abc"]
    assert decode_documents(tokenizer, corpora["valid"]) == ["de"]
    assert decode_documents(tokenizer, corpora["heldout"]) == ["f", "gh"]
    # Trained on train and valid only.
    spec = dataclasses.replace(
        spec, heldout_chars=7, tokenizer=TokenizerSpec(specials=("unk",))
    )
    tokenizer, corpora = load(spec)
    assert tokenizer.characters == list("abcde")
    assert read(corpora["heldout"]).tolist() == [tokenizer.vocab.unk] * 7


def test_unknown_text_is_counted_in_tokens_and_bytes(tmp_path, caplog):
    path = write_lines(tmp_path, ["aXa", "ไaไaab?"])
    spec = TextSpec(path=path, valid_fraction=0.5)
    for specials in ((), ("unk",)):
        _, [(store, _)], _ = open_stores(spec, CharTokenizer("ab", specials))
        assert store.card["num_unknown"] == 4
        (line,) = {r.getMessage() for r in caplog.records if r.levelname == "WARNING"}
        what = "tokens are [UNK]" if specials else "unknown characters are dropped"
        assert f"4 {what}, for 8 bytes of text (57.14%)" in line
        caplog.clear()
    assert open_stores(spec, ByteTokenizer())[1][0][0].card["num_unknown"] == 0


def test_fingerprint(tmp_path):
    def fingerprint(texts, **settings):
        path = write_lines(tmp_path, texts, name="".join(texts))
        spec = TextSpec(path=path, valid_fraction=0.5, **settings)
        return load(spec, CharTokenizer("abc"))[1]["train"].fingerprint

    first = fingerprint(["ab", "c"])
    assert first == fingerprint(["ab", "c"])
    assert first != fingerprint(["ba", "c"])
    # The same tokens, other documents.
    assert fingerprint(["ab", "bc"], split="position") != fingerprint(
        ["a", "bbc"], split="position"
    )


@settings(max_examples=30, deadline=None)
@given(
    st.lists(st.text("ab", max_size=5), min_size=1, max_size=8),
    st.sampled_from(["documents", "position"]),
    st.floats(0.01, 0.99),
)
def test_splits_lose_nothing(tmp_path_factory, texts, split, fraction):
    path = write_lines(tmp_path_factory.mktemp("docs"), texts)
    spec = TextSpec(path=path, split=split, valid_fraction=fraction)
    try:
        tokenizer, corpora = load(spec, CharTokenizer("ab"))
    except UserError:
        return  # too little text for two parts
    parts = [decode_documents(tokenizer, corpora[name]) for name in ("train", "valid")]
    if split == "position":
        assert "".join(parts[0] + parts[1]) == "".join(texts)
    else:
        assert sorted(parts[0] + parts[1]) == sorted(text for text in texts if text)


def test_what_is_prepared_is_not_prepared_again(tmp_path, monkeypatch):
    path = write_lines(tmp_path, ["one two", "three", "four five six"])
    spec = TextSpec(path=path, valid_fraction=0.4, cache_dir=str(tmp_path / "cache"))
    lines = []
    first = load_text(spec, reporter=Reporter(lines.append))
    assert any("prepar" in line and path in line for line in lines)
    with monkeypatch.context() as patch:
        patch.setattr(library, "read_documents", None)  # reading again would fail
        again = load_text(spec, reporter=Reporter(lambda text: None))
        # Other splits and row lengths come from the same store.
        other = dataclasses.replace(spec, split="position")
        load_text(other, reporter=Reporter(lambda text: None))
    for name in ("train", "valid"):
        assert first[1][name].fingerprint == again[1][name].fingerprint
    # A store of a format of before is left alone, and another made.
    lines.clear()
    with monkeypatch.context() as patch:
        patch.setattr(library, "FORMAT", 1)
        load_text(spec, reporter=Reporter(lines.append))
    assert sum(line.startswith("preparing") for line in lines) == 1
    write_lines(tmp_path, ["one two", "three", "another text"])
    changed = load(spec)[1]
    assert changed["valid"].num_tokens != 0
    assert changed["train"].fingerprint != first[1]["train"].fingerprint


def test_a_store_is_known_by_what_its_tokenizer_is(tmp_path, refuses):
    """Not by where its file lay."""
    path = write_lines(tmp_path, ["one two", "three", "four five six"])
    for name, texts in (("one", ["one two three"]), ("two", ["a b c d e f"])):
        made = tokenizers.make_tokenizer(TokenizerSpec("bpe", vocab_size=260), texts)
        export_tokenizer(made, tmp_path / f"{name}.json")
    one = TokenizerSpec("file", str(tmp_path / "one.json"))
    spec = TextSpec(path=path, tokenizer=one)
    quiet = Reporter(lambda text: None)
    open_stores(spec, folder=tmp_path / "store", reporter=quiet)
    shutil.copy(tmp_path / "one.json", tmp_path / "copy.json")
    for name in ("one.json", "copy.json", "store"):
        tokenizer_spec = TokenizerSpec("file", str(tmp_path / name))
        there = TextSpec(path=str(tmp_path / "store"), tokenizer=tokenizer_spec)
        assert open_stores(there)[0].vocab.size == 260
    two = TokenizerSpec("file", str(tmp_path / "two.json"))
    with refuses(f"data.path={tmp_path / 'store'}", "another tokenizer"):
        open_stores(dataclasses.replace(there, tokenizer=two))


@pytest.mark.parametrize("kind", ["byte", "bpe"])
@pytest.mark.parametrize("where", ["path", "valid_path", "mixture"])
def test_a_text_is_known_by_what_it_holds(tmp_path, kind, where):
    """Not by its size and the time of its change, which anyone can set."""
    text_path = write_lines(tmp_path, ["one two", "three", "four five six"])
    other = write_lines(tmp_path, ["seven", "eight nine"], name="other")
    paths = {
        "path": {"path": text_path},
        "valid_path": {"path": other, "valid_path": text_path},
        "mixture": {"path": "", "mixture": (f"{other}=1", f"{text_path}=2")},
    }[where]
    spec = TextSpec(
        **paths,
        valid_fraction=0.4,
        cache_dir=str(tmp_path / "cache"),
        tokenizer=TokenizerSpec(kind, vocab_size=300 if kind == "bpe" else 8192),
    )
    load_text(spec, reporter=Reporter(lambda text: None))
    before = os.stat(text_path)
    write_lines(tmp_path, ["one TWO", "THREE", "four FIVE six"])
    os.utime(text_path, ns=(before.st_atime_ns, before.st_mtime_ns))
    assert os.stat(text_path).st_size == before.st_size
    assert os.stat(text_path).st_mtime_ns == before.st_mtime_ns
    tokenizer, splits = load_text(spec, reporter=Reporter(lambda text: None))
    texts = [
        text
        for split in splits.values()
        for part in split.parts
        for text in decode_documents(tokenizer, part)
    ]
    assert {"one TWO", "THREE", "four FIVE six"} <= set(texts)
    if kind == "bpe" and where != "valid_path":
        fresh = library.train_tokenizer(spec, Reporter(lambda text: None))
        assert tokenizers.fingerprint(tokenizer) == tokenizers.fingerprint(fresh)


def test_a_copy_of_a_text_is_the_same_text(tmp_path, monkeypatch):
    path = write_lines(tmp_path, ["one two", "three", "four five six"])
    spec = TextSpec(path=path, valid_fraction=0.4, cache_dir=str(tmp_path / "cache"))
    spec = dataclasses.replace(spec, tokenizer=TokenizerSpec("bpe", vocab_size=300))
    first = load_text(spec, reporter=Reporter(lambda text: None))
    (tmp_path / "moved").mkdir()
    moved = shutil.copy(path, tmp_path / "moved")
    os.utime(moved, ns=(1, 1))
    os.remove(path)
    monkeypatch.setattr(library, "read_documents", None)  # reading again would fail
    spec, lines = dataclasses.replace(spec, path=str(moved)), []
    again = load_text(spec, reporter=Reporter(lines.append))
    assert again[1]["train"].fingerprint == first[1]["train"].fingerprint
    assert not lines and len(os.listdir(tmp_path / "cache" / "stores")) == 1


def test_a_text_that_changes_as_a_tokenizer_is_trained(tmp_path, refuses, monkeypatch):
    path = write_lines(tmp_path, ["one two", "three"])
    read = library.read_documents

    def change(source):
        yield from read(source)
        write_lines(tmp_path, ["one TWO", "three"])

    monkeypatch.setattr(library, "read_documents", change)
    spec = TextSpec(path=path, cache_dir=str(tmp_path / "cache"))
    with refuses(f"data.path={path}", "changed while it was read"):
        load(spec)
    assert not (tmp_path / "cache" / "tokenizers").exists()


def test_a_prepared_folder_is_a_path(tmp_path, refuses):
    path = write_lines(tmp_path, ["one two", "three", "four five six"])
    spec = TextSpec(path=path, valid_fraction=0.4)
    folder = tmp_path / "store"
    open_stores(spec, folder=folder)
    wanted_tokenizer, expected = load(spec)
    (tmp_path / "docs.jsonl").unlink()  # the store is enough
    there = dataclasses.replace(spec, path=str(folder))
    tokenizer, corpora = load(there)
    assert tokenizer.characters == wanted_tokenizer.characters
    for name in ("train", "valid"):
        assert corpora[name].fingerprint == expected[name].fingerprint
    for changes, parts in (
        ({"documents": "line"}, ["data.documents='line'", "'file'"]),
        ({"limit_chars": 5}, ["data.limit_chars=5", "0"]),
        ({"tokenizer": TokenizerSpec("byte")}, ["tokenizer.kind='byte'", "'char'"]),
    ):
        with refuses(*parts, str(folder)):
            load(dataclasses.replace(there, **changes))
    with refuses(str(folder), "another tokenizer"):
        load(there, ByteTokenizer())
    (folder / "tokens-00000.bin").write_bytes(b"")
    with refuses("tokens-00000.bin"):
        load(there)


def test_valid_path(tmp_path, refuses):
    train = write_lines(tmp_path, ["abc", "de"], name="train")
    valid = write_lines(tmp_path, ["ce", "d"], name="valid")
    spec = TextSpec(path=train, valid_path=valid, tokenizer=TokenizerSpec("byte"))
    tokenizer, corpora = load(spec)
    assert decode_documents(tokenizer, corpora["train"]) == ["abc", "de"]
    assert decode_documents(tokenizer, corpora["valid"]) == ["ce", "d"]
    with refuses("to=", "data.valid_path"):
        open_stores(spec, folder=tmp_path / "store")


def test_mixture(tmp_path, refuses):
    a = write_lines(tmp_path, ["aaaa"] * 10, ["x"] * 10, name="a")
    b = write_lines(tmp_path, ["bb"] * 20, ["y"] * 20, name="b")
    spec = TextSpec(
        path="", mixture=(f"{a}=3", f"{b}=1"), label_field="kind", valid_fraction=0.2
    )
    tokenizer, splits = load_text(spec)
    assert tokenizer.characters == ["a", "b"]  # made from both
    assert splits["train"].fractions == splits["valid"].fractions == (0.75, 0.25)
    assert [part.num_tokens for part in splits["train"].parts] == [32, 32]
    assert splits["valid"].num_tokens == 16 and splits["valid"].num_documents == 6
    assert splits["train"].parts[1].label_names == ("x", "y")
    assert set(splits["train"].parts[0].labels.tolist()) == {0}
    assert set(splits["train"].parts[1].labels.tolist()) == {1}
    # Three documents of 4 tokens to one of 2 are 12 tokens to 2.
    spec = dataclasses.replace(spec, mixture_unit="documents")
    by_documents = load_text(spec)[1]["train"]
    assert by_documents.fractions == pytest.approx((12 / 14, 2 / 14))
    assert by_documents.fingerprint != splits["train"].fingerprint
    with refuses("data.mixture", "above 0"):
        load_text(dataclasses.replace(spec, mixture=(f"{a}=1", f"{b}=0")))
    with refuses(f"data.path={a}", "data.mixture"):
        dataclasses.replace(spec, path=a)


def test_split_count():
    assert split_count(7, (0.5, 0.5)) == [4, 3]
    assert split_count(100, (0.999, 0.001)) == [100, 1]  # each at least one
    assert split_count(0, (0.3, 0.7)) == [0, 0]


@pytest.mark.parametrize(
    "settings, parts",
    [
        ({"split": "random"}, ["data.split=random", "documents, position"]),
        ({"sentences": "dots"}, ["data.sentences=dots", "lines"]),
        ({"mixture_unit": "rows"}, ["data.mixture_unit=rows", "tokens"]),
        ({"valid_fraction": 0.0}, ["data.valid_fraction=0.0"]),
        ({"valid_fraction": 1.0}, ["data.valid_fraction=1.0"]),
        ({"valid_fraction": float("nan")}, ["data.valid_fraction=nan"]),
        (
            {"valid_fraction": 0.1, "split": "documents"},
            ["data.split", "data.split=position"],
        ),
        ({"valid_fraction": 0.9, "split": "position"}, ["data.valid_fraction=0.9"]),
        ({"heldout_chars": 2}, ["data.heldout_chars=2", "data.limit_chars"]),
        ({"limit_chars": -1}, ["data.limit_chars=-1"]),
        ({"heldout_chars": -1}, ["data.heldout_chars=-1"]),
        ({"limit_chars": 10}, ["data.limit_chars", "9 characters", "10"]),
        ({"limit_chars": 8, "heldout_chars": 2}, ["data.heldout_chars", "8 + 2"]),
        ({"path": "gone.txt"}, ["data.path=gone.txt"]),
        ({"valid_path": "gone.txt"}, ["gone.txt"]),
    ],
)
def test_bad_settings(settings, parts, tmp_path, refuses):
    path = write_lines(tmp_path, ["abc", "def", "ghi"])
    with refuses(*parts):
        load_text(TextSpec(**{"path": path} | settings))


def test_a_cache_that_cannot_be_written(tmp_path, refuses):
    path = write_lines(tmp_path, ["abc", "def"])
    (tmp_path / "file").write_text("")
    with refuses(str(tmp_path / "file")):
        load(TextSpec(path=path, cache_dir=str(tmp_path / "file")))


def test_one_document_needs_position(tmp_path, refuses):
    path = write_lines(tmp_path, ["abc"])
    with refuses("data.split", "1 document", "data.split=position"):
        load(TextSpec(path=path, valid_fraction=0.9, split="documents"))


def test_text_the_tokenizer_does_not_know(tmp_path, refuses):
    known = write_lines(tmp_path, ["abc", "xyz"], name="known")
    unknown = write_lines(tmp_path, ["xyz", "zyx"], name="unknown")
    lines = []
    spec = TextSpec(path=known, valid_fraction=0.5)
    load_text(spec, CharTokenizer("abc"), reporter=Reporter(lines.append))
    assert "without a token, dropped: 1" in lines[-1]
    assert "3 unknown characters are dropped, for 3 bytes of text (50.00%)" in lines[-1]
    for spec in (
        TextSpec(path=unknown),
        TextSpec(path=known, valid_path=unknown),
    ):
        with refuses(f"data.path={unknown}", "no token"):
            load(spec, CharTokenizer("abc"))


def test_training_a_tokenizer_tells_how_far_it_is(tmp_path):
    path = write_lines(tmp_path, ["one two", "thrée", "four"])
    spec = TextSpec(path=path, tokenizer=TokenizerSpec("bpe", vocab_size=300))
    lines, titles, steps = [], [], []

    def progress(title, total):
        titles.append((title, total))
        return steps.append

    tokenizer = library.train_tokenizer(spec, Reporter(lines.append, progress))
    assert lines == [f"training a bpe tokenizer of 300 tokens on {path}"]
    assert titles == [("training a bpe tokenizer of 300 tokens", 0)]
    # Bytes, documents, and no tokens; closed at the end.
    assert steps == [(7, 1, 0), (13, 2, 0), (17, 3, 0), None]
    again = library.train_tokenizer(spec, Reporter(lines.append))
    assert again.to_json() == tokenizer.to_json()


def test_tokens_are_counted_and_a_long_text_is_sampled():
    draw = np.random.default_rng(0)
    parts = [draw.integers(0, 7, 5000), draw.integers(0, 5, 3_000_000)]
    split = Split(tuple(Corpus.from_arrays(part) for part in parts), (0.5, 0.5))
    whole = sum(np.bincount(part, minlength=9) for part in parts)
    np.testing.assert_array_equal(split.count_tokens(9), whole)
    few = split.count_tokens(9, limit=2_000_000)
    assert 0 < few.sum() <= 2_000_000 and few[7:].sum() == 0
    np.testing.assert_allclose(few[:5] / few.sum(), whole[:5] / whole.sum(), atol=0.01)
