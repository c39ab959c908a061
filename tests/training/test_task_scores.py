"""`eval.tasks`: zero-shot tasks in the learning curves, as `evaluate` scores them."""

import json

import pytest
from stops import stop_after
from tiny import make_config, prepare, slow_but

from jaxpt.cli.main import main
from jaxpt.errors import ConfigError, DataError
from jaxpt.report.metrics import find_metric
from jaxpt.report.report_charts import list_curve_metrics
from jaxpt.report.types import Point, RunEntry
from jaxpt.runs.metrics_file import read_metrics
from jaxpt.runs.result import load_result
from jaxpt.runs.signals import Stopped
from jaxpt.runs.zero_shot_results import evaluate_tasks
from jaxpt.training import loop
from jaxpt.zero_shot.names import NAMES, WRITTEN
from jaxpt.zero_shot.outcomes import SAMPLES
from jaxpt.zero_shot.tasks import TASKS

WORDS = "the of and to in a that is was he for it with as his on be at by".split()


@pytest.fixture(scope="module")
def pairs(tmp_path_factory):
    """40 minimal pairs; the order of two words."""
    path = tmp_path_factory.mktemp("tasks") / "orders.jsonl"
    texts = [(a, b) for a in WORDS[:7] for b in WORDS if a != b][:40]
    rows = [{"good": f"{a} {b}", "bad": f"{b} {a}"} for a, b in texts]
    path.write_text("\n".join(map(json.dumps, rows)))
    return path


@pytest.fixture(scope="module")
def similar(tmp_path_factory):
    """Pairs of texts with a similarity."""
    path = tmp_path_factory.mktemp("tasks") / "sts.tsv"
    rows = [
        f"{a} man\t{b} man\t{i % 6}" for i, (a, b) in enumerate(zip(WORDS, WORDS[1:]))
    ]
    path.write_text("\n".join(["sentence1\tsentence2\tscore", *rows]))
    return path


def make(speech, objective, tasks, **changes):
    settings = {"train__eval_every": 4, "eval__tasks": tuple(tasks)}
    return make_config(speech, objective, **settings | changes)


def train(config, folder, **how):
    return loop.train(*prepare(config), folder, **how)


def read_scores(folder):
    """By step, the metrics of tasks."""
    lines = [line for line in read_metrics(folder) if "valid_loss" in line]
    return {
        line["step"]: {k: v for k, v in line.items() if k.startswith("zero_shot_")}
        for line in lines
    }


@pytest.mark.parametrize("objective", slow_but(("mlm",), ("clm", "mlm", "electra")))
def test_scores_are_those_of_evaluate_on_the_same_items(
    objective, speech, pairs, similar, tmp_path
):
    settings = f"pairs:{pairs}", f"sts:{similar}"
    config = make(speech, objective, settings, eval__task_items=11)
    result = train(config, tmp_path)
    scores = read_scores(tmp_path)
    assert list(scores) == [0, 4, 8, 12]
    names = [*scores[0]]
    assert names[0] == "zero_shot_pairs_accuracy" and names[1].startswith(
        "zero_shot_sts"
    )
    evaluated = evaluate_tasks(tmp_path, settings, "auto", num_items=11)
    for name, task in zip(names, evaluated, strict=True):
        assert task["step"] == 12 and task["num_items"] == 11
        (outcome,) = task["results"].values()
        figure = next(iter(outcome["figures"]))
        assert name.endswith(figure)
        value = outcome["figures"][figure]["value"]
        assert scores[12][name] == result["metrics"][name] == value
        assert result["curve"][-1][name] == value
    curve = [point[names[0]] for point in load_result(tmp_path)["curve"]]
    assert curve == [scores[step][names[0]] for step in scores]


def test_a_resumed_run_scores_the_same(speech, pairs, tmp_path, monkeypatch):
    config = make(speech, "clm", [f"pairs:{pairs}"])
    train(config, tmp_path / "whole")
    with monkeypatch.context() as patch:
        patch.setattr(loop, "SignalWatch", stop_after(2))
        with pytest.raises(Stopped):
            train(config, tmp_path / "parts")
    train(config, tmp_path / "parts")
    whole, parts = (read_scores(tmp_path / name) for name in ("whole", "parts"))
    assert whole == parts and len(whole) == 4
    # All 40, as there are no 200.
    assert {value["zero_shot_pairs_accuracy"] * 80 % 1 for value in whole.values()} == {
        0
    }


def test_without_evaluations_the_end_is_scored(speech, pairs, tmp_path):
    changes = {"train__eval_every": 0, "eval__pair_questions": 0, "train__steps": 2}
    result = train(make(speech, "clm", [f"pairs:{pairs}"], **changes), tmp_path)
    (task,) = evaluate_tasks(tmp_path, [f"pairs:{pairs}"], "auto", num_items=200)
    value = task["results"]["causal"]["figures"]["accuracy"]["value"]
    assert result["metrics"]["zero_shot_pairs_accuracy"] == value


def test_two_files_of_a_kind_have_two_names(speech, pairs, tmp_path):
    other = tmp_path / "others.jsonl"
    other.write_text(pairs.read_text())
    tasks = f"pairs:{pairs}", f"pairs:{other}"
    changes = {"train__steps": 2, "train__eval_every": 2, "train__checkpoint_every": 2}
    train(make(speech, "clm", tasks, **changes), tmp_path / "run")
    assert set(read_scores(tmp_path / "run")[2]) == {
        "zero_shot_pairs_orders_accuracy",
        "zero_shot_pairs_others_accuracy",
    }


def test_a_task_that_a_network_cannot_score(speech, pairs, similar, tmp_path, caplog):
    config = make(speech, "skip_gram", [f"pairs:{pairs}", f"sts:{similar}"])
    message = f"eval.tasks=pairs:{pairs}: must be left out for skip_gram"
    with pytest.raises(ConfigError) as error:
        train(config, tmp_path / "alone")
    assert str(error.value).startswith(message)
    assert not (tmp_path / "alone" / "config.json").exists()
    # A run of a comparison scores the others.
    caplog.set_level("INFO")
    train(config, tmp_path / "compared", label="skip_gram seed 0")
    assert f"not measured: {message}" in caplog.text
    (name,) = read_scores(tmp_path / "compared")[12]
    assert name.startswith("zero_shot_sts")


def test_a_missing_file_is_found_before_anything_is_written(speech, tmp_path, capsys):
    config = make(speech, "clm", ["pairs:gone.jsonl"])
    with pytest.raises(DataError, match="gone.jsonl"):
        train(config, tmp_path / "run")
    assert not (tmp_path / "run" / "config.json").exists()
    flags = ["--config", "quickstart:clm", "--workdir", str(tmp_path / "new")]
    flags += [f"--config.data.path={speech}", "--config.data.split=position"]
    assert main(["train", *flags, "--config.eval.tasks=pairs:gone.jsonl"]) == 2
    error = capsys.readouterr().err.splitlines()[-1]
    assert "gone.jsonl" in error and not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    "value", ["generation:x.json", "blimp", "finetune:x.py", "hellaswag:x", "blimp:"]
)
def test_names_that_are_refused(value, tmp_path, capsys):
    flags = ["--config", "quickstart:clm", f"--config.eval.tasks={value}"]
    assert main(["train", *flags, "--workdir", str(tmp_path / "run")]) == 2
    error = capsys.readouterr().err
    assert "eval.tasks" in error and "blimp:PATH" in error
    assert len(error.splitlines()) == 1 and not (tmp_path / "run").exists()


def test_a_stored_config_cannot_name_a_remote_place(speech, tmp_path):
    from jaxpt.training.task_scores import read_tasks

    with pytest.raises(ConfigError, match="only a stored file names this place"):
        read_tasks(["pairs:s3://of-others/pairs.jsonl"])
    with pytest.raises(ConfigError, match="only a stored file names this place"):
        read_tasks(["pairs:hf:of-others/pairs"])


def test_those_that_write_are_left_out():
    assert {name for name in NAMES if TASKS[name].reads == SAMPLES} == {*WRITTEN}


def test_a_report_draws_their_curves():
    values = [
        {"zero_shot_blimp_accuracy": v, "flops": v, "raw_tokens": v} for v in (1, 2)
    ]
    curve = tuple(Point(step, each) for step, each in enumerate(values))
    entry = RunEntry("a", "clm", 0, curve=curve)
    assert list_curve_metrics([entry]) == ["zero_shot_blimp_accuracy"]
    metric = find_metric("zero_shot_blimp_accuracy")
    assert metric.is_common and metric.higher_is_better
    with pytest.raises(KeyError):
        find_metric("no_such_metric")
