"""Reports of comparisons without runs, to be summarised and drawn."""

import math

import numpy as np

from jaxpt.files.stored import Stored, to_plain
from jaxpt.report import summary as reporting
from jaxpt.report.types import Report, RunEntry

OBJECTIVES = ["clm", "mlm", "span_corruption", "electra"]


def make_entry(objective, seed=0, **metrics):
    """A run as report.json has it."""
    return {
        "name": objective,
        "objective": objective,
        "seed": seed,
        "params": 3_412_345,
        "steps": 1000,
        "row_length": 128,
        "batch_size": 64,
        "raw_tokens": 8_192_000,
        "model_tokens": 8_192_000,
        "flops": 1.67e14,
        "train_seconds": 120.0 + seed,
        "first_step_seconds": 9.5,
        "steps_per_second": 8.3,
        "metrics": metrics,
        "workdir": f"out/{objective}-{seed}",
        "curve": [
            {
                "step": 1000,
                "raw_tokens": 8_192_000,
                "flops": 1.67e14,
                "seconds": 120.0,
                "valid_loss": 2.0,
                "valid_accuracy": 0.4,
            }
        ],
    }


def make_run(objective, seed=0, **metrics):
    return read_run(make_entry(objective, seed, **metrics))


def read_run(entry):
    return RunEntry.from_json(to_plain(entry))


def vary(record, **changes):
    """A run or report with other values in report.json."""
    return type(record).from_json(to_plain(record.to_json() | write(changes)))


def with_metrics(run, **metrics):
    return vary(run, metrics={**run.metrics, **metrics})


def make_runs(values, metric="probe_accuracy"):
    return [
        make_run(objective, seed, **{metric: value})
        for objective, seeds in values.items()
        for seed, value in enumerate(seeds)
    ]


def make_report(runs, **changes):
    """A report of runs; `changes` are fields or their JSON."""
    plain = {name: write(value) for name, value in changes.items()}
    content = {
        "title": "Four objectives",
        "created": "2025-01-31T12:00:00",
        "version": "0.1.0",
        "config": {"model": {"d_model": 256}},
        "budget": {"kind": "flops", "amount": 1.67e14, "note": "as clm"},
        "data": {
            "path": "data/tales",
            "documents": 209,
            "train_tokens": 1_200_345,
            "valid_tokens": 60_000,
            "vocab_size": 4096,
            "tokenizer": "bpe",
        },
        "runs": write(runs),
        "alpha": 0.05,
        "metrics": write(reporting.summarise(runs)),
        "notes": {"flops": "forward and backward matrix products"},
        "figures": {},
    }
    return Report.from_json(to_plain(content | plain))


def write(value):
    """A field of a report as JSON."""
    if isinstance(value, Stored):
        return value.to_json()
    if isinstance(value, (list, tuple)):
        return [write(item) for item in value]
    if isinstance(value, dict):
        return {name: write(item) for name, item in value.items()}
    return value


def make_full_report():
    runs = [
        make_run(
            objective,
            seed,
            probe_accuracy=0.7 + seed / 100,
            probe_accuracy_random=0.4,
            valid_loss=math.nan if (objective, seed) == ("mlm", 1) else 12.5 + seed,
            valid_accuracy=0.3 + seed / 100,
            bits_per_byte=np.float32(2.0 + seed),
        )
        for objective in OBJECTIVES
        for seed in range(3)
    ]
    return make_report(runs)


TIMES = {"created", "train_seconds", "first_step_seconds", "steps_per_second"}


def without_times(report):
    """What of a report.json is the same of every comparison with the same settings."""
    if isinstance(report, dict):
        left = report.keys() - TIMES - {"seconds"}
        return {key: without_times(report[key]) for key in sorted(left)}
    if isinstance(report, list):
        return [without_times(value) for value in report]
    return report
