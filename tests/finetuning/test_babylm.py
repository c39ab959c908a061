"""`jaxpt babylm`: all parts of the challenge's data, scores, and its forms of files."""

import csv
import json
import tarfile

import numpy as np
import pytest
from tiny import make_config, write_run

from jaxpt.cli.main import main
from jaxpt.finetuning import babylm
from jaxpt.zero_shot.pairs import TextPair
from jaxpt.zero_shot.reading import EYE, NUMBERS, SELF_PACED

WORDS = "to the people of all the senate and the city we have".split()
TEXTS = [("the people", "people the"), ("we have", "have we"), ("we", "we")]


def write_lines(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def write_reading(path):
    rng = np.random.default_rng(0)
    rows = []
    for i in range(40):
        now = i % 8 + 2
        row = {"item": " ".join(WORDS[:now]), "word": WORDS[now]}
        row |= {"prev_item": " ".join(WORDS[: now - 1]), "prev_word": WORDS[now - 1]}
        numbers = (*NUMBERS, "prev_length", *EYE, SELF_PACED)
        row |= {
            name: f"{value:.3f}" for name, value in zip(numbers, rng.normal(5, 1, 9))
        }
        rows.append(row | {"sentence": f"s{i // 4}"})
    path.parent.mkdir()
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(file, list(rows[0]))
        writer.writeheader()
        writer.writerows(rows)


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """A folder with each part, and glue for RTE."""
    folder = tmp_path_factory.mktemp("data")
    pairs = [{"sentence_good": good, "sentence_bad": bad} for good, bad in TEXTS]
    write_lines(folder / "blimp_filtered/one.jsonl", [x | {"UID": "u"} for x in pairs])
    write_lines(folder / "supplement_filtered/two.jsonl", pairs)
    entity = {"input_prefix": "we have ", "numops": 0}
    options = ["the.", "all.", "of."], ["a.", "a.", "a."]
    rows = [entity | {"options": each} for each in options]
    write_lines(folder / "entity_tracking/regular.jsonl", rows)
    ewok = {"Context1": "we have", "Target1": "the", "Target2": "all", "Domain": "d"}
    write_lines(folder / "ewok_filtered/d.jsonl", [ewok])
    comps = {"prefix_acceptable": "we", "prefix_unacceptable": "all"}
    rows = [comps | {"property_phrase": "have"}]
    write_lines(folder / "comps/comps_wugs.jsonl", rows)
    forms = [("the", "all", 0.1), ("we", "of", 0.9), ("and", "to", 0.5)]
    rows = [{"sentences": f"{a}\t{b}", "ratio": ratio} for a, b, ratio in forms]
    for name in ("wug_adj_nominalization", "wug_past_tense"):
        write_lines(folder / name / f"{name}.jsonl", rows)
    write_reading(folder / "reading/reading_data.csv")
    rows = [
        {"sentence1": "we have", "sentence2": word, "label": i % 3 % 2}
        for i, word in enumerate(WORDS)
    ]
    for split in ("train", "valid"):
        write_lines(folder / f"glue/rte.{split}.jsonl", rows)
    return folder


@pytest.fixture(scope="module")
def run(speech, tmp_path_factory):
    """A causal run before its first step."""
    folder = tmp_path_factory.mktemp("babylm")
    return write_run(make_config(speech, "clm"), folder / "run")


def test_a_run_is_evaluated_by_one_command(run, data, capsys):
    args = ["--workdir", run, "--data", data, "--glue", data / "glue", "--json"]
    assert main(["babylm", *map(str, args)]) == 0
    result = json.loads(capsys.readouterr().out)
    assert list(result["rules"]) == ["causal"]
    assert "not scored" not in result["rules"]["causal"]["description"]
    scores = result["rules"]["causal"]["scores"]
    parts = [name for name in babylm.PARTS if name != "reading"]
    assert set(scores) == {*parts, "eye_tracking", "self_paced_reading"}
    missing = [f"glue {name}" for name in babylm.GLUE if name != "rte"]
    assert result["missing"] == missing
    assert json.loads((run / "babylm/scores.json").read_text()) == result
    # One of three pairs is a tie: half a point here, a whole one in the pipeline.
    blimp = scores["blimp"]
    assert blimp["value_pipeline"] - blimp["value"] == pytest.approx(100 / 6)
    entity = scores["entity_tracking"]
    assert entity["value_pipeline"] - entity["value"] == pytest.approx(100 / 3)
    for score in scores.values():
        if score["low"] is not None:
            assert score["low"] <= score["value"] <= score["high"]
    (path,) = (run / "babylm").glob("predictions-*.json")
    made = json.loads(path.read_text())
    assert list(made) == [*babylm.PARTS, "glue"]
    texts = [each["pred"] for each in made["blimp"]["u"]["predictions"]]
    assert texts[2] == "we" and set(texts[:2]) <= set(sum(TEXTS, ()))
    right = np.mean([text == good for text, (good, _) in zip(texts, TEXTS)])
    assert blimp["value_pipeline"] == pytest.approx(100 * right)
    ids = [
        each["id"] for each in made["entity_tracking"]["regular_0_ops"]["predictions"]
    ]
    assert ids == ["regular_0_ops_0", "regular_0_ops_1"]
    assert made["ewok"]["d"]["predictions"][0]["pred"] in (" the", " all")
    assert made["comps"]["wugs"]["predictions"][0]["pred"] in ("we have", "all have")
    for name in ("wug_adj", "wug_past"):
        (first, *_) = made[name][name]["predictions"]
        assert first["id"] == f"{name}_0"
        assert first["pred"] == ("the" if first["prob"] >= 0.5 else "all")
    assert len(made["reading"]["reading"]["predictions"]) == 40
    tuned = made["glue"]["rte"]["predictions"]
    assert [each["id"] for each in tuned] == [f"rte_{i}" for i in range(len(WORDS))]
    right = np.mean([x["pred"] == i % 3 % 2 for i, x in enumerate(tuned)])
    rte = result["finetuning"]["rte"]
    assert rte["value"] == pytest.approx(100 * right)
    assert rte["low"] < rte["value"] < rte["high"]
    stored = json.loads((run / "babylm/glue/rte/result.json").read_text())
    assert stored["cells"][0]["dev"]["accuracy"] == pytest.approx(right)
    assert stored["settings"][0]["epochs"] == 10


def test_a_part_of_the_items_is_no_submission(run, data, tmp_path, capsys):
    """Also: an archive, a table, and the parts that it lacks."""
    with tarfile.open(tmp_path / "all.tar.xz", "w:xz") as archive:
        archive.add(data / "blimp_filtered", "blimp_filtered")
    before = sorted((run / "babylm").glob("predictions*"))
    args = ["--workdir", run, "--data", tmp_path / "all.tar.xz", "--num_items", 2]
    assert main(["babylm", *map(str, args), "--nobos"]) == 0
    out = capsys.readouterr().out
    assert "a text's first token is not scored" in out
    assert "pipeline" in out and "\nblimp " in out
    assert "not in the data: blimp_supplement, ewok," in out
    assert "at most 2 items of each task: no file of their predictions" in out
    assert sorted((run / "babylm").glob("predictions*")) == before


@pytest.mark.parametrize(
    "args, output",
    [
        ((), "--data, --glue, --against: at least one of them must be given"),
        (
            ("--data", "nowhere"),
            "--data=nowhere: must be a folder or an archive",
        ),
        (("--data", "EMPTY"), "has none of blimp_filtered, supplement_filtered,"),
        (("--data", "FILE"), "FILE: cannot be read"),
        (("--glue", "EMPTY"), "has no task's TASK.train.jsonl and TASK.valid.jsonl"),
        (
            ("--data", "DATA", "--rule", "pll"),
            "--rule=pll: must be one of auto, causal",
        ),
    ],
)
def test_what_is_refused(args, output, run, data, tmp_path, capsys):
    (tmp_path / "empty").mkdir()
    (tmp_path / "file.tar").write_text("no archive")
    places = {"EMPTY": tmp_path / "empty", "FILE": tmp_path / "file.tar", "DATA": data}
    args = [str(places.get(arg, arg)) for arg in args]
    assert main(["babylm", "--workdir", str(run), *args]) == 2
    message = capsys.readouterr().err.strip()
    assert output.replace("FILE", str(tmp_path / "file.tar")) in message
    assert "\n" not in message


def test_f1_and_its_interval_by_hand():
    """6 hits, 2 errors and 2 rejections: F1 = 12 / 14."""
    pairs = [("1", "1")] * 6 + [("1", "0"), ("0", "1")] + [("0", "0")] * 2
    records = [{"gold": gold, "prediction": text} for gold, text in pairs]
    score = babylm.score_tuned("f1", records)
    assert score["value"] == pytest.approx(100 * 12 / 14)
    assert score["low"] < score["value"] < score["high"] <= 100
    score = babylm.score_tuned("accuracy", records)
    assert score["value"] == pytest.approx(80) and score["method"] == "Wilson"


def test_a_part_with_a_question_left_out_is_not_submitted():
    columns = {"choice": np.array([0.0, np.nan])}
    assert babylm.predict_part("comps", [None, None], columns) is None
    columns = {"good": np.array([1.0, 0]), "bad": np.array([1.0, 1])}
    made = babylm.predict_part(
        "blimp", [TextPair("a", "b", "u"), TextPair("c", "d", "u")], columns
    )
    assert [x["pred"] for x in made["u"]["predictions"]] == ["a", "d"]


def test_items_without_a_value_are_left_out():
    columns = {"index": [3, 4, 5], "hit": [1.0, np.nan, 0.0], "weight": [1.0, 1.0, 2.0]}
    rows = babylm.list_items("a", {k: np.array(v) for k, v in columns.items()})
    assert rows == [["a", 3, 1.0, 1.0], ["a", 5, 0.0, 2.0]]
    assert babylm.list_items("a", {"index": np.arange(2)}) == []
