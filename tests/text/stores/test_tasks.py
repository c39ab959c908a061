"""Which text is taken, and in which batches."""

import pytest

from jaxpt.text.sources.documents import Document
from jaxpt.text.stores.tasks import Sizes, Tally, make_tasks, take

TEXTS = ["abc", "", "def", "ghi"]


def taken(documents, limit, heldout, tally=None):
    """(text, start?, held out?) of all that is taken."""
    if isinstance(documents[0], str):
        documents = [Document(text, "name") for text in documents]
    result = take(iter(documents), limit, heldout, "data.path=x", tally)
    return [(doc.text, doc.is_start, is_out) for doc, is_out in result]


@pytest.mark.parametrize(
    "limit, heldout, expected, dropped, truncated",
    [
        (0, 0, ["abc", "def", "ghi"], 1, 0),
        (9, 0, ["abc", "def", "ghi"], 1, 0),
        (6, 0, ["abc", "def"], 1, 0),
        (3, 0, ["abc"], 0, 0),
        (2, 0, ["ab"], 0, 1),
        (5, 0, ["abc", "de"], 1, 1),
        (3, 3, ["abc", "-def"], 1, 0),
        (5, 3, ["abc", "de", "-f", "-gh"], 1, 2),
        (1, 1, ["a", "-b"], 0, 1),
        (5, 1, ["abc", "de", "-f"], 1, 1),
    ],
)
def test_limits_by_hand(limit, heldout, expected, dropped, truncated):
    tally = Tally()
    result = taken(TEXTS, limit, heldout, tally)
    assert ["-" * is_out + text for text, _, is_out in result] == expected
    assert all(is_start for _, is_start, _ in result)
    assert (tally.dropped, tally.truncated) == (dropped, truncated)


@pytest.mark.parametrize(
    "limit, heldout, expected, truncated",
    [
        (0, 0, ["+ab", "cd", "ef", "+gh"], 0),
        (2, 0, ["+ab"], 1),  # the document continues
        (3, 2, ["+ab", "c", "-+d", "-e"], 1),
        (4, 2, ["+ab", "cd", "-+ef"], 1),  # cut where a part ends
        (6, 2, ["+ab", "cd", "ef", "-+gh"], 0),
        (4, 3, ["+ab", "cd", "-+ef", "-+g"], 2),
    ],
)
def test_limits_of_parts(limit, heldout, expected, truncated):
    parts = [
        Document("ab", "1"),
        Document("", "1", is_start=False),
        Document("cd", "1", is_start=False),
        Document("ef", "1", is_start=False),
        Document("gh", "2"),
    ]
    tally = Tally()
    result = taken(parts, limit, heldout, tally)
    assert ["-" * out + "+" * start + text for text, start, out in result] == expected
    assert (tally.dropped, tally.truncated) == (0, truncated)


def test_an_empty_beginning_is_no_beginning():
    parts = [Document("", "1"), Document("ab", "1", is_start=False), Document("", "2")]
    for limit in (0, 2):
        tally = Tally()
        assert taken(parts, limit, 0, tally) == [("ab", True, False)]
        assert tally.dropped == (0 if limit else 1)


def test_too_short(refuses):
    with refuses("data.path=x: has 9 characters", "data.limit_chars", "8 + 2"):
        taken(TEXTS, 8, 2)


def test_no_more_is_read_than_is_taken():
    def read():
        yield Document("abcd", "1")
        raise AssertionError("read on")

    assert len(list(take(read(), 2, 1, ""))) == 2


def test_tasks():
    documents = [Document("a" * n, str(n), label=f"{n}") for n in (3, 4, 1, 1, 1, 9)]
    documents[3:4] = [
        Document("é.", "3", is_start=False),
        Document(" x", "3", "", False),
    ]

    def make(**sizes):
        return list(
            make_tasks(
                ((doc, doc.text == "a") for doc in documents),
                "punctuation",
                Sizes(**sizes),
            )
        )

    tasks = make(task_chars=6, task_texts=3)
    assert [[len(text) for text in task.texts] for task in tasks] == [
        [3, 4],
        [1, 2, 2],
        [1, 9],
    ]
    task = tasks[1]
    assert task.texts == ["a", "é.", " x"]
    assert task.pieces.num_bytes.tolist() == [1, 3, 2]
    assert task.pieces.is_start.tolist() == [True, False, False]
    assert task.pieces.is_heldout.tolist() == [True, False, False]
    assert task.pieces.labels[0] == "1"
    assert task.is_sentence.tolist() == [True, False, True]
    # The digest depends on the text and not on the tasks.
    assert make(task_chars=1)[-1].digest == make()[-1].digest
    assert len({task.digest for task in tasks}) == 3
    first = make()[-1].digest
    for changed in (
        Document("aab", "3", "3"),
        Document("aaa", "3", "4"),
        Document("aaa", "3", "3", False),
    ):
        documents[0] = changed
        assert make()[-1].digest != first
