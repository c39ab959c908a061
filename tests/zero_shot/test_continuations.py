"""Pairs of texts: where their ids are cut, and windows."""

import numpy as np
import pytest

from jaxpt.zero_shot.continuations import (
    Cut,
    SplitText,
    cut_pair,
    fit,
    make_score,
    pick_rule,
)


def encode(text):
    """An id a word, with the space before it, as subword tokenizers do."""
    words = text.replace(" ", "\0 ").strip("\0").split("\0")
    return np.array([len(word) for word in words if word.strip()], np.int32)


def test_white_space_at_a_border_is_the_continuations():
    for pair in (SplitText("the cat", " sat"), SplitText("the cat ", "sat")):
        cut = cut_pair(encode, pair)
        assert cut.ids.tolist() == [3, 4, 4] and cut[1:] == (2, 3)


def test_white_space_that_is_a_token_is_the_continuations():
    """Of a tokenizer of characters, too."""
    for pair in (SplitText("ab", " c"), SplitText("ab ", "c"), SplitText("ab \n", "c")):
        cut = cut_pair(lambda text: np.array(list(map(ord, text))), pair)
        assert cut.start == 2 and cut.stop == len(cut.ids)


def test_what_follows_stands_behind():
    cut = cut_pair(encode, SplitText("the", " cat", " sat down"))
    assert cut.ids.tolist() == [3, 4, 4, 5] and cut[1:] == (1, 2)


def test_nothing_before():
    assert cut_pair(encode, SplitText("", " cat"))[1:] == (0, 1)


def test_a_token_over_the_border_is_the_continuations():
    cut = cut_pair(encode, SplitText("the ca", "t"))
    assert cut.ids.tolist() == [3, 4] and cut[1:] == (1, 2)


def test_only_the_context_is_cut():
    ids = np.arange(6)
    cut = fit(Cut(ids, 3, 5), 4)
    assert cut.ids.tolist() == [2, 3, 4, 5] and cut[1:] == (1, 3)
    assert fit(Cut(ids, 3, 5), 3).start == 0
    assert fit(Cut(ids, 3, 5), 2) is None
    assert fit(Cut(ids, 3, 5), 0).ids is ids


class Scorer:
    """Scores a token by its id; even ones are the best."""

    def room(self, rule):
        return 4

    def score(self, texts, starts, rules, with_best):
        results = [-t[s:].astype(np.float32) for t, s in zip(texts, starts)]
        best = [t[s:] % 2 == 0 for t, s in zip(texts, starts)]
        return {rules[0]: results} | ({"best": best} if with_best else {})


@pytest.mark.parametrize("rule, total", [("causal", -10), ("pll", -4)])
def test_what_a_rule_sees_does_not_count(rule, total):
    score = make_score(Scorer(), encode, rule, with_best=True)
    pairs = [SplitText("a b c", " xyz", " uvwxy"), SplitText("a", " b" * 5)]
    answer, none = score(pairs)
    assert none is None
    assert answer.total == total and answer.is_cut
    assert answer.is_best.tolist() == [True]


def test_which_rule():
    assert pick_rule(("pll", "pll_word_l2r")) == "pll_word_l2r"
    assert pick_rule(("infill", "suffix")) == "suffix"
    assert pick_rule(("discriminator",)) == "discriminator"
