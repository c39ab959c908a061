"""What is refused before anything is trained, and that the rest is measured whole."""

import jax
import numpy as np
import pytest
from tiny import VARIANTS, make_config, prepare, slow, write_stored

from jaxpt.cli.main import main
from jaxpt.comparison.compare import compare
from jaxpt.nn.networks.abilities import BoundsLikelihood, FillsMasks, HasLikelihood
from jaxpt.nn.networks.one_stack import MaskedLM
from jaxpt.objectives import OBJECTIVES
from jaxpt.runs.data import make_feed
from jaxpt.runs.program import Program
from jaxpt.runs.train_calls import make_train_call
from jaxpt.training import check
from jaxpt.training.check import check_run
from jaxpt.training.measure import measure

# Rows that fill the model to its last place, as `data.seq_len=128` and
# `model.max_len=128` do by default.
FULL = {"data__row_length": 0, "data__seq_len": 32, "model__max_len": 32}
LABELLED = {
    "data__label_field": "era",
    "data__split": "documents",
    "data__valid_fraction": 0.25,
    "data__documents": "file",
}
# Objectives on as many stacks as they have otherwise not.
STACKS = {"prefix_lm/seq2seq": 1, "ul2": 0}


def open_task(path, objective, **changes):
    """The text's tokenizer and splits, and an objective's task on it."""
    settings = LABELLED if path.suffix == ".jsonl" else {}
    config = make_config(path, objective, **(settings | changes))
    return prepare(config)


@pytest.mark.slow_except("skip_gram")
@pytest.mark.parametrize("name", [*OBJECTIVES, *(n for n in VARIANTS if "/" in n)])
def test_rows_that_fill_the_model_can_be_trained_on_and_measured(
    name, labelled, monkeypatch
):
    """By its shapes; to compile what is called for each takes minutes."""
    objective, _ = VARIANTS.get(name, (name, {}))
    changes = {"model__num_decoder_layers": STACKS[name]} if name in STACKS else {}
    task, _, corpora = open_task(labelled, objective, **FULL, **changes)
    assert task.plan.model.positions == "learned"
    assert max(task.spec.lengths.values()) <= 32
    program, result = Program(task), {}
    stack = make_feed(task, corpora["train"], program.choose_rows).stack(0, 2)
    call, state = make_train_call(task), program.abstract_state()
    jax.eval_shape(call, state, stack, np.int32(0))

    def remember(*args, **keywords):
        measured = measure(*args, **keywords)
        result.update(measured.metrics)
        return measured

    monkeypatch.setattr(check, "measure", remember)
    check.check_measures(program, corpora)
    expected = {"valid_loss", "probe_accuracy", "probe_accuracy_random"}
    if isinstance(task.model, HasLikelihood):
        expected |= {"bits_per_byte"}
    if isinstance(task.model, BoundsLikelihood):
        expected |= {"bits_per_byte_bound"}
    if isinstance(task.model, FillsMasks):
        expected |= {"cloze_accuracy", "cloze_bits"}
        if objective != "mixture":  # whose metrics are those of its parts
            expected |= {"masked_top5_accuracy_random"}
    assert expected <= set(result)


@pytest.mark.slow  # its pictures; what they ask of the model is measured above
def test_a_comparison_whose_rows_fill_the_model_has_a_report(labelled, tmp_path):
    config = make_config(
        labelled,
        "clm_mlm",
        **FULL,
        train__steps=2,
        train__checkpoint_every=0,
        compare__objectives=("clm_mlm",),
        compare__seeds=(0,),
        compare__budget="steps",
    )
    report = compare(config, tmp_path / "c")
    assert report["runs"][0]["metrics"]["cloze_bits"] > 0
    drawn = {"temperature_effect_clm_mlm", "mask_fill_clm_mlm"}
    assert drawn <= set(report["figures"])


@pytest.mark.parametrize(
    "objective, changes, output",
    [
        # Rows of 24, of which one that predicts the next token reads 23.
        (
            "clm",
            {"eval__probe_length": 24},
            "eval.probe_length=24: must be at most 23, as clm reads 23 tokens at once",
        ),
        slow("mlm", {"eval__probe_windows": 999}, "eval.probe_windows=999"),
        # A gap and two sides; T5's encoder reads its [EOS] behind them.
        (
            "mlm",
            {"eval__num_words": 2, "eval__word_context": 12},
            "eval.word_context=12: must be at most 11, as mlm reads 24 tokens at once",
        ),
        slow(
            "span_corruption",
            {"eval__probe_length": 24, "data__row_length": 0, "data__seq_len": 24},
            "eval.probe_length=24: must be at most 23, as span_corruption reads 24",
        ),
        slow(
            "mlm",
            # No document has so many characters on either side of a word.
            {
                "eval__num_words": 2,
                "eval__word_context": 250,
                "data__row_length": 600,
                "model__max_len": 600,
            },
            "eval.num_words=2: the text or its tokenizer gives fewer than two words",
        ),
        # Documents packed into rows are trained on; running text is scored.
        (
            "clm",
            {"data__rows": "packed", "data__valid_fraction": 0.002},
            "fewer than one row of 24",
        ),
    ],
)
def test_what_cannot_be_measured_is_refused_first(
    objective, changes, output, labelled, refuses
):
    split = {"data__split": "position"} if "data__rows" in changes else {}
    task, tokenizer, corpora = open_task(labelled, objective, **changes, **split)
    with refuses(output):
        check_run(task, tokenizer, corpora)


def test_a_held_out_text_too_short_for_a_row_is_refused_first(speech, refuses):
    held = {"data__limit_chars": 2000, "data__heldout_chars": 9}
    task, tokenizer, corpora = open_task(speech, "mlm", **held)
    assert corpora["heldout"].num_tokens == 9
    with refuses("fewer than one row of 24"):
        check_run(task, tokenizer, corpora)


def test_what_is_not_measured_is_not_asked_for(speech):
    task, tokenizer, corpora = open_task(speech, "clm", eval__probe_length=9999)
    check_run(task, tokenizer, corpora)  # without labels there is no probe


def test_a_model_that_cannot_read_a_measurement_is_found_by_its_shapes(
    labelled, refuses, monkeypatch
):
    """Whatever an objective makes of its rows: here more than there are places for."""
    task, tokenizer, corpora = open_task(labelled, "mlm", **FULL)
    fill_logits = MaskedLM.fill_logits

    def read_more(model, params, tokens):
        return fill_logits(model, params, tokens.repeat(2, axis=1))

    monkeypatch.setattr(MaskedLM, "fill_logits", read_more)
    with refuses("a sequence of 64 tokens", "model.max_len=32"):
        check_run(task, tokenizer, corpora)


@pytest.mark.slow_except("train")
@pytest.mark.parametrize("command", ["train", "compare"])
def test_nothing_is_trained_before_all_is_known_to_be_measured(
    command, labelled, tmp_path, capsys
):
    objectives = ("mlm", "clm")
    config = make_config(
        labelled,
        objectives[-1],
        **LABELLED,
        eval__probe_length=24,
        train__steps=2,
        compare__objectives=objectives,
        compare__seeds=(0,),
        compare__budget="steps",
    )
    config_path = write_stored(tmp_path / "given.json", config)
    folder = tmp_path / "out"
    assert main([command, f"--config={config_path}", f"--workdir={folder}"]) == 2
    error = capsys.readouterr().err
    assert "eval.probe_length=24: must be at most 23" in error
    assert error.count("\n") == 1 and not folder.exists()
