"""Reading times: regressions by hand, and what each rule reads of a word."""

import csv

import jax
import numpy as np
import pytest
from tiny import make_config, prepare

from jaxpt.zero_shot import reading
from jaxpt.zero_shot.outcomes import EvalContext
from jaxpt.zero_shot.reading import EYE, NUMBERS, SELF_PACED, WordReading
from jaxpt.zero_shot.scoring import TextScorer

COLUMNS = (*reading.TEXTS, "sentence", *NUMBERS, "prev_length", *EYE, SELF_PACED)


def r_squared(y, *columns):
    x = np.column_stack([np.ones(len(y)), *columns])
    rest = y - x @ np.linalg.lstsq(x, y, rcond=None)[0]
    return 1 - rest @ rest / ((y - y.mean()) @ (y - y.mean()))


def products(columns):
    return [a * b for i, a in enumerate(columns) for b in columns[i + 1 :]]


def make_readings(num=60):
    rng = np.random.default_rng(0)
    frequency, length, place, before = rng.normal(3, 1, (4, num))
    surprisal, previous = rng.normal(8, 2, (2, num))
    times = [length + surprisal + rng.normal(0, 2, num) for _ in range(5)]
    values = [frequency, length, place, before, *times]
    names = (*NUMBERS, "prev_length", *EYE, SELF_PACED)
    items = [
        WordReading("a", "b", "", "", f"s{i // 4}", dict(zip(names, row, strict=True)))
        for i, row in enumerate(np.transpose(values).tolist())
    ]
    return items, surprisal, previous, values


def test_the_scores_are_those_of_two_regressions():
    items, surprisal, previous, values = make_readings()
    frequency, length, place, before, *times = values
    first = [frequency, length, place]
    base = [*first, *products(first)]
    shares = []
    for time in times[:4]:
        low, high = r_squared(time, *base), r_squared(time, *base, surprisal)
        shares.append(100 * (high - low) / (1 - low))
    judged = reading.judge_readings(items, surprisal, previous)
    value, (low, high, method) = judged["eye_tracking"]
    assert value == pytest.approx(np.mean(shares), rel=1e-6)
    assert low < value < high and method == "bootstrap over sentences"
    # A word without the one before it is left out of the second.
    previous[3] = np.nan
    keep = np.isfinite(previous)
    second = [x[keep] for x in (*first, before, previous)]
    base = [*second, *products(second)]
    time = times[4][keep]
    low, high = r_squared(time, *base), r_squared(time, *base, surprisal[keep])
    value, _ = reading.judge_readings(items, surprisal, previous)["self_paced_reading"]
    assert value == pytest.approx(100 * (high - low) / (1 - low), rel=1e-6)


def test_a_draw_of_sentences_is_the_regression_of_their_words():
    _, surprisal, _, values = make_readings()
    columns = {"length": values[1], "time": values[4]}
    groups = np.arange(60) // 4
    weights = np.ones((2, 15))
    weights[1, :3], weights[1, 3] = 0, 3
    _, drawn = reading.explain(columns, ("length",), "time", surprisal, groups, weights)
    index = np.concatenate([np.arange(12, 60), [12, 13, 14, 15] * 2])
    y, x, s = values[4][index], values[1][index], surprisal[index]
    low, high = r_squared(y, x), r_squared(y, x, s)
    assert drawn == pytest.approx(100 * (high - low) / (1 - low), rel=1e-6)


def test_too_few_words_are_refused(refuses):
    items, surprisal, previous, _ = make_readings(8)
    with refuses("RTfirstfix: 8 words have all values", "too few"):
        reading.judge_readings(items, surprisal, previous)


def write(path, *rows, drop=()):
    with path.open("w", newline="") as file:
        writer = csv.DictWriter(
            file, [n for n in COLUMNS if n not in drop], extrasaction="ignore"
        )
        writer.writeheader()
        writer.writerows(rows)
    return str(path)


ROW = dict.fromkeys(COLUMNS, "1") | {
    "item": "The old",
    "word": "man",
    "prev_item": "The",
    "prev_word": "old",
    "sentence": "The old man",
}


def test_the_file_is_read(tmp_path, refuses):
    first = ROW | {"prev_item": "", "prev_word": "", "RTgopast": "NA", "length": "2.5"}
    items = reading.read_readings(write(tmp_path / "a.csv", ROW, first))
    assert items[0][:5] == ("The old", "man", "The", "old", "The old man")
    assert items[1][2:4] == ("", "")
    assert items[1].numbers["length"] == 2.5
    assert np.isnan(items[1].numbers["RTgopast"])
    with refuses("a.csv line 2: length='x': must be a number"):
        reading.read_readings(write(tmp_path / "a.csv", ROW | {"length": "x"}))
    with refuses("a.csv line 2: word must be a text"):
        reading.read_readings(write(tmp_path / "a.csv", ROW | {"word": " "}))
    with refuses("a.csv: has no column prev_length"):
        reading.read_readings(write(tmp_path / "a.csv", ROW, drop=("prev_length",)))


def make_context(speech, name):
    """A tiny network with random parameters."""
    task, tokenizer, _ = prepare(make_config(speech, name))
    rng = np.random.default_rng(0)
    params = jax.tree.map(
        lambda x: rng.normal(0, 0.3, x.shape).astype(np.float32),
        jax.eval_shape(task.model.init_params, jax.random.key(0)),
    )
    scorer = TextScorer(task.model, params, task.text_form, name)
    return EvalContext(scorer, tokenizer.encode, tokenizer.encode_sized)


def test_a_causal_network_reads_a_word_after_its_context(speech):
    context = make_context(speech, "clm")
    ids, start = reading._join(context.encode, "to the", "senate")
    assert start == len(context.encode("to the")) and len(ids) - start > 1
    found = reading.find_surprisals(context.scorer, "causal", [(ids, start), None])
    (log_probs,) = context.scorer.token_log_probs([ids], [start], "causal")
    assert found[0] == pytest.approx(-log_probs.sum()) and np.isnan(found[1])
    # A change of what follows a word does not affect it.
    assert len(log_probs) == len(ids) - start


def test_a_masked_network_reads_three_masks_at_the_end(speech):
    context = make_context(speech, "mlm")
    scorer, (gap,) = context.scorer, context.scorer.form.gap
    ids, start = reading._join(context.encode, "to the", "senate")
    (found,) = reading.find_surprisals(scorer, "pll", [(ids, start)])
    total = 0.0
    before, after = scorer.form.opening, scorer.form.after
    for stop in range(start, len(ids)):
        row = np.array([*before, *ids[:stop], gap, gap, gap, *after], np.int32)[None]
        batch = {
            "inputs": row,
            "segment_ids": np.ones_like(row),
            "positions": np.array([[len(before) + stop]], np.int32),
            "targets": np.array([[ids[stop]]], np.int32),
        }
        total -= float(scorer.read("masked", batch, False)[0][0, 0])
    assert found == pytest.approx(total, rel=1e-5)


def test_an_encoder_decoder_reads_one_gap_at_the_end(speech):
    context = make_context(speech, "span_corruption")
    ids, start = reading._join(context.encode, "to the", "senate")
    (found,) = reading.find_surprisals(context.scorer, "infill", [(ids, start)])
    texts = [ids[:stop] for stop in range(start + 1, len(ids) + 1)]
    starts = [len(text) - 1 for text in texts]
    scores = context.scorer.token_log_probs(texts, starts, "infill")
    assert found == pytest.approx(-sum(each.sum() for each in scores))


def test_a_long_context_is_truncated_on_the_left(speech):
    context = make_context(speech, "clm")
    room = context.scorer.room("causal")
    rng = np.random.default_rng(0)
    ids = rng.integers(5, 30, 2 * room)
    start = len(ids) - 2
    (found,) = reading.find_surprisals(context.scorer, "causal", [(ids, start)])
    (scores,) = context.scorer.token_log_probs([ids[-room:]], [room - 2], "causal")
    assert found == pytest.approx(-scores.sum())


@pytest.mark.parametrize("name", ["clm", "electra"])
def test_the_task_has_a_figure_for_each_score(speech, name):
    context = make_context(speech, name)
    words = "to the people of all the senate and the city we have".split()
    items, *_ = make_readings()
    items = [
        item._replace(
            context=" ".join(words[: i % 9 + 1]),
            word=words[i % 9 + 1],
            prev_context=" ".join(words[: i % 9]),
            prev_word=words[i % 9],
        )
        for i, item in enumerate(items)
    ]
    rules = context.scorer.rules
    outcomes = reading.evaluate_readings(context, items, rules)
    assert list(outcomes) == list(rules)
    for outcome in outcomes.values():
        names = {"eye_tracking", "self_paced_reading"}
        assert names <= set(outcome.figures)
        value = outcome.figures["eye_tracking"]
        assert value.low <= value.value <= value.high
        assert outcome.columns["surprisal"].shape == (60,)
        assert (outcome.columns["surprisal"] > 0).all()
