"""A finished run's entry in a report (`result.json`), as it is read."""

import numbers
from pathlib import Path

from jaxpt.files.folder import load_measured

RESULT = "result.json"
_POINT = {"step": int, "raw_tokens?": float, "flops?": float, "seconds?": float}
_PROBE = {
    "layer": int,
    "num_layers": int,
    "pooling": str,
    "is_chosen": bool,
    "test_passages": int,
    "poolings": [str],
    "accuracies": ([[numbers.Real]], None),
}
# The schema of result.json; metrics may be NaN.
SCHEMA = {
    **dict.fromkeys(("objective", "device?", "workdir?"), str),
    **dict.fromkeys(("seed", "params", "steps", "row_length"), int),
    **dict.fromkeys(("raw_tokens", "flops", "train_seconds"), float),
    **dict.fromkeys(("model_tokens?", "first_step_seconds?"), float),
    **dict.fromkeys(("steps_per_second?", "ema_decay?"), float),
    "batch_size?": int,
    "machine?": {"cpu": str, "instructions": str, "cores": int},
    "versions?": {str: str},
    "source?": {
        "run": str,
        **dict.fromkeys(("flops", "raw_tokens", "train_seconds"), (numbers.Real, None)),
    },
    "metrics": {str: numbers.Real},
    "probe?": {str: _PROBE},
    "curve": [_POINT | {str: numbers.Real}],
}


def load_result(workdir: Path) -> dict | None:
    """A finished run's entry in a report; None while it is not finished."""
    path = workdir / RESULT
    return load_measured(path, SCHEMA) if path.exists() else None
