"""Checkpoints with verified contents: Orbax, plus the checksums of `manifest`.

Orbax alone loads flipped bits silently, casts dtypes, and treats any directory with a
numeric name as a step. Here each of these is detected before a value is read.
"""

import contextlib
import logging
import os
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import jax
import jax.numpy as jnp
import orbax.checkpoint as ocp
from jax.tree_util import keystr, tree_flatten_with_path

from jaxpt.distributed import processes
from jaxpt.errors import CheckpointError, LostLease, UserError
from jaxpt.files import remote
from jaxpt.files.loggers import silenced
from jaxpt.runs import manifest

MAX_READS = 20  # of steps that are removed in the meantime
SECONDS = 5.0  # that the threads of a failed save have to end


class Checkpointer:
    """Saves and restores pytrees of arrays under `directory`; a context manager.

    Within, Orbax logs nothing.

    Nothing is created before the first save, so reading needs no write access. With
    several processes, all make the same calls on one shared directory. Each writes and
    reads its part of the arrays; only process 0 lists steps, removes them and writes
    manifests.

    Args:
      directory: a local or mounted path.
      keep: finished steps to keep, at least 1.
      warn: called with a line about each step that is passed over; logs if None.
    """

    def __init__(
        self,
        directory: str | os.PathLike,
        keep: int = 2,
        warn: Callable[[str], None] | None = None,
    ):
        if keep < 1:
            raise CheckpointError(f"checkpoint keep: {keep}; must be at least 1")
        if "://" in str(directory):
            raise CheckpointError(
                f"checkpoint directory: {directory}; must be a local or mounted path"
            )
        self.directory = Path(directory).expanduser().absolute()
        if os.path.exists(self.directory) and not os.path.isdir(self.directory):
            raise CheckpointError(
                f"checkpoint directory: {directory} is not a directory"
            )
        self._keep = keep
        self._warn = warn or logging.getLogger(__name__).warning
        self._manager: ocp.CheckpointManager | None = None
        self._thread: threading.Thread | None = None
        self._failure: str | None = None
        # Steps later than the restored one: they were abandoned.
        self._superseded: set[int] = set()
        self._silence = contextlib.ExitStack()

    def __enter__(self) -> "Checkpointer":
        # Orbax also raises its errors, which are reported here in one line. If several
        # of its writes fail, it awaits one, and asyncio logs the others.
        self._silence.enter_context(silenced("absl", "asyncio"))
        return self

    def __exit__(self, kind, error, trace) -> None:
        try:
            if error is None:
                self.close()
            elif failure := self._join():  # without the others, which may be gone
                self._warn(failure)  # the error that ended the run matters more
                _join_orbax()
        finally:
            self._discard_manager()
            self._silence.close()

    def save(self, step: int, state: Any) -> None:
        """Starts saving `state`; returns once it is copied, so buffers may be donated.

        A step that is saved and intact is kept, unless an earlier one was restored
        since. Then it is replaced, as is a damaged one.
        """
        self.wait()
        step = int(step)
        leaves = _flatten(state)
        try:
            if not processes.on_first(self._make_room, step):
                return
            manager = self._open_manager()
            manager.reload()  # Orbax would believe that steps removed by us still exist
            manager.save(step, args=ocp.args.PyTreeSave(leaves), force=True)
        except OSError as error:
            self._discard_manager()
            _join_orbax()
            raise CheckpointError(self._describe_failure(step, error)) from error
        self._thread = threading.Thread(
            target=self._finish, args=(step, _tabulate(leaves)), name="checkpoint"
        )
        self._thread.start()

    def wait(self) -> None:
        """Blocks until the last save is on disk with its manifest."""
        if self._thread is None:
            return
        failure = self._join()

        def check():
            if failure:
                raise CheckpointError(failure)

        try:
            processes.on_all(check)
        except UserError:
            self._discard_manager()
            _join_orbax()
            raise

    def _join(self) -> str | None:
        """Waits for the thread; returns its error on this process, if any."""
        if self._thread is not None:
            self._thread.join()
        failure, self._thread, self._failure = self._failure, None, None
        return failure

    def close(self) -> None:
        """Waits for the last save and ends all threads; raises as `wait` does."""
        try:
            self.wait()
        finally:
            self._discard_manager()

    def steps(self) -> list[int]:
        """The finished steps, ascending; `restore` verifies them."""
        return manifest.list_finished(self.directory)

    def restore(
        self,
        template: Any,
        step: int | None = None,
        under: str = "",
        until: int | None = None,
    ) -> tuple[Any, int] | None:
        """Reads the newest intact step, or `step`, built and sharded as the template.

        Args:
          template: pytree of arrays or jax.ShapeDtypeStruct; a leaf without a sharding
            goes to the first local device.
          step: the only step to try.
          until: the last step to try.
          under: read only this branch of the saved tree ("params"), for a template of
            that branch.

        Returns:
          (state, step), or None if nothing has been saved yet (up to `until`).
        """
        self.wait()
        expected = _flatten(template, under)
        for _ in range(MAX_READS):
            found = processes.on_first(
                lambda: self._find(step, _tabulate(expected), under, until)
            )
            if found is None:
                return None
            chosen, finished = found
            values = self._read_unless_removed(chosen, expected)
            if values is not None:
                self._superseded = {other for other in finished if other > chosen}
                return jax.tree.unflatten(jax.tree.structure(template), values), chosen
        raise CheckpointError(
            f"checkpoint step {chosen} in {self.directory}: was removed by the run "
            f"that trains, as {MAX_READS - 1} steps before it, while it was read; "
            f"raise train.keep_checkpoints"
        )

    def _find(self, step: int | None, expected: dict, under: str, until: int | None):
        """The step to read and all finished ones; None if there are none."""
        finished = self.steps()
        if step is not None and step not in finished:
            raise CheckpointError(
                f"checkpoint step: {step} is not saved in {self.directory}; saved: "
                f"{', '.join(map(str, finished)) or 'none'}"
            )
        if not finished:
            if unfinished := manifest.list_unfinished(self.directory):
                names = ", ".join(path.name for path in unfinished)
                self._warn(
                    f"checkpoint: no finished save in {self.directory}, only {names}"
                )
            return None
        candidates = finished if step is None else [step]
        if until is not None:
            candidates = [each for each in candidates if each <= until]
            if not candidates:
                return None
        intact = self._choose(candidates)
        if intact is None:
            return self._find(step, expected, under, until)
        chosen, saved = intact
        self._check_leaves(chosen, saved, expected, under)
        return chosen, finished

    def _choose(self, candidates: list[int]) -> tuple[int, dict[str, Any]] | None:
        """The newest intact step and its leaves; warns about each damaged one.

        None if the process that trains has removed a step meanwhile.
        """
        faults = []
        for step in reversed(candidates):
            try:
                return step, manifest.verify(self.directory, step)
            except manifest.Damaged as error:
                if self._is_removed(step):
                    return None
                faults.append(f"checkpoint: step {step} is damaged: {error}")
                if len(candidates) > 1:
                    self._warn(faults[-1])
        raise CheckpointError(
            f"{faults[-1]}; no intact step is left to read: put the files back, or "
            f"move {self.directory} away to start again"
        )

    def _check_leaves(self, step: int, saved: dict, expected: dict, under: str) -> None:
        """Raises UserError for the first leaf that differs from the template."""
        prefix = f"{under}/" if under else ""
        below = {path for path in saved if path.startswith(prefix)}
        for path in sorted(below | expected.keys()):
            if saved.get(path) != expected.get(path):
                raise CheckpointError(
                    f"checkpoint step {step} in {self.directory}: {path} is stored as "
                    f"{_show(saved.get(path))}, expected {_show(expected.get(path))}"
                )

    def _is_removed(self, step: int) -> bool:
        """Whether the process that trains has removed a step that is read here.

        Several processes of one run read only what they train themselves.
        """
        return processes.is_alone() and step not in self.steps()

    def _read_unless_removed(
        self, step: int, expected: dict[str, Any]
    ) -> list[jax.Array] | None:
        try:
            values = self._read(step, expected)
        except Exception:  # whatever Orbax raises if a file is missing
            if not self._is_removed(step):
                raise
            self._discard_manager()
            return None
        return None if self._is_removed(step) else values

    def _read(self, step: int, expected: dict[str, Any]) -> list[jax.Array]:
        abstract = {path: _abstract(leaf) for path, leaf in expected.items()}
        restored = self._open_manager().restore(
            step,
            args=ocp.args.PyTreeRestore(
                item=abstract,
                restore_args=ocp.checkpoint_utils.construct_restore_args(abstract),
                partial_restore=True,
            ),
        )
        return [restored[path] for path in expected]

    def _make_room(self, step: int) -> bool:
        """False if `step` is saved and intact; otherwise removes what has its name."""
        if step not in self._superseded:
            if step in self.steps():
                try:
                    manifest.verify(self.directory, step)
                    return False
                except manifest.Damaged as error:
                    self._warn(f"checkpoint: step {step} is saved again: {error}")
            elif path := manifest.find_foreign(self.directory, step):
                raise CheckpointError(
                    f"checkpoint: {path} is in the way: not a checkpoint"
                )
        manifest.remove(self.directory, step)
        self.directory.mkdir(parents=True, exist_ok=True)
        return True

    def _finish(self, step: int, leaves: dict[str, Any]) -> None:
        """Finishes a save, in a thread during training."""
        try:
            # Process 0 also waits for what the others write.
            self._open_manager().wait_until_finished()
            if processes.is_first():
                manifest.write(self.directory, step, leaves)
                self._prune(step)
                remote.push(self.directory)
            self._superseded = set()
        except LostLease as error:
            self._failure = str(error)
        except Exception as error:
            self._failure = self._describe_failure(step, error)

    def _prune(self, newest: int) -> None:
        """Removes steps that are no longer needed once `newest` is on disk."""
        finished = self.steps()
        current = [s for s in finished if s == newest or s not in self._superseded]
        for step in set(finished) - set(current[-self._keep :]) - {newest}:
            manifest.remove(self.directory, step)
        manifest.remove_unfinished(self.directory)

    def _open_manager(self) -> ocp.CheckpointManager:
        if self._manager is None:
            # We remove old steps, after the manifest of the new one is written.
            options = ocp.CheckpointManagerOptions(
                max_to_keep=None,
                create=False,
                save_root_metadata=False,
                lightweight_initialize=True,
            )
            self._manager = ocp.CheckpointManager(self.directory, options=options)
        return self._manager

    def _discard_manager(self) -> None:
        if self._manager is None:
            return
        # After a failed save, closing raises its errors once more.
        for _ in range(4):
            with contextlib.suppress(Exception):
                self._manager.close()
                break
        self._manager = None

    def _describe_failure(self, step: int, error: Exception) -> str:
        reason = (str(error) or repr(error)).splitlines()[0]
        return f"checkpoint: step {step} not saved in {self.directory}: {reason}"


def _join_orbax() -> None:
    """After a failed save, waits until Orbax's threads end, which log their errors.

    If one of them has timed out, Orbax does not wait for the others.
    """
    end = time.monotonic() + SECONDS
    for thread in threading.enumerate():
        if type(thread).__module__.startswith("orbax."):  # whose `join` raises
            threading.Thread.join(thread, max(0.0, end - time.monotonic()))


def _flatten(tree: Any, under: str = "") -> dict[str, Any]:
    """Leaves by path, "params/layer/kernel"; Orbax gets this flat dict.

    So Orbax does not see the containers of a state (optax's tuples, dataclasses), and
    cannot confuse {"a.b": x} with {"a": {"b": y}}, whose names it joins with dots.
    """
    prefix = f"{under}/" if under else ""
    pairs, _ = tree_flatten_with_path(tree)
    leaves = {prefix + keystr(p, simple=True, separator="/"): leaf for p, leaf in pairs}
    if len(leaves) != len(pairs):
        raise ValueError("two leaves of the state have the same path")
    return leaves


def _tabulate(leaves: dict[str, Any]) -> dict[str, dict[str, Any]]:
    return {
        path: {"shape": list(leaf.shape), "dtype": str(leaf.dtype)}
        for path, leaf in leaves.items()
    }


def _show(entry: dict[str, Any] | None) -> str:
    if entry is None:
        return "nothing"
    return f"{entry['dtype']}[{','.join(map(str, entry['shape']))}]"


def _abstract(leaf: Any) -> jax.ShapeDtypeStruct:
    # Without a sharding Orbax uses the one on disk, whose devices may not exist here.
    sharding = getattr(leaf, "sharding", None)
    if sharding is None:
        sharding = jax.sharding.SingleDeviceSharding(jax.local_devices()[0])
    return jax.ShapeDtypeStruct(leaf.shape, leaf.dtype, sharding=sharding)


@jax.jit
def _all_finite(tree: Any) -> jax.Array:
    return jnp.all(jnp.stack([jnp.all(jnp.isfinite(x)) for x in jax.tree.leaves(tree)]))


def is_finite(tree: Any) -> bool:
    """Whether all numbers of a tree of arrays are finite."""
    return bool(_all_finite(tree))
