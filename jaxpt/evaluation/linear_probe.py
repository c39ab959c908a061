"""The exact linear probe: the best linear reading of frozen vectors, to convergence.

Vectors are standardised by the training examples' mean and deviation and read by L2
logistic regression, fitted by L-BFGS until it has converged; its strength C is chosen
on dev. Unlike a head that is trained by steps it has no learning rate, order or seed.
`evaluation.probe` is its quicker relative, which also chooses a layer and a pooling.
"""

import warnings
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from jaxpt.errors import UserError

# C, the inverse of the penalty: powers of ten.
STRENGTHS = tuple(10.0**power for power in range(-4, 4))
MOST_STEPS = 10_000
TOLERANCE = 1e-6  # of the gradient's largest entry


class LinearProbe(NamedTuple):
    """A fitted probe.

    Attributes:
      strength: the chosen C.
      dev: accuracy on dev by C.
    """

    model: Any
    strength: float
    dev: dict[float, float]

    def predict(self, vectors: Float[np.ndarray, "N D"]) -> np.ndarray:
        """The label of each vector."""
        return self.model.predict(vectors)


def fit_probe(
    vectors: Float[np.ndarray, "N D"],
    labels: np.ndarray,
    dev_vectors: Float[np.ndarray, "M D"],
    dev_labels: np.ndarray,
    strengths: tuple[float, ...] = STRENGTHS,
) -> LinearProbe:
    """The probe of the strength that is best on dev; of equal ones the smallest C.

    Raises:
      UserError: the training examples have fewer than two labels, or a fit does not
        converge.

    >>> vectors, labels = np.array([[0.0], [1.0], [2.0], [9.0]]), np.array([0, 0, 1, 1])
    >>> probe = fit_probe(vectors, labels, np.array([[0.5], [5.0]]), np.array([0, 1]))
    >>> probe.predict(np.array([[-1.0], [8.0]])).tolist()
    [0, 1]
    """
    if len(np.unique(labels)) < 2:
        raise UserError(
            f"a linear probe: the {len(labels)} training examples have one label; must "
            f"have two at least"
        )
    found = {}
    for strength in sorted(strengths):
        model = _fit(np.asarray(vectors, np.float64), labels, strength)
        hits = model.predict(np.asarray(dev_vectors, np.float64)) == dev_labels
        found[strength] = float(np.mean(hits)), model
    best = max(found, key=lambda strength: (found[strength][0], -strength))
    accuracies = {strength: accuracy for strength, (accuracy, _) in found.items()}
    return LinearProbe(found[best][1], best, accuracies)


def _fit(vectors: np.ndarray, labels: np.ndarray, strength: float):
    from sklearn.exceptions import ConvergenceWarning
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from threadpoolctl import threadpool_limits

    regression = LogisticRegression(C=strength, max_iter=MOST_STEPS, tol=TOLERANCE)
    model = make_pipeline(StandardScaler(), regression)
    with threadpool_limits(1), warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        try:
            return model.fit(vectors, labels)
        except ConvergenceWarning as fault:
            raise UserError(
                f"a linear probe of C={strength} has not converged after {MOST_STEPS} "
                f"steps"
            ) from fault
