"""Scores of texts: every rule against a loop that reads one text at a time."""

import itertools

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny import MODELS, VARIANTS, make_config, slow_but

from jaxpt.config.plan import make_plan
from jaxpt.eval.score_rows import DRAWN
from jaxpt.eval.scoring import TextScorer
from jaxpt.objectives import OBJECTIVES
from jaxpt.ops import masks
from jaxpt.run.data import with_token_counts
from jaxpt.run.scorer import find_form
from jaxpt.run.task import make_task
from jaxpt.text.dataset import load_text

NAMES = [name for name in (*OBJECTIVES, *VARIANTS) if name != "skip_gram"]
# One case of each way of reading; the others are slow.
QUICK = ("clm", "mlm", "span_corruption", "bart", "electra", "all_tokens_mlm", "bilm")
QUICK += ("prefix_lm", "clm_mlm", "masked_diffusion", "ul2/seq2seq")
TEXTS = [[9, 8, 12, 10, 30, 11], [15, 9, 30], [20, 30, 9, 11, 13, 10]]
STARTS = [0, 0, 2]


def make_scorer(speech, case, **changes):
    """What scores by a tiny network whose parameters are random."""
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
    return TextScorer(task.model, params, find_form(task), name)


@pytest.fixture(scope="module", params=slow_but(QUICK, NAMES))
def made(request, speech):
    return make_scorer(speech, request.param)


def pick(logits, targets):
    """log p of a target at each position."""
    logits = jax.nn.log_softmax(jnp.asarray(logits, jnp.float32))
    return [float(row[target]) for row, target in zip(logits, targets, strict=True)]


class Loop:
    """The same numbers by what networks could be asked before, one text at a time."""

    def __init__(self, scorer):
        self.form, self.model, self.params = scorer.form, scorer.network, scorer.params
        self.fill_logits = jax.jit(self.model.fill_logits)
        self.token_nll = jax.jit(self.model.token_nll)

    def fill(self, text, start, before, by_word):
        words, found = self.form.words(np.array(text)), []
        for place in range(start, len(text)):
            shown = list(text)
            for i in range(place, len(text)):
                if i == place or (by_word and words[i] == words[place]):
                    shown[i] = self.form.gap[0]
            tokens = np.array([[*before, *shown, *self.form.after]])
            logits = self.fill_logits(self.params, tokens)[0, len(before) + place]
            found += pick(logits[None], [text[place]])
        return found

    def pll(self, text, start):
        return self.fill(text, start, self.form.before, by_word=False)

    def pll_word_l2r(self, text, start):
        return self.fill(text, start, self.form.before, by_word=True)

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

        def read(model):
            seen = {
                "forward": masks.causal(),
                "backward": masks.anticausal(tokens.size),
            }
            *_, back = model.read(tokens, seen, deterministic=True)
            return model.head(back[-1][0, 1:], None)

        logits = jax.jit(lambda p: self.model.apply({"params": p}, method=read))
        return pick(logits(self.params), text)[start:]

    def both(self, text, start):
        ways = self.forward(text, start), self.backward(text, start)
        return np.add(*ways).tolist()

    def answer(self, source, written):
        """Logits of the decoder at each place of what it has written."""

        def read(params):
            found = np.array([source]), np.array([written])
            states = self.model.answer_states(params, *found)[0]
            return self.model.apply({"params": params}, states, method="logits")

        return jax.jit(read)(self.params)

    def infill(self, text, start):
        form, found = self.form, []
        for place in range(start, len(text)):
            shown = [*text[:place], *form.gap, *text[place + 1 :]]
            left = text[:place] if form.rewrites else form.gap
            source = [*form.before, *shown, *form.after]
            logits = self.answer(source, [form.start, *left])
            found += pick(logits[-1:], [text[place]])
        return found

    def suffix(self, text, start):
        form = self.form
        source = [*form.lead, *text[:start], *form.mark, *form.tail]
        left = text if form.rewrites else [*form.mark, *text[start:]]
        logits = self.answer(source, [form.start, *left[:-1]])
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
        tokens = np.array([[*form.before, *text, *form.after]])

        def restore(model):
            states = model.discriminator.encode(
                tokens, masks.full(), deterministic=True
            )
            return model.discriminator.logits(states)

        own, kept = slice(len(form.before), len(form.before) + len(text)), 0.0
        if "score" in self.model.answers:
            logits = self.model.replaced_logits(self.params, tokens)[0, own]
            kept = np.asarray(jax.nn.sigmoid(-logits))
        if "logits" in self.model.answers:
            logits = self.model.apply({"params": self.params}, method=restore)[0, own]
            kept = kept + (1 - kept) * np.exp(pick(logits, text))
        return np.log(kept)[start:].tolist()


def test_every_rule_is_its_loop(made):
    scorer, loop = made, Loop(made)
    texts = [np.array(text, np.int32) for text in TEXTS]
    found = scorer.score(texts, STARTS, scorer.rules)
    assert tuple(found) == scorer.rules
    for rule in scorer.rules:
        assert scorer.describe(rule).startswith(f"{rule}: ")
        if rule in DRAWN:
            continue
        for text, start, scores in zip(TEXTS, STARTS, found[rule], strict=True):
            assert scores.dtype == np.float32 and len(scores) == len(text) - start
            wanted = getattr(loop, rule)(text, start)
            np.testing.assert_allclose(scores, wanted, rtol=2e-4, atol=2e-4)
