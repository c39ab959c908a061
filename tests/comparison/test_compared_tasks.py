"""Downstream tasks of a comparison: every run is evaluated once, and reported."""

import itertools
import json
import shutil

import pytest
from reports import make_report, make_run, vary
from tiny import make_config

from jaxpt import trust
from jaxpt.comparison import plan_runs
from jaxpt.comparison.compare import Part, compare, do_part
from jaxpt.comparison.compared_tasks import (
    _describe_tuned,
    identify_tasks,
    list_compare_tasks,
)
from jaxpt.comparison.plan_runs import load_plans
from jaxpt.comparison.train_runs import Trainer
from jaxpt.config.plan import make_compare_spec
from jaxpt.config.settings import list_code, to_dict
from jaxpt.errors import UserError
from jaxpt.finetuning.reuse import Reuse
from jaxpt.report import figures
from jaxpt.report.answer import rank_report
from jaxpt.report.summary import summarise
from jaxpt.report.task_charts import (
    collect_ngrams,
    collect_points,
    draw_tuned,
    list_tuned,
)
from jaxpt.report.terminal import tabulate
from jaxpt.runs.workdir import load_examples
from jaxpt.training import loop

CONFIG = """
from jaxpt.config.finetuning import default_finetune_config

def get_config(folder):
    config = default_finetune_config("classification")
    config.task.text = "text"
    config.task.label = "label"
    config.task.max_len = 16
    config.data.train = f"{folder}/train.tsv"
    config.data.dev = f"{folder}/dev.tsv"
    config.train.lr = (1e-3,)
    config.train.epochs = (1,)
    return config
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Data of a zero-shot task and of a fine-tuning, and its config."""
    folder = tmp_path_factory.mktemp("tasks")
    pair = {"sentence_good": "the men speak", "sentence_bad": "men speak the"}
    lines = [json.dumps(pair | {"UID": f"paradigm{i % 2}"}) for i in range(6)]
    (folder / "pairs.jsonl").write_text("\n".join(lines))
    (folder / "toy.py").write_text(CONFIG)
    for name, num in (("train", 16), ("dev", 6)):
        rows = [f"we {'speak' if i % 2 else 'hear'} well\t{i % 2}" for i in range(num)]
        (folder / f"{name}.tsv").write_text("\n".join(["text\tlabel", *rows, ""]))
    return folder


@pytest.fixture(autouse=True, scope="module")
def quick():
    """No pictures, and no look ahead at what will be measured: both compile much."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(figures, "draw", lambda *args: {})
        patch.setattr(plan_runs, "check_run", lambda *args: None)
        yield


def name_tasks(folder):
    return (f"pairs:{folder}/pairs.jsonl", f"finetune:{folder}/toy.py:{folder}")


def ask_both(folder):
    return {
        "compare__tasks": name_tasks(folder),
        "compare__task_sizes": (4,),
        "compare__task_settings": {"train": {"lr": (2e-3,)}},
    }


def make_compared(speech, **changes):
    settings = {
        "train__steps": 4,
        "compare__objectives": ("clm", "mlm"),
        "compare__overrides": {},
        "compare__seeds": (0,),
        "compare__budget": "steps",
    }
    config = make_config(speech, **(settings | changes))
    trust.trust(list_code(to_dict(config)))  # as if flags had named it
    return config


@pytest.fixture(scope="module")
def evaluated(speech, folder, tmp_path_factory):
    """A comparison that was finished and then asked; and its report."""
    workdir = tmp_path_factory.mktemp("compared") / "run"
    before = compare(make_compared(speech), workdir)
    assert not any("tasks" in run for run in before["runs"])
    path = workdir / "runs" / "clm-seed0" / "result.json"
    trained = path.stat().st_mtime_ns
    report = compare(make_compared(speech, **ask_both(folder)), workdir)
    assert path.stat().st_mtime_ns == trained  # asked, not trained again
    return workdir, report


def test_every_run_is_asked_and_the_report_says_what_it_answered(evaluated):
    workdir, report = evaluated
    metrics = ["task_pairs", "task_toy_4"]
    for run in report["runs"]:
        assert {task["metric"] for task in run["tasks"]} == set(metrics)
        sizes = {task["metric"]: task.get("num_labels") for task in run["tasks"]}
        assert sizes == {"task_pairs": None, "task_toy_4": 4}
        assert run["finetune_seconds"] > 0
        folder = workdir / run["workdir"]
        kept = json.loads(
            (folder / "finetune/toy-4/pretrained/result.json").read_text()
        )
        (cell,) = kept["cells"]
        assert cell["lr"] == 2e-3  # of task_settings, not of the task's file
        assert run["metrics"]["task_toy_4"] == cell["dev"]["accuracy"]
        assert (
            cell["seed"] == run["seed"] and kept["constant"]["dev"]["accuracy"] == 0.5
        )
        scratch = json.loads(
            (folder / "finetune/toy-4/scratch/result.json").read_text()
        )
        value = scratch["cells"][0]["dev"]["accuracy"]
        assert run["metrics"]["task_toy_4_random"] == value
        # "speak" and "hear" are the labels: words alone tell them.
        assert run["metrics"]["task_toy_4_ngrams"] == 1.0
        # The score of each test example is kept, so intervals have their error.
        scores = load_examples(folder, "task_examples.npz")
        for metric in (*metrics, "task_toy_4_random"):
            assert scores[metric].mean == pytest.approx(run["metrics"][metric])
            assert len(scores[metric].totals) == 6
    result = {y["metric"]: y for y in report["metrics"]}
    for metric in metrics:
        assert result[metric]["pairs"][0]["documents"] > 1
        assert result[metric]["span"] == 1.0
        assert result[metric]["is_common"] and len(result[metric]["pairs"]) == 1
        assert set(result[metric]["by_name"]) == {"clm", "mlm"}
    pairs = result["task_toy_4"]["baselines"]
    controls = {name for pair in pairs for name in (pair["better"], pair["worse"])}
    assert controls == {"clm", "mlm", "(untrained)", "(n-grams)"}
    page = (workdir / "report.html").read_text()
    assert "Fine-tuning" in page and 'id="tuned"' in page
    table = (workdir / "results.csv").read_text()
    assert "task_toy_4," in table and "task_toy_4_ngrams" in table


def test_embeddings_and_writing_are_compared_with_their_examples(
    evaluated, folder, speech, tmp_path
):
    """Of each run that has what a task reads; a judge is another run."""
    judge = evaluated[0] / "runs" / "clm-seed0"
    table = ["sentence1\tsentence2\tscore", "we speak\twe hear\t3", "a man\ta\t1"]
    (tmp_path / "pairs.tsv").write_text("\n".join([*table, "the men\tthe men\t5", ""]))
    (tmp_path / "real.txt").write_text("we have a strong and just union of men " * 6)
    settings = {"reference": "real.txt", "judge": str(judge), "num_words": 3}
    task = tmp_path / "generation.json"
    task.write_text(json.dumps(settings | {"prompt_words": 2}))
    names = f"sts:{tmp_path}/pairs.tsv", f"generation:{task}"
    config = make_compared(
        speech,
        compare__tasks=names,
        compare__objectives=("clm", "skip_gram"),
        train__steps=2,
    )
    report = compare(config, tmp_path / "run")
    writes = {
        "task_generation_log_perplexity",
        "task_generation_mauve",
        "task_generation_entropy",
        "task_generation_seq_rep_4",
    }
    for run in report["runs"]:
        found = {name for name in run["metrics"] if name.startswith("task_")}
        own = writes if run["objective"] == "clm" else set()
        assert found == {"task_sts"} | own
        examples = load_examples(tmp_path / "run" / run["workdir"], "task_examples.npz")
        assert set(examples) == found - {"task_generation_mauve"}
        for name, scores in examples.items():
            assert scores.mean == pytest.approx(run["metrics"][name])
    metrics = {each["metric"]: each for each in report["metrics"]}
    assert set(metrics["task_sts"]["by_name"]) == {"clm", "skip_gram"}
    assert metrics["task_sts"]["span"] == 2.0
    better = {name: metrics[name]["higher_is_better"] for name in sorted(writes)}
    assert list(better.values()) == [True, False, True, False]
    # Another judge asks anew, and one that is missing is refused before training.
    spec = make_compare_spec(config)
    before = identify_tasks(spec, Reuse())
    task.write_text(json.dumps(settings | {"judge": str(tmp_path / "no")}))
    with pytest.raises(UserError):
        identify_tasks(spec, Reuse())
    other = evaluated[0] / "runs" / "mlm-seed0"
    task.write_text(json.dumps(settings | {"prompt_words": 2, "judge": str(other)}))
    assert identify_tasks(spec, Reuse()) != before


def test_what_was_answered_is_not_asked_again_but_on_other_data(
    evaluated, folder, speech, tmp_path, monkeypatch
):
    workdir, _ = evaluated
    again = tmp_path / "again"
    shutil.copytree(workdir, again)
    own = tmp_path / "data"
    shutil.copytree(folder, own)
    asked_of = []
    monkeypatch.setattr(
        "jaxpt.comparison.compared_tasks.evaluate_tasks",
        lambda folder, *rest, **options: asked_of.append(folder.name) or [],
    )
    more = {"compare__tasks": name_tasks(folder)[:1]}
    spec = make_compared(speech, **more)
    path = again / "runs" / "mlm-seed0" / "tasks.json"
    kept = path.read_bytes()
    compare(make_compared(speech, **ask_both(folder)), again)
    assert not asked_of and path.read_bytes() == kept
    with (folder / "pairs.jsonl").open("a") as file:
        line = {"sentence_good": "a", "sentence_bad": "b", "UID": "more"}
        file.write("\n" + json.dumps(line))
    try:
        with pytest.raises(ValueError):  # the fake gives no answer
            compare(spec, again)
        assert asked_of == ["clm-seed0"]
    finally:
        shutil.copy(own / "pairs.jsonl", folder / "pairs.jsonl")


def test_finished_runs_without_checkpoints_are_kept(
    evaluated, folder, speech, tmp_path, monkeypatch, refuses
):
    """So that the small files of a study are enough to continue it."""
    workdir, report = evaluated
    again = tmp_path / "again"
    shutil.copytree(
        workdir, again, ignore=shutil.ignore_patterns("checkpoints", "finetune")
    )
    monkeypatch.setattr(loop, "prefetch", None)  # would raise if it trained
    config = make_compared(speech, **ask_both(folder))
    assert compare(config, again)["runs"] == report["runs"]
    with (again / "runs/mlm-seed0/result.json").open("a") as file:
        file.write(" ")
    with refuses("result.json"):
        compare(config, again)


def test_a_report_needs_every_answer(evaluated, folder, speech, tmp_path, refuses):
    workdir, _ = evaluated
    again = tmp_path / "again"
    shutil.copytree(workdir, again)
    config = make_compared(speech, **ask_both(folder))
    trainer = Trainer(load_plans(to_dict(config), again), again)
    assert trainer.is_finished("mlm", 0)
    (again / "runs/mlm-seed0/tasks.json").unlink()
    assert not trainer.is_finished("mlm", 0)
    with refuses("mlm-seed0/tasks.json: is missing"):
        do_part(Part("report"), config, again)


@pytest.mark.parametrize(
    "changes, error",
    [
        ({"tasks": ("chess:FOLDER",)}, "compare.tasks=('chess:FOLDER',): must be"),
        ({"tasks": ("finetune:",)}, "compare.tasks=('finetune:',): must be"),
        ({"tasks": ("finetune:no.py",)}, "no.py: not found; must be a .py file"),
        ({"tasks": ("pairs:nowhere.jsonl",)}, "nowhere.jsonl"),
        (
            {"tasks": ("pairs:pairs.tsv", "pairs:./pairs.tsv")},
            "compare.tasks=pairs:./pairs.tsv: has the name pairs_pairs_tsv, as has "
            "pairs:pairs.tsv",
        ),
        (
            {"tasks": ("finetune:FOLDER/toy.py:FOLDER",), "task_sizes": (17,)},
            "data.num_train=17: must be at most 16",
        ),
        (
            {
                "tasks": ("finetune:FOLDER/toy.py:FOLDER",),
                "task_settings": {"train": {"rate": 1.0}},
            },
            "compare.task_settings: train.rate: unknown setting",
        ),
        ({"task_sizes": ()}, "compare.task_sizes=(): must be a list of whole numbers"),
        ({"task_items": -1}, "compare.task_items=-1: must be at least 0"),
    ],
)
def test_what_cannot_be_asked_is_refused_before_anything_is_trained(
    changes, error, speech, folder, tmp_path, refuses
):
    output = {
        f"compare__{name}": tuple(
            each.replace("FOLDER", str(folder)) if type(each) is str else each
            for each in values
        )
        if type(values) is tuple
        else values
        for name, values in changes.items()
    }
    with refuses(error.replace("FOLDER", str(folder) if "chess" in error else "")):
        compare(make_compared(speech, **output), tmp_path / "run")
    assert not (tmp_path / "run" / "runs").exists()


@pytest.mark.parametrize(
    "old, new, error",
    [
        (
            "max_len = 16",
            "max_len = 64",
            "task.max_len=64: must be at most the model's",
        ),
        ("max_len = 16", "head = 'bart'", "task.head=bart: reads a decoder"),
    ],
)
def test_a_network_that_cannot_be_tuned_is_refused_before_it_is_trained(
    old, new, error, speech, folder, tmp_path, refuses
):
    config = tmp_path / "toy.py"
    config.write_text(CONFIG.replace(f"config.task.{old}", f"config.task.{new}"))
    output = {"compare__tasks": (f"finetune:{config}:{folder}",)}
    with refuses(error) as result:
        compare(make_compared(speech, **output), tmp_path / "run")
    assert f"(for clm, finetune:{config}:{folder})" in str(result.value)
    assert not (tmp_path / "run" / "runs").exists()


def test_names_of_tasks():
    settings = {"amount": 1.0, "tasks": ("blimp:a", "finetune:b/sst2.py:c")}
    spec = make_compare_spec({"compare": settings | {"task_sizes": (32, 0)}})
    blimp, sst2 = list_compare_tasks(spec)
    assert blimp.is_zero_shot and blimp.metric() == "task_blimp"
    assert sst2.path == "b/sst2.py:c" and sst2.sizes == (32, 0)
    assert [sst2.metric(n) for n in sst2.sizes] == ["task_sst2_32", "task_sst2"]


def test_zero_shot_tasks_of_the_same_kind_are_named_by_their_data():
    tasks = ("pairs:a.tsv", "blimp:x/filtered.tar.xz", "blimp:more", "pairs:b.tsv")
    names = ["pairs_a", "blimp_filtered", "blimp_more", "pairs_b"]
    for step in (1, -1):  # whatever their order
        settings = {"amount": 1.0, "tasks": tasks[::step]}
        spec = make_compare_spec({"compare": settings})
        assert [task.name for task in list_compare_tasks(spec)] == names[::step]


# Entries that share a name, and the names that distinguish them.
CLASHES = [
    # Fine-tunings of one config: by their arguments.
    {"finetune:c/sst2.py:/d/one": "sst2_one", "finetune:c/sst2.py:/d/two": "sst2_two"},
    {"finetune:c/sst2.py": "sst2", "finetune:c/sst2.py:d,frozen": "sst2_d_frozen"},
    {"finetune:t.py:a/x": "t_a_x", "finetune:t.py:b/x": "t_b_x", "finetune:u.py": "u"},
    {"finetune:t.py:0.1": "t_0_1", "finetune:t.py:0.2": "t_0_2"},
    {"finetune:t.py:../x": "t_up_x", "finetune:t.py:x": "t_x"},
    {"finetune:t.py:/x": "t_root_x", "finetune:t.py:x": "t_x"},
    # Configs of one name in two folders, and a config with a zero-shot task's name.
    {"finetune:a/t.py:x": "a_t_x", "finetune:b/t.py:x": "b_t_x"},
    {"finetune:blimp.py:x": "blimp_x", "blimp:y": "blimp_y"},
    # An argument that would give the metric of 32 labels, or of a baseline.
    {"finetune:t.py": "t", "finetune:t.py:q/32": "t_q_32"},
    {"finetune:t.py": "t", "finetune:t.py:q/random": "t_q_random"},
    {"pairs:a/p.tsv": "pairs_a_p", "pairs:b/p.tsv": "pairs_b_p"},
    {"pairs:p.tsv": "pairs_p_tsv", "pairs:p.jsonl": "pairs_p_jsonl"},
]


@pytest.mark.parametrize("names", CLASHES, ids=lambda names: "-".join(names.values()))
def test_tasks_are_named_by_what_distinguishes_them(names):
    for tasks in itertools.permutations(names):
        settings = {"amount": 1.0, "tasks": tasks, "task_sizes": (0, 32)}
        listed = list_compare_tasks(make_compare_spec({"compare": settings}))
        assert [task.name for task in listed] == [names[task] for task in tasks]
        metrics = [task.metric(size) for task in listed for size in task.sizes or (0,)]
        assert len(set(metrics)) == len(metrics)


@pytest.mark.parametrize("other", ["finetune:./t.py:x", "finetune:t.py:x/"])
def test_the_same_task_is_named_once(other, refuses):
    tasks = ("finetune:t.py:x", other)
    spec = make_compare_spec({"compare": {"amount": 1.0, "tasks": tasks}})
    with refuses(f"compare.tasks={other}: has the name t_x, as has finetune:t.py:x"):
        list_compare_tasks(spec)


def test_the_same_fine_tuning_is_named_once(folder, speech, tmp_path, refuses):
    """Of the same settings and examples, wherever these are; others are two tasks."""
    task = f"finetune:{folder}/toy.py:"
    shutil.copytree(folder, tmp_path / "same")
    for again in (f"{task}{folder}/../{folder.name}", f"{task}{tmp_path / 'same'}"):
        config = make_compared(speech, compare__tasks=(f"{task}{folder}", again))
        with refuses(f"compare.tasks={again}: has the settings and the data of {task}"):
            identify_tasks(make_compare_spec(to_dict(config)), Reuse())
    for path in (tmp_path / "same").glob("*.tsv"):
        path.write_text(path.read_text().replace("well", "you"))
    config = make_compared(speech, compare__tasks=(f"{task}{folder}", again))
    assert len(identify_tasks(make_compare_spec(to_dict(config)), Reuse())) == 2


@pytest.mark.slow
def test_two_fine_tunings_of_one_config_are_compared(speech, folder, tmp_path):
    shutil.copytree(folder, tmp_path / "other")
    for path in (tmp_path / "other").glob("*.tsv"):
        path.write_text(path.read_text().replace("well", "you"))
    tasks = [f"finetune:{folder}/toy.py:{x}" for x in (folder, tmp_path / "other")]
    config = make_compared(
        speech,
        compare__objectives=("clm",),
        compare__tasks=tuple(tasks),
        compare__task_sizes=(4,),
    )
    report = compare(config, tmp_path / "run")
    (run,) = report["runs"]
    names = [f"task_toy_{folder.name}_4", "task_toy_other_4"]
    assert [task["metric"] for task in run["tasks"]] == names
    assert all(run["metrics"][name] is not None for name in names)


def make_tuned(values):
    """Runs with the metric of a task at 32 and at 100 labels, and of fresh ones."""
    runs = []
    for name, seeds in values.items():
        for seed, (few, many) in enumerate(seeds):
            metrics = {"task_t_32": few, "task_t_100": many}
            metrics |= {"task_t_32_random": 0.4, "task_t_100_random": 0.5}
            metrics |= {"task_t_32_ngrams": 0.6 + 0.1 * seed, "task_t_100_ngrams": 0.8}
            run = make_run(name, seed, **metrics)
            tasks = [
                {
                    "task": "t",
                    "metric": f"task_t_{size}",
                    "label": f"t dev accuracy ({size} labels)",
                    "title": f"t {size}",
                    "higher_is_better": True,
                    "margin": 0.01,
                    "reference": "",
                    "measure": "dev accuracy",
                    "num_labels": size,
                    "constant": 0.3,
                }
                for size in (100, 32)
            ]
            runs.append(vary(run, tasks=tasks))
    return runs


def test_a_curve_is_the_mean_over_seeds_with_students_interval():
    runs = make_tuned({"clm": [(0.5, 0.7), (0.7, 0.7)], "mlm": [(0.6, 0.8)]})
    groups = {name: [r for r in runs if r.name == name] for name in ("clm", "mlm")}
    assert list_tuned(groups) == ["t"]
    few, many = collect_points(groups["clm"], "t", "")
    assert (few.num_labels, many.num_labels) == (32, 100)
    # t with one degree of freedom: 0.6 -+ 12.7062 * 0.1
    assert few.mean == pytest.approx(0.6)
    assert few.high - few.mean == pytest.approx(1.27062, abs=1e-4)
    (alone, _) = collect_points(groups["mlm"], "t", "")
    assert alone.mean == 0.6 and alone.low != alone.low
    assert [p.mean for p in collect_points(groups["clm"], "t", "_random")] == [0.4, 0.5]
    drawn = draw_tuned(groups, "t")
    for output in ("clm, pretrained, 32: 0.600 [", "mlm, pretrained, 100: 0.800<"):
        assert output in drawn
    assert drawn.count('class="fresh"') == 2 and drawn.count('class="constant"') == 1
    # One curve for all objectives, in which each seed counts once: .6 and .7.
    few, many = collect_ngrams(groups, "t")
    assert few.mean == pytest.approx(0.65) and many.mean == 0.8
    assert drawn.count('class="ngrams"') == 1 and "a bag of n-grams, 32: 0.650" in drawn
    (entry,) = [y for y in summarise(runs) if y.metric == "task_t_32"]
    assert entry.label == "t dev accuracy (32 labels)" and entry.is_common
    _, (header, rows) = tabulate(runs)
    labels = [f"t dev accuracy ({num} labels)" for num in (100, 32)]
    assert header[-2:] == labels and rows[1][-2:] == ["0.800", "0.600"]


def test_a_report_states_which_objectives_a_bag_of_ngrams_beats():
    values = {"clm": [0.9, 0.91, 0.9, 0.89], "mlm": [0.3, 0.31, 0.29, 0.3]}
    runs = make_tuned({name: [(x, 0.7) for x in own] for name, own in values.items()})
    for run in runs:
        run.metrics["task_t_32_ngrams"] = 0.6
    verdicts = rank_report(make_report(runs, metrics=summarise(runs)))
    (ranking,) = [x for x in verdicts.rankings if "32 labels" in x.metric.label]
    told = {x.system: x.baselines["a bag of n-grams"] for x in ranking.lines}
    assert told == {"clm": "ahead", "mlm": "behind"}


def test_a_fine_tuning_that_diverged_has_no_value():
    (task,) = list_compare_tasks(
        make_compare_spec(
            {"compare": {"tasks": ("finetune:t.py",), "task_sizes": (32,), "amount": 1}}
        )
    )
    result = {"metric": "accuracy", "picked": None, "cells": [{"seconds": 2.0}]}
    result |= {"constant": {"dev": {"accuracy": 0.5}}, "examples": {"train": 40}}
    picked = {"dev": {"accuracy": {"median": 0.7}}}
    scratch = result | {"picked": picked}
    entry, values = _describe_tuned(task, 32, result, scratch, {})
    assert values == {"task_t_32": None, "task_t_32_random": 0.7}
    ngrams = {"dev": {"accuracy": 0.6, "mcc": 0.2}}
    _, values = _describe_tuned(task, 32, result, scratch, ngrams)
    assert values["task_t_32_ngrams"] == 0.6
    assert entry["measure"] == "dev accuracy" and entry["finetune_seconds"] == 2.0
    runs = make_tuned({"clm": [(None, 0.7)], "mlm": [(0.6, 0.8)]})
    groups = {name: [r for r in runs if r.name == name] for name in ("clm", "mlm")}
    assert [p.num_labels for p in collect_points(groups["clm"], "t", "")] == [100]
    assert "clm, pretrained, 32" not in draw_tuned(groups, "t")
    lost = {
        name: [vary(run, metrics=dict.fromkeys(run.metrics)) for run in group]
        for name, group in groups.items()
    }
    assert list_tuned(lost) == []  # nothing is left to draw


def test_errors_are_of_users():
    with pytest.raises(UserError):
        make_compare_spec(to_dict({"compare": {"task_sizes": (0, 0), "amount": 1.0}}))
