"""Questions, last words and long texts, of tiny networks and by hand."""

import json

import jax
import numpy as np
import pytest
import scipy.special
from tiny import make_config, prepare

from jaxpt.zero_shot import text_tasks
from jaxpt.zero_shot.last_word import Passage
from jaxpt.zero_shot.outcomes import EvalContext, TaskOptions
from jaxpt.zero_shot.questions import Question, plain
from jaxpt.zero_shot.scoring import TextScorer


def make_context(speech, name):
    """What asks a tiny network whose parameters are random."""
    task, tokenizer, _ = prepare(make_config(speech, name))
    rng = np.random.default_rng(0)
    params = jax.tree.map(
        lambda x: rng.normal(0, 0.3, x.shape).astype(np.float32),
        jax.eval_shape(task.model.init_params, jax.random.key(0)),
    )
    scorer = TextScorer(task.model, params, task.text_form, name)
    return EvalContext(scorer, tokenizer.encode, tokenizer.encode_sized)


@pytest.fixture(scope="module")
def clm(speech):
    return make_context(speech, "clm")


@pytest.fixture(scope="module")
def mlm(speech):
    return make_context(speech, "mlm")


def log_softmax(logits):
    return scipy.special.log_softmax(np.asarray(logits, np.float64))


LENGTH = 32
CALLS = {}  # compiled once


def read(asker, name, ids):
    """Logits of all positions of ids, which are padded behind."""
    network = asker.scorer.network
    function = CALLS.setdefault((id(network), name), jax.jit(getattr(network, name)))
    tokens = np.zeros((1, LENGTH), np.int32)
    tokens[0, : len(ids)] = ids
    return np.asarray(function(asker.scorer.params, tokens))[0]


def follow(asker, before, after):
    """log p of each token of `after`, and whether it is the likeliest; one by one."""
    results = []
    prompt = [*asker.scorer.form.left, *asker.encode(before).tolist()]
    for token in asker.encode(after).tolist():
        values = log_softmax(read(asker, "next_logits", prompt)[len(prompt) - 1])
        results.append((values[token], values.argmax() == token))
        prompt.append(token)
    return results


PASSAGES = [Passage("to the", " senate"), Passage("of all", " of"), Passage("a", " e")]


def test_last_words_by_hand(clm):
    outcome = text_tasks.evaluate_last_words(clm, PASSAGES, ("causal",))["causal"]
    results = [follow(clm, p.context, p.target) for p in PASSAGES]
    sums = [sum(value for value, _ in each) for each in results]
    alone = [sum(v for v, _ in follow(clm, "", p.target)) for p in PASSAGES]
    figures = {name: figure.value for name, figure in outcome.figures.items()}
    assert figures["perplexity"] == pytest.approx(np.exp(-np.mean(sums)), rel=1e-4)
    assert figures["last_token_perplexity"] == pytest.approx(
        np.exp(-np.mean([each[-1][0] for each in results])), rel=1e-4
    )
    assert figures["accuracy"] == np.mean([all(b for _, b in each) for each in results])
    last = np.mean([each[-1][1] for each in results])
    assert figures["last_token_accuracy"] == last
    empty = np.exp(-np.mean(alone))
    assert outcome.trivial["perplexity_empty"] == pytest.approx(empty, rel=1e-4)


def best_end(asker, text, num):
    """The text and `num` tokens that the network finds likeliest behind it."""
    ids = [*asker.scorer.form.left, *asker.encode(text).tolist()]
    for _ in range(num):
        ids.append(int(read(asker, "next_logits", ids)[len(ids) - 1].argmax()))
    return ids[-num:]


def test_the_likeliest_end_is_right_and_another_is_not(clm):
    """By the scorer, because few ends of the passages above are the likeliest."""
    ids = clm.encode("to the").tolist()
    end = best_end(clm, "to the", 3)
    other = [*end[:2], (end[2] + 1) % 30]
    texts = [np.array([*ids, *each]) for each in (end, other)]
    result = clm.scorer.score(texts, [len(ids)] * 2, ("causal",), with_best=True)
    assert [each.tolist() for each in result["best"]] == [
        [True] * 3,
        [True, True, False],
    ]


def test_a_masked_model_sees_nothing_of_the_target(mlm):
    """By words' rule all later tokens are masked; plain PLL sees them."""
    scorer, form = mlm.scorer, mlm.scorer.form
    passage = Passage("to the", " men.of")  # a word, a stop and a word
    context, target = (mlm.encode(t).tolist() for t in passage)
    total, fill = 0, jax.jit(scorer.network.fill_logits)
    for i, token in enumerate(target):
        visible = [*context, *target[:i], *[form.gap[0]] * (len(target) - i)]
        tokens = np.array([[*form.opening, *visible, *form.after]])
        logits = fill(scorer.params, tokens)[0]
        total += log_softmax(logits[len(form.opening) + len(context) + i])[token]
    result = text_tasks.evaluate_last_words(mlm, [passage], ("pll", "pll_word_l2r"))
    value = {rule: result[rule].figures["perplexity"].value for rule in result}
    assert value["pll_word_l2r"] == pytest.approx(np.exp(-total), rel=1e-4)
    assert value["pll"] != pytest.approx(value["pll_word_l2r"], rel=1e-3)


def test_questions_by_hand(clm):
    items = [
        plain("He said to the", ["men", "house", "e"], 1),
        plain("a", ["b", "c"], 0),
    ]
    outcome = text_tasks.evaluate_questions(clm, items, ("causal",))["causal"]
    hits = []
    for item in items:
        pairs = list(zip(item.contexts, item.options))
        sums = [sum(v for v, _ in follow(clm, c, o)) for c, o in pairs]
        alone = [sum(v for v, _ in follow(clm, "", o)) for o in item.options]
        sizes = [len(o) - 1 for o in item.options]
        hits.append(
            [
                np.argmax(sums) == item.answer,
                np.argmax(np.divide(sums, sizes)) == item.answer,
                np.argmax(np.subtract(sums, alone)) == item.answer,
                np.argmax(alone) == item.answer,
            ]
        )
    names = ("acc", "acc_norm", "acc_mutual_info", "acc_empty")
    results = [outcome.columns[name].tolist() for name in names]
    assert np.transpose(results).tolist() == hits


def test_a_cloze_between_two_sides(mlm, clm):
    """What a masked model sees is not counted; what follows is, from left to right."""
    item = Question(("it was",) * 2, (" bad", " good"), 1, " for all.")
    for asker, rule, more in ((clm, "causal", 9), (mlm, "pll", 0)):
        scored = []

        class Scorer:
            def __getattr__(self, name):
                return getattr(asker.scorer, name)

            def score(self, texts, starts, rules, with_best=False):
                result = asker.scorer.score(texts, starts, rules, with_best=with_best)
                scored.extend(zip(texts, starts, result[rules[0]]))
                return result

        own = asker._replace(scorer=Scorer())
        outcome = text_tasks.evaluate_questions(own, [item], (rule,))[rule]
        sums = []
        for (text, start, values), option in zip(scored[:2], item.options):
            assert len(text) - start == len(option) + 9
            sums.append(values[: len(option) + more].sum())
        assert outcome.columns["acc"][0] == (np.argmax(sums) == 1)


def test_few_shot_means_and_spread(clm):
    train = [
        plain(f"it is {c} and", ["no", "yes"], i % 2) for i, c in enumerate("abcdef")
    ]
    items = [plain("it is so and", ["no", "yes"], 1), plain("we are", ["no", "yes"], 0)]
    options = TaskOptions(num_shots=1, num_draws=2, num_orders=1)
    scorer = clm.scorer.with_form(clm.scorer.form)
    asker = clm._replace(scorer=scorer, options=options, shots=train)
    outcome = text_tasks.evaluate_questions(asker, items, ("causal",))["causal"]
    by_prompt = [each["acc"] for each in outcome.groups["prompt"].values()]
    assert len(by_prompt) == 2
    assert outcome.figures["acc"].value == pytest.approx(np.mean(by_prompt))
    spread = outcome.groups["spread"]["acc"]
    assert spread["sd_draws"] == pytest.approx(np.std(by_prompt, ddof=1))
    assert "sd_orders" not in spread and "acc_empty" not in outcome.figures
    assert outcome.trivial == {"chance": 0.5, "majority": 0.5}


def test_windows_by_a_loop(clm):
    text = "of the people and for the people"
    options = TaskOptions(window=8, stride=3)
    outcome = text_tasks.evaluate_texts(
        clm._replace(options=options), [text], ("causal",)
    )["causal"]
    total = 0
    for i in range(len(text)):  # the window that scores i
        begin = 0 if i < 8 else -(-(i - 7) // 3) * 3
        total += follow(clm, text[begin:i], text[i])[0][0]
    want = -total / np.log(2) / len(text)
    assert outcome.figures["bits_per_byte"].value == pytest.approx(want, rel=1e-4)
    apart = sum(
        sum(v for v, _ in follow(clm, "", text[i : i + 8])) for i in range(0, 32, 8)
    )
    want = -apart / np.log(2) / len(text)
    result = outcome.trivial["bits_per_byte_no_overlap"]
    assert result == pytest.approx(want, rel=1e-4)


@pytest.mark.parametrize("trained, is_noted", [(0, False), (8, False), (7, True)])
def test_windows_that_are_longer_than_rows_of_training_are_noted(
    clm, trained, is_noted
):
    asker = clm._replace(options=TaskOptions(window=8), trained_len=trained)
    outcomes = text_tasks.evaluate_texts(asker, ["of the people"], ("causal",))
    notes = " ".join(outcomes["causal"].notes)
    assert ("longer than the rows of training" in notes) == is_noted
    assert ("(model.max_len=7)" in notes) == is_noted


def test_what_the_vocabulary_lacks_is_said(clm):
    asker = clm._replace(count_unknown=lambda text: text.count("t"))
    outcome = text_tasks.evaluate_last_words(asker, PASSAGES, ("causal",))["causal"]
    assert outcome.notes[-1].startswith("1 of 3 texts")


def test_windows_that_do_not_fit(clm, refuses):
    with refuses("window=99", "at most"):
        asker = clm._replace(options=TaskOptions(window=99))
        text_tasks.evaluate_texts(asker, ["a"], ("causal",))


def test_rules_that_cannot_answer(clm, refuses):
    with refuses("rule=discriminator", "causal"):
        text_tasks.evaluate_last_words(clm, PASSAGES, ("discriminator",))
    with refuses("discriminator", "perplexity"):
        text_tasks.evaluate_texts(clm, ["a b"], ("discriminator",))


def test_shots_come_with_their_number(tmp_path, refuses):
    tasks = text_tasks.make_tasks()
    with refuses("num_shots=2", "shots="):
        text_tasks.read_shots(tasks["piqa"], TaskOptions(num_shots=2))
    with refuses("num_shots=0", "shots=x"):
        text_tasks.read_shots(tasks["piqa"], TaskOptions(shots="x"))
    path = tmp_path / "t.jsonl"
    row = {"goal": "g", "sol1": "a", "sol2": "b", "label": 1}
    path.write_text(json.dumps(row))
    options = TaskOptions(shots=str(path), num_shots=1)
    (shot,) = text_tasks.read_shots(tasks["piqa"], options)
    assert shot.solved == "Question: g\nAnswer: b"
