"""Metrics of classes and of numbers, each between predictions and what is right.

A constant prediction has a Matthews and a rank correlation of 0, where they are not
defined. scikit-learn and scipy compute them.
"""

import warnings
from collections.abc import Sequence

import numpy as np


def class_metrics(
    predicted: Sequence[int], right: Sequence[int], num_labels: int, positive: int
) -> dict[str, float]:
    """Accuracy, Matthews correlation, macro F1, and of two labels F1 of one.

    Macro F1 is the mean over labels that are predicted or right at least once, as
    scikit-learn's.

    Args:
      positive: the label that binary F1 is of.

    >>> y, p = [1, 1, 1, 0, 0, 1, 0, 1], [1, 0, 1, 0, 1, 1, 0, 1]
    >>> {k: round(v, 6) for k, v in class_metrics(p, y, 2, 1).items()}
    {'accuracy': 0.75, 'mcc': 0.466667, 'macro_f1': 0.733333, 'f1': 0.8}
    """
    from sklearn.metrics import f1_score, matthews_corrcoef

    y, p = np.asarray(right), np.asarray(predicted)
    found = {
        "accuracy": float(np.mean(y == p)),
        "mcc": float(matthews_corrcoef(y, p)),
        "macro_f1": float(f1_score(y, p, average="macro", zero_division=0)),
    }
    if num_labels == 2:
        is_right, is_said = y == positive, p == positive
        found["f1"] = float(f1_score(is_right, is_said, zero_division=0))
    return found


def label_set_metrics(predicted: np.ndarray, right: np.ndarray) -> dict[str, float]:
    """Of bool [N, C], where an example has any number of labels.

    Accuracy is the share of examples all of whose labels are right; F1 is over all
    decisions together (micro) and the mean over labels (macro).
    """
    from sklearn.metrics import f1_score

    scores = {
        f"{name}_f1": float(f1_score(right, predicted, average=name, zero_division=0))
        for name in ("micro", "macro")
    }
    return {"accuracy": float(np.mean((predicted == right).all(axis=1)))} | scores


def number_metrics(
    predicted: Sequence[float], right: Sequence[float]
) -> dict[str, float]:
    """Pearson's and Spearman's correlation, and the root of the mean squared error.

    >>> found = number_metrics([0.1, 0.9, 2.5, 2.4, 5], [0, 1, 2, 3, 5])
    >>> {name: round(value, 6) for name, value in found.items()}
    {'pearson': 0.97856, 'spearman': 0.9, 'rmse': 0.354965}
    """
    from scipy import stats

    p, y = (np.asarray(x, np.float64) for x in (predicted, right))
    rmse = float(np.sqrt(np.mean((p - y) ** 2)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of a constant, which is 0 here
        found = {
            "pearson": float(stats.pearsonr(p, y).statistic) if len(y) > 1 else 0.0,
            "spearman": float(stats.spearmanr(p, y).statistic) if len(y) > 1 else 0.0,
        }
    return {k: 0.0 if np.isnan(v) else v for k, v in found.items()} | {"rmse": rmse}
