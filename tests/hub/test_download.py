"""Models of the Hub by name: what is downloaded, how it is cached, what is refused."""

import json

import pytest
from hub.fake_hub import READ
from hub.test_families import Fixture
from hub.test_runs import TEXT, write_folder

from jaxpt.errors import DataError
from jaxpt.hub.download import find_folder
from jaxpt.hub.files import read_tensors, write_tensors

LOAD = """
import sys, jaxpt
run = jaxpt.load("org/bert", revision="v1")
print(run, run.embed("a b").shape)
try:
    jaxpt.load("org/none")
except jaxpt.DataError as error:
    print(error)
"""


def read_files(folder):
    paths = [path for path in folder.rglob("*") if path.is_file()]
    return {str(path.relative_to(folder)): path.read_bytes() for path in paths}


@pytest.fixture
def bert(tmp_path):
    """The files of a repository: a small BERT, and what jaxpt does not need."""
    write_folder(tmp_path / "theirs", Fixture("bert"))
    others = ("pytorch_model.bin", "flax_model.msgpack", "tf_model.h5", "weights.pt")
    others += ("consolidated.safetensors", "onnx/model.onnx", "onnx/config.json")
    others += ("model.fp16.safetensors", "original/model.safetensors", ".gitattributes")
    return dict.fromkeys(others, b"other") | read_files(tmp_path / "theirs")


NEEDED = ["config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"]
OPTIONS = ["added_tokens.json", "special_tokens_map.json"]  # of its tokenizer


def test_a_file_is_no_model(tmp_path):
    """Its path could be a name of the Hub."""
    path = tmp_path / "model.safetensors"
    path.touch()
    with pytest.raises(DataError, match="is not a folder; must be that of config.json"):
        find_folder(str(path))


@pytest.mark.parametrize("name", ["x" * 300, "x" * 5000, "a\0b"])
def test_no_path_is_no_model(name):
    with pytest.raises(DataError, match="this folder does not exist, and it is not a"):
        find_folder(name)


def test_a_name_is_imported_and_only_what_is_needed_is_downloaded(hub, bert, jaxpt):
    old = hub.add("org/bert", bert)
    hub.repos["org/bert"].refs |= {"v1": old, "refs/pr/1": old}
    new = hub.repos["org/bert"].commit(bert | dict(zip(OPTIONS, (b"{}", b"{ }"))))
    command = ["import", "--config.data.seq_len=16", "--from"]
    names = {"": new, "@v1": old, "@refs/pr/1": old, f"@{old}": old}
    commands = [
        [*command, f"org/bert{name}", f"--workdir=run{i}"]
        for i, name in enumerate(names)
    ]
    # The first three with the network, of which the last downloads no file again.
    (first,) = jaxpt(hub.address, commands[0])
    assert first[0] == 0 and f"org/bert: commit {new}" in first[1]
    assert hub.list_fetched() == sorted([*NEEDED, *OPTIONS])
    hub.log.clear()
    results = jaxpt(hub.address, *commands[1:])
    assert [code for code, _, _ in results] == [0] * 3, results
    # The commits share their blobs, but each is looked up.
    assert all(p.count(old) for m, p, _ in hub.log if "/resolve/" in p)
    assert hub.list_fetched() == []


def test_the_run_names_its_repository_and_commit(hub, bert, jaxpt, tmp_path):
    commit = hub.add("org/bert", bert)
    imported = ["import", "--from=org/bert", "--workdir=run"]
    exported = ["export", "--workdir=run", "--to=out"]
    again = ["import", "--from=out", "--workdir=again"]
    results = jaxpt(hub.address, imported, exported, again)
    assert [code for code, _, _ in results] == [0, 0, 0], results
    base = {"repository": "org/bert", "revision": "", "commit": commit}
    for run in ("run", "again"):
        assert json.loads((tmp_path / run / "base_model.json").read_text()) == base
    assert (
        json.loads((tmp_path / "out/jaxpt/run.json").read_text())["base_model"] == base
    )
    card = (tmp_path / "out" / "README.md").read_text()
    assert "base_model: org/bert\n" in card and commit in card


@pytest.mark.slow  # the library waits before it asks again
def test_shards_are_those_that_the_index_lists(hub, bert, jaxpt, tmp_path):
    tensors = dict(read_tensors(tmp_path / "theirs").items())
    write_tensors(tmp_path / "theirs", tensors, 5000)
    files = read_files(tmp_path / "theirs")
    index = json.loads(files["model.safetensors.index.json"])
    shards = set(index["weight_map"].values())
    assert len(shards) > 2
    files |= {"model-00009-of-00009.safetensors": b"", "consolidated.safetensors": b""}
    hub.add("org/bert", files)
    hub.never.add(max(shards))
    command = ["import", "--from=org/bert", "--workdir=run"]
    (result,) = jaxpt(hub.address, command)
    assert result[0] == 2 and f"{hub.address} answers 500: " in result[2]
    assert not (tmp_path / "run").exists()
    before = {name for name in hub.list_fetched() if name in shards}
    hub.never.clear(), hub.log.clear()
    (result,) = jaxpt(hub.address, command)
    assert result[0] == 0
    # A file that was complete is not downloaded again.
    assert set(hub.list_fetched()) == shards - before


def test_one_file_has_precedence_over_shards(hub, bert, jaxpt, tmp_path):
    """As in transformers; the shards are not downloaded."""
    whole = (tmp_path / "theirs" / "model.safetensors").read_bytes()
    write_tensors(tmp_path / "theirs", dict(read_tensors(tmp_path / "theirs")), 5000)
    files = read_files(tmp_path / "theirs") | {"model.safetensors": whole}
    hub.add("org/bert", files)
    (result,) = jaxpt(hub.address, ["import", "--from=org/bert", "--workdir=run"])
    assert result[0] == 0, result
    assert "model.safetensors" in hub.list_fetched()
    assert not [name for name in hub.list_fetched() if name.startswith("model-")]


@pytest.mark.parametrize("revision", ["", "@main"])
def test_a_name_of_one_word_has_an_organization(hub, bert, jaxpt, tmp_path, revision):
    hub.add("openai-community/gpt2", bert)
    source = f"gpt2{revision}"
    (result,) = jaxpt(hub.address, ["import", f"--from={source}", "--workdir=run"])
    assert result[0] == 0, result
    base = json.loads((tmp_path / "run" / "base_model.json").read_text())
    assert base["repository"] == "openai-community/gpt2"


def test_a_folder_has_precedence_over_a_name_of_one_word(hub, jaxpt, bert, tmp_path):
    (tmp_path / "theirs").rename(tmp_path / "gpt2")
    (result,) = jaxpt(hub.address, ["import", "--from=gpt2", "--workdir=run"])
    assert result[0] == 0 and not hub.log


def test_a_broken_connection_is_resumed(hub, bert, jaxpt):
    hub.add("org/bert", bert)
    hub.cuts["model.safetensors"] = 1000
    (result,) = jaxpt(hub.address, ["import", "--from=org/bert", "--workdir=run"])
    assert result[0] == 0, result
    path = next(p for _, p, _ in hub.log if p.endswith("/model.safetensors"))
    ranges = [each for m, p, each in hub.log if (m, p) == ("GET", path)]
    assert ranges == [None, "bytes=1000-"]


def test_a_cached_model_needs_no_network(hub, bert, jaxpt, tmp_path):
    commit = hub.add("org/bert", bert)
    command = ["import", "--from=org/bert", "--workdir"]
    (first,) = jaxpt(hub.address, [*command, "run0"])
    assert first[0] == 0
    results = jaxpt(hub.address, [*command, "run1"], HF_HUB_OFFLINE="1")
    other = "http://127.0.0.1:9"  # nothing listens there
    results += jaxpt(other, [*command, "run2"])
    for code, out, _ in results:
        assert code == 0 and f"commit {commit}" in out
    # What was left out of an incomplete download is missed.
    (snapshot,) = (tmp_path / "cache").glob("hub/models--org--bert/snapshots/*")
    (snapshot / "model.safetensors").unlink()
    (result,) = jaxpt(other, [*command, "run3"], HF_HUB_OFFLINE="1")
    assert result[0] == 2 and "the files are not in the cache" in result[2]


def test_what_cannot_be_downloaded_is_one_line(hub, bert, jaxpt, tmp_path):
    hub.add("org/gated", bert, gated=True)
    hub.add("org/private", bert, private=True)
    hub.add("org/bert", bert)
    config, pickle = bert["config.json"], {"pytorch_model.bin": b"", "a.pt": b""}
    hub.add("org/pickle", pickle | {"config.json": config, "onnx/model.pt": b""})
    hub.add("org/data", {"README.md": b"", "tokenizer.json": b"{}"})
    hub.add("org/other", bert | {"config.json": b'{"model_type": "unheard"}'})
    expected = {
        "org/gated": f"is gated: accept its terms on {hub.address} and log in with",
        "org/private": "has no such repository, or it is private",
        "org/none": "this folder does not exist; on the Hub: http",
        "org/bert@v9": "the repository has no such revision",
        "org/pickle": "has no safetensors; a.pt is a pickle, which can run code",
        "org/data": "has no config.json",
        "bert": "this folder does not exist, and it is not a name on the Hugging",
        "org/bert@": "this folder does not exist, and it is not a name",
        "a/b/c": "this folder does not exist, and it is not a name",
        "org/..": "this folder does not exist, and it is not a name",
    }
    commands = [["import", f"--from={name}", "--workdir=run"] for name in expected]
    results = jaxpt(hub.address, *commands)
    for (name, text), (code, out, err) in zip(expected.items(), results, strict=True):
        assert (code, out) == (2, ""), (name, err)
        assert err.count("\n") == 1 and f"--from={name}: " in err and text in err
    # Nothing large was downloaded, and nothing is left.
    assert "model.safetensors" not in hub.list_fetched()
    assert not (tmp_path / "run").exists()
    (other,) = jaxpt(hub.address, ["import", "--from=org/other", "--workdir=run"])
    assert other[0] == 2 and "model_type" in other[2]
    assert "model.safetensors" not in hub.list_fetched()


def test_a_token_opens_a_gated_repository(hub, bert, jaxpt):
    hub.add("org/gated", bert, gated=True)
    command = ["import", "--from=org/gated", "--workdir=run"]
    (result,) = jaxpt(hub.address, command, HF_TOKEN="hf_wrong")
    assert result[0] == 2 and "refuses the token (401)" in result[2]
    (result,) = jaxpt(hub.address, command, HF_TOKEN=READ)
    assert result[0] == 0


def test_no_network_is_one_line(jaxpt):
    command = ["import", "--from=org/bert", "--workdir=run"]
    address = "http://127.0.0.1:9"
    (result,) = jaxpt(address, command)
    assert result[0] == 2 and result[2].count("\n") == 1
    start = "--from=org/bert: this folder does not exist; on the Hub: "
    assert f"{start}{address} cannot be reached, and the files" in result[2]
    (result,) = jaxpt(address, command, HF_HUB_OFFLINE="1")
    assert result[0] == 2 and result[2].count("\n") == 1
    assert "HF_HUB_OFFLINE is set, and the files are not in the cache" in result[2]


def test_a_folder_takes_precedence(hub, bert, jaxpt, tmp_path):
    hub.add("org/bert", bert)
    (tmp_path / "org").mkdir()
    (tmp_path / "theirs").rename(tmp_path / "org" / "bert")
    (result,) = jaxpt(hub.address, ["import", "--from=org/bert", "--workdir=run"])
    assert result[0] == 0 and not hub.log
    assert not (tmp_path / "run" / "base_model.json").exists()


def test_a_name_is_loaded_in_python(hub, bert, run_python):
    commit = hub.add("org/bert", bert)
    hub.repos["org/bert"].refs["v1"] = commit
    hub.repos["org/bert"].commit({})  # the default branch has nothing
    first, last = run_python(hub.address, LOAD).stdout.splitlines()
    assert first.startswith("<jaxpt.Run: ") and first.endswith("(1, 16)")
    assert last.startswith(
        "source=org/none: this folder does not exist; on the Hub: http"
    )


def test_a_name_is_fine_tuned(hub, bert, jaxpt, tmp_path):
    rows = [f"{word}\t{i % 2}" for i, word in enumerate(TEXT.split())]
    (tmp_path / "task.tsv").write_text("\n".join(["sentence\tlabel", *rows]))
    (tmp_path / "task.py").write_text(
        "from jaxpt.config.finetuning import default_finetune_config\n"
        "def get_config():\n"
        "    config = default_finetune_config('classification')\n"
        "    config.data.train = config.data.dev = 'task.tsv'\n"
        "    config.task.max_len, config.train.num_lengths = 8, 1\n"
        "    config.train.epochs, config.train.lr = (1,), (1e-3,)\n"
        "    config.train.seeds = (0,)\n"
        "    return config\n"
    )
    commit = hub.add("org/bert", bert)
    hub.add("org/other", bert)
    tune = ["finetune", "--config=task.py", "--to=to", "--from"]
    results = jaxpt(hub.address, [*tune, "org/bert"], [*tune, "org/other"])
    assert results[0][0] == 0, results
    assert results[1][0] == 2 and "imported from another model" in results[1][2]
    base = json.loads((tmp_path / "to" / "base" / "base_model.json").read_text())
    assert (base["repository"], base["commit"]) == ("org/bert", commit)
    hub.log.clear()
    export = ["export", "--workdir=to", "--to=out"]
    results = jaxpt(hub.address, [*tune, "org/bert"], export)
    assert [code for code, _, _ in results] == [0, 0], results
    assert not hub.log  # it was imported before
    card = (tmp_path / "out" / "README.md").read_text()
    assert "base_model: org/bert\n" in card and "type: text-classification" in card
