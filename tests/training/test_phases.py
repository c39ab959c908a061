"""A run whose objective changes on the way: phases, their logs, resuming in each."""

import jax
import numpy as np
import pytest
from stops import check_stopped_run, run
from tiny import make_config, prepare, slow_but, write_stored

from jaxpt.cli.main import main
from jaxpt.learn.state import make_state
from jaxpt.runs.data import make_feed
from jaxpt.runs.metrics_file import read_metrics
from jaxpt.runs.train_calls import make_train_call

# Of 12 steps, in calls of 2: causal to step 4, then masked to step 8, then a mixture.
PHASES = {
    "clm_mlm__mlm_schedule": ((1 / 3, 0.0), (2 / 3, 1.0), (1.0, 0.5)),
    "clm_mlm__mlm_share": 0.25,
    "model__dropout": 0.1,
}


@pytest.fixture(scope="module")
def whole(tmp_path_factory, speech):
    """The folder of the run, its task and its result."""
    folder = tmp_path_factory.mktemp("phases")
    return folder, *run(make_config(speech, "clm_mlm", **PHASES), folder)


def test_each_phase_logs_the_loss_it_trains_on(whole):
    """A kind of row that is not there adds nothing to the loss."""
    folder, _, result = whole
    logged = {row["step"]: row for row in read_metrics(folder) if "grad_norm" in row}
    assert sorted(logged) == [2, 4, 6, 8, 10, 12]
    for step, row in logged.items():
        if step > 8:
            assert {"clm_loss", "mlm_loss"} <= set(row)
            continue
        there, absent = ("clm_loss", "mlm_loss")[:: 1 if step <= 4 else -1]
        assert absent not in row
        assert row["loss"] == pytest.approx(row[there], rel=1e-5)
    # In evaluation both kinds are there, at any time of the run.
    metrics = result["metrics"]
    causal, masked = metrics["valid_clm_loss"], metrics["valid_mlm_loss"]
    expected = 0.75 * causal + 0.25 * masked
    assert metrics["valid_loss"] == pytest.approx(expected, rel=1e-5)


@pytest.mark.parametrize("num_calls", slow_but((2,), range(5)))
def test_a_run_that_stops_in_any_phase_ends_the_same(
    num_calls, whole, tmp_path, speech, monkeypatch
):
    """Within the first, at the switch, within the second, at the next, in the last."""
    config = make_config(speech, "clm_mlm", **PHASES)
    check_stopped_run(config, num_calls, whole, tmp_path, monkeypatch)


@pytest.mark.parametrize("seconds", [0.0, 5.0])
def test_phases_follow_the_progress_of_the_budget(seconds, speech):
    """With a budget of seconds, the schedule's steps and not the run's own."""
    config = make_config(speech, "clm_mlm", **PHASES, train__seconds=seconds)
    task, _, corpora = prepare(config)
    feed = make_feed(task, corpora["train"])
    stack = jax.tree.map(lambda *rows: np.stack(rows), *(feed[i] for i in range(4)))
    state = make_state(
        jax.jit(task.model.init_params)(jax.random.key(0)), task.optimizer
    )
    begin_and_end = (2, 10) if seconds else ()
    call = jax.jit(make_train_call(task))
    _, metrics = call(state, stack, 0, *begin_and_end)
    masked = np.asarray(metrics["mlm_loss"][1]) > 0
    # Schedule steps 2, 4, 6 and 8 of 12; else steps 0 to 3.
    assert masked.tolist() == ([False, True, True, True] if seconds else 4 * [False])
    causal = np.asarray(metrics["clm_loss"][1]) > 0
    assert causal.tolist() == ([True, False, False, True] if seconds else 4 * [True])


def test_the_schedule_is_set_by_a_flag(tmp_path, speech):
    path = write_stored(tmp_path / "config.json", make_config(speech, "clm_mlm"))
    argv = ["train", f"--config={path}", "--dry_run"]
    assert main([*argv, "--config.clm_mlm.mlm_schedule=((0.5,0),(1,1))"]) == 0
