"""One class says how a text is written for a network, and one place makes a run's."""

import ast
import dataclasses
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny import make_config, prepare

from jaxpt.errors import DataError
from jaxpt.objectives import OBJECTIVES
from jaxpt.text_form import STORED, TextForm, from_json, mark_words

PACKAGE = Path(__file__).resolve().parents[1] / "jaxpt"
FILES = sorted(PACKAGE.rglob("*.py"))
# Who asks for a declared part: an objective asks its base, the rows are made by theirs,
# and the run joins them.
ASKING = {"runs/task.py", "runs/data.py", "text/rows/forms.py", "text/rows/fresh.py"}
# Who writes a form: the declarations, and what is read from or added for a checkpoint.
MAKING = {
    *("text_form.py", "runs/task.py", "text/rows/rows_spec.py"),
    *("text/tokens/post_processor.py", "text/tokens/folder_options.py"),
    "text/tokens/letters.py",
    *("hub/specials.py", "hub/new_tokenizer.py"),
}


def list_calls(name):
    """(file, call) of each call of a function or method of this name."""
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Call):
                called = getattr(node.func, "attr", getattr(node.func, "id", ""))
                if called == name:
                    yield path.relative_to(PACKAGE).as_posix(), node


def test_the_parts_of_a_form_are_joined_in_one_place():
    asking = {path for path, _ in list_calls("text_form")}
    assert "runs/task.py" in asking
    assert {path for path in asking if "objectives" not in path} == ASKING
    making = {path for path, _ in list_calls("TextForm")}
    assert {path for path in making if "objectives" not in path} == MAKING


def list_id_fields(node):
    """The fields of a class with one id or several."""
    types = ("Ids", "Ids | None", "tuple[int, ...]", "tuple[int, ...] | None")
    types += ("int | None",)
    parts = [part for part in node.body if isinstance(part, ast.AnnAssign)]
    parts = [part for part in parts if ast.unparse(part.annotation) in types]
    return {part.target.id for part in parts}


def test_no_other_class_has_the_ids_around_a_text():
    around = {"before", "after", "between", "bos", "start", "first", "last", "ends"}
    classes = {
        f"{path.relative_to(PACKAGE)}:{node.name}"
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
        if len(around & list_id_fields(node)) > 1
    }
    assert classes == {"text_form.py:TextForm"}


@pytest.mark.parametrize("kind", ["numpy", "jax", "traced"])
def test_ids_are_put_around_arrays_of_either_library(kind):
    form = TextForm((1, 2), (3,), mode=(4,), gap=(9,), gap_ends=(5, 6), start=0)
    tokens = np.array([[7, 8], [8, 7]], np.int32)
    calls = {
        name: lambda x, name=name: getattr(form, name)(x)
        for name in ("wrap", "wrap_read", "answer_before")
    }
    calls["whole_answer"] = lambda x: form.whole_answer(x, 1)[0]
    results = {}
    for name, call in calls.items():
        if kind == "numpy":
            results[name] = call(tokens)
        else:
            run = jax.jit(call) if kind == "traced" else call
            results[name] = run(jnp.asarray(tokens))
        assert results[name].dtype == np.int32, name
    assert {name: x.tolist() for name, x in results.items()} == {
        "wrap": [[1, 2, 7, 8, 3], [1, 2, 8, 7, 3]],
        "wrap_read": [[1, 2, 4, 7, 8, 3], [1, 2, 4, 8, 7, 3]],
        "answer_before": [[0, 9], [0, 9]],
        "whole_answer": [[0, 9, 7], [0, 9, 8]],
    }


def test_a_network_that_writes_no_answer_has_none():
    tokens = np.array([[7, 8]])
    for form in (TextForm(gap=(9,), start=0), TextForm(gap=(9,), gap_ends=(1,))):
        assert form.answer_before(tokens) is None
        assert form.whole_answer(tokens, 1) is None
    assert TextForm(start=0).whole_answer(tokens, 1) is None


def test_a_form_is_part_of_a_key_without_its_table_of_words():
    table = np.array([True, False])
    one, other = (TextForm((1,), is_word_start=x) for x in (table, None))
    assert one == other and hash(one) == hash(other)
    assert hash(one) != hash(TextForm((2,)))


def test_the_id_0_is_an_id():
    """[PAD] of T5 is a decoder's start, and some vocabularies end texts with it."""
    ids = dict.fromkeys(STORED, 0) | {"before": (0,), "after": (0,), "ends": (0,)}
    form = TextForm(**ids)
    assert from_json(form.to_json()) == form
    assert form.cut_answer(np.array([0, 7, 0])).tolist() == [7]
    with_lists = form.to_json()
    for name in STORED:
        for wrong in ([-1], -1, [True], "0"):
            with pytest.raises(DataError, match=f"{name} is .*: must be"):
                from_json(with_lists | {name: wrong})


def test_start_0_writes_an_answer():
    form = TextForm(gap=(9,), gap_ends=(1,), start=0)
    answer, position = form.whole_answer(np.array([[7, 8]]), 1)
    assert (answer.tolist(), position) == ([[0, 9, 7]], 2)


@pytest.mark.parametrize("objective", sorted(OBJECTIVES))
def test_an_imported_models_ids_replace_those_of_the_run(objective, speech):
    """But how gaps are written, UL2's modes and the limits of the network stay."""
    task, *_ = prepare(make_config(speech, objective))
    own = task.text_form
    imported = TextForm((2,), (3, 4), bos=5, start=6, first=7, last=8, ends=(9,))
    vocab = dataclasses.replace(task.vocab, text_form=imported)
    form = dataclasses.replace(task, vocab=vocab).text_form
    has_decoder = task.model.HAS_DECODER
    assert (form.before, form.after, form.bos) == ((2,), (3, 4), 5)
    assert form.left == (2,) and form.opening == (2, *own.mode)
    assert form.start == (6 if has_decoder else None)
    assert form.first == (7 if has_decoder else None)
    assert (form.last, form.ends) == (8, (9,))
    kept = ("gap", "gap_ends", "reads_gap", "rewrites", "block_size", "max_len", "mode")
    for name in kept:
        assert getattr(form, name) == getattr(own, name), name
    # Its own: of the objective, or else of the rows, which are joined texts or pairs.
    eos, declared = task.vocab.eos, task.spec.text_form(task.vocab)
    is_pair = task.plan.rows.rows == "pairs"
    rows = ((task.vocab.cls,), (task.vocab.sep,)) if is_pair else ((), ())
    expected = declared.before, declared.after
    assert (own.before, own.after) == (expected if any(expected) else rows)
    assert own.ends == (eos,) and own.bos == (None if is_pair else eos)
    assert own.left == (own.before or (eos,))
    assert own.lead == own.before + declared.lead
    assert form.lead == (2,) + declared.lead


def test_punctuation_begins_a_word():
    """Also where the tokenizer's pieces do not; a part of a character does not."""
    pieces = (b"a", b",", b"\xff", b"##ing", b" ", b"", b"...", b"a.", b"\xff.")
    starts = (False,) * len(pieces)
    is_start = mark_words(starts, pieces, 11).tolist()
    assert [i for i, each in enumerate(is_start) if each] == [1, 6, 9, 10]
    assert mark_words((), pieces, 11) is None
