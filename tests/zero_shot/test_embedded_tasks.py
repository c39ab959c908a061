"""Sentence similarity and retrieval: tables, values, and what is refused."""

import json
import math

import numpy as np
import pytest
from scipy import stats
from tiny import make_config, write_run

from jaxpt.cli.main import main
from jaxpt.judge.bootstrap import DRAWS
from jaxpt.runs.zero_shot_results import evaluate_tasks, load_columns, load_main
from jaxpt.zero_shot.embedded import embed_distinct, to_unit
from jaxpt.zero_shot.retrieval import evaluate_retrieval, read_queries
from jaxpt.zero_shot.sentence_similarity import (
    evaluate_similarity,
    pearson,
    read_scored_pairs,
)

ROWS = [
    ("the people speak", "the people speak", 5.0),
    ("the people speak", "a man of the state", 1.5),
    ("we have a union", "a union we have", 4.5),
    ("we have a union", "war and peace", 0.0),
    ("peace in the world", "war and peace", 1.5),
]
HEAD = "sentence1\tsentence2\tscore"


def write_table(path, rows=ROWS, head=HEAD):
    lines = ["\t".join(map(str, row)) for row in rows]
    path.write_text("\n".join([head, *lines]) + "\n")
    return path


def write_corpus(folder, documents=None, queries=None, qrels=None):
    """A folder in BEIR's format."""
    documents = documents or [
        {"_id": "d1", "title": "War", "text": "war in the world"},
        {"_id": "d2", "title": "", "text": "peace and the people"},
        {"_id": "d3", "text": "a union of states"},
    ]
    queries = queries or [
        {"_id": "q1", "text": "peace"},
        {"_id": "q2", "text": "union"},
        {"_id": "q3", "text": "without a judgement"},
    ]
    qrels = qrels or [("q1", "d2", 2), ("q1", "d1", 1), ("q2", "d3", 1)]
    (folder / "qrels").mkdir(parents=True)
    for name, rows in (("corpus", documents), ("queries", queries)):
        lines = "\n".join(map(json.dumps, rows))
        (folder / f"{name}.jsonl").write_text(lines + "\n")
    write_table(folder / "qrels" / "test.tsv", qrels, "query-id\tcorpus-id\tscore")
    return folder


def count_letters(texts, pools):
    """An embedding by hand: how often each letter occurs."""
    letters = "abcdefghijklmnopqrstuvwxyz"
    vectors = [[text.lower().count(x) for x in letters] for text in texts]
    return dict.fromkeys(pools, np.array(vectors, np.float32))


@pytest.mark.parametrize("suffix", ["tsv", "csv", "jsonl"])
def test_pairs_are_read_from_any_table(suffix, tmp_path):
    path = tmp_path / f"pairs.{suffix}"
    if suffix == "jsonl":
        names = HEAD.split("\t")
        path.write_text("\n".join(json.dumps(dict(zip(names, r))) for r in ROWS))
    else:
        write_table(path)
        mark = "," if suffix == "csv" else "\t"
        path.write_text(path.read_text().replace("\t", mark))
    assert [tuple(pair) for pair in read_scored_pairs(str(path))] == ROWS


def test_similarity_is_scipys_of_the_cosines(tmp_path):
    pairs = read_scored_pairs(str(write_table(tmp_path / "pairs.tsv")))
    (outcome,) = evaluate_similarity(count_letters, pairs, ("mean",)).values()
    first, second = (
        to_unit(count_letters([pair[i] for pair in pairs], "m")["m"]) for i in (0, 1)
    )
    similarities = (first * second).sum(1)
    scores = [pair.score for pair in pairs]
    figures = outcome.figures
    expected = stats.spearmanr(similarities, scores).statistic
    assert figures["spearman"].value == pytest.approx(expected)
    expected = stats.pearsonr(similarities, scores).statistic
    assert figures["pearson"].value == pytest.approx(expected, abs=1e-6)
    assert outcome.columns["spearman"].mean() == pytest.approx(
        figures["spearman"].value
    )
    assert outcome.columns["cosine"][0] == pytest.approx(1)
    assert outcome.trivial["spearman_of_tfidf"] > 0.5 and not outcome.notes


def test_each_text_is_embedded_once():
    calls = []

    def embed(texts, pools):
        calls.append(list(texts))
        return count_letters(texts, pools)

    vectors = embed_distinct(embed, ["a", "bb", "a", ""], ("mean",))["mean"]
    assert calls == [["a", "bb", ""]]
    assert vectors[:, :2].tolist() == [[1, 0], [0, 1], [1, 0], [0, 0]]


def test_a_constant_is_said_and_has_no_correlation(tmp_path):
    pairs = read_scored_pairs(str(write_table(tmp_path / "pairs.tsv")))
    outcomes = evaluate_similarity(
        lambda texts, pools: dict.fromkeys(pools, np.ones((len(texts), 2))),
        pairs,
        ("last",),
    )
    assert outcomes["last"].figures["spearman"].value == 0
    assert outcomes["last"].notes == [
        "All similarities are equal: both correlations are set to 0."
    ]
    assert pearson(np.ones((DRAWS, 3)), np.arange(3.0)).shape == (DRAWS,)


def test_a_vector_that_is_not_finite_is_refused(refuses):
    with refuses("a vector of a text is not finite: the run diverged"):
        embed_distinct(lambda t, p: {"mean": np.full((1, 2), np.nan)}, ["a"], ("mean",))


@pytest.mark.parametrize(
    ("rows", "head", "parts"),
    [
        (ROWS, "sentence1\tother\tscore", ("line 2", "no column sentence2", "other")),
        ([("a", "b", "nan"), *ROWS], HEAD, ("line 2", "score='nan'", "finite")),
        ([("a", "b", "high")], HEAD, ("score='high': must be a finite number",)),
        ([("a", " ", 1)], HEAD, ("sentence2=' '", "not blank")),
        ([("a", "b", 1), ("c", "d", 1)], HEAD, ("must have two values",)),
        ([], HEAD, ("holds no pair of sentences",)),
    ],
)
def test_wrong_pairs_are_one_line(rows, head, parts, tmp_path, refuses):
    path = write_table(tmp_path / "pairs.tsv", rows, head)
    with refuses(str(path), *parts):
        read_scored_pairs(str(path))


def test_retrieval_is_the_mean_over_judged_queries(tmp_path):
    queries = read_queries(str(write_corpus(tmp_path / "set")))
    assert [query.id for query in queries] == ["q1", "q2"]
    assert queries[0].corpus.ids == ("d3", "d2", "d1")
    assert queries[0].corpus.texts[2] == "War war in the world"
    assert "war" not in repr(queries[0]) and "DocumentSet(" in repr(queries[0])

    def embed(texts, pools):
        angles = {"peace": 0, "union": 0.2, "a union of states": 0.3}
        angles |= {"War war in the world": 0.4, "peace and the people": -0.5}
        rows = [(math.cos(angles[t]), math.sin(angles[t])) for t in texts]
        return dict.fromkeys(pools, np.array(rows, np.float32))

    (outcome,) = evaluate_retrieval(embed, queries, ("mean",)).values()
    # q1 ranks d3, d1, d2; q2 ranks d3 first.
    first = (1 / math.log2(3) + 2 / 2) / (2 + 1 / math.log2(3))
    values = outcome.columns["ndcg_at_10"]
    assert values.tolist() == pytest.approx([first, 1])
    assert outcome.figures["ndcg_at_10"].value == pytest.approx(values.mean())
    assert outcome.trivial["ndcg_at_10_of_tfidf"] > 0.9
    assert 0.5 < outcome.trivial["ndcg_at_10_of_chance"] < 0.9


def test_the_document_of_the_query_is_not_ranked(tmp_path):
    documents = [{"_id": "q1", "text": "peace"}, {"_id": "d2", "text": "peace now"}]
    folder = write_corpus(tmp_path / "set", documents, None, [("q1", "d2", 1)])
    (query,) = read_queries(str(folder))
    outcomes = evaluate_retrieval(count_letters, [query], ("mean",))
    assert outcomes["mean"].columns["ndcg_at_10"].tolist() == [1]
    # Chance, too: the only document that is ranked is the right one.
    assert outcomes["mean"].trivial["ndcg_at_10_of_chance"] == 1
    assert "1 queries have the id of a document" in outcomes["mean"].notes[1]


@pytest.mark.parametrize(
    ("what", "rows", "parts"),
    [
        ("documents", [{"_id": "d1"}], ("has no text", "_id")),
        ("documents", [{"_id": "d1", "text": "a"}] * 2, ("_id=d1", "not occur twice")),
        ("documents", [{"_id": "d1", "text": 3}], ("line 1", "must be texts")),
        ("queries", [{"text": "a"}], ("has no _id",)),
        ("qrels", [("q1", "d9", 1)], ("line 2", "corpus-id=d9", "_id of the corpus")),
        ("qrels", [("q9", "d1", 1)], ("query-id=q9", "_id of the queries")),
        ("qrels", [("q1", "d1", "nan")], ("score='nan': must be a whole number",)),
        ("qrels", [("q1", "d1", 1)] * 2, ("q1, d1: must be judged once",)),
    ],
)
def test_wrong_sets_are_one_line(what, rows, parts, tmp_path, refuses):
    folder = write_corpus(tmp_path / "set", **{what: rows})
    with refuses(*parts):
        read_queries(str(folder))


def test_missing_files_and_empty_ones_are_one_line(tmp_path, refuses):
    folder = write_corpus(tmp_path / "set")
    with refuses("must be a folder with corpus.jsonl"):
        read_queries(str(folder / "corpus.jsonl"))
    (folder / "qrels" / "test.tsv").rename(folder / "qrels" / "dev.tsv")
    with refuses("must hold qrels/test.* or qrels.*"):
        read_queries(str(folder))
    (folder / "corpus.jsonl").write_text("")
    with refuses("corpus.jsonl", "holds no document"):
        read_queries(str(folder))


@pytest.fixture(scope="module", params=["mlm", "skip_gram"])
def run(request, speech, tmp_path_factory):
    """Skip-gram scores no text, but it has vectors."""
    folder = tmp_path_factory.mktemp("embedded")
    return write_run(make_config(speech, request.param), folder / "run")


def test_a_run_is_evaluated_by_each_pool(run, tmp_path, capsys):
    pairs, corpus = write_table(tmp_path / "pairs.tsv"), write_corpus(tmp_path / "set")
    tasks = [f"sts:{pairs}", f"retrieval:{corpus}"]
    args = ["evaluate", f"--workdir={run}", f"--tasks={','.join(tasks)}"]
    assert main(args) == 0
    out = capsys.readouterr().out
    for text in (
        "spearman",
        "bootstrap over pairs",
        "ndcg_at_10",
        "of_tfidf",
        "last: ",
    ):
        assert text in out
    results = evaluate_tasks(run, tasks, "all", 0)
    assert all(result["is_known"] for result in results)
    for result, name in zip(results, ("spearman", "ndcg_at_10"), strict=True):
        assert list(result["results"]) == ["mean", "first", "last"]
        for rule in result["results"]:
            figure = result["results"][rule]["figures"][name]
            examples = load_main(run, result, rule)
            assert examples.mean == pytest.approx(figure["value"])
            assert len(examples.groups) == result["num_items"]
    cosine = load_columns(run, results[0], "last")["cosine"]
    assert cosine[0] == pytest.approx(1) and len(cosine) == len(ROWS)
    # Other documents are asked anew.
    place = corpus / "corpus.jsonl"
    place.write_text(place.read_text().replace("union", "unions"))
    assert not evaluate_tasks(run, tasks[1:], "all", 0)[0]["is_known"]
    assert main([*args, "--rule=causal"]) == 2
    error = capsys.readouterr().err
    assert "--rule=causal: must be one of all, auto, mean, first, last for sts" in error


@pytest.mark.peers
def test_ndcg_is_pytrec_evals():
    """Random scores with many ties, and judgements of several grades."""
    from jaxpt.evaluation.ndcg import ndcg, rank

    pytrec_eval = pytest.importorskip("pytrec_eval")
    rng = np.random.default_rng(0)
    ids = sorted((f"d{i}" for i in range(60)), reverse=True)
    qrels, run, ours = {}, {}, {}
    for query in (f"q{i}" for i in range(200)):
        judged = rng.choice(ids, rng.integers(1, 30), replace=False)
        grades = rng.integers(-1, 4, len(judged))
        qrels[query] = dict(zip(judged.tolist(), grades.tolist(), strict=True))
        scores = rng.integers(0, 8, len(ids)) / 7
        run[query] = dict(zip(ids, scores.tolist(), strict=True))
        ours[query] = ndcg(rank(scores, ids), qrels[query])
    evaluator = pytrec_eval.RelevanceEvaluator(qrels, {"ndcg_cut.10"})
    theirs = evaluator.evaluate(run)
    assert set(theirs) == set(ours)
    for query, values in theirs.items():
        assert ours[query] == pytest.approx(values["ndcg_cut_10"], abs=1e-9)
