import dataclasses

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxpt.text.rows.corpus import Corpus, cut, select
from jaxpt.text.rows.forms import (
    check_length,
    make_rows,
    passages,
    windows,
)
from jaxpt.text.rows.rows_spec import CARRIERS, FORMS, PACKED, PAIRS, RowsSpec
from jaxpt.text.tokens.vocab import Vocab
from jaxpt.text_form import TextForm

PAD, CLS, SEP = 900, 901, 902
VOCAB = Vocab(size=1000, pad=PAD, cls=CLS, sep=SEP)


def count_up(num_tokens, **arrays) -> Corpus:
    """The tokens 0 .. n-1, so that a token is its position."""
    return Corpus.from_arrays(np.arange(num_tokens), **arrays)


def lay_out(documents) -> Corpus:
    """Documents of sentences with these numbers of tokens."""
    sentences = np.cumsum([0, *(n for doc in documents for n in doc or [0])])
    starts = np.cumsum([0, *map(sum, documents)])
    return count_up(starts[-1], doc_starts=starts, sentence_starts=sentences)


def read_all(rows) -> dict[str, np.ndarray]:
    return rows.read(np.arange(rows.num_rows))


def strip(rows: np.ndarray) -> list[list[int]]:
    """The rows without padding, which may only be at their ends."""
    stripped = [row[row != PAD].tolist() for row in rows]
    for row, short in zip(rows, stripped):
        assert row[: len(short)].tolist() == short
    return stripped


TEXT = [[3, 2], [1], [4, 1, 6], [2]]  # sentences of documents, 19 tokens


def test_chunks_by_hand():
    rows = make_rows(lay_out(TEXT), RowsSpec(6), Vocab(size=30))
    assert rows.keys == ("tokens",)
    assert (rows.num_rows, rows.fill_rate, rows.notes) == (3, 1.0, ())
    assert not rows.is_sampled
    result = rows.read(np.array([2, 0]))["tokens"]
    assert result.tolist() == [list(range(12, 18)), list(range(6))]
    assert result.dtype == np.int32


def test_windows_form_by_hand():
    rows = make_rows(lay_out(TEXT), RowsSpec(6, "windows"), Vocab(size=30))
    assert (rows.num_rows, rows.is_sampled, rows.keys) == (14, True, ("tokens",))
    result = rows.read(np.array([13, 0, 5]))["tokens"]
    assert result[:, 0].tolist() == [13, 0, 5]
    assert result[0].tolist() == list(range(13, 19))


def test_packed_by_hand():
    # Documents of 5, 1, 11 and 2 tokens in rows of 6: 11 is 6 + 5.
    rows = make_rows(lay_out(TEXT), RowsSpec(6, "packed"), VOCAB)
    result = read_all(rows)
    assert rows.keys == tuple(result) == ("tokens", "segment_ids")
    assert rows.fill_rate == 19 / 24
    assert rows.notes == ("1 documents longer than a row split",)
    by_row = sorted(zip(strip(result["tokens"]), result["segment_ids"].tolist()))
    assert by_row == [
        ([0, 1, 2, 3, 4, 5], [1, 1, 1, 1, 1, 2]),
        ([6, 7, 8, 9, 10, 11], [1, 1, 1, 1, 1, 1]),
        ([12, 13, 14, 15, 16], [1, 1, 1, 1, 1, 0]),
        ([17, 18], [1, 1, 0, 0, 0, 0]),
    ]
    spec = RowsSpec(6, "packed", long_documents="truncate", isolate_documents=False)
    rows = make_rows(lay_out(TEXT), spec, VOCAB)
    result = read_all(rows)
    assert rows.notes == ("1 documents longer than a row truncated",)
    assert sorted(zip(strip(result["tokens"]), result["segment_ids"].tolist())) == [
        ([0, 1, 2, 3, 4, 5], [1, 1, 1, 1, 1, 1]),
        ([6, 7, 8, 9, 10, 11], [1, 1, 1, 1, 1, 1]),
        ([17, 18], [1, 1, 0, 0, 0, 0]),
    ]
    spec = RowsSpec(6, "packed", max_documents=1)
    assert make_rows(lay_out(TEXT), spec, VOCAB).num_rows == 5


def test_full_sentences_by_hand():
    # Sentences of 3 2 | 1 | 4 1 6 | 2 tokens.
    spec = RowsSpec(7, "full_sentences", sentence_ids=True)
    rows = make_rows(lay_out(TEXT), spec, VOCAB)
    result = read_all(rows)
    assert rows.keys == tuple(result) == ("tokens", "segment_ids", "sentence_ids")
    assert strip(result["tokens"]) == [
        [0, 1, 2, 3, 4, 5],
        [6, 7, 8, 9, 10],
        [11, 12, 13, 14, 15, 16],
        [17, 18],
    ]
    assert result["segment_ids"].tolist()[:2] == [
        [1, 1, 1, 1, 1, 2, 0],
        [1, 1, 1, 1, 1, 0, 0],
    ]
    assert result["sentence_ids"].tolist()[:2] == [
        [1, 1, 1, 2, 2, 3, 0],
        [1, 1, 1, 1, 2, 0, 0],
    ]
    assert rows.notes == ()
    rows = make_rows(lay_out(TEXT), RowsSpec(5, "full_sentences"), VOCAB)
    result = read_all(rows)
    # The sentence of 6 is cut into 5 + 1, and the next document continues the row.
    assert strip(result["tokens"])[-2:] == [[11, 12, 13, 14, 15], [16, 17, 18]]
    assert result["segment_ids"][-1].tolist() == [1, 2, 2, 0, 0]
    assert rows.notes == ("1 sentences longer than a row cut",)
    spec = RowsSpec(7, "full_sentences", max_documents=1)
    assert strip(read_all(make_rows(lay_out(TEXT), spec, VOCAB))["tokens"])[1] == [5]


def test_doc_sentences_by_hand():
    rows = make_rows(lay_out(TEXT), RowsSpec(7, "doc_sentences"), VOCAB)
    result = read_all(rows)
    assert strip(result["tokens"]) == [
        [0, 1, 2, 3, 4],
        [6, 7, 8, 9, 10],
        [11, 12, 13, 14, 15, 16],
        [17, 18],
    ]
    np.testing.assert_array_equal(result["segment_ids"], result["tokens"] != PAD)
    assert rows.notes == ("1 rows of one token left out",)
    assert rows.fill_rate == 18 / 28


def test_sentence_ids_of_chunks():
    spec = RowsSpec(6, sentence_ids=True)
    rows = make_rows(lay_out(TEXT), spec, Vocab(size=30))
    result = read_all(rows)
    assert rows.keys == tuple(result) == ("tokens", "sentence_ids")
    # Sentences of 3 2 1 4 1 6 2 tokens.
    assert result["sentence_ids"].tolist() == [
        [1, 1, 1, 2, 2, 3],
        [1, 1, 1, 1, 2, 3],
        [1, 1, 1, 1, 1, 2],
    ]
    assert result["sentence_ids"].dtype == np.int32


DOCUMENTS = st.lists(
    st.lists(st.integers(0, 12), max_size=6), min_size=1, max_size=8
).filter(lambda documents: sum(map(sum, documents)) > 1)


@given(
    DOCUMENTS,
    st.integers(1, 10),
    st.sampled_from(PACKED),
    st.integers(1, 4),
    st.booleans(),
    st.booleans(),
)
def test_packed_rows(documents, row_length, form, max_documents, isolate, has_ids):
    corpus = lay_out(documents)
    spec = RowsSpec(
        row_length,
        form,
        max_documents=max_documents,
        isolate_documents=isolate,
        sentence_ids=has_ids,
    )
    if form == "doc_sentences" and (row_length == 1 or max(map(sum, documents)) < 2):
        return  # no row
    rows = make_rows(corpus, spec, VOCAB)
    result = read_all(rows)
    assert all(values.dtype == np.int32 for values in result.values())
    assert all(v.shape == (rows.num_rows, row_length) for v in result.values())
    tokens = result["tokens"]
    stripped = strip(tokens)
    seen = sorted(token for row in stripped for token in row)
    missing = corpus.num_tokens - len(seen)
    assert len(set(seen)) == len(seen)
    assert missing == sum(
        int(note.split()[0]) for note in rows.notes if "left out" in note
    )
    assert missing == 0 or form == "doc_sentences"
    assert rows.fill_rate == pytest.approx(len(seen) / tokens.size)
    doc_of = np.repeat(np.arange(len(documents)), np.diff(corpus.doc_starts))
    lengths = np.diff(corpus.sentence_starts)
    sentence_of = np.repeat(np.arange(len(lengths)), lengths)
    for row, kept in enumerate(stripped):
        blank = [0] * (row_length - len(kept))
        docs = doc_of[kept].tolist()
        distinct = list(dict.fromkeys(docs))
        assert len(distinct) <= (1 if form == "doc_sentences" else max_documents)
        segments = [distinct.index(doc) + 1 if isolate else 1 for doc in docs]
        assert result["segment_ids"][row].tolist() == segments + blank
        if has_ids:
            distinct = list(dict.fromkeys(sentence_of[kept].tolist()))
            ids = [distinct.index(number) + 1 for number in sentence_of[kept]]
            assert result["sentence_ids"][row].tolist() == ids + blank


@given(DOCUMENTS, st.integers(1, 10), st.booleans())
def test_sentence_ids_of_stretches(documents, row_length, is_sampled):
    corpus = lay_out(documents)
    if corpus.num_tokens < row_length:
        return
    form = "windows" if is_sampled else "chunks"
    spec = RowsSpec(row_length, form, sentence_ids=True)
    result = read_all(make_rows(corpus, spec, VOCAB))
    lengths = np.diff(corpus.sentence_starts)
    sentence_of = np.repeat(np.arange(len(lengths)), lengths)
    for tokens, ids in zip(result["tokens"], result["sentence_ids"]):
        distinct = list(dict.fromkeys(sentence_of[tokens].tolist()))
        assert ids.tolist() == [distinct.index(s) + 1 for s in sentence_of[tokens]]


def test_pairs_by_hand():
    corpus = lay_out([[2, 2], [3]])
    spec = RowsSpec(10, "pairs", dupe_factor=20, short_seq_prob=0.0)
    rows = make_rows(corpus, spec, VOCAB)
    assert rows.keys == ("tokens", "segment_ids", "type_ids", "is_random_next")
    result = read_all(rows)
    assert tuple(result) == rows.keys
    assert all(values.dtype == np.int32 for values in result.values())
    by_tokens = {
        tuple(row): tuple(result[key][i].tolist() for key in rows.keys[1:])
        for i, row in enumerate(strip(result["tokens"]))
    }
    follows = (CLS, 0, 1, SEP, 2, 3, SEP)
    assert by_tokens == {
        follows: ([1] * 7 + [0] * 3, [0] * 4 + [1] * 3 + [0] * 3, 0),
        (CLS, 0, 1, SEP, 4, 5, 6, SEP): (
            [1] * 8 + [0] * 2,
            [0] * 4 + [1] * 4 + [0] * 2,
            1,
        ),
        (CLS, 2, 3, SEP, 4, 5, 6, SEP): (
            [1] * 8 + [0] * 2,
            [0] * 4 + [1] * 4 + [0] * 2,
            1,
        ),
        (CLS, 4, 5, 6, SEP, 0, 1, 2, 3, SEP): ([1] * 10, [0] * 5 + [1] * 5, 1),
        (CLS, 4, 5, 6, SEP, 2, 3, SEP): (
            [1] * 8 + [0] * 2,
            [0] * 5 + [1] * 3 + [0] * 2,
            1,
        ),
    }
    assert rows.fill_rate == pytest.approx(result["segment_ids"].mean())
    share = result["is_random_next"].mean()
    assert rows.notes == (
        f"sentence pairs of 20 passes, {share:.1%} with a random second",
    )
    again = read_all(make_rows(corpus, spec, VOCAB))
    np.testing.assert_array_equal(again["tokens"], result["tokens"])
    other = read_all(make_rows(corpus, dataclasses.replace(spec, seed=1), VOCAB))
    assert (
        other["tokens"].shape != result["tokens"].shape
        or (other["tokens"] != result["tokens"]).any()
    )


def test_ordered_pairs_by_hand():
    """One document is enough; its second sentence comes first in half of the rows."""
    corpus = lay_out([[2, 3]])
    spec = RowsSpec(9, "ordered_pairs", dupe_factor=40, short_seq_prob=0.0)
    rows = make_rows(corpus, spec, VOCAB)
    assert rows.keys == ("tokens", "segment_ids", "type_ids", "is_swapped")
    result = read_all(rows)
    assert tuple(result) == rows.keys and rows.num_rows == 40
    by_tokens = {
        tuple(row): (result["type_ids"][i].tolist(), int(result["is_swapped"][i]))
        for i, row in enumerate(strip(result["tokens"]))
    }
    assert by_tokens == {
        (CLS, 0, 1, SEP, 2, 3, 4, SEP): ([0] * 4 + [1] * 4 + [0], 0),
        (CLS, 2, 3, 4, SEP, 0, 1, SEP): ([0] * 5 + [1] * 3 + [0], 1),
    }
    share = result["is_swapped"].mean()
    assert 0.3 < share < 0.7
    assert rows.notes == (f"sentence pairs of 40 passes, {share:.1%} in swapped order",)
    some = make_rows(lay_out([[2, 3], [4]]), spec, VOCAB)
    assert some.notes[1] == "40 chunks of one sentence left out"


@pytest.mark.parametrize("form", FORMS)
def test_what_a_form_carries_is_known_before(form):
    for sentence_ids in {False, form not in PAIRS}:
        spec = RowsSpec(8, form, sentence_ids=sentence_ids)
        rows = make_rows(lay_out(TEXT), spec, VOCAB)
        assert spec.keys == rows.keys == tuple(read_all(rows))
        assert set(spec.keys) - {"tokens"} <= set(CARRIERS)


@pytest.mark.parametrize("form", FORMS)
def test_empty_sentences_and_documents_do_not_show(form):
    spec = RowsSpec(8, form, sentence_ids=form not in PAIRS)
    plain = read_all(make_rows(lay_out([[2, 2], [3, 4], [6]]), spec, VOCAB))
    gaps = lay_out([[0, 2, 0, 0, 2], [], [3, 4, 0], [0, 0], [6], [0]])
    for key, values in read_all(make_rows(gaps, spec, VOCAB)).items():
        np.testing.assert_array_equal(values, plain[key])


@pytest.mark.parametrize("form", FORMS)
def test_any_places_read_the_same(form):
    spec = RowsSpec(8, form, sentence_ids=form not in PAIRS)
    rows = make_rows(lay_out(TEXT * 3), spec, VOCAB)
    whole = read_all(rows)
    places = np.random.default_rng(0).integers(0, rows.num_rows, 50)
    for key, values in rows.read(places).items():
        np.testing.assert_array_equal(values, whole[key][places])
    for key, values in rows.read(places[:0]).items():
        assert values.shape == (0, *whole[key].shape[1:])


@pytest.mark.parametrize("form", FORMS)
def test_runs_of_a_split_do_not_show(form):
    """Documents that are not adjacent in the stream read as adjacent ones."""
    whole = lay_out(TEXT * 4)
    is_in = np.arange(len(whole.labels)) % 3 != 1
    for split in (select(whole, is_in, "x"), cut(whole, 2, 60, "y")):
        plain = Corpus.from_arrays(
            split.read(0, split.num_tokens),
            doc_starts=split.doc_starts,
            sentence_starts=split.sentence_starts,
        )
        spec = RowsSpec(8, form, sentence_ids=form not in PAIRS)
        result, expected = (read_all(make_rows(c, spec, VOCAB)) for c in (split, plain))
        for key in expected:
            np.testing.assert_array_equal(result[key], expected[key])


@pytest.mark.parametrize("form", FORMS)
def test_what_a_form_needs(form, refuses):
    text, uncut = (
        lay_out(TEXT),
        dataclasses.replace(lay_out(TEXT), sentence_starts=None),
    )
    spec = RowsSpec(6, form)
    if form in ("full_sentences", "doc_sentences", *PAIRS):
        with refuses("data.sentences=''", f"data.rows='{form}'"):
            make_rows(uncut, spec, VOCAB)
    else:
        make_rows(uncut, spec, VOCAB)
        with refuses("data.sentences=''", "data.sentence_ids=True"):
            make_rows(uncut, dataclasses.replace(spec, sentence_ids=True), VOCAB)
    names = ("pad", "cls", "sep") if form in PAIRS else ("pad",) * (form in PACKED)
    for name in names:
        with refuses("tokenizer.specials", repr(name)):
            make_rows(text, spec, dataclasses.replace(VOCAB, **{name: None}))


def test_text_that_gives_no_row(refuses):
    text = lay_out([[3], [1]])
    for form in ("chunks", "windows"):
        with refuses("data.path", "4 tokens", "row of 5"):
            make_rows(text, RowsSpec(5, form), VOCAB)
    with refuses("data.path", "2 tokens", "data.rows='doc_sentences'"):
        make_rows(lay_out([[1], [1]]), RowsSpec(5, "doc_sentences"), VOCAB)
    with refuses("data.path", "0 tokens", "data.rows='packed'"):
        make_rows(lay_out([[0]]), RowsSpec(5, "packed"), VOCAB)
    with refuses("data.rows='pairs'", "2 documents", "has 1"):
        make_rows(lay_out([[3, 4], [0]]), RowsSpec(5, "pairs"), VOCAB)
    for text in ([[3], [4, 0]], [[8, 8]]):  # no second sentence, or no room for it
        with refuses("data.rows='ordered_pairs'", "two consecutive", "row_length=9"):
            spec = RowsSpec(9, "ordered_pairs", short_seq_prob=0.0)
            make_rows(lay_out(text), spec, VOCAB)


def test_windows_by_hand():
    corpus = count_up(10)
    assert windows(corpus, 3, 0).tolist() == [[0, 1, 2], [3, 4, 5], [6, 7, 8]]
    assert windows(corpus, 3, 3)[:, 0].tolist() == [0, 3, 7]
    assert windows(corpus, 3, 1).tolist() == [[0, 1, 2]]
    assert windows(corpus, 10, 0).shape == (1, 10)


@given(st.integers(1, 60), st.integers(1, 20), st.integers(0, 80))
def test_windows(num_tokens, length, num):
    if length > num_tokens:
        return
    rows = windows(count_up(num_tokens), length, num)
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


def test_windows_of_too_little_text(refuses):
    for num in (0, 5):
        with refuses("data.path", "10 tokens", "row of 11"):
            windows(count_up(10), 11, num)
    check_length(count_up(10), 10)


def test_passages_by_hand():
    # Documents of 5, 1, 4 and 6 tokens; the third has no label.
    corpus = count_up(
        16, doc_starts=[0, 5, 6, 10, 16], labels=[1, 0, -1, 0], label_names=("a", "b")
    )
    tokens, labels, docs = passages(corpus, 2, 10)
    assert tokens.tolist() == [[0, 1], [2, 3], [10, 11], [12, 13], [14, 15]]
    assert labels.tolist() == [1, 1, 0, 0, 0]
    assert docs.tolist() == [0, 0, 3, 3, 3]
    assert tokens.dtype == labels.dtype == np.int32
    tokens, labels, _ = passages(corpus, 2, 3)
    assert tokens.tolist() == [[0, 1], [2, 3], [10, 11]]
    tokens, labels, _ = passages(corpus, 2, 2)
    assert labels.tolist() == [1, 0]
    # Two of four in one document: its first and its third.
    one = count_up(8, labels=[0], label_names=("a",))
    assert passages(one, 2, 2)[0].tolist() == [[0, 1], [4, 5]]
    for length, num in ((7, 10), (2, 0)):
        tokens, labels, _ = passages(corpus, length, num)
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
    corpus = count_up(
        starts[-1], doc_starts=starts, labels=labels, label_names=("a", "b", "c")
    )
    tokens, labels_m, docs = passages(corpus, length, num)
    assert tokens.shape == (len(labels_m), length)
    room = [size // length if label >= 0 else 0 for size, label in documents]
    assert len(tokens) == min(num, sum(room))
    assert len(np.unique(tokens)) == tokens.size  # none overlap
    counts, wanted_docs = [0] * len(documents), []
    for row, label in zip(tokens, labels_m):
        doc = int(np.searchsorted(starts, row[0], "right")) - 1
        wanted_docs.append(doc)
        assert row[-1] < starts[doc + 1]
        assert (row == row[0] + np.arange(length)).all()
        assert label == labels[doc]
        counts[doc] += 1
    assert docs.tolist() == wanted_docs
    # Evenly: a document gives two fewer than another only if it has no more to give.
    for count, most in zip(counts, room):
        assert count >= max(counts) - 1 or count == most


@pytest.mark.parametrize("form", ["chunks", "windows"])
def test_special_tokens_around_rows_by_hand(form):
    spec = RowsSpec(5, form, add_special_tokens=True)
    rows = make_rows(count_up(10), spec, VOCAB)
    result = read_all(rows)["tokens"]
    starts = range(0, 9, 3) if form == "chunks" else range(8)
    assert result.tolist() == [[CLS, i, i + 1, i + 2, SEP] for i in starts]
    assert result.dtype == np.int32 and rows.num_rows == len(result)
    # Those of an imported model, such as Llama's, which begins a text and does not end.
    vocab = dataclasses.replace(VOCAB, text_form=TextForm(before=(7, 8)))
    result = read_all(make_rows(count_up(10), spec, vocab))["tokens"]
    assert result[1].tolist() == [
        7,
        8,
        *(range(3, 6) if form == "chunks" else (1, 2, 3)),
    ]


def test_special_tokens_that_rows_cannot_have(refuses):
    for form, has_ids in (("packed", False), ("pairs", False), ("chunks", True)):
        with refuses("data.add_special_tokens=True: must be False with", form):
            RowsSpec(9, form, sentence_ids=has_ids, add_special_tokens=True)
    spec = RowsSpec(2, add_special_tokens=True)
    with refuses("data.row_length=2: must be at least 3 with data.add_special_tokens"):
        make_rows(count_up(10), spec, VOCAB)
    with refuses("tokenizer.specials must list 'cls'"):
        make_rows(count_up(10), dataclasses.replace(spec, row_length=9), Vocab(size=30))


ONE = {"sentence_starts": [0, 4, 8, 12], "doc_starts": [0, 4, 8, 12]}
SOME = {"sentence_starts": [0, 2, 4, 8, 12], "doc_starts": [0, 4, 8, 12]}
MOST = {"sentence_starts": [0, 2, 4, 6, 8, 12], "doc_starts": [0, 4, 8, 12]}


@pytest.mark.parametrize("form", ["pairs", "ordered_pairs", "sentence_ids"])
def test_documents_of_one_sentence_are_reported(form, caplog, refuses):
    is_pair = form != "sentence_ids"
    spec = RowsSpec(
        rows=form if is_pair else "packed",
        row_length=12,
        sentence_ids=not is_pair,
    )
    vocab = Vocab(size=30, pad=20, cls=21, sep=22)

    def make(starts):
        caplog.clear()
        make_rows(Corpus.from_arrays(np.arange(12) % 20, **starts), spec, vocab)
        return list({record.getMessage() for record in caplog.records})

    if is_pair:
        with refuses(f"data.rows='{form}': 0.0% of the documents", "data.sentences"):
            make(ONE)
    else:
        assert "0.0% of the documents have more than one" in make(ONE)[0]
    assert any("33.3% of the documents have more than one" in x for x in make(SOME))
    assert not make(MOST)


def test_random_seconds_only_are_reported(caplog):
    """Each document has two sentences, but no two of them in a row."""
    vocab = Vocab(size=30, pad=20, cls=21, sep=22)
    starts = {"sentence_starts": [*range(0, 81, 10)], "doc_starts": [*range(0, 81, 20)]}
    corpus = Corpus.from_arrays(np.arange(80) % 20, **starts)
    make_rows(corpus, RowsSpec(rows="pairs", row_length=9), vocab)
    assert "100.0% of the second segments are random" in caplog.text
    caplog.clear()
    make_rows(corpus, RowsSpec(rows="pairs", row_length=40), vocab)
    assert not caplog.text
