"""Updates that are skipped, runs that rewind, and the same bits whenever repeated."""

import itertools
import json

import jax
import numpy as np
import pytest
from poison import poison
from stops import stop_after
from tiny import CORE, make_config, prepare, slow, slow_but

from jaxpt.cli.main import main
from jaxpt.errors import DivergedError
from jaxpt.learn import skips
from jaxpt.runs.checkpoint import Checkpointer
from jaxpt.runs.metrics_file import read_metrics
from jaxpt.runs.program import Program
from jaxpt.runs.signals import Stopped
from jaxpt.text.feed import unpad_ranges
from jaxpt.training import loop, rewind
from jaxpt.training.run_log import RunLog

NAN, INF = float("nan"), float("inf")
TIMES = {"seconds", "first_step_seconds", "tokens_per_second"}


def train(config, folder):
    task, tokenizer, corpora = prepare(config)
    return loop.train(task, tokenizer, corpora, folder)


TEMPLATES = {}  # by config


def restore(config, folder, step=None):
    """A saved state, as arrays of NumPy by path."""
    key = str(config)
    if key not in TEMPLATES:
        TEMPLATES[key] = Program(prepare(config)[0]).abstract_state()
    with Checkpointer(folder / "checkpoints") as checkpointer:
        state, _ = checkpointer.restore(TEMPLATES[key], step)
    leaves = jax.tree_util.tree_leaves_with_path(state)
    return {jax.tree_util.keystr(path): np.asarray(leaf) for path, leaf in leaves}


def assert_same(left, right):
    assert left.keys() == right.keys()
    for path, leaf in left.items():
        np.testing.assert_array_equal(leaf, right[path], err_msg=path)


def read_log(folder):
    """The lines of the log without times."""
    lines = read_metrics(folder)
    return [{k: v for k, v in line.items() if k not in TIMES} for line in lines]


# What differs between the objectives' train steps, optimizers and back ends.
CASES = {
    "clm": {"optim__name": "muon", "train__num_microbatches": 2},
    "mlm": {"optim__ema_decay": 0.9, "model__dropout": 0.1},
    "span_corruption": {"optim__name": "adafactor", "optim__clip_norm": 0.0},
    "electra": {"optim__name": "lamb", "train__backend": "pmap"},
    "adaptive_mlm": {"adaptive_mlm__update_every": 1, "model__dtype": "bfloat16"},
}


@pytest.mark.parametrize("objective", slow_but(("clm",), CASES))
def test_a_skipped_update_changes_nothing_but_the_step(objective, speech, tmp_path):
    one = {"train__steps_per_call": 1, "train__checkpoint_every": 1}
    keep = {"train__keep_checkpoints": 20, "train__steps": 8}
    changes = CASES[objective] | one | keep | {"optim__max_skips": 3}
    config = make_config(speech, objective, **changes)
    with poison(objective, {2: NAN, 3: INF, 6: NAN}):
        result = train(config, tmp_path)
    assert result["skipped_updates"] == 3 and "skipped_batches" not in result
    for step, is_skipped in ((2, False), (3, True), (4, True), (5, False), (7, True)):
        before, after = (restore(config, tmp_path, at) for at in (step - 1, step))
        for path, leaf in before.items():
            # Adam's count belongs to its moments; a schedule's to the run.
            is_state = path.startswith((".params", ".objective_state"))
            is_state |= any(name in path for name in (".mu", ".nu", ".v", ".trace"))
            if is_state and is_skipped:
                np.testing.assert_array_equal(leaf, after[path], err_msg=path)
        changed = any((x != after[p]).any() for p, x in before.items() if "param" in p)
        assert changed != is_skipped
        assert after[".step"] == before[".step"] + 1
    for path, leaf in restore(config, tmp_path).items():
        assert np.isfinite(leaf).all(), path


def test_schedules_count_skipped_steps_and_the_log_shows_them(speech, tmp_path, capsys):
    changes = {"optim__max_skips": 3, "train__eval_every": 4}
    config = make_config(speech, "clm", **changes)
    with poison("clm", {4: NAN, 5: INF, 8: NAN}):
        train(config, tmp_path)
    state = restore(config, tmp_path)
    counts = {path: int(x) for path, x in state.items() if path.endswith("count")}
    assert sorted(counts.values()) == [9, 12]  # Adam's, the schedule's
    assert state[".skips.total"] == 3 and state[".skips.in_a_row"] == 0
    lines = [line for line in read_metrics(tmp_path) if "lr" in line]
    numbers = {line["step"]: line.get("skipped_updates", 0) for line in lines}
    assert numbers == {2: 0, 4: 0, 6: 2, 8: 2, 10: 3, 12: 3}
    # A call of which one update was applied has its loss; one without any shows why.
    losses = {line["step"]: line["loss"] for line in lines}
    assert [step for step, loss in losses.items() if not np.isfinite(loss)] == [6]
    err = capsys.readouterr().err
    assert "step 5: update skipped, loss nan, gradient norm nan" in err
    assert err.count("update skipped") == 3
    assert "step 9: update skipped" in (tmp_path / "run.log").read_text()


@pytest.mark.slow
def test_a_stopped_run_with_skipped_updates_ends_the_same(
    speech, tmp_path, monkeypatch
):
    config = make_config(speech, "clm", optim__max_skips=4)
    with poison("clm", {5: NAN, 6: NAN, 7: NAN}):  # a stop in the middle of them
        train(config, tmp_path / "whole")
        with monkeypatch.context() as patch:
            patch.setattr(loop, "SignalWatch", stop_after(2))
            with pytest.raises(Stopped):
                train(config, tmp_path / "parts")
        stopped = restore(config, tmp_path / "parts")
        assert stopped[".step"] == 6 and stopped[".skips.in_a_row"] == 1
        result = train(config, tmp_path / "parts")
    assert result["skipped_updates"] == 3
    assert_same(*(restore(config, tmp_path / name) for name in ("whole", "parts")))
    assert read_log(tmp_path / "whole") == read_log(tmp_path / "parts")


@pytest.mark.parametrize("objective", slow_but(("clm",), CORE))
def test_too_many_in_a_row_end_the_run_with_its_last_good_checkpoint(
    objective, speech, tmp_path
):
    config = make_config(speech, objective, optim__max_skips=3)
    factors = {5: NAN} | dict.fromkeys(range(7, 12), INF)
    with poison(objective, factors):
        with pytest.raises(DivergedError, match="3 updates in a row .* step 8 is kept"):
            train(config, tmp_path)
        with pytest.raises(DivergedError, match="has diverged; remove"):
            train(config, tmp_path)
    record = json.loads((tmp_path / "diverged.json").read_text())
    assert record["diverged_at"] == 8
    assert not (tmp_path / "result.json").exists()
    with Checkpointer(tmp_path / "checkpoints") as checkpointer:
        assert checkpointer.steps() == [4, 8]
    state = restore(config, tmp_path)
    assert all(np.isfinite(x).all() for x in state.values())
    assert state[".skips.total"] == 2 and state[".skips.in_a_row"] == 1


def test_a_run_that_skips_all_of_its_updates_has_diverged(speech, tmp_path):
    config = make_config(speech, "clm", optim__max_skips=100, train__steps=4)
    with poison("clm", dict.fromkeys(range(4), NAN)):
        with pytest.raises(DivergedError, match="4 updates in a row .* at step 1 "):
            train(config, tmp_path)
    assert not (tmp_path / "checkpoints" / "4").exists()


def test_a_spike_is_skipped(speech, tmp_path, monkeypatch):
    monkeypatch.setattr(skips, "MIN_NORMS", 4)
    changes = {"optim__max_skips": 2, "optim__spike_deviations": 8.0}
    config = make_config(speech, "clm", **changes)
    with poison("clm", {6: 1e4, 9: 1e4}):
        result = train(config, tmp_path)
    assert result["skipped_updates"] == 2
    state = restore(config, tmp_path)
    assert state[".skips.num_norms"] == 10 and (state[".skips.norms"] > 0).sum() == 10


REWIND = {
    "optim__max_skips": 2,
    "train__rewind": (3, 7),
    "train__steps": 16,
    "train__checkpoint_every": 2,
    "train__keep_checkpoints": 3,
    "model__dropout": 0.1,
}


@pytest.mark.parametrize(
    "objective, changes",
    [
        ("clm", {}),
        slow("mlm", {"train__length_schedule": ((0.5, 2),)}),
        slow("span_corruption", {"train__batch_schedule": ((0.75, 0.5),)}),
        slow("electra", {"train__backend": "pmap", "optim__ema_decay": 0.9}),
    ],
)
def test_a_run_rewinds_skips_the_rows_and_is_replayed_bit_for_bit(
    objective, changes, speech, tmp_path, monkeypatch, capsys
):
    config = make_config(speech, objective, **REWIND | changes)
    bad = {9: NAN, 10: INF, 20: NAN, 21: NAN}  # batches
    with poison(objective, bad, by="batch"):
        result = train(config, tmp_path / "whole")
        # Update 9 is bad; from 3 before it, 7 batches are skipped: step 6 reads 13.
        # Then step 13 reads batch 20, and step 10 read 17.
        assert result["skipped_batches"] == [[6, 13], [17, 24]]
        assert result["steps"] == 16 and "skipped_updates" not in result
        out = capsys.readouterr()
        assert "going back at least 3 steps, and skipping 7 batches" in out.err
        assert "resuming from step 6" in out.out and "resuming from step 10" in out.out
        whole = restore(config, tmp_path / "whole")
        ranges = unpad_ranges(whole[".skipped_batches"])
        assert ranges == ((6, 13), (17, 24))
        lines = [line for line in read_log(tmp_path / "whole") if "lr" in line]
        assert [line["step"] for line in lines] == list(range(2, 17, 2))
        numbers = [line.get("skipped_batches", 0) for line in lines]
        assert numbers == [0, 0, 0, 7, 7, 14, 14, 14]
        # Stopped after the first rewind, before it, and in the repeated steps.
        for calls in (2, 7):
            folder = tmp_path / f"parts{calls}"
            with monkeypatch.context() as patch:
                patch.setattr(loop, "SignalWatch", stop_after(calls))
                with pytest.raises(Stopped):
                    train(config, folder)
            train(config, folder)
            assert_same(whole, restore(config, folder))
            assert read_log(folder) == read_log(tmp_path / "whole")
    # From the start with the same list.
    replay = make_config(
        speech, objective, **REWIND | changes | {"train__skip_batches": ranges}
    )
    with poison(objective, bad, by="batch"):
        again = train(replay, tmp_path / "replay")
    assert again["skipped_batches"] == result["skipped_batches"]
    assert again["metrics"] == result["metrics"]
    assert_same(whole, restore(replay, tmp_path / "replay"))


@pytest.mark.parametrize("place", [slow("whole"), "resumed"])
def test_speed_is_measured_from_where_a_run_went_back_or_resumed(
    place, speech, tmp_path, monkeypatch
):
    """Not from a later step, whose time and tokens were given up."""
    config = make_config(speech, "clm", **REWIND)
    starts, open_log = [], RunLog.open

    def note(log, step):
        starts.append((step, log.watch.seconds))
        return open_log(log, step)

    monkeypatch.setattr(RunLog, "open", note)
    with poison("clm", {9: NAN, 10: INF}, by="batch"):
        if place == "resumed":
            with monkeypatch.context() as patch:
                patch.setattr(loop, "SignalWatch", stop_after(7))
                with pytest.raises(Stopped):
                    train(config, tmp_path)
        train(config, tmp_path)
    assert [step for step, _ in starts][:2] == [0, 6]
    assert len(starts) == {"whole": 2, "resumed": 3}[place]
    per_step = 8 * config.data.row_length
    lines = [line for line in read_metrics(tmp_path) if "lr" in line]
    for before, line in itertools.pairwise([{"step": 0, "seconds": 0.0}, *lines]):
        last = max(
            (before["step"], before["seconds"]),
            *((step, at) for step, at in starts if before["step"] >= step),
            key=lambda each: each[1],
        )
        rate = per_step * (line["step"] - last[0]) / (line["seconds"] - last[1])
        assert line["tokens_per_second"] == pytest.approx(rate) and rate > 0


@pytest.mark.slow
def test_a_rewind_without_an_early_checkpoint_goes_back_to_the_start(speech, tmp_path):
    changes = {"train__checkpoint_every": 0, "train__rewind": (3, 4)}
    config = make_config(speech, "clm", **changes)
    with poison("clm", {2: NAN}, by="batch"):
        result = train(config, tmp_path / "run")
    assert result["skipped_batches"] == [[0, 4]]
    replay = changes | {"train__skip_batches": ((0, 4),)}
    replayed = make_config(speech, "clm", **replay)
    with poison("clm", {}):
        again = train(replayed, tmp_path / "replay")
    assert again["metrics"] == result["metrics"]
    states = (
        restore(c, tmp_path / n) for c, n in [(config, "run"), (replayed, "replay")]
    )
    assert_same(*states)


def test_rows_that_are_never_good_end_the_run(speech, tmp_path, monkeypatch):
    monkeypatch.setattr(rewind, "MAX_RANGES", 2)
    config = make_config(speech, "clm", train__rewind=(1, 2))
    with poison("clm", dict.fromkeys(range(6, 12), NAN)):
        with pytest.raises(DivergedError, match="the loss is nan at step 7 "):
            train(config, tmp_path)
    record = json.loads((tmp_path / "diverged.json").read_text())
    assert record["skipped_batches"] == [[5, 7], [7, 9]]


@pytest.mark.parametrize(
    "flag, message",
    [
        ("optim.max_skips=-1", "optim.max_skips=-1: must be at least 0"),
        ("optim.spike_deviations=6", "must be 0 with optim.max_skips=0"),
        ("optim.spike_deviations=nan", "must be at least 0, finite in float32"),
        ("train.rewind=(5,5)", "train.rewind=(5, 5): must be (), or (steps, batches)"),
        ("train.rewind=(5,)", "train.rewind=(5,): must be (), or (steps, batches)"),
        ("train.skip_batches=((3,2),)", "first below end"),
        ("train.skip_batches=(3,)", "first below end"),
    ],
)
def test_settings_that_cannot_be_are_refused(flag, message, tmp_path, capsys):
    flags = ["--config", "quickstart:clm", f"--config.{flag}"]
    assert main(["train", *flags, "--workdir", str(tmp_path / "run")]) == 2
    error = capsys.readouterr().err
    assert message in error and len(error.splitlines()) == 1
    assert not (tmp_path / "run").exists()


def test_divergence_has_an_exit_code_of_its_own(speech, tmp_path, capsys):
    changes = ["model.num_layers=1", "model.d_model=16", "model.d_ff=32"]
    changes += [
        "model.num_heads=2",
        "optim.lr=1e25",
        "optim.schedule=constant",
        "train.steps=30",
    ]
    changes += ["train.steps_per_call=2", "data.row_length=24", "train.batch_size=8"]
    flags = ["--config", "quickstart:clm", f"--config.data.path={speech}"]
    flags += [f"--config.{change}" for change in (*changes, "optim.name=adamw")]
    flags += ["--config.train.eval_every=0", "--config.eval.num_choices=0"]
    flags += ["--config.optim.warmup_steps=0"]
    for _ in range(2):  # the second time it is not trained again
        assert main(["train", *flags, "--workdir", str(tmp_path / "run")]) == 3
        assert "the loss is " in capsys.readouterr().err
