"""task.head=auto in `jaxpt finetune`: a head that can be exported, or a line."""

import json

import pytest

from jaxpt.finetuning.export import export_finetuned
from jaxpt.finetuning.results import find_model
from tests.finetuning.exported import make_family, read_result

CANNOT = "the result cannot be exported to transformers: "
# By family: the paper's head, that of transformers' class, and the class.
HEADS = {
    "electra": ("electra", "electra_dense", "ElectraForSequenceClassification"),
    "gpt2": ("gpt", "gpt2", "GPT2ForSequenceClassification"),
    "distilbert": ("roberta", "distilbert", "DistilBertForSequenceClassification"),
    "roberta": ("roberta", "roberta", "RobertaForSequenceClassification"),
    "modernbert": ("modernbert", "modernbert", "ModernBertForSequenceClassification"),
}


@pytest.mark.slow_except("electra", "gpt2")
@pytest.mark.parametrize("family", HEADS)
def test_auto_is_a_head_that_can_be_exported(family, tmp_path):
    paper, own, kind = HEADS[family]
    run = make_family(tmp_path, family, framed=family != "gpt2")
    result = read_result(run, "regression", "auto", tmp_path / "to", for_export=True)
    assert result["head"] == own
    assert not any(CANNOT in line for line in result["lines"])
    export_finetuned(tmp_path / "to", tmp_path / "out")
    config = json.loads((tmp_path / "out" / "config.json").read_text())
    assert config["architectures"] == [kind]
    compared = read_result(run, "regression", "auto", tmp_path / "compared")
    assert compared["head"] == paper  # as in a comparison of objectives


def test_a_frozen_network_keeps_its_probe(tmp_path):
    """Whose head is one linear layer; what cannot be exported is said first."""
    run = make_family(tmp_path, "electra", framed=True)
    options = {"for_export": True, "adapt__method": "linear_probe"}
    result = read_result(run, "regression", "auto", tmp_path / "to", **options)
    assert result["head"] == "electra"
    (line,) = [line for line in result["lines"] if CANNOT in line]
    assert "must be fine-tuned with task.head=electra_dense" in line
    first = next(each for each in result["lines"] if each.startswith("lr"))
    assert result["lines"].index(line) < result["lines"].index(first)


def test_another_pooling_is_not_chosen_but_said(tmp_path):
    """The first state of a text without a [CLS] was trained as no summary."""
    run = make_family(tmp_path, "roberta", framed=False)
    result = read_result(run, "regression", "auto", tmp_path / "to", for_export=True)
    assert result["head"] == "mean"
    (line,) = [line for line in result["lines"] if CANNOT in line]
    assert "task.head=mean has no" in line and "task.head=roberta" in line


def test_any_head_for_tokens_stays(tmp_path):
    run = make_family(tmp_path, "electra", framed=True)
    result = read_result(run, "tagging", "auto", tmp_path / "to", for_export=True)
    assert result["head"] == "electra"
    assert not any(CANNOT in line for line in result["lines"])


def test_a_fine_tuning_that_has_begun_keeps_its_head(tmp_path, refuses):
    """Without --for_export it has the paper's; it resumes and is read so."""
    run = make_family(tmp_path, "electra", framed=True)
    read_result(run, "regression", "auto", tmp_path / "to")
    model = find_model(tmp_path / "to")
    again = read_result(run, "regression", "auto", tmp_path / "to", for_export=True)
    assert again["head"] == "electra" and find_model(tmp_path / "to") == model
    with refuses("task.head=electra has no", "task.head=electra_dense"):
        export_finetuned(tmp_path / "to", tmp_path / "out")
