"""Windows: every token once, by hand, and what sums are divided by."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from jaxpt.text.tokens.vocab import Vocab
from jaxpt.zero_shot.sliding_window import (
    Counts,
    count_text,
    cut_windows,
    find_rates,
    pick_rule,
    read_texts,
    unigram_nats,
)


@given(st.integers(0, 60), st.integers(2, 12), st.integers(1, 12), st.booleans())
def test_every_token_is_scored_once(num, window, stride, has_start):
    stride = min(stride, window if has_start else window - 1)
    result = cut_windows(num, window, stride, has_start)
    scored = [i for w in result for i in range(w.scored, w.end)]
    assert scored == list(range(0 if has_start else 1, num))
    for number, part in enumerate(result):
        assert part.begin == number * stride and part.end - part.begin <= window
        assert has_start or part.scored > part.begin
        if number:
            assert part.scored - part.begin == window - stride  # of context


@pytest.mark.parametrize("stride", [0, 7])
def test_a_stride_beyond_the_window(stride, refuses):
    with refuses(f"stride={stride}", "6"):
        cut_windows(20, 6, stride)
    with refuses("stride=6", "at most 5"):
        cut_windows(20, 6, 6, has_start=False)


def test_rates_by_hand():
    nats = 12 * math.log(2)
    assert find_rates(nats, Counts(6, 4, 2, 24)) == {
        "perplexity_per_token": pytest.approx(4),
        "perplexity_per_word": pytest.approx(8),
        "perplexity_per_word_and_line": pytest.approx(4),
        "bits_per_byte": pytest.approx(0.5),
    }
    assert math.isnan(find_rates(1.0, Counts(1, 0, 0, 3))["perplexity_per_word"])


def test_counts_are_of_the_text_as_given():
    # WikiText: six words and two line ends, its eight tokens.
    assert count_text("= A =\na <unk> .\n", 9) == Counts(9, 6, 2, 16)


class Scorer:
    """Scores a token by its place in its window: -0.1 for each token before it."""

    def __init__(self, has_start=True):
        self.has_start, self.seen = has_start, []

    def is_first_scored(self, rule):
        return self.has_start

    def score(self, texts, starts, rules):
        self.seen += [(text.tolist(), start) for text, start in zip(texts, starts)]
        results = [-0.1 * np.arange(s, len(t)) for t, s in zip(texts, starts)]
        return {rules[0]: results}


def encode(text):
    """A token a character; the last one, a line end, has no token."""
    text = text.removesuffix("\n")
    return np.array([ord(c) for c in text]), np.array([len(c.encode()) for c in text])


def test_texts_in_windows_by_hand():
    scorer = Scorer()
    texts = read_texts(["abcdef\n", "é"], encode, scorer, "causal", 4, 2)
    a, b, c, d, e, f = map(ord, "abcdef")
    assert scorer.seen == [([a, b, c, d], 0), ([c, d, e, f], 2), ([ord("é")], 0)]
    assert texts.nats == pytest.approx([0.6, 0.5, 0])
    assert texts.sizes.tolist() == [4, 3, 2]  # the line end counts to the last one
    assert texts.counts == Counts(7, 2, 1, 9)
    assert texts.num_unscored == 0
    figures = texts.find_figures()
    value, interval = figures["bits_per_byte"]
    assert value == pytest.approx(1.1 / math.log(2) / 9)
    assert interval.low <= value <= interval.high
    value, interval = figures["perplexity_per_word"]
    assert value == pytest.approx(math.exp(0.55))
    assert interval.low <= value <= interval.high


def test_the_text_of_unknown_tokens_is_charged_as_raw_bytes():
    vocab = Vocab(size=300, unk=ord("c"))
    args = ["abcdef\n", "é"], encode, Scorer(), "causal", 4, 2
    plain, charged = read_texts(*args), read_texts(*args, vocab.unknown_bits)
    more = 8 * 2 * math.log(2)  # the byte of "c", and the one that ends it
    assert charged.nats == pytest.approx(plain.nats + [more, 0, 0])
    assert charged.counts == plain.counts


def test_what_is_not_scored_is_not_counted():
    texts = read_texts(["éb c\n"], encode, Scorer(False), "causal", 4, 3)
    assert texts.counts == Counts(3, 2, 1, 4) and texts.num_unscored == 1
    assert texts.sizes.tolist() == [4]


def test_nothing_to_score(refuses):
    with refuses("no token"):
        read_texts(["", "a"], encode, Scorer(False), "causal", 4, 3)


def test_rules_without_a_perplexity(refuses):
    assert pick_rule(("infill", "suffix")) == "suffix"
    with refuses("discriminator", "perplexity"):
        pick_rule(("discriminator",))


def test_unigrams():
    texts = [np.array([1, 1, 2]), np.array([1])]
    want = -(3 * math.log(0.75) + math.log(0.25))
    assert unigram_nats(texts) == pytest.approx(want)
