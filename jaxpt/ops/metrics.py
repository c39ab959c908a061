"""Adds (sum, weight) pairs and divides them to metrics."""

import math


def add(left: dict, right: dict) -> dict:
    """Adds two dicts of (sum, weight) by name."""
    return {
        name: (left[name][0] + right[name][0], left[name][1] + right[name][1])
        for name in left
    }


def counted(sums: dict) -> dict:
    """Only the pairs whose weight is not 0: a batch may lack a kind of row."""
    return {name: pair for name, pair in sums.items() if float(pair[1])}


def divide(sums: dict) -> dict[str, float]:
    """The means as floats; NaN where the weight is 0.

    >>> divide({"loss": (6.0, 4.0)})
    {'loss': 1.5}
    """
    return {
        name: float(total) / float(weight) if float(weight) else math.nan
        for name, (total, weight) in sums.items()
    }


def perplexity(nll: float) -> float:
    """exp of the mean negative log-likelihood per token; infinite if that overflows."""
    return math.exp(nll) if nll < 700 else math.inf


def bits_per_byte(nll: float, num_bytes: float) -> float:
    """A summed negative log-likelihood in nats as bits per byte of its text.

    >>> round(bits_per_byte(math.log(256) * 10, 10), 6)
    8.0
    """
    return nll / math.log(2) / num_bytes
