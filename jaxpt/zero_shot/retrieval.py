"""Retrieval: the documents whose embeddings are nearest to a query's.

A folder in the format of BEIR and MTEB:

    corpus.jsonl      {"_id": "d1", "title": "Flutes", "text": "A flute is ..."}
    queries.jsonl     {"_id": "q1", "text": "What is a flute?"}
    qrels/test.tsv    query-id  corpus-id  score       with this header

All documents are ranked by cosine similarity; the metric is nDCG@10
(`jaxpt.evaluation.ndcg`), the mean over the queries that have a judgement. As in BEIR,
a document is read as its title, a space and its text, and a document with the id of the
query is not ranked for it. Queries and documents are read in the same way, without
instructions before them. Departures: each id of the judgements must exist, where BEIR
counts an unknown document as one that is never found; and the document with the query's
id must not be a relevant one.
"""

import dataclasses
import hashlib
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from jaxtyping import Float

from jaxpt.errors import DataError
from jaxpt.evaluation.ndcg import CUT, expected_ndcg, ndcg, rank
from jaxpt.judge.intervals import mean_interval
from jaxpt.zero_shot.embedded import POOLINGS, Embed, embed_distinct, weigh_words
from jaxpt.zero_shot.outcomes import STATES, Outcome, ZeroShotTask, make_figures
from jaxpt.zero_shot.pairs import read_rows
from jaxpt.zero_shot.sentence_similarity import read_number

METRIC = f"ndcg_at_{CUT}"
ID, TITLE, TEXT = "_id", "title", "text"
QUERY_ID, DOCUMENT_ID, SCORE = "query-id", "corpus-id", "score"


@dataclasses.dataclass(frozen=True, repr=False)
class DocumentSet:
    """The documents, in descending order of their ids."""

    ids: tuple[str, ...]
    texts: tuple[str, ...]

    def __repr__(self) -> str:
        """Its content as a hash, by which stored results know it."""
        text = repr((self.ids, self.texts)).encode("utf-8", "surrogatepass")
        return f"DocumentSet({hashlib.sha256(text).hexdigest()})"


@dataclasses.dataclass(frozen=True)
class Query:
    """A query, the relevance of its judged documents, and the digest of all documents.

    Attributes:
      corpus: of all queries; compared by `digest`.
    """

    id: str
    text: str
    relevance: dict[str, int]
    digest: str
    corpus: DocumentSet = dataclasses.field(repr=False)


def read_queries(path: str) -> list[Query]:
    """The judged queries of a folder, with its documents."""
    documents = _read_texts(path, "corpus", "document")
    queries = _read_texts(path, "queries", "query")
    judged = _read_judgements(path, queries, documents)
    ids = sorted(documents, reverse=True)
    corpus = DocumentSet(tuple(ids), tuple(documents[id_] for id_ in ids))
    digest = repr(corpus)
    return [
        Query(id_, text, judged[id_], digest, corpus)
        for id_, text in queries.items()
        if id_ in judged
    ]


def _find_file(folder: str, *names: str) -> str:
    """The file of one of these names with any suffix."""
    if not Path(folder).is_dir():
        raise DataError(
            f"{folder}: must be a folder with corpus.jsonl, queries.jsonl and "
            "qrels/test.tsv"
        )
    for name in names:
        place = Path(folder, name)
        if files := sorted(place.parent.glob(f"{place.name}.*")):
            return str(files[0])
    raise DataError(f"{folder}: must hold {' or '.join(f'{n}.*' for n in names)}")


def _read_texts(folder: str, name: str, kind: str) -> dict[str, str]:
    """The text of each document or query by its id."""
    texts: dict[str, str] = {}
    for fields, _, where in read_rows(_find_file(folder, name), kind):
        _require(fields, (ID, TEXT), where)
        id_, text = str(fields[ID]), fields[TEXT]
        title = fields.get(TITLE) or ""
        if not isinstance(text, str) or not isinstance(title, str):
            raise DataError(f"{where}: {TITLE} and {TEXT} must be texts")
        if id_ in texts:
            raise DataError(f"{where}: {ID}={id_}: must not occur twice")
        texts[id_] = f"{title} {text}".strip()
    return texts


def _read_judgements(
    folder: str, queries: Mapping[str, str], documents: Mapping[str, str]
) -> dict[str, dict[str, int]]:
    """The relevance of documents by query."""
    judged: dict[str, dict[str, int]] = {}
    path = _find_file(folder, "qrels/test", "qrels")
    for query, document, score, where in _read_scores(path):
        for name, id_, known in (
            (QUERY_ID, query, queries),
            (DOCUMENT_ID, document, documents),
        ):
            if id_ not in known:
                raise DataError(
                    f"{where}: {name}={id_}: must be an {ID} of the "
                    f"{'queries' if known is queries else 'corpus'}"
                )
        own = judged.setdefault(query, {})
        if document in own:
            raise DataError(f"{where}: {query}, {document}: must be judged once")
        if query == document and score > 0:
            raise DataError(
                f"{where}: {document}: is relevant to the query of the same {ID}, "
                f"which is not ranked, as in BEIR; the ids of queries must be others"
            )
        own[document] = score
    return judged


def _read_scores(path: str) -> Iterator[tuple[str, str, int, str]]:
    """Each row: the ids of query and document, the relevance, and its place."""
    for fields, _, where in read_rows(path, "judgement"):
        _require(fields, (QUERY_ID, DOCUMENT_ID, SCORE), where)
        score = read_number(fields[SCORE])
        if not score.is_integer():
            raise DataError(
                f"{where}: {SCORE}={fields[SCORE]!r:.40}: must be a whole number"
            )
        yield str(fields[QUERY_ID]), str(fields[DOCUMENT_ID]), int(score), where


def _require(fields: Mapping[str, Any], names: Sequence[str], where: str) -> None:
    if missing := [name for name in names if fields.get(name) is None]:
        listed = ", ".join(map(str, fields))
        raise DataError(
            f"{where}: has no {missing[0]}; must have {', '.join(names)}; the columns "
            f"are {listed}"
        )


def evaluate_retrieval(
    embed: Embed, items: Sequence[Query], rules: Sequence[str]
) -> dict[str, Outcome]:
    """nDCG@10 of the queries, by pool."""
    corpus, num = items[0].corpus, len(items)
    texts = [item.text for item in items] + list(corpus.texts)
    vectors = embed_distinct(embed, texts, rules)
    words = weigh_words(texts)
    by_words = [
        (words[i] @ words[num:].T).toarray()[0].astype(np.float32) for i in range(num)
    ]
    ids = set(corpus.ids)
    num_ranked = [len(ids) - (item.id in ids) for item in items]
    trivial = {
        f"{METRIC}_of_tfidf": float(_judge(by_words, items).mean()),
        f"{METRIC}_of_chance": float(
            np.mean(
                [
                    expected_ndcg(n, item.relevance) if n else 0.0
                    for n, item in zip(num_ranked, items, strict=True)
                ]
            )
        ),
    }
    notes = [f"{len(ids):,} documents are ranked for each query."]
    if same := sum(item.id in ids for item in items):
        notes.append(
            f"{same} queries have the id of a document, which is not ranked for them."
        )
    outcomes = {}
    for rule in rules:
        queries, documents = vectors[rule][:num], vectors[rule][num:]
        values = _judge((documents @ query for query in queries), items)
        figures = make_figures({METRIC: (float(values.mean()), mean_interval(values))})
        outcomes[rule] = Outcome(figures, trivial, {}, {METRIC: values}, notes)
    return outcomes


def _judge(
    scores: Iterator[Float[np.ndarray, "D"]] | Sequence[Float[np.ndarray, "D"]],
    items: Sequence[Query],
) -> Float[np.ndarray, "N"]:
    """nDCG of each query by the scores of all documents."""
    values = []
    for row, item in zip(scores, items, strict=True):
        ranked = rank(row, item.corpus.ids, CUT + 1)
        others = [id_ for id_ in ranked if id_ != item.id]
        values.append(ndcg(others, item.relevance))
    return np.array(values)


TASK = ZeroShotTask(read_queries, evaluate_retrieval, reads=STATES, own_rules=POOLINGS)
