"""Mixtures in stages: exact counts, each row of a source in turn, pure functions."""

import dataclasses

import jax
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from stops import stop_after
from text.test_feed import make_part, share_out, steady
from tiny import make_config, prepare

from jaxpt.config.plan import make_plan
from jaxpt.runs.checkpoint import Checkpointer
from jaxpt.runs.data import make_feed
from jaxpt.runs.program import Program
from jaxpt.runs.signals import Stopped
from jaxpt.text.dataset import load_text
from jaxpt.text.feed import Feed, FeedSpec, find_batch
from jaxpt.text.mixing import BLOCK, RAMP, Mixture, Stage, expand, place_stages
from jaxpt.text.phases import Phase, count_rows, make_phases
from jaxpt.text.text_spec import TextSpec
from jaxpt.training import loop

WEIGHTS = st.sampled_from([0.0, 0.1, 0.5, 1.0, 3.0])


@st.composite
def drawn_stages(draw):
    """Stages as a user may set them: of 1 to 3 sources, each read in some stage."""
    num_parts, num_stages = draw(st.integers(1, 3)), draw(st.integers(1, 4))
    starts = draw(
        st.lists(
            st.integers(1, 99),
            min_size=num_stages - 1,
            max_size=num_stages - 1,
            unique=True,
        )
    )
    rows = st.lists(WEIGHTS, min_size=num_parts, max_size=num_parts).filter(any)
    weights = [tuple(draw(rows)) for _ in range(num_stages)]
    return tuple(
        zip([0.0, *(start / 100 for start in sorted(starts))], weights, strict=True)
    )


def keep_order(places, size, block):
    """No shuffling, so that counts can be read by hand."""
    assert (places < size).all()
    return places


def reverse(places, size, block):
    return size - 1 - places


def find_all(stages, num_rows, shuffle=reverse):
    return Mixture(stages).find(np.arange(num_rows), shuffle)


@given(drawn_stages(), st.integers(1, 300), st.integers(1, 64), st.booleans())
@settings(max_examples=60, deadline=None)
def test_counts_of_each_stage_are_exact(stages, num_steps, batch_size, is_linear):
    phases = steady(batch_size)
    placed = place_stages(expand(stages, is_linear), num_steps, phases)
    num_rows = num_steps * batch_size
    parts, numbers = find_all(placed, num_rows)
    ends = [*(stage.start for stage in placed[1:]), num_rows]
    assert placed[0].start == 0 and placed[-1].start == num_rows
    for stage, end in zip(placed[:-1], ends, strict=False):
        num = end - stage.start
        counts = np.bincount(parts[stage.start : end], minlength=len(stage.fractions))
        num_blocks = -(-num // BLOCK)
        exact = np.array(stage.fractions) * num
        assert (np.abs(counts - exact) < num_blocks + 1e-6).all()
        assert (counts[np.array(stage.fractions) == 0] == 0).all()
    # Each source's rows are numbered through, over all stages: none is left out.
    for part in range(len(stages[0][1])):
        own = np.sort(numbers[parts == part])
        np.testing.assert_array_equal(own, np.arange(len(own)))


@given(drawn_stages(), st.booleans(), st.data())
@settings(max_examples=40, deadline=None)
def test_a_row_is_a_function_of_its_number(stages, is_linear, data):
    """Whatever else is read with it: a resumed run reads the same rows."""
    placed = place_stages(expand(stages, is_linear), 50, steady(200))
    whole = find_all(placed, 12_000)
    some = data.draw(st.lists(st.integers(0, 11_999), min_size=1, max_size=50))
    found = Mixture(placed).find(np.array(some), reverse)
    for values, expected in zip(found, whole, strict=True):
        np.testing.assert_array_equal(values, expected[some])


def test_stages_by_hand():
    stages = place_stages(((0, (1, 0)), (0.5, (1, 3))), 4, steady(4))
    parts, numbers = find_all(stages, 20, keep_order)
    assert parts.tolist() == [0] * 8 + [0, 0] + [1] * 6 + [0] * 4
    assert numbers.tolist() == [*range(8), 8, 9, *range(6), *range(10, 14)]


def test_a_linear_change_is_steady():
    """Three quarters of the second half of the run are of the second source."""
    stages = expand(((0, (1, 0)), (0.5, (1, 0)), (0.75, (0, 1))), is_linear=True)
    placed = place_stages(stages, 12_800, steady(10))
    parts, _ = find_all(placed, 128_000)
    assert not parts[:64_000].any() and parts[96_000:].all()
    pieces = parts[64_000:96_000].reshape(RAMP, -1)
    shares = pieces.mean(1)
    np.testing.assert_allclose(shares, (np.arange(RAMP) + 0.5) / RAMP, atol=2e-3)


def test_a_stage_begins_at_a_fraction_of_the_steps():
    """With other numbers of rows in a step, at that step's first row."""
    phases = (Phase(0, 2), Phase(50, 8))
    _, second, end = place_stages(((0, (1, 0)), (0.6, (0, 1))), 100, phases)
    assert second.start == count_rows(phases, 60) == 50 * 2 + 10 * 8
    assert end.start == 50 * 2 + 50 * 8
    # Stages of no steps are left out.
    assert (
        len(place_stages(((0, (1, 0)), (0.01, (0, 1)), (0.02, (1, 1))), 5, phases)) == 2
    )


STAGES = (Stage(0, (1.0, 0.0)), Stage(5000, (0.25, 0.75)), Stage(9000, (0.25, 0.75)))


def make_staged(places=None):
    parts = [(make_part(400), 0.5), (make_part(4000, first=10_000), 0.5)]
    spec = FeedSpec(steady(50), 3, STAGES)
    return Feed(parts, spec, None if places is None else lambda size: places)


def test_processes_and_stacks_read_the_same_rows():
    feed = make_staged()
    whole = feed.stack(90, 25)["tokens"]
    one_by_one = np.stack([make_staged()[step]["tokens"] for step in range(90, 115)])
    np.testing.assert_array_equal(whole, one_by_one)
    shared = [
        make_staged(share_out(50, index, 5)).stack(90, 25)["tokens"]
        for index in range(5)
    ]
    np.testing.assert_array_equal(whole, np.concatenate(shared, axis=1))
    is_second = whole[:, :, 0] >= 10_000
    assert not is_second[:10].any()  # the first stage has 100 steps
    assert is_second[10:].mean() == pytest.approx(0.75, abs=0.05)


def test_skipped_batches_move_rows_forward_over_stages():
    feed = make_staged()
    ranges = ((20, 30), (95, 105))
    skipping = feed.without(ranges)
    for step in (0, 19, 20, 84, 85, 120):
        np.testing.assert_array_equal(
            skipping[step]["tokens"], feed[find_batch(step, ranges)]["tokens"]
        )


# Settings.

TWO = {"path": "", "mixture": ("a.txt=1", "b.txt=3")}
GOOD = ((0, (1, 0)), (0.8, (1, 3)))


@pytest.mark.parametrize(
    "changes, texts",
    [
        ({"mixture_stages": ((0.1, (1, 0)), (0.8, (1, 3)))}, ["from 0 in the first"]),
        ({"mixture_stages": ((0, (1, 0)), (0.8, (1, 3)), (0.8, (0, 1)))}, ["rising"]),
        ({"mixture_stages": ((0, (1, 0)), (0.8, (1, 3)), (0.5, (0, 1)))}, ["rising"]),
        ({"mixture_stages": ((0, (1, 0)), (1.0, (1, 3)))}, ["below 1"]),
        ({"mixture_stages": ((0, (0, 0)), (0.8, (1, 3)))}, ["one of each stage above"]),
        ({"mixture_stages": ((0, (1, -1)), (0.8, (1, 3)))}, ["at least 0"]),
        ({"mixture_stages": ((0, (1,)), (0.8, (1, 3)))}, ["a.txt=1, b.txt=3"]),
        ({"mixture_stages": ((0, (1, 0)), (0.8, (1, 3, 1)))}, ["one weight in each"]),
        ({"mixture_stages": ((0, (1, 0)), (0.8, (3, 0)))}, ["in some stage for b.txt"]),
        ({"mixture_stages": GOOD, "mixture": ()}, ["data.mixture: none"]),
        ({"mixture_stages": "0.8"}, ["data.mixture_stages=0.8", "pairs (from"]),
        ({"mixture_change": "linear"}, ["data.mixture_change=linear", "step without"]),
        ({"mixture_stages": GOOD, "mixture_change": "cosine"}, ["step, linear"]),
    ],
)
def test_stages_that_are_refused(changes, texts, refuses):
    with refuses("data.mixture_", *texts):
        TextSpec(**(TWO | changes))


@pytest.fixture
def mixed(speech, tmp_path):
    """A config of two sources, the second of which is read at the end of a run."""
    text = speech.read_text(encoding="utf-8")
    (tmp_path / "a.txt").write_text(text[: len(text) // 2], encoding="utf-8")
    (tmp_path / "b.txt").write_text(text[len(text) // 2 :], encoding="utf-8")
    mixture = (f"{tmp_path / 'a.txt'}=1", f"{tmp_path / 'b.txt'}=1")
    return make_config(
        "",
        "mlm",
        data__mixture=mixture,
        data__mixture_stages=((0, (1, 0)), (0.5, (1, 3))),
        model__dropout=0.1,
    )


def test_a_source_too_rare_for_a_block_is_refused(mixed, refuses):
    mixed.data.mixture_stages = ((0, (1, 1e-5)), (0.5, (1, 1)))
    with refuses("data.mixture_stages: source 2 of 2 has 1e-05", "1 in 4096"):
        load_text(make_plan(mixed).text)


def test_stages_change_the_training_text_and_no_other(mixed):
    spec = make_plan(mixed).text
    tokenizer, staged = load_text(spec)
    _, plain = load_text(dataclasses.replace(spec, mixture_stages=()), tokenizer)
    assert staged["valid"].fingerprint == plain["valid"].fingerprint
    assert staged["valid"].fractions == plain["valid"].fractions == (0.5, 0.5)
    assert staged["train"].fingerprint != plain["train"].fingerprint
    assert not staged["valid"].stages
    by_documents = dataclasses.replace(spec, mixture_unit="documents")
    (_, first), (_, second) = load_text(by_documents, tokenizer)[1]["train"].stages
    sizes = [part.num_tokens / len(part.labels) for part in staged["train"].parts]
    assert first == (1, 0)
    assert second[1] / second[0] == pytest.approx(3 * sizes[1] / sizes[0])


def test_a_runs_rows_follow_its_stages(mixed):
    task, _, corpora = prepare(mixed)
    train = corpora["train"]
    feed = make_feed(task, train)
    own = [rows.num_rows for rows in feed.parts]
    assert min(own) > 0
    parts, _ = feed._mix(np.arange(mixed.train.steps * mixed.train.batch_size))
    counts = [np.bincount(half, minlength=2).tolist() for half in np.split(parts, 2)]
    assert counts == [[48, 0], [12, 36]]
    # A run of another length has its stages at the same fractions.
    mixed.train.steps = 24
    task, _, corpora = prepare(mixed)
    parts, _ = make_feed(task, corpora["train"])._mix(np.arange(24 * 8))
    counts = [np.bincount(half, minlength=2).tolist() for half in np.split(parts, 2)]
    assert counts == [[96, 0], [24, 72]]


def test_a_run_that_stops_in_a_stage_ends_the_same(mixed, tmp_path, monkeypatch):
    def train(workdir):
        task, tokenizer, corpora = prepare(mixed)
        return task, loop.train(task, tokenizer, corpora, workdir)

    task, whole = train(tmp_path / "whole")
    with monkeypatch.context() as patch:
        patch.setattr(loop, "SignalWatch", stop_after(3))  # in the second stage
        with pytest.raises(Stopped):
            train(tmp_path / "parts")
    _, parts = train(tmp_path / "parts")
    states = []
    for name in ("whole", "parts"):
        with Checkpointer(tmp_path / name / "checkpoints") as checkpointer:
            states.append(checkpointer.restore(Program(task).abstract_state()))
    assert states[0][1] == states[1][1] == mixed.train.steps
    jax.tree.map(np.testing.assert_array_equal, *(state for state, _ in states))
    assert whole["metrics"] == parts["metrics"]
    assert whole["raw_tokens"] == mixed.train.steps * mixed.train.batch_size * 24


def test_milestones_by_words_are_refused(mixed, refuses):
    mixed.train.checkpoint_words = (10,)
    with refuses("train.checkpoint_words=(10,): must be () with data.mixture_stages"):
        make_plan(mixed)


def test_a_schedule_of_the_batch_moves_the_rows_of_a_stage():
    phases = make_phases(12, 2, 8, ((0.5, 0.25),))
    first, second, end = place_stages(((0, (1, 0)), (0.75, (1, 1))), 12, phases)
    assert [first.start, second.start, end.start] == [0, 6 * 2 + 3 * 8, 6 * 2 + 6 * 8]
