"""Speed of the founding experiment, compared with the same work in PyTorch.

    .venv/bin/python tests/benchmarks/founding.py --text FILE --peer SCRIPT
    --peer_python PY

FILE is Tiny Shakespeare; SCRIPT does the same two runs in PyTorch and prints one JSON
line with `clm_steps_per_s` and `mlm_steps_per_s` (arguments --text, --clm_steps,
--mlm_steps, --attn manual|sdpa); PY is a Python with torch. Both exclude compilation
and their first 20 steps, in which memory is first touched. Rounds alternate, and the
ratio is taken round by round, because the speed of machines changes.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

from host import describe_host

ROOT = Path(__file__).resolve().parents[2]
NUM_FIRST = 20  # steps that the peer leaves out


def run_jaxpt(text: Path, objective: str, steps: int) -> float:
    """Steps a second of `jaxpt train`, by its log: logging and feeding included."""
    with tempfile.TemporaryDirectory() as workdir:
        command = [sys.executable, "-m", "jaxpt", "train"]
        command += ["--config", str(ROOT / "configs" / "shakespeare_char.py")]
        command += [f"--config.data.path={text}", f"--config.objective={objective}"]
        command += [f"--config.train.steps={steps}", "--config.train.eval_every=0"]
        command += [f"--config.train.log_every={NUM_FIRST // 2}"]
        command += [f"--config.model.head_bias={objective == 'mlm'}"]
        command += ["--workdir", workdir]
        subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
        lines = (Path(workdir) / "metrics.jsonl").read_text().splitlines()
    seconds = {line["step"]: line["seconds"] for line in map(json.loads, lines)}
    return (steps - NUM_FIRST) / (seconds[steps] - seconds[NUM_FIRST])


def run_peer(args, attention: str, steps: int) -> dict:
    """The peer's own figures for one attention setting."""
    command = [args.peer_python, str(args.peer), "--text", str(args.text)]
    command += ["--clm_steps", str(steps), "--mlm_steps", str(steps)]
    command += ["--attn", attention]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    """Prints each round, then medians and the ratio to the peer's better setting."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--peer", type=Path, required=True)
    parser.add_argument("--peer_python", default=sys.executable)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--steps", type=int, default=150)
    args = parser.parse_args()
    if args.steps < 2 * NUM_FIRST or args.steps % (NUM_FIRST // 2):
        parser.error(f"--steps={args.steps}: must be a multiple of 10, at least 40")
    for path in (args.text, args.peer):
        if not path.exists():
            raise SystemExit(f"{path}: not found; see --help")
    print(describe_host())
    ratios = {"clm": [], "mlm": []}
    speeds = {name: [] for name in ("jaxpt", "manual", "sdpa")}
    for number in range(args.rounds):
        peers = {a: run_peer(args, a, args.steps) for a in ("manual", "sdpa")}
        for objective in ratios:
            ours = run_jaxpt(args.text, objective, args.steps)
            reference = {a: out[f"{objective}_steps_per_s"] for a, out in peers.items()}
            ratios[objective].append(ours / max(reference.values()))
            for name, speed in ({"jaxpt": ours} | reference).items():
                speeds[name].append((objective, speed))
            peer_text = "  ".join(f"torch {a} {v:.1f}" for a, v in reference.items())
            print(
                f"round {number + 1} {objective}: jaxpt {ours:.1f} steps/s  "
                f"{peer_text}  ratio {ratios[objective][-1]:.2f}",
                flush=True,
            )
    for objective, result in ratios.items():
        medians = {
            name: statistics.median(v for o, v in pairs if o == objective)
            for name, pairs in speeds.items()
        }
        peer_text = "  ".join(f"{name} {value:.1f}" for name, value in medians.items())
        print(
            f"{objective}: median steps/s: {peer_text}; "
            f"median ratio to the better peer {statistics.median(result):.2f}"
        )


if __name__ == "__main__":
    main()
