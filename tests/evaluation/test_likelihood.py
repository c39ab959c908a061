"""Held-out means, bits per byte and probes, on toys."""

import dataclasses
import math

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from jaxpt.errors import UserError
from jaxpt.evaluation import likelihood, probe, readings, references
from jaxpt.judge.examples import means
from jaxpt.text.dataset import Split, has_labels
from jaxpt.text.rows.corpus import Corpus
from jaxpt.text.tokens.symbols import CharTokenizer
from jaxpt.text.tokens.tokenizer import TokenizerSpec, make_tokenizer
from jaxpt.text.tokens.vocab import Vocab

TOKENS = np.arange(7 * 3, dtype=np.int32).reshape(7, 3)


@pytest.mark.parametrize("size, num", [(1, 7), (2, 8), (3, 9), (7, 7), (100, 100)])
def test_the_last_batch_is_filled_up_with_rows_that_do_not_count(size, num):
    rows = {"tokens": TOKENS, "segment_ids": TOKENS + 1}
    batches = list(likelihood.batches(rows, size))
    for batch in batches:
        assert {len(value) for value in batch.values()} == {size}  # one shape
        np.testing.assert_array_equal(batch["segment_ids"], batch["tokens"] + 1)
    result = {key: np.concatenate([b[key] for b in batches]) for key in batches[0]}
    assert result["row_weights"].dtype == np.float32
    assert result["row_weights"].tolist() == [1.0] * 7 + [0.0] * (num - 7)
    np.testing.assert_array_equal(result["tokens"][:7], TOKENS)
    assert result["index"].dtype == np.int32
    assert result["index"].tolist() == list(range(num))


def test_means_are_over_rows_not_over_batches():
    def eval_step(params, rows, rng):
        first, weights = rows["tokens"][:, 0], rows["row_weights"]
        return {
            "mean": (params * (first * weights).sum(), weights.sum()),
            "weighed": (first[0] * first[0], first[0]),
            "key": (float(jax.random.uniform(rng)), 1),
        }

    result = likelihood.evaluate(eval_step, 2.0, {"tokens": TOKENS}, 2)
    assert result["mean"] == 2 * np.mean([0, 3, 6, 9, 12, 15, 18])
    assert result["weighed"] == (0 + 36 + 144 + 324) / (0 + 6 + 12 + 18)
    again = likelihood.evaluate(eval_step, 2.0, {"tokens": TOKENS[::-1]}, 3)
    assert again["key"] == pytest.approx(result["key"])  # one key for every evaluation


@pytest.mark.parametrize("batch_size", [1, 2, 3, 7, 10])
def test_a_uniform_model_of_bytes_has_eight_bits_per_byte(batch_size):
    vocab = Vocab(size=256, token_bytes=(1,) * 256)

    def token_nll(params, tokens):
        """Uniform, but for the last row, of which a copy must not count."""
        last = (tokens == TOKENS[-1]).all(axis=1)[:, None]
        return jnp.full(tokens[:, 1:].shape, math.log(256)) * jnp.where(last, 8, 1)

    ones = np.ones_like(TOKENS)
    result = likelihood.measure_likelihood(
        token_nll, None, TOKENS, ones, batch_size, vocab
    )
    assert means(result) == {"bits_per_byte": pytest.approx(8 * (6 + 8) / 7)}
    # Each row separately.
    (examples,) = result.values()
    rates = examples.totals / examples.weights
    np.testing.assert_allclose(rates, [8] * 6 + [64], rtol=1e-6)
    assert examples.groups.tolist() == list(range(7))


def test_bits_are_those_of_the_predicted_text_over_its_bytes():
    vocab = Vocab(size=5, eos=2, unk=3, bos=4)
    tokens = np.array([[1, 0, 1, 2], [0, 4, 3, 0]], np.int32)
    num_bytes = np.array([[50, 1, 4, 0], [60, 0, 7, 0]])  # those of the first are given
    nll = np.array([[1.0, 2.0, 30.0], [40.0, 5.0, 6.0]])

    def measure(tokens, num_bytes):
        return means(
            likelihood.measure_likelihood(
                lambda p, t: nll, None, tokens, num_bytes, 2, vocab
            )
        )

    # [EOS] and [BOS] are not text; [UNK] is, and so is a token without bytes. The seven
    # bytes that [UNK] replaces are charged as raw bytes with one that ends them.
    expected = ((1 + 2 + 5 + 6) / math.log(2) + 8 * (7 + 1)) / (1 + 4 + 7)
    assert measure(tokens, num_bytes) == {"bits_per_byte": pytest.approx(expected)}
    assert measure(np.full_like(tokens, 2), 0 * num_bytes) == {}


UNKNOWN = "ไทยไทย ไทย ไทย"  # no character of it is in the vocabularies below


def make_tokenizers():
    with_unk = TokenizerSpec("wordpiece", vocab_size=60, specials=("unk", "bos"))
    return {
        "char": CharTokenizer("ab ", ("unk", "bos")),
        "char without [UNK]": CharTokenizer("ab ", ("bos",)),
        "wordpiece": make_tokenizer(with_unk, ["ab abab ba"] * 20),
        # WordPiece replaces every word of more than 100 characters.
        "long word": make_tokenizer(with_unk, ["ab abab ba"] * 20),
        "unigram": make_tokenizer(
            dataclasses.replace(with_unk, kind="unigram"), ["ab abab ba"] * 20
        ),
    }


@pytest.mark.parametrize(
    "name", ["char", "char without [UNK]", *("wordpiece", "long word", "unigram")]
)
def test_text_that_a_model_cannot_predict_is_charged_by_every_metric(name):
    tokenizer = make_tokenizers()[name]
    text = "ab" * 60 if name == "long word" else "ab " + UNKNOWN + " ab"
    vocab = tokenizer.vocab
    ids, sizes = tokenizer.encode_sized(text)
    tokens = np.concatenate([[vocab.bos], ids])[None].astype(np.int32)
    num_bytes = np.concatenate([[0], sizes])[None]
    lost = 120 if name == "long word" else len("ไทยไทยไทยไทย".encode())
    num = int(num_bytes.sum())

    def sure(params, tokens):  # a model that always predicts the right token
        return np.zeros(tokens[:, 1:].shape)

    args = None, tokens, num_bytes, 1, vocab
    exact = means(likelihood.measure_likelihood(sure, *args))["bits_per_byte"]
    bound = means(
        likelihood.measure_nll_bound(lambda p, r, key: sure(p, r["tokens"]), *args)
    )["bits_per_byte_bound"]
    frequencies = references.measure_unigrams(
        np.ones(vocab.size), tokens, num_bytes, np.zeros(1), vocab, []
    )["bits_per_byte"]
    assert exact == bound and exact * num >= 8 * lost
    assert exact * num <= 8 * (lost + len(text)) + 8 * len(ids) + 8
    unpredicted = len(ids) * math.log2(vocab.size)
    assert frequencies.totals.sum() == pytest.approx(exact * num + unpredicted)
    share = likelihood.unknown_share(tokens, num_bytes, vocab)
    assert lost / num <= share <= 1
    is_charged = vocab.unknown_bits(tokens, num_bytes)[:, 1:] > 0
    assert share == pytest.approx(num_bytes[:, 1:][is_charged].sum() / num)
    known = dataclasses.replace(vocab, unk=None, pieces=())
    assert likelihood.unknown_share(tokens, num_bytes, known) == 0
    # Known text has no charge.
    ids, sizes = tokenizer.encode_sized("ab abab ba")
    assert not vocab.unknown_bits(ids, sizes).any()


def make_corpus(documents, labels, names=("a", "b"), num_parts=1):
    """A split of documents, in several parts where asked."""
    parts = []
    for i in range(num_parts):
        part = documents[i::num_parts]
        starts = np.cumsum([0, *map(len, part)])
        parts.append(
            Corpus.from_arrays(
                np.concatenate(part), starts, labels[i::num_parts], label_names=names
            )
        )
    return Split(tuple(parts), (1 / num_parts,) * num_parts)


def read(params, tokens):
    """One layer, whose states are a table's rows."""
    return readings.pool_states(jnp.asarray(params)[tokens][None])


def measure(*args):
    """What was found of each measure; not how it was chosen."""
    return probe.measure_probe(*args)[0]


def two_labels(seed, num=20, num_parts=1):
    """Documents of label a hold even ids more often, those of label b odd ones."""
    draw = np.random.default_rng(seed)
    documents, labels = [], []
    for i in range(num):
        odd = draw.random(12) < (0.9 if i % 2 else 0.1)
        documents.append(2 * draw.integers(0, 5, 12) + odd)
        labels.append(i % 2)
    return make_corpus(documents, labels, num_parts=num_parts)


@pytest.mark.slow_cases("1")
@pytest.mark.parametrize("num_parts", [1, 3])
def test_a_probe_reads_what_is_there_and_no_more(num_parts):
    corpora = {
        "train": two_labels(0, 60, num_parts),
        "valid": two_labels(1, 40, num_parts),
    }
    tables = {
        "parity": np.array([[i % 2, i / 10] for i in range(10)]),
        "nothing": np.ones((10, 2)),
        # What is small is read off as well as what is large.
        "small": np.array([[1e-4 * (i % 2), i] for i in range(10)]),
    }
    result = {
        name: means(measure(read, table, corpora, 6, 2, 1000, 16))
        for name, table in tables.items()
    }
    assert result["parity"]["probe_accuracy"] > 0.95
    assert result["small"]["probe_accuracy"] > 0.95
    assert result["nothing"] == {"probe_accuracy": 0.5, "probe_majority": 0.5}


def test_the_majority_is_that_of_the_training_labels():
    def corpus(labels):
        return make_corpus([np.arange(6)] * len(labels), labels)

    corpora = {"train": corpus([1, 1, 1, 0]), "valid": corpus([0, 0, 0, 1])}
    result = measure(read, np.ones((6, 2)), corpora, 3, 2, 100, 4)
    assert means(result) == {"probe_accuracy": 0.25, "probe_majority": 0.25}
    assert result["probe_accuracy"].groups.tolist() == [0, 1, 2, 3]


@pytest.mark.parametrize("num_windows", [1, 2])
@pytest.mark.parametrize("batch_size", [1, 3, 4, 30])
def test_pooling_is_the_mean_over_places_for_any_batch_size(batch_size, num_windows):
    tokens = np.arange(7 * 6, dtype=np.int32).reshape(7, 6)
    length, seen = 6 // num_windows, set()

    def features(params, tokens):
        seen.add(tokens.shape)
        squares = jnp.stack([tokens, tokens**2], -1)
        return readings.pool_states(jnp.stack([squares, -squares]))

    result = probe.pool(features, None, tokens, length, batch_size)
    windows = tokens.reshape(7, num_windows, length).astype(np.float64)
    squares = np.stack([windows, windows**2], -1)
    pooled = squares.mean(2), squares[:, :, 0], squares[:, :, -1]
    expected = np.stack(pooled, 2).mean(1)  # of windows, their mean
    np.testing.assert_allclose(result, np.stack([expected, -expected], 1), rtol=1e-5)
    one = probe.pool(features, None, tokens, length, batch_size, (1, 2))
    np.testing.assert_array_equal(one, result[:, 1, 2])
    assert seen == {(batch_size, length)}  # one shape, hence one compilation


def test_a_probe_needs_two_labels_that_both_splits_know():
    def corpora(train, valid):
        splits = {"train": train, "valid": valid}
        return {
            split: make_corpus([np.arange(3)] * len(labels), labels)
            for split, labels in splits.items()
        }

    assert has_labels(corpora([0, 1], [1, 0, -1]))
    assert not has_labels(corpora([0, 0], [0, 0]))
    assert not has_labels(corpora([0, 1], [1, 1]))
    assert not has_labels(corpora([-1, 0], [-1, 0]))


def test_a_label_without_a_passage_is_told_in_one_line():
    documents = [np.arange(9), np.arange(9), np.arange(2)]
    corpus = make_corpus(documents, [0, 0, 1])  # b's only document gives no passage
    corpora = {"train": corpus, "valid": corpus}
    with pytest.raises(UserError, match="eval.probe_length=3, eval.probe_windows=2: "):
        probe.measure_probe(read, np.ones((9, 2)), corpora, 3, 2, 100, 4)


def test_passages_come_from_each_part_by_its_share():
    """Three quarters of eight from the first part, whose ids are below ten."""
    parts = []
    for first in (0, 10):
        documents = [first + np.arange(6) % 10 for _ in range(12)]
        parts.append(make_corpus(documents, [i // 6 for i in range(12)]).parts[0])
    split, seen = Split(tuple(parts), (0.75, 0.25)), []

    def features(params, tokens):
        seen.extend(tokens[:, 0].tolist())
        return jnp.ones((len(tokens), 1, 3, 2))

    probe.measure_probe(features, None, {"train": split, "valid": split}, 6, 1, 8, 1)
    assert [sum(first < 10 for first in seen), len(seen)] == [12, 16]  # both splits


def test_a_weak_trait_is_read_where_one_label_is_commoner():
    """With a penalty far larger than ours the answer would be the commoner label."""
    table = np.array([[i % 2, 0.0] for i in range(10)])

    def corpus(seed, num):
        draw, documents = np.random.default_rng(seed), []
        labels = [int(i % 4 == 0) for i in range(num)]
        for label in labels:
            documents.append(2 * draw.integers(0, 5, 12) + label)
        return make_corpus(documents, labels)

    corpora = {"train": corpus(0, 40), "valid": corpus(1, 40)}
    result = measure(read, table, corpora, 6, 2, 100, 4)
    assert means(result) == {"probe_accuracy": 1.0, "probe_majority": 0.75}
