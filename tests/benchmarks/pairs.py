"""Minimal pairs per second by pseudo-log-likelihood, compared with minicons.

    make test-peers   # once, for an environment with torch and minicons
    .venv-peers/bin/python tests/benchmarks/pairs.py --blimp data/blimp.tar.xz

A BERT with random weights in a published small size (4 layers of 512, 30,522 ids) is
made with transformers and imported by `jaxpt import`; the tokenizer is trained on the
pairs. Both score the same pairs by the rule `pll`, and the scores are compared. Rounds
alternate; the first round of each, with compilation, is excluded, and its seconds are
printed. jaxpt's rates include everything from texts to sums.
"""

import argparse
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np
import torch
import transformers
from minicons import scorer as minicons

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from zero_shot.peer_models import write_model, write_wordpiece

from jaxpt.config.settings import default_config
from jaxpt.hub.imports import import_run
from jaxpt.runs.scorer import make_scorer
from jaxpt.runs.workdir import load_run
from jaxpt.zero_shot.pairs import read_pairs


def total(scores):
    return scores.sum(0).item()


def make_theirs(folder: Path, batch_size: int):
    """(texts) -> sums, by minicons, which is given a batch of texts at a time."""
    made = transformers.AutoTokenizer.from_pretrained(folder)
    made.batch_encode_plus = made.__call__  # transformers 5 has only this name
    peer = minicons.MaskedLMScorer(str(folder), "cpu", tokenizer=made)

    def score(texts):
        results = []
        for start in range(0, len(texts), batch_size):
            part = texts[start : start + batch_size]
            results += peer.sequence_score(part, reduction=total, PLL_metric="original")
        return np.array(results)

    return score


def make_ours(folder: Path, run: Path):
    """(texts) -> sums, by the scorer of an imported run."""
    import_run(folder, run, default_config())
    program, tokenizer, params, _ = load_run(run)
    scorer = make_scorer(program, params)

    def score(texts):
        ids = [tokenizer.encode(text) for text in texts]
        result = scorer.token_log_probs(ids, rule="pll")
        return np.array([each.sum(dtype=np.float64) for each in result])

    return score


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--blimp", required=True)
    parser.add_argument("--paradigms", type=int, default=5)
    parser.add_argument("--pairs", type=int, default=20, help="of each paradigm")
    parser.add_argument("--layers", type=int, default=4)
    parser.add_argument("--width", type=int, default=512)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--batch_size", type=int, default=32, help="minicons' texts")
    args = parser.parse_args()
    pairs = read_pairs(args.blimp)
    names = sorted({pair.paradigm for pair in pairs})
    names = names[:: max(1, len(names) // args.paradigms)][: args.paradigms]
    chosen = [
        pair
        for name in names
        for pair in [p for p in pairs if p.paradigm == name][: args.pairs]
    ]
    texts = [text for pair in chosen for text in pair[:2]]
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "theirs"
        write_wordpiece(folder, [pair.good for pair in pairs[::5]], 30522)
        sizes = {"hidden_size": args.width, "num_hidden_layers": args.layers}
        sizes |= {"num_attention_heads": args.width // 64}
        sizes |= {"intermediate_size": 4 * args.width, "vocab_size": 30522}
        write_model(folder, "bert", **sizes)
        sides = {
            "jaxpt": make_ours(folder, Path(place) / "run"),
            "minicons": make_theirs(folder, args.batch_size),
        }
        times: dict[str, list[float]] = {name: [] for name in sides}
        sums = {}
        for _ in range(args.rounds + 1):
            for name, score in sides.items():
                start = time.perf_counter()
                sums[name] = score(texts)
                times[name].append(time.perf_counter() - start)
    gap = np.abs(sums["jaxpt"] - sums["minicons"]).max()
    print(
        f"{len(chosen)} pairs of {len(names)} paradigms, {args.layers} layers of "
        f"{args.width}, {torch.get_num_threads()} threads; largest gap {gap:.1e}"
    )
    ratios = [
        reference / ours
        for ours, reference in zip(*(times[name][1:] for name in sides), strict=True)
    ]
    for name, seconds in times.items():
        rate = len(chosen) / statistics.median(seconds[1:])
        print(f"{name:10s} {rate:8.1f} pairs/s; first round {seconds[0]:.1f} s")
    print(f"jaxpt / minicons: {statistics.median(ratios):.2f} {np.round(ratios, 2)}")


if __name__ == "__main__":
    main()
