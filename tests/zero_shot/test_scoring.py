"""Scores of texts: every rule against a loop that reads one text at a time."""

import types

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from tiny import MODELS, VARIANTS, make_config, prepare, slow_but

from jaxpt.nn.networks.skip_gram import SkipGram
from jaxpt.objectives import OBJECTIVES
from jaxpt.ops import masks
from jaxpt.text_form import TextForm, mark_words
from jaxpt.zero_shot.score_rows import (
    BOUND_SAMPLES,
    RANDOM_RULES,
    ScoredText,
    plan_bound,
)
from jaxpt.zero_shot.scoring import TextScorer

NAMES = [name for name in (*OBJECTIVES, *VARIANTS) if name != "skip_gram"]
# The others are slow.
QUICK = ("clm", "mlm", "bart", "prefix_lm", "clm_mlm")
TEXTS = [[9, 8, 12, 10, 30, 11], [20, 30, 9]]
STARTS = [2, 0]
SMALL = {"num_chars": 6, "char_width": 4, "filters": (4, 8, 4)}  # of a biLM


def make_scorer(speech, case, **changes):
    """What scores by a tiny network whose parameters are random."""
    name, more = VARIANTS.get(case, (case, {}))
    of_model = {"is_seq2seq", "has_decoder"}  # the model's settings say it
    more = {k: v for k, v in more.items() if k not in of_model}
    changes |= {f"{name}__{field}": value for field, value in more.items()}
    if name == "bilm":
        changes |= {f"bilm__{field}": value for field, value in SMALL.items()}
    model = {f"model__{k}": v for k, v in MODELS.get(case, {}).items()}
    task, _, _ = prepare(make_config(speech, name, **model, **changes))
    params = jax.jit(task.model.init_params)(jax.random.key(0))
    rng = np.random.default_rng(0)
    params = jax.tree.map(lambda x: np.asarray(x) + rng.normal(0, 0.5, x.shape), params)
    params = jax.tree.map(lambda x: x.astype(np.float32), params)
    return TextScorer(task.model, params, task.text_form, name)


@pytest.fixture(scope="module", params=slow_but(QUICK, NAMES))
def made(request, speech):
    return make_scorer(speech, request.param)


def pick(logits, targets):
    """log p of a target at each position."""
    logits = jax.nn.log_softmax(jnp.asarray(logits, jnp.float32))
    return [float(row[target]) for row, target in zip(logits, targets, strict=True)]


class Loop:
    """The same numbers by other methods of the networks, one text at a time."""

    def __init__(self, scorer):
        self.form, self.model, self.params = scorer.form, scorer.network, scorer.params
        for name in ("fill_logits", "token_nll"):
            if hasattr(self.model, name):
                setattr(self, name, jax.jit(getattr(self.model, name)))
        for name in ("read_backward", "answer", "restore"):
            setattr(self, name, jax.jit(getattr(self, f"_{name}")))

    def _read_backward(self, params, tokens):
        seen = {"forward": masks.causal(), "backward": masks.anticausal(tokens.size)}

        def read(model):
            *_, back = model.read(tokens, seen, deterministic=True)
            return model.head(back[-1][:, 1:], None)

        return self.model.apply({"params": params}, method=read)

    def _answer(self, params, source, written):
        states = self.model.answer_states(params, source, written)
        return self.model.apply({"params": params}, states, method="logits")

    def _restore(self, params, tokens):
        def read(model):
            second = model.discriminator
            return second.logits(
                second.encode(tokens, masks.full(), deterministic=True)
            )

        return self.model.apply({"params": params}, method=read)

    def fill(self, text, start, before, by_word):
        words, result = self.form.words(np.array(text)), []
        for place in range(start, len(text)):
            visible = list(text)
            for i in range(place, len(text)):
                if i == place or (by_word and words[i] == words[place]):
                    visible[i] = self.form.gap[0]
            tokens = np.array([[*before, *visible, *self.form.after]])
            logits = self.fill_logits(self.params, tokens)[0, len(before) + place]
            result += pick(logits[None], [text[place]])
        return result

    def pll(self, text, start):
        return self.fill(text, start, self.form.opening, by_word=False)

    def pll_word_l2r(self, text, start):
        return self.fill(text, start, self.form.opening, by_word=True)

    def mntp(self, text, start):
        return self.fill(text, start, self.form.left, by_word=False)

    def mntp_word_l2r(self, text, start):
        return self.fill(text, start, self.form.left, by_word=True)

    def causal(self, text, start):
        """Of a text with nothing before it the first token has no score."""
        tokens = np.array([[*self.form.left, *text]])
        nll = np.asarray(self.token_nll(self.params, tokens)[0])
        if not self.form.left:
            nll = np.append(0, nll)
        return list(-nll[-len(text) :][start:])

    forward = causal

    def backward(self, text, start):
        assert self.form.right
        tokens = np.array([[*text, *self.form.right]])
        return pick(self.read_backward(self.params, tokens)[0], text)[start:]

    def both(self, text, start):
        ways = self.forward(text, start), self.backward(text, start)
        return np.add(*ways).tolist()

    def infill(self, text, start):
        form, result = self.form, []
        for place in range(start, len(text)):
            tokens = [*text[:place], *form.gap, *text[place + 1 :]]
            source = np.array([[*form.opening, *tokens, *form.after]])
            written = [form.start, *(text if form.rewrites else form.gap)]
            logits = self.answer(self.params, source, np.array([written]))[0]
            result += pick(logits[place if form.rewrites else -1][None], [text[place]])
        return result

    def suffix(self, text, start):
        form = self.form
        source = np.array([[*form.lead, *text[:start], *form.mark, *form.after]])
        left = text if form.rewrites else [*form.mark, *text[start:]]
        written = np.array([[form.start, *left[:-1]]])
        logits = self.answer(self.params, source, written)[0]
        return pick(logits[start - len(text) :], text[start:])

    def prefix(self, text, start):
        form = self.form
        source = [*form.lead, *text[:start], *form.mark]
        tokens = np.array([[*source, *form.mark, *text[start:-1]]])
        seen = np.tril(np.ones((tokens.size, tokens.size), bool))
        seen[:, : len(source)] = True

        def read(model):
            mask = jnp.array(seen)[None, None]
            return model.logits(model.encode(tokens, mask, deterministic=True)[0])

        logits = jax.jit(lambda p: self.model.apply({"params": p}, method=read))
        return pick(logits(self.params)[start - len(text) :], text[start:])

    def discriminator(self, text, start):
        form = self.form
        tokens = np.array([[*form.opening, *text, *form.after]])

        own, kept = slice(len(form.opening), len(form.opening) + len(text)), 0.0
        if "score" in self.model.answers:
            logits = jax.jit(self.model.replaced_logits)(self.params, tokens)[0, own]
            kept = np.asarray(jax.nn.sigmoid(-logits))
        if "logits" in self.model.answers:
            logits = self.restore(self.params, tokens)[0, own]
            kept = kept + (1 - kept) * np.exp(pick(logits, text))
        return np.log(kept)[start:].tolist()


@pytest.mark.slow_cases("bart", "clm_mlm")
def test_every_rule_is_its_loop(made):
    scorer, loop = made, Loop(made)
    texts = [np.array(text, np.int32) for text in TEXTS]
    result = scorer.score(texts, STARTS, scorer.rules)
    assert tuple(result) == scorer.rules
    for rule in scorer.rules:
        assert scorer.describe(rule).startswith(f"{rule}: ")
        if rule in RANDOM_RULES:
            continue
        for text, start, scores in zip(TEXTS, STARTS, result[rule], strict=True):
            assert scores.dtype == np.float32 and len(scores) == len(text) - start
            expected = getattr(loop, rule)(text, start)
            np.testing.assert_allclose(scores, expected, rtol=2e-4, atol=2e-4)


MASK = 4


class Table:
    """A network in NumPy: `read` gives log p of (tokens, position, target)."""

    SCORING = ("pll", "pll_word_l2r")
    spec = types.SimpleNamespace(vocab_size=50)

    def __init__(self, read, scoring=SCORING):
        self.read, self.SCORING = read, scoring

    def target_log_probs(self, params, batch, view):
        result = np.zeros(batch["positions"].shape)
        for i, is_text in enumerate(batch["segment_ids"] > 0):
            tokens = tuple(batch["inputs"][i][is_text].tolist())
            for j, position in enumerate(batch["positions"][i]):
                result[i, j] = self.read(tokens, position, batch["targets"][i, j])
        return result


def score_by(read, form, batch_tokens=0, scoring=Table.SCORING):
    def as_is(function):
        return function

    return TextScorer(Table(read, scoring), {}, form, "mlm", as_is, batch_tokens)


# Tokens 10, 11, 12 are one word, 13 another.
STARTS_WORD = np.isin(np.arange(50), (11, 12), invert=True)
ALONE = {0: -1.0, 1: -0.1, 2: -0.2, 3: -2.0}
BY_WORD = {0: -6.0, 1: -1.5, 2: -0.2, 3: -2.0}


def test_the_published_example_of_both_rules():
    """Kauf and Ivanova's point: the later subwords give the first ones away."""

    def read(tokens, position, target):
        hidden = [i - 1 for i, token in enumerate(tokens) if token == MASK]
        assert tokens[0] == 2 and tokens[-1] == 3 and hidden[0] == position - 1
        assert target == 10 + hidden[0]
        return (ALONE if len(hidden) == 1 else BY_WORD)[hidden[0]]

    form = TextForm((2,), (3,), gap=(MASK,), is_word_start=STARTS_WORD)
    text = np.array([10, 11, 12, 13])
    result = score_by(read, form).score([text], rules=("pll", "pll_word_l2r"))
    assert result["pll"][0].sum() == pytest.approx(-3.3)
    assert result["pll_word_l2r"][0].sum() == pytest.approx(-9.7)
    # One rule alone gives the same.
    for rule, scores in result.items():
        (alone,) = score_by(read, form).token_log_probs([text], rule=rule)
        assert alone.tolist() == scores[0].tolist()


@given(
    st.lists(st.lists(st.integers(5, 20), min_size=1, max_size=40), max_size=12),
    st.randoms(use_true_random=False),
    st.sampled_from((1, 60, 4096)),
)
def test_batches_and_padding_change_nothing(texts, random, batch_tokens):
    """Whatever shares a batch with a text, and however long its bucket is."""

    def read(tokens, position, target):
        return -float(hash((tokens, int(position), int(target))) % 1000)

    texts = [np.array(text) for text in texts + texts[:2]]
    starts = [random.randrange(len(text)) for text in texts]
    form = TextForm((2,), (3,), gap=(MASK,))
    scorer = score_by(read, form, batch_tokens)
    result = scorer.token_log_probs(texts, starts)
    assert len(result) == len(texts)
    for text, start, scores in zip(texts, starts, result, strict=True):
        expected = []
        for place in range(start, len(text)):
            masked = text.tolist()
            masked[place] = MASK
            expected.append(read((2, *masked, 3), place + 1, text[place]))
        assert scores.tolist() == expected


def test_alike_texts_are_read_once():
    texts_read = []

    def read(tokens, position, target):
        texts_read.append(tokens)
        return -1.0

    scorer = score_by(read, TextForm(gap=(MASK,)), batch_tokens=1)
    scorer.token_log_probs([np.array([7, 8])] * 5)
    assert sorted(texts_read) == [(MASK, 8), (7, MASK)]


def test_only_the_last_batch_of_a_shape_is_padded():
    num = []

    class Counted(Table):
        def target_log_probs(self, params, batch, view):
            num.append(len(batch["inputs"]))
            return super().target_log_probs(params, batch, view)

    form = TextForm(gap=(MASK,))
    network = Counted(lambda *args: -1.0)
    scorer = TextScorer(network, {}, form, "mlm", lambda f: f, batch_tokens=64)
    scorer.token_log_probs([np.array([i, *range(10, 17)]) for i in range(10, 15)])
    assert num == [8, 8, 8, 8, 8]  # five texts of 8 tokens, 8 rows a batch
    num.clear()
    scorer.token_log_probs([np.array([i, *range(11, 16)]) for i in range(10, 13)])
    assert num == [8, 8, 8]  # 18 rows, none more than the last batch is short of


def test_the_bound_is_the_mean_over_all_that_can_be_masked():
    """LLaDA's: l uniform in 1..n, any l of n tokens, each with the weight n / l."""

    def read(tokens, position, target):
        return -1.0 * target * sum(token == MASK for token in tokens) ** 2

    text, form = np.array([5, 7, 11]), TextForm(gap=(MASK,))
    by_size = [np.mean([5, 7, 11]) * 3 * l**2 for l in (1, 2, 3)]  # noqa: E741
    scorer = score_by(read, form, scoring=("bound",))
    drawn = [
        scorer.token_log_probs([text], seeds=[seed])[0].sum() for seed in range(300)
    ]
    assert -np.mean(drawn) == pytest.approx(np.mean(by_size), rel=0.02)
    assert len(set(drawn)) > 1
    # The same masks for texts of one length and seed; others for another seed.
    masked = [
        plan_bound(ScoredText(np.array(ids), 0, form, ("bound",), seed))[0].arrays[
            "inputs"
        ]
        == MASK
        for ids, seed in (([5, 7, 11], 3), ([8, 9, 6], 3), ([5, 7, 11], 4))
    ]
    assert masked[0].shape == (BOUND_SAMPLES, 3) and (masked[0] == masked[1]).all()
    assert (masked[0] != masked[2]).any()


def test_words_begin_where_the_vocabulary_and_punctuation_say():
    pieces = (b"dog", b"##s", b"-", b" a", b"bc", b".", "é".encode())
    starts = (True, False, False, True, False, False, False)
    result = mark_words(starts, pieces, 9)
    assert result.tolist() == [True, False, True, True, False, True, False, True, True]
    assert mark_words((), pieces, 9) is None
    assert TextForm(is_word_start=result).words(np.array([0, 1, 2, 4])).tolist() == [
        1,
        1,
        2,
        2,
    ]


def test_what_cannot_be_scored_is_refused(refuses):
    def read(tokens, position, target):
        return -1.0

    with refuses("a skip_gram run", "order"):
        TextScorer(SkipGram(None, parent=None), {}, TextForm(), "skip_gram")
    scorer = score_by(read, TextForm((2,), (3,), gap=(MASK,), max_len=8))
    assert scorer.room() == 6 and scorer.rules == ("pll", "pll_word_l2r")
    with refuses("rule=causal", "auto, pll, pll_word_l2r"):
        scorer.find_rule("causal")
    assert scorer.token_log_probs([np.full(6, 9)])[0].tolist() == [-1.0] * 6
    with refuses("a text of 7 tokens", "model.max_len=8"):
        scorer.token_log_probs([np.full(7, 9)])


def test_a_first_token_with_nothing_before_it_has_no_score():
    """And it reports this: pairs that differ there only are ties."""

    def read(tokens, position, target):
        return -1.0

    bare, framed = (
        score_by(read, TextForm(left=left), scoring=("causal",)) for left in ((), (6,))
    )
    text = np.array([7, 8, 9])
    assert bare.token_log_probs([text])[0].tolist() == [0.0, -1.0, -1.0]
    assert framed.token_log_probs([text])[0].tolist() == [-1.0, -1.0, -1.0]
    assert bare.token_log_probs([text], [1])[0].tolist() == [-1.0, -1.0]
    assert "first token is not scored" in bare.describe()
    assert "first token" not in framed.describe()
    assert (bare.room(), framed.room()) == (0, 0)
