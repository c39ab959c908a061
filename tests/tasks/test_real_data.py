"""The configs of tasks read their real files, which hold what is known of them."""

import importlib.util
import lzma
import tarfile
from pathlib import Path

import pytest
from shared import find_shared

from jaxpt.config.finetuning import make_finetune_plan
from jaxpt.finetuning.data import read_data

ROOT = Path(__file__).resolve().parents[2]


def load_config(name, folder):
    path = ROOT / "configs" / "tasks" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.get_config(str(folder))


def read(name, folder, **changes):
    config = load_config(name, folder)
    for split, value in changes.items():
        config.data[split] = value
    return read_data(make_finetune_plan(config))


def test_wnut17():
    data = read("wnut17", find_shared("downstream/wnut17", "its splits and tags"))
    sizes = {name: len(items) for name, items in data.splits.items()}
    assert sizes == {"train": 3394, "dev": 1009, "test": 1287}
    assert len(data.labels) == 13 and data.labels[0] == "O"


def test_dialogsum():
    data = read("dialogsum", find_shared("downstream/dialogsum", "its references"))
    sizes = {name: len(items) for name, items in data.splits.items()}
    assert sizes == {"train": 400, "dev": 100, "test": 500}
    assert {len(example.golds) for example in data.splits["test"]} == {3}
    assert data.splits["dev"][0].source.startswith("summarize: #Person1#")


def test_wikisplit(tmp_path):
    folder = find_shared("downstream/wikisplit", "that no mark is left in its texts")
    data = read("wikisplit", folder)
    assert [len(items) for items in data.splits.values()] == [5000] * 3
    with lzma.open(folder / "test.tsv.xz", "rt", encoding="utf-8") as lines:
        assert all(" <::::>" in line for line in lines)
    targets = [x.target for items in data.splits.values() for x in items]
    assert not any("<::::>" in text for text in targets)


@pytest.mark.slow
def test_subjqa(tmp_path):
    path = find_shared("downstream/subjqa/subjqa.tar.xz", "its splits and groups")
    with tarfile.open(path) as archive:
        archive.extractall(tmp_path, filter="data")
    data = read("subjqa", tmp_path)
    sizes = {name: len(items) for name, items in data.splits.items()}
    assert sizes == {"train": 9106, "dev": 970, "test": 1727}
    no_answer = sum(not example.golds for example in data.splits["train"])
    assert round(no_answer / 9106, 2) == 0.53
