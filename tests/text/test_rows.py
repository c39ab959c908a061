import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxpt.errors import UserError
from jaxpt.text.rows import Corpus, TextSpec, load_text, passages, windows
from jaxpt.text.tokenizer import ByteTokenizer, CharTokenizer, TokenizerSpec


def write_lines(folder, texts, labels=None) -> str:
    """A .jsonl file with one document a text, labelled if labels are given."""
    path = folder / "docs.jsonl"
    labels = labels or [""] * len(texts)
    lines = [f'{{"text": "{t}", "kind": "{k}"}}' for t, k in zip(texts, labels)]
    path.write_text("\n".join(lines), encoding="utf-8")
    return str(path)


def decode_documents(tokenizer, corpus: Corpus) -> list[str]:
    starts = corpus.doc_starts
    pairs = zip(starts[:-1], starts[1:])
    return [tokenizer.decode(corpus.tokens[a:b]) for a, b in pairs]


def test_founding_experiment(tinyshakespeare):
    spec = TextSpec(
        path=str(tinyshakespeare),
        split="position",
        valid_fraction=0.1,
        limit_chars=80_000,
        heldout_chars=20_000,
        tokenizer=TokenizerSpec(specials=("mask",)),
    )
    tokenizer, corpora = load_text(spec)
    assert tokenizer.vocab.size == 62
    assert tokenizer.vocab.mask == 0
    sizes = {name: len(corpus.tokens) for name, corpus in corpora.items()}
    assert sizes == {"train": 72_000, "valid": 8_000, "heldout": 20_000}
    text = tinyshakespeare.read_bytes().decode()
    assert tokenizer.decode(corpora["train"].tokens) == text[:72_000]
    assert tokenizer.decode(corpora["valid"].tokens) == text[72_000:80_000]
    assert tokenizer.decode(corpora["heldout"].tokens) == text[80_000:100_000]
    for corpus in corpora.values():
        assert corpus.doc_starts.tolist() == [0, len(corpus.tokens)]
        assert corpus.num_bytes(tokenizer.vocab) == len(corpus.tokens)


def test_split_documents_by_hand(tmp_path):
    texts = [f"{i}" * (i + 1) for i in range(7)]
    labels = ["b", "a", "", "b", "a", "b", "c"]
    path = write_lines(tmp_path, texts, labels)
    spec = TextSpec(path=path, label_field="kind", valid_fraction=0.3)
    tokenizer, corpora = load_text(spec)
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
        assert corpus.tokens.dtype == corpus.labels.dtype == np.int32
        assert corpus.doc_starts.dtype == np.int64


def test_split_is_exact(tmp_path):
    # In floats (1 - 0.9) * 10 is less than 1, so that a plain int() of it goes astray.
    path = write_lines(tmp_path, ["abcdefghij"])
    for tenths in range(1, 10):
        spec = TextSpec(path=path, split="position", valid_fraction=tenths / 10)
        assert len(load_text(spec)[1]["valid"].tokens) == tenths
    path = write_lines(tmp_path, ["ab"] * 10)
    for tenths in range(1, 10):
        spec = TextSpec(path=path, valid_fraction=tenths / 10)
        assert len(load_text(spec)[1]["valid"].labels) == tenths


def test_split_position_by_hand(tmp_path):
    path = write_lines(tmp_path, ["aa", "bbbb", "cc"], ["x", "y", "z"])
    spec = TextSpec(path=path, label_field="kind", split="position", valid_fraction=0.5)
    tokenizer, corpora = load_text(spec)
    assert decode_documents(tokenizer, corpora["train"]) == ["aa", "bb"]
    assert decode_documents(tokenizer, corpora["valid"]) == ["bb", "cc"]
    assert corpora["train"].labels.tolist() == [0, 1]
    assert corpora["valid"].labels.tolist() == [1, 2]
    # A cut between two documents divides none.
    corpora = load_text(dataclasses.replace(spec, valid_fraction=0.25))[1]
    assert decode_documents(tokenizer, corpora["train"]) == ["aa", "bbbb"]
    assert decode_documents(tokenizer, corpora["valid"]) == ["cc"]
    assert corpora["valid"].labels.tolist() == [2]


def test_eos_ends_each_document(tmp_path):
    specials = TokenizerSpec(specials=("eos",))
    path = write_lines(tmp_path, ["ab", "c", "d"])
    spec = TextSpec(path=path, valid_fraction=0.4, tokenizer=specials)
    tokenizer, corpora = load_text(spec)
    assert decode_documents(tokenizer, corpora["train"]) == ["ab[EOS]", "c[EOS]"]
    assert decode_documents(tokenizer, corpora["valid"]) == ["d[EOS]"]
    assert corpora["train"].num_bytes(tokenizer.vocab) == 3
    path = write_lines(tmp_path, ["abcd"])
    spec = TextSpec(path=path, split="position", tokenizer=specials, valid_fraction=0.5)
    assert tokenizer.vocab.eos not in load_text(spec)[1]["valid"].tokens


def test_limit_and_heldout_cross_documents(tmp_path):
    path = write_lines(tmp_path, ["abc", "", "def", "ghi", "jkl"])
    spec = TextSpec(path=path, valid_fraction=0.5, limit_chars=5, heldout_chars=3)
    tokenizer, corpora = load_text(spec, CharTokenizer("abcdefghijkl"))
    assert decode_documents(tokenizer, corpora["train"]) == ["abc"]
    assert decode_documents(tokenizer, corpora["valid"]) == ["de"]
    assert decode_documents(tokenizer, corpora["heldout"]) == ["f", "gh"]
    # Trained on train and valid only.
    spec = dataclasses.replace(
        spec, heldout_chars=7, tokenizer=TokenizerSpec(specials=("unk",))
    )
    tokenizer, corpora = load_text(spec)
    assert tokenizer.characters == list("abcde")
    assert corpora["heldout"].num_unknown == 7


def test_num_unknown(tmp_path):
    path = write_lines(tmp_path, ["aXa", "YaZab?"])
    spec = TextSpec(path=path, split="position", valid_fraction=0.4)
    # Without [UNK]: aa|a.ab of which the last 2 are valid, hence the ? too.
    for specials, train, valid in (((), "aaa", "ab"), (("unk",), "aUaUa", "UabU")):
        tokenizer, corpora = load_text(spec, CharTokenizer("ab", specials))
        texts = [
            tokenizer.decode(corpora[name].tokens).replace("[UNK]", "U")
            for name in ("train", "valid")
        ]
        assert texts == [train, valid]
    assert (corpora["train"].num_unknown, corpora["valid"].num_unknown) == (2, 2)
    corpora = load_text(spec, CharTokenizer("ab"))[1]
    assert (corpora["train"].num_unknown, corpora["valid"].num_unknown) == (3, 1)
    spec = TextSpec(path=path, valid_fraction=0.5)
    corpora = load_text(spec, CharTokenizer("ab"))[1]
    assert (corpora["train"].num_unknown, corpora["valid"].num_unknown) == (1, 3)
    assert load_text(spec, ByteTokenizer())[1]["valid"].num_unknown == 0


def test_num_bytes(tmp_path):
    spec = TextSpec(path=write_lines(tmp_path, ["aé", "中"]), valid_fraction=0.5)
    tokenizer, corpora = load_text(spec)
    assert corpora["train"].num_bytes(tokenizer.vocab) == 3
    assert corpora["valid"].num_bytes(tokenizer.vocab) == 3


def test_fingerprint(tmp_path):
    def fingerprint(texts, **settings):
        path = write_lines(tmp_path, texts)
        spec = TextSpec(path=path, valid_fraction=0.5, **settings)
        return load_text(spec, CharTokenizer("abc"))[1]["train"].fingerprint

    first = fingerprint(["ab", "c"])
    assert first == fingerprint(["ab", "c"])
    assert first == ("16a1fe2cf5016fc1663d178942b9ac460c4a8e3c3ef9067d4659d8551376495d")
    assert first != fingerprint(["ba", "c"])
    # The same tokens, other documents.
    assert fingerprint(["ab", "bc"], split="position") != fingerprint(
        ["a", "bbc"], split="position"
    )


@given(
    st.lists(st.text("ab", max_size=5), min_size=1, max_size=8),
    st.sampled_from(["documents", "position"]),
    st.floats(0.01, 0.99),
)
def test_splits_lose_nothing(tmp_path_factory, texts, split, fraction):
    path = write_lines(tmp_path_factory.mktemp("docs"), texts)
    spec = TextSpec(path=path, split=split, valid_fraction=fraction)
    try:
        tokenizer, corpora = load_text(spec, CharTokenizer("ab"))
    except UserError:
        return  # too little text for two parts
    parts = [decode_documents(tokenizer, corpora[name]) for name in ("train", "valid")]
    if split == "position":
        assert "".join(parts[0] + parts[1]) == "".join(texts)
    else:
        assert sorted(parts[0] + parts[1]) == sorted(text for text in texts if text)
    for corpus in corpora.values():
        assert corpus.doc_starts[0] == 0
        assert corpus.doc_starts[-1] == len(corpus.tokens)
        assert (np.diff(corpus.doc_starts) > 0).all()
        assert len(corpus.labels) == len(corpus.doc_starts) - 1


@pytest.mark.parametrize(
    "settings, parts",
    [
        ({"split": "random"}, ["data.split='random'", "documents, position"]),
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
        ({"tokenizer": TokenizerSpec("word")}, ["tokenizer.kind"]),
    ],
)
def test_bad_settings(settings, parts, tmp_path, refuses):
    path = write_lines(tmp_path, ["abc", "def", "ghi"])
    with refuses(*parts):
        load_text(TextSpec(**{"path": path} | settings))


def test_one_document_needs_position(tmp_path, refuses):
    path = write_lines(tmp_path, ["abc"])
    with refuses("data.split", "1 document", "data.split=position"):
        load_text(TextSpec(path=path, valid_fraction=0.9, split="documents"))


def test_text_the_tokenizer_does_not_know(tmp_path, refuses):
    path = write_lines(tmp_path, ["abc", "xyz"])
    with refuses("data.path", "valid", "no token"):
        load_text(TextSpec(path=path, valid_fraction=0.5), CharTokenizer("abc"))


def test_text_without_characters(tmp_path, refuses):
    with refuses("data.path"):
        load_text(TextSpec(path=write_lines(tmp_path, ["", ""])))
    with refuses("data."):
        load_text(TextSpec(path=write_lines(tmp_path, [""])), ByteTokenizer())


def test_windows_by_hand(make_corpus):
    corpus = make_corpus(10)
    assert windows(corpus, 3, 0).tolist() == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    assert windows(corpus, 3, 3)[:, 0].tolist() == [0, 3, 7]
    assert windows(corpus, 3, 1).tolist() == [[0, 1, 2]]
    assert windows(corpus, 10, 0).shape == (1, 10)


@given(st.integers(1, 60), st.integers(1, 20), st.integers(0, 80))
def test_windows(num_tokens, length, num):
    tokens = np.arange(num_tokens, dtype=np.int32)
    corpus = Corpus(
        tokens, np.array([0, num_tokens]), np.array([-1], np.int32), (), 0, ""
    )
    if length > num_tokens:
        return
    rows = windows(corpus, length, num)
    assert rows.dtype == np.int32
    assert (rows == rows[:, :1] + np.arange(length)).all()
    starts = rows[:, 0]
    if num == 0:
        assert starts.tolist() == list(range(0, num_tokens - length + 1, length))
    else:
        room = num_tokens - length
        assert len(rows) == num
        assert starts[0] == 0
        assert num == 1 or starts[-1] == room
        assert len(set(starts.tolist())) == min(num, room + 1) or num == 1
        if num > 1:
            gaps = np.diff(starts)
            assert gaps.max() - gaps.min() <= 1


def test_windows_of_too_little_text(make_corpus, refuses):
    for num in (0, 5):
        with refuses("data.path", "10 tokens", "row of 11"):
            windows(make_corpus(10), 11, num)


def test_passages_by_hand(make_corpus):
    # Documents of 5, 1, 4 and 6 tokens; the third has no label.
    corpus = make_corpus(16, [0, 5, 6, 10, 16], [1, 0, -1, 0], ("a", "b"))
    tokens, labels = passages(corpus, 2, 10)
    assert tokens.tolist() == [[0, 1], [2, 3], [10, 11], [12, 13], [14, 15]]
    assert labels.tolist() == [1, 1, 0, 0, 0]
    assert tokens.dtype == labels.dtype == np.int32
    tokens, labels = passages(corpus, 2, 3)
    assert tokens.tolist() == [[0, 1], [2, 3], [10, 11]]
    tokens, labels = passages(corpus, 2, 2)
    assert labels.tolist() == [1, 0]
    # Two of four in one document: its first and its third.
    one = make_corpus(8, labels=(0,), label_names=("a",))
    assert passages(one, 2, 2)[0].tolist() == [[0, 1], [4, 5]]
    for length, num in ((7, 10), (2, 0)):
        tokens, labels = passages(corpus, length, num)
        assert tokens.shape == (0, length)
        assert labels.shape == (0,)


@given(
    st.lists(st.tuples(st.integers(0, 12), st.integers(-1, 2)), min_size=1, max_size=8),
    st.integers(1, 5),
    st.integers(0, 30),
)
def test_passages(documents, length, num):
    sizes, labels = zip(*documents)
    starts = np.cumsum([0, *sizes])
    corpus = Corpus(
        np.arange(starts[-1], dtype=np.int32),
        starts,
        np.array(labels, np.int32),
        ("a", "b", "c"),
        0,
        "",
    )
    tokens, labels_m = passages(corpus, length, num)
    assert tokens.shape == (len(labels_m), length)
    room = [size // length if label >= 0 else 0 for size, label in documents]
    assert len(tokens) == min(num, sum(room))
    assert len(np.unique(tokens)) == tokens.size  # none overlap
    counts = [0] * len(documents)
    for row, label in zip(tokens, labels_m):
        doc = int(np.searchsorted(starts, row[0], "right")) - 1
        assert row[-1] < starts[doc + 1]
        assert (row == row[0] + np.arange(length)).all()
        assert label == labels[doc]
        counts[doc] += 1
    # Evenly: a document gives two fewer than another only if it has no more to give.
    for count, most in zip(counts, room):
        assert count >= max(counts) - 1 or count == most


def test_auto_splits_by_documents_where_there_are_enough(tmp_path):
    for num_docs in (1, 9, 10, 30):
        folder = tmp_path / str(num_docs)
        folder.mkdir()
        for i in range(num_docs):
            (folder / f"{i:02}.txt").write_text(f"{i:02} some text of its own. " * 9)
        found = {}
        for split in ("auto", "documents" if num_docs >= 10 else "position"):
            spec = TextSpec(path=str(folder), split=split)
            found[split] = {k: c.fingerprint for k, c in load_text(spec)[1].items()}
        auto, expected = found.values()
        assert auto == expected, num_docs
