"""`jaxpt babylm --year 2026` compared with lm-eval on the official task definitions.

    BABYLM_2026=DIR pytest -m peers tests/zero_shot/test_babylm_2026_pipeline.py

DIR is a checkout of github.com/babylm-org/babylm-eval; without it tests are skipped.
The definitions are read as they are, except that the data sets are local files; those
of BLiMP are lm-eval's. The harness runs its `hf` model on the exported run.
"""

import json
import os
from pathlib import Path

import pytest
from finetuning.test_multilingual import write_task
from tiny import make_config, write_run

from jaxpt.cli.main import main
from jaxpt.finetuning.multilingual import LANGUAGES

DIR = os.environ.get("BABYLM_2026", "")
# The definition of a task that has no file of its name, from multilingual/tasks/.
FILES = {
    "blimp_nl": "blimp_nl/blimp_nl_anaphor_agreement.yaml",
    "zhoblimp": "zhoblimp/zhoblimp_BA_BEI_subj_drop.yaml",
    "multiblimp_eng": "multiblimp/multiblimp_krl.yaml",
    "multiblimp_nld": "multiblimp/multiblimp_krl.yaml",
    "xcomps_nl": "xcomps/xcomps_de.yaml",
    "xcomps_zh": "xcomps/xcomps_de.yaml",
}
GROUPS = ("blimp", "blimp_nl", "zhoblimp")

pytestmark = [
    pytest.mark.peers,
    pytest.mark.skipif(not DIR, reason="BABYLM_2026 is not set"),
]


def read_definition(name):
    """The official definition of a task, with the fields of its `include`."""
    import lm_eval
    import yaml

    root = Path(DIR) / "multilingual" / "tasks"
    if name == "blimp":
        path = Path(lm_eval.__file__).parent / "tasks/blimp/_template_yaml"
    elif name in FILES:
        path = root / FILES[name]
    else:
        kind = name.split("_")[0] + "_mubench"
        path = root / kind / "default_af.yaml"
    return yaml.safe_load(path.read_text(encoding="utf-8"))


def write_definitions(folder, data):
    """Each task with local data, a group with a task for each of its files."""
    import yaml

    names = []
    for name in (n for parts in LANGUAGES.values() for n in parts):
        place = Path(data) / name
        files = sorted(place.glob("*.jsonl")) if place.is_dir() else [f"{place}.jsonl"]
        if not Path(files[0]).exists():
            continue
        subtasks = []
        for file in files:
            task = read_definition(name)
            label = f"{name}_{file.stem}" if name in GROUPS else name
            split = task.get("test_split") or task.get("validation_split")
            task |= {"task": label, "dataset_path": "json", "dataset_name": None}
            task["dataset_kwargs"] = {"data_files": {split: str(file)}}
            if task.get("test_split"):
                task["validation_split"] = None
            (folder / f"{label}.yaml").write_text(yaml.safe_dump(task))
            subtasks.append(label)
        if name in GROUPS:
            metric = {"metric": "acc", "aggregation": "mean", "weight_by_size": True}
            group = {"group": name, "task": subtasks, "aggregate_metric_list": [metric]}
            (folder / f"{name}.yaml").write_text(yaml.safe_dump(group))
        names.append(name)
    return names


def run_harness(exported, data, folder):
    """The harness's accuracies in points, by task."""
    import lm_eval
    from lm_eval.tasks import TaskManager

    folder.mkdir()
    names = write_definitions(folder, data)
    result = lm_eval.simple_evaluate(
        model="hf",
        model_args={"pretrained": str(exported), "dtype": "float32"},
        tasks=names,
        num_fewshot=0,
        batch_size=32,
        device="cpu",
        task_manager=TaskManager(include_path=str(folder), include_defaults=False),
        bootstrap_iters=0,
    )
    return {name: 100 * result["results"][name]["acc,none"] for name in names}


@pytest.mark.parametrize("name", ["gpt2", "llama"])
def test_scores_are_those_of_the_harness(name, speech, tmp_path, capsys):
    for task in (n for parts in LANGUAGES.values() for n in parts):
        write_task(tmp_path / "data", task)
    for task in GROUPS:  # as folders
        (tmp_path / "data" / task).mkdir()
        (tmp_path / "data" / f"{task}.jsonl").rename(
            tmp_path / "data" / task / "a.jsonl"
        )
    model = {"positions": "learned" if name == "gpt2" else "rotary"}
    settings = {f"model__{k}": v for k, v in model.items()}
    run = write_run(make_config(speech, "clm", **settings), tmp_path / "run")
    exported = tmp_path / "exported"
    assert main(["export", "--workdir", str(run), "--to", str(exported)]) == 0
    args = ["--workdir", run, "--year", 2026, "--data", tmp_path / "data", "--nobos"]
    capsys.readouterr()
    assert main(["babylm", *map(str, args), "--json"]) == 0
    scores = json.loads(capsys.readouterr().out)["rules"]["causal"]["scores"]
    expected = run_harness(exported, tmp_path / "data", tmp_path / "tasks")
    assert len(expected) == 16
    for task, value in expected.items():
        assert scores[task]["value_pipeline"] == pytest.approx(value, abs=0.1), task
