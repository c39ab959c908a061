"""Learning rate schedules: a warm-up followed by a decay."""

import jax.numpy as jnp
import optax
from jaxtyping import Array

from jaxpt.errors import ConfigError
from jaxpt.learn.optim_spec import OptimSpec


def make_schedules(spec: OptimSpec, num_steps: int) -> dict[str, optax.Schedule]:
    """The schedules of all learning rates by setting; they have the same shape."""
    schedules = {"lr": make_schedule(spec, num_steps)}
    if "muon_lr" in spec.settings():
        schedules["muon_lr"] = make_schedule(spec, num_steps, spec.muon_lr)
    return schedules


def make_schedule(
    spec: OptimSpec, num_steps: int, peak: float | None = None
) -> optax.Schedule:
    """The learning rate by step, at most `peak` (`spec.lr` if None).

    >>> spec = OptimSpec(lr=2.0, schedule="wsd", warmup_steps=4, decay_fraction=0.4)
    >>> schedule = make_schedule(spec, 10)
    >>> [round(float(schedule(step)), 2) for step in (0, 2, 4, 6, 7, 8, 9, 10)]
    [0.0, 1.0, 2.0, 2.0, 1.0, 0.59, 0.27, 0.0]
    """
    peak = spec.lr if peak is None else peak
    warmup = spec.warmup_steps
    if warmup and warmup >= num_steps:
        raise ConfigError(
            f"optim.warmup_steps={warmup}: must be below the run's {num_steps} steps"
        )
    if spec.schedule in WITH_WARMUP:
        return WITH_WARMUP[spec.schedule](spec, num_steps, peak)
    main = _make_main(spec, num_steps, peak)
    if not warmup:
        return main
    is_flat = spec.warmup_type == "flat"
    rise = optax.linear_schedule(peak * is_flat, peak, warmup)
    return optax.join_schedules([rise, main], [warmup])


def _make_main(spec: OptimSpec, num_steps: int, peak: float) -> optax.Schedule:
    """The schedule of the steps after the warm-up, counted from its end."""
    warmup = spec.warmup_steps
    rest = num_steps - warmup
    if spec.schedule == "cosine":
        return optax.cosine_decay_schedule(peak, rest, spec.min_lr_ratio)
    if spec.schedule == "linear":
        return optax.linear_schedule(peak, peak * spec.min_lr_ratio, rest)
    if spec.schedule == "constant":
        return optax.constant_schedule(peak)
    if spec.schedule == "wsd":
        num_decay = count_decay(spec, num_steps)
        if not 1 <= num_decay <= rest:
            raise ConfigError(
                f"optim.decay_fraction={spec.decay_fraction}: gives {num_decay} of the "
                f"run's {num_steps} steps; must give at least 1, and leave the "
                f"warm-up's {warmup}"
            )
        stable = optax.constant_schedule(peak)
        decay = _make_decay(spec, peak, num_decay)
        return optax.join_schedules([stable, decay], [rest - num_decay])
    # T5's 1/sqrt(max(step, warm-up)), scaled to start from `peak` (without a warm-up,
    # after 1 step).
    start = max(warmup, 1)
    return lambda step: peak * (start / (start + step)) ** 0.5


def count_decay(spec: OptimSpec, num_steps: int) -> int:
    """The steps in which wsd decays.

    A fraction of all steps, as in epfml/schedules-and-scaling.

    >>> spec = OptimSpec(schedule="wsd", decay_fraction=0.1)
    >>> [num - count_decay(spec, num) for num in (10, 20, 40)]  # where it begins
    [9, 18, 36]
    """
    return int(spec.decay_fraction * num_steps)


def _make_decay(spec: OptimSpec, peak: float, num_steps: int) -> optax.Schedule:
    """The decay of wsd, from `peak` to `peak * min_lr_ratio`."""
    final = spec.min_lr_ratio

    def decay(step: Array) -> Array:
        x = jnp.clip(step / num_steps, 0.0, 1.0)
        if spec.decay_shape == "exponential":
            return peak * final**x
        down = jnp.sqrt(x) if spec.decay_shape == "sqrt" else x
        return peak * (final + (1 - final) * (1 - down))

    return decay


def make_bert_linear(spec: OptimSpec, num_steps: int, peak: float) -> optax.Schedule:
    """A linear decay from step 0, whose first part the warm-up replaces.

    google-research/bert: optimization.py. The rate jumps down at the end of the
    warm-up.
    """
    fall = optax.linear_schedule(peak, 0.0, num_steps)
    rise = optax.linear_schedule(0.0, peak, max(spec.warmup_steps, 1))
    return lambda step: jnp.where(step < spec.warmup_steps, rise(step), fall(step))


def make_electra_linear(spec: OptimSpec, num_steps: int, peak: float) -> optax.Schedule:
    """A linear decay from step 0 times the warm-up (google-research/electra)."""
    fall = optax.linear_schedule(peak, 0.0, num_steps)
    rise = optax.linear_schedule(0.0, 1.0, max(spec.warmup_steps, 1))
    share = lambda step: rise(step) if spec.warmup_steps else 1.0  # noqa: E731
    return lambda step: share(step) * fall(step)


def make_slanted_triangle(
    spec: OptimSpec, num_steps: int, peak: float
) -> optax.Schedule:
    """ULMFiT's schedule: a short rise from peak / ratio, and a long decay back to it.

    Howard & Ruder 2018, equation 3. Departure: they divide the decay by
    cut (1 / slant_cut - 1), which is not the number of remaining steps unless
    slant_cut * num_steps is an integer; the rate would end below 0.
    """
    cut = int(num_steps * spec.slant_cut)

    def schedule(step: Array) -> Array:
        up = step / max(cut, 1)
        down = 1 - (step - cut) / (num_steps - cut)
        share = jnp.clip(jnp.where(step < cut, up, down), 0.0, 1.0)
        return peak * (1 + share * (spec.slant_ratio - 1)) / spec.slant_ratio

    return schedule


# Schedules that include the warm-up.
WITH_WARMUP = {
    "bert_linear": make_bert_linear,
    "electra_linear": make_electra_linear,
    "slanted_triangle": make_slanted_triangle,
}
