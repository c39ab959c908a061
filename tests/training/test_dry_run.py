"""What a run would be and cost, told without training it."""

import json

import jax
from tiny import make_config, write_config

from jaxpt.cli.main import main
from jaxpt.training.dry_run import dry_run, format_costs


def test_it_says_what_the_run_says(speech, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_config(tmp_path / "config.py", speech, train__steps=4)
    argv = ["train", "--config", "config.py", "--config.objective=mlm"]
    assert main([*argv, "--dry_run", "--json"]) == 0
    output = json.loads(capsys.readouterr().out)
    assert main([*argv, "--dry_run"]) == 0
    lines = capsys.readouterr().out
    assert f"mlm: {output['parameters']:,} parameters on" in lines
    assert lines.splitlines()[-1].startswith("on a GPU or TPU that you do not have: ")
    assert f"\nexport to transformers: {output['export']}\n" in lines
    assert output["export"].startswith("none; the nearest, ")
    assert sorted(x.name for x in tmp_path.iterdir()) == ["config.py"]
    assert main([*argv, "--workdir", "run", "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert output["parameters"] == result["params"]
    assert output["flops"] == result["flops"]
    # Parameters and two moments of float32, and a few counts of steps.
    size = 3 * 4 * output["parameters"]
    assert size <= output["state_bytes"] <= size + 64
    assert output["rows_bytes"] >= 2 * 8 * 24 * 4 and output["temporary_bytes"] > 0
    assert output["step_seconds"] > 0 and output["steps"] == 4
    assert output["train_seconds"] == output["step_seconds"] * 4
    kernel = "cpu" if jax.default_backend() == "cpu" else output["attention"][0]
    assert output["attention"] == [kernel]


def test_a_run_by_the_clock_takes_its_seconds(speech):
    output = dry_run(make_config(speech, train__seconds=5.0))
    assert output["train_seconds"] == 5.0


def test_what_cannot_be_trained_is_refused(speech, refuses):
    with refuses("dry_run: distillation trains a teacher first"):
        dry_run(make_config(speech, "distillation"))
    with refuses("train.backend=pnap: must be one of"):
        dry_run(make_config(speech, "mlm", train__backend="pnap"))


def test_a_long_step_is_extrapolated_from_some_of_its_rows(speech, monkeypatch):
    """Of 8 rows, those that fit; each microbatch has equally many."""
    stacks, known = [], []

    def time_step(program, state, stack, count):
        stacks.append(stack["tokens"].shape)
        return state, len(stack["tokens"][0]) / 1000

    monkeypatch.setattr("jaxpt.training.dry_run._time_step", time_step)
    config = make_config(speech, train__steps=4, train__steps_per_call=2)
    whole = dry_run(config, on_sizes=known.append)
    assert whole["timed_rows"] == 8 and known[0].items() <= whole.items()
    row_flops = whole["flops_per_step"] / 8
    for most, microbatches, expected in [(15.9, 1, 8), (7.5, 2, 6), (1.0, 4, 4)]:
        monkeypatch.setattr("jaxpt.training.dry_run.MOST_FLOPS", most * row_flops)
        config.train.num_microbatches = microbatches
        output = dry_run(config)
        assert output["timed_rows"] == expected and stacks[-1][:2] == (1, expected)
        assert output["train_seconds"] == 4 * 8 / 1000
        assert output["step_seconds"] == 8 / 1000
        assert output["temporary_bytes"] > 0
    assert format_costs(output)[1].endswith("by a step of 4 rows, 24,000 tokens/s")
