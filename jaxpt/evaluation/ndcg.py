"""nDCG at a cut-off, as trec_eval (`ndcg_cut`), pytrec_eval and BEIR compute it.

    DCG@k = sum over ranks i = 1 ... k of gain_i / log2(i + 1)
    nDCG@k = DCG@k / DCG@k of the best order of all judged documents

The gain is the relevance itself, not 2^relevance - 1 (Jarvelin and Kekalainen 2002);
a document without a judgement, or with a negative one, has 0. Scores are compared as
float32. Of documents with equal scores the one whose id is larger comes first, by the
bytes of the ids (trec_eval: form_res_rels.c, `comp_sim_docno`). A query without a
relevant document has 0.
"""

from collections.abc import Mapping, Sequence

import numpy as np
from jaxtyping import Float

CUT = 10


def dcg(gains: Sequence[float] | Float[np.ndarray, "K"], cut: int = CUT) -> float:
    """The discounted sum of the first gains.

    >>> round(dcg([3, 2, 3, 0, 1, 2], 6), 3)
    6.861
    """
    first = np.asarray(gains, np.float64)[:cut]
    return float((first / np.log2(np.arange(len(first)) + 2)).sum())


def ndcg(ranked: Sequence[str], relevance: Mapping[str, int], cut: int = CUT) -> float:
    """nDCG of one query, from 0 to 1.

    Args:
      ranked: ids of documents, the best first; at least `cut` of them, if there are.
      relevance: of the judged documents.

    >>> ndcg(["b", "a"], {"a": 1}).__round__(4), ndcg(["a"], {"a": 2, "c": 0})
    (0.6309, 1.0)
    """
    best = dcg(sorted((max(x, 0) for x in relevance.values()), reverse=True), cut)
    if not best:
        return 0.0
    return dcg([max(relevance.get(id_, 0), 0) for id_ in ranked[:cut]], cut) / best


def rank(
    scores: Float[np.ndarray, "D"], ids: Sequence[str], cut: int = CUT
) -> list[str]:
    """The ids of the best documents, the best first.

    Args:
      ids: sorted in descending order, so that of equal scores the larger id is first.

    >>> rank(np.array([0.5, 0.9, 0.5]), ["c", "b", "a"], 2)
    ['b', 'c']
    """
    values = np.asarray(scores, np.float32)
    num = min(cut, len(values))
    least = np.partition(values, len(values) - num)[len(values) - num]
    candidates = np.flatnonzero(values >= least)
    order = np.argsort(-values[candidates], kind="stable")[:num]
    return [ids[i] for i in candidates[order]]


def expected_ndcg(num: int, relevance: Mapping[str, int], cut: int = CUT) -> float:
    """The mean nDCG of one query over all orders of `num` documents.

    >>> round(expected_ndcg(2, {"a": 1}), 4)
    0.8155
    """
    gains = [max(x, 0) for x in relevance.values()]
    best = dcg(sorted(gains, reverse=True), cut)
    mean_gain = sum(gains) / num
    return dcg(np.full(min(cut, num), mean_gain), cut) / best if best else 0.0
