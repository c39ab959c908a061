"""What a downstream task trains of a network, and how the rest of it is kept.

A task's parameters are {"network": ..., "head": ..., "extra": ...}: those of the
network that `Network.task_part` gives, those of the task's head, and what a method adds
to the network. The network's modules know nothing of it: `adapted` is a context in
which they are called.
"""

import contextlib
from collections.abc import Callable
from typing import Any

import jax

from jaxpt.errors import UserError
from jaxpt.nn.adaptation import bottleneck, lora, prompts
from jaxpt.nn.adaptation.adapt_spec import ADAPTERS, AdaptSpec
from jaxpt.nn.adaptation.watch import Changes, find_places, watch


def init_extra(
    spec: AdaptSpec,
    run: Callable,
    params,
    rng: jax.Array,
    label_ids: list[list[int]] | None = None,
) -> dict:
    """What the method adds to a network; with it the network begins as it was.

    But for a prompt, which is read from the start, and for adapters, which begin near
    zero.

    Args:
      run: (params) -> anything, the network's part of the task, such as
        `task_states` of a batch. Only what it calls is added to. Layers are unrolled.
      params: the network's.
      label_ids: the tokens of each label's name.

    Raises:
      UserError: the network has nothing that the method could be applied to.
    """
    if spec.method == "bitfit" and not any(
        is_trained(spec, f"network/{name}") for name in find_read(run, params)
    ):
        raise UserError(
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
def adapted(spec: AdaptSpec, extra):
    """A context in which a network is called with what was added to it.

    It must be entered inside the function that is compiled. A prompt also needs room in
    the batch (`prompts.make_room`); the states of its places come before the text's.
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


def merge(spec: AdaptSpec, params, extra):
    """The parameters of a network that needs no additions: LoRA's are added up.

    Raises:
      UserError: the method adds what no parameter of the network could hold.
    """
    if not extra:
        return params
    if spec.method != "lora":
        raise UserError(
            f"adapt.method={spec.method}: what it adds to a network cannot be merged "
            f"into it; must be lora, bitfit, linear_probe or full"
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
    """The paths of what is not trained (`jaxpt.learn.frozen`), each as short as can be.

    Args:
      state: {"network", "head", "extra"}.
      read: of the network, what the task reads (`find_read`): the rest is not trained
        whatever the method says. None is all of it.
    """

    def is_kept(path: str) -> bool:
        part, _, name = path.partition("/")
        is_idle = part == "network" and read is not None and name not in read
        return is_idle or not is_trained(spec, path)

    def visit(tree, path: str) -> list[str]:
        names = [f"{path}/{name}".strip("/") for name in tree]
        found = [
            visit(part, name) if isinstance(part, dict) else [name] * is_kept(name)
            for name, part in zip(names, tree.values(), strict=True)
        ]
        if path and names and all(f == [n] for f, n in zip(found, names, strict=True)):
            return [path]
        return [name for names in found for name in names]

    return tuple(visit(state, ""))


def find_read(run: Callable, params) -> frozenset[str]:
    """The paths of the parameters that a function of them reads.

    A vocabulary's head, say, is not read where states are.
    """
    jaxpr = jax.make_jaxpr(run)(params).jaxpr
    used = {id(x) for eqn in jaxpr.eqns for x in eqn.invars}
    used |= {id(x) for x in jaxpr.outvars}
    leaves = jax.tree_util.tree_leaves_with_path(params)
    return frozenset(
        jax.tree_util.keystr(path, simple=True, separator="/")
        for (path, _), variable in zip(leaves, jaxpr.invars, strict=True)
        if id(variable) in used
    )


def count_trained(state: dict, frozen: tuple[str, ...]) -> dict[str, int]:
    """How many numbers are trained of each part, and of how many in all.

    Args:
      frozen: as `find_frozen` gives them.

    >>> from numpy import zeros
    >>> state = {"network": {"a": zeros(5)}, "head": {"b": zeros(3)}, "extra": {}}
    >>> count_trained(state, ("network",))
    {'network': 0, 'head': 3, 'extra': 0, 'trained': 3, 'total': 8}
    """
    counts: dict[str, Any] = dict.fromkeys(state, 0)
    total = 0
    for path, leaf in jax.tree_util.tree_leaves_with_path(state):
        name = jax.tree_util.keystr(path, simple=True, separator="/")
        total += leaf.size
        if not any(f"{name}/".startswith(f"{part}/") for part in frozen):
            counts[name.split("/")[0]] += leaf.size
    return counts | {"trained": sum(counts.values()), "total": total}
