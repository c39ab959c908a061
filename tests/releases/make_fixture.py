"""Writes tests/releases/VERSION.tar.xz: small folders of each kind by this version.

    .venv/bin/python tests/releases/make_fixture.py

clm-seed0, clm-seed1 (without checkpoints), mlm-seed0: training runs; export: of
clm-seed0, for transformers; store: of text.txt; report: of the three runs; tuned: a
fine-tuning of clm-seed0 on labels.tsv. expected.json has what this version computes
from them. Run it once for a release, before its tag; earlier archives are kept.
"""

import io
import json
import os
import random
import sys
import tarfile
import tempfile
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE.parent))

from tiny import make_config, write_stored  # noqa: E402

import jaxpt  # noqa: E402
from jaxpt.cli.main import main  # noqa: E402
from jaxpt.finetuning.export import load_finetuned  # noqa: E402
from jaxpt.text.stores.store import open_store  # noqa: E402

RUNS = (("clm", 0), ("clm", 1), ("mlm", 0))
TEXTS = ["the state of", "the sky"]
# Files that would make the archive large, and that nothing reads again.
LEFT_OUT = ("run.log", "report.html", ".png", ".svg", "results.tex")
WITHOUT = ("clm-seed1/checkpoints", "mlm-seed0/checkpoints/4")


def run_config(objective: str, seed: int):
    """The settings of a run, without what machines differ in."""
    return make_config(
        "sotu",
        objective,
        data__limit_chars=40_000,
        data__split="auto",
        tokenizer__kind="char",
        model__d_model=8,
        model__d_ff=16,
        model__max_len=64,
        model__dropout=0.0,
        model__activation="gelu_tanh",
        train__seed=seed,
        train__steps=8,
        train__checkpoint_every=4,
        train__trackers=(),
        eval__probe_passages=0,
        eval__choice_questions=32,
        eval__word_context=8,
    )


def write_labels(path: Path, num: int = 24, seed: int = 0) -> None:
    """Writes short phrases, labelled by whether they say good or bad."""
    draw = random.Random(seed)
    lines = ["sentence\tlabel"]
    for i in range(num):
        word = ("bad", "good")[i % 2]
        lines.append(f"{draw.choice(['a', 'the', 'this'])} {word} day\t{i % 2}")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")


def measure(folder: Path) -> dict:
    """What a version computes from the folders, as plain values."""
    filled = jaxpt.load(folder / "mlm-seed0").fill("the sta[MASK]e of")[0]
    store = open_store(folder / "store")
    report = json.loads((folder / "report" / "report.json").read_text())
    tuned = load_finetuned(folder / "tuned")
    norms = {
        name: float(np.sqrt(sum(np.sum(np.square(x)) for x in _leaves(part))))
        for name, part in tuned.params.items()
    }
    return {
        "nll": jaxpt.load(folder / "clm-seed0").nll(TEXTS).tolist(),
        "fill": [[token, p] for token, p in filled],
        "export_nll": jaxpt.load(folder / "export").nll(TEXTS).tolist(),
        "store": [
            store.card["num_tokens"],
            store.fingerprint,
            store.tokens.read(0, 16).tolist(),
        ],
        "report": {
            entry["metric"]: {
                name: stats["mean"] for name, stats in entry["by_name"].items()
            }
            for entry in report["metrics"]
        },
        "tuned": tuned.result["dev"],
        "tuned_norms": norms,
    }


def _leaves(tree):
    import jax

    return [np.asarray(leaf, np.float64) for leaf in jax.tree.leaves(tree)]


def write_folders(root: Path) -> None:
    """Trains, exports, prepares, reports and fine-tunes in the current folder.

    All paths are relative to it, so that the folders can be moved.
    """

    def call(*argv: str) -> None:
        if main([str(word) for word in argv]):
            raise SystemExit(f"failed: {argv}")

    runs = []
    for objective, seed in RUNS:
        folder = root / f"{objective}-seed{seed}"
        config = write_stored(root / "config.json", run_config(objective, seed))
        call("train", "--config", config, "--workdir", folder, "--quiet")
        runs.append(folder)
    call("export", "--workdir", root / "clm-seed0", "--to", root / "export")
    (root / "text.txt").write_text("The state of the union is strong.\n" * 60)
    call(
        *("prepare", "--config", root / "config.json"),
        *("--config.data.path=text.txt", "--config.data.limit_chars=0"),
        *("--to", root / "store"),
    )
    call("report", "--runs", *runs, "--workdir", root / "report", "--quiet")
    write_labels(root / "labels.tsv")
    settings = [
        f"--config.data.{name}={root / 'labels.tsv'}" for name in ("train", "dev")
    ]
    settings += ["--config.task.text=sentence", "--config.task.labels=('0','1')"]
    settings += ["--config.task.max_len=0", "--config.train.lr=(1e-2,)"]
    settings += ["--config.train.seeds=(0,)", "--config.train.epochs=(1,)"]
    call(
        *("finetune", "--config", "tasks/sst2", *settings),
        *("--workdir", root / "clm-seed0", "--to", root / "tuned"),
    )
    (root / "config.json").unlink()


def pack(root: Path, to: Path) -> None:
    """Writes the archive, without some checkpoints and the files `LEFT_OUT`."""
    expected = json.dumps(measure(root), indent=1) + "\n"
    with tarfile.open(to, "w:xz", preset=9) as archive:
        for path in sorted(root.rglob("*")):
            name = path.relative_to(root).as_posix()
            if path.is_dir() or path.name.endswith(LEFT_OUT):
                continue
            if name.startswith(WITHOUT):
                continue
            info = archive.gettarinfo(path, name)
            info.uid = info.gid = info.mtime = 0
            info.uname = info.gname = ""
            archive.addfile(info, io.BytesIO(path.read_bytes()))
        info = tarfile.TarInfo("expected.json")
        info.size = len(expected)
        archive.addfile(info, io.BytesIO(expected.encode()))


if __name__ == "__main__":
    target = HERE / f"{jaxpt.__version__}.tar.xz"
    with tempfile.TemporaryDirectory() as place:
        os.chdir(place)
        write_folders(Path())
        pack(Path(), target)
    print(f"{target}: {target.stat().st_size:,} bytes")
