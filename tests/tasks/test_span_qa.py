"""Windows, the best span, no answer: ELECTRA's rules on numbers by hand."""

import numpy as np
import pytest
from shared import find_shared

from jaxpt.errors import UserError
from jaxpt.tasks import span_qa
from jaxpt.tasks.span_qa import Prediction, Spec, best_windows, cut_windows, find_best
from jaxpt.text.labelled.tables import Table
from tests.tasks.framed import make_encoder

SPANS = {"spans": "s", "answers": ""}
CONTEXT = "the cat sat on the mat. the slowest cat sat on the widest mat"


def make_table(rows, **columns):
    made = {key: [row[key] for row in rows] for key in rows[0]}
    places = [("a.json", f"question {i}") for i in range(len(rows))]
    return Table("a.json", made | columns, places)


def squad(*pairs, question="the cat", context=CONTEXT):
    answers = {"text": [p[0] for p in pairs], "answer_start": [p[1] for p in pairs]}
    return {"question": question, "context": context, "answers": answers}


def read_one(row, labels=None, **settings):
    examples, _ = span_qa.read(make_table([row]), Spec(**settings), labels)
    return examples[0]


def test_windows_overlap_and_skip_nothing():
    assert cut_windows(11, 5, 3) == [(0, 5), (3, 8), (6, 11)]
    assert cut_windows(4, 5, 3) == [(0, 4)] and cut_windows(0, 5, 3) == [(0, 0)]
    # A stride above the window skips no text (transformers #2548).
    assert cut_windows(9, 4, 128) == [(0, 4), (4, 8), (8, 9)]


def test_a_token_counts_where_it_has_the_most_text_around_it():
    best = best_windows([(0, 5), (3, 8), (6, 11)], 11)
    assert best[7] == 2  # the reference sheet's example
    assert best.tolist() == [0, 0, 0, 0, 1, 1, 1, 2, 2, 2, 2]


@pytest.mark.parametrize("kind", ["wordpiece", "bpe", "unigram", "char"])
def test_targets_point_at_the_answer(kind):
    encoder = make_encoder(kind, max_len=100)
    text = "slowest cat"
    example = read_one(squad((text, CONTEXT.index(text))))
    (row,) = span_qa.encode([example], encoder, Spec(), is_training=True)
    first, last = row["targets"]
    assert 0 < first < last
    assert encoder.tokenizer.decode(row["tokens"][first : last + 1]).strip() == text
    assert example.context[row["begins"][first] : row["ends"][last]] == text
    assert set(row["type_ids"][row["begins"] >= 0]) == {1}
    # A perfect network gets it back: not one token more or less.
    logits = np.zeros((len(row["tokens"]) + 5, 2))
    logits[first, 0] = logits[last, 1] = 3
    (result,) = span_qa.predict([logits], [row], [example], Spec())
    assert result == Prediction(text, 6.0, 0.0)
    shifted = np.roll(logits, 1, axis=0)
    (wrong,) = span_qa.predict([shifted], [row], [example], Spec())
    assert wrong.text != text


def test_what_follows_an_answer_without_a_space_is_no_part_of_it():
    begins, ends = np.array([0, 4, 7]), np.array([3, 7, 8])  # "the mat."
    assert span_qa.find_tokens(begins, ends, 4, 7) == (1, 1)
    assert span_qa.find_tokens(begins, ends, 7, 8) == (2, 2)
    assert span_qa.find_tokens(begins, ends, 3, 4) is None  # a space


def test_a_window_without_the_answer_points_at_its_first_token():
    encoder = make_encoder(max_len=18)
    text = "the cat"
    long = f"{CONTEXT} {CONTEXT}"
    example = read_one(squad((text, 0), context=long))
    rows = span_qa.encode([example], encoder, Spec(stride=6), is_training=True)
    assert len(rows) > 2 and max(len(row["tokens"]) for row in rows) == 18
    targets = [row["targets"].tolist() for row in rows]
    assert targets[0] != [0, 0] and targets[-1] == [0, 0]
    # Each token of the text may start an answer in one window alone.
    begins = np.concatenate([row["begins"][row["can_start"] > 0] for row in rows])
    ids, starts, _ = encoder.spans(long)
    assert sorted(begins) == sorted(starts) and len(ids) == len(starts)


def test_no_answer_is_the_least_likely_of_the_windows():
    encoder = make_encoder(max_len=18)
    spec = Spec(stride=3, has_null=True)
    example = read_one(squad(), has_null=True)
    rows = span_qa.encode([example], encoder, spec, is_training=False)
    assert all(row["targets"].tolist() == [0, 0] for row in rows)
    outputs = []
    for i, row in enumerate(rows):
        logits = np.zeros((len(row["tokens"]), 2))
        logits[0] = 5.0 - 3 * (i == 1)  # neither the first nor the last is the least
        outputs.append(logits)
    (result,) = span_qa.predict(outputs, rows, [example], spec)
    assert result.null_score == 2 * 2.0 and len(rows) > 2


def test_the_best_span():
    starts = np.array([9.0, 1, 5, 2, 0])
    ends = np.array([9.0, 6, 1, 4, 0])
    is_text = np.array([False, True, True, True, True])
    spec = Spec(max_answer=2)
    assert find_best(starts, ends, is_text, is_text, spec) == (9.0, 2, 3)
    # The end may not be before the start, nor the span too long.
    assert find_best(starts, ends, is_text, is_text, Spec(max_answer=1)) == (7.0, 1, 1)
    # A start only where its window is the best; an end anywhere in the text.
    can_start = np.array([False, True, False, False, False])
    assert find_best(starts, ends, is_text, can_start, spec) == (7.0, 1, 1)
    # With one start and one end, 2 and 1, no span is left.
    assert find_best(starts, ends, is_text, is_text, Spec(num_best=1)) is None
    assert find_best(starts, ends, ~(is_text | True), is_text, spec) is None


def test_the_threshold_is_chosen_on_dev():
    spec = Spec(has_null=True)
    examples = [read_one(squad(("cat", 4)), has_null=True)]
    examples += [read_one(squad(), has_null=True)] * 2
    predictions = [
        Prediction("cat", 3.0, 1.0),  # -2
        Prediction("mat", 1.0, 0.5),  # -0.5
        Prediction("mat", 1.0, 2.0),
    ]
    before = span_qa.metrics(predictions, examples, spec)
    assert before["f1"] == pytest.approx(2 / 3) and before["no_answer_f1"] == 0.5
    tuned = spec.tune(predictions, examples)
    assert tuned.null_threshold == -2.0
    assert span_qa.metrics(predictions, examples, tuned)["f1"] == 1.0
    assert Spec().tune(predictions, examples) == Spec()
    # Without `has_null` the best span is always said.
    assert span_qa.metrics(predictions, examples, Spec())["no_answer_f1"] == 0


def test_the_marks_and_groups_of_subjqa():
    text = "the cat sat on the mat ANSWERNOTFOUND"
    rows = [
        {"question": "q", "review": text, "spans": "(4, 7)", "id": "a"},
        {"question": "q", "review": text, "spans": "(23, 37)", "id": "a"},
        {"question": "q", "review": text, "spans": "(4, 11)", "id": "a"},
        {"question": "p", "review": text, "spans": "(23, 37)", "id": "b"},
    ]
    settings = {
        "context": "review",
        "answers": "",
        "spans": "spans",
        "null_mark": "ANSWERNOTFOUND",
        "group": "id",
        "has_null": True,
    }
    train, _ = span_qa.read(make_table(rows), Spec(**settings), None)
    assert [example.golds for example in train] == [("cat",), (), ("cat sat",), ()]
    assert {example.context for example in train} == {"the cat sat on the mat"}
    dev, _ = span_qa.read(make_table(rows), Spec(**settings), ())
    assert [example.golds for example in dev] == [("cat", "cat sat"), ()]
    predictions = [Prediction("cat sat", 1.0, 0.0), Prediction("mat", 0.0, 1.0)]
    assert span_qa.metrics(predictions, dev, Spec(**settings))["exact_match"] == 1.0


def test_subjqa_itself(tmp_path):
    import tarfile

    from jaxpt.text.labelled.tables import TableSpec, read_table

    path = find_shared("downstream/subjqa/subjqa.tar.xz", "SubjQA's groups and marks")
    with tarfile.open(path) as archive:
        archive.extractall(tmp_path, filter="data")
    spec = Spec(
        context="review",
        answers="",
        spans="human_ans_indices",
        null_mark="ANSWERNOTFOUND",
        group="q_review_id",
        has_null=True,
    )
    table = read_table(TableSpec(f"{tmp_path}/*/splits/test.csv"), spec.columns)
    rows, _ = span_qa.read(table, spec, None)
    groups, _ = span_qa.read(table, spec, ())
    assert (len(rows), len(groups)) == (3479, 1727)
    assert sum(not example.golds for example in groups) == 577
    assert not any("ANSWERNOTFOUND" in example.context for example in groups)
    constant = span_qa.constant(rows, groups, spec)
    result = span_qa.metrics(constant, groups, spec)
    # Two more have answers of articles and marks alone, which SQuAD's rule leaves out.
    assert result["exact_match"] == pytest.approx(579 / 1727)


@pytest.mark.parametrize(
    "row, settings, message",
    [
        (squad(), {}, "question 0: answers: has no answer; set task.has_null=True"),
        (squad(("dog", 4)), {}, "'dog' is not at 4 .* has 'cat' there"),
        (
            squad() | {"s": "(9, 4)"},
            {"spans": "s", "answers": ""},
            "must be .begin, en",
        ),
        (squad() | {"s": "here"}, {"spans": "s", "answers": ""}, "s='here': must be"),
        (squad() | {"s": "(4, 999)"}, {"spans": "s", "answers": ""}, "61 characters"),
    ],
)
def test_faults(row, settings, message):
    with pytest.raises(UserError, match=message):
        read_one(row, **settings)


def test_groups_have_one_text():
    rows = [squad(("cat", 4)) | {"id": 1}, squad(("the", 0), context="the") | {"id": 1}]
    with pytest.raises(UserError, match="id=1: rows of one group must have one"):
        span_qa.read(make_table(rows), Spec(group="id"), ())


def test_a_question_that_leaves_no_room():
    example = read_one(squad(("cat", 4), question="the cat sat on the mat " * 9))
    with pytest.raises(UserError, match="task.max_len=32: must be above"):
        span_qa.encode([example], make_encoder(), Spec(), is_training=True)
    spec = Spec(max_question=8)
    assert span_qa.encode([example], make_encoder(), spec, is_training=True)
