"""Few-shot prompts: solved training questions before each question.

    Question: ...\\nAnswer: no

    Question: ...\\nAnswer:          a blank line between, as in the GPT-3 paper

The answers of a model depend on the selection and order of the shots (Lu et al. 2022).
Both are drawn several times, and the spread over draws, and over orders within a draw,
is reported with the mean. A draw is the same for every model and every question.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from jaxpt.errors import ConfigError, argument
from jaxpt.zero_shot.questions import Question

SHOT_SEPARATOR = "\n\n"


class ShotSpec(NamedTuple):
    """The settings of few-shot prompts.

    Attributes:
      num_shots: the number of solved questions before each question.
      num_draws: the number of selections of shots.
      num_orders: the number of orders of each selection.
      seed: the seed of the draws.
    """

    num_shots: int = 0
    num_draws: int = 1
    num_orders: int = 1
    seed: int = 0

    def check(self, num_train: int) -> None:
        """Raises UserError if `num_train` questions do not allow these draws."""
        for name in ("num_shots", "num_draws", "num_orders"):
            least = 0 if name == "num_shots" else 1
            if getattr(self, name) < least:
                raise ConfigError(
                    f"{argument(name)}={getattr(self, name)}: must be at least {least}"
                )
        if self.num_shots > num_train:
            raise ConfigError(
                f"{argument('num_shots')}={self.num_shots}: must be at most "
                f"{num_train}, the rows of {argument('shots')}"
            )
        if self.num_orders > math.factorial(self.num_shots):
            raise ConfigError(
                f"{argument('num_orders')}={self.num_orders}: must be at most "
                f"{math.factorial(self.num_shots)} with "
                f"{argument('num_shots')}={self.num_shots}"
            )


def draw_prompts(
    train: Sequence[Question], spec: ShotSpec
) -> list[tuple[int, int, str]]:
    """(draw, order, text before a question) of each prompt.

    If all questions have the same options, the shots are balanced over classes as far
    as possible.
    """
    spec.check(len(train))
    prompts = []
    for draw in range(spec.num_draws):
        rng = np.random.default_rng([spec.seed, draw])
        chosen = _draw(train, spec.num_shots, rng)
        orders: dict[tuple[int, ...], None] = {}  # distinct orders
        while len(orders) < spec.num_orders:
            orders[tuple(rng.permutation(chosen).tolist())] = None
        for order, numbers in enumerate(orders):
            shots = [train[i].solved + SHOT_SEPARATOR for i in numbers]
            prompts.append((draw, order, "".join(shots)))
    return prompts


def _draw(train: Sequence[Question], num: int, rng: np.random.Generator) -> list[int]:
    """Indices of `num` questions."""
    order = rng.permutation(len(train)).tolist()
    if len({question.options for question in train}) > 1:
        return order[:num]
    # The k-th questions of all classes come before the (k+1)-th of any class.
    counts: dict[int, int] = {}
    ranked = []
    for place, i in enumerate(order):
        rank = counts.get(train[i].answer, 0)
        counts[train[i].answer] = rank + 1
        ranked.append((rank, place, i))
    return [i for _, _, i in sorted(ranked)[:num]]


class Spread(NamedTuple):
    """The variation of a metric over prompts.

    Attributes:
      mean: over all prompts.
      sd_draws: the standard deviation of the means of draws; NaN for one draw.
      sd_orders: the root of the mean variance over orders in a draw; NaN for one order.
      lowest, highest: over all prompts.
    """

    mean: float
    sd_draws: float
    sd_orders: float
    lowest: float
    highest: float


def find_spread(values: Float[np.ndarray, "D O"]) -> Spread:
    """The spread of a metric over draws and orders.

    >>> spread = find_spread(np.array([[0.5, 0.7], [0.6, 0.6]]))
    >>> round(spread.mean, 3), round(spread.sd_draws, 3), round(spread.sd_orders, 3)
    (0.6, 0.0, 0.1)
    """
    num_draws, num_orders = values.shape
    means = values.mean(1)
    sd_draws = float(means.std(ddof=1)) if num_draws > 1 else np.nan
    sd_orders = np.nan
    if num_orders > 1:
        sd_orders = float(np.sqrt(values.var(axis=1, ddof=1).mean()))
    ends = float(values.min()), float(values.max())
    return Spread(float(values.mean()), sd_draws, sd_orders, *ends)
