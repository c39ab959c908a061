"""The encoder of latent prediction in a run: stored, sharded, resumed, collapsed."""

import json
from pathlib import Path

import jax
import numpy as np
import pytest
from stops import stop_after
from tiny import make_config, prepare, run_on_devices

from jaxpt.errors import DivergedError
from jaxpt.objectives.latent_prediction import pick_encoder
from jaxpt.runs.checkpoint import Checkpointer
from jaxpt.runs.initial_state import make_start
from jaxpt.runs.metrics_file import read_metrics
from jaxpt.runs.program import Program
from jaxpt.runs.signals import Stopped
from jaxpt.training import loop

CHANGES = {
    "latent_prediction__horizon": 4,
    "latent_prediction__decay": 0.8,
    "model__dropout": 0.1,
    "optim__lr": 1e-2,
    "train__steps": 8,
    "train__keep_checkpoints": 9,
}
check_equal = np.testing.assert_array_equal


def run(speech, workdir, **more):
    config = make_config(speech, "latent_prediction", **(CHANGES | more))
    task, tokenizer, corpora = prepare(config)
    return task, loop.train(task, tokenizer, corpora, workdir)


def state_at(task, folder, step=None):
    with Checkpointer(folder / "checkpoints") as checkpointer:
        state, _ = checkpointer.restore(Program(task).abstract_state(), step)
    return state


@pytest.fixture(scope="module")
def whole(tmp_path_factory, speech):
    """The folder of the run, its task and its result."""
    folder = tmp_path_factory.mktemp("whole")
    return folder, *run(speech, folder)


def test_a_run_that_stops_ends_the_same(whole, tmp_path, speech, monkeypatch):
    folder, task, result = whole
    with monkeypatch.context() as patch:
        patch.setattr(loop, "SignalWatch", stop_after(1))
        with pytest.raises(Stopped):
            run(speech, tmp_path)
    _, resumed = run(speech, tmp_path)
    assert resumed["metrics"] == result["metrics"]
    last, expected = state_at(task, tmp_path), state_at(task, folder)
    jax.tree.map(check_equal, last, expected)
    encoder = expected.objective_state.encoder
    gap = jax.tree.map(
        lambda a, b: float(np.abs(a - b).max()), encoder, pick_encoder(expected.params)
    )
    assert max(jax.tree.leaves(gap)) > 1e-3  # it is behind the parameters
    logged = [line for line in read_metrics(folder) if "target_rank" in line]
    assert len(logged) == 4 and 0 < logged[0]["target_rank"] < 1
    valid = [line for line in read_metrics(folder) if "valid_target_std" in line]
    assert valid and valid[-1]["valid_latent_loss"] > 0


def test_a_run_from_another_begins_with_its_encoder(whole, speech):
    folder, task, _ = whole
    config = make_config(
        speech, "latent_prediction", **CHANGES, train__init_from=str(folder)
    )
    program = Program(prepare(config)[0])
    start = make_start(program, program.task.plan.train)
    jax.tree.map(check_equal, start.params, state_at(task, folder).params)
    encoder = start.objective_state.encoder
    jax.tree.map(check_equal, encoder, pick_encoder(start.params))
    pairs = zip(
        jax.tree.leaves(encoder),
        jax.tree.leaves(pick_encoder(start.params)),
        strict=True,
    )
    for a, b in pairs:  # both are donated
        assert a.unsafe_buffer_pointer() != b.unsafe_buffer_pointer()


def test_a_collapse_ends_the_run_with_one_line(speech, tmp_path):
    with pytest.raises(DivergedError) as error:
        run(speech, tmp_path, latent_prediction__min_rank=0.999)
    (line,) = str(error.value).splitlines()
    assert line.startswith("target_rank is 0.")
    assert ", below latent_prediction.min_rank=0.999 at step 1 (optim.lr" in line
    record = json.loads((tmp_path / "diverged.json").read_text())
    assert "target_rank" in json.dumps(record)


ON_DEVICES = """
import json
import jax, numpy as np
from tiny import make_config, prepare
from jaxpt.runs.data import make_feed
from jaxpt.runs.program import Program

CASES = {
    "one": (1, {}),
    "fsdp": (8, {"train__fsdp": 8}),
    "pmap": (8, {"train__backend": "pmap"}),
}
start, results = None, {}
for name, (num, changes) in CASES.items():
    config = make_config(
        SPEECH, "latent_prediction", latent_prediction__horizon=4, optim__lr=1e-2,
        latent_prediction__decay=0.8, train__batch_size=16, **changes
    )
    task, _, corpora = prepare(config)
    program = Program(task, jax.devices()[:num])
    start = start or jax.device_get(program.init_state(3))
    places = jax.tree.map(lambda x: x.sharding, program.abstract_state())
    state, feed = jax.device_put(start, places), make_feed(task, corpora["train"])
    kept, params = state.objective_state.encoder, state.params
    shares = [
        [x.addressable_shards[0].data.size / x.size for x in jax.tree.leaves(tree)]
        for tree in (kept, {k: params[k] for k in kept})
    ]
    state, losses = program.run_form(state), []
    for step in range(0, 4, 2):
        old = jax.tree.leaves(state.objective_state)
        stack = program.place(feed.stack(step, 2))
        state, sums = program.train_call(state, stack, 3)
        losses += [
            [float(x) for x in sums[k][0]] for k in sorted(sums) if k != "skips"
        ]
    state = program.save_form(state)
    flat = lambda tree: np.concatenate(
        [np.asarray(x, np.float64).ravel() for x in jax.tree.leaves(tree)]
    ).tolist()
    results[name] = {
        "shares": shares, "losses": losses, "encoder": flat(state.objective_state),
        "is_donated": all(x.is_deleted() for x in old),
    }
print(json.dumps(results))
"""


def test_eight_devices_are_as_one(speech):
    folder = str(Path(__file__).resolve().parents[1])
    names = f"import sys\nsys.path.insert(0, {folder!r})\nSPEECH = {str(speech)!r}\n"
    results = json.loads(run_on_devices(8, names + ON_DEVICES).splitlines()[-1])
    one = results["one"]
    assert len(one["encoder"]) > 1000
    for name in ("fsdp", "pmap"):
        found = results[name]
        np.testing.assert_allclose(found["losses"], one["losses"], rtol=1e-4, atol=1e-4)
        np.testing.assert_allclose(found["encoder"], one["encoder"], atol=2e-4)
        assert found["is_donated"]
        of_encoder, of_params = found["shares"]
        assert of_encoder == of_params
        assert (min(of_encoder) == 1 / 8) == (name == "fsdp")
