"""Judged text: measures beside those of real text, task files, and the command."""

import json
import math

import numpy as np
import pytest
from tiny import make_config, write_run

import jaxpt
from jaxpt.cli.main import main
from jaxpt.evaluation.scores import SampleSpec
from jaxpt.runs.text_judge import RunJudge
from jaxpt.runs.workdir import load_run
from jaxpt.runs.zero_shot_results import evaluate_tasks, load_main
from jaxpt.zero_shot.generation import (
    WritingContext,
    evaluate_generation,
    read_passages,
)
from jaxpt.zero_shot.sliding_window import read_texts
from jaxpt.zero_shot.written_text import compare_texts, measure_texts

REAL = [f"the people of state {i} have peace and a just union" for i in range(20)]
STUCK = ["the the the the the the the the the the"] * 20


class WordJudge:
    """A judge by hand: words are tokens, each costs ln 2, 'the' half of it."""

    description = "a judge by hand"

    def encode(self, text):
        return np.array([sum(map(ord, word)) for word in text.split()], int)

    def score(self, texts):
        nats = [sum(1 - (w == "the") / 2 for w in t.split()) for t in texts]
        return np.array(nats) * math.log(2), np.array([len(t.split()) for t in texts])

    def embed(self, texts):
        return np.array([[len(t), t.count("the"), t.count("a")] for t in texts], float)


def test_measures_by_hand():
    texts = ["the cat", "a b a b a b", ""]
    measured = measure_texts(WordJudge(), texts)
    assert measured.scored.tolist() == [2, 6, 0]
    assert measured.values["tokens"].tolist() == [2, 6, 0]
    assert measured.values["entropy"] == pytest.approx([math.log(2), math.log(2), 0])
    repetition = measured.values["seq_rep_4"]
    assert repetition[1] == pytest.approx(1 / 3) and np.isnan(repetition[[0, 2]]).all()
    outcome = compare_texts(WordJudge(), texts, REAL)
    # 1.5 + 6 bits of 8 tokens; the empty text has none, and says so.
    assert outcome.figures["log_perplexity"].value == pytest.approx(
        7.5 / 8 * math.log(2)
    )
    assert outcome.figures["generative_perplexity"].value == pytest.approx(
        2 ** (7.5 / 8)
    )
    assert outcome.figures["distinct_1"].value == pytest.approx(4 / 8)
    assert outcome.figures["seq_rep_4"].value == pytest.approx(1 / 3)
    assert "1 samples have no scored token." in outcome.notes
    assert any(note.startswith("distinct_n falls") for note in outcome.notes)


def test_repetitive_text_has_a_low_perplexity_and_shows_elsewhere():
    outcome = compare_texts(WordJudge(), STUCK, REAL)
    value = {name: figure.value for name, figure in outcome.figures.items()}
    real = outcome.trivial
    assert value["generative_perplexity"] < real["generative_perplexity_of_real"]
    for name in ("entropy", "distinct_1", "distinct_4"):
        assert value[name] < real[f"{name}_of_real"]
    assert value["seq_rep_4"] > real["seq_rep_4_of_real"] == 0
    assert value["mauve"] < 0.05 and "mauve_of_real" not in real


def test_real_text_in_another_order_is_as_real():
    outcome = compare_texts(WordJudge(), REAL[::-1], REAL)
    assert outcome.figures["mauve"].value == pytest.approx(1)
    for name, value in outcome.trivial.items():
        figure = outcome.figures[name.removesuffix("_of_real")]
        assert figure.value == pytest.approx(value)


def test_a_model_that_diverged_is_no_judge(refuses):
    judge = WordJudge()
    judge.embed = lambda texts: np.full((len(texts), 2), np.nan)
    with refuses("a judge by hand: a vector of a text is not finite"):
        compare_texts(judge, STUCK, REAL)
    judge.score = lambda texts: (np.full(len(texts), np.nan), np.ones(len(texts), int))
    with refuses("a judge by hand: a text has a score that is not finite"):
        compare_texts(judge, STUCK, REAL)


def test_no_text_is_one_line(refuses):
    with refuses("at least one sample and one text of reference"):
        compare_texts(WordJudge(), [], REAL)
    with refuses("the samples have no token that is scored"):
        compare_texts(WordJudge(), ["", " "], REAL)


def write_task(folder, text=" ".join(REAL), **settings):
    (folder / "real.txt").write_text(text)
    values = {"reference": "real.txt", "judge": "judge", "prompt_words": 2}
    path = folder / "generation.json"
    path.write_text(json.dumps(values | {"num_words": 4} | settings))
    return path


def test_passages_are_cut_from_the_reference(tmp_path):
    passages = read_passages(str(write_task(tmp_path, num_samples=5, temperature=0.5)))
    assert len(passages) == 5
    assert (passages[0].prompt, passages[0].truth) == (
        "the people",
        " of state 0 have",
    )
    assert passages[0].spec.sampling == SampleSpec(temperature=0.5)


@pytest.mark.parametrize(
    ("settings", "parts"),
    [
        ({"num_words": 0}, ("num_words=0: must be at least 1",)),
        ({"top_p": 2}, ("top_p=2",)),
        ({"words": 3}, ("words: must be one of reference, judge",)),
        ({"reference": "none.txt"}, ("none.txt",)),
        ({"num_words": 500}, ("has 0 passages of 502 words; must have at least 2",)),
    ],
)
def test_wrong_task_files_are_one_line(settings, parts, tmp_path, refuses):
    with refuses(*parts):
        read_passages(str(write_task(tmp_path, **settings)))


def test_a_task_judges_what_was_written_beside_the_truth(tmp_path):
    passages = read_passages(str(write_task(tmp_path)))
    asked = []

    def continue_texts(prompts, truths, *options):
        asked.append((prompts, options))
        return [(" the the", truth) for truth in truths]

    context = WritingContext(continue_texts, lambda name: WordJudge())
    (outcome,) = evaluate_generation(context, passages, ("written",)).values()
    assert asked == [([each.prompt for each in passages], (SampleSpec(), 0, 0))]
    assert outcome.figures["log_perplexity"].value == pytest.approx(math.log(2) / 2)
    assert outcome.columns["weight"].tolist() == [2] * len(passages)


@pytest.fixture(scope="module")
def runs(speech, tmp_path_factory):
    folder = tmp_path_factory.mktemp("judged")
    for name in ("clm", "mlm", "skip_gram"):
        write_run(make_config(speech, name), folder / name)
    return folder


def test_a_judge_scores_each_token_once_in_windows(runs):
    """Of texts beyond its window, too; padding and company change nothing."""
    judge = RunJudge(load_run(runs / "clm"), "judge")
    texts = [*REAL[:3], " ".join(REAL[:4]), ""]
    nats, counts = judge.score(texts)
    lengths = [len(judge.encode(text)) for text in texts]
    has_start = judge._scorer.is_first_scored("causal")
    assert counts.tolist() == [max(n - (not has_start), 0) for n in lengths]
    assert lengths[3] > 32 and nats[4] == 0
    alone = [judge.score([text])[0][0] for text in texts]
    np.testing.assert_allclose(nats, alone, rtol=1e-5)
    short = REAL[0][:20]
    np.testing.assert_allclose(
        judge.score([short])[0], jaxpt.load(runs / "clm").nll([short]), rtol=1e-5
    )
    read = read_texts(
        [texts[3]],
        *(judge._tokenizer.encode_sized, judge._scorer, "causal"),
        *(32, 16, judge._tokenizer.vocab.unknown_bits),
    )
    assert len(read.nats) > 1 and read.nats.sum() == pytest.approx(nats[3], rel=1e-5)
    assert judge.description == "judge (clm, step 0, causal)"


def test_a_run_that_writes_is_evaluated_and_another_is_refused(runs, tmp_path, capsys):
    task = write_task(tmp_path, judge=str(runs / "clm"))
    args = ["evaluate", f"--tasks=generation:{task}"]
    assert main([*args, f"--workdir={runs / 'clm'}"]) == 0
    out = capsys.readouterr().out
    assert "written: texts that the run wrote" in out and "seq_rep_4_of_real" in out
    (result,) = evaluate_tasks(runs / "clm", [f"generation:{task}"], "auto", 0)
    assert result["is_known"]
    figures = result["results"]["written"]["figures"]
    for name in ("log_perplexity", "entropy", "seq_rep_4", "tokens"):
        examples = load_main(runs / "clm", result, "written", name)
        assert examples.mean == pytest.approx(figures[name]["value"])
    assert load_main(runs / "clm", result, "written", "mauve") is None
    assert figures["mauve"]["low"] is None
    assert main([*args, f"--workdir={runs / 'mlm'}"]) == 2
    assert (
        "objective=mlm: must be that of a model that writes" in capsys.readouterr().err
    )


def test_text_of_any_program_is_judged(runs, tmp_path, capsys):
    samples, real = tmp_path / "samples.txt", tmp_path / "real.jsonl"
    samples.write_text("\n".join(STUCK) + "\n\n")
    real.write_text("\n".join(json.dumps({"text": text}) for text in REAL * 2))
    args = ["judge-text", f"--samples={samples}", f"--reference={real}"]
    args.append(f"--judge={runs / 'clm'}")
    assert main(args) == 0
    out = capsys.readouterr().out
    assert "real text" in out and "20 samples, 20 real texts" in out
    assert main([*args, "--json", "--num_items=5"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["num_samples"] == 5 == printed["num_reference"]
    result = jaxpt.judge_text(STUCK[:5], (REAL * 2)[::8], runs / "clm")
    assert result["measures"] == printed["measures"]
    assert (
        result["measures"]["entropy"]["value"] < result["measures"]["entropy"]["real"]
    )


@pytest.mark.parametrize(
    ("change", "parts"),
    [
        ({"samples": ""}, ("--samples: must be given",)),
        ({"samples": "none.txt"}, ("none.txt",)),
        ({"samples": "blank.txt"}, ("blank.txt",)),
        ({"judge": "none"}, ("none",)),
        ({"judge": "skip_gram"}, ("skip_gram", "cannot score texts")),
        ({"num_items": "-1"}, ("--num_items=-1",)),
    ],
)
def test_wrong_arguments_are_one_line(change, parts, runs, tmp_path, capsys):
    (tmp_path / "blank.txt").write_text("\n \n")
    (tmp_path / "real.txt").write_text("\n".join(REAL))
    values = {"samples": "real.txt", "reference": "real.txt", "judge": "clm"} | change
    for name, folder in (
        ("samples", tmp_path),
        ("reference", tmp_path),
        ("judge", runs),
    ):
        values[name] = str(folder / values[name]) if values[name] else ""
    assert main(["judge-text", *(f"--{k}={v}" for k, v in values.items())]) == 2
    error = capsys.readouterr().err.strip()
    assert len(error.splitlines()) == 1 and all(part in error for part in parts), error
