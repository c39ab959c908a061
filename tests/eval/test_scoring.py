"""Scores of texts: every rule against a loop that reads one copy of one text at a time."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tiny import MODELS, VARIANTS, make_config

from jaxpt.config.plan import make_plan
from jaxpt.eval import score_rows
from jaxpt.eval.score_rows import TextForm, mark_words, plan_masked
from jaxpt.eval.scoring import TextScorer
from jaxpt.objectives import OBJECTIVES
from jaxpt.ops import masks
from jaxpt.run.data import with_token_counts
from jaxpt.run.scorer import find_form
from jaxpt.run.task import make_task
from jaxpt.text.dataset import load_text

NAMES = [name for name in (*OBJECTIVES, *VARIANTS) if name != "skip_gram"]
TEXTS = [[9, 8, 12, 10, 30, 11], [15, 9, 30], [20, 30], [9, 8, 12, 10, 30, 13, 14, 15]]
STARTS = [0, 1, 0, 5]


def make_scorer(speech, case, **changes):
    """A tiny network with random parameters, none of which is 0, and what scores by it."""
    name, more = VARIANTS.get(case, (case, {}))
    more = {k: v for k, v in more.items() if k != "is_seq2seq"}  # the model says it
    changes |= {f"{name}__{field}": value for field, value in more.items()}
    model = {f"model__{k}": v for k, v in MODELS.get(case, {}).items()}
    plan = make_plan(make_config(speech, name, **model, **changes))
    tokenizer, corpora = load_text(plan.text)
    vocab = with_token_counts(plan, tokenizer.vocab, corpora["train"])
    task = make_task(plan, vocab)
    keys = itertools.count(1)
    params = jax.jit(task.model.init_params)(jax.random.key(0))

    def shake(x):
        return x + 0.5 * jax.random.normal(jax.random.key(next(keys)), x.shape, x.dtype)

    params = jax.tree.map(shake, params)
    return TextScorer(task.model, params, find_form(task), name), task


@pytest.fixture(scope="module", params=NAMES)
def made(request, speech):
    return make_scorer(speech, request.param)


def pick(logits, target):
    return float(jax.nn.log_softmax(jnp.asarray(logits, jnp.float32))[target])


class Loop:
    """The same numbers by what networks have been asked for before, one by one."""

    def __init__(self, scorer, task):
        self.form, self.model, self.params = scorer.form, scorer.network, scorer.params
        self.task = task

    def fill(self, hidden, text, place, around=None):
        before, after = around or (self.form.before, self.form.after)
        shown = [self.form.gap[0] if i in hidden else t for i, t in enumerate(text)]
        tokens = jnp.array([[*before, *shown, *after]])
        logits = self.model.fill_logits(self.params, tokens)[0]
        return pick(logits[len(before) + place], text[place])

    def pll(self, text, place, start):
        return self.fill([place], text, place)

    def pll_word_l2r(self, text, place, start):
        words = self.form.words(np.array(text))
        hidden = [i for i in range(place, len(text)) if words[i] == words[place]]
        return self.fill(hidden, text, place)

    def mntp(self, text, place, start):
        return self.fill([place], text, place, (self.form.left, self.form.after))

    def mntp_word_l2r(self, text, place, start):
        words = self.form.words(np.array(text))
        hidden = [i for i in range(place, len(text)) if words[i] == words[place]]
        return self.fill(hidden, text, place, (self.form.left, self.form.after))

    def causal(self, text, place, start):
        tokens = jnp.array([[*self.form.left, *text[: place + 1]]])
        return -float(self.model.token_nll(self.params, tokens)[0, -1])

    forward = causal

    def backward(self, text, place, start):
        tokens = jnp.array([[*text[place:], *self.form.right]])

        def read(model):
            seen = {
                "forward": masks.full(),
                "backward": masks.anticausal(len(tokens[0])),
            }
            seen["forward"] = masks.causal()
            *_, back = model.read(tokens, seen, deterministic=True)
            return model.head(back[-1][0, 1], None)

        logits = self.model.apply({"params": self.params}, method=read)
        return pick(logits, text[place])

    def both(self, text, place, start):
        return self.forward(text, place, start) + self.backward(text, place, start)

    def answer(self, source, written, target):
        states = self.model.answer_states(
            self.params, jnp.array([source]), jnp.array([written])
        )[0, -1]
        logits = self.model.apply({"params": self.params}, states, method="logits")
        return pick(logits, target)

    def infill(self, text, place, start):
        form = self.form
        shown = [*text[:place], *form.gap, *text[place + 1 :]]
        left = text[:place] if form.rewrites else form.gap
        source = [*form.before, *shown, *form.after]
        return self.answer(source, [form.start, *left], text[place])

    def suffix(self, text, place, start):
        form = self.form
        source = [*form.lead, *text[:start], *form.mark, *form.tail]
        left = text[:place] if form.rewrites else [*form.mark, *text[start:place]]
        return self.answer(source, [form.start, *left], text[place])

    def prefix(self, text, place, start):
        form = self.form
        given = [*form.lead, *text[:start], *form.mark]
        tokens = jnp.array([[*given, *form.mark, *text[start:place]]])
        size = tokens.shape[1]
        seen = np.tril(np.ones((size, size), bool))
        seen[:, : len(given)] = True

        def read(model):
            states = model.encode(
                tokens, jnp.array(seen)[None, None], deterministic=True
            )
            return model.logits(states[0, -1])

        return pick(self.model.apply({"params": self.params}, method=read), text[place])

    def discriminator(self, text, place, start):
        tokens = jnp.array([[*self.form.before, *text, *self.form.after]])
        position = len(self.form.before) + place

        def restore(model):
            states = model.discriminator.encode(
                tokens, masks.full(), deterministic=True
            )
            return model.discriminator.logits(states)

        kept = 0.0
        if "score" in self.model.answers:
            logits = self.model.replaced_logits(self.params, tokens)
            kept = float(jax.nn.sigmoid(-logits[0, position]))
        if "logits" not in self.model.answers:
            return np.log(kept)
        logits = self.model.apply({"params": self.params}, method=restore)[0, position]
        return np.log(kept + (1 - kept) * np.exp(pick(logits, text[place])))


def test_every_rule_is_its_loop(made):
    scorer, task = made
    texts = [np.array(text, np.int32) for text in TEXTS]
    loop = Loop(scorer, task)
    found = scorer.score(texts, STARTS, scorer.rules)
    assert tuple(found) == scorer.rules
    for rule in scorer.rules:
        if rule in score_rows.DRAWN:
            continue
        first = 0 if scorer.is_first_scored(rule) else 1
        for text, start, scores in zip(TEXTS, STARTS, found[rule], strict=True):
            assert scores.dtype == np.float32 and len(scores) == len(text) - start
            wanted = [
                getattr(loop, rule)(text, place, start) if place >= first else 0.0
                for place in range(start, len(text))
            ]
            np.testing.assert_allclose(scores, wanted, rtol=2e-4, atol=2e-4)
    assert scorer.describe().startswith(f"{scorer.rules[0]}: ")
