"""The losses of several objectives by the states of one pass of their network."""

import dataclasses
import functools
from collections.abc import Callable
from typing import Any

import jax
import jax.numpy as jnp
from jaxtyping import Array

from jaxpt.objectives.mixing import MixedPart
from jaxpt.ops.losses import Scores, SumWeight
from jaxpt.ops.packing import PredictionCounts, exactly, mix, pack


@dataclasses.dataclass(frozen=True)
class Shared:
    """A part of a mixture's network, not a submodule of it.

    Attributes:
      network: as the part alone trains it, on the same parameters.
      laws: of its terms, in rows of all parts.
      law: of all its positions, in rows of all parts.
    """

    part: MixedPart
    network: Any
    laws: tuple[tuple[str, PredictionCounts], ...]
    law: PredictionCounts


class Reader:
    """A part's network, whose states come from the pass that all parts share.

    The part's `loss` applies it.

    Args:
      states: [B, T, D], of all rows.
    """

    def __init__(self, shared: Shared, states: Array) -> None:
        self._network = shared.network.clone(packed=shared.laws)
        self._law, self._states = shared.law, states
        self.overflows: list[SumWeight] = []  # of predictions in `_Bound.score`

    def __getattr__(self, name: str) -> Any:
        return getattr(self._network, name)

    def apply(self, variables: Any, *, method: Callable, **more: Any) -> Any:
        """`method` of the network with parameters, as a module's `apply`."""

        def run(bound: Any) -> Any:
            return method(_Bound(bound, self._states, self._law, self.overflows))

        return self._network.apply(variables, method=run, **more)


class _Bound:
    """A module with parameters, whose states are known."""

    def __init__(
        self, module: Any, states: Array, law: PredictionCounts, overflows: list
    ) -> None:
        self._module, self._states = module, states
        self._law, self._overflows = law, overflows

    def __getattr__(self, name: str) -> Any:
        return getattr(self._module, name)

    def batch_states(self, *_: Any, **__: Any) -> Array:
        return self._states

    def score_term(
        self, term: str, states: Array, targets: Array, weights: Array
    ) -> tuple[Scores, Array, dict[str, SumWeight]]:
        if term in dict(self._module.packed):
            scored: tuple = self._module.score_term(term, states, targets, weights)
            return scored
        return self.score(states, targets, weights), weights, {}

    def score(self, states: Array, targets: Array, weights: Array) -> Scores:
        """As the module's, but only positions with a weight meet the vocabulary."""
        is_used = (weights != 0).reshape(*states.shape[:2], -1).any(-1)
        num = is_used.size
        index = jnp.arange(num).reshape(is_used.shape)
        slots = pack(states, index, is_used.astype(jnp.float32), self._law)
        groups, is_filled = len(slots.targets), slots.weights > 0
        places = slots.targets % (num // groups)

        def take(x: Array) -> Array:
            parts = x.reshape(groups, num // groups, *x.shape[2:])
            return jax.vmap(lambda part, at: part[at])(parts, places)

        def fill(x: Array) -> Array:
            return is_filled.reshape(is_filled.shape + (1,) * (x.ndim - 2)) * x

        def put(x: Array) -> Array:
            whole = jnp.zeros((groups, num // groups, *x.shape[2:]), x.dtype)
            whole = jax.vmap(lambda into, at, x: into.at[at].add(x))(
                whole, places, fill(x).astype(x.dtype)
            )
            return whole.reshape(*is_used.shape, *x.shape[2:])

        scores = self._module.score(slots.states, take(targets), fill(take(weights)))
        self._overflows.append(slots.overflow)
        nll = None if scores.nll is None else put(scores.nll)
        return scores._replace(ranks=put(scores.ranks), nll=nll)


def share(part: MixedPart, network: Any, most_share: float) -> Shared:
    """A part with its network, for rows of which at most this share is its own."""
    most = part.spec.predictions.most
    law = mix([(most_share, exactly(most)), (1 - most_share, exactly(0))])
    return Shared(part, network, tuple(part.mix_laws(most_share).items()), law)


@functools.cache
def add_parts(kind: type) -> Any:
    """The class of network with a field `parts`, a tuple of `Shared`."""
    more = {"parts": (), "__annotations__": {"parts": tuple}, "__module__": __name__}
    return type(f"Mixed{kind.__name__}", (kind,), more)
