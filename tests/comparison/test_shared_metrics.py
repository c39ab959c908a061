"""Every comparison has a shared metric, or says before it trains that it has none."""

import logging

import pytest
from tiny import make_config

from jaxpt.comparison import compare as comparison
from jaxpt.comparison.plan_runs import _Planner
from jaxpt.comparison.shared_metrics import list_notes
from jaxpt.config.settings import to_dict
from jaxpt.report import figures

PAIRS = {"pair_accuracy", "pair_nats"}
STEPS = {
    "compare__budget": "steps",
    "compare__amount": 0.0,
    "compare__seeds": (0,),
    "train__steps": 2,
    "train__checkpoint_every": 0,
}


def make_comparison(path, names, **changes):
    settings = STEPS | {"compare__objectives": names, "eval__pair_questions": 40}
    return make_config(path, names[0], **(settings | changes))


def test_clm_and_mlm_on_a_text_of_the_users_share_a_metric(
    speech, tmp_path, monkeypatch
):
    """Without a setting of the evaluation: rows as long as a default question."""
    monkeypatch.setattr(figures, "draw", lambda *args: {})
    config = make_config(
        speech,
        **STEPS,
        data__row_length=40,
        model__max_len=40,
        compare__objectives=("clm", "mlm"),
    )
    report = comparison.compare(config, tmp_path / "c")
    entries = {x["metric"]: x for x in report["metrics"]}
    for metric in PAIRS:
        assert entries[metric]["by_name"].keys() == {"clm", "mlm"}
        assert entries[metric]["is_common"] and len(entries[metric]["pairs"]) == 1
    assert [x["metric"] for x in report["metrics"]][:2] == [*sorted(PAIRS)]
    assert not entries["pair_nats"]["higher_is_better"]
    assert report["reliability"].keys() >= PAIRS
    text = (tmp_path / "c" / "report.html").read_text()
    assert "two candidate tokens" in text and "reliability (correlation" in text


def plan(config, folder, caplog):
    """A comparison's plan, and what was said before anything is trained."""
    with caplog.at_level(logging.WARNING, "jaxpt"):
        planner = _Planner(to_dict(config), folder, ())
        planner.plan()
    return planner, list(dict.fromkeys(x.getMessage() for x in caplog.records))


@pytest.mark.parametrize(
    ("names", "changes", "said"),
    [
        (("clm", "mlm"), {"eval__word_context": 4}, ""),
        (
            ("clm", "mlm"),
            {"eval__pair_questions": 0},
            "no shared metric will be measured for two of clm, mlm, so the report will "
            "have no verdict on them (bigram-matched cloze: clm, mlm: "
            "eval.pair_questions=0)",
        ),
        (
            ("clm", "mlm"),
            {},
            "clm: clm reads 23 tokens at once, so eval.word_context=16 must be at most "
            "11; mlm: mlm reads 24 tokens at once, so eval.word_context=16 must be at "
            "most 11)",
        ),
        (
            ("clm", "skip_gram"),
            {"eval__word_context": 4},
            "two of clm, skip_gram, so the report will have no verdict on them "
            "(bigram-matched cloze: skip_gram: skip_gram cannot choose",
        ),
        (
            ("clm", "mlm", "skip_gram"),
            {"eval__word_context": 4},
            "skip_gram: no metric that is shared with another objective, so the report "
            "will have no verdict on it (bigram-matched cloze: skip_gram: skip_gram "
            "cannot choose among tokens for a gap)",
        ),
    ],
)
def test_what_is_not_shared_is_said_before_anything_is_trained(
    names, changes, said, speech, tmp_path, caplog
):
    config = make_comparison(speech, names, **changes)
    planner, lines = plan(config, tmp_path, caplog)
    if not said:
        assert lines == [] and all(PAIRS <= of for of in planner.measured.values())
        return
    assert len(lines) == 1 and said in lines[0], lines
    assert not (tmp_path / "runs").exists()


def test_a_text_of_one_kind_of_tokens_is_named(tmp_path, caplog):
    path = tmp_path / "a.txt"
    path.write_text("a" * 5000)
    config = make_comparison(path, ("clm", "mlm"), eval__word_context=4)
    _, (line,) = plan(config, tmp_path / "c", caplog)
    assert "the training text has fewer than two kinds of tokens" in line


def test_notes_name_who_lacks_what():
    cloze, probe = {"pair_accuracy"}, {"probe_accuracy"}
    able, unable = "", "x cannot choose among tokens for a gap"
    both = {"clm": cloze | probe, "x": probe}
    assert list_notes(both, {"clm": able, "x": unable}) == [
        f"bigram-matched cloze: not measured for x: {unable}"
    ]
    assert list_notes({"clm": cloze, "mlm": cloze}, {"clm": able, "mlm": able}) == []
    # Downstream tasks are shared by all; one objective has no other.
    alone = {"clm": cloze, "x": set()}
    assert len(list_notes(alone, {"clm": able, "x": unable}, has_tasks=True)) == 1
    assert list_notes({"x": set()}, {"x": unable}) == []
    # A bound has a verdict with a value, and none with another bound.
    off = "eval.pair_questions=0"
    bound, exact = {"bits_per_byte_bound"}, {"bits_per_byte"}
    assert list_notes({"a": bound, "b": exact}, {"a": off, "b": off}) == []
    (line,) = list_notes({"a": bound, "b": bound}, {"a": off, "b": off})
    assert line.startswith("no shared metric will be measured for two of a, b")
