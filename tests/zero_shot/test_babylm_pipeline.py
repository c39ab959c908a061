"""`jaxpt babylm` compared with the challenge's own pipeline, on exported runs.

    BABYLM_PIPELINE=DIR pytest -m peers tests/zero_shot/test_babylm_pipeline.py

DIR is a checkout of github.com/babylm/evaluation-pipeline-2025; without it the tests
are skipped. BABYLM_DATA=ARCHIVE adds some items of each file of the challenge's data.
"""

import argparse
import csv
import json
import math
import os
from collections import defaultdict

import numpy as np
import pytest
from finetuning.test_babylm import write_lines, write_reading
from tiny import make_config, write_run

from jaxpt.cli.main import main
from jaxpt.finetuning.babylm import PARTS
from jaxpt.zero_shot.pairs import read_rows

PIPELINE = os.environ.get("BABYLM_PIPELINE", "")
DATA = os.environ.get("BABYLM_DATA", "")
NUM_ITEMS = 3  # of each file of BABYLM_DATA
BACKENDS = {"clm": ("causal", "causal"), "mlm": ("mlm", "pll")}

pytestmark = [
    pytest.mark.peers,
    pytest.mark.skipif(not PIPELINE, reason="BABYLM_PIPELINE is not set"),
]

BERT = {
    "model__norm_position": "post",
    "model__num_types": 1,
    "model__head_bias": True,
    "model__head_transform": True,
}
PAIRS = [
    ("the people have", "the have people"),
    ("we are", "are we"),
    ("of the people", "a people"),
]
STORY = "The box has the people and the city. The other has the law. The box has "


@pytest.fixture(scope="module")
def data(tmp_path_factory):
    """Short rows of each task, and maybe some of the challenge's."""
    folder = tmp_path_factory.mktemp("data")
    rows = [
        {"sentence_good": good, "sentence_bad": bad, "UID": "one", "field": "syntax"}
        | {"linguistics_term": "order"}
        for good, bad in PAIRS
    ]
    write_lines(folder / "blimp_filtered/one.jsonl", rows)
    rows = [{"sentence_good": good, "sentence_bad": bad} for good, bad in PAIRS]
    write_lines(folder / "supplement_filtered/two.jsonl", rows)
    options = ["the people and the city.", "the law.", "the nation.", "nothing."]
    entity = {"input_prefix": STORY, "options": options}
    rows = [entity | {"numops": 0}, entity | {"numops": 1, "options": options[::-1]}]
    write_lines(folder / "entity_tracking/regular.jsonl", rows)
    for name in ("ambiref", "move_contents"):
        write_lines(folder / f"entity_tracking/{name}.jsonl", rows)
    names = "Domain", "ContextType", "ContextDiff", "TargetDiff", "Context1", "Context2"
    ewok = dict(
        zip(names, ("d", "x", "x", "x", "It is war.", "It is peace."), strict=True)
    )
    targets = [("We have an army.", "We have no army."), ("We do not.", "Yes, we do.")]
    rows = [ewok | {"Target1": a, "Target2": b} for a, b in targets]
    write_lines(folder / "ewok_filtered/d.jsonl", rows)
    comps = {"prefix_acceptable": "The nation", "prefix_unacceptable": "The law"}
    rows = [comps | {"property_phrase": x} for x in ("has an army.", "is great.")]
    for stem in ("comps_base", "comps_wugs", "comps_wugs_dist-before"):
        write_lines(folder / f"comps/{stem}.jsonl", rows)
    forms = [("a nation", "the nations", 0.1), ("we have", "we has", 0.9)]
    rows = [
        {"sentences": f"{a}\t{b}", "ratio": x}
        for a, b, x in [*forms, ("an army", "the army", 0.4)]
    ]
    for part in ("wug_adj_nominalization", "wug_past_tense"):
        write_lines(folder / part / f"{part}.jsonl", rows)
    for part in PARTS.values() if DATA else ():
        name = part.places[0]
        if name in ("comps", "ewok_filtered", "wug_past_tense") or "." in name:
            continue
        by_file = defaultdict(list)
        for row, stem, _ in read_rows(f"{DATA}/{name}", "item"):
            by_file[stem].append(row)
        for stem, rows in by_file.items():
            index = np.linspace(0, len(rows) - 1, NUM_ITEMS).astype(int)
            write_lines(folder / name / f"{stem}.jsonl", [rows[i] for i in index])
    write_reading(folder / "reading/reading_data.csv")
    return folder


@pytest.fixture(scope="module", params=BACKENDS)
def both(request, speech, data, tmp_path_factory):
    """The backend, the exported model, and what `jaxpt babylm` writes."""
    folder = tmp_path_factory.mktemp(request.param)
    backend, rule = BACKENDS[request.param]
    changes = {"model__max_len": 512, "tokenizer__kind": "bpe"}
    if backend == "mlm":
        changes |= BERT
    run = write_run(make_config(speech, request.param, **changes), folder / "run")
    export = folder / "export"
    assert main(["export", "--workdir", str(run), "--to", str(export)]) == 0
    args = ["--workdir", str(run), "--data", str(data), "--nobos"]
    assert main(["babylm", *args]) == 0
    made = json.loads((run / f"babylm/predictions-{rule}.json").read_text())
    scores = json.loads((run / "babylm/scores.json").read_text())
    return backend, export, made, scores["rules"][rule]["scores"]


def test_the_scores_are_those_of_the_pipeline(both, data, monkeypatch):
    """Equal predictions, and scores within a tenth of a point."""
    monkeypatch.syspath_prepend(PIPELINE)
    from evaluation_pipeline.sentence_zero_shot import compute_results as results
    from evaluation_pipeline.sentence_zero_shot import run
    from evaluation_pipeline.sentence_zero_shot.dataset import get_dataloader

    backend, export, made, scores = both
    for name, part in PARTS.items():
        if name == "reading":
            continue
        task = {"blimp_supplement": "blimp"}.get(name, name)
        args = argparse.Namespace(
            backend=backend,
            model_path_or_name=str(export),
            task=task,
            data_path=data / part.places[0],
            save_predictions=True,
            batch_size=1,
            non_causal_batch_size=64,
            images_path=None,
            revision_name=None,
            image_template=None,
            image_split=None,
            full_sentence_scores=False,
        )
        model = run.get_model(args)
        stats, predictions = results.compute_results(
            args, model, get_dataloader(args), [1.0]
        )
        process = run.process_results_wug if "wug" in name else None
        _, means = process(stats) if process else run.process_results(args, stats)
        value = means[1.0] * (100 if "wug" in name else 1)
        ours = scores[name]["value_pipeline"]
        print(f"{backend} {name}: pipeline {value:.3f}, jaxpt {ours:.3f}")
        assert ours == pytest.approx(value, abs=0.1), name
        expected = predictions[1.0]
        assert set(made[name]) == set(expected)
        for group, entry in expected.items():
            pairs = zip(
                made[name][group]["predictions"], entry["predictions"], strict=True
            )
            for mine, theirs in pairs:
                assert mine["id"] == theirs["id"]
                if "wug" in name:
                    assert mine["prob"] == pytest.approx(theirs["prob"], abs=1e-4)
                assert mine["pred"] == theirs["pred"]


def test_surprisals_are_those_of_the_pipeline(both, data, monkeypatch):
    monkeypatch.syspath_prepend(PIPELINE)
    import transformers
    from evaluation_pipeline.reading import evaluation_functions as functions

    backend, export, made, _ = both
    kinds = {"causal": "AutoModelForCausalLM", "mlm": "AutoModelForMaskedLM"}
    model = getattr(transformers, kinds[backend]).from_pretrained(export).eval()
    tokenizer = transformers.AutoTokenizer.from_pretrained(export)
    find = {"causal": functions.get_p2, "mlm": functions.get_p2_mlm}[backend]
    with (data / "reading/reading_data.csv").open() as file:
        rows = list(csv.DictReader(file))[:8]
    records = made["reading"]["reading"]["predictions"]
    for row, record in zip(rows, records, strict=False):
        for key, text, word in (
            ("pred", "item", "word"),
            ("prev_pred", "prev_item", "prev_word"),
        ):
            share, _ = find(row[text], row[word], model, tokenizer)
            assert record[key] == pytest.approx(-math.log(share), abs=1e-3)
