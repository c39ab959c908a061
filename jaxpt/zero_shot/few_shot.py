"""Few-shot prompts: solved questions of the training data before each question.

    Question: ...\\nAnswer: no

    Question: ...\\nAnswer:          a blank line between, as in the GPT-3 paper

What a model answers depends on which questions are shown, and in which order (Lu et al.
2022): both are drawn several times, and the spread over draws, and over orders of one
draw, stands beside the mean. A draw is the same for every model and every question.
"""

import math
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from jaxtyping import Float

from jaxpt.errors import UserError
from jaxpt.zero_shot.questions import Question

BETWEEN = "\n\n"


class ShotSpec(NamedTuple):
    """Which prompts are made.

    Attributes:
      num_shots: solved questions before each; 0 is none.
      num_draws: how often the questions are drawn anew.
      num_orders: of each draw, in how many orders they are shown.
      seed: of the draws.
    """

    num_shots: int = 0
    num_draws: int = 1
    num_orders: int = 1
    seed: int = 0

    def check(self, num_train: int) -> None:
        """Raises UserError for what cannot be drawn from so many questions."""
        for name in ("num_shots", "num_draws", "num_orders"):
            least = 0 if name == "num_shots" else 1
            if getattr(self, name) < least:
                raise UserError(
                    f"--{name}={getattr(self, name)}: must be at least {least}"
                )
        if self.num_shots > num_train:
            raise UserError(
                f"--num_shots={self.num_shots}: must be at most {num_train}, the rows "
                f"of --shots"
            )
        if self.num_orders > math.factorial(self.num_shots):
            raise UserError(
                f"--num_orders={self.num_orders}: must be at most "
                f"{math.factorial(self.num_shots)} with --num_shots={self.num_shots}"
            )


def draw_prompts(
    train: Sequence[Question], spec: ShotSpec
) -> list[tuple[int, int, str]]:
    """(draw, order, text before a question) of each prompt.

    The shots are balanced where all questions have the same options: of each class
    equally many, as far as they go; otherwise any of the questions.

    Raises:
      UserError: the spec asks for more than there is.
    """
    spec.check(len(train))
    prompts = []
    for draw in range(spec.num_draws):
        rng = np.random.default_rng([spec.seed, draw])
        chosen = _draw(train, spec.num_shots, rng)
        orders: dict[tuple[int, ...], None] = {}  # no order twice
        while len(orders) < spec.num_orders:
            orders[tuple(rng.permutation(chosen).tolist())] = None
        for order, numbers in enumerate(orders):
            shots = [train[i].solved + BETWEEN for i in numbers]
            prompts.append((draw, order, "".join(shots)))
    return prompts


def _draw(train: Sequence[Question], num: int, rng: np.random.Generator) -> list[int]:
    """Indices of `num` questions."""
    order = rng.permutation(len(train)).tolist()
    if len({question.options for question in train}) > 1:
        return order[:num]
    # The k-th of each class come before the (k+1)-th of any.
    seen: dict[int, int] = {}
    ranked = []
    for place, i in enumerate(order):
        rank = seen.get(train[i].answer, 0)
        seen[train[i].answer] = rank + 1
        ranked.append((rank, place, i))
    return [i for _, _, i in sorted(ranked)[:num]]


class Spread(NamedTuple):
    """How a figure varies over prompts.

    Attributes:
      mean: over all prompts.
      sd_draws: the standard deviation of the draws' means; NaN of one draw.
      sd_orders: the root of the mean variance over orders within a draw; NaN of one.
      lowest, highest: of all prompts.
    """

    mean: float
    sd_draws: float
    sd_orders: float
    lowest: float
    highest: float


def find_spread(values: Float[np.ndarray, "D O"]) -> Spread:
    """The spread of a figure [draws, orders].

    >>> found = find_spread(np.array([[0.5, 0.7], [0.6, 0.6]]))
    >>> round(found.mean, 3), round(found.sd_draws, 3), round(found.sd_orders, 3)
    (0.6, 0.0, 0.1)
    """
    num_draws, num_orders = values.shape
    means = values.mean(1)
    sd_draws = float(means.std(ddof=1)) if num_draws > 1 else np.nan
    sd_orders = np.nan
    if num_orders > 1:
        sd_orders = float(np.sqrt(values.var(axis=1, ddof=1).mean()))
    return Spread(
        float(values.mean()),
        sd_draws,
        sd_orders,
        float(values.min()),
        float(values.max()),
    )
