"""Optimizers of optax by name: `optim.name=optax.adan`, `optax.contrib.prodigy`.

A name is that of a public function of `optax` or `optax.contrib` with a parameter
`learning_rate`; nothing else is ever looked up, so a stored name cannot run other code.
Parameters of the function are set by `optim.args`, except those that are jaxpt's:

    learning_rate           the rate of `optim.schedule` at each step, also for
                            functions that take a number only
    weight_decay, mask      `optim.weight_decay` of kernels and tables, if the function
                            has a mask; without a mask it is an argument like others,
                            and decays all parameters; without `weight_decay` decay is
                            added as to the built-in optimizers, times the rate

Muon's rule for matrices of two axes applies to single layers, also if they are scanned.
A schedule-free optimizer trains y, and its average x is evaluated
(`average_schedule_free`).
"""

import ast
import functools
import inspect
import math
import re
import types
import typing
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import jax
import jax.numpy as jnp
import optax
from jax.tree_util import KeyPath
from jaxtyping import Array, PyTree
from optax import contrib

from jaxpt.errors import ConfigError, suggest
from jaxpt.learn.optimizer import decay_mask
from jaxpt.nn.scan import is_stacked

if TYPE_CHECKING:
    from jaxpt.learn.optim_spec import OptimSpec

NAME = re.compile(r"optax\.(contrib\.)?([a-z][a-z0-9_]*)")
# Optimizers whose updates need more than gradients and parameters, or have no rate.
REFUSED = {
    "optax.lbfgs": "needs the loss as a function of the parameters",
    "optax.noisy_sgd": "draws noise with its own key",
    "optax.polyak_sgd": "needs the value of the loss",
    "optax.rprop": "uses its learning rate for the first step alone",
    "optax.contrib.dpsgd": "needs the gradient of each example",
    "optax.contrib.momo": "needs the value of the loss",
    "optax.contrib.momo_adam": "needs the value of the loss",
    "optax.contrib.schedule_free": "needs another optimizer",
    "optax.contrib.sophia": "needs the loss as a function, for its Hessian",
}
# Parameters that jaxpt sets, by the setting that a user has for them.
OWN = {
    "learning_rate": "optim.lr and optim.schedule",
    "warmup_steps": "optim.warmup_steps",
    "weight_decay_rate": "optim.weight_decay",
    "adam_weight_decay": "optim.weight_decay",
    "mask": "optim.weight_decay",
    "weight_decay_mask": "optim.weight_decay",
}
MASKS = ("mask", "weight_decay_mask")
_WORDS: dict[Any, str] = {
    bool: "True or False",
    int: "a whole number",
    float: "a number",
    str: "a text",
    type(None): "None",
}

Maker = Callable[..., optax.GradientTransformation]


def list_names() -> list[str]:
    """The names of all optimizers that `optim.name` can have.

    >>> names = list_names()
    >>> "optax.adan" in names, "optax.scale_by_adam" in names, "optax.lbfgs" in names
    (True, False, False)
    """
    places = (("optax", optax), ("optax.contrib", contrib))
    names = [f"{place}.{name}" for place, module in places for name in dir(module)]
    return [name for name in names if name not in REFUSED and _find(name) is not None]


def _find(name: str) -> Maker | None:
    """The function with this name, if it makes an optimizer."""
    match = NAME.fullmatch(name)
    if match is None or match[2].startswith("scale_by_"):
        return None
    function = getattr(contrib if match[1] else optax, match[2], None)
    if not inspect.isfunction(function):
        return None
    names = inspect.signature(function).parameters
    is_own = function.__module__.partition(".")[0] == "optax"
    return function if is_own and "learning_rate" in names else None


def find(name: str) -> Maker:
    """The function of optax with this name.

    >>> find("optax.scale_by_adam")
    Traceback (most recent call last):
    jaxpt.errors.ConfigError: optim.name=optax.scale_by_adam: must be an optimizer of \
optax with a learning rate, such as optax.adan or optax.contrib.prodigy...
    """
    if name in REFUSED:
        raise ConfigError(f"optim.name={name}: cannot be used, as it {REFUSED[name]}")
    function = _find(name)
    if function is None:
        raise ConfigError(
            f"optim.name={name}: must be an optimizer of optax with a learning rate, "
            f"such as optax.adan or optax.contrib.prodigy{suggest(name, list_names())}"
        )
    return function


def read_args(text: str) -> dict[str, Any]:
    """The arguments that a text has: Python's literals, by name.

    >>> read_args("b1=0.95, nesterov=True, betas=(0.9, 0.99)")
    {'b1': 0.95, 'nesterov': True, 'betas': (0.9, 0.99)}
    """
    try:
        call = ast.parse(f"f({text})", mode="eval").body
        if not isinstance(call, ast.Call) or call.args:
            raise ValueError("not a list of NAME=VALUE")
        if not isinstance(call.func, ast.Name):  # the text closed the parenthesis
            raise ValueError("not a list of NAME=VALUE")
        names = [each.arg for each in call.keywords]
        if None in names or len(set(names)) < len(names):  # **{...}, or twice
            raise ValueError("not a list of NAME=VALUE")
        return {str(k.arg): ast.literal_eval(k.value) for k in call.keywords}
    except (ValueError, SyntaxError, RecursionError, MemoryError) as error:
        raise ConfigError(
            f"optim.args={text}: must be NAME=VALUE pairs with numbers, True, False, "
            "None, quoted texts or tuples, such as b1=0.95, nesterov=True"
        ) from error


def check(spec: "OptimSpec") -> None:
    """Raises ConfigError unless the optimizer can be made with these settings."""
    function = find(spec.name)
    parameters = inspect.signature(function, eval_str=True).parameters
    args = read_args(spec.args)
    has_mask, has_decay = _has_mask(function), "weight_decay" in parameters
    for name, value in args.items():
        _check_arg(spec, parameters, name, value, has_mask)
    given = args.keys() | _provide(spec, function).keys()
    for name, each in parameters.items():
        is_needed = each.default is each.empty and name != "learning_rate"
        if is_needed and name not in given:
            raise ConfigError(
                f"optim.args={spec.args or repr('')}: must have {name}, which "
                f"{spec.name} needs"
            )
    if has_decay and not has_mask:
        text = "0, as {0} has no mask for it; weight_decay in optim.args is of all {1}"
        allowed = text.format(spec.name, "parameters")
        spec.check("weight_decay", spec.weight_decay == 0, allowed)
    if has_decay:
        after = f"as {spec.name} applies its own weight decay"
        spec.check("decay_overrides", not spec.decay_overrides, f"'', {after}")
        spec.check("cautious_decay", not spec.cautious_decay, f"False, {after}")
    if spec.warmup_type == "linear" and _needs_first_rate(spec.name, args):
        after = f"as {spec.name} divides by a sum of its first rates, and 0 gives NaN"
        spec.check("warmup_steps", spec.warmup_steps == 0, f"0, {after}")
    if spec.is_schedule_free:
        after = f"with {spec.name}"
        spec.check("schedule", spec.schedule == "constant", f"constant {after}")
        spec.check("ema_decay", spec.ema_decay == 0, f"0 {after}, which averages")
    _try(spec)


def _needs_first_rate(name: str, args: dict[str, Any]) -> bool:
    """Whether the learning rate must not begin at 0."""
    if name == "optax.contrib.prodigy":
        return not args.get("safeguard_warmup", False)
    return name == "optax.contrib.dadapt_adamw"


def _check_arg(
    spec: "OptimSpec",
    parameters: typing.Mapping[str, inspect.Parameter],
    name: str,
    value: Any,
    has_mask: bool,
) -> None:
    """Raises ConfigError unless an argument exists, is the user's, and of its type."""
    place = f"optim.args={spec.args}: {name}"
    own = OWN | ({"weight_decay": "optim.weight_decay"} if has_mask else {})
    if name not in parameters:
        listed = [n for n in parameters if n not in own and _is_settable(parameters, n)]
        raise ConfigError(
            f"{place}: unknown argument{suggest(name, listed)}; {spec.name} has "
            f"{', '.join(listed) or 'none'}"
        )
    if name in own:
        raise ConfigError(f"{place}: is set by {own[name]}")
    kind = _read_kind(parameters[name])
    if not fits(value, kind):
        allowed = describe(kind) or "left out, as text cannot express it"
        raise ConfigError(f"{place}={value!r}: must be {allowed}")


def _is_settable(parameters: typing.Mapping[str, inspect.Parameter], name: str) -> bool:
    return bool(describe(_read_kind(parameters[name])))


def _read_kind(parameter: inspect.Parameter) -> Any:
    """The declared type of a parameter; of a dtype without one, a text."""
    if "dtype" in parameter.name:
        return str | None
    if parameter.annotation is not parameter.empty:
        return parameter.annotation
    return type(parameter.default)


def fits(value: Any, kind: Any) -> bool:
    """Whether a value is of a declared type of optax; arrays are numbers.

    >>> fits(0.9, jax.typing.ArrayLike), fits(True, jax.typing.ArrayLike)
    (True, False)
    >>> fits((0.9, 0.99), tuple[float, float]), fits(1.5, int), fits(None, int | None)
    (True, False, True)
    """
    return any(_fits_one(value, each) for each in _split(kind))


def _fits_one(value: Any, kind: Any) -> bool:
    origin, items = typing.get_origin(kind), typing.get_args(kind)
    if origin is typing.Literal:
        return value in items
    if origin is tuple:
        if not isinstance(value, tuple):
            return False
        is_open = len(items) == 2 and items[1] is ...
        kinds = items[:1] * len(value) if is_open else items
        return len(kinds) == len(value) and all(map(fits, value, kinds))
    if kind is float or kind is int:
        is_number = isinstance(value, int | kind) and not isinstance(value, bool)
        return is_number and math.isfinite(value)
    return kind in _WORDS and isinstance(value, kind)


def _split(kind: Any) -> list[Any]:
    """The alternatives of a type; an array or a schedule is a number."""
    if typing.get_origin(kind) not in (typing.Union, types.UnionType):
        return [kind]
    kinds = list(typing.get_args(kind))
    if jax.Array in kinds:  # ArrayLike, which has bool and complex, too
        kinds = [each for each in kinds if each not in (bool, complex)]
    return kinds


def describe(kind: Any) -> str:
    """What a parameter takes that a text can express; "" if it is nothing.

    >>> describe(jax.typing.ArrayLike | None), describe(bool), describe(Callable)
    ('a number or None', 'True or False', '')
    """
    words: dict[str, None] = {}
    for each in _split(kind):
        if typing.get_origin(each) is typing.Literal:
            words[f"one of {', '.join(map(str, typing.get_args(each)))}"] = None
        elif typing.get_origin(each) is tuple:
            items = typing.get_args(each)
            size = "" if items[-1] is ... else f" of {len(items)}"
            words[f"a tuple{size}"] = None
        elif each in _WORDS:
            words[_WORDS[each]] = None
    if "a number" in words:
        words.pop("a whole number", None)
    return "" if list(words) == ["None"] else " or ".join(words)


def _has_mask(function: Maker) -> bool:
    names = inspect.signature(function).parameters
    return "weight_decay" in names and any(name in names for name in MASKS)


def _provide(spec: "OptimSpec", function: Maker) -> dict[str, Any]:
    """The parameters that jaxpt sets, without the learning rate."""
    names, values = inspect.signature(function).parameters, dict[str, Any]()
    if _has_mask(function):
        values = {"weight_decay": spec.weight_decay}
        values |= {name: decay_mask for name in MASKS if name in names}
    if "muon_weight_dimension_numbers" in names:
        values["muon_weight_dimension_numbers"] = number_matrices
    return values


def number_matrices(params: PyTree) -> PyTree:
    """The axes of matrices for optax's Muon; None for all that Adam updates."""

    def number(path: KeyPath, leaf: Array) -> Any:
        is_matrix = leaf.ndim - is_stacked(path) == 2
        return contrib.MuonDimensionNumbers(-2, -1) if is_matrix else None

    return jax.tree_util.tree_map_with_path(number, params)


def _try(spec: "OptimSpec") -> None:
    """Makes the optimizer once, for what only its function checks."""
    params = {"kernel": jax.ShapeDtypeStruct((4, 4), jnp.float32)}
    made = make_named(spec, lambda step: jnp.ones(()))
    try:
        state = jax.eval_shape(made.init, params)
        jax.eval_shape(made.update, params, state, params)
    except ConfigError:
        raise
    except Exception as error:  # whatever optax or JAX raises for a value
        reason = str(error).strip().partition("\n")[0]
        raise ConfigError(
            f"optim.args={spec.args or repr('')}: {spec.name} cannot be made: {reason}"
        ) from error


def make_named(
    spec: "OptimSpec", schedule: Callable[[Any], Any]
) -> optax.GradientTransformation:
    """The optimizer of optax, with the learning rate of the run's step.

    Its state is the step and the optimizer's, made in each step with the rate as a
    number (as `optax.inject_hyperparams` does), so that the rate follows the run's
    step after skipped updates and with a budget of seconds, too.
    """
    function, args = find(spec.name), read_args(spec.args)
    args |= _provide(spec, function)

    def make(step: Any) -> optax.GradientTransformation:
        made = function(learning_rate=schedule(step), **args)
        if not isinstance(made, optax.GradientTransformation):
            raise ConfigError(f"optim.name={spec.name}: makes no optimizer of optax")
        return made

    def init(params: PyTree) -> optax.OptState:
        # A copy, because some keep the parameters, which are donated separately.
        inner = jax.tree.map(jnp.array, make(0).init(params))
        return optax.ScaleByScheduleState(jnp.zeros((), jnp.int32)), inner

    def update(
        grads: PyTree, state: optax.OptState, params: PyTree = None
    ) -> tuple[PyTree, optax.OptState]:
        clock, inner = state
        updates, inner = make(clock.count).update(grads, inner, params)
        next_step = optax.safe_increment(clock.count)
        return updates, (optax.ScaleByScheduleState(next_step), inner)

    return optax.GradientTransformation(init, update)


def adds_decay(name: str) -> bool:
    """Whether an optimizer has no weight decay, so that jaxpt adds it.

    >>> adds_decay("optax.adam"), adds_decay("optax.adamw")
    (True, False)
    """
    return "weight_decay" not in inspect.signature(find(name)).parameters


def average_schedule_free(params: PyTree, opt_state: optax.OptState) -> PyTree:
    """The average x = (y - (1 - b1) z) / b1 of a schedule-free optimizer's parameters.

    `optax.contrib.schedule_free_eval_params`, of a state inside others; parameters that
    are not trained are kept.
    """
    is_state = functools.partial(_is, contrib.ScheduleFreeState)
    leaves = jax.tree.leaves(opt_state, is_leaf=is_state)
    (state,) = (leaf for leaf in leaves if is_state(leaf))
    is_masked = functools.partial(_is, optax.MaskedNode)

    def average(z: Any, y: Array) -> Array:
        return y if is_masked(z) else (y - (1 - state.b1) * z) / state.b1

    return jax.tree.map(average, state.z, params, is_leaf=is_masked)


def _is(kind: type, value: Any) -> bool:
    return isinstance(value, kind)


def count_products(spec: "OptimSpec", params: PyTree) -> float:
    """Operations of the matrix products of an update, 2 for each multiply-add.

    Counted in the update's jaxpr: products of two arrays that both have an axis in the
    result. A loop of unknown length counts once; SVDs and the like do not count.

    >>> from jaxpt.learn.optim_spec import OptimSpec
    >>> params = {"kernel": jax.ShapeDtypeStruct((64, 16), jnp.float32)}
    >>> count_products(OptimSpec(name="optax.contrib.muon"), params)  # as `count_flops`
    368640.0
    """
    made = make_named(spec, lambda step: jnp.ones(()))
    state = jax.eval_shape(made.init, params)
    return _count(jax.make_jaxpr(made.update)(params, state, params).jaxpr)


def _count(jaxpr: Any) -> float:
    """The operations of a jaxpr's matrix products."""
    total = 0.0
    for equation in jaxpr.eqns:
        if equation.primitive.name == "dot_general":
            total += _count_product(equation)
        repeats = equation.params.get("length", 1)
        for value in equation.params.values():
            total += repeats * sum(map(_count, _list_jaxprs(value)))
    return total


def _count_product(equation: Any) -> float:
    (contracted, _), (batch, _) = equation.params["dimension_numbers"]
    left, right = (each.aval.shape for each in equation.invars)
    num_inner = len(contracted) + len(batch)
    if len(left) == num_inner or len(right) == num_inner:
        return 0.0
    inner = math.prod(left[axis] for axis in contracted)
    return 2.0 * inner * math.prod(equation.outvars[0].aval.shape)


def _list_jaxprs(value: Any) -> list[Any]:
    """The jaxprs in a parameter of an equation."""
    values = value if isinstance(value, tuple | list) else (value,)
    inner = [getattr(each, "jaxpr", each) for each in values]
    return [each for each in inner if hasattr(each, "eqns")]
