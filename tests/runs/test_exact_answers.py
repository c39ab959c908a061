"""Each kind of network's answers about a language: a stand-in that knows the truth.

The stand-ins hold the exact conditionals of a hidden Markov model in the place of
hidden states. All else is the network's own: what it is shown for each question, where
it is read, Bayes' rule, the end of a gap, ELECTRA's inversion. So regret is 0 if this
adds nothing.
"""

import dataclasses

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny import VARIANTS, make_config, prepare

from jaxpt.evaluation.exact_questions import BOTH, LEFT, METRICS
from jaxpt.evaluation.regret import (
    exact_regret,
    find_questions,
)
from jaxpt.languages.hmm import Hmm
from jaxpt.languages.language import Language
from jaxpt.ops.masks import materialise
from jaxpt.runs.exact_answers import BAYES, list_answers, read_answers
from jaxpt.runs.readers import Readers
from jaxpt.runs.run_framing import find_form

TINY = Hmm([[0.9, 0.1], [0.2, 0.8]], [[0.7, 0.2, 0.1], [0.1, 0.3, 0.6]])
LENGTH, SPECIAL_MASS = 7, 0.1
DIRECT = METRICS[LEFT], METRICS[BOTH]


class Unigram(Language):
    """Answers every question with the frequencies of the symbols."""

    num_symbols = 3

    def given_visible(self, rows, visible):
        return TINY.given_visible(rows, np.zeros(rows.shape, bool))


@dataclasses.dataclass(frozen=True)
class Knowledge:
    """What a stand-in knows, and how ids are its symbols."""

    language: Language
    ids: tuple[int, ...]
    gaps: frozenset  # masks and sentinels
    size: int

    def tell(self, symbols, visible, place):
        """log p [V] of the symbol at a place of a text, given the visible ones."""
        visible = np.array(visible)
        visible[place] = False
        rows = np.array(symbols)[None]
        p = self.language.given_visible(rows, visible[None])[0, place]
        return self.spread(p)

    def spread(self, p):
        """log p of all ids: a share of the mass is on a special one."""
        whole = np.full(self.size, 1e-30)
        whole[list(self.ids)] += (1 - SPECIAL_MASS) * p
        whole[0] = SPECIAL_MASS
        return np.log(whole)

    def read(self, ids, mask, offset):
        """log p [T, V] of the token `offset` after each position of a row.

        Args:
          mask: bool [T, T], what each position attends to.
        """
        places = [i for i, x in enumerate(ids) if x in self.ids or x in self.gaps]
        result = np.zeros((len(ids), self.size))
        symbols = [self.ids.index(ids[i]) if ids[i] in self.ids else 0 for i in places]
        known = np.array([ids[i] in self.ids for i in places])
        # The language has one length of documents; what is not written is hidden.
        rest = LENGTH - len(symbols) if offset else 0
        for i in range(len(ids)):
            at = sum(place <= i for place in places) - 1 + offset
            if at < LENGTH and (offset or i in places):
                visible = np.append(known & mask[i, places], np.zeros(rest, bool))
                result[i] = self.tell(symbols + [0] * rest, visible, at)
        return result


def call(function, shape, *arrays):
    """A NumPy function in a compiled one."""
    shape = jax.ShapeDtypeStruct(shape, jnp.float32)
    return jax.pure_callback(
        lambda *xs: np.asarray(function(*map(np.asarray, xs)), np.float32),
        shape,
        *arrays,
        vmap_method="sequential",
    )


def pick(log_p, targets):
    return -jnp.take_along_axis(log_p, targets[..., None], -1)[..., 0]


def make_stand_in(model, knowledge):
    """The network with the truth in the place of its hidden states."""
    offset = 0 if model.HEADS in (("masked",), ("pretraining",)) else 1

    def read_rows(ids, mask):
        rows = zip(ids.tolist(), mask, strict=True)
        return np.stack([knowledge.read(x, m, offset) for x, m in rows])

    class Exact(type(model)):
        def encode(self, ids, attn_mask, *args, deterministic):
            if model.HAS_DECODER:  # the decoder reads the ids
                return ids[..., None].astype(jnp.float32)
            size = ids.shape[1]
            mask = materialise(attn_mask, size, size)
            mask = jnp.broadcast_to(mask, (len(ids), 1, size, size))[:, 0]
            return call(read_rows, (*ids.shape, knowledge.size), ids, mask)

        def decode(self, ids, attn_mask, source, *args, deterministic):
            function = write_rewritten if self.rewrites else write_gaps
            shape = *ids.shape, knowledge.size
            source = source[..., 0].astype(int)
            return call(lambda x, y: function(knowledge, x, y), shape, source, ids)

        def logits(self, hidden):
            return hidden

        def nll(self, hidden, targets):
            return pick(hidden, targets)

        rewrites: bool = False

    fields = {
        f.name: getattr(model, f.name)
        for f in dataclasses.fields(model)
        if f.init and f.name not in ("parent", "name")
    }
    return Exact(**fields, parent=None)


def write_gaps(knowledge, sources, written):
    """T5: after the sentinel the missing token, then the end, or the continuation."""
    results = []
    for source, ids in zip(sources.tolist(), written.tolist(), strict=True):
        # The form's [EOS], and padding, which has id 0, end the input.
        text = [x for x in source if x in knowledge.ids or x in knowledge.gaps]
        full = np.ones((len(text), len(text)), bool)
        at = next(i for i, x in enumerate(text) if x in knowledge.gaps)
        if at == len(text) - 1 and len(text) < LENGTH:  # what follows is not known
            text = text + [min(knowledge.gaps)] * (LENGTH - len(text))
            full = np.ones((LENGTH, LENGTH), bool)
        own = knowledge.read(text, full, 0)[at]
        result = np.full((len(ids), knowledge.size), np.log(1 / knowledge.size))
        for i, x in enumerate(ids):
            if x in knowledge.gaps:
                result[i] = own
        results.append(result)
    return np.stack(results)


def write_rewritten(knowledge, sources, written):
    """BART: the whole text again, of which the decoder reads what it has written."""
    results = []
    for source, ids in zip(sources.tolist(), written.tolist(), strict=True):
        text = [x for x in source if x in knowledge.ids or x in knowledge.gaps]
        is_open = text[-1] in knowledge.gaps and len(text) < LENGTH
        text = text + [min(knowledge.gaps)] * (LENGTH - len(text))
        result = np.zeros((len(ids), knowledge.size))
        for i in range(min(len(ids), LENGTH)):
            known = list(text)
            for j, x in enumerate(ids[1 : i + 1]):
                known[j] = x if x in knowledge.ids else known[j]
            if text[i] in knowledge.ids and not is_open:  # it copies its input
                result[i] = knowledge.spread(np.eye(3)[knowledge.ids.index(text[i])])
            else:
                mask = np.ones((LENGTH, LENGTH), bool)
                known[i] = min(knowledge.gaps)
                result[i] = knowledge.read(known, mask, 0)[i]
        results.append(result)
    return np.stack(results)


@dataclasses.dataclass(eq=False)
class StandInProgram:
    """What `read_answers` uses of a program."""

    task: object

    def __post_init__(self):
        self.form = find_form(self.task)
        self.compile_reader = jax.jit
        self.readers = Readers(self.task, self.form, jax.jit)


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("language") / "text.txt"
    rows = TINY.sample(np.random.default_rng(0), 100, LENGTH)
    path.write_text("\n".join("".join("abc"[x] for x in row) for row in rows))
    return path


def make_program(text, name, language, **changes):
    objective, settings = VARIANTS.get(name, (name, {}))
    settings = {f"{objective}__{k}": v for k, v in settings.items()} | changes
    settings |= {"tokenizer__kind": "char", "data__documents": "line"}
    settings |= {"data__row_length": 12, "model__positions": "rotary"}
    if objective in ("span_corruption", "bart") or name.endswith("seq2seq"):
        settings["model__num_decoder_layers"] = 1
    task, tokenizer, _ = prepare(make_config(text, objective, **settings))
    ids = tuple(int(tokenizer.encode(x)[0]) for x in "abc")
    vocab = task.vocab
    gaps = frozenset({vocab.mask, *vocab.sentinels} - {None})
    knowledge = Knowledge(language, ids, gaps, task.model_spec.vocab_size)
    model = make_stand_in(task.model, knowledge)
    return StandInProgram(dataclasses.replace(task, model=model)), ids


def ask(ids, num=6):
    rows = TINY.sample(np.random.default_rng(1), num, LENGTH)
    return rows, find_questions(TINY, rows, np.array(ids), np.arange(num), 4)


KINDS = {
    "clm": {LEFT: 0, BOTH + BAYES: 3},
    "mlm": {LEFT: 1, BOTH: 1},
    "masked_diffusion": {LEFT: 1, BOTH: 1},
    "clm_mlm": {LEFT: 0, BOTH: 1},
    "prefix_lm": {LEFT: 1, BOTH + BAYES: 3},
    "span_corruption": {LEFT: 1, BOTH: 3},
}


@pytest.mark.parametrize("name", KINDS)
def test_a_network_that_knows_the_truth_has_no_regret(text, name):
    program, ids = make_program(text, name, TINY)
    _, questions = ask(ids)
    answers = list_answers(program.task, 3)
    found = {a.metric.removeprefix("regret_"): a.passes for a in answers}
    assert found == KINDS[name]
    for answer in answers:
        log_q, mass = read_answers(program, {}, questions, answer)
        regret = exact_regret(questions.truth[answer.question], log_q)
        np.testing.assert_allclose(regret, 0, atol=1e-6, err_msg=answer.metric)
        if mass is not None:
            np.testing.assert_allclose(mass, SPECIAL_MASS, rtol=1e-4)
