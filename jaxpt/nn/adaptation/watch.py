"""Where something can be added to a network that knows nothing of it.

`intercept` watches the calls of a network's modules (`flax.linen.intercept_methods`).
At three kinds of places it hands what a module gives to a function, which may change
it: after a matrix, after a sublayer (before its residual is added), after the token
table.
"""

from collections.abc import Callable
from typing import NamedTuple

import flax.linen as nn
import jax
from jaxtyping import Array, Float

from jaxpt.nn.attention import Attention
from jaxpt.nn.heads import Embedder
from jaxpt.nn.layers import Dense, Dropout, Mlp, Norm
from jaxpt.nn.recurrent import Affine

Path = tuple[str, ...]


class Sublayer(NamedTuple):
    """The output of a layer's attention or MLP, after dropout.

    Attributes:
      path: the layer's, and "attention", "cross" or "mlp".
      residual: what the output is about to be added to.
      layer: the module, bound to its parameters.
    """

    path: Path
    residual: Float[Array, "B T D"]
    output: Float[Array, "B T D"]
    layer: nn.Module


class Changes(NamedTuple):
    """What is done at each kind of place; the results take the outputs' places.

    Attributes:
      dense: (module, its path, its input, its output) -> output.
      sublayer: (a sublayer) -> its output.
      table: (its path, ids [B, T], token vectors [B, T, E]) -> token vectors. Of those
        that the only stack or the encoder reads.
    """

    dense: Callable[[nn.Module, Path, Array, Array], Array] | None = None
    sublayer: Callable[[Sublayer], Array] | None = None
    table: Callable[[Path, Array, Array], Array] | None = None


def watch(changes: Changes):
    """A context in which every call of a network is changed so.

    It holds where a network is traced: it must be inside a function that is compiled.
    """
    return nn.intercept_methods(intercept(changes))


def intercept(changes: Changes):
    """The interceptor: one for each trace, as it notes which sublayer it has seen."""
    normed: dict[Path, Array] = {}  # by layer: what its last norm read
    waiting: dict[Path, tuple[str, Array]] = {}  # by layer: a sublayer before dropout

    def run(next_fun, args, kwargs, context):
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
            is_pre = module.spec.norm_position == "pre"
            # A first layer whose input is normed already has no norm before attention.
            residual = normed.pop(layer, args[0]) if is_pre else args[0]
            waiting[layer] = path[-1], residual
        elif isinstance(module, Dropout) and layer in waiting:
            part, residual = waiting.pop(layer)
            found = Sublayer((*layer, part), residual, output, module.parent)
            return changes.sublayer(found)
        return output

    return run


class Places(NamedTuple):
    """What a network calls.

    Attributes:
      dense: the paths of its matrices, which are those of their parameters.
      sublayers: the paths of its sublayers, with their widths.
      tables: the path of its token table, none where it has no such.
    """

    dense: tuple[Path, ...]
    sublayers: tuple[tuple[Path, int], ...]
    tables: tuple[Path, ...]


def find_places(run: Callable, params) -> Places:
    """The places that a function of a network's parameters comes by, not computed.

    Args:
      run: (params) -> anything, such as `Network.task_states` of a batch.
    """
    dense: dict[Path, None] = {}
    sublayers: dict[Path, int] = {}
    tables: dict[Path, None] = {}

    def note_dense(module, path, x, output):
        dense[path] = None
        return output

    def note_sublayer(found: Sublayer):
        sublayers[found.path] = found.output.shape[-1]
        return found.output

    def note_table(path, ids, vectors):
        tables[path] = None
        return vectors

    with watch(Changes(note_dense, note_sublayer, note_table)):
        jax.eval_shape(run, params)
    return Places(tuple(dense), tuple(sublayers.items()), tuple(tables))
