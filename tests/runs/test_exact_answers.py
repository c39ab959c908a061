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
from tiny import VARIANTS, make_config, prepare, slow_but

from jaxpt.evaluation.regret import (
    exact_regret,
    find_questions,
    list_anchors,
    sampled_regret,
)
from jaxpt.languages import BOTH, LEFT
from jaxpt.languages.anchors import divergence
from jaxpt.languages.hmm import Hmm
from jaxpt.languages.language import Language
from jaxpt.languages.parameters import read_language
from jaxpt.nn.networks.abilities import Gap
from jaxpt.nn.networks.bilm import BiLm
from jaxpt.nn.networks.electra import EVERYWHERE, Electra, ElectraNetwork
from jaxpt.nn.networks.student_teacher import StudentTeacher
from jaxpt.objectives import OBJECTIVES
from jaxpt.ops.masks import materialise
from jaxpt.runs.exact_answers import BAYES, GENERATOR, list_answers, read_answers
from jaxpt.runs.own_masks import draw_masks, measure_own_masks
from jaxpt.runs.readers import Readers

TINY = Hmm([[0.9, 0.1], [0.2, 0.8]], [[0.7, 0.2, 0.1], [0.1, 0.3, 0.6]])
LENGTH, SPECIAL_MASS = 7, 0.1


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


def make_stand_in(model, knowledge, rewrites=False):
    """The network with the truth in the place of its hidden states."""
    if isinstance(model, ElectraNetwork):
        return make_detector(model, knowledge)
    if isinstance(model, BiLm):
        return make_two_ways(model, knowledge)
    if isinstance(model, StudentTeacher):
        alone = make_stand_in(model.alone, knowledge)
        own = {"alone": property(lambda self: alone)}
        return copy_with(type("Exact", (type(model),), own), model)
    if not hasattr(model, "encode"):  # nothing can be asked
        return model
    offset = 0 if model.HEADS in (("masked",), ("pretraining",)) else 1
    marks = getattr(model, "fim_ids", ())[:3]

    def read_rows(ids, mask):
        rows = zip(ids.tolist(), mask, strict=True)
        return np.stack([read_row(x, m) for x, m in rows])

    def read_row(ids, mask):
        if not set(marks) & set(ids):
            return knowledge.read(ids, mask, offset)
        return read_prompt(knowledge, ids, marks, is_spm=model.asks_spm)

    class Exact(type(model)):
        def encode(self, ids, attn_mask, *args, deterministic):
            if model.HAS_DECODER:  # the decoder reads the ids
                return ids[..., None].astype(jnp.float32)
            size = ids.shape[1]
            mask = materialise(attn_mask, size, size)
            mask = jnp.broadcast_to(mask, (len(ids), 1, size, size))[:, 0]
            return call(read_rows, (*ids.shape, knowledge.size), ids, mask)

        def decode(self, ids, attn_mask, source, *args, deterministic):
            function = write_rewritten if rewrites else write_gaps
            shape = *ids.shape, knowledge.size
            source = source[..., 0].astype(int)
            return call(lambda x, y: function(knowledge, x, y), shape, source, ids)

        def logits(self, hidden):
            return hidden

        def nll(self, hidden, targets):
            return pick(hidden, targets)

    return copy_with(Exact, model)


def copy_with(kind, model):
    """A network of another class with the fields of a network."""
    fields = {
        f.name: getattr(model, f.name)
        for f in dataclasses.fields(model)
        if f.init and f.name not in ("parent", "name")
    }
    return kind(**fields, parent=None)


def read_prompt(knowledge, ids, marks, is_spm):
    """Fill-in-the-middle: after MID, or after the prefix that follows it, the gap."""
    pre, suf, mid = (ids.index(x) for x in marks)
    result = np.full((len(ids), knowledge.size), np.log(1 / knowledge.size))
    if is_spm:
        assert (pre, suf) == (0, 1)
        left, right = ids[mid + 1 : -1], ids[suf + 1 : mid]
    else:
        left, right = ids[pre + 1 : suf], ids[suf + 1 : mid]
    assert len(left) + len(right) == LENGTH - 1
    text = [*left, min(knowledge.gaps), *right]
    full = np.ones((LENGTH, LENGTH), bool)
    result[len(ids) - 2] = knowledge.read(text, full, 0)[len(left)]
    return result


def make_detector(model, knowledge):
    """ELECTRA: an exact generator G, and the ideal discriminator of its fills.

    With a share r of replaced tokens, it finds a token v replaced with the probability
    D = r G (1 - p) / ((1 - r) p + r G), because an equal fill counts as original.
    """
    # Or it judges replaced tokens alone.
    share = model.sampled_share if model.variant in EVERYWHERE else 1.0

    def fill(ids):
        full = np.ones((ids.shape[1], ids.shape[1]), bool)
        return np.stack([knowledge.read(x, full, 0) for x in ids.tolist()])

    def score(ids, places, candidates):
        scores = []
        for row, place, others in zip(ids, places, candidates, strict=True):
            hidden = row.copy()
            hidden[place] = min(knowledge.gaps)
            g = np.exp(fill(hidden[None])[0, place][others])
            p = g / (1 - SPECIAL_MASS)
            original = (1 - share) * p + share * g * p
            scores.append(np.log(original) - np.log(share * g * (1 - p)))
        return np.stack(scores)

    class Exact(type(model)):
        def fill_logits(self, params, tokens):
            return call(fill, (*tokens.shape, knowledge.size), tokens)

        def choice_scores(self, params, gap):
            asked = gap.tokens, gap.positions, gap.candidates
            return call(score, gap.candidates.shape, *asked)

        def target_log_probs(self, params, batch, view, with_ranks=False):
            log_p = self.fill_logits(params, batch["inputs"])
            rows = jnp.arange(len(log_p))[:, None]
            return log_p[rows, batch["positions"], batch["targets"]]

    return copy_with(Exact, model)


def make_two_ways(model, knowledge):
    """ELMo: only its forward direction is asked."""

    def read(ids):
        mask = np.tri(ids.shape[1], dtype=bool)
        return np.stack([knowledge.read(x, mask, 1) for x in ids.tolist()])

    class Exact(type(model)):
        def token_nll(self, params, tokens):
            ids = tokens[:, :-1]
            return pick(call(read, (*ids.shape, knowledge.size), ids), tokens[:, 1:])

        def target_log_probs(self, params, batch, view, with_ranks=False):
            assert view == "forward"
            ids = batch["inputs"]
            log_p = call(read, (*ids.shape, knowledge.size), ids)
            rows = jnp.arange(len(log_p))[:, None]
            return log_p[rows, batch["positions"], batch["targets"]]

    return copy_with(Exact, model)


def write_gaps(knowledge, sources, written):
    """T5: after the sentinel the missing token, then the end, or the continuation."""
    results = []
    for source, ids in zip(sources.tolist(), written.tolist(), strict=True):
        # The form's [EOS], and padding, which has id 0, end the input.
        text = [x for x in source if x in knowledge.ids or x in knowledge.gaps]
        is_marked = any(x in knowledge.gaps for x in text)
        at = len(text)  # it continues a text without a mark
        if is_marked:
            at = next(i for i, x in enumerate(text) if x in knowledge.gaps)
        is_inside = is_marked and len(text) == LENGTH and len(ids) == 3
        # What follows a last gap is not known.
        text += [min(knowledge.gaps)] * (LENGTH - len(text))
        full = np.ones((LENGTH, LENGTH), bool)
        own = knowledge.read(text, full, 0)[at]
        longer = knowledge.spread(np.full(3, 1 / 3))
        result = np.full((len(ids), knowledge.size), np.log(1 / knowledge.size))
        for i, x in enumerate(ids):
            if x in knowledge.gaps or not (is_marked or i):
                result[i] = own
                if is_inside:  # longer spans may begin with any symbol, too
                    result[i] = np.log(np.exp(own) / 2 + np.exp(longer) / 2)
            elif is_inside and x in knowledge.ids:  # the share that ends here
                share = np.exp(own[x]) / (np.exp(own[x]) + np.exp(longer[x]))
                result[i] = np.log(share / 2)  # at each of two ends
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
        self.compile_reader = jax.jit
        self.readers = Readers(self.task, jax.jit)


@pytest.fixture(scope="module")
def text(tmp_path_factory):
    path = tmp_path_factory.mktemp("language") / "text.txt"
    rows = TINY.sample(np.random.default_rng(0), 100, LENGTH)
    path.write_text("\n".join("".join("abc"[x] for x in row) for row in rows))
    return path


def make_program(text, name, language, **changes):
    objective, settings = FORMS.get(name, VARIANTS.get(name, (name, {})))
    settings = {
        f"{objective}__{k}": v
        for k, v in settings.items()
        if k not in ("is_seq2seq", "has_decoder")  # its layers say it
    } | changes
    settings |= {"tokenizer__kind": "char", "data__documents": "line"}
    settings |= {"data__row_length": 12, "model__positions": "rotary"}
    if objective in ("span_corruption", "bart") or name.endswith("seq2seq"):
        settings["model__num_decoder_layers"] = 1
    if objective == "latent_prediction":
        settings["latent_prediction__horizon"] = 4
    explicit_names = ["model.num_decoder_layers"] * name.endswith("one_stack")
    config = make_config(text, objective, **settings)
    task, tokenizer, _ = prepare(config, explicit_names)
    ids = tuple(int(tokenizer.encode(x)[0]) for x in "abc")
    vocab = task.vocab
    gaps = frozenset({vocab.mask, *vocab.sentinels} - {None})
    knowledge = Knowledge(language, ids, gaps, task.model_spec.vocab_size)
    rewrites = task.spec.text_form(vocab).rewrites
    model = make_stand_in(task.model, knowledge, rewrites)
    return StandInProgram(dataclasses.replace(task, model=model)), ids


def ask(ids, num=6):
    rows = TINY.sample(np.random.default_rng(1), num, LENGTH)
    return rows, find_questions(TINY, rows, np.array(ids), np.arange(num), 4)


PARAMS = {"student": {}}  # of a network with a teacher
FAR = {LEFT: 1, BOTH: 1}  # passes for a position
CAUSAL = {LEFT: 0, BOTH + BAYES: 3}
KINDS = {
    "clm": CAUSAL,
    "mlm": FAR,
    "masked_diffusion": FAR,
    "hybrid_diffusion": FAR,
    "diffusion_from_causal": FAR,
    "clm_mlm": {LEFT: 0, BOTH: 1},
    "prefix_lm": {LEFT: 1, BOTH + BAYES: 3},
    "span_corruption": {LEFT: 1, BOTH: 3},
    "electra": {LEFT: 1, BOTH: 3, BOTH + GENERATOR: 1},
    "fill_in_the_middle": {LEFT: 0, BOTH: 3},
    "bart": {LEFT: 1, BOTH: 3},
    "bilm": CAUSAL,
    "electra_15": {LEFT: 1, BOTH: 3, BOTH + GENERATOR: 1},
    "prefix_lm/seq2seq": {LEFT: 1},
    "ul2": {LEFT: 1, BOTH: 3},
    "ul2/seq2seq": {LEFT: 1, BOTH: 3},
    "dual": {LEFT: 0, BOTH: 1},
    "mixture": {LEFT: 0, BOTH: 1},
    "mixture/seq2seq": {LEFT: 1, BOTH: 3},
    "adaptive_mlm": FAR,
    "spanbert": FAR,
    "multi_token": CAUSAL,
    "multi_token_heads": CAUSAL,
    "token_order": CAUSAL,
    "masked_input_clm": CAUSAL,
    "skip_gram": {},
    "bert": FAR,
    "distillation": FAR,
    "causal_distillation": CAUSAL,
    "selective_clm": CAUSAL,
    "prefix_token": CAUSAL,
    "future_summary": CAUSAL,
    "next_latent": CAUSAL,
    "latent_prediction": CAUSAL,
    "fill_in_the_middle/psm": {LEFT: 0, BOTH: 3},
    "fill_in_the_middle/spm": {LEFT: 0, BOTH: 3},
    "ul2/one_stack": {LEFT: 1, BOTH + BAYES: 3},
    "ul2/no_s": {LEFT: 1, BOTH: 3},
}
QUICK = (*list(KINDS)[:10], "skip_gram")
# Forms of an objective that only differ in how they answer.
FORMS = {
    "fill_in_the_middle/psm": ("fill_in_the_middle", {"spm_share": 0.0}),
    "fill_in_the_middle/spm": ("fill_in_the_middle", {"spm_share": 1.0}),
    "ul2/one_stack": ("ul2", {}),
    "ul2/no_s": ("ul2", {"rates": (1.0, 0.0, 1.0)}),
    "future_summary": ("future_summary", {"horizon": 4}),
}


def test_all_objectives_are_asked():
    """Blocks have tests of their own."""
    names = {FORMS.get(x, VARIANTS.get(x, (x, {})))[0] for x in KINDS}
    assert names | {"block_diffusion"} == set(OBJECTIVES)


def read_regret(program, questions, answer):
    log_q, mass = read_answers(program, PARAMS, questions, answer)
    return exact_regret(questions.truth[answer.question], log_q), log_q, mass


@pytest.mark.parametrize("name", slow_but(QUICK, KINDS))
def test_a_network_that_knows_the_truth_has_no_regret(text, name):
    program, ids = make_program(text, name, TINY)
    _, questions = ask(ids)
    answers = list_answers(program.task, 3)
    found = {a.metric.removeprefix("regret_"): a.passes for a in answers}
    assert found == KINDS[name]
    for answer in answers:
        regret, _, mass = read_regret(program, questions, answer)
        np.testing.assert_allclose(regret, 0, atol=1e-6, err_msg=answer.metric)
        assert (mass is None) == (answer.passes > 1)
        if mass is not None:
            np.testing.assert_allclose(mass, SPECIAL_MASS, rtol=1e-4)


@pytest.mark.parametrize("name", slow_but(QUICK[:7], [k for k in KINDS if KINDS[k]]))
def test_a_network_that_knows_frequencies_has_their_regret(text, name):
    program, ids = make_program(text, name, Unigram())
    _, questions = ask(ids)
    anchors = list_anchors(TINY, questions)
    for answer in list_answers(program.task, 3):
        regret, *_ = read_regret(program, questions, answer)
        expected = anchors[answer.question]["unigram"].mean
        assert expected > 0.01
        np.testing.assert_allclose(regret.mean(), expected, rtol=1e-4)


def test_blocks_are_asked_without_those_after_them(text):
    """A model of blocks answers in one pass, so what follows the block is not seen."""
    program, ids = make_program(text, "block_diffusion", TINY)
    size = program.task.model.block_size
    rows, questions = ask(ids)
    left, both = list_answers(program.task, 3)
    regret, *_ = read_regret(program, questions, left)
    np.testing.assert_allclose(regret, 0, atol=1e-6)
    regret, *_ = read_regret(program, questions, both)
    seen = np.arange(LENGTH) // size <= questions.positions[..., None] // size
    for n, row in enumerate(rows):
        for p, place in enumerate(questions.positions[n]):
            exact = TINY.given_visible(row[None], seen[n, p][None])[0, place]
            expected = divergence(questions.truth[BOTH][n, p], exact)
            assert regret[n, p] == pytest.approx(expected, abs=1e-6)
    assert regret.mean() > 0.001


def test_both_estimators_agree_within_four_standard_errors(text):
    program, ids = make_program(text, "clm", Unigram())
    _, questions = ask(ids, 400)
    answer = next(a for a in list_answers(program.task, 3) if a.question == LEFT)
    regret, log_q, _ = read_regret(program, questions, answer)
    truth = questions.truth[LEFT]
    sampled = sampled_regret(truth, log_q, questions.symbols)
    differences = (sampled - regret).mean(1)  # rows are the unit
    error = differences.std(ddof=1) / np.sqrt(len(differences))
    assert 0 < abs(differences.mean()) < 4 * error < 0.1
    # Without the truth, which the sampled estimator needs too, they do not.
    flat = np.full_like(truth, 1 / 3)
    wrong = (sampled_regret(flat, log_q, questions.symbols) - regret).mean(1)
    assert abs(wrong.mean()) > 4 * wrong.std(ddof=1) / np.sqrt(len(wrong))


def test_the_inversion_of_an_ideal_discriminator():
    """The vector of the HMM's third symbol: exact only as the share goes to 0."""
    replaced = jnp.array([0.069952, 0.115796, 0.113272])
    truth = jnp.array([0.529601, 0.228400, 0.241999])

    class Fixed(Electra):
        def choice_scores(self, params, gap):
            return (jnp.log1p(-replaced) - jnp.log(replaced))[gap.candidates]

        def fill_logits(self, params, tokens):
            return jnp.broadcast_to(jnp.log(truth), (*tokens.shape, 3))

    model = Fixed(None, None, sampled_share=0.15, parent=None)
    tokens = jnp.zeros((1, 5), int)
    gap = Gap(tokens, 2, tokens, jnp.arange(3)[None])
    p = np.exp(model.gap_log_probs({}, gap))[0]
    np.testing.assert_allclose(p, [0.531920, 0.228304, 0.242781], atol=2e-5)
    assert p.sum() == pytest.approx(1.003005, abs=2e-5)


MASKED = (
    *("mlm", "masked_diffusion", "clm_mlm", "electra", "bert", "spanbert", "dual"),
    *("adaptive_mlm", "distillation"),
)


@pytest.mark.parametrize("name", slow_but(MASKED[:4], MASKED))
def test_regret_under_the_own_masks(text, name):
    """0 for the exact answers given the visible tokens, and no more for others."""
    rates = {"mlm": "mask_rate", "electra": "mask_rate", "clm_mlm": "mask_rate"}
    changes = {f"{name}__{rates[name]}": 0.4} if name in rates else {}
    program, ids = make_program(text, name, TINY, **changes)
    rows, questions = ask(ids, 20)
    hidden = draw_masks(program.task, questions, np.ones(rows.shape, bool))
    if name in ("mlm", "electra"):
        assert (hidden.sum(1) == 3).all()  # 0.4 x 7 tokens
    assert 0 < hidden.mean() < 1
    found = measure_own_masks(program, PARAMS, TINY, questions)
    np.testing.assert_allclose(found.totals, 0, atol=1e-5)
    np.testing.assert_array_equal(found.weights, hidden.sum(1)[hidden.any(1)])
    program, _ = make_program(text, name, Unigram(), **changes)
    found = measure_own_masks(program, PARAMS, TINY, questions)
    truth = TINY.given_visible(rows, ~hidden)[hidden]
    frequencies = Unigram().given_visible(rows, ~hidden)[hidden]
    expected = divergence(truth, frequencies).mean()
    assert found.mean == pytest.approx(expected, rel=1e-4) and expected > 0.001


def test_networks_without_masks_of_their_own(text):
    for name in ("clm", "span_corruption", "block_diffusion", "skip_gram"):
        program, ids = make_program(text, name, TINY)
        _, questions = ask(ids)
        assert measure_own_masks(program, PARAMS, TINY, questions) is None


def test_own_masks_of_a_task_hide_its_answers_alone():
    """A document whose prefix is hidden has no exact answer."""
    path = "star:degree=2,arm=3,names=8"
    for name in ("mlm", "spanbert"):
        settings = {"data__split": "auto", "tokenizer__kind": "char"}
        task, tokenizer, _ = prepare(make_config(path, name, **settings))
        language = read_language(path).language
        rows = language.sample(np.random.default_rng(0), 30, language.length)
        ids = tokenizer.encode(read_language(path).characters)
        questions = find_questions(language, rows, ids, np.arange(30), 3)
        asked = language.asked(rows)
        hidden = draw_masks(task, questions, asked)
        assert not (hidden & ~asked).any()
        # Its rows mark the answers; those of an objective that reads all do not.
        assert task.plan.rows.answers_only and hidden.any(1).all()
        whole = dataclasses.replace(task.plan.rows, answers_only=False)
        plan = dataclasses.replace(task.plan, rows=whole)
        some = draw_masks(dataclasses.replace(task, plan=plan), questions, asked)
        assert some.any(1).mean() < 0.5
