"""Runs that end by their own clock: when they end, and where their schedule stands.

With `train.seconds` a run trains until it has trained for so long, in whole calls; the
time is that of `train_seconds`, without compilation, evaluations and checkpoints. How
many steps that is, only the run finds out. So the learning rate, and whatever else
follows the progress of a run, follows the time: `train.steps` are the steps of the
schedule, which are spread over the seconds, and evaluations and checkpoints come at
multiples of these.

    step of the schedule = train.steps * seconds spent / train.seconds

It is fixed for a call before the call, by what calls have taken so far. The rows and
the draws of a step remain those of its number; a resumed run knows the seconds from its
log.
"""

from jaxpt.config.sections import TrainSpec


def is_over(spec: TrainSpec, step: int, seconds: float) -> bool:
    """Whether a run ends after so many steps, which took so many seconds.

    By the clock it ends where one more call would be further from its seconds.

    >>> spec = TrainSpec(steps=100, steps_per_call=10, seconds=5.0)
    >>> [is_over(spec, *at) for at in ((0, 0.0), (40, 4.0), (40, 4.4), (40, 4.5))]
    [False, False, False, True]
    """
    if not spec.seconds:
        return step >= spec.steps
    if not step:
        return False
    return seconds + _expect(spec, step, seconds) / 2 >= spec.seconds


def _expect(spec: TrainSpec, step: int, seconds: float) -> float:
    """How long a call takes, as those before it; the first as it was planned."""
    if not step:
        return spec.seconds * min(spec.steps_per_call / spec.steps, 1.0)
    return seconds / step * spec.steps_per_call


def find_schedule_step(spec: TrainSpec, seconds: float) -> int:
    """The step of the schedule after so many seconds of a run by the clock.

    >>> find_schedule_step(TrainSpec(steps=100, seconds=5.0), 1.25)
    25
    """
    return min(round(seconds / spec.seconds * spec.steps), spec.steps)


def plan_call(spec: TrainSpec, step: int, seconds: float) -> tuple[int, int]:
    """The steps of the schedule at which the next call begins and probably ends.

    >>> spec = TrainSpec(steps=100, steps_per_call=10, seconds=5.0)
    >>> plan_call(spec, 0, 0.0), plan_call(spec, 10, 1.0)
    ((0, 10), (20, 40))
    """
    end = seconds + _expect(spec, step, seconds)
    return find_schedule_step(spec, seconds), find_schedule_step(spec, end)
