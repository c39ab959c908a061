"""Interception of module calls, by which fine-tuning methods change a network.

`intercept` wraps the calls of a network's modules (`flax.linen.intercept_methods`). It
passes three kinds of outputs to a function that may change them: those of a matrix, of
a sublayer (before the residual is added) and of the token table. The functions `get`,
`put` and `draw_key` access nested parameters by path.
"""

import zlib
from collections.abc import Callable
from contextlib import AbstractContextManager
from typing import Any, NamedTuple

import flax.linen as nn
import jax
from jaxtyping import Array, Float, PyTree

from jaxpt.nn.attention import Attention
from jaxpt.nn.heads import Embedder
from jaxpt.nn.layers import Dense, Dropout, Mlp, Norm
from jaxpt.nn.recurrent import Affine

Path = tuple[str, ...]


def get(tree: dict, path: Path) -> Any:
    """The value at a path; an empty dict if the path does not exist.

    >>> get({"a": {"b": 1}}, ("a", "b")), get({"a": {}}, ("a", "b", "c"))
    (1, {})
    """
    for name in path:
        tree = tree.get(name, {})
    return tree


def put(tree: dict, path: Path, value: Any) -> None:
    """Sets the value at a path, and creates missing parents."""
    *above, name = path
    for part in above:
        tree = tree.setdefault(part, {})
    tree[name] = value


def draw_key(rng: jax.Array, path: Path) -> jax.Array:
    """A random key for a path, which does not depend on other paths."""
    return jax.random.fold_in(rng, zlib.crc32("/".join(path).encode()))


class Sublayer(NamedTuple):
    """The output of a layer's attention or MLP, after dropout.

    Attributes:
      path: that of the layer, and "attention", "cross" or "mlp".
      residual: the residual that will be added to the output.
      layer: the module, bound to its parameters.
    """

    path: Path
    residual: Float[Array, "B T D"]
    output: Float[Array, "B T D"]
    layer: nn.Module


class Changes(NamedTuple):
    """Functions whose results replace the outputs of modules.

    Attributes:
      dense: (module, its path, its input, its output) -> output.
      sublayer: (a sublayer) -> its output.
      table: (its path, ids [B, T], token vectors [B, T, E]) -> token vectors, for the
        only stack or the encoder.
    """

    dense: Callable[[nn.Module, Path, Array, Array], Array] | None = None
    sublayer: Callable[[Sublayer], Array] | None = None
    table: Callable[[Path, Array, Array], Array] | None = None


def watch(changes: Changes) -> AbstractContextManager:
    """A context in which every call of a network is changed.

    It takes effect while a network is traced: enter it in the function that is
    compiled.
    """
    return nn.intercept_methods(intercept(changes))


def intercept(changes: Changes) -> Callable:
    """The interceptor; create one per trace, because it records the last sublayer."""
    normed: dict[Path, Array] = {}  # by layer: the input of its last norm
    waiting: dict[Path, tuple[str, Array]] = {}  # by layer: a sublayer before dropout

    def run(next_fun: Callable, args: tuple, kwargs: dict, context: Any) -> Any:
        module = context.module
        output = next_fun(*args, **kwargs)
        if module.scope is None:  # a function of parameters that applies the module
            return output
        path = module.path
        if isinstance(module, Embedder) and context.method_name == "look_up":
            if changes.table is None or module.encoders is not None:
                return output
            return changes.table(path, args[0], output)
        if context.method_name != "__call__" or not path:
            return output
        if isinstance(module, Dense | Affine) and changes.dense is not None:
            return changes.dense(module, path, args[0], output)
        if changes.sublayer is None:
            return output
        layer = path[:-1]
        if isinstance(module, Norm):
            normed[layer] = args[0]
        elif isinstance(module, Attention | Mlp):
            is_pre = module.spec.norm_position in ("pre", "both")
            # A first layer whose input is already normed has no norm before attention.
            residual = normed.pop(layer, args[0]) if is_pre else args[0]
            waiting[layer] = path[-1], residual
        elif isinstance(module, Dropout) and layer in waiting:
            part, residual = waiting.pop(layer)
            sublayer = Sublayer((*layer, part), residual, output, module.parent)
            return changes.sublayer(sublayer)
        return output

    return run


class Places(NamedTuple):
    """The modules that a network calls.

    Attributes:
      dense: the paths of its matrices, which are the paths of their parameters.
      sublayers: the paths and widths of its sublayers.
      tables: the path of its token table, if it has one.
    """

    dense: tuple[Path, ...]
    sublayers: tuple[tuple[Path, int], ...]
    tables: tuple[Path, ...]


def find_places(run: Callable, params: PyTree) -> Places:
    """Traces a function of a network's parameters and lists the modules it calls.

    Args:
      run: (params) -> anything, such as `Network.task_states` of a batch.
    """
    dense: dict[Path, None] = {}
    sublayers: dict[Path, int] = {}
    tables: dict[Path, None] = {}

    def note_dense(module: nn.Module, path: Path, x: Array, output: Array) -> Array:
        dense[path] = None
        return output

    def note_sublayer(sublayer: Sublayer) -> Array:
        sublayers[sublayer.path] = sublayer.output.shape[-1]
        return sublayer.output

    def note_table(path: Path, ids: Array, vectors: Array) -> Array:
        tables[path] = None
        return vectors

    with watch(Changes(note_dense, note_sublayer, note_table)):
        jax.eval_shape(run, params)
    return Places(tuple(dense), tuple(sublayers.items()), tuple(tables))
