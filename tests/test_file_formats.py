"""What docs/reference/files.md says of files is what commands write."""

import csv
import gzip
import json
import re
from pathlib import Path

import numpy as np
import pytest
import transformers
from tiny import make_config

import jaxpt
from jaxpt.cli.main import main
from jaxpt.text.stores import store
from jaxpt.text.tokens import tokenizer as tokenizers

DOCS = Path(__file__).parents[1] / "docs" / "reference" / "files.md"
SECTIONS = dict(
    part.partition("\n")[::2] for part in DOCS.read_text("utf-8").split("\n## ")[1:]
)


@pytest.fixture(scope="module")
def place(speech, tmp_path_factory):
    place = tmp_path_factory.mktemp("formats")
    config = make_config(speech, train__steps=2)
    config.compare.update({"objectives": ("clm", "mlm"), "seeds": (0, 1)})
    config.compare.budget = "steps"
    jaxpt.compare(config, place / "compared", quiet=True)
    (place / "reviews.tsv").write_text("sentence\tlabel\n" + "good\t1\nbad\t0\n" * 8)
    task = {"data.train": str(place / "reviews.tsv"), "task.max_len": 16}
    task |= {"data.dev": str(place / "reviews.tsv"), "task.labels": ("0", "1")}
    run = place / "compared" / "runs" / "mlm-seed0"
    tuning = jaxpt.default_finetune_config("classification")
    jaxpt.finetune(tuning, run, place / "tuned", task, quiet=True)
    assert main(["prepare", f"--data={speech}", f"--to={place / 'store'}"]) == 0
    run = run.with_name("clm-seed0")
    assert main(["export", f"--workdir={run}", f"--to={place / 'export'}"]) == 0
    return place


def read_row(section, file):
    """The description of a file, a row of a section's table."""
    rows = re.findall(r"^\| (.+?) \| (.+) \|$", SECTIONS[section], re.M)
    (text,) = [text for names, text in rows if f"`{file}`" in names]
    return text


def names_in(text):
    return set(re.findall(r"`([\w/.*-]+)`", text))


def test_examples(place):
    with np.load(place / "compared/runs/mlm-seed0/examples.npz") as arrays:
        fields = {name.partition("/")[2] for name in arrays}
    named = names_in(read_row("A training run", "examples.npz"))
    assert named == {f"NAME/{field}" for field in fields}


def test_logs(place):
    lines = (place / "compared/runs/mlm-seed0/metrics.jsonl").read_text().splitlines()
    keys = {key for line in lines for key in json.loads(line)}
    named = names_in(read_row("A training run", "metrics.jsonl"))
    named -= {"skipped_updates", "skipped_batches"}  # if there are any
    named -= {"loss_scale", "zero_shot_TASK_FIGURE", "eval.tasks"}  # likewise
    assert named <= keys


def test_study(place):
    words = ["--title=t", "--question=q", f"--to={place / 'study'}"]
    assert main(["archive", f"--workdir={place / 'compared'}", *words]) == 0
    facts = json.loads((place / "study" / "study.json").read_text())
    text, _, of_records = read_row("A study", "study.json").partition("; with ")
    assert names_in(text) == facts.keys() and "`record`" in of_records
    stored = json.loads(gzip.decompress((place / "study/runs.json.gz").read_bytes()))
    files = {"compare.json", "plans.json", "report.json", "values.npz"}
    assert names_in(read_row("A study", "runs.json.gz")) - files == stored.keys()
    named = names_in(read_row("A study", "values.npz")) - {"-bits"}
    assert all(entry.keys() == named for entry in stored["values"])


def test_report(place):
    report = json.loads((place / "compared/report.json").read_text())
    named = names_in(read_row("A comparison", "report.json"))
    of_metrics = {"by_name", "baselines", "pairs", "verdict"}
    of_means = {"low", "high"}
    assert of_means <= named
    assert named - of_metrics - of_means <= report.keys()
    assert of_metrics <= named and all(
        of_metrics <= m.keys() for m in report["metrics"]
    )


@pytest.mark.parametrize("file", ["results.csv", "differences.csv"])
def test_tables(place, file):
    with open(place / "compared" / file, newline="") as lines:
        header = next(csv.reader(lines))
    text = read_row("A comparison", file)
    if file == "results.csv":
        assert names_in(text) <= set(header)
    else:
        first = re.findall(r"`(\w+)`", text.partition(". ")[0])
        assert first == header


def test_files_of_folders(place):
    for section, folder in (
        ("A training run", "compared/runs/mlm-seed0"),
        ("A comparison", "compared"),
    ):
        for cell in re.findall(r"^\| (`.+?) \|", SECTIONS[section], re.M):
            for name in names_in(cell):
                if name not in RARE:
                    assert list(
                        (place / folder).glob(
                            name.replace("STEP", "2").replace("NAME-seedN", "*")
                        )
                    ), name


# Of imports, of runs that diverged, of settings and commands that are not used here.
RARE = {
    *(
        "registration.json",
        "branches/STEP/",
        "budgets/AMOUNT/",
        "budgets.csv",
        "ratios.csv",
        "branch.json",
        "critical_differences.svg",
    ),
    *(
        "chat_templates.json",
        "generation.json",
        "base_model.json",
        "diverged.json",
        "words/1M/",
    ),
    *("evaluations/", "babylm/"),
}


def test_a_store(place):
    text = SECTIONS["A prepared store"]
    card = json.loads((place / "store" / "card.json").read_text())
    files = {path.name for path in (place / "store").iterdir()} - {"checksums.json"}
    known = {store.DOC_STARTS, store.DOC_BYTES, store.TOKEN_BYTES, store.LABELS}
    known |= {store.SENTENCE_STARTS, store.shard_name(0), "card.json", "tokenizer.json"}
    named = {name for name in names_in(text) if name.endswith((".bin", ".json"))}
    assert named == known and files <= known and "dtype" in card


def test_a_finetuning(place):
    text = SECTIONS["A fine-tuning"]
    result = json.loads((place / "tuned/result.json").read_text())
    assert {"picked", "settings"} <= names_in(text) & result.keys()
    assert "dev" in result["picked"] and "dev" in result["settings"][0]
    (path, *_) = (place / "tuned" / "cells").glob("*/predictions.jsonl")
    line = json.loads(path.read_text().splitlines()[0])
    named = names_in(text.partition("predictions.jsonl`")[2])
    assert named <= line.keys() and {"row", "gold"} <= named


def test_an_export(place):
    named = names_in(SECTIONS["An export"].partition("ONNX")[0])
    here = {path.name for path in (place / "export").iterdir()}
    named = {name.rstrip("/") for name in named}
    assert named <= here and {"tokenizer.json", "tokenizer_config.json"} <= named
    # transformers gives a text the ids of the run, which is one of characters or bytes.
    theirs = transformers.AutoTokenizer.from_pretrained(place / "export")
    ours = tokenizers.load(place / "compared/runs/clm-seed0/tokenizer.json")
    assert ours.kind in ("char", "byte")
    text = "the state of\nthe  union"
    ids = theirs(text, add_special_tokens=False)["input_ids"]
    assert ids == ours.encode(text).tolist() and theirs.decode(ids) == text
