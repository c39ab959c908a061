"""Which text and which parameters a run's numbers are measured on."""

import dataclasses
import functools
import gc
import json
import math
import types
from unittest import mock

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from tiny import ROWS, VARIANTS, make_config, prepare

import jaxpt
from jaxpt.config.plan import make_plan
from jaxpt.evaluation.cloze import measure_cloze
from jaxpt.evaluation.probe import pool
from jaxpt.evaluation.words import count_words
from jaxpt.judge.examples import Examples, means
from jaxpt.objectives import OBJECTIVES
from jaxpt.ops.masks import full
from jaxpt.runs.data import likelihood_rows
from jaxpt.runs.program import Program
from jaxpt.runs.task import make_task
from jaxpt.text.dataset import load_text
from jaxpt.text.library import Reporter
from jaxpt.training import evaluator
from jaxpt.training import measure as measuring
from jaxpt.training.measure import (
    Measured,
    _find_likelihood,
    list_choices,
    list_pairs,
    list_questions,
    measure,
    measure_frozen,
    total_loss,
)

SEED = 8  # by which untrained parameters guess some of few masked tokens


@pytest.fixture(scope="module")
def measured(tmp_path_factory):
    """A program that has a likelihood and fills masks, splits with labels, parameters.

    One label's documents have another alphabet than the other's, which can be read off
    any features but those that are all 0.
    """
    words = {"low": "abba cab bad dab acab ", "high": "west tows swot vest "}
    lines = []
    for i in range(24):
        label = ("low", "high")[i // 4 % 2]
        text = words[label] * (4 + i % 5)
        lines.append(json.dumps({"text": text, "kind": label}))
    path = tmp_path_factory.mktemp("measured") / "text.jsonl"
    path.write_text("\n".join(lines), encoding="utf-8")
    config = make_config(
        path,
        "clm_mlm",
        data__label_field="kind",
        data__split="documents",
        data__valid_fraction=0.25,
    )
    task, _, corpora = prepare(config)
    program = Program(task)
    return program, corpora, program.init_state(SEED).params


def of(**metrics):
    return Measured(metrics, {}, {})


@pytest.mark.slow
def test_controls_are_measured_on_untrained_parameters(measured):
    program, corpora, fresh = measured
    trained = jax.tree.map(lambda x: 0 * x, fresh)  # which cannot be told by chance
    measured_before = measure(program, trained, corpora, seed=SEED)
    result = measured_before.metrics
    untrained = measure(program, fresh, corpora, seed=SEED).metrics
    # Without scores none is the highest; without features the answer is always one.
    assert result["masked_accuracy"] == result["masked_top5_accuracy"] == 0
    assert result["probe_accuracy"] == result["probe_majority"] < 1
    for name in ("masked_accuracy", "masked_top5_accuracy", "probe_accuracy"):
        assert result[f"{name}_random"] == untrained[name] > result[name], name
    # What a comparison has measured for all of its runs is not measured again.
    probes = {"trained": measured_before.probes["trained"]}  # as an evaluation has them
    known = measured_before._replace(probes=probes)
    kwargs = {"known": known, "control": of(probe_accuracy=0.25)}
    again = measure(program, trained, corpora, seed=SEED, **kwargs).metrics
    assert again["probe_accuracy_random"] == 0.25
    assert (
        measure_frozen(program, fresh, corpora).metrics["probe_accuracy"]
        == (result["probe_accuracy_random"])
    )


def test_metrics_that_end_in_random_are_of_fresh_parameters(speech, monkeypatch):
    """Parameters are a number here, which is what every measurement gives of them."""

    def give(*names, make=lambda params: Examples(*np.array([[params], [1], [0]]))):
        def measure_one(function, params, *args):
            return {name: make(params) for name in names}

        return measure_one

    measurements = {
        "measure_frozen": ("probe_accuracy", "word_accuracy", "choice_bayes_accuracy"),
        "measure_likelihood": ("bits_per_byte",),
        "measure_nll_bound": ("bits_per_byte_bound",),
        "measure_cloze": ("cloze_accuracy", "cloze_bits"),
    }
    for function, names in measurements.items():
        monkeypatch.setattr(measuring, function, give(*names))
    frozen = measuring.measure_frozen

    def measure_all_frozen(program, params, corpora):
        examples = frozen(None, params)
        return Measured(means(examples), examples, {})

    monkeypatch.setattr(measuring, "measure_frozen", measure_all_frozen)
    fills = give("masked_accuracy", "masked_top5_accuracy", make=float)
    monkeypatch.setattr(measuring, "evaluate", fills)
    plan = make_plan(make_config(speech, "clm_mlm"))
    tokenizer, corpora = load_text(plan.text, reporter=Reporter(lambda line: None))
    abilities = ("eval_step", "token_nll", "nll_bound", "fill_logits", "fill_scores")
    program = types.SimpleNamespace(
        task=make_task(plan, tokenizer.vocab),
        init_params=lambda seed: 0.25 + seed,
        readers=dict.fromkeys(abilities),
    )
    known = of(valid_loss=1.0)
    result = measure(program, 0.75, corpora, seed=SEED, known=known).metrics
    names = [name for names in measurements.values() for name in names]
    names += ["masked_accuracy", "masked_top5_accuracy"]
    assert result == {"valid_loss": 1.0} | dict.fromkeys(names, 0.75) | {
        f"{name}_random": 0.25 + SEED for name in names
    }


@pytest.mark.parametrize("start, is_control", [(0.25 + SEED, True), (0.5, False)])
def test_a_run_from_other_parameters_has_a_random_control(
    start, is_control, monkeypatch
):
    """Step 0 is the control of a run that starts at random, not of others."""
    controls = []
    frozen = of(pair_accuracy=0.75)
    monkeypatch.setattr(evaluator, "measure_valid", lambda *args: {"valid_loss": 1.0})
    monkeypatch.setattr(evaluator, "measure_frozen", lambda *args: frozen)
    for name in ("measure_text", "measure_exact"):
        monkeypatch.setattr(evaluator, name, lambda *args, **_: ({}, {}))
    monkeypatch.setattr(evaluator, "means", lambda examples: {})
    monkeypatch.setattr(
        evaluator, "measure", lambda *args: controls.append(args[-1]) or frozen
    )
    settings = {
        "eval": {"probe_every_eval": True},
        "optim": {"ema_decay": 0.0},
        "train": {"seed": SEED},
    }
    spaces = {name: types.SimpleNamespace(**x) for name, x in settings.items()}
    run = evaluator.Evaluator(
        types.SimpleNamespace(plan=types.SimpleNamespace(**spaces)),
        types.SimpleNamespace(init_params=lambda seed: {"a": np.full(3, 0.25 + seed)}),
        {"valid": None},
        mock.Mock(),
        None,
        None,
        mock.Mock(),
    )
    state = types.SimpleNamespace(
        eval_params={"a": np.array([start, 0.25 + SEED, start])}
    )
    run.evaluate(state, 0)
    run.measure(state, 5, only_valid=False)
    (control,) = controls
    assert control.metrics == (
        {"valid_loss": 1.0, "pair_accuracy": 0.75} if is_control else {}
    )


def test_a_likelihood_is_that_of_text_not_trained_on(measured):
    program, corpora, params = measured
    train, valid = corpora["train"], corpora["valid"]
    known = of(valid_loss=1.0, probe_accuracy=0.5)

    def bits(train, valid):
        splits = {"train": train, "valid": valid}
        kwargs = {"known": known, "control": known}
        result = measure(program, params, splits, seed=SEED, **kwargs).metrics
        return {name: result[name] for name in ("bits_per_byte", "cloze_bits")}

    result, on_train = bits(train, valid), bits(train, train)
    assert bits(valid, valid) == result
    assert all(abs(result[name] - on_train[name]) > 1e-4 for name in result)


def test_each_number_is_of_its_split(measured):
    """The objective's own of valid, fills of the held-out text where there is some."""
    program, corpora, params = measured
    train, valid = corpora["train"], corpora["valid"]
    control = of(probe_accuracy=0.5)

    def find(**splits):
        return measure(program, params, splits, seed=SEED, control=control).metrics

    result, swapped = find(train=train, valid=valid), find(train=valid, valid=train)
    fills = [name for name in result if name.startswith("masked")]
    assert fills and result["masked_top5_accuracy"] > result["masked_accuracy"]
    assert result["valid_loss"] != swapped["valid_loss"]
    assert find(train=valid, valid=valid)["valid_loss"] == result["valid_loss"]
    with_more = find(train=train, valid=valid, heldout=train)
    assert [with_more[name] for name in fills] == [swapped[name] for name in fills]
    assert [with_more[name] for name in fills] != [result[name] for name in fills]
    assert with_more["valid_loss"] == result["valid_loss"]
    # Without a held-out split, fills are of valid and have no second name.
    of_trained = [name for name in fills if not name.endswith("_random")]
    assert not any(f"valid_{name}" in result for name in fills)
    for name in of_trained:
        assert with_more[f"valid_{name}"] == result[name]
    assert result["val_perplexity"] == pytest.approx(math.exp(result["valid_clm_loss"]))


def test_a_loss_is_its_terms_by_their_coefficients():
    spec = types.SimpleNamespace(coefficients={"a": 2.0, "b": 50.0})
    task = types.SimpleNamespace(spec=spec)
    program = types.SimpleNamespace(task=task)
    result = {"a": (6.0, 3.0), "b": (1.0, 2.0), "accuracy": (9.0, 1.0)}
    assert total_loss(program, result) == 2 * 2 + 50 * 0.5
    assert total_loss(program, result | {"b": (0.0, 0.0)}) == 4  # none was there
    assert math.isnan(total_loss(program, dict.fromkeys("ab", (0.0, 0.0))))
    # In training, those of the step.
    spec.coefficients_at = lambda progress: {"a": 1 - progress, "b": 8 * progress}
    assert total_loss(program, result, 0.25) == 0.75 * 2 + 2 * 0.5
    assert total_loss(program, result, 0.0) == 2


@pytest.mark.parametrize("name", OBJECTIVES)
def test_a_perplexity_is_of_likelihoods_alone(name):
    """Whatever the terms are called, and whichever others are in the loss."""
    spec = OBJECTIVES[name].Spec.for_seq_len(32)
    means = {term: 1.0 + i for i, term in enumerate(spec.terms)}
    metrics = {f"valid_{term}": mean for term, mean in means.items()}
    metrics["valid_loss"] = sum(spec.coefficients[term] * means[term] for term in means)
    likely = {
        term: spec.coefficients[term]
        for term, each in spec.terms.items()
        if each.is_likelihood and spec.coefficients[term]
    }
    found = _find_likelihood(types.SimpleNamespace(spec=spec), metrics)
    if not likely:
        assert found is None
        return
    total = sum(weight * means[term] for term, weight in likely.items())
    assert found == pytest.approx(total / sum(likely.values()))


def test_a_passage_is_as_many_windows_as_are_asked_for(measured, refuses):
    program, corpora, params = measured
    plan = program.task.plan
    spec = dataclasses.replace(plan.eval, probe_windows=9999)
    task = dataclasses.replace(program.task, plan=dataclasses.replace(plan, eval=spec))
    wide = types.SimpleNamespace(
        task=task,
        readers=program.readers,
        text_length=program.text_length,
    )
    with refuses("eval.probe_windows=9999"):
        measure_frozen(wide, params, corpora)


def test_no_special_token_is_an_answer_of_the_cloze(measured):
    program, corpora, params = measured
    task, spec = program.task, program.task.plan.eval
    rows = likelihood_rows(task, corpora["valid"], spec.num_rows)

    def ask(banned):
        args = (task.vocab.mask, banned, task.model_spec.vocab_size, spec.batch_size)
        cloze = measure_cloze(
            program.readers["fill_scores"], params, rows, *args, task.read_length
        )
        return means(cloze)

    known = of(valid_loss=1.0, probe_accuracy=0.5)
    result = measure(program, params, corpora, SEED, known, known).metrics
    assert result["cloze_bits"] == ask(task.nonwords)["cloze_bits"]
    assert result["cloze_bits"] < ask([])["cloze_bits"]  # shared by fewer answers


@pytest.mark.slow_except("mlm-before1-after1-gap1")
@pytest.mark.parametrize(
    "objective, before, after, gap",
    [
        ("clm", (), (), ()),
        ("mlm", (), (), ("mask",)),
        ("electra", (), (), ()),  # its second network, which never reads a [MASK]
        ("span_corruption", (), ("eos",), ("sentinel",)),
        ("prefix_lm", ("pad",), (), ()),
        ("ul2", ("nlu",), ("eos",), ("sentinel",)),
        ("bart", (), (), ("mask",)),
    ],
)
def test_states_are_read_in_the_form_of_training(objective, before, after, gap, speech):
    """What training puts around a text is read too, and its states are left out."""
    plan = make_plan(make_config(speech, objective))
    tokenizer, _ = load_text(plan.text, reporter=Reporter(lambda line: None))
    vocab = tokenizer.vocab
    program = Program(make_task(plan, vocab))
    ids = lambda names: tuple(  # noqa: E731
        vocab.sentinels[0] if name == "sentinel" else getattr(vocab, name)
        for name in names
    )
    form = program.task.text_form
    assert (form.opening, form.after) == (ids(before), ids(after))
    assert form.shown_gap == ids(gap)
    num_around = len(before) + len(after)
    assert program.text_length == program.task.read_length - num_around
    params = program.init_state(SEED).params
    tokens = np.array([[9, 12, 10, 8, 11]] * 2, np.int32)
    result = program.readers["features"](params, tokens)
    around = [np.tile(np.int32(ids(names)), (2, 1)) for names in (before, after)]
    framed = np.concatenate([around[0], tokens, around[1]], axis=1)
    states = program.task.model.features(params, jnp.asarray(framed))
    expected = states[:, len(before) : len(before) + 5]
    np.testing.assert_allclose(result, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.slow_except("clm")
@pytest.mark.parametrize("objective", ["clm", "electra", "ul2"])
def test_every_layer_is_pooled_over_the_texts_own_tokens(objective, speech):
    """Not over what stands around it, nor over what fills up a batch."""
    task, _, _ = prepare(make_config(speech, objective))
    program = Program(task)
    params, model = program.init_state(SEED).params, program.task.model
    rows = [[9, 12, 10, 8, 11], [8, 8, 9, 13, 10], [13, 9, 9, 11, 12]]
    tokens = np.array(rows, np.int32)
    result = pool(
        program.readers["pooled_layers"], params, tokens, 5, 2
    )  # the last row twice
    form = program.task.text_form
    before, after = form.opening, form.after
    assert bool(before or after) == (objective == "ul2")
    read = jax.jit(model.layer_features)
    for vectors, row in zip(result, rows, strict=True):
        states = read(params, jnp.array([[*before, *row, *after]]))
        own = states[:, 0, len(before) : len(before) + 5].astype(jnp.float32)
        expected = np.stack([own.mean(1), own[:, 0], own[:, 4]], axis=1)
        np.testing.assert_allclose(vectors, expected, rtol=1e-4, atol=1e-5)


def test_what_the_probe_read_is_told_of_trained_and_untrained_parameters(measured):
    program, corpora, fresh = measured
    result, _, probes = measure(program, fresh, corpora, seed=SEED)
    assert probes["trained"] == probes["untrained"]  # the same parameters
    assert result["probe_accuracy"] == result["probe_accuracy_random"]
    record = probes["trained"]
    assert record["num_layers"] == 1 and record["is_chosen"]
    best = max(max(layer) for layer in record["accuracies"])
    place = record["layer"], record["poolings"].index(record["pooling"])
    assert record["accuracies"][place[0]][place[1]] == best
    # Where it was measured already, nothing is read again.
    known = of(valid_loss=1.0, probe_accuracy=0.5)
    assert measure(program, fresh, corpora, SEED, known, known).probes == {}
    # Its examples and its probe are those of the earlier evaluation.
    last, first = ({"a": Examples(*np.full((3, 1), n))} for n in (2, 1))
    known = known._replace(examples=last, probes={"trained": "of the last"})
    control = known._replace(
        examples=first | {"probe_majority": None}, probes={"trained": "of the first"}
    )
    again = measure(program, fresh, corpora, SEED, known, control)
    assert again.examples["a"] is last["a"]
    assert again.examples["a_random"] is first["a"]
    assert "probe_majority_random" not in again.examples
    assert again.probes == {"trained": "of the last", "untrained": "of the first"}


def test_words_are_asked_for_where_settings_say_so(speech):
    """Of trained and of untrained parameters, with the same questions."""
    settings = {"eval__num_words": 4, "eval__word_context": 3, "data__row_length": 24}
    task, _, corpora = prepare(make_config(speech, "clm", **settings))
    program = Program(task)
    zeros = jax.tree.map(lambda x: 0 * x, program.init_state(SEED).params)
    result, examples, _ = measure(program, zeros, corpora, SEED)
    assert result["word_accuracy_random"] > result["word_accuracy"]
    train, valid = list_questions(program.task, corpora)
    # States that are all 0 give each question the same answer.
    shares = np.bincount(valid.words) / len(valid.words)
    assert result["word_accuracy"] in shares and count_words((train, valid)) == 4
    assert len(examples["word_accuracy"].totals) == len(valid.words)
    known = of(word_accuracy=0.5)
    again = measure(program, zeros, corpora, SEED, known, known).metrics
    assert again["word_accuracy"] == again["word_accuracy_random"] == 0.5


@pytest.mark.slow_except("bart")
@pytest.mark.parametrize("objective", ["mlm", "electra", "span_corruption", "bart"])
def test_the_states_beside_a_gap_are_read_as_in_training(objective, speech):
    """In place of the word its mask or sentinel; a decoder's as it would write it."""
    task, tokenizer, _ = prepare(make_config(speech, objective))
    vocab, program = tokenizer.vocab, Program(task)
    params, model = program.init_state(SEED).params, program.task.model
    left, right = np.array([[9, 12, 10, 8]] * 2), np.array([[11, 9, 13, 10]] * 2)
    rows = {"left": left.astype(np.int32), "right": right.astype(np.int32)}
    result = program.readers["read_gap"](params, rows)
    gap, end, start = {
        "mlm": ([vocab.mask], [], None),
        "electra": ([], [], None),
        "span_corruption": (
            [vocab.sentinels[0]],
            [vocab.eos],
            [vocab.pad, vocab.sentinels[0]],
        ),
        "bart": ([vocab.mask], [], [vocab.pad, 9, 12, 10, 8]),
    }[objective]
    ids = jnp.array([[9, 12, 10, 8, *gap, 11, 9, 13, 10, *end]] * 2)
    expected = [model.features(params, ids)[:, 3:7].reshape(2, -1)]
    if start is not None:
        expected.append(model.answer_states(params, ids, jnp.array([start] * 2))[:, -1])
    np.testing.assert_allclose(
        result, jnp.concatenate(expected, 1), rtol=1e-4, atol=1e-5
    )


CHOOSERS = {
    # What is given for each candidate, whose text is `[before] left c right [after]`.
    "clm": "likelihood",
    "mlm": "mask",
    "clm_mlm": "mask before",
    "masked_input_clm": "likelihood",
    "electra": "original",
    "replace_mlm": "restored",
    "span_corruption": "answer",
    "bart": "whole text",
    "prefix_lm": "prefix",
}


@functools.partial(jax.jit, static_argnums=0)
def score_decoder(model, params, ids, written):
    """log p [S, V] of what a decoder writes next, behind an encoder that reads ids."""
    states = model.answer_states(params, ids, written)
    logits = model.apply({"params": params}, states, method="logits")
    return jax.nn.log_softmax(logits)[0]


@pytest.mark.slow_cases("clm", "mlm", "electra", "prefix_lm")
@pytest.mark.parametrize("objective", CHOOSERS)
def test_each_chooses_in_the_form_it_was_trained_in(objective, speech):
    name, settings = VARIANTS.get(objective, (objective, {}))
    own = {f"{name}__{key}": value for key, value in settings.items()}
    own["span_corruption__mean_span_length"] = 2.0  # two spans of four tokens
    task, tokenizer, _ = prepare(make_config(speech, name, **ROWS.get(name, {}), **own))
    vocab, program = tokenizer.vocab, Program(task)
    params, model = program.init_state(SEED).params, program.task.model
    assert model.scores_ratio == (objective == "electra")
    # Drawn further apart, so that what is read shows.
    params = jax.tree.map(lambda x: 3 * x, params)
    rows = {
        "left": np.array([[9, 12, 10], [8, 9, 14]], np.int32),
        "right": np.array([[11, 9, 13], [12, 8, 9]], np.int32),
        "candidates": np.array([[10, 14, 9], [11, 12, 8]], np.int32),
    }
    result = np.asarray(program.readers["choice_scores"](params, rows))
    sides = list(zip(rows["left"].tolist(), rows["right"].tolist(), strict=True))
    expected = np.zeros((2, 3))
    for i, (left, right) in enumerate(sides):
        for j, candidate in enumerate(rows["candidates"][i].tolist()):
            whole = jnp.array([[*left, candidate, *right]])
            masked = jnp.array([[*left, vocab.mask, *right]])
            match CHOOSERS[objective]:
                case "likelihood":
                    logits = model.next_logits(params, whole)[0]
                    scores = jax.nn.log_softmax(logits)
                    expected[i, j] = sum(
                        scores[k, whole[0, k + 1]] for k in range(len(whole[0]) - 1)
                    )
                case "mask" | "mask before":
                    logits = jax.jit(model.fill_logits)(params, masked)
                    expected[i, j] = logits[0, 3, candidate]
                case "restored":
                    batch = {"inputs": whole, "segment_ids": jnp.ones_like(whole)}
                    place = jnp.array([[3]])
                    batch |= {"positions": place, "targets": whole[:, 3:4]}
                    args = params, batch, "discriminator"
                    read = jax.jit(model.target_log_probs, static_argnums=2)
                    expected[i, j] = read(*args)[0, 0]
                case "original":
                    batch = {"inputs": whole, "masked_positions": whole[:, :1]}
                    seen = {"self": full()}
                    call = {"deterministic": True, "method": "discriminate"}
                    states = model.apply({"params": params}, batch, seen, **call)
                    read = lambda model, x: model.score(x)  # noqa: E731
                    logits = model.apply({"params": params}, states, method=read)
                    expected[i, j] = -logits[0, 3]
                case "answer":  # which [EOS] or the next sentinel ends
                    gap, following = vocab.sentinels[:2]
                    ids = jnp.array([[*left, gap, *right, vocab.eos]])
                    written = jnp.array([[vocab.pad, gap, candidate]])
                    scores = jnp.exp(score_decoder(model, params, ids, written))
                    ends = scores[2, vocab.eos] + scores[2, following]
                    expected[i, j] = jnp.log(scores[1, candidate] * ends)
                case "whole text":
                    text = [*left, candidate, *right]
                    written = jnp.array([[vocab.pad, *text[:-1]]])
                    scores = score_decoder(model, params, masked, written)
                    expected[i, j] = sum(scores[k, text[k]] for k in range(3, 7))
                case "prefix":
                    batch = {
                        "inputs": jnp.array([[vocab.pad, *left, candidate, *right]]),
                        "targets": jnp.array([[*left, candidate, *right, 0]]),
                        "is_prefix": jnp.arange(8)[None] < 4,
                        "weights": {
                            "loss": jnp.float32([[0, 0, 0, 1, 1, 1, 1, 0]]),
                        },
                    }
                    module = program.task.objective
                    seen = module.masks(batch)
                    args = params, model, batch, seen, {}
                    terms, _ = module.loss(*args)
                    expected[i, j] = -terms["loss"][0]
    np.testing.assert_allclose(result, expected, rtol=1e-4, atol=1e-4)


@pytest.mark.slow
def test_choices_are_asked_for_where_settings_say_so(measured):
    program, corpora, fresh = measured
    plan = program.task.plan
    spec = dataclasses.replace(plan.eval, num_choices=3, word_context=4)
    task = dataclasses.replace(program.task, plan=dataclasses.replace(plan, eval=spec))
    with_choices = Program(task)
    zeros = jax.tree.map(lambda x: 0 * x, fresh)
    result, examples, _ = measure(with_choices, zeros, corpora, SEED)
    expected = list_choices(task, corpora)
    rarest = expected.log_draws.argmax(1) == 0  # p is the same for all tokens
    assert result["choice_bayes_accuracy"] == pytest.approx(rarest.mean(), abs=0.03)
    assert "choice_bayes_accuracy_random" in result
    np.testing.assert_array_equal(
        examples["choice_bayes_accuracy"].groups, expected.documents
    )
    # Beside them the pairs, in which the less likely by bigrams is chosen.
    pairs = list_pairs(task, corpora)
    least = np.average(
        pairs.log_bigrams[:, 0] < pairs.log_bigrams[:, 1], weights=pairs.weights
    )
    assert result["pair_accuracy"] == pytest.approx(least, abs=0.03)
    assert {"pair_nats", "pair_nats_random", "pair_accuracy_random"} <= result.keys()
    assert examples["pair_nats"].totals.dtype == np.float32
    np.testing.assert_array_equal(examples["pair_nats"].groups, pairs.documents)


def live_bytes():
    """Bytes of all arrays; those of one buffer count once."""
    gc.collect()  # those that earlier tests left behind
    buffers = {x.unsafe_buffer_pointer(): x.nbytes for x in jax.live_arrays()}
    return sum(buffers.values())


def test_random_parameters_come_without_an_optimizers_state(
    speech, tmp_path, monkeypatch
):
    """At a run's end, and in `evaluate`: at most one more copy of the parameters."""
    changes = {"model__d_model": 64, "model__num_layers": 2, "train__steps": 2}
    config = make_config(speech, "mlm", optim__ema_decay=0.9, **changes)
    before, peaks = live_bytes(), []
    init = Program.init_params

    def note(program, seed):
        params = init(program, seed)
        peaks.append(live_bytes() - before)
        return params

    monkeypatch.setattr(Program, "init_params", note)
    jaxpt.train(config, tmp_path, quiet=True)
    run = jaxpt.load(tmp_path)
    of_params = sum(x.nbytes for x in jax.tree.leaves(run.params))
    # Parameters, two moments, the moving average, and the random parameters.
    assert len(peaks) == 1 and 5 <= peaks[0] / of_params < 5.2
    del run
    gc.collect()
    before = live_bytes()
    monkeypatch.setattr(Program, "init_state", None)
    assert jaxpt.evaluate(tmp_path)["masked_accuracy_random"] < 0.5
    assert 2 <= peaks[1] / of_params < 2.2


def test_random_parameters_are_those_of_the_first_state(measured):
    program, _, params = measured
    jax.tree.map(np.testing.assert_array_equal, program.init_params(SEED), params)
