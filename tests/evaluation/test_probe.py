"""The layer and pooling of a probe: correct, and chosen without the test set."""

import numpy as np
import pytest

from jaxpt.evaluation import probe
from jaxpt.evaluation.readings import POOLINGS
from jaxpt.judge.examples import means
from jaxpt.text.dataset import Split
from jaxpt.text.rows.corpus import Corpus

NUM_LAYERS, LENGTH = 3, 4


def make_split(seed, num, labels=None):
    """Documents of three passages, each the number of its row and its label."""
    draw = np.random.default_rng(seed)
    labels = np.arange(num) % 2 if labels is None else labels
    documents = []
    for label in labels:
        ids = draw.integers(0, 1000, (3, LENGTH))
        ids[:, 0] = label  # where `plant` finds it
        documents.append(ids.reshape(-1))
    starts = np.cumsum([0, *map(len, documents)])
    tokens = np.concatenate(documents).astype(np.int32)
    corpus = Corpus.from_arrays(tokens, starts, labels, label_names=("a", "b"))
    return Split((corpus,), (1.0,))


def plant(layer, pooling):
    """States of noise; in one layer and pooling they encode the label."""

    def read(params, tokens):
        seeds = tokens.astype(np.int64) @ [0, 1, 1009, 1013]
        shape = NUM_LAYERS + 1, len(POOLINGS), 4
        states = [np.random.default_rng(int(s)).normal(size=shape) for s in seeds]
        states = np.stack(states)
        states[:, layer, POOLINGS.index(pooling), 2] += 4 * tokens[:, 0]
        return states

    return read


def measure(read, corpora, num=1000):
    return probe.measure_probe(read, None, corpora, LENGTH, 1, num, 64)


@pytest.fixture(scope="module")
def corpora():
    return {"train": make_split(0, 40), "valid": make_split(1, 30)}


@pytest.mark.parametrize(
    "layer, pooling", [(0, "first"), (1, "mean"), (2, "last"), (3, "mean")]
)
def test_what_one_layer_alone_tells_is_found_there(layer, pooling, corpora):
    result, record = measure(plant(layer, pooling), corpora)
    assert (record["layer"], record["pooling"]) == (layer, pooling)
    assert record["num_layers"] == NUM_LAYERS and record["is_chosen"]
    assert record["strength"] in probe.STRENGTHS
    assert record["train_passages"] == 120 and record["test_passages"] == 90
    assert len(np.unique(result["probe_accuracy"].groups)) == 30
    assert means(result)["probe_accuracy"] > 0.9
    # Only this layer and pooling is above chance.
    table = np.array(record["accuracies"])
    place = layer, POOLINGS.index(pooling)
    assert table.shape == (NUM_LAYERS + 1, 3) and table[place] > 0.9
    table[place] = 0.5
    assert table.max() < 0.85


def test_the_choice_never_sees_what_is_reported(corpora):
    """Neither other test labels nor other test passages change it."""
    read = plant(1, "last")
    result, record = measure(read, corpora)
    # The same passages with the other label.
    (part,) = corpora["valid"].parts
    labels = 1 - np.asarray(part.labels)
    starts = np.asarray(part.doc_starts)
    tokens = part.read(0, part.num_tokens)
    swapped = Corpus.from_arrays(tokens, starts, labels, label_names=("a", "b"))
    wrong = corpora | {"valid": Split((swapped,), (1.0,))}
    of_wrong, same = measure(read, wrong)
    assert same == record
    assert means(of_wrong)["probe_accuracy"] == pytest.approx(
        1 - means(result)["probe_accuracy"]
    )
    _, other = measure(read, corpora | {"valid": make_split(9, 30)})
    assert other == record


def test_no_document_both_fits_and_chooses():
    draw = np.random.default_rng(3)
    documents = np.repeat(np.arange(50), 1 + draw.integers(0, 9, 50))
    labels = documents % 3
    fit, rest = probe.part_documents(labels, documents)
    assert not set(documents[fit]) & set(documents[rest])
    assert sorted([*fit, *rest]) == list(range(len(labels)))
    assert 0.15 < len(rest) / len(labels) < 0.35
    shares = [np.bincount(labels[part]) / len(part) for part in (fit, rest)]
    np.testing.assert_allclose(*shares, atol=0.1)
    again = probe.part_documents(labels, documents)
    np.testing.assert_array_equal(again[1], rest)


@pytest.mark.parametrize(
    "labels, documents",
    [
        ([0, 0, 1, 1], [0, 0, 1, 1]),  # without b's only document none is fitted
        ([0, 1], [0, 1]),
        ([0, 1, 0, 1], [0, 0, 0, 0]),
    ],
)
def test_where_documents_cannot_be_parted_the_last_layers_mean_is_read(
    labels, documents
):
    labels, documents = np.array(labels), np.array(documents)
    assert probe.part_documents(labels, documents) is None
    vectors = np.random.default_rng(0).normal(size=(len(labels), 3, 3, 2))
    choice = probe.choose(vectors, labels, documents)
    assert choice == (2, 0, 0.1, None)


def test_a_text_of_few_documents_says_that_nothing_was_chosen():
    corpora = {"train": make_split(0, 2), "valid": make_split(1, 4)}
    result, record = measure(plant(3, "mean"), corpora)
    assert not record["is_chosen"] and record["accuracies"] is None
    assert (record["layer"], record["pooling"]) == (NUM_LAYERS, "mean")
    assert len(result["probe_accuracy"].totals) == record["test_passages"] == 12


def test_of_equal_layers_the_one_furthest_up_is_read(corpora):
    def read(params, tokens):
        output = np.broadcast_to(tokens[:, :1, None, None], (len(tokens), 4, 3, 2))
        return output.astype(np.float32)

    _, record = measure(read, corpora)
    assert (record["layer"], record["pooling"]) == (NUM_LAYERS, "mean")
    assert record["strength"] == probe.STRENGTHS[0]


def test_the_strength_of_the_fit_is_chosen_with_the_layer():
    """Many columns of noise and few passages: the strongest penalty is the best."""
    draw = np.random.default_rng(2)
    documents, labels = np.arange(160), np.arange(160) % 2
    vectors = draw.normal(size=(160, 1, 3, 30))
    vectors[:, 0, 0] += 0.15 * (2 * labels[:, None] - 1) * draw.normal(size=30)
    choice = probe.choose(vectors, labels, documents)
    assert (choice.layer, choice.pooling) == (0, 0)
    fit, rest = probe.part_documents(labels, documents)
    own, reached = vectors[:, 0, 0], {}
    for strength in probe.STRENGTHS:
        model = probe.fit_linear(own[fit], labels[fit], strength)
        reached[strength] = np.mean(model.predict(own[rest]) == labels[rest])
    assert reached[0.01] > max(reached[0.1], reached[1.0])
    assert choice.strength == 0.01
    assert choice.accuracies[0, 0] == reached[0.1]


def test_the_error_of_a_share_is_the_binomials():
    hits = np.random.default_rng(0).random((4000, 400)) < 0.3
    spread = hits.mean(1).std()
    assert probe.binomial_error(0.3, 400) == pytest.approx(spread, rel=0.05)
    assert probe.binomial_error(0.5, 2500) == 0.01
