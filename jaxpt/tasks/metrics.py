"""Metrics of classification and regression, computed by scikit-learn and scipy.

A constant prediction has a Matthews and a rank correlation of 0, as they are undefined.
"""

import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from jaxtyping import Bool, Float, Int

BINS = 15  # of the calibration error (Guo et al. 2017)
# The columns of a label.
OF_LABEL = ("precision", "recall", "f1", "support")


def class_metrics(
    predicted: Sequence[int], right: Sequence[int], num_labels: int, positive: int
) -> dict[str, float]:
    """Accuracy, Matthews correlation, macro F1, and binary F1 if there are two labels.

    Macro F1 is the mean over labels that are predicted or right at least once, as in
    scikit-learn.

    Args:
      positive: the label that binary F1 is computed for.

    >>> y, p = [1, 1, 1, 0, 0, 1, 0, 1], [1, 0, 1, 0, 1, 1, 0, 1]
    >>> {k: round(v, 6) for k, v in class_metrics(p, y, 2, 1).items()}
    {'accuracy': 0.75, 'mcc': 0.466667, 'macro_f1': 0.733333, 'f1': 0.8}
    """
    from sklearn.metrics import f1_score, matthews_corrcoef

    y, p = np.asarray(right), np.asarray(predicted)
    values = {
        "accuracy": float(np.mean(y == p)),
        "mcc": float(matthews_corrcoef(y, p)),
        "macro_f1": float(f1_score(y, p, average="macro", zero_division=0)),
    }
    if num_labels == 2:
        values["f1"] = float(f1_score(y == positive, p == positive, zero_division=0))
    return values


def label_set_metrics(predicted: np.ndarray, right: np.ndarray) -> dict[str, float]:
    """Metrics of multi-label classification, of bool [N, C].

    Accuracy is the share of examples with all labels right; F1 is over all decisions
    together (micro) and the mean over labels (macro).
    """
    from sklearn.metrics import f1_score

    scores = {
        f"{name}_f1": float(f1_score(right, predicted, average=name, zero_division=0))
        for name in ("micro", "macro")
    }
    return {"accuracy": float(np.mean((predicted == right).all(axis=1)))} | scores


def calibration_error(
    confidences: Float[np.ndarray, "N"],
    is_right: Bool[np.ndarray, "N"],
    num_bins: int = BINS,
) -> float:
    """The expected calibration error (ECE): |accuracy - confidence| over bins.

    Bins have equal widths, (0, 1 / n], (1 / n, 2 / n], ..., and are weighted by their
    share of the predictions (Guo et al. 2017, equation 3).

    Args:
      confidences: the probability of each prediction.

    >>> confidences, is_right = np.array([0.9, 0.9, 0.6]), np.array([True, False, True])
    >>> round(calibration_error(confidences, is_right, 2), 6)
    0.133333
    """
    bins = np.clip(np.ceil(confidences * num_bins) - 1, 0, num_bins - 1).astype(int)
    gaps = np.bincount(bins, is_right - confidences, num_bins)
    return float(np.abs(gaps).sum() / len(confidences))


def class_report(
    probabilities: Float[np.ndarray, "N C"],
    predicted: Int[np.ndarray, "N"] | Bool[np.ndarray, "N C"],
    right: Int[np.ndarray, "N"] | Bool[np.ndarray, "N C"],
    labels: Sequence[str],
) -> dict[str, Any]:
    """Confusion matrix, metrics of each label, AUC and calibration, as JSON values.

    Args:
      predicted, right: numbers of labels; for multi-label examples, whether each label
        is there.

    Returns:
      "confusion": counts [C, C], a row for each right label; multi-label [C, 2, 2].
      "per_label": precision, recall, F1 and support by label. "auc": the mean over
      labels of the area under the one-versus-rest ROC curve, over labels that some
      examples have and some do not; None if there is none. "ece": `calibration_error`
      of the predictions, with "ece_bins".
    """
    from sklearn import metrics

    numbers = np.arange(len(labels))
    is_label = right if right.ndim == 2 else right[:, None] == numbers
    if right.ndim == 2:
        confusion = metrics.multilabel_confusion_matrix(right, predicted)
        confidences = np.maximum(probabilities, 1 - probabilities).ravel()
        is_right = (predicted == right).ravel()
    else:
        confusion = metrics.confusion_matrix(right, predicted, labels=numbers)
        confidences, is_right = probabilities.max(axis=1), predicted == right
    each = metrics.precision_recall_fscore_support(
        right, predicted, labels=numbers, zero_division=0
    )
    areas = [
        metrics.roc_auc_score(is_label[:, i], probabilities[:, i])
        for i in numbers
        if 0 < is_label[:, i].sum() < len(right)
    ]
    return {
        "confusion": confusion.tolist(),
        "per_label": {
            label: {name: x[i].item() for name, x in zip(OF_LABEL, each, strict=True)}
            for i, label in enumerate(labels)
        },
        "auc": float(np.mean(areas)) if areas else None,
        "ece": calibration_error(confidences, is_right),
        "ece_bins": BINS,
    }


def number_metrics(
    predicted: Sequence[float], right: Sequence[float]
) -> dict[str, float]:
    """Pearson's and Spearman's correlation, and the root mean squared error.

    All are NaN if a prediction is not finite.

    >>> values = number_metrics([0.1, 0.9, 2.5, 2.4, 5], [0, 1, 2, 3, 5])
    >>> {name: round(value, 6) for name, value in values.items()}
    {'pearson': 0.97856, 'spearman': 0.9, 'rmse': 0.354965}
    """
    from scipy import stats

    p, y = (np.asarray(x, np.float64) for x in (predicted, right))
    if not np.isfinite(p).all():
        return dict.fromkeys(("pearson", "spearman", "rmse"), float("nan"))
    rmse = float(np.sqrt(np.mean((p - y) ** 2)))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # a constant prediction, which is 0 here
        values = {
            "pearson": float(stats.pearsonr(p, y).statistic) if len(y) > 1 else 0.0,
            "spearman": float(stats.spearmanr(p, y).statistic) if len(y) > 1 else 0.0,
        }
    return {k: 0.0 if np.isnan(v) else v for k, v in values.items()} | {"rmse": rmse}
