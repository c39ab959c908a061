"""`jaxpt export`: dtypes, shards, model cards, and the upload to the Hub."""

import dataclasses
import json

import ml_dtypes
import numpy as np
import pytest
from hub.fake_hub import READ, WRITE
from hub.test_download import NEEDED, read_files
from hub.test_families import Fixture
from hub.test_origin import make_run, run_config
from hub.test_runs import settings, write_folder
from huggingface_hub import ModelCard
from safetensors import safe_open
from safetensors.numpy import load_file
from transformers import AutoConfig

from jaxpt.cli.main import main
from jaxpt.hub.card import Card, format_card
from jaxpt.hub.export import ExportOptions, export_run
from jaxpt.hub.imports import import_run
from jaxpt.hub.origin import BaseModel

DTYPES = {"float32": np.float32, "float16": np.float16, "bfloat16": ml_dtypes.bfloat16}


@pytest.fixture
def run(tmp_path):
    """A small BERT at step 0."""
    write_folder(tmp_path / "theirs", Fixture("bert"))
    import_run(tmp_path / "theirs", tmp_path / "run", settings(tmp_path))
    return tmp_path / "run"


@pytest.mark.parametrize("dtype", DTYPES)
def test_the_tensors_and_the_config_have_the_dtype(dtype, run, tmp_path):
    out = tmp_path / "out"
    argv = ["export", f"--workdir={run}", f"--to={out}", f"--dtype={dtype}"]
    assert main(argv) == 0
    assert str(AutoConfig.from_pretrained(out).dtype).removeprefix("torch.") == dtype
    expected = load_file(tmp_path / "theirs" / "model.safetensors")
    with safe_open(out / "model.safetensors", "numpy") as file:
        for name in file.keys():
            tensor = file.get_tensor(name)
            assert tensor.dtype == DTYPES[dtype]
            np.testing.assert_array_equal(tensor, expected[name].astype(DTYPES[dtype]))
    is_rounded = "Weights: " in (out / "README.md").read_text()
    assert is_rounded == (dtype != "float32")
    # Such a folder is imported again.
    import_run(out, tmp_path / "again", settings(tmp_path))


def test_what_overflows_is_refused(tmp_path, refuses):
    fixture = Fixture("bert")
    name = "bert.encoder.layer.0.output.dense.bias"
    tensors = dict(fixture.tensors) | {name: fixture.tensors[name].copy()}
    tensors[name][1] = -65_600
    write_folder(tmp_path / "theirs", Large(fixture.config, tensors))
    import_run(tmp_path / "theirs", tmp_path / "run", settings(tmp_path))
    with refuses("dtype=float16: ", name, "magnitude 65600", "at most 65504"):
        export_run(
            tmp_path / "run", tmp_path / "out", "", ExportOptions(dtype="float16")
        )
    assert not (tmp_path / "out").exists()
    export_run(tmp_path / "run", tmp_path / "out", "", ExportOptions(dtype="bfloat16"))


@dataclasses.dataclass
class Large:
    config: dict
    tensors: dict


@pytest.mark.parametrize(
    "flag, text",
    [
        ("--dtype=int8", "must be one of float32, float16, bfloat16"),
        ("--max_shard_size=5", "a number and one of the units KB, MB, GB, TB"),
        ("--max_shard_size=0GB", "must be at least 1 byte"),
        ("--push=name", "must be a repository of the Hugging Face Hub, ORG/NAME"),
        ("--push=org/name@v1", "must be a repository"),
        ("--private", "must be left out without --push"),
    ],
)
def test_what_is_refused_writes_nothing(flag, text, run, tmp_path, capsys):
    argv = ["export", f"--workdir={run}", f"--to={tmp_path / 'out'}", flag]
    assert main(argv) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert flag.partition("=")[0] in line and text in line
    assert not (tmp_path / "out").exists()
    if "=" in flag:
        assert main([*argv, "--format=onnx"]) == 2
        assert "must be left out with --format=onnx" in capsys.readouterr().err


def test_a_card_has_metadata_that_the_hub_reads():
    base = BaseModel("org/base", "v1", "c0ffee")
    card = Card(
        title="X: pretrained",
        name="out",
        task="fill-mask",
        data="yes: no.txt",  # two traps of YAML
        facts=["Objective: mlm"],
        metrics={"valid_loss": 1.23456789, "broken": float("nan")},
        split="held-out text",
        base=base,
        tags=("mlm",),
        license="apache-2.0",
        language=("no", "en"),
    )
    read = ModelCard(format_card(card))
    data = read.data
    assert data.base_model == "org/base" and data.library_name == "transformers"
    assert data.license == "apache-2.0" and data.language == ["no", "en"]
    assert data.tags == ["jaxpt", "mlm"] and data.model_name == "out"
    (result,) = data.eval_results
    assert result.task_type == "fill-mask" and result.dataset_type == "yes: no.txt"
    assert (result.metric_type, result.metric_value) == ("valid_loss", 1.234568)
    assert "Base model: org/base@v1, commit c0ffee" in read.text
    assert "| valid_loss | 1.2346 |" in read.text and "| broken | nan |" in read.text


def test_a_card_states_only_what_is_known(run, tmp_path):
    export_run(run, tmp_path / "out")
    data = ModelCard.load(tmp_path / "out" / "README.md").data.to_dict()
    assert data == {"library_name": "transformers", "tags": ["jaxpt", "mlm"]}


PUSH = ["export", "--workdir=run", "--push=org/new"]


def test_an_export_is_uploaded_in_one_commit(hub, jaxpt, run, tmp_path):
    named = ["--license=mit", "--language=en"]
    shards = [*PUSH, "--to=out", "--max_shard_size=5KB", *named]
    load = ["import", "--from=org/new", "--workdir=loaded"]
    first, loaded = jaxpt(hub.address, shards, load, HF_TOKEN=WRITE)
    assert first[0] == 0 and loaded[0] == 0, (first, loaded)
    repo = hub.repos["org/new"]
    assert list(repo.commits).index(repo.refs["main"]) == 1 and not repo.private
    uploaded = repo.commits[repo.refs["main"]]
    assert uploaded == read_files(tmp_path / "out") | {".gitattributes": b""}
    assert "model.safetensors.index.json" in uploaded
    line = f"{hub.address}/org/new: uploaded out, commit {repo.refs['main']}"
    assert line in first[1].splitlines()
    data = ModelCard(uploaded["README.md"].decode()).data
    assert data.license == "mit" and data.language == ["en"]
    # One file takes the place of the shards.
    (second,) = jaxpt(hub.address, [*PUSH, "--to=again"], HF_TOKEN=WRITE)
    assert second[0] == 0
    names = repo.commits[repo.refs["main"]].keys()
    assert {n for n in names if "safetensors" in n} == {"model.safetensors"}
    assert {*NEEDED, "README.md", "jaxpt/run.json"} <= names
    # A public repository does not become private.
    (third,) = jaxpt(hub.address, [*PUSH, "--to=b", "--private"], HF_TOKEN=WRITE)
    assert third[0] == 2 and "the repository exists and is public" in third[2]
    assert repo.commits[repo.refs["main"]].keys() == names
    private = ["export", "--workdir=run", "--push=org/hid", "--to=c", "--private"]
    (fourth,) = jaxpt(hub.address, private, HF_TOKEN=WRITE)
    assert fourth[0] == 0 and hub.repos["org/hid"].private


@pytest.mark.parametrize(
    "variables, text",
    [
        ({}, "no token: log in with `hf auth login`, or set HF_TOKEN"),
        ({"HF_TOKEN": READ}, "refuses the token (403)"),
        ({"HF_TOKEN": "hf_wrong"}, "refuses the token (401)"),
        ({"HF_TOKEN": WRITE, "HF_HUB_OFFLINE": "1"}, "HF_HUB_OFFLINE is set"),
        ({"HF_TOKEN": WRITE, "address": "http://127.0.0.1:9"}, "127.0.0.1:9: "),
    ],
)
def test_an_upload_that_fails_keeps_the_export(
    variables,
    text,
    hub,
    jaxpt,
    run,
    tmp_path,
):
    variables = {"address": hub.address} | variables
    address = variables.pop("address")
    ((code, _, err),) = jaxpt(address, [*PUSH, "--to=out"], **variables)
    assert code == 2 and err.count("\n") == 1
    assert "--push=org/new: " in err and text in err
    assert "to upload out again: hf upload org/new out" in err
    assert (tmp_path / "out" / "model.safetensors").exists() and not hub.repos


@pytest.mark.slow
def test_both_networks_of_electra_are_uploaded(hub, jaxpt, speech, tmp_path):
    make_run(tmp_path / "run", run_config(speech, "electra"))
    sharded = [*PUSH, "--to=out", "--max_shard_size=20KB"]
    load = ["import", "--from=org/new", "--workdir=loaded"]
    results = jaxpt(hub.address, sharded, load, HF_TOKEN=WRITE)
    assert [code for code, _, _ in results] == [0, 0], results
    files = hub.repos["org/new"].commits[hub.repos["org/new"].refs["main"]]
    assert "generator/model.safetensors.index.json" in files
    assert files["README.md"] == files["discriminator/README.md"]
    assert b'subfolder="generator" and' in files["README.md"]
    about = json.loads((tmp_path / "loaded" / "config.json").read_text())
    assert about["objective"] == "electra"
