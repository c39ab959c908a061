"""The optimizers' part of muP and CompleteP (`jaxpt.nn.parametrization`)."""

from collections.abc import Callable, Sequence
from typing import Any

import jax
import optax
from jax.tree_util import KeyPath
from jaxtyping import Array, PyTree

from jaxpt.errors import ConfigError
from jaxpt.learn.optim_spec import OptimSpec
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.nn.parametrization import LeafScale, find_scale
from jaxpt.nn.scan import list_specs, path_name

OPTIMIZERS = ("adamw", "muon", "normuon")


class Scales:
    """The factors of all parameters of a network.

    Args:
      specs: by the name of a part ("generator"), its spec; "" is all others.
    """

    def __init__(self, specs: dict[str, ModelSpec]) -> None:
        self._specs = specs

    def find(self, path: KeyPath) -> LeafScale:
        """The factors of a leaf."""
        name = path_name(path)
        spec = self._specs.get(name.partition("/")[0], self._specs[""])
        return find_scale(spec, name)

    def scale_adamw(
        self, adam: Any, decay: Any, rate: Any
    ) -> optax.GradientTransformation:
        """AdamW of its three parts, with the learning rate, decay and epsilon scaled.

        Adam's update of gradients / e with epsilon is that of the gradients with
        epsilon times e. With w and d the factors of the rate by width and depth, decay
        k is divided by w: (w u + k x) d = w d (u + k / w x).
        """
        return optax.chain(
            self._multiply(lambda scale: 1 / scale.epsilon),
            adam,
            self._multiply(lambda scale: scale.width),
            decay,
            self._multiply(lambda scale: scale.depth),
            rate,
        )

    def scale_muon(self, parts: Sequence[Any]) -> optax.GradientTransformation:
        """Muon of its parts, with the learning rate scaled by depth."""
        return optax.chain(*parts, self._multiply(lambda scale: scale.depth))

    def _multiply(
        self, pick: Callable[[LeafScale], float]
    ) -> optax.GradientTransformation:
        def multiply(path: KeyPath, update: Array) -> Array:
            factor = pick(self.find(path))
            return update if factor == 1 else factor * update

        def init(params: PyTree) -> optax.OptState:
            # The parameters without a rule are refused before the first step.
            jax.tree_util.tree_map_with_path(lambda path, _: self.find(path), params)
            return optax.EmptyState()

        def update(
            updates: PyTree, state: optax.OptState, params: PyTree = None
        ) -> tuple[PyTree, optax.OptState]:
            return jax.tree_util.tree_map_with_path(multiply, updates), state

        return optax.GradientTransformation(init, update)


def make_scales(model: Any) -> Scales:
    """The factors of a network's parameters."""
    if model.frozen:
        raise ConfigError(
            f"model.parametrization={model.spec.parametrization}: must be standard for "
            "a student of a teacher"
        )
    parts = {
        name.removesuffix("_spec"): each for name, each in list_specs(model).items()
    }
    return Scales(parts | {"": model.spec})


def check_optim(spec: OptimSpec, parametrization: str) -> None:
    """Raises UserError for an optimizer to which the factors do not apply."""
    after = f"with model.parametrization={parametrization}"
    allowed = f"{', '.join(OPTIMIZERS[:-1])} or {OPTIMIZERS[-1]} {after}"
    spec.check("name", spec.name in OPTIMIZERS, allowed)
    spec.check("lr_width", spec.lr_width == 0, f"0 {after}")
