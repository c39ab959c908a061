"""From (sum, weight) pairs to the numbers that are reported."""

import math


def add(left: dict, right: dict) -> dict:
    """Two dicts of (sum, weight) added up, name by name."""
    return {
        name: (left[name][0] + right[name][0], left[name][1] + right[name][1])
        for name in left
    }


def counted(found: dict) -> dict:
    """Those of which anything was counted: a batch may lack a kind of row."""
    return {name: pair for name, pair in found.items() if float(pair[1])}


def divide(sums: dict) -> dict[str, float]:
    """Means, as floats; NaN where nothing was counted.

    >>> divide({"loss": (6.0, 4.0)})
    {'loss': 1.5}
    """
    return {
        name: float(total) / float(weight) if float(weight) else math.nan
        for name, (total, weight) in sums.items()
    }


def perplexity(nats_per_token: float) -> float:
    """exp of the mean loss; infinite where that overflows."""
    return math.exp(nats_per_token) if nats_per_token < 700 else math.inf


def bits_per_byte(nll: float, num_bytes: float) -> float:
    """A summed negative log-likelihood in nats over the bytes of text it covers.

    >>> round(bits_per_byte(math.log(256) * 10, 10), 6)
    8.0
    """
    return nll / math.log(2) / num_bytes
