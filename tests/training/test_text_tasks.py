"""`jaxpt evaluate --tasks` of questions, last words and texts: files, flags, faults."""

import json

import pytest
from tiny import make_config, write_run

from jaxpt.cli.main import main

TASK = {
    "table": {"path": "dev.tsv", "header": False},
    "shots": {"path": "train.tsv", "header": False},
    "label": "1",
    "template": "{0} it was {answer}",
    "words": {"0": "bad", "1": "good"},
}


@pytest.fixture(scope="module")
def run(speech, tmp_path_factory):
    """A causal run before its first step."""
    folder = tmp_path_factory.mktemp("text_tasks")
    return write_run(make_config(speech, "clm"), folder / "run")


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A file of each form."""
    folder = tmp_path_factory.mktemp("data")
    (folder / "words.jsonl").write_text('{"text": "to the senate"}\n{"text": "a b"}\n')
    (folder / "long.txt").write_text("of the people and of the house and senate\n")
    (folder / "dev.tsv").write_text("so\t0\nno\t1\n")
    (folder / "train.tsv").write_text("a\t0\nb\t1\nc\t0\nd\t1\n")
    (folder / "task.json").write_text(json.dumps(TASK))
    return folder


def call(capsys, *args):
    code = main(["evaluate", *map(str, args)])
    printed = capsys.readouterr()
    return code, printed.out, printed.err


def find_result(run, name, **options):
    """What is kept of a task with these options."""
    for path in (run / "evaluations").glob(f"{name}-*.json"):
        result = json.loads(path.read_text())
        held = result.get("options", {})
        if all(held.get(key) == value for key, value in options.items()):
            return result["results"]["causal"]
    return None


def test_words_and_texts_in_one_call(run, data, capsys):
    tasks = f"lambada:{data / 'words.jsonl'},text:{data / 'long.txt'}"
    args = ("--workdir", run, "--tasks", tasks)
    code, out, err = call(capsys, *args, "--window", 16, "--stride", 5)
    assert code == 0, err
    assert "lambada" in out and "last_token_accuracy" in out and "Wilson" in out
    assert "Windows of 16 tokens, 5 apart" in out and "no_overlap" in out
    result = find_result(run, "text", window=16, stride=5)
    bits = result["figures"]["bits_per_byte"]
    assert 4 < bits["value"] < 7 and bits["low"] <= bits["value"] <= bits["high"]
    # The same again is not asked; another stride is.
    code, out, _ = call(capsys, *args, "--window", 16, "--stride", 5)
    assert code == 0 and out.count("asked before") == 2
    code, out, _ = call(capsys, *args, "--window", 16, "--stride", 8)
    assert code == 0 and out.count("asked before") == 1


def test_choice_from_any_table(run, data, capsys):
    rows = [{"q": "of the", "x": ["people", "house"], "y": "B"}] * 3
    (data / "choice.jsonl").write_text("".join(json.dumps(r) + "\n" for r in rows))
    values = {"table": {"path": "choice.jsonl"}, "shots": {"path": "choice.jsonl"}}
    values |= {"context": "{q}", "options": "x", "label": "y"}
    task = data / "choice.json"
    task.write_text(json.dumps(values))
    args = ("--workdir", run, "--tasks", f"choice:{task}")
    code, out, err = call(capsys, *args)
    assert code == 0, err
    assert "choice: " in out and "3 items" in out and "majority" in out
    figures = find_result(run, "choice", num_shots=0)["figures"]
    assert figures["acc"]["value"] in (0.0, 1.0) and "acc_mutual_info" in figures
    code, out, err = call(capsys, *args, "--shots", task, "--num_shots", 1)
    assert code == 0, err


def test_few_shot_cloze(run, data, capsys):
    task = data / "task.json"
    args = ("--workdir", run, "--tasks", f"cloze:{task}", "--shots", task)
    more = ("--num_shots", 2, "--num_draws", 2, "--num_orders", 2)
    code, out, err = call(capsys, *args, *more)
    assert code == 0, err
    assert "majority" in out and "sd_draws" in out and "draw 1 order 1" in out
    result = find_result(run, "cloze", num_shots=2)
    prompts = [each["acc"] for each in result["groups"]["prompt"].values()]
    assert len(prompts) == 4
    assert result["figures"]["acc"]["value"] == pytest.approx(sum(prompts) / 4)


@pytest.mark.parametrize(
    "more, output",
    [
        (["--tasks", "piqa:nowhere.jsonl"], "nowhere.jsonl"),
        (["--tasks", "lambada:DATA/dev.tsv"], "'text'"),
        (
            ["--tasks", "lambada:DATA/words.jsonl", "--stride", "3"],
            "--stride=3: is read",
        ),
        (["--tasks", "cloze:DATA/task.json", "--num_shots", "2"], "--num_shots=2"),
        (["--tasks", "cloze:DATA/task.json", "--num_draws", "2"], "--num_draws=2"),
        (
            ["--tasks", "cloze:DATA/task.json", "--num_shots", "5"]
            + ["--shots", "DATA/task.json"],
            "--num_shots=5: must be at most 4",
        ),
        (["--tasks", "text:DATA/long.txt", "--window", "99"], "--window=99: must be"),
        (["--window", "8"], "--window=8: is for --tasks"),
        (["--shots", "x"], "--shots=x: is for --tasks"),
    ],
)
def test_what_cannot_be_is_one_line(more, output, run, data, capsys):
    more = [word.replace("DATA", str(data)) for word in more]
    code, out, err = call(capsys, "--workdir", run, *more)
    assert code == 2 and output in err and len(err.splitlines()) == 1 and not out
