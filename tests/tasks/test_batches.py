"""Batches: every row once, of few lengths, the same for a seed and an epoch."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from jaxpt.finetuning.data import draw_nested, hold_out
from jaxpt.tasks.batches import choose_lengths, collate, cut_all, cut_epoch
from jaxpt.tasks.classification import Example

LENGTHS = np.random.default_rng(0).integers(3, 90, size=203)


def test_every_row_is_in_an_epoch_once():
    allowed = choose_lengths(LENGTHS.tolist(), 4)
    batches = cut_epoch(LENGTHS, 8, allowed, seed=1, epoch=2)
    assert sorted(i for b in batches for i in b.rows) == list(range(203))
    assert len(batches) == 26  # the last of them is short
    assert {b.length for b in batches} <= set(allowed)
    for batch in batches:
        longest = max(LENGTHS[i] for i in batch.rows)
        assert longest <= batch.length
    assert batches == cut_epoch(LENGTHS, 8, allowed, seed=1, epoch=2)
    others = [cut_epoch(LENGTHS, 8, allowed, *x) for x in ((1, 3), (2, 2))]
    assert batches not in others


def test_short_rows_do_not_cost_long_ones():
    allowed = choose_lengths(LENGTHS.tolist(), 6)
    batches = cut_epoch(LENGTHS, 8, allowed, seed=0, epoch=0)
    padded = sum(b.length * len(b.rows) for b in batches)
    assert padded < 1.25 * LENGTHS.sum() and padded < 0.65 * 203 * 96


def test_the_order_of_the_batches_has_nothing_to_do_with_their_lengths():
    """Of each epoch, and of many together; neither short nor long ones come first."""
    correlations = []
    for epoch in range(40):
        batches = cut_epoch(LENGTHS, 8, (96,), seed=0, epoch=epoch)
        lengths = [LENGTHS[list(batch.rows)].mean() for batch in batches]
        correlations.append(np.corrcoef(lengths, np.arange(len(lengths)))[0, 1])
    assert max(np.abs(correlations)) < 0.7
    assert abs(np.mean(correlations)) < 0.1


def test_evaluation_reads_all_rows():
    batches = cut_all(LENGTHS, 16, choose_lengths(LENGTHS.tolist(), 3))
    assert sorted(i for b in batches for i in b.rows) == list(range(203))


@given(st.lists(st.integers(1, 60), min_size=1, max_size=12), st.integers(1, 4))
def test_no_other_lengths_pad_less(lengths, num):
    """Compared with all choices of the same number of lengths."""
    import itertools

    def cost(allowed):
        return sum(min(a for a in allowed if a >= n) for n in lengths)

    sizes = sorted({-(-n // 8) * 8 for n in lengths})
    allowed = choose_lengths(lengths, num)
    assert len(allowed) <= num and allowed[-1] == sizes[-1]
    candidates = itertools.combinations(sizes, min(num, len(sizes)))
    assert cost(allowed) == min(cost(x) for x in candidates if x[-1] == sizes[-1])


def test_collate_pads_rows_and_batches():
    rows = [
        {"tokens": np.array([5, 6], np.int32), "targets": np.asarray(1, np.int32)},
        {"tokens": np.array([7], np.int32), "targets": np.asarray(0, np.int32)},
    ]
    batch = collate(rows, 3, 4, {}, pad=9)
    assert batch["inputs"].tolist()[:2] == [[5, 6, 9], [7, 9, 9]]
    assert batch["segment_ids"].tolist()[:2] == [[1, 1, 0], [1, 0, 0]]
    assert batch["row_weights"].tolist() == [1, 1, 0, 0]
    assert batch["segment_ids"][2:].sum() == 2  # no softmax is over nothing


def test_collate_pads_what_a_task_names():
    rows = [{"tokens": np.array([5, 6]), "marks": np.array([1, 2])}]
    batch = collate(rows, 3, 1, {"marks": -100}, pad=0)
    assert batch["marks"].tolist() == [[1, 2, -100]]


def make_examples(num):
    return [Example(str(i), None, (i % 3 // 2,), 2) for i in range(num)]


def test_smaller_numbers_lie_within_larger_ones_and_are_balanced():
    items = make_examples(60)  # 20 of label 1
    drawn = {num: draw_nested(items, num, 0) for num in (10, 30, 60)}
    assert drawn[10] == drawn[30][:10] and drawn[30] == drawn[60][:30]
    assert sum(x.labels[0] for x in drawn[10]) == 5
    assert sum(x.labels[0] for x in drawn[60]) == 20
    assert len(set(drawn[60])) == 60
    assert draw_nested(items, 10, 1) != drawn[10]


def test_a_share_is_held_out(refuses):
    items = make_examples(20)
    train, dev = hold_out(items, 0.1)
    assert len(dev) == 2 and {*train, *dev} == set(items)
    with refuses("data.dev_share=0.01", "0 of 20"):
        hold_out(items, 0.01)
