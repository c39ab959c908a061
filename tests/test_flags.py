"""Command lines: every flag takes its value, whatever the value is."""

import itertools

import pytest
from tiny import make_config, write_stored

from jaxpt import trust
from jaxpt.cli.flags import (
    expand,
    list_flag_names,
    parse,
    parse_config,
    repeat_flag,
)
from jaxpt.cli.main import COMMANDS, main

NAMES = sorted({name for each in COMMANDS.values() for name in each.all_flags})
VALUES = [
    *("a", "a=b", "=", "-", "--", "-x", "-5", "--help", "-h", "--unknown", "--a=b"),
    *("config", "workdir", "--config", "--workdir=b", "--trust=own.half", "--lr"),
    *("--config.train.steps=5", "no", "true", "--flagfile=x", *COMMANDS, *NAMES),
    *(f"--{name}" for name in NAMES),
]
# By the type of a flag's default, values that it can have.
TYPED = {int: ["5", "-5"], float: ["0.5", "-1e-3"]}
FLAGS = [
    (name, flag)
    for name, command in COMMANDS.items()
    for flag, (default, *_) in command.all_flags.items()
    if not isinstance(default, bool)
]


@pytest.fixture(autouse=True)
def _trusts(monkeypatch):
    """What --trust is given is forgotten after each test."""
    monkeypatch.setattr(trust, "_trusted", set())


def list_values(command, flag):
    default, _, *allowed = command.all_flags[flag]
    if allowed:
        return [value for value in allowed[0] if value]
    return TYPED.get(default if default is int else type(default), VALUES)


@pytest.mark.parametrize("name, flag", FLAGS)
def test_a_flag_takes_the_next_word_whatever_it_is(name, flag):
    command = COMMANDS[name]
    for value in list_values(command, flag):
        apart = parse(command, [f"--{flag}", value])[flag]
        joined = parse(command, [f"--{flag}={value}"])[flag]
        assert apart.present and apart.value == joined.value
        if joined.flag_type() == "string":
            assert joined.value == value
        for argv in ([f"--{flag}", value], [f"-{flag}", value], [f"--{flag}={value}"]):
            expected = [f"--{flag}={value}"]
            assert expand(command, argv) == expected == expand(command, expected)
            assert list_flag_names(command, argv) == {flag}


@pytest.mark.parametrize("name", COMMANDS)
def test_a_switch_takes_no_word(name):
    command = COMMANDS[name]
    flags = [k for k, (value, *_) in command.all_flags.items() if value is False]
    for flag, other in itertools.product(flags, command.all_flags):
        argv = [f"--{flag}", f"--{other}", "5"]
        assert list_flag_names(command, argv) == {flag, other}


def test_settings_take_values_that_begin_with_a_dash(speech, tmp_path):
    path = write_stored(tmp_path / "config.json", make_config(speech))
    for words, section, field, value in (
        (["--config.data.path", "-x.txt"], "data", "path", "-x.txt"),
        (["--data", "--x=y"], "data", "path", "--x=y"),
        (["--data", "steps"], "data", "path", "steps"),
        (["--config.data.path=--steps"], "data", "path", "--steps"),
        (["--config.optim.lr", "-1"], "optim", "lr", -1.0),
        (["--config.model.scan_layers", "true"], "model", "scan_layers", True),
        (["--config.model.scan_layers"], "model", "scan_layers", True),
        (["--noconfig.model.scan_layers"], "model", "scan_layers", False),
    ):
        for argv in (["--config", str(path), *words], [*words, f"--config={path}"]):
            config, values, names = parse_config(COMMANDS["train"], argv)
            assert config[section][field] == value and names == [f"{section}.{field}"]
            assert values.config == str(path)


def test_a_setting_whose_value_was_forgotten_takes_no_flag(speech, tmp_path, refuses):
    path = write_stored(tmp_path / "config.json", make_config(speech))
    for following in ("--workdir=a", "--lr=1", "--config.train.steps=3", "--quiet"):
        with refuses("--config.data.path: must have a value"):
            argv = [f"--config={path}", "--config.data.path", following]
            parse_config(COMMANDS["train"], argv)


@pytest.mark.parametrize(
    "text, values",
    [
        ("clm,mlm", ("clm", "mlm")),
        ("clm, mlm", ("clm", "mlm")),
        ("('clm','mlm')", ("clm", "mlm")),
        ("['clm', 'mlm']", ("clm", "mlm")),
        ("clm", ("clm",)),
        ("clm-64,mlm", ("clm-64", "mlm")),
    ],
)
def test_a_list_needs_no_quotes(text, values):
    """As in `jaxpt inspect --objectives clm,mlm`."""
    name = "--config.compare.objectives"
    for argv in ([f"{name}={text}"], [name, text]):
        config, _, _ = parse_config(COMMANDS["compare"], ["--config=quickstart", *argv])
        assert config.compare.objectives == values


@pytest.mark.parametrize(
    "setting, text, values",
    [
        ("compare.seeds", "0,1", (0, 1)),
        ("compare.seeds", "3", (3,)),
        ("compare.tasks", "blimp:a/b,finetune:tasks/sst2:c", None),
        ("compare.tasks", "()", ()),
        ("data.mixture", "gs://a/b,s3://c/*.txt", None),
        ("data.mixture", "('a=1','b=2')", ("a=1", "b=2")),
        ("data.mixture", "('hmm:states=4,seed=1',)", ("hmm:states=4,seed=1",)),
        ("compare.expected", "bits: a > own.b", ("bits: a > own.b",)),
        ("compare.expected", "bits: own.a = b", ("bits: own.a = b",)),
        ("compare.expected", "('a: b = c','a: b = d')", ("a: b = c", "a: b = d")),
    ],
)
def test_lists_of_other_settings(setting, text, values):
    argv = ["--config=quickstart", f"--config.{setting}={text}"]
    config, _, _ = parse_config(COMMANDS["compare"], argv)
    section, field = setting.split(".")
    assert config[section][field] == (
        tuple(text.split(",")) if values is None else values
    )


@pytest.mark.parametrize("text", ["a=1,b=2", "a b,c", "a,,b", "(a,b", "hmm:seed=1,b"])
def test_a_list_that_may_mean_several_things_needs_quotes(text, refuses):
    """Commas and "=" may be a part of a value: hmm:states=4,seed=1."""
    argv = ["--config=quickstart", f"--config.data.mixture={text}"]
    with refuses(f"--config.data.mixture={text}: must be a list such as a,b", "quotes"):
        parse_config(COMMANDS["compare"], argv)


def test_a_glob_gives_a_flag_all_its_words():
    report = COMMANDS["report"]
    argv = ["--runs", "a", "workdir", "runs", "--workdir", "runs", "--runs=b", "c"]
    runs = ["--runs=a", "--runs=workdir", "--runs=runs"]
    expected = [*runs, "--workdir=runs", "--runs=b", "--runs=c"]
    assert repeat_flag(report, "runs", argv) == expected
    assert parse(report, expected).runs == ["a", "workdir", "runs", "b", "c"]


@pytest.mark.parametrize("name", ["config", "dry_run"])
def test_a_run_in_a_folder_with_a_flags_name_resumes(
    name, speech, tmp_path, monkeypatch, capsys
):
    monkeypatch.chdir(tmp_path)
    path = write_stored(tmp_path / "my.json", make_config(speech, train__steps=2))
    assert main(["train", "--config", str(path), "--workdir", name]) == 0
    assert main(["train", "--workdir", name]) == 0
    assert main(["evaluate", "--workdir", name, "--json"]) == 0
    assert "valid_loss" in capsys.readouterr().out


@pytest.mark.parametrize("value", ["5", "-5", "-.5", "a"])
def test_a_setting_that_is_not_known_yet_takes_a_value(value):
    """Such as that of an objective outside jaxpt; another flag is no value."""
    flag = "--config.mine.rate"
    expected = [f"{flag}={value}", "--quiet"]
    assert expand(COMMANDS["train"], [flag, value, "--quiet"]) == expected
    assert expand(COMMANDS["train"], [flag, "--quiet"]) == [flag, "--quiet"]
