import dataclasses
import hashlib
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxpt.text.feed import Feed, FeedSpec, prefetch
from jaxpt.text.rows import Corpus

ROOT = Path(__file__).resolve().parents[2]
TOY = FeedSpec(row_length=4, batch_size=3, seed=7)
SPECS = [TOY, dataclasses.replace(TOY, sampling="windows")]


def make_corpus(num_tokens: int) -> Corpus:
    """The tokens 0 .. n-1, so that a row's first token says where it starts."""
    return Corpus(
        np.arange(num_tokens, dtype=np.int32),
        np.array([0, num_tokens]),
        np.array([-1], np.int32),
        (),
        0,
        "",
    )


def digest(batch) -> str:
    return hashlib.sha256(batch["tokens"].tobytes()).hexdigest()[:16]


GOLDEN = {
    "chunks": "a57bccbf5a15187c 4851cbfe7dfbd73d",
    "windows": "4ab56d2a7ece67ed 48e19dc786499aec",
}


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.sampling)
def test_golden(spec):
    """These rows are fixed for ever: an old run must be repeatable."""
    feed = Feed(make_corpus(100), spec)
    assert " ".join([digest(feed[0]), digest(feed[17])]) == GOLDEN[spec.sampling]


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.sampling)
def test_another_process_reads_the_same(spec):
    code = f"""
import hashlib
import numpy as np
from jaxpt.text.feed import *
from jaxpt.text.rows import Corpus
corpus = Corpus(np.arange(100, dtype=np.int32), None, None, (), 0, "")
feed = Feed(corpus, {spec!r})
print(*(hashlib.sha256(feed[i]["tokens"].tobytes()).hexdigest()[:16] for i in (17, 0)))
"""
    done = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True
    )
    assert done.stdout.split() == GOLDEN[spec.sampling].split()[::-1], done.stderr


def test_batch_keys():
    batch = Feed(make_corpus(100), TOY)[5]
    assert set(batch) == {"tokens", "index"}
    assert batch["tokens"].shape == (3, 4)
    assert batch["tokens"].dtype == batch["index"].dtype == np.int32
    assert batch["index"].tolist() == [0, 1, 2]


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.sampling)
@given(st.lists(st.integers(0, 60), min_size=1, max_size=12))
def test_any_order_reads_the_same(spec, steps):
    corpus = make_corpus(50)
    feed = Feed(corpus, spec)
    for step in steps:
        fresh = Feed(corpus, spec)[step]
        np.testing.assert_array_equal(feed[step]["tokens"], fresh["tokens"])


@given(
    st.integers(1, 60),
    st.integers(1, 9),
    st.integers(1, 9),
    st.integers(-(2**70), 2**70),
)
def test_each_row_once_an_epoch(num_tokens, row_length, batch_size, seed):
    if num_tokens < row_length:
        return
    feed = Feed(make_corpus(num_tokens), FeedSpec(row_length, batch_size, seed))
    num_rows = num_tokens // row_length
    assert feed.num_rows == num_rows
    num_steps = -(-3 * num_rows // batch_size)
    rows = np.concatenate([feed[step]["tokens"] for step in range(num_steps)])
    assert (rows == rows[:, :1] + np.arange(row_length)).all()
    for epoch in range(3):
        starts = rows[epoch * num_rows : (epoch + 1) * num_rows, 0]
        assert sorted(starts) == list(range(0, num_rows * row_length, row_length))


def test_rows_do_not_depend_on_the_batch_size():
    corpus = make_corpus(100)
    rows = [
        Feed(corpus, dataclasses.replace(TOY, batch_size=size))
        .stack(0, 60 // size)["tokens"]
        .reshape(60, 4)
        for size in (1, 4, 60)
    ]
    np.testing.assert_array_equal(rows[0], rows[1])
    np.testing.assert_array_equal(rows[0], rows[2])


def test_epochs_and_seeds_differ():
    corpus = make_corpus(400)
    spec = FeedSpec(row_length=4, batch_size=100, seed=0)
    feed = Feed(corpus, spec)
    other = Feed(corpus, dataclasses.replace(spec, seed=1))
    orders = [feed[0], feed[1], other[0], other[1]]
    assert len({digest(order) for order in orders}) == 4


@given(st.integers(4, 40), st.integers(0, 1000))
def test_windows_are_within_range(num_tokens, step):
    feed = Feed(make_corpus(num_tokens), SPECS[1])
    rows = feed[step]["tokens"]
    assert (rows == rows[:, :1] + np.arange(4)).all()
    assert rows.min() >= 0
    assert rows.max() < num_tokens


def test_windows_start_anywhere_uniformly():
    spec = FeedSpec(row_length=4, batch_size=11_000, seed=3, sampling="windows")
    starts = Feed(make_corpus(14), spec)[0]["tokens"][:, 0]
    counts = np.bincount(starts, minlength=11)
    assert len(counts) == 11
    # 1000 expected at each of the 11 starts, standard deviation 30.
    assert abs(counts - 1000).max() < 150


def test_steps():
    feed = Feed(make_corpus(100), TOY)
    assert digest(feed[np.int64(3)]) == digest(feed[3])
    with pytest.raises(IndexError):
        feed[-1]
    with pytest.raises(TypeError):
        feed[0.5]


@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.sampling)
def test_stack(spec):
    feed = Feed(make_corpus(100), spec)
    stack = feed.stack(5, 3)
    assert stack["tokens"].shape == (3, 3, 4)
    assert stack["index"].tolist() == [[0, 1, 2]] * 3
    for k in range(3):
        np.testing.assert_array_equal(stack["tokens"][k], feed[5 + k]["tokens"])


@pytest.mark.parametrize(
    "settings, parts",
    [
        ({"sampling": "random"}, ["data.sampling='random'", "chunks, windows"]),
        ({"row_length": 0}, ["row_length is 0"]),
        ({"batch_size": 0}, ["batch_size is 0"]),
        ({"row_length": 101}, ["data.path", "100 tokens", "row of 101"]),
    ],
)
@pytest.mark.parametrize("spec", SPECS, ids=lambda spec: spec.sampling)
def test_bad_settings(spec, settings, parts, refuses):
    with refuses(*parts):
        Feed(make_corpus(100), dataclasses.replace(spec, **settings))


def count_threads() -> int:
    return sum(thread.name == "jaxpt-feed" for thread in threading.enumerate())


def test_prefetch_yields_the_stacks():
    feed = Feed(make_corpus(100), TOY)
    stacks = list(prefetch(feed, 4, [2, 1, 3]))
    assert [len(stack["tokens"]) for stack in stacks] == [2, 1, 3]
    for stack, (step, count) in zip(stacks, [(4, 2), (6, 1), (7, 3)]):
        np.testing.assert_array_equal(
            stack["tokens"], feed.stack(step, count)["tokens"]
        )
    assert count_threads() == 0


def test_prefetch_reads_ahead_but_not_too_far():
    far, too_far = threading.Event(), threading.Event()

    def counts():
        for i in range(100):
            if i == 4:
                far.set()
            if i == 5:
                too_far.set()
            yield 1

    feed = Feed(make_corpus(100), TOY)
    stacks = prefetch(feed, 0, counts(), depth=2)
    next(stacks)
    next(stacks)
    # Two handed out, two ready, and the thread waits with the count of the fifth.
    assert far.wait(timeout=10)
    assert not too_far.wait(timeout=0.2)
    stacks.close()
    assert count_threads() == 0


def test_prefetch_thread_ends_when_closed():
    stacks = prefetch(Feed(make_corpus(100), TOY), 0, iter(lambda: 1, 0))  # endless
    next(stacks)
    assert count_threads() == 1
    stacks.close()
    assert count_threads() == 0


def test_prefetch_raises_here():
    def counts():
        yield 1
        raise ZeroDivisionError("from the thread")

    stacks = prefetch(Feed(make_corpus(100), TOY), 0, counts())
    next(stacks)
    with pytest.raises(ZeroDivisionError, match="from the thread"):
        next(stacks)
    assert count_threads() == 0
    with pytest.raises(IndexError):
        next(prefetch(Feed(make_corpus(100), TOY), -1, [1]))
