"""Baselines without a network, by hand and on text with and without signal."""

import numpy as np
import pytest

from jaxpt.evaluation import cloze, references
from jaxpt.judge.examples import means
from jaxpt.text.dataset import Split
from jaxpt.text.rows.corpus import Corpus
from jaxpt.text.tokens.vocab import Vocab


def test_unigrams_by_hand():
    vocab = Vocab(size=4, pad=0, mask=1)
    counts = np.array([0, 0, 2, 0])  # one is added to each: 1, 1, 3, 1 of 6
    tokens = np.array([[2, 2, 3, 2], [3, 2, 2, 2]], np.int32)
    sizes = np.array([[1, 1, 2, 1], [1, 1, 1, 1]])
    groups = np.array([4, 7])
    unigrams = references.measure_unigrams(counts, tokens, sizes, groups, vocab, [0, 1])
    bits = unigrams["bits_per_byte"]
    expected = [2 * np.log2(6 / 3) + np.log2(6), 3 * np.log2(6 / 3)]
    np.testing.assert_allclose(bits.totals, expected)
    assert bits.weights.tolist() == [4, 3] and bits.groups.tolist() == [4, 7]
    positions, is_asked = cloze.sample_positions(tokens, np.array([0, 1]))
    targets = np.take_along_axis(tokens, positions, 1)
    assert is_asked.all() and targets.shape == (2, 1)
    np.testing.assert_allclose(unigrams["cloze_accuracy"].totals, targets[:, 0] == 2)
    expected = np.where(targets[:, 0] == 2, np.log2(4 / 3), np.log2(4))
    np.testing.assert_allclose(unigrams["cloze_bits"].totals, expected)


def make_split(seed, kind, num=40):
    """Documents of two labels that differ in their tokens, in their order, or not."""
    draw, documents, labels = np.random.default_rng(seed), [], []
    for i in range(num):
        label = i % 2
        ids = draw.integers(0, 6, 24)
        if kind == "tokens":
            ids = ids % 3 + label
        if kind == "order":
            ids = np.tile([0, 1, 2] if label else [2, 1, 0], 8)
        documents.append(ids)
        labels.append(label)
    starts = np.cumsum([0, *map(len, documents)])
    arrays = np.concatenate(documents), starts, labels
    return Split((Corpus.from_arrays(*arrays, label_names=("a", "b")),), (1.0,))


@pytest.mark.parametrize(
    "kind, low, high", [("tokens", 0.9, 1), ("order", 1, 1), ("none", 0.2, 0.8)]
)
def test_ngrams_tell_labels_by_tokens_and_their_order(kind, low, high):
    corpora = {"train": make_split(0, kind), "valid": make_split(1, kind)}
    ngrams = references.measure_ngrams(corpora, 6, 2, 80)
    assert low <= means(ngrams)["probe_accuracy"] <= high
    assert len(np.unique(ngrams["probe_accuracy"].groups)) == 40


def test_equal_frequencies_share_the_credit_of_the_cloze():
    vocab = Vocab(size=4, pad=0, mask=1)
    tokens = np.array([[2, 2, 3, 2], [3, 3, 2, 2]], np.int32)
    args = np.ones((2, 4), int), np.array([0, 1]), vocab, [0, 1]
    unigrams = references.measure_unigrams(np.array([0, 0, 5, 5]), tokens, *args)
    assert unigrams["cloze_accuracy"].totals.tolist() == [0.5, 0.5]
