"""`jaxpt babylm --year 2026`: tasks of three languages, averages, verdicts."""

import csv
import json
import shutil
from pathlib import Path

import numpy as np
import pytest
from finetuning.test_babylm import WORDS, write_lines
from tiny import make_config, write_run

from jaxpt.cli.main import main
from jaxpt.config.config_files import read_config_file
from jaxpt.external.submissions import find_items, judge_submissions
from jaxpt.finetuning.babylm import write_items
from jaxpt.finetuning.multilingual import LANGUAGES, TUNED, find_tasks, find_tunings

NUM = 20
CONFIG = Path(__file__).parents[2] / "configs" / "tasks" / "babylm_2026.py"


def _name_fields(task):
    """The fields of the right and of the wrong sentence in the task's data set."""
    if task.startswith("multiblimp"):
        return "sen", "wrong_sen"
    if task.startswith("xcomps"):
        return "acceptable_sent", "unacceptable_sent"
    return "sentence_good", "sentence_bad"


def write_task(folder, name, as_folder=False):
    """Some questions of a task, in the fields of its data set."""
    part = next(parts[name] for parts in LANGUAGES.values() if name in parts)
    rows = []
    for i in range(NUM):
        one, other = WORDS[i % len(WORDS)], WORDS[(3 * i + 1) % len(WORDS)]
        texts = f"{one} {other}", f"{other} {one}"
        if part.task == "sentence_pairs":
            rows.append(dict(zip(_name_fields(name), texts, strict=True)))
        else:
            rows.append({"prompt": one, "choices": list(texts), "label": i % 2})
    place = folder / name / "test-0.jsonl" if as_folder else folder / f"{name}.jsonl"
    write_lines(place, rows)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """All tasks of English, one of Dutch; fine-tuning for Dutch topics."""
    folder = tmp_path_factory.mktemp("data")
    for i, name in enumerate(LANGUAGES["eng"]):
        write_task(folder, name, as_folder=i % 2 == 0)
    write_task(folder, "multiblimp_nld")
    rows = [{"sentence": f"{w} {w}", "label": "ab"[i % 2]} for i, w in enumerate(WORDS)]
    for split in ("train", "valid"):
        write_lines(folder / f"tuning/nl/sib200/sib200_nl.{split}.jsonl", rows)
    return folder


@pytest.fixture(scope="module")
def runs(speech, tmp_path_factory):
    """Two causal runs before their first step."""
    folder = tmp_path_factory.mktemp("babylm")
    return [
        write_run(make_config(speech, "clm", train__seed=seed), folder / name)
        for seed, name in enumerate(("one", "two"))
    ]


def evaluate(capsys, run, *args):
    command = ["babylm", "--workdir", run, "--year", "2026", *args, "--json"]
    assert main(list(map(str, command))) == 0
    return json.loads(capsys.readouterr().out)


def test_tasks_have_scores_and_languages_averages(runs, data, capsys):
    result = evaluate(capsys, runs[0], "--data", data, "--glue", data / "tuning")
    scores = result["rules"]["causal"]["scores"]
    assert list(scores) == [*LANGUAGES["eng"], "multiblimp_nld", "average_eng"]
    for name in ("value", "value_pipeline"):
        own = [scores[each][name] for each in LANGUAGES["eng"]]
        assert scores["average_eng"][name] == pytest.approx(np.mean(own))
    for score in scores.values():
        assert score["low"] <= score["value"] <= score["high"]
    widths = [scores[x]["high"] - scores[x]["value"] for x in LANGUAGES["eng"]]
    width = scores["average_eng"]["high"] - scores["average_eng"]["value"]
    assert width == pytest.approx(np.linalg.norm(widths) / len(widths))
    assert "zhoblimp (huggingface.co/datasets/Junrui1202/zhoblimp)" in result["missing"]
    assert "nl/arc" in result["missing"] and "multiblimp_eng" not in result["missing"]
    tuned = result["finetuning"]["nl/sib200"]
    assert tuned["metric"] == "accuracy" and tuned["value"] is not None
    place = runs[0] / "babylm"
    assert json.loads((place / "scores-2026.json").read_text()) == result
    with (place / "items-2026-causal.csv").open() as file:
        rows = list(csv.DictReader(file))
    own = [float(row["score"]) for row in rows if row["metric"] == "blimp"]
    assert len(own) == NUM and 100 * np.mean(own) == pytest.approx(
        scores["blimp"]["value"]
    )


def test_a_tie_is_half_a_point_and_a_whole_one_in_the_harness(runs, tmp_path, capsys):
    rows = [{"sen": "we have", "wrong_sen": "we have"}] * 4
    write_lines(tmp_path / "blimp.jsonl", rows)
    scores = evaluate(capsys, runs[0], "--data", tmp_path)["rules"]["causal"]["scores"]
    assert (scores["blimp"]["value"], scores["blimp"]["value_pipeline"]) == (50, 100)


def test_prompts_have_no_token_before_them_with_nobos(runs, data, capsys):
    """As lm-eval's hf model; sentences without a prompt always have one."""
    with_token = evaluate(capsys, runs[1], "--data", data)
    without = evaluate(capsys, runs[1], "--data", data, "--nobos")
    stored = [
        json.loads(path.read_text())
        for path in (runs[1] / "evaluations").glob("*-*.json")
    ]
    described = {
        (each["task"], "not scored" in each["rules"]["causal"]) for each in stored
    }
    assert ("sentence_pairs", False) in described
    assert ("sentence_pairs", True) not in described
    assert ("prompted_choices", True) in described
    one, other = (x["rules"]["causal"]["scores"] for x in (with_token, without))
    assert one["blimp"] == other["blimp"]


def test_submissions_are_compared_on_their_questions(runs, data, capsys, tmp_path):
    for run in runs:
        evaluate(capsys, run, "--data", data)
    result = evaluate(capsys, runs[0], "--against", runs[1])
    metrics = {each["metric"] for each in result["verdicts"]["metrics"]}
    assert metrics == {*LANGUAGES["eng"], "multiblimp_nld"}
    # Without the run, from its stored items alone.
    shutil.copytree(runs[1] / "babylm", tmp_path / "elsewhere")
    judged = judge_submissions([runs[0], tmp_path / "elsewhere"], 2026)
    assert judged.is_fixed and len(judged.rankings) == len(metrics)


def test_a_better_submission_is_ahead(tmp_path):
    """90 % against 70 % of 400 questions; as `jaxpt verdict --fixed` finds."""
    for name, share in (("good", 0.9), ("fair", 0.7)):
        hits = (np.arange(400) % 10 < 10 * share).astype(int)
        path = tmp_path / name / "babylm" / "items-2026-causal.csv"
        path.parent.mkdir(parents=True)
        path.write_bytes(write_items([["blimp", i, h, 1] for i, h in enumerate(hits)]))
    (ranking,) = judge_submissions(
        [tmp_path / "fair", tmp_path / "good"], 2026
    ).rankings
    (pair,) = ranking.metric.pairs
    assert (pair.better, pair.worse, pair.outcome) == ("good", "fair", "ahead")
    assert pair.difference == pytest.approx(0.2) and pair.low > 0


def test_seeds_of_a_submission_are_its_runs(tmp_path):
    """Four seeds each: verdicts hold for other seeds, too."""
    rng = np.random.default_rng(0)
    for name, share in (("good", 0.9), ("fair", 0.7)):
        for seed in range(4):
            path = tmp_path / f"{name}-seed{seed}" / "items-causal.csv"
            path.parent.mkdir()
            hits = (rng.random(300) < share).astype(int)
            path.write_bytes(
                write_items([["blimp", i, h, 1] for i, h in enumerate(hits)])
            )
    judged = judge_submissions(sorted(tmp_path.iterdir()), 2025)
    assert not judged.is_fixed
    assert [line.seeds for line in judged.rankings[0].lines] == [4, 4]
    assert judged.rankings[0].metric.pairs[0].outcome == "ahead"


def refuse(capsys, words, *args):
    assert main(list(map(str, args))) == 2
    error = capsys.readouterr().err
    assert words in error and len(error.splitlines()) == 1


def test_faults_are_one_line(runs, data, capsys, tmp_path):
    command = "babylm", "--workdir", runs[0], "--year", "2026"
    refuse(
        capsys,
        "--year=2024: must be 2025 or 2026",
        *command[:-1],
        "2024",
        "--data",
        data,
    )
    refuse(capsys, "at least one of them must be given", *command)
    refuse(capsys, "has none of multiblimp_eng", *command, "--data", tmp_path)
    refuse(capsys, "must be a folder", *command, "--data", tmp_path / "no")
    refuse(capsys, "such as nl/arc/arc_nl.train.jsonl", *command, "--glue", tmp_path)
    refuse(capsys, "has no items of 2026", *command, "--against", tmp_path)
    write_task(tmp_path, "blimp")
    write_task(tmp_path, "blimp", as_folder=True)
    refuse(capsys, "has blimp several times", *command, "--data", tmp_path)


def test_items_of_several_rules_need_a_name(tmp_path):
    for name in ("items-pll.csv", "items-causal.csv", "items-2026-pll.csv"):
        (tmp_path / name).write_text("")
    assert find_items(tmp_path, 2026).name == "items-2026-pll.csv"
    assert find_items(tmp_path, 2025, "pll").name == "items-pll.csv"
    with pytest.raises(Exception, match="has items of causal, pll: name one with rule"):
        find_items(tmp_path, 2025)


def test_formats_of_tasks(tmp_path):
    """A compressed file, a folder of paradigms, a folder with other splits."""
    write_lines(tmp_path / "zhoblimp" / "a.jsonl", [{}])
    write_lines(tmp_path / "hellaswag_nl_mubench" / "validation-0.jsonl", [{}])
    write_lines(tmp_path / "hellaswag_nl_mubench" / "test-0.jsonl", [{}])
    (tmp_path / "blimp.jsonl.xz").write_bytes(b"")
    assert {
        name: Path(path).name for name, path in find_tasks(str(tmp_path)).items()
    } == {
        "zhoblimp": "zhoblimp",
        "hellaswag_nl_mubench": "test*",
        "blimp": "blimp.jsonl.xz",
    }


def test_the_recipe_is_that_of_the_challenge(tmp_path):
    """finetune_model.sh: 10 epochs, batches of 64, a rate of 5e-5, the last epoch."""
    for language, names in TUNED.items():
        for name in names:
            config = read_config_file(f"{CONFIG}:data,{language},{name}")
            assert (
                config.data.dev
                == f"data/{language}/{name}/{name}_{language}.valid.jsonl"
            )
            is_pair = name in ("mnli", "xnli")
            assert (config.task.text, bool(config.task.pair)) == (
                "premise" if is_pair else "sentence",
                is_pair,
            )
            train = config.train
            assert (train.epochs, train.batch_size, train.lr) == ((10,), (64,), (5e-5,))
            assert (train.keep, config.task.max_len) == ("last", 0)
    assert {len(names) for names in TUNED.values()} == {7, 8}
    with pytest.raises(Exception, match="de: must be one of en, nl, zh"):
        read_config_file(f"{CONFIG}:data,de,arc")
    with pytest.raises(Exception, match="has no LANGUAGE/TASK"):
        find_tunings(str(tmp_path))
