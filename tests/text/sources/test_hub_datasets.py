"""Data sets of the Hugging Face Hub as text: local ones, read by `datasets` itself."""

import json
import sys

import pytest
from tiny import make_config

from jaxpt.api.commands import train
from jaxpt.config.plan import make_plan
from jaxpt.text.dataset import load_text
from jaxpt.text.sources.source import SourceSpec, identify_source, read_documents

TEXTS = [f"The state of the union, part {i}. " * 9 for i in range(12)]


@pytest.fixture
def folder(tmp_path, monkeypatch):
    """A data set with two splits and labels, as it would be downloaded."""
    monkeypatch.setenv("HF_DATASETS_CACHE", str(tmp_path / "cache"))
    folder = tmp_path / "set"
    folder.mkdir()
    for split, texts in (("train", TEXTS), ("test", TEXTS[:2])):
        rows = [{"text": t, "kind": "ab"[i % 2], "n": i} for i, t in enumerate(texts)]
        lines = "\n".join(map(json.dumps, [*rows, {"text": None, "kind": "", "n": 0}]))
        (folder / f"{split}.jsonl").write_text(lines)
    return folder


def read(path, **options):
    return list(read_documents(SourceSpec(f"hf:{path}", **options)))


@pytest.mark.peers
@pytest.mark.parametrize("is_partial", [False, True])
def test_records_are_documents_in_order(folder, is_partial):
    pytest.importorskip("datasets")
    documents = read(folder, label_field="kind", is_partial=is_partial)
    assert [doc.text for doc in documents] == [*TEXTS, ""]
    assert [doc.label for doc in documents] == ["a", "b"] * 6 + [""]
    assert [doc.text for doc in read(f"{folder}::test")] == [*TEXTS[:2], ""]


@pytest.mark.peers
def test_a_changed_file_is_another_data_set(folder):
    pytest.importorskip("datasets")
    spec = SourceSpec(f"hf:{folder}")
    before = identify_source(spec)
    assert before == identify_source(spec) and before["split"] == "train"
    (folder / "train.jsonl").write_text(
        json.dumps({"text": "new", "kind": "a", "n": 1})
    )
    assert identify_source(spec) != before
    assert [doc.text for doc in read(folder)] == ["new"]


@pytest.mark.peers
def test_what_is_missing_is_one_line(folder, refuses):
    pytest.importorskip("datasets")
    with refuses("data.path=hf:", 'Unknown split "dev"', "train", "test"):
        read(f"{folder}::dev")
    with refuses("no field 'body' (data.text_field); it has 'kind', 'n', 'text'"):
        read(folder, text_field="body")
    with refuses("record 0: 'n' (data.text_field) must be a string, is int"):
        read(folder, text_field="n")
    with refuses("data.path=hf:"):
        read(folder / "none")


@pytest.mark.peers
def test_a_run_is_trained_on_it(folder, tmp_path):
    pytest.importorskip("datasets")
    config = make_config(f"hf:{folder}", data__cache_dir=str(tmp_path / "stores"))
    assert train(config, tmp_path / "run")
    # The store is used, and the text is not read again.
    config.data.limit_chars = 900
    tokens = load_text(make_plan(config).text)[1]["train"].num_tokens
    assert 0 < tokens < 900


def test_without_the_library_it_is_one_line(monkeypatch, refuses):
    monkeypatch.setitem(sys.modules, "datasets", None)
    with refuses("data.path=hf:a/b: needs datasets: pip install"):
        read("a/b")
