"""Labels at first pieces of words, rows cut between words, words scored as words."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxpt.errors import UserError
from jaxpt.tasks import tagging
from jaxpt.text.labelled.tables import Table
from tests.tasks.framed import make_encoder

WORDS = [["the", "slowest", "cat"], ["lower", "mat"]]
TAGS = [["O", "B-X", "I-X"], ["B-X", "O"]]


def make_table(words=WORDS, tags=TAGS):
    places = [("a.conll", f"line {i}") for i in range(len(words))]
    return Table("a.conll", {"0": words, "1": tags}, places)


def read(words=WORDS, tags=TAGS, labels=None, **settings):
    return tagging.read(make_table(words, tags), tagging.Spec(**settings), labels)


def encode(examples, encoder, **settings):
    spec = tagging.Spec(**settings)
    return tagging.encode(examples, encoder, spec, is_training=True)


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram", "char"])
def test_the_first_piece_of_a_word_has_its_label(kind):
    encoder = make_encoder(kind)
    examples, labels = read()
    assert labels == ("O", "B-X", "I-X")
    first, second = encode(examples, encoder)
    assert (second["example"], first["example"]) == (1, 0)
    decode = encoder.tokenizer.decode
    for row, example in ((first, examples[0]), (second, examples[1])):
        assert len({len(row[k]) for k in ("tokens", "targets", "words")}) == 1
        places = np.flatnonzero(row["targets"] >= 0)
        np.testing.assert_array_equal(places, np.flatnonzero(row["words"] >= 0))
        assert row["words"][places].tolist() == list(range(len(example.words)))
        output = [labels[i] for i in row["targets"][places]]
        assert output == list(example.tags)
        assert set(row["targets"]) - {0, 1, 2} == {tagging.IGNORED}
        # Each label is at a piece that its word begins with.
        for place, word in zip(places, example.words):
            piece = decode(row["tokens"][place : place + 1]).strip().lstrip("#")
            assert word.startswith(piece) and (piece or kind in ("bpe", "unigram"))
        # And the pieces up to the next label are the word.
        ends = [*places[1:], len(row["tokens"]) - 1]
        for start, stop, word in zip(places, ends, example.words):
            assert decode(row["tokens"][start:stop]).strip() == word


def test_long_sentences_are_cut_between_words_and_scored_whole():
    words = ["the", "slowest", "cat", "sat", "on", "the", "widest", "mat"] * 3
    tags = ["B-X" if word == "cat" else "O" for word in words]
    examples, labels = read([words], [tags])
    encoder = make_encoder(max_len=12)
    rows = encode(examples, encoder)
    assert len(rows) > 3 and max(len(row["tokens"]) for row in rows) <= 12
    seen = np.concatenate([row["words"][row["words"] >= 0] for row in rows])
    assert seen.tolist() == list(range(len(words)))
    outputs = []
    for row in rows:  # what a perfect network says, and nonsense at padding
        logits = np.zeros((16, len(labels)))
        logits[np.arange(len(row["targets"])), row["targets"].clip(0)] = 1
        logits[len(row["targets"]) :, 1] = 9
        outputs.append(logits)
    spec = tagging.Spec()
    predicted = tagging.predict(outputs, rows, examples, spec)
    assert predicted == [tags]
    result = tagging.metrics(predicted, examples, spec)
    assert (
        result["entity_f1"] == result["entity_f1_strict"] == result["accuracy"] == 1.0
    )


def test_a_label_that_is_off_by_one_is_seen():
    examples, _ = read()
    shifted = [[tags[-1], *tags[:-1]] for tags in TAGS]
    result = tagging.metrics(shifted, examples, tagging.Spec())
    assert result["entity_f1"] == 0 and result["accuracy"] == 0


def test_a_word_without_tokens_is_in_no_entity():
    examples, labels = read([["cat", "\x00", "mat"]], [["B-X", "B-X", "O"]])
    encoder = make_encoder()
    (row,) = encode(examples, encoder)
    assert row["words"][row["words"] >= 0].tolist() == [0, 2]
    logits = np.eye(len(labels))[np.full(len(row["words"]), 1)]
    assert tagging.predict([logits], [row], examples, tagging.Spec()) == [
        ["B-X", "O", "B-X"]
    ]


def test_the_constant_answer_is_the_commonest_tag():
    train, _ = read()
    predictions = tagging.constant(train, train, tagging.Spec())
    assert predictions == [["B-X"] * 3, ["B-X"] * 2] or predictions == [
        ["O"] * 3,
        ["O"] * 2,
    ]
    assert predictions[0][0] == min("B-X", "O")  # both occur twice


@pytest.mark.parametrize("single, end", ["SE", "UL"])
def test_entities_are_scored_by_the_scheme_of_their_labels(single, end):
    """The predicted entity without its end counts in conlleval's mode alone."""
    tags = [["O", "B-X", f"{end}-X"], [f"{single}-X", "O"]]
    examples, _ = read(tags=tags)
    assert tagging.metrics(tags, examples, tagging.Spec())["entity_f1_strict"] == 1.0
    # The same where the sentence to score has no single and no end.
    result = tagging.metrics([["O", "B-X", "O"]], examples[:1], tagging.Spec())
    assert result["entity_f1"] == result["entity_f1_strict"] == 0.0
    result = tagging.metrics([tags[0], ["B-X", "O"]], examples, tagging.Spec())
    assert result["entity_f1"] == 1.0
    assert result["entity_f1_strict"] == pytest.approx(2 / 3)


def test_tags_that_are_no_entities_have_accuracy_alone():
    tags = [["DT", "JJ", "NN"], ["JJ", "NN"]]
    examples, _ = read(tags=tags, metric="accuracy")
    result = tagging.metrics([["DT", "JJ", "JJ"], ["JJ", "NN"]], examples, None)
    assert result == {"accuracy": 0.8}


@pytest.mark.parametrize(
    "words, tags, known, settings, message",
    [
        (WORDS, [["O"], ["O", "O"]], None, {}, "line 0: 3 words .'0'. have 1 tags"),
        (["a b"], [["O", "O"]], None, {}, "line 0: '0' must be a list of strings"),
        ([[1]], [["O"]], None, {}, "must be a list of strings"),
        ([[]], [[]], None, {}, "must be a list of strings"),
        (
            WORDS,
            TAGS,
            ("O", "B-X"),
            {},
            "line 0: 1='I-X': the training data has 'O', 'B-X'",
        ),
        (
            WORDS,
            TAGS,
            None,
            {"labels": ("O", "B-X")},
            "'I-X': task.labels has 'O', 'B-X'",
        ),
        (WORDS, [["O"] * 3, ["O"] * 2], None, {}, "has the one tag 'O'"),
        (WORDS, [["A"] * 3, ["B"] * 2], None, {}, "task.metric=entity_f1: must be acc"),
        (
            WORDS,
            [["B-X", "E-X", "L-X"], ["O", "O"]],
            None,
            {},
            "'O', 'B-X', 'E-X', 'L-X' are not entities of one scheme: IOB1, IOB2",
        ),
    ],
)
def test_faults(words, tags, known, settings, message):
    with pytest.raises(UserError, match=message):
        spec = tagging.Spec(**settings)
        tagging.read(make_table(words, tags), spec, known)


@given(st.lists(st.integers(1, 9), min_size=1, max_size=12), st.integers(1, 8))
def test_a_long_text_is_cut_between_words_and_in_words_that_are_longer(sizes, room):
    ids = np.repeat(np.arange(len(sizes)), sizes)
    pieces = tagging.cut_words(ids, room)
    starts, stops = zip(*pieces, strict=True)
    assert starts == (0, *stops[:-1]) and stops[-1] == len(ids)
    for start, stop in pieces:
        assert 0 < stop - start <= room
        is_within = start > 0 and ids[start] == ids[start - 1]
        # A word is cut only if the piece before has nothing else.
        assert not is_within or len({*ids[max(start - room, 0) : start]}) == 1
