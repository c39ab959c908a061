"""Compiles a task for the available devices: jit over a mesh by default, or pmap.

Both give the same results, on one process or several, which make the same calls.
Nothing below this file depends on the number of devices.
"""

import dataclasses
import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding, PartitionSpec

from jaxpt.errors import UserError
from jaxpt.learn.state import TrainState
from jaxpt.nn.networks.abilities import WritesText
from jaxpt.ops.layout import LENGTH_AXIS, ROW_AXES
from jaxpt.rng import stream
from jaxpt.runs import sharding
from jaxpt.runs.readers import Reader, Readers
from jaxpt.runs.task import Task
from jaxpt.runs.train_calls import TrainCalls

if TYPE_CHECKING:
    from jaxpt.nn.decoding import Decoder

Device = Any  # a `jax.Device`; jaxlib has no types

# Dense bfloat16 peaks in FLOP/s, from the vendors' data sheets (no sparsity), by part
# of JAX's name for a device (of TPU v3, a core). The first match applies.
DEVICE_PEAKS = {
    "H200": 989e12,
    "H100 PCIe": 756e12,
    "H100 NVL": 835e12,
    "H100": 989e12,
    "A100": 312e12,
    "V100": 125e12,
    "TPU v6": 918e12,
    "TPU v5 lite": 197e12,
    "TPU v5e": 197e12,
    "TPU v5": 459e12,
    "TPU v4": 275e12,
    "TPU v3": 61.5e12,
}
# The definition of `mfu`, printed with it.
MFU_NOTE = (
    "mfu: matrix products of 3 forward passes, attention in full (of a causal model 6N "
    "+ 12LdT a token), without the optimizer's, over the devices' dense bfloat16 peak"
)
MAX_WRITERS = 64  # compiled functions that a program keeps for generation


def device_peak() -> float | None:
    """The bfloat16 peak of all devices together; None on CPU and on unknown devices."""
    kind = jax.devices()[0].device_kind
    for name, peak in DEVICE_PEAKS.items():
        if name.lower() in kind.lower():
            return peak * jax.device_count()
    return None


class Program:
    """A task's compiled functions, for runs with any seed.

    Args:
      devices: of all processes; None for all.
      is_training: False to only use a run. Then the batch need not be divisible by the
        devices, and if the run's mesh does not fit them, every matrix is sharded.
    """

    def __init__(
        self,
        task: Task,
        devices: Sequence[Device] | None = None,
        is_training: bool = True,
    ):
        self.task: Task = task
        devices, train = list(devices or jax.devices()), task.plan.train
        self.is_pmap: bool = train.backend == "pmap"
        self._shapes = jax.eval_shape(self._make_state, 0)
        if is_training:
            shape = sharding.shape_mesh(train, len(devices))
            sharding.check_task(task, self._shapes.params, shape)
        else:
            shape = _fit_mesh(task, len(devices))
        self.mesh: Mesh = sharding.make_mesh(shape, devices)
        self.devices: list[Device] = list(self.mesh.devices.flat)
        self._whole = self._make_sharding()
        self._first = self._make_sharding(ROW_AXES)
        self._by_row = self._make_sharding(None, ROW_AXES)
        pmap_mesh = Mesh(np.array(self.devices), ("devices",))
        self._by_device = NamedSharding(pmap_mesh, PartitionSpec("devices"))
        self._state = sharding.shard_state(self._shapes, self.mesh, task.model.RULES)
        self._init = jax.jit(self._make_state, out_shardings=self._state)
        params = self._state.params
        self._init_params = jax.jit(self._make_params, out_shardings=params)
        self._copy = jax.jit(self._copy_state, out_shardings=self._by_device)
        self._first_copy = jax.jit(_first_of, out_shardings=self._whole)
        self.train_call: TrainCalls = TrainCalls(
            task,
            self.abstract_state(),
            self.mesh,
            self._by_row,
            self._whole,
            self.devices if self.is_pmap else None,
        )
        self.readers: Readers = Readers(task, self.compile_reader)
        self._find_writer = functools.lru_cache(MAX_WRITERS)(self._compile_writer)
        self.decoder: Decoder | None = None  # of a network that writes
        if isinstance(task.model, WritesText):
            start_id = task.vocab.start if task.model.HAS_DECODER else None
            self.decoder = task.model.make_decoder(start_id)

    def _make_sharding(self, *axes) -> NamedSharding:
        return NamedSharding(self.mesh, PartitionSpec(*axes))

    def compile_reader(self, function: Callable) -> Reader:
        """A compiled (params, host rows, ...) -> arrays that every process can read.

        Its `trace`, for the same arguments, returns shapes and computes nothing.
        """
        compiled = jax.jit(function, out_shardings=self._whole)

        def put(x):
            is_even = not len(x) % self.num_shares
            return self._put(x, self._first if is_even else self._whole)

        def read(params, rows, *rest):
            with jax.set_mesh(self.mesh):
                return compiled(params, jax.tree.map(put, rows), *rest)

        def trace(params, rows, *rest):
            with jax.set_mesh(self.mesh):
                return compiled.eval_shape(params, jax.tree.map(put, rows), *rest)

        read.trace = trace  # type: ignore[attr-defined]
        return read

    def write(
        self, function: Callable, params: Any, rows: Any, /, *rest: Any, **static: Any
    ) -> Any:
        """`function(params, rows, *rest, **static)`, compiled once for its arguments.

        Args:
          function: one that outlives the call, as it is part of the key.
          rows, rest: as for `compile_reader`; equal shapes share a compiled function.
          static: hashable values.
        """
        shapes = tuple((x.shape, x.dtype) for x in jax.tree.leaves((rows, rest)))
        return self._find_writer(function, shapes, **static)(params, rows, *rest)

    def _compile_writer(
        self, function: Callable, shapes: tuple[Any, ...], /, **static
    ) -> Reader:
        """A separate compiled function for each of the arguments."""
        return self.compile_reader(functools.partial(function, **static))

    def _put(self, x, layout: NamedSharding) -> jax.Array:
        """A host array, equal on every process, sharded over the devices."""
        if layout.is_fully_addressable:
            return jax.device_put(x, layout)
        x = np.asarray(x)
        return jax.make_array_from_callback(x.shape, layout, lambda index: x[index])

    def _make_params(self, seed):
        return self.task.model.init_params(stream(seed, 0, "init"))

    def _make_state(self, seed):
        return self.task.make_state(self._make_params(seed))

    @property
    def text_length(self) -> int:
        """The maximum number of tokens of plain text that `features` reads at once."""
        return self.task.read_length - self.task.text_form.num_special()

    @property
    def num_shares(self) -> int:
        """The number of shards of a batch."""
        return int(np.prod([self.mesh.shape[axis] for axis in ROW_AXES]))

    def choose_rows(self, batch_size: int) -> np.ndarray:
        """The rows of a batch that this process's devices read."""
        shape = 1, batch_size
        indices = self._by_row.addressable_devices_indices_map(shape).values()
        parts = {index[1].indices(shape[1]) for index in indices if index}
        return np.concatenate([np.arange(*part) for part in sorted(parts)])

    def describe_mesh(self) -> list[str]:
        """A line that describes the mesh and its memory; none for one device."""
        if len(self.devices) == 1:
            return []
        shape = " x ".join(
            f"{axis} {n}"
            for axis, n in self.mesh.shape.items()
            if axis != LENGTH_AXIS or n > 1
        )
        state = self.abstract_state()
        per_device, whole = sharding.count_bytes(state)
        several = jax.process_count()
        return [
            f"mesh: {shape}; {per_device / 1e6:,.1f} of the state's "
            f"{whole / 1e6:,.1f} MB on each device"
            + (f"; {several} processes" if several > 1 else ""),
            *sharding.note_vocabulary(
                self.task.model_spec.vocab_size, self.mesh.shape["tensor"]
            ),
        ]

    def abstract_state(self) -> TrainState:
        """Shapes, dtypes and shardings of a state, for a restore."""
        return jax.tree.map(
            lambda x, layout: jax.ShapeDtypeStruct(x.shape, x.dtype, sharding=layout),
            self._shapes,
            self._state,
        )

    def init_state(self, seed: int) -> TrainState:
        """A new state, in the form of `save_form`."""
        return self._init(seed)

    def init_params(self, seed: int) -> Any:
        """The parameters of `init_state` alone, without an optimizer's state."""
        return self._init_params(seed)

    def run_form(self, state: TrainState) -> TrainState:
        """A saved or new state as the train call takes it (pmap: a copy per device)."""
        if not self.is_pmap:
            return state
        return self._copy(state)

    def _copy_state(self, state: TrainState) -> TrainState:
        count = len(self.devices)
        return jax.tree.map(lambda x: jnp.broadcast_to(x, (count, *x.shape)), state)

    def save_form(self, state: TrainState) -> TrainState:
        """A running state in the form that is saved and evaluated, without copies."""
        if not self.is_pmap:
            return state
        return self._first_copy(state)

    def place(self, stack: dict[str, Any]) -> dict[str, Any]:
        """Puts host rows of `choose_rows` on devices: {"tokens": [K, B, R], ...}."""
        if self.is_pmap:
            return jax.tree.map(self._split, stack)
        if self._by_row.is_fully_addressable:
            return jax.device_put(stack, self._by_row)
        num_own = len(self.choose_rows(self.num_shares))

        def join(x):
            size = x.shape[1] // num_own * self.num_shares
            own_rows = self.choose_rows(size)

            def read(index):
                start, stop, _ = index[1].indices(size)
                first = np.searchsorted(own_rows, start)
                return x[:, first : first + stop - start]

            shape = len(x), size, *x.shape[2:]
            return jax.make_array_from_callback(shape, self._by_row, read)

        return jax.tree.map(join, stack)

    def _split(self, x: np.ndarray) -> np.ndarray | jax.Array:
        """Rows [K, B, ...] by device, [devices, K, B / devices, ...]."""
        count = len(self._by_row.addressable_devices)
        pieces = x.reshape(x.shape[0], count, -1, *x.shape[2:])
        local_rows = np.ascontiguousarray(pieces.swapaxes(0, 1))
        if count == len(self.devices):
            return local_rows
        shape = len(self.devices), *local_rows.shape[1:]
        return jax.make_array_from_process_local_data(
            self._by_device, local_rows, shape
        )


def _first_of(state: TrainState) -> TrainState:
    return jax.tree.map(lambda x: x[0], state)


def _fit_mesh(task: Task, num_devices: int) -> sharding.Shape:
    """The run's mesh if it fits the devices, else one that shards every matrix."""
    train = task.plan.train
    try:
        return sharding.shape_mesh(train, num_devices)
    except UserError:
        return sharding.shape_mesh(
            dataclasses.replace(train, fsdp=0, context=1, tensor=1), num_devices
        )
