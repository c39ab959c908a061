"""Saved is saved: exact, or refused; a damaged step is passed over, never read."""

import asyncio
import dataclasses
import gc
import json
import os
import random
import shutil
import signal
import subprocess
import sys
import textwrap
import threading
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from orbax.checkpoint._src.futures import future as futures
from tiny import many_devices, slow_but

from jaxpt import interrupts
from jaxpt.errors import UserError
from jaxpt.runs import checkpoint, manifest
from jaxpt.runs.checkpoint import Checkpointer

ROOT = Path(__file__).resolve().parents[2]


@jax.tree_util.register_dataclass
@dataclasses.dataclass
class State:
    params: dict
    opt_state: tuple
    step: jax.Array


def make_state(seed=0):
    rng = np.random.default_rng(seed)
    params = {
        "embed": {"table": jnp.asarray(rng.standard_normal((50, 8)), jnp.float32)},
        "dense": {"kernel": jnp.asarray(rng.standard_normal((8, 4)), jnp.bfloat16)},
        "scale": jnp.asarray(rng.standard_normal(()), jnp.float32),
    }
    optimizer = optax.chain(optax.clip_by_global_norm(1.0), optax.adamw(1e-3))
    return State(params, optimizer.init(params), jnp.asarray(seed, jnp.int32))


def abstract(tree):
    return jax.tree.map(lambda x: jax.ShapeDtypeStruct(x.shape, x.dtype), tree)


def assert_identical(actual, expected):
    assert jax.tree.structure(actual) == jax.tree.structure(expected)
    for a, e in zip(jax.tree.leaves(actual), jax.tree.leaves(expected), strict=True):
        assert isinstance(a, jax.Array)
        assert a.dtype == e.dtype and a.shape == e.shape
        assert np.asarray(a).tobytes() == np.asarray(e).tobytes()


def snapshot(directory):
    return sorted((str(p), p.lstat().st_mtime_ns) for p in directory.rglob("*"))


def run_python(code, *args, **kwargs):
    return subprocess.Popen(
        [sys.executable, "-c", textwrap.dedent(code), *map(str, args)],
        env={**os.environ, "PYTHONPATH": str(ROOT), "JAX_PLATFORMS": "cpu"}
        | kwargs.pop("env", {}),
        stdout=subprocess.PIPE,
        text=True,
        **kwargs,
    )


@pytest.fixture(scope="module")
def two_steps(tmp_path_factory):
    """A directory with steps 1 and 2, to copy before damaging it."""
    directory = tmp_path_factory.mktemp("saved") / "checkpoints"
    with Checkpointer(directory) as checkpointer:
        checkpointer.save(1, make_state(1))
        checkpointer.save(2, make_state(2))
    return directory


@pytest.fixture
def saved(two_steps, tmp_path):
    return Path(shutil.copytree(two_steps, tmp_path / "checkpoints"))


def files_of(directory, step):
    return sorted(p for p in (directory / str(step)).rglob("*") if p.is_file())


def assert_falls_back(directory, file):
    """Step 1 is read instead of 2, with one warning line naming step and file."""
    lines = []
    with Checkpointer(directory, warn=lines.append) as checkpointer:
        state, step = checkpointer.restore(abstract(make_state()))
    assert step == 1
    assert_identical(state, make_state(1))
    assert len(lines) == 1 and "\n" not in lines[0]
    assert "step 2" in lines[0] and str(file) in lines[0]


# Round trip.


def test_round_trip_is_bit_exact(tmp_path):
    values = {
        "f32": jnp.asarray([0.1, -0.0, jnp.inf, jnp.nan, 1e-45], jnp.float32),
        "bf16": jnp.asarray([[1 / 3, -2.0]], jnp.bfloat16),
        "i32": jnp.asarray([-(2**31), 2**31 - 1], jnp.int32),
        "u32": jnp.asarray([0, 2**32 - 1], jnp.uint32),
        "nested": [({"none": None}, jnp.arange(3)), jnp.ones((), jnp.bool_)],
    }
    state = {"values": values, "opt": optax.adam(1e-3).init(make_state().params)}
    with Checkpointer(tmp_path / "c") as checkpointer:
        checkpointer.save(7, state)
        restored, step = checkpointer.restore(abstract(state))
    assert step == 7
    assert_identical(restored, state)


def test_dataclass_state_in_a_new_checkpointer(saved):
    with Checkpointer(saved) as checkpointer:
        assert checkpointer.steps() == [1, 2]
        state, step = checkpointer.restore(make_state(0))
        assert step == 2
        assert_identical(state, make_state(2))
        state, step = checkpointer.restore(make_state(0), step=1)
        assert step == 1
        assert_identical(state, make_state(1))


@settings(max_examples=15, deadline=None)
@given(
    st.recursive(
        st.tuples(
            st.sampled_from(["float32", "bfloat16", "int32", "uint32"]),
            st.lists(st.integers(1, 3), max_size=3),
            st.integers(0, 2**32 - 1),
        ).map(lambda leaf: ("leaf", *leaf)),
        lambda inner: st.one_of(
            st.lists(inner, min_size=1, max_size=3),
            st.dictionaries(st.text("ab.", min_size=1), inner, min_size=1, max_size=3),
        ),
        max_leaves=6,
    ).map(lambda tree: {"state": tree})
)
def test_any_tree_comes_back(tmp_path_factory, spec):
    def fill(node):
        if isinstance(node, dict):
            return {key: fill(value) for key, value in node.items()}
        if isinstance(node, list):
            return [fill(value) for value in node]
        _, dtype, shape, seed = node
        bits = np.random.default_rng(seed).integers(0, 1000, shape)
        return jnp.asarray(bits, dtype)

    state = fill(spec)
    with Checkpointer(tmp_path_factory.mktemp("tree")) as checkpointer:
        checkpointer.save(0, state)
        restored, _ = checkpointer.restore(abstract(state))
    assert_identical(restored, state)


def test_only_params_are_read(saved):
    # The optimizer's files may be anything then, but the checksums still hold.
    params = abstract(make_state().params)
    with Checkpointer(saved) as checkpointer:
        restored, step = checkpointer.restore(params, under="params")
        assert step == 2
        assert_identical(restored, make_state(2).params)
        with pytest.raises(UserError, match="params/scale is stored as float32"):
            del params["scale"]
            checkpointer.restore(params, under="params")


def test_donated_steps_after_an_async_save(tmp_path):
    state = {"w": jnp.arange(500_000, dtype=jnp.float32), "n": jnp.int32(0)}
    before = jax.tree.map(lambda x: np.array(x, copy=True), state)

    @lambda f: jax.jit(f, donate_argnums=0)
    def train_step(state):
        return {"w": state["w"] * 1.5 + 1, "n": state["n"] + 1}

    with Checkpointer(tmp_path / "c") as checkpointer:
        checkpointer.save(0, state)
        for _ in range(40):
            state = train_step(state)
        jax.block_until_ready(state)
        restored, _ = checkpointer.restore(abstract(state))
        assert_identical(restored, before)
        # What was restored may itself be donated, and leaves the files as they are.
        for _ in range(40):
            restored = train_step(restored)
        assert int(restored["n"]) == 40
        assert_identical(checkpointer.restore(abstract(state))[0], before)


def test_saved_on_8_devices_read_on_1(tmp_path):
    code = """
        import sys
        import jax, jax.numpy as jnp
        from jax.sharding import Mesh, NamedSharding, PartitionSpec
        from jaxpt.runs.checkpoint import Checkpointer

        mesh = Mesh(jax.devices(), ("data",))
        assert mesh.size == 8
        def place(x, *axes):
            return jax.device_put(x, NamedSharding(mesh, PartitionSpec(*axes)))
        state = {"w": place(jnp.arange(16.0), "data"), "b": place(jnp.ones(3))}
        with Checkpointer(sys.argv[1]) as checkpointer:
            checkpointer.save(3, state)
            again, _ = checkpointer.restore(state)
            assert again["w"].sharding == state["w"].sharding
    """
    assert run_python(code, tmp_path / "c", env=many_devices(8)).wait(60) == 0
    template = {"w": jnp.zeros(16), "b": jnp.zeros(3)}
    with Checkpointer(tmp_path / "c") as checkpointer:
        state, step = checkpointer.restore(template)
    assert step == 3
    assert_identical(state, {"w": jnp.arange(16.0), "b": jnp.ones(3)})
    assert state["w"].sharding == template["w"].sharding


# Which steps there are.


def test_nothing_is_created_by_reading(tmp_path, saved):
    lines = []
    with Checkpointer(tmp_path / "none", warn=lines.append) as checkpointer:
        assert checkpointer.restore(make_state()) is None
        assert checkpointer.steps() == []
    assert not (tmp_path / "none").exists()
    before = snapshot(saved)
    with Checkpointer(saved, warn=lines.append) as checkpointer:
        checkpointer.restore(make_state())
    assert snapshot(saved) == before
    assert lines == []


def test_keeps_the_newest(tmp_path):
    with Checkpointer(tmp_path, keep=2) as checkpointer:
        for step in [0, 5, 10, 15]:
            checkpointer.save(step, make_state(step))
        checkpointer.wait()
        assert checkpointer.steps() == [10, 15]
    names = ["10", "10.manifest.json", "15", "15.manifest.json"]
    assert sorted(p.name for p in tmp_path.iterdir()) == names


def test_no_manifest_no_step(saved):
    (saved / "2.manifest.json").unlink()
    lines = []
    with Checkpointer(saved, warn=lines.append) as checkpointer:
        assert checkpointer.steps() == [1]
        assert checkpointer.restore(make_state())[1] == 1
        assert lines == []
        (saved / "1.manifest.json").unlink()
        assert checkpointer.restore(make_state()) is None
        assert len(lines) == 1 and "no finished save" in lines[0]
        (saved / f".5.manifest.json.{'0' * 16}.partial").write_text("killed here")
        checkpointer.save(2, make_state(2))
        assert_identical(checkpointer.restore(make_state())[0], make_state(2))
    # With a good one on disk, the unfinished ones are gone.
    assert sorted(p.name for p in saved.iterdir()) == ["2", "2.manifest.json"]


def test_a_copy_of_a_step_under_another_number_is_damaged(saved):
    """A run must not go on from values of a step that it has not reached."""
    shutil.copytree(saved / "2", saved / "7")
    shutil.copy(saved / "2.manifest.json", saved / "7.manifest.json")
    with pytest.raises(manifest.Damaged, match="7.manifest.json was altered"):
        manifest.verify(saved, 7)
    lines = []
    with Checkpointer(saved, warn=lines.append) as checkpointer:
        state, step = checkpointer.restore(abstract(make_state()))
    assert step == 2 and len(lines) == 1 and "step 7" in lines[0]
    assert_identical(state, make_state(2))


def test_other_directories_are_no_steps(saved, tmp_path):
    outside = tmp_path / "outside"
    shutil.copytree(saved / "2", outside)
    (saved / "3").mkdir()
    (saved / "4").mkdir()
    (saved / "4" / "notes.txt").write_text("mine")
    (saved / "5").symlink_to(outside)
    (saved / "6.manifest.json").symlink_to(saved / "2.manifest.json")
    (saved / "007").mkdir()
    (saved / "best").mkdir()
    (saved / "8.orbax-checkpoint-tmp").mkdir()
    (saved / "9").write_text("a file")
    lines = []
    with Checkpointer(saved, warn=lines.append) as checkpointer:
        assert checkpointer.steps() == [1, 2]
        assert checkpointer.restore(make_state())[1] == 2
        checkpointer.save(3, make_state(3))  # an empty directory is no obstacle
        for step in [4, 5, 9]:
            with pytest.raises(UserError, match=f"/{step} is in the way"):
                checkpointer.save(step, make_state(step))
        checkpointer.wait()
        assert checkpointer.steps() == [2, 3]
    assert lines == []
    assert (saved / "4" / "notes.txt").read_text() == "mine"
    assert files_of(outside, ".")
    assert not (saved / "8.orbax-checkpoint-tmp").exists()


def test_nothing_is_written_through_a_link(saved, tmp_path):
    victim, folder = tmp_path / "victim", tmp_path / "folder"
    victim.write_text("dear diary")
    folder.mkdir()
    (folder / "notes.txt").write_text("mine")
    (saved / "3.manifest.json").symlink_to(victim)
    (saved / "3.manifest.json.tmp").symlink_to(victim)
    (saved / "4.orbax-checkpoint-tmp").symlink_to(folder)
    with Checkpointer(saved) as checkpointer:
        checkpointer.save(3, make_state(3))
        checkpointer.wait()
        assert checkpointer.steps()[-1] == 3
        with pytest.raises(UserError, match="/4.orbax-checkpoint-tmp is in the way"):
            checkpointer.save(4, make_state(4))
            checkpointer.wait()
    assert victim.read_text() == "dear diary"
    assert os.listdir(folder) == ["notes.txt"]
    assert (folder / "notes.txt").read_text() == "mine"


def test_a_manifest_that_names_a_file_elsewhere(saved, tmp_path):
    """Intact as it is: no file is read, removed or written by its names."""
    (saved / "victim").write_text("dear diary")
    path = saved / "2.manifest.json"
    body = json.loads(path.read_text())
    body.pop("crc32")
    for name in ("../victim", str(saved / "victim")):
        files = body["files"] | {name: manifest._measure(saved / "victim")}
        output = body | {"files": files}
        path.write_text(json.dumps({"crc32": manifest._crc(output), **output}))
        assert_falls_back(saved, "victim is missing")
    with Checkpointer(saved) as checkpointer:
        checkpointer.save(2, make_state(2))
    assert (saved / "victim").read_text() == "dear diary"


def test_a_saved_step_is_left_alone(saved):
    before = snapshot(saved)
    with Checkpointer(saved) as checkpointer:
        checkpointer.save(2, make_state(99))
    assert snapshot(saved) == before


def test_going_back_gives_up_the_later_steps(saved):
    with Checkpointer(saved) as checkpointer:
        checkpointer.restore(make_state(), step=1)
        checkpointer.save(2, make_state(99))
        state, step = checkpointer.restore(make_state())
        assert step == 2
        assert_identical(state, make_state(99))
    with Checkpointer(saved) as checkpointer:
        checkpointer.save(10, make_state(10))
        checkpointer.restore(make_state(), step=2)
        checkpointer.save(3, make_state(3))
        checkpointer.wait()
        assert checkpointer.steps() == [2, 3]


def test_bad_arguments(tmp_path, saved):
    with pytest.raises(UserError, match="keep: 0; must be at least 1"):
        Checkpointer(tmp_path, keep=0)
    with pytest.raises(UserError, match="gs://x/y; must be a local"):
        Checkpointer("gs://x/y")
    (tmp_path / "file").touch()
    with pytest.raises(UserError, match="not a directory"):
        Checkpointer(tmp_path / "file")
    (tmp_path / "link").symlink_to(tmp_path / "nowhere")
    for name, reason in [
        ("file/below", "below: Not a directory"),
        ("link", "step 1 not saved in .*link: .*File exists"),
        ("x" * 300, "File name too long"),
    ]:
        with Checkpointer(tmp_path / name) as checkpointer:
            with pytest.raises(UserError, match=reason):
                checkpointer.save(1, make_state())
    with Checkpointer(saved) as checkpointer:
        with pytest.raises(UserError, match="step: 3 is not saved .* saved: 1, 2"):
            checkpointer.restore(make_state(), step=3)


# Damage.


def truncate(path, rng):
    os.truncate(path, rng.randrange(path.stat().st_size))


def delete(path, rng):
    path.unlink()


def flip_bit(path, rng):
    data = bytearray(path.read_bytes())
    bit = rng.randrange(8 * len(data))
    data[bit // 8] ^= 1 << bit % 8
    path.write_bytes(data)


def append(path, rng):
    with open(path, "ab") as file:
        file.write(b"\0")


def replace_by_link(path, rng):
    root = next(p for p in path.parents if p.name == "2").parent
    moved = root.with_name(f"{root.name}-moved")
    path.rename(moved)
    path.symlink_to(moved)


@pytest.mark.slow_except("truncate")
@pytest.mark.parametrize(
    "damage", [truncate, delete, flip_bit, append, replace_by_link]
)
def test_damage_to_any_file_is_found(two_steps, tmp_path, damage):
    names = [p.relative_to(two_steps) for p in files_of(two_steps, 2)]
    assert len(names) > 5
    for number, name in enumerate(names):
        saved = Path(shutil.copytree(two_steps, tmp_path / str(number)))
        damage(saved / name, random.Random(number))
        assert_falls_back(saved, saved / name)


@pytest.mark.parametrize("damage", [truncate, flip_bit])
@pytest.mark.parametrize("seed", range(8))
def test_damage_to_the_manifest_is_found(saved, damage, seed):
    path = saved / "2.manifest.json"
    damage(path, random.Random(seed))
    assert_falls_back(saved, path)


@pytest.mark.parametrize("text", ["", "[]", "{}", "3", '{"crc32": 0}', "[" * 10**5])
def test_a_manifest_that_is_none(saved, text):
    (saved / "2.manifest.json").write_text(text)
    assert_falls_back(saved, saved / "2.manifest.json")


def test_added_file_and_missing_directory(saved, tmp_path):
    (saved / "2" / "extra").touch()
    assert_falls_back(saved, saved / "2" / "extra")
    (saved / "2" / "extra").unlink()
    (saved / "2").rename(tmp_path / "elsewhere")
    assert_falls_back(saved, f"{saved / '2'} is not a directory")
    (saved / "2").symlink_to(tmp_path / "elsewhere")
    assert_falls_back(saved, f"{saved / '2'} is not a directory")


def test_all_damaged_is_refused(saved):
    for step in [1, 2]:
        delete(files_of(saved, step)[0], None)
    lines = []
    with Checkpointer(saved, warn=lines.append) as checkpointer:
        with pytest.raises(UserError, match="no intact step is left"):
            checkpointer.restore(make_state())
        assert len(lines) == 2
        with pytest.raises(UserError, match="step 2 is damaged"):
            checkpointer.restore(make_state(), step=2)
        assert checkpointer.steps() == [1, 2]  # nothing was removed


def test_saving_over_damaged_steps(saved):
    append(files_of(saved, 2)[0], None)
    lines = []
    with Checkpointer(saved, warn=lines.append) as checkpointer:
        assert checkpointer.restore(make_state())[1] == 1
        checkpointer.save(2, make_state(22))
        checkpointer.save(3, make_state(33))
        assert_identical(checkpointer.restore(make_state())[0], make_state(33))
        state, _ = checkpointer.restore(make_state(), step=2)
        assert_identical(state, make_state(22))
        assert checkpointer.steps() == [2, 3]
    assert len(lines) == 1


def test_saving_over_a_damaged_step_unread(saved):
    append(files_of(saved, 2)[0], None)
    lines = []
    with Checkpointer(saved, warn=lines.append) as checkpointer:
        checkpointer.save(2, make_state(22))
        assert_identical(checkpointer.restore(make_state())[0], make_state(22))
    assert len(lines) == 1 and "saved again" in lines[0]


# Another tree than the template's.


@pytest.mark.parametrize(
    "change, message",
    [
        (
            lambda p: p["embed"].update(table=jnp.zeros((51, 8))),
            r"embed/table is stored as float32\[50,8\], expected float32\[51,8\]",
        ),
        (
            lambda p: p["dense"].update(kernel=jnp.zeros((8, 4))),
            r"dense/kernel is stored as bfloat16\[8,4\], expected float32\[8,4\]",
        ),
        (
            lambda p: p.update(bias=jnp.zeros(2, jnp.int32)),
            r"params/bias is stored as nothing, expected int32\[2\]",
        ),
        (
            lambda p: p.pop("scale"),
            r"params/scale is stored as float32\[\], expected nothing",
        ),
    ],
)
def test_another_tree_is_refused(saved, change, message):
    template = make_state()
    change(template.params)
    with Checkpointer(saved) as checkpointer:
        with pytest.raises(UserError, match=message):
            checkpointer.restore(template)


# Kills, full disks, threads.

WRITER = """
    import sys
    import jax.numpy as jnp, numpy as np
    from jaxpt.runs.checkpoint import Checkpointer

    def make(step):
        rng = np.random.default_rng(step)
        return {k: jnp.asarray(rng.standard_normal(60_000), "float32") for k in "abcd"}

    with Checkpointer(sys.argv[1], keep=1) as checkpointer:
        found = checkpointer.restore(make(0))
        if found:
            for key, value in make(found[1]).items():
                assert np.array_equal(found[0][key], value)
        step = found[1] if found else -1
        while True:
            step += 1
            checkpointer.save(step, make(step))
            print(step, flush=True)
"""


def kill_and_resume(directory, seed, failures, num_kills):
    rng = random.Random(seed)
    known = -1
    for _ in range(num_kills):
        writer = run_python(WRITER, directory)
        lines = [writer.stdout.readline() for _ in range(2)]  # a save has finished
        time.sleep(rng.uniform(0, 0.3))
        writer.send_signal(signal.SIGKILL)
        lines += writer.communicate()[0].splitlines()
        steps = [int(line) for line in lines if line.strip()]
        # Saving step n waits for n - 1, so that one is sure to be there.
        if not steps or steps[0] < max(known, 0):
            failures.append((directory.name, known, lines))
            return
        known = steps[-1] - 1


@pytest.mark.slow_cases("2")
@pytest.mark.parametrize("num_kills", slow_but((2,), (2, 10)))
def test_kill_at_any_time(num_kills, tmp_path):
    failures = []
    threads = [
        threading.Thread(
            target=kill_and_resume, args=(tmp_path / str(n), n, failures, num_kills)
        )
        for n in range(2)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert failures == []
    template = {k: jax.ShapeDtypeStruct((60_000,), jnp.float32) for k in "abcd"}
    for n in range(2):
        lines = []
        with Checkpointer(tmp_path / str(n), warn=lines.append) as checkpointer:
            state, step = checkpointer.restore(template)
        rng = np.random.default_rng(step)
        for key in "abcd":
            want = rng.standard_normal(60_000).astype(np.float32)
            assert np.array_equal(state[key], want)
        assert lines == []  # a kill leaves unfinished steps, never damaged ones


def test_errors_that_orbax_does_not_await_are_not_logged(tmp_path, caplog):
    def forget_an_error():
        loop = asyncio.new_event_loop()
        loop.create_future().set_exception(OSError("File too large"))
        loop.close()
        gc.collect()

    with Checkpointer(tmp_path / "c"):
        forget_an_error()
    assert caplog.messages == []
    forget_an_error()
    assert len(caplog.messages) == 1 and "never retrieved" in caplog.messages[0]


@pytest.mark.parametrize("when", ["listed", "verified", "read"])
def test_a_step_that_is_removed_while_it_is_read_is_left_for_a_newer_one(
    when, tmp_path, monkeypatch
):
    """The process that trains keeps its newest steps, and knows of no reader."""
    state = {"w": jnp.arange(3.0)}
    newer = {"w": state["w"] + 1}
    with Checkpointer(tmp_path, keep=1) as writer, Checkpointer(tmp_path) as reader:
        reader._warn, warnings = (lambda line: warnings.append(line)), []
        writer.save(1, state)
        writer.wait()

        def go_on(call):
            def called(*args):
                early = call(*args) if when != "listed" else None
                if args[-2 if call == read else -1] == 1:
                    writer.save(2, newer)
                    writer.wait()
                return call(*args) if when == "listed" else early

            return called

        read, verify = reader._read, manifest.verify
        if when == "read":
            monkeypatch.setattr(reader, "_read", go_on(read))
        else:
            monkeypatch.setattr(manifest, "verify", go_on(verify))
        restored, step = reader.restore(abstract(state))
    assert step == 2 and warnings == []
    assert_identical(restored, newer)


def test_a_reader_that_is_always_too_late_is_one_line(tmp_path, monkeypatch, refuses):
    monkeypatch.setattr(checkpoint, "MAX_READS", 2)
    state = {"w": jnp.arange(3.0)}
    with Checkpointer(tmp_path, keep=1) as writer, Checkpointer(tmp_path) as reader:
        writer.save(1, state)
        writer.wait()
        read = reader._read

        def go_on(step, expected):
            writer.save(step + 1, state)
            writer.wait()
            return read(step, expected)

        monkeypatch.setattr(reader, "_read", go_on)
        with refuses("step 2 in", "was removed", "train.keep_checkpoints"):
            reader.restore(abstract(state))
        manifest.remove(tmp_path, 3)


def test_an_error_of_a_step_that_is_there_is_raised(tmp_path, monkeypatch):
    with Checkpointer(tmp_path) as checkpointer:
        checkpointer.save(1, {"w": jnp.arange(3.0)})
        checkpointer.wait()

        def fail(*args):
            raise ZeroDivisionError

        monkeypatch.setattr(checkpointer, "_read", fail)
        with pytest.raises(ZeroDivisionError):
            checkpointer.restore({"w": jnp.zeros(3)})


def test_a_full_disk_is_one_line(tmp_path):
    # A file size limit stands for the full disk: writes fail, directories are made.
    code = """
        import resource, sys, threading
        import jax.numpy as jnp, numpy as np
        from jaxpt import interrupts
        from jaxpt.errors import UserError
        from jaxpt.runs.checkpoint import Checkpointer

        dropped = interrupts.late_callbacks_dropped()  # as in a command
        dropped.__enter__()

        def limit(size):
            hard = resource.getrlimit(resource.RLIMIT_FSIZE)[1]
            resource.setrlimit(resource.RLIMIT_FSIZE, (size, hard))

        rng = np.random.default_rng(0)
        state = {"w": jnp.asarray(rng.standard_normal(100_000), "float32")}
        # Within `with`, Orbax logs none of its errors.
        checkpointer = Checkpointer(sys.argv[1], keep=1).__enter__()
        checkpointer.save(1, state)
        checkpointer.wait()
        for step, size, finish in [
            (2, 10_000, checkpointer.wait),
            (3, 10_000, lambda: checkpointer.save(4, state)),
            (4, 10_000, checkpointer.close),
            (5, 50, checkpointer.wait),
        ]:
            limit(size)
            try:
                checkpointer.save(step, state)
                finish()
                print("no error")
            except UserError as error:
                print(error)
            limit(resource.RLIM_INFINITY)
            assert checkpointer.restore(state)[1] == 1
        checkpointer.save(6, state)
        checkpointer.__exit__(None, None, None)
        print(checkpointer.steps(), threading.active_count())
        dropped.__exit__(None, None, None)
    """
    process = run_python(code, tmp_path / "c", stderr=subprocess.PIPE)
    out, others = process.communicate(timeout=60)
    lines = out.splitlines()
    assert process.returncode == 0 and not others, lines + [others]
    for step, line in zip([2, 3, 4, 5], lines, strict=False):
        start = f"checkpoint: step {step} not saved in {tmp_path / 'c'}"
        assert line.startswith(start), lines
        assert "File too large" in line
    assert lines[4:] == ["[6] 1"]
    names = sorted(p.name for p in (tmp_path / "c").iterdir())
    assert names == ["6", "6.manifest.json"]


def test_a_save_that_times_out_is_one_line(
    tmp_path, monkeypatch, refuses, caplog, recwarn
):
    """Orbax has limits of time by a clock that may jump, and leaves its threads."""

    def time_out(start, limit):
        raise TimeoutError

    def time_out_late(*args, **limits):
        time.sleep(0.3)
        raise TimeoutError("later")

    monkeypatch.setattr(futures, "get_remaining_time", time_out)
    monkeypatch.setattr(futures, "wait_for_signals", time_out_late)
    with interrupts.late_callbacks_dropped():
        with refuses("checkpoint: step 1 not saved", "timed out"):
            with Checkpointer(tmp_path / "c") as checkpointer:
                checkpointer.save(1, make_state())
                checkpointer.wait()
        gc.collect()  # coroutines
    threads = [
        each for each in threading.enumerate() if "orbax" in type(each).__module__
    ]
    for thread in threads:
        threading.Thread.join(thread)
    assert caplog.messages == [] and threads == [] and recwarn.list == []


def test_a_thread_that_does_not_end_is_not_waited_for(monkeypatch):
    """As on a disk that does not answer."""

    class Stuck(threading.Thread):
        __module__ = "orbax.test"

    ended = threading.Event()
    thread = Stuck(target=ended.wait, args=(20,), daemon=True)
    thread.start()
    monkeypatch.setattr(checkpoint, "SECONDS", 0.01)
    checkpoint._join_orbax()
    assert thread.is_alive()
    ended.set()
    monkeypatch.setattr(checkpoint, "SECONDS", 60)
    checkpoint._join_orbax()
    assert not thread.is_alive()


def test_failure_does_not_hide_the_error_that_ended_the_run(tmp_path):
    lines = []
    (tmp_path / "c").mkdir()
    with pytest.raises(ZeroDivisionError):
        with Checkpointer(tmp_path / "c", warn=lines.append) as checkpointer:
            checkpointer.save(1, make_state())
            checkpointer._thread.join()
            checkpointer._failure = "not saved"
            raise ZeroDivisionError
    assert lines == ["not saved"]


def test_no_thread_is_left(tmp_path):
    # In a process of its own: other tests leave idle threads of asyncio behind.
    process = run_python(
        """
        import sys, threading, time
        import jax.numpy as jnp
        from jaxpt.runs.checkpoint import Checkpointer

        state = {"w": jnp.arange(8.0)}
        before = set(threading.enumerate())
        with Checkpointer(sys.argv[1]) as checkpointer:
            checkpointer.save(1, state)
            checkpointer.save(2, state)
            checkpointer.restore(state)
        # Orbax tells its asyncio workers to end and does not wait for them.
        end = time.monotonic() + 30
        while set(threading.enumerate()) - before and time.monotonic() < end:
            time.sleep(0.01)
        print(len(set(threading.enumerate()) - before))
        """,
        tmp_path,
    )
    out, _ = process.communicate()
    assert process.returncode == 0 and out.split() == ["0"]
