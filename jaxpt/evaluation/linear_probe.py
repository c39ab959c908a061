"""The exact linear probe: logistic regression on frozen vectors, fitted to convergence.

Vectors are standardised by the mean and deviation of the training examples. The L2
logistic regression is fitted by L-BFGS until convergence; its strength C is chosen on
dev. Unlike a head that is trained by steps it has no learning rate, order or seed.
`evaluation.probe` is faster and also chooses a layer and a pooling.
"""

import warnings
from typing import Any, NamedTuple

import numpy as np
from jaxtyping import Float

from jaxpt.errors import DataError

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
    """The probe with the strength that is best on dev; of equals the smallest C.

    >>> vectors, labels = np.array([[0.0], [1.0], [2.0], [9.0]]), np.array([0, 0, 1, 1])
    >>> probe = fit_probe(vectors, labels, np.array([[0.5], [5.0]]), np.array([0, 1]))
    >>> probe.predict(np.array([[-1.0], [8.0]])).tolist()
    [0, 1]
    """
    if len(np.unique(labels)) < 2:
        raise DataError(
            f"a linear probe: the {len(labels)} training examples have one label; must "
            f"have at least two"
        )
    models, accuracies = {}, {}
    for strength in sorted(strengths):
        models[strength] = _fit(np.asarray(vectors, np.float64), labels, strength)
        answers = models[strength].predict(np.asarray(dev_vectors, np.float64))
        accuracies[strength] = float(np.mean(answers == dev_labels))
    best = max(accuracies, key=lambda strength: (accuracies[strength], -strength))
    return LinearProbe(models[best], best, accuracies)


def fit_logistic(
    vectors: np.ndarray, labels: np.ndarray, strength: float, **settings: float
) -> Any:
    """L2 logistic regression on standardised vectors; warns if it does not converge."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from threadpoolctl import threadpool_limits

    model = make_pipeline(StandardScaler(), LogisticRegression(C=strength, **settings))
    # Matrices this small are several times slower on several threads.
    with threadpool_limits(1):
        return model.fit(vectors, labels)


def _fit(vectors: np.ndarray, labels: np.ndarray, strength: float) -> Any:
    from sklearn.exceptions import ConvergenceWarning

    settings = {"max_iter": MOST_STEPS, "tol": TOLERANCE}
    with warnings.catch_warnings():
        warnings.simplefilter("error", ConvergenceWarning)
        try:
            return fit_logistic(vectors, labels, strength, **settings)
        except ConvergenceWarning as warning:
            raise DataError(
                f"a linear probe of C={strength} has not converged after {MOST_STEPS} "
                f"steps"
            ) from warning
