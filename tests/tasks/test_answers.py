"""Written answers: what evaluation reads is what training has read."""

import jax
import numpy as np
import pytest
from tiny import slow_but

from jaxpt.config.finetuning import default_finetune_config, make_finetune_plan
from jaxpt.errors import UserError
from jaxpt.finetuning.base import load_base
from jaxpt.finetuning.evaluation import LabelledRows, read_outputs
from jaxpt.finetuning.grid import make_program
from jaxpt.tasks import model, text_to_text
from tests.tasks.tuned import fit, make_run, write_lines

DECODERS = {"bart", "span_corruption"}


def make_writer(folder, objective, positions, **settings):
    """A program whose rows may be longer than the model's 24 positions."""
    more = {"model__num_decoder_layers": 1} if objective in DECODERS else {}
    more |= {"model__max_len": 24, "model__positions": positions}
    run = make_run(folder, objective, **more)
    config = default_finetune_config("text_to_text")
    config.data.train = "none"
    config.task.kind = "text"
    for name, value in ({"max_len": 64, "max_target": 4} | settings).items():
        config.task[name] = value
    plan = make_finetune_plan(config)
    base = load_base(str(run), "auto", plan.spec.max_len, -1)
    text = " ".join(["slowest", *["the cat sat on the mat"] * 6])
    items = [text_to_text.Example(text, "slowest", ("slowest",))]
    rows = text_to_text.encode(items, base.encoder, plan.spec, is_training=True)
    program = make_program(plan, base, (), LabelledRows(items * 2, rows * 2))
    return program, items, rows


@pytest.mark.parametrize(
    "objective", slow_but(["clm", "span_corruption"], ["clm", "prefix_lm", *DECODERS])
)
def test_a_text_longer_than_the_model_is_read_whole(objective, tmp_path, monkeypatch):
    positions = "relative" if objective == "span_corruption" else "rotary"
    program, items, rows = make_writer(tmp_path, objective, positions)
    encoded = text_to_text.encode(
        items, program.base.encoder, program.spec, is_training=False
    )
    tokens = encoded[0]["tokens"]
    assert len(tokens) > program.base.task.model_spec.max_len + 4
    np.testing.assert_array_equal(rows[0]["tokens"][: len(tokens)], tokens)
    params = program.init_params(0)
    (written,) = read_outputs(program, params, LabelledRows(items, encoded))
    assert written["tokens"].shape == (4,)
    with monkeypatch.context() as patch:
        patch.setattr(model, "generate", lambda *args, **_: (args[2], args[3]))
        (read,) = read_outputs(
            program, params, LabelledRows(items, encoded), jax.jit(program._outputs)
        )
    np.testing.assert_array_equal(read["tokens"][-read["counts"] :], tokens)


WORDS = ("slowest", "wider", "newer", "lower")


@pytest.mark.slow
@pytest.mark.parametrize("repeats", [1, 6])
def test_the_first_word_of_a_long_text_is_learnt(repeats, tmp_path):
    run = make_run(
        tmp_path, "clm", model__max_len=24, model__positions="rotary", model__dropout=0
    )
    rest = " the cat sat on the mat" * repeats
    rows = [{"sentence": word + rest, "label": word} for word in WORDS]
    path = write_lines(tmp_path / "a.jsonl", rows)
    settings = {"task__max_target": 8, "task__max_len": 64}
    result = fit(run, "text_to_text", path, tmp_path / "tuned", epochs=200, **settings)
    assert result["picked"]["dev"]["accuracy"]["median"] == 1.0


@pytest.mark.parametrize("max_target, is_good", [(23, True), (24, False), (90, False)])
def test_answers_as_long_as_a_stack_are_refused(max_target, is_good, tmp_path):
    settings = {"max_target": max_target, "max_len": 128}
    if is_good:
        make_writer(tmp_path, "clm", "rotary", **settings)
        return
    with pytest.raises(UserError, match=f"task.max_target={max_target}: must be below"):
        make_writer(tmp_path, "clm", "rotary", **settings)
