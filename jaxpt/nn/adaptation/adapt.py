"""Parameter-efficient fine-tuning: trained, frozen and additional parameters of a task.

The parameters of a task are {"network": ..., "head": ..., "extra": ...}: those of
`Network.task_part`, those of the task's head, and those that the method adds. The
modules of the network are unaware of the additions: they are called in the context
`adapted`.
"""

import contextlib
import itertools
from collections.abc import Callable, Iterator
from typing import Any

import jax
from jaxtyping import PyTree

from jaxpt.errors import ConfigError
from jaxpt.nn.adaptation import bottleneck, lora, prompts
from jaxpt.nn.adaptation.adapt_spec import ADAPTERS, AdaptSpec
from jaxpt.nn.adaptation.watch import Changes, find_places, watch
from jaxpt.nn.scan import path_name


def init_extra(
    spec: AdaptSpec,
    run: Callable,
    params: PyTree,
    rng: jax.Array,
    label_ids: list[list[int]] | None = None,
) -> dict:
    """The additional parameters of a method, which at first do not change the network.

    Exceptions: a prompt takes effect from the start, and adapters start near zero.

    Args:
      run: (params) -> anything, the network's part of the task, such as `task_states`
        of a batch. Only modules that it calls get additions. Layers are unrolled.
      params: those of the network.
      label_ids: the tokens of each label's name.
    """
    if spec.method == "bitfit" and not any(
        is_trained(spec, f"network/{name}") for name in find_read(run, params)
    ):
        raise ConfigError(
            "adapt.method=bitfit: this network has no biases; must be another method"
        )
    if spec.method in ("lora", "prompt", *ADAPTERS):
        places = find_places(run, params)
        if spec.method == "lora":
            return lora.init(spec, places, params, rng)
        if spec.method == "prompt":
            return prompts.init(spec, places, params, rng, label_ids)
        return bottleneck.init(spec, places, rng)
    return {}


@contextlib.contextmanager
def adapted(spec: AdaptSpec, extra: dict) -> Iterator[None]:
    """A context in which a network is called with its additional parameters.

    Enter it inside the function that is compiled. A prompt also needs positions in the
    batch (`prompts.make_room`); its states precede those of the text.
    """
    if not extra:
        yield
        return
    changes = Changes(
        dense=lora.change(spec, extra) if spec.method == "lora" else None,
        sublayer=bottleneck.change(spec, extra) if spec.method in ADAPTERS else None,
        table=prompts.change(extra) if spec.method == "prompt" else None,
    )
    with watch(changes):
        yield


def merge(spec: AdaptSpec, params: PyTree, extra: dict) -> PyTree:
    """The parameters of an equivalent network without additions: merges LoRA."""
    if not extra:
        return params
    if spec.method != "lora":
        raise ConfigError(
            f"adapt.method={spec.method}: its additions cannot be merged into the "
            f"network; must be lora, bitfit, linear_probe or full"
        )
    return lora.merge(spec, params, extra)


def is_trained(spec: AdaptSpec, path: str) -> bool:
    """Whether a parameter of a task is trained.

    Args:
      path: of {"network", "head", "extra"}, such as "network/encoder/norm/scale".

    >>> spec, norm = AdaptSpec("houlsby"), "network/encoder/layer_0/mlp_norm/scale"
    >>> [is_trained(spec, path) for path in ("head/out/bias", norm, "network/embed")]
    [True, True, False]
    """
    part, *names = path.split("/")
    if part in ("head", "extra") or spec.method == "full":
        return True
    if spec.method == "bitfit":  # those of the norms too
        return names[-1] == "bias"
    if spec.method == "houlsby":
        is_norm = len(names) > 1 and names[-2].endswith("norm")
        return is_norm and names[-1] in ("scale", "bias")
    return False


def find_frozen(
    spec: AdaptSpec, state: dict, read: frozenset[str] | None = None
) -> tuple[str, ...]:
    """The shortest paths of the parameters that are not trained (`jaxpt.learn.frozen`).

    Args:
      state: {"network", "head", "extra"}.
      read: the network's parameters that the task reads (`find_read`); the others are
        always frozen. None means all.
    """

    def is_kept(path: str) -> bool:
        part, _, name = path.partition("/")
        is_idle = part == "network" and read is not None and name not in read
        return is_idle or not is_trained(spec, path)

    def visit(tree: dict, path: str) -> list[str]:
        names = [f"{path}/{name}".strip("/") for name in tree]
        frozen = [
            visit(part, name) if isinstance(part, dict) else [name] * is_kept(name)
            for name, part in zip(names, tree.values(), strict=True)
        ]
        if path and names and frozen == [[name] for name in names]:
            return [path]
        return list(itertools.chain.from_iterable(frozen))

    return tuple(visit(state, ""))


def find_read(run: Callable, params: PyTree) -> frozenset[str]:
    """The paths of the parameters that a function reads.

    For example, a function that returns hidden states does not read the vocabulary
    head.
    """
    jaxpr = jax.make_jaxpr(run)(params).jaxpr
    used = {id(x) for eqn in jaxpr.eqns for x in eqn.invars}
    used |= {id(x) for x in jaxpr.outvars}
    leaves = jax.tree_util.tree_leaves_with_path(params)
    return frozenset(
        path_name(path)
        for (path, _), variable in zip(leaves, jaxpr.invars, strict=True)
        if id(variable) in used
    )


def count_trained(state: dict, frozen: tuple[str, ...]) -> dict[str, int]:
    """Counts the trained parameters of each part, and all parameters.

    Args:
      frozen: the paths of `find_frozen`.

    >>> from numpy import zeros
    >>> state = {"network": {"a": zeros(5)}, "head": {"b": zeros(3)}, "extra": {}}
    >>> count_trained(state, ("network",))
    {'network': 0, 'head': 3, 'extra': 0, 'trained': 3, 'total': 8}
    """
    counts: dict[str, Any] = dict.fromkeys(state, 0)
    total = 0
    for path, leaf in jax.tree_util.tree_leaves_with_path(state):
        name = path_name(path)
        total += leaf.size
        if not any(f"{name}/".startswith(f"{part}/") for part in frozen):
            counts[name.split("/")[0]] += leaf.size
    return counts | {"trained": sum(counts.values()), "total": total}
