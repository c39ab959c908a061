"""Tables and lm-eval folders of known scores, for the tests of verdicts."""

import csv
import io
import json

import numpy as np

SYSTEMS = {"good": 0.8, "same": 0.79, "poor": 0.4}


def draw_rows(systems=SYSTEMS, seeds=5, examples=60, seed=0, per_group=2):
    """Rows of a table: right or wrong answers."""
    draw = np.random.default_rng(seed)
    ease = draw.normal(0, 0.1, examples)
    return [
        {
            "system": name,
            "seed": s,
            "example": f"e{e}",
            "group": f"g{e // per_group}",
            "score": int(draw.random() < share + ease[e]),
        }
        for name, share in systems.items()
        for s in range(seeds)
        for e in range(examples)
    ]


def draw_seeds(systems=SYSTEMS, seeds=5, seed=0):
    """Rows of one score for each run, with a cost."""
    draw = np.random.default_rng(seed)
    return [
        {"system": name, "seed": s, "score": share + draw.normal(0, 0.01), "cost": 1e9}
        for name, share in systems.items()
        for s in range(seeds)
    ]


def write_csv(path, rows, mark=","):
    """Writes rows as CSV; returns the path as a text."""
    out = io.StringIO(newline="")
    names = dict.fromkeys(name for row in rows for name in row)
    writer = csv.DictWriter(out, list(names), delimiter=mark, lineterminator="\n")
    writer.writeheader()
    writer.writerows(rows)
    path.write_text(out.getvalue(), encoding="utf-8")
    return str(path)


DATE = "2026-11-28T10-00-00.000001"


def write_samples(folder, rows, task="order", date=DATE, **changes):
    """Writes samples as lm-eval 0.4.13 does, a folder for each system and seed."""
    runs = {}
    for row in rows:
        runs.setdefault((row["system"], row["seed"]), []).append(row)
    for (system, seed), own in runs.items():
        place = folder / f"{system}-seed{seed}"
        place.mkdir(parents=True, exist_ok=True)
        lines = [
            json.dumps(
                {
                    "doc_id": int(str(row["example"]).removeprefix("e")),
                    "doc": {"text": "a b", "speech": row["group"]},
                    "target": "0",
                    "arguments": {"gen_args_0": {"arg_0": "a", "arg_1": " b"}},
                    "resps": [[["-1.5", "True"]]],
                    "filtered_resps": [["-1.5", "True"]],
                    "filter": "none",
                    "metrics": ["acc", "acc_norm"],
                    "doc_hash": "0f",
                    "acc": float(row["score"]),
                    "acc_norm": float(1 - row["score"]),
                }
                | changes
            )
            for row in own
        ]
        path = place / f"samples_{task}_{date}.jsonl"
        path.write_text("".join(line + "\n" for line in lines), encoding="utf-8")
    return str(folder)
