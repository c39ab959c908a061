import hashlib
import itertools
import math
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from jaxpt.text.feed import (
    EPOCH,
    ROUNDS,
    Feed,
    FeedSpec,
    permute,
    prefetch,
    random_bits,
)
from jaxpt.text.mixing import BLOCK, check_weights, make_quotas
from jaxpt.text.phases import Phase
from jaxpt.text.rows.corpus import Corpus
from jaxpt.text.rows.forms import make_rows
from jaxpt.text.rows.rows_spec import RowsSpec
from jaxpt.text.tokens.vocab import Vocab

ROOT = Path(__file__).resolve().parents[2]


def steady(num_rows):
    """The phases of a run whose steps all read this number of rows."""
    return (Phase(0, num_rows),)


TOY = FeedSpec(steady(3), seed=7)
STRETCHES = ["chunks", "windows"]
VOCAB = Vocab(size=10_000, pad=9_999, cls=9_998, sep=9_997)


def count_up(num_tokens: int, first: int = 0) -> Corpus:
    """The tokens 0 .. n-1, so that a row's first token says where it starts."""
    return Corpus.from_arrays(np.arange(first, first + num_tokens))


def make_part(num_tokens=100, row_length=4, form="chunks", first=0):
    return make_rows(count_up(num_tokens, first), RowsSpec(row_length, form), VOCAB)


def at(places):
    """A choice of the places of a process; all for None."""
    return None if places is None else lambda size: places


def make_feed(spec=TOY, places=None, **part) -> Feed:
    return Feed([(make_part(**part), 1.0)], spec, at(places))


def make_pairs_feed(spec=TOY, places=None) -> Feed:
    """Rows with several keys: 142 sentences of 7 tokens, three a document."""
    starts = list(range(0, 995, 7))
    corpus = Corpus.from_arrays(
        np.arange(994), doc_starts=starts[:-1:3] + [994], sentence_starts=starts
    )
    rows = make_rows(corpus, RowsSpec(16, "pairs"), VOCAB)
    return Feed([(rows, 1.0)], spec, at(places))


def make_mixed_feed(spec=TOY, places=None, form="chunks") -> Feed:
    """Parts of 25, 10 and 50 rows in shares of 3 : 1 : 1; a token shows its part."""
    parts = [
        (make_part(100, form=form), 0.6),
        (make_part(40, form=form, first=1000), 0.2),
        (make_part(200, form=form, first=2000), 0.2),
    ]
    return Feed(parts, spec, at(places))


MAKERS = {
    "chunks": make_feed,
    "windows": lambda *args: make_feed(*args, form="windows"),
    "pairs": make_pairs_feed,
    "mixed": make_mixed_feed,
    "mixed windows": lambda *args: make_mixed_feed(*args, form="windows"),
}


@pytest.fixture(params=MAKERS)
def make(request):
    """`make(spec, places)`: a feed, of every kind in turn."""
    return MAKERS[request.param]


def share_out(size: int, index: int, count: int) -> range:
    """The places of one process of several."""
    return range(index * size // count, (index + 1) * size // count)


def digest(batch) -> str:
    return hashlib.sha256(batch["tokens"].tobytes()).hexdigest()[:16]


def assert_same(result, expected):
    assert result.keys() == expected.keys()
    for key, values in expected.items():
        assert result[key].dtype == values.dtype == np.int32
        np.testing.assert_array_equal(result[key], values)


GOLDEN = {
    "chunks": "3a127d7af38e744f 3a0df3c2ab15802f cc113ebb27b3d9d4",
    "windows": "4ab56d2a7ece67ed 48e19dc786499aec f206f7634dd0a1ee",
    "pairs": "b1b9131d112fbead e277cf03444ed9ff 70431095e2583606",
    "mixed": "2754d065c9ed326c 2b7fc9ae48ee93e3 e265547d0a484ce8",
    "mixed windows": "72e087a80ae32889 01158c6a33983c7b c76747b3b29d463f",
}


@pytest.mark.parametrize("name", MAKERS)
def test_golden(name):
    """These rows are fixed for ever: an old run must be repeatable."""
    feed = MAKERS[name](TOY)
    assert " ".join(digest(feed[step]) for step in (0, 17, 4321)) == GOLDEN[name]


PROCESS = """
import sys, hashlib
sys.path[:0] = sys.argv[1:3]
from test_feed import MAKERS, FeedSpec, digest, np, share_out, steady
index, count = map(int, sys.argv[3:5])
for name, make in MAKERS.items():
    feed = make(FeedSpec(steady(8), seed=7), share_out(8, index, count))
    for step in (0, 5, 1237):
        for key, values in feed[step].items():
            print(name, step, key, values.tobytes().hex())
"""


def read_processes(count: int) -> dict[str, str]:
    """The hash of the rows that some processes read, joined in order."""
    programs = [
        subprocess.Popen(
            [sys.executable, "-c", PROCESS, str(ROOT), str(Path(__file__).parent)]
            + [str(index), str(count)],
            stdout=subprocess.PIPE,
            text=True,
        )
        for index in range(count)
    ]
    joined = {}
    for program in programs:
        out, _ = program.communicate(timeout=60)
        assert program.returncode == 0
        for line in out.splitlines():
            name, data = line.rsplit(" ", 1)
            joined[name] = joined.get(name, "") + data
    return joined


def test_processes_read_parts_of_the_same_batches():
    one = read_processes(1)
    assert len(one) == 3 * (4 * 2 + 5)
    for name, make in MAKERS.items():
        feed = make(FeedSpec(steady(8), seed=7))
        for key, values in feed[1237].items():
            assert one[f"{name} 1237 {key}"] == values.tobytes().hex()
    for count in (2, 4):
        assert read_processes(count) == one, count


def test_hosts_may_change_at_any_step(make):
    """4 hosts to 2 to 1: joined in order, they continue with the same batches."""
    spec = FeedSpec(steady(12), seed=3)
    whole = make(spec)
    step = 0
    for count, num_steps in ((4, 3), (2, 5), (1, 2), (3, 4)):
        feeds = [make(spec, share_out(12, index, count)) for index in range(count)]
        stacks = [feed.stack(step, num_steps) for feed in feeds]
        joined = {
            key: np.concatenate([stack[key] for stack in stacks], axis=1)
            for key in stacks[0]
        }
        assert_same(joined, whole.stack(step, num_steps))
        step += num_steps


def test_a_process_may_read_any_places(make):
    """As where devices that are split over differently share a machine."""
    spec, places = FeedSpec(steady(12), seed=3), [0, 1, 6, 7, 11]
    whole, result = make(spec).stack(7, 3), make(spec, places).stack(7, 3)
    assert_same(result, {key: values[:, places] for key, values in whole.items()})


def test_batch_keys(make):
    feed = make(TOY)
    batch = feed[5]
    assert set(batch) == {*feed.keys, "index"}
    assert all(len(values) == 3 for values in batch.values())
    assert all(values.dtype == np.int32 for values in batch.values())
    assert batch["index"].tolist() == [0, 1, 2]


@given(st.data())
def test_any_order_reads_the_same(data):
    make = MAKERS[data.draw(st.sampled_from(sorted(MAKERS)))]
    steps = data.draw(st.lists(st.integers(0, 3000), min_size=1, max_size=6))
    feed = make(TOY)
    for step in steps:
        assert_same(feed[step], make(TOY)[step])


@given(
    st.integers(1, 60),
    st.integers(1, 9),
    st.integers(1, 9),
    st.integers(-(2**70), 2**70),
)
def test_each_row_once_an_epoch(num_tokens, row_length, batch_size, seed):
    if num_tokens < row_length:
        return
    feed = make_feed(
        FeedSpec(steady(batch_size), seed), num_tokens=num_tokens, row_length=row_length
    )
    num_rows = num_tokens // row_length
    num_steps = -(-3 * num_rows // batch_size)
    rows = np.concatenate([feed[step]["tokens"] for step in range(num_steps)])
    assert (rows == rows[:, :1] + np.arange(row_length)).all()
    for epoch in range(3):
        starts = rows[epoch * num_rows : (epoch + 1) * num_rows, 0]
        assert sorted(starts) == list(range(0, num_rows * row_length, row_length))


def test_rows_do_not_depend_on_the_batch_size():
    for make in (make_feed, make_pairs_feed, make_mixed_feed):
        rows = [
            make(FeedSpec(steady(size), seed=7))
            .stack(0, 60 // size)["tokens"]
            .reshape(60, -1)
            for size in (1, 4, 60)
        ]
        np.testing.assert_array_equal(rows[0], rows[1])
        np.testing.assert_array_equal(rows[0], rows[2])


# 4 halves of rows in steps 0 to 2, 8 in steps 3 and 4, then 8 quarters, then 4 rows.
PHASES = (Phase(0, 2, 2), Phase(3, 4, 2), Phase(5, 2, 4), Phase(9, 4))


def test_phases_read_the_rows_of_a_steady_run():
    """In its order, none twice and none left out, whatever they are cut into."""
    for make in (make_feed, make_mixed_feed):
        phased, whole = (
            make(FeedSpec(phases, seed=7)) for phases in (PHASES, steady(1))
        )
        shapes = [phased[step]["tokens"].shape for step in (0, 3, 5, 9)]
        assert shapes == [(4, 2), (8, 2), (8, 1), (4, 4)]
        read = np.concatenate([phased[step]["tokens"].ravel() for step in range(20)])
        num_rows = 3 * 2 + 2 * 4 + 4 * 2 + 11 * 4
        expected = whole.stack(0, num_rows)["tokens"].ravel()
        np.testing.assert_array_equal(read, expected)
        assert phased[3]["index"].tolist() == list(range(8))


@given(st.lists(st.tuples(st.integers(1, 4), st.integers(1, 6)), min_size=1), st.data())
def test_an_epoch_has_each_token_once_in_any_phases(parts, data):
    lengths, sizes = zip(*parts, strict=True)
    pieces = [data.draw(st.sampled_from((1, 2, 3, 6))) for _ in parts]
    starts = np.cumsum([0, *lengths[:-1]]).tolist()
    phases = tuple(map(Phase, starts, sizes, pieces))
    feed = make_feed(FeedSpec(phases, 5), num_tokens=120, row_length=6)
    rows = [feed[step]["tokens"].reshape(-1, 6) for step in range(starts[-1] + 20)]
    first = np.concatenate(rows)[:20]
    assert sorted(first.ravel().tolist()) == list(range(120))


@given(
    sizes=st.lists(st.integers(1, 6), min_size=1, max_size=3),
    ranges=st.lists(
        st.tuples(st.integers(0, 11), st.integers(1, 4)), min_size=1, max_size=3
    ),
)
@example(sizes=[6, 2], ranges=[(1, 1)])
@example(sizes=[2, 6], ranges=[(5, 1)])
@example(sizes=[2, 6, 4], ranges=[(1, 1), (6, 2)])
def test_skipped_batches_are_not_read_and_no_row_twice_in_any_phases(sizes, ranges):
    """Batches may grow or shrink; a row's first token says which row it is."""
    phases = tuple(Phase(4 * i, size) for i, size in enumerate(sizes))
    spec, num_steps = FeedSpec(phases, seed=3), 12
    feed = make_feed(spec, num_tokens=4 * 6 * 40)  # an epoch of all that can be read
    skipped = tuple((first, first + num) for first, num in ranges)
    other = feed.without(skipped)

    def read(feed, step):
        return feed[step]["tokens"][:, 0].tolist()

    rows = [row for step in range(num_steps) for row in read(other, step)]
    assert len(rows) == len(set(rows)) == sum(len(read(feed, s)) for s in range(12))
    left_out = {batch for first, end in skipped for batch in range(first, end)}
    for batch in left_out & set(range(num_steps)):
        # Up to the first gap, a batch has the rows of a run that reads all.
        if batch == min(left_out):
            assert not set(read(feed, batch)) & set(rows)
    first = min(left_out)
    for step in range(min(first, num_steps)):
        assert read(other, step) == read(feed, step)


def test_a_stack_is_of_one_phase(make):
    feed = make(FeedSpec((Phase(0, 2), Phase(3, 4)), seed=7))
    stack = feed.stack(3, 4)
    for k in range(4):
        assert_same({key: values[k] for key, values in stack.items()}, feed[3 + k])
    assert [len(feed[step]["tokens"]) for step in (2, 3, 1000)] == [2, 4, 4]
    with pytest.raises(ValueError, match="steps 1 to 3: are of several phases"):
        feed.stack(1, 3)


def test_processes_may_share_a_row_that_is_cut():
    """Two rows in 8 pieces are 2 pieces for each of 4 processes."""
    spec = FeedSpec((Phase(0, 2, 4),), seed=7)
    parts = [(make_part(), 1.0)]
    whole = Feed(parts, spec).stack(5, 3)
    pieces = [
        Feed(parts, spec, lambda n, i=i: share_out(n, i, 4)).stack(5, 3)
        for i in range(4)
    ]
    assert_same({k: np.concatenate([p[k] for p in pieces], 1) for k in whole}, whole)


def test_ids_of_sentences_begin_anew_in_a_piece():
    starts = [0, 3, 10, 12, 20]
    corpus = Corpus.from_arrays(np.arange(20), sentence_starts=starts)
    rows = make_rows(corpus, RowsSpec(10, sentence_ids=True), VOCAB)
    batch = Feed([(rows, 1.0)], FeedSpec((Phase(0, 2, 2),), seed=7))[0]
    pairs = zip(batch["tokens"][:, 0], batch["sentence_ids"].tolist(), strict=True)
    expected = {0: [1, 1, 1, 2, 2], 5: 5 * [1], 10: [1, 1, 2, 2, 2], 15: 5 * [1]}
    assert dict(pairs) == expected


def test_epochs_and_seeds_differ():
    feed = make_feed(FeedSpec(steady(100), seed=0), num_tokens=400)
    other = make_feed(FeedSpec(steady(100), seed=1), num_tokens=400)
    orders = [feed[0], feed[1], other[0], other[1]]
    far = [
        make_feed(FeedSpec(steady(100), seed), num_tokens=400)[0]
        for seed in (2**63, -1)
    ]
    assert len({digest(order) for order in orders + far}) == 6
    assert digest(make_feed(FeedSpec(steady(100), 2**64), num_tokens=400)[0]) == digest(
        feed[0]
    )


@given(st.integers(4, 40), st.integers(0, 1000))
def test_windows_are_within_range(num_tokens, step):
    feed = make_feed(num_tokens=num_tokens, form="windows")
    rows = feed[step]["tokens"]
    assert (rows == rows[:, :1] + np.arange(4)).all()
    assert rows.min() >= 0
    assert rows.max() < num_tokens


def test_windows_start_anywhere_uniformly():
    feed = make_feed(FeedSpec(steady(11_000), seed=3), num_tokens=14, form="windows")
    starts = feed[0]["tokens"][:, 0]
    counts = np.bincount(starts, minlength=11)
    assert len(counts) == 11
    # 1000 expected at each of the 11 starts, standard deviation 30.
    assert abs(counts - 1000).max() < 150


def test_steps(make):
    feed = make(TOY)
    assert digest(feed[np.int64(3)]) == digest(feed[3])
    with pytest.raises(IndexError):
        feed[-1]
    with pytest.raises(TypeError):
        feed[0.5]


def test_stack(make):
    feed = make(TOY)
    stack = feed.stack(5, 3)
    assert stack["tokens"].shape[:2] == (3, 3)
    assert stack["index"].tolist() == [[0, 1, 2]] * 3
    for k in range(3):
        assert_same({key: values[k] for key, values in stack.items()}, feed[5 + k])


def test_bad_settings(make, refuses):
    with refuses("train.batch_size=0", "at least 1"):
        make(FeedSpec(steady(0), 0))


def test_bad_arguments():
    for indices in ([], [-1, 2], [0, 6], [1, 1], [2, 1]):
        with pytest.raises(ValueError, match="indices"):
            make_feed(FeedSpec(steady(6), 0), indices)
    ids = make_rows(
        Corpus.from_arrays(np.arange(9), sentence_starts=[0, 5, 9]),
        RowsSpec(4, sentence_ids=True),
        VOCAB,
    )
    with pytest.raises(ValueError, match="keys"):
        Feed([(make_part(), 1), (ids, 1)], TOY)


def test_shares_by_hand(refuses):
    assert make_quotas([1.0]).tolist() == [BLOCK]
    assert make_quotas([3, 1]).tolist() == [3072, 1024]
    # 1365.33 each: the rest goes to the first.
    assert make_quotas([0.2, 0.2, 0.2]).tolist() == [1366, 1365, 1365]
    # 2866.79, 819.08, 410.13 (remainders .79, .08, .13): one up.
    assert make_quotas([0.6999, 0.19997, 0.10013]).tolist() == [2867, 819, 410]
    with refuses("data.mixture", "source 2 of 3", "1 in 4096"):
        check_weights([1.0, 0.0001, 1.0])
    for shares in ([1.0, 0.0], [1.0, -1.0], [math.nan, 1.0], [1.0, math.inf]):
        with refuses("data.mixture=", "above 0"):
            check_weights(shares)


@given(st.lists(st.floats(0.03, 10), min_size=1, max_size=9))  # each above 1 / 4096
def test_shares(shares):
    quotas = make_quotas(shares)
    assert quotas.sum() == BLOCK
    exact = np.array(shares) / sum(shares) * BLOCK
    assert abs(quotas - exact).max() < 1 + 1e-6


def test_a_mixture_is_exact_and_each_part_has_its_epochs():
    feed = make_mixed_feed(FeedSpec(steady(64), seed=5))
    starts = feed.stack(0, 3 * BLOCK // 64)["tokens"][..., 0].ravel()
    part_of = starts // 1000
    for block in part_of.reshape(3, BLOCK):
        # 0.6 and 0.2 of 4096 are 2457.6 and 819.2.
        assert np.bincount(block).tolist() == [2458, 819, 819]
    for part, num_rows in enumerate((25, 10, 50)):
        rows = starts[part_of == part] - 1000 * part
        whole = len(rows) // num_rows
        epochs = rows[: whole * num_rows].reshape(whole, num_rows)
        assert len({tuple(epoch) for epoch in epochs.tolist()}) == whole
        # Whole blocks hold a part's rows from its first on, without a gap.
        counts = np.bincount(rows // 4, minlength=num_rows)
        assert set(counts.tolist()) <= {whole, whole + 1}
    # Neither side by side nor in turns.
    changes = (np.diff(part_of[:BLOCK]) != 0).mean()
    assert abs(changes - (1 - 0.36 - 0.04 - 0.04)) < 0.05
    blocks = part_of.reshape(3, BLOCK)
    assert (blocks[0] != blocks[1]).mean() > 0.4


def test_a_mixture_reads_each_row_once_an_epoch():
    """Rows of a part are numbered through: after whole epochs all counts are equal."""
    parts = [(make_part(4 * 1024), 0.5), (make_part(4 * 512, first=5000), 0.5)]
    starts = Feed(parts, FeedSpec(steady(BLOCK), 1))[2]["tokens"][:, 0]
    rows = starts[starts < 5000] // 4
    assert np.bincount(rows).tolist() == [2] * 1024
    rows = (starts[starts >= 5000] - 5000) // 4
    assert np.bincount(rows).tolist() == [4] * 512


def test_parts_of_one_size_have_orders_of_their_own():
    parts = [(make_part(40), 1.0), (make_part(40, first=1000), 1.0)]
    starts = Feed(parts, FeedSpec(steady(BLOCK), 1))[0]["tokens"][:, 0]
    first, second = starts[starts < 1000], starts[starts >= 1000] - 1000
    assert (first != second).any()


def order_of(num: int, seed: int = 0, epoch: int = 0) -> np.ndarray:
    return permute(np.arange(num), num, random_bits(seed, EPOCH, epoch, ROUNDS))


def test_permutation_is_one():
    for num in [*range(1, 201), 4096, 65_537, 1_000_003]:
        order = order_of(num)
        assert order.dtype == np.int64
        assert (np.bincount(order, minlength=num) == 1).all()
        assert len(order) == num


@given(st.integers(2**33, 2**50), st.data())
def test_permutation_of_many(num, data):
    places = data.draw(st.lists(st.integers(0, num - 1), max_size=20, unique=True))
    keys = random_bits(1, EPOCH, 2, ROUNDS)
    result = permute(np.array(places, np.int64), num, keys).tolist()
    assert len(set(result)) == len(places)
    assert all(0 <= place < num for place in result)
    # An index is mapped independently of the other indices.
    assert [permute(np.array([p]), num, keys)[0] for p in places] == result


def test_permutations_differ_by_epoch_and_seed():
    orders = {
        tuple(order_of(30, seed, epoch)) for seed in range(20) for epoch in range(20)
    }
    assert len(orders) == 400


def spread(counts) -> float:
    """Standard deviations of chi-squared above its expectation."""
    counts = np.asarray(counts, np.float64).ravel()
    mean, freedom = counts.mean(), len(counts) - 1
    return (((counts - mean) ** 2 / mean).sum() - freedom) / (2 * freedom) ** 0.5


@pytest.mark.slow_cases("4", "5")
@pytest.mark.parametrize("num", [2, 3, 4, 5])
def test_every_order_is_as_likely(num):
    num_epochs = 60 * math.factorial(num)
    seen = Counter(tuple(order_of(num, 1, e).tolist()) for e in range(num_epochs))
    orders = itertools.permutations(range(num))
    assert spread([seen[order] for order in orders]) < 4


def test_orders_look_random():
    num, num_epochs = 100, 4000
    orders = np.stack([order_of(num, 2, e) for e in range(num_epochs)])
    places = np.tile(np.arange(num), num_epochs)
    counts = np.bincount(places * num + orders.ravel(), minlength=num * num)
    assert abs(spread(counts)) < 5  # any place to any place
    for gap in (1, 10):
        steps = (orders[:, gap:] - orders[:, :-gap]) % num
        assert abs(spread(np.bincount(steps.ravel(), minlength=num)[1:])) < 5
    fixed = (orders == np.arange(num)).sum(axis=1)
    assert abs(fixed.mean() - 1) < 5 / num_epochs**0.5
    assert abs(fixed.var() - 1) < 0.15
    large = order_of(200_000, 3)
    correlation = np.corrcoef(large, np.arange(200_000))[0, 1]
    assert abs(correlation) < 5 / 200_000**0.5


def count_threads() -> int:
    return sum(thread.name == "jaxpt-feed" for thread in threading.enumerate())


def test_prefetch_yields_the_stacks(make):
    feed = make(TOY)
    stacks = list(prefetch(feed, 4, [2, 1, 3]))
    assert [len(stack["tokens"]) for stack in stacks] == [2, 1, 3]
    for stack, (step, count) in zip(stacks, [(4, 2), (6, 1), (7, 3)]):
        assert_same(stack, feed.stack(step, count))
    assert count_threads() == 0


def test_prefetch_places_in_its_thread():
    threads = []

    def place(stack):
        threads.append(threading.current_thread().name)
        return stack["tokens"].sum()

    feed = make_feed()
    result = list(prefetch(feed, 3, [1, 2], place=place))
    assert result == [
        feed.stack(3, 1)["tokens"].sum(),
        feed.stack(4, 2)["tokens"].sum(),
    ]
    assert threads == ["jaxpt-feed"] * 2
    assert list(prefetch(feed, 0, [1, 1], place=lambda stack: None)) == [None, None]


def test_prefetch_reads_ahead_but_not_too_far():
    far, too_far = threading.Event(), threading.Event()

    def counts():
        for i in range(100):
            if i == 4:
                far.set()
            if i == 5:
                too_far.set()
            yield 1

    stacks = prefetch(make_feed(), 0, counts(), depth=2)
    next(stacks)
    next(stacks)
    # Two handed out, two ready, and the thread waits with the count of the fifth.
    assert far.wait(timeout=10)
    assert not too_far.wait(timeout=0.2)
    stacks.close()
    assert count_threads() == 0


def test_prefetch_thread_ends_when_closed():
    stacks = prefetch(make_feed(), 0, iter(lambda: 1, 0))  # endless
    next(stacks)
    assert count_threads() == 1
    stacks.close()
    assert count_threads() == 0


def test_prefetch_raises_here():
    def counts():
        yield 1
        raise ZeroDivisionError("from the thread")

    def place(stack):
        raise FloatingPointError("from placing")

    stacks = prefetch(make_feed(), 0, counts())
    next(stacks)
    with pytest.raises(ZeroDivisionError, match="from the thread"):
        next(stacks)
    assert count_threads() == 0
    with pytest.raises(FloatingPointError, match="from placing"):
        next(prefetch(make_feed(), 0, [1, 1], place=place))
    assert count_threads() == 0
    with pytest.raises(IndexError):
        next(prefetch(make_feed(), -1, [1]))
    assert count_threads() == 0


def test_an_exception_of_the_consumer_ends_the_thread():
    stacks = prefetch(make_feed(), 0, iter(lambda: 1, 0))
    with pytest.raises(KeyError):
        for _ in stacks:
            raise KeyError
    stacks.close()
    assert count_threads() == 0


@pytest.mark.slow_cases("pass")
@pytest.mark.parametrize("ending", ["pass", "stacks = 0"])
def test_a_program_that_ends_leaves_nothing_behind(ending):
    """It need not close the generator: the thread neither holds it up nor aborts it."""
    code = f"""
import sys
sys.path[:0] = {[str(ROOT), str(Path(__file__).parent)]}
from test_feed import make_feed, prefetch
stacks = prefetch(make_feed(), 0, iter(lambda: 1, 0))
next(stacks)
{ending}
sys.exit(3)
"""
    done = subprocess.run(
        [sys.executable, "-c", code], timeout=60, capture_output=True, text=True
    )
    assert (done.returncode, done.stdout + done.stderr) == (3, "")
