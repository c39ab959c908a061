"""Commands that take a model of transformers where they take a run."""

import os
import shutil

import pytest
from hub.test_families import Fixture
from hub.test_runs import settings, write_folder

from jaxpt.cli.main import main
from jaxpt.hub.imports import import_run
from jaxpt.hub.opened import is_model


def test_a_folder_of_transformers_fills_as_its_import(tmp_path, capsys):
    write_folder(tmp_path / "theirs", Fixture("bert"))
    import_run(tmp_path / "theirs", tmp_path / "run", settings(tmp_path))
    output = []
    for name in ("run", "theirs"):
        flags = [f"--workdir={tmp_path / name}", "--text=a [MASK] b"]
        assert main(["fill", *flags]) == 0
        output.append(capsys.readouterr().out)
    assert output[0] == output[1] and output[0].startswith("[MASK] 1: ")


def test_held_out_text_needs_an_import(tmp_path, capsys):
    write_folder(tmp_path / "theirs", Fixture("bert"))
    assert main(["evaluate", f"--workdir={tmp_path / 'theirs'}"]) == 2
    assert "give --tasks, or first `jaxpt import" in capsys.readouterr().err


def test_a_mistyped_run_is_no_name(tmp_path, monkeypatch, capsys):
    """The parent folder exists, so the Hub is not asked."""
    (tmp_path / "runs").mkdir()
    monkeypatch.chdir(tmp_path)
    assert is_model("org/name") and not is_model("runs/typo")
    assert main(["fill", "--workdir=runs/typo", "--text=[MASK]"]) == 2
    assert "runs/typo/config.json: not found" in capsys.readouterr().err


@pytest.mark.parametrize("content", [None, "[" * 100_000, "\ud800", "[1]"])
def test_a_config_that_is_no_file_or_no_json_is_none_of_a_model(content, tmp_path):
    """A FIFO is not waited for, and nothing is a traceback."""
    path = tmp_path / "config.json"
    if content is None:
        os.mkfifo(path)
        path.with_name("tokenizer.json").write_text("{}")
    else:
        path.write_bytes(content.encode(errors="surrogatepass"))
    assert not is_model(str(tmp_path))


@pytest.mark.parametrize("name", ["model.fp16.safetensors", "weights.safetensors"])
def test_the_only_weights_may_have_another_name(name, tmp_path, refuses):
    folder = tmp_path / "theirs"
    write_folder(folder, Fixture("bert"))
    (folder / "model.safetensors").rename(folder / name)
    import_run(folder, tmp_path / "run", settings(tmp_path))
    shutil.copy(folder / name, folder / "other.safetensors")
    with refuses("must have model.safetensors", "it has ", "other.safetensors"):
        import_run(folder, tmp_path / "again", settings(tmp_path))


@pytest.mark.parametrize(
    "name", ["m.Q4_K_M.gguf", "pytorch_model.bin", "tf_model.h5", "flax_model.msgpack"]
)
def test_other_formats_are_named_with_the_remedy(name, tmp_path, refuses):
    folder = tmp_path / "theirs"
    write_folder(folder, Fixture("bert"))
    (folder / "model.safetensors").unlink()
    (folder / name).write_bytes(b"")
    with refuses(name, "convert it to model.safetensors", "save_pretrained"):
        import_run(folder, tmp_path / "run", settings(tmp_path))
