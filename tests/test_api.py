"""`import jaxpt`: runs in Python, and the commands as functions."""

import json
import re
import subprocess
import sys
from pathlib import Path

import jax
import numpy as np
import optax
import pytest
from reports import make_report, make_runs
from tiny import make_config, write_config, write_run

import jaxpt
from jaxpt.config.finetuning import default_finetune_config
from jaxpt.finetuning.summary import summarise
from jaxpt.hub.export import export_run
from jaxpt.report.page import write_report
from jaxpt.report.terminal import format_table
from jaxpt.runs.workdir import load_run


@pytest.fixture(scope="module")
def mlm(speech, tmp_path_factory):
    """A masked run before its first step, as `jaxpt.load` gives it."""
    folder = tmp_path_factory.mktemp("api") / "mlm"
    return jaxpt.load(str(write_run(make_config(speech, "mlm"), folder)))


@pytest.fixture(scope="module")
def clm(speech, tmp_path_factory):
    folder = tmp_path_factory.mktemp("api") / "clm"
    return jaxpt.load(write_run(make_config(speech, "clm"), folder))


def test_names_are_public_and_jax_is_imported_late():
    assert set(jaxpt.__all__) <= set(dir(jaxpt))
    for name in jaxpt.__all__:
        assert getattr(jaxpt, name).__doc__
    code = "import sys, jaxpt; print(jaxpt.__version__, 'jax' in sys.modules)"
    output = subprocess.run(
        [sys.executable, "-c", code], text=True, capture_output=True
    )
    assert output.stdout.split() == [jaxpt.__version__, "False"]
    with pytest.raises(AttributeError, match="no attribute 'Train'"):
        jaxpt.Train  # noqa: B018


def test_each_public_name_shows_how_it_is_used():
    for name in set(jaxpt.__all__) - {"__version__"}:
        assert ">>> " in getattr(jaxpt, name).__doc__, name
    methods = [m for n, m in vars(jaxpt.Run).items() if not n.startswith("_")]
    for method in methods:
        if not isinstance(method, property):
            assert ">>> " in method.__doc__, method


def test_a_run_tells_what_it_is(mlm):
    assert mlm.objective == "mlm" and mlm.step == 0
    assert mlm.config["model"]["d_model"] == 16
    assert mlm.tokenizer.decode(mlm.tokenizer.encode("the men")) == "the men"
    num = sum(x.size for x in jax.tree.leaves(mlm.params))
    assert f"mlm, {num:,} parameters, step 0 of {mlm.workdir}" in repr(mlm)


def test_a_run_fills_and_another_writes(mlm, clm, refuses):
    (result,) = mlm.fill("the [MASK]en", top_k=3)
    assert len(result) == 3 and sum(p for _, p in result) < 1
    assert result == sorted(result, key=lambda each: -each[1])
    texts = clm.generate("the ", num_tokens=4, num_samples=2, seed=3)
    assert len(texts) == 2 and all(text.startswith("the ") for text in texts)
    assert texts == clm.generate(["the "], num_tokens=4, num_samples=2, seed=3)
    with refuses("objective=mlm: must be that of a causal one"):
        mlm.generate("the ")
    with refuses("objective=clm: must be that of a masked one"):
        clm.fill("[MASK]")


def test_likelihoods_are_the_models(clm):
    """By its network's logits, read at the token before."""
    text = "the men speak"
    ids = clm.tokenizer.encode(text)
    left = clm.task.vocab.eos
    logits = clm.model.next_logits(clm.params, np.array([[left, *ids]]))[0, :-1]
    expected = jax.nn.log_softmax(logits)[np.arange(len(ids)), ids]
    (result,) = clm.token_log_probs(text)
    np.testing.assert_allclose(result, expected, atol=1e-5)
    both = clm.nll([text, "a"])
    np.testing.assert_allclose(both[0], -expected.sum(), rtol=1e-5)
    assert both.shape == (2,) and clm.rules == ("causal",)


@pytest.mark.parametrize("pool", ["mean", "first", "last", "none"])
def test_embeddings_are_of_each_text_alone(pool, mlm):
    """Whatever is embedded beside it, however long: padding is not seen."""
    texts = ["the men", "a", "speak to the king of men", "the men"]
    result = mlm.embed(texts, pool)
    for text, vectors in zip(texts, result, strict=True):
        ids = mlm.tokenizer.encode(text)
        states = mlm.model.features(mlm.params, ids[None])[0]
        expected = {"mean": states.mean(0), "first": states[0], "last": states[-1]}
        np.testing.assert_allclose(vectors, expected.get(pool, states), atol=1e-5)
    assert len(mlm.embed([], pool)) == 0


def test_a_pool_that_there_is_not_is_refused(mlm, refuses):
    with refuses("pool=max: must be one of mean, first, last, none"):
        mlm.embed("a", "max")


def test_a_loop_of_ones_own_is_the_commands(speech, tmp_path):
    """The same parameters after the same steps as `jaxpt.train`."""
    config = make_config(speech, "mlm", train__steps=4)
    made = jaxpt.prepare(config)
    state, step = made.init_state(seed=0), jax.jit(made.train_step)
    for i in range(4):
        state, metrics = step(state, made.feed[i])
    total, weight = metrics["loss"]
    assert 0 < total / weight < 10
    result = jaxpt.train(config, tmp_path / "run")
    assert result["steps"] == 4
    trained = load_run(tmp_path / "run").params
    for own, other in zip(*map(jax.tree.leaves, (state.params, trained)), strict=True):
        np.testing.assert_allclose(own, other, atol=1e-5)


def test_the_functions_of_an_objective_and_optax(speech):
    """Corrupt, masks, loss: all that a step is made of."""
    made = jaxpt.prepare(make_config(speech, "clm"), {"objective": "mlm"})
    task = made.task
    objective, model, optimizer = task.objective, task.model, optax.adam(1e-2)

    @jax.jit
    def step(params, opt_state, rows, key):
        rngs = jaxpt.split_step(key)
        batch = objective.corrupt(rngs["corrupt"], rows, task.vocab, task.spec)

        def mean_loss(params):
            masks = objective.masks(batch)
            terms, _ = objective.loss(params, model, batch, masks, rngs)
            total, weight = terms["loss"]
            return total / weight

        loss, grads = jax.value_and_grad(mean_loss)(params)
        updates, opt_state = optimizer.update(grads, opt_state)
        return optax.apply_updates(params, updates), opt_state, loss

    params = model.init_params(jax.random.key(0))
    opt_state, losses = optimizer.init(params), []
    for i in range(20):
        key = jaxpt.stream(0, i, "train")
        params, opt_state, loss = step(params, opt_state, made.feed[0], key)
        losses.append(float(loss))
    assert np.mean(losses[-5:]) < np.mean(losses[:5]) - 0.3


def test_the_loop_of_the_docs():
    """Runs the block of docs/python.md for fewer steps: the loss falls."""
    text = (Path(__file__).parents[1] / "docs/python.md").read_text(encoding="utf-8")
    (block,) = re.findall(r"```python\n(import jax, jaxpt, optax\n.*?)```", text, re.S)
    assert "range(100)" in block
    losses = []
    for num in (1, 12):
        names: dict = {}
        exec(block.replace("range(100)", f"range({num})"), names)
        losses.append(float(names["loss"]))
    assert losses[1] < losses[0] - 0.3


def test_settings_are_flags(speech, tmp_path, refuses):
    path = tmp_path / "config.py"
    write_config(path, speech)
    config = jaxpt.read_config(path, {"objective": "mlm", "mlm.mask_rate": 0.3})
    assert config["objective"] == "mlm" and config["mlm"]["mask_rate"] == 0.3
    stored = tmp_path / "config.json"
    stored.write_text(json.dumps({"version": "0"} | config))
    for name, value, error in (
        ("train.step", 5, "settings: train.step: unknown setting"),
        ("train.steps", "five", "settings: train.steps=five: must be a whole number"),
    ):
        with refuses(error):
            jaxpt.read_config(str(path), {name: value})


def test_settings_are_attributes(mlm):
    assert mlm.config.objective == mlm.config["objective"] == "mlm"
    assert mlm.config.train.steps == mlm.config["train"]["steps"] == 12
    assert json.loads(json.dumps(mlm.config)) == mlm.config
    with pytest.raises(AttributeError, match="no setting or section 'trian'"):
        mlm.config.trian  # noqa: B018
    config = jaxpt.read_config("quickstart", {"objective": "electra"})
    config.train.steps = 7
    changed = jaxpt.read_config(config, {"train.batch_size": 8})
    assert (changed.objective, changed.train.steps) == ("electra", 7)


def test_errors_name_arguments_and_not_flags(mlm, clm, tmp_path, refuses):
    (tmp_path / "file").write_text("")
    calls = [
        ("text: must hold", lambda: mlm.fill("no mask")),
        ("top_k=0: must be", lambda: mlm.fill("[MASK]", top_k=0)),
        ("prompts='': must", lambda: clm.generate("")),
        (
            "num_tokens=900: must",
            lambda: clm.generate("the ", num_tokens=900, num_beams=2),
        ),
        ("temperature=-1: must", lambda: clm.generate("a", temperature=-1)),
        ("rule=no: must be", lambda: clm.nll("a", rule="no")),
        ("tasks=no:x: must", lambda: jaxpt.evaluate(clm.workdir, "no:x")),
        (
            "num_items=-1: must",
            lambda: jaxpt.evaluate(clm.workdir, "pairs:x", num_items=-1),
        ),
        (
            f"workdir={tmp_path}/file: is a file",
            lambda: jaxpt.train("quickstart", tmp_path / "file"),
        ),
        ("no.py: not found", lambda: jaxpt.read_config("no.py")),
        ("train.step: unknown", lambda: jaxpt.prepare("quickstart", {"train.step": 1})),
        (f"to={tmp_path}: holds", lambda: finetune_into(tmp_path, clm.workdir)),
    ]
    for part, call in calls:
        with refuses(part) as caught:
            call()
        assert "--" not in str(caught.value), caught.value


def finetune_into(folder, run):
    config = default_finetune_config("classification")
    data = {"data.train": "a.tsv", "data.dev": "a.tsv"}
    jaxpt.finetune(config, run, folder, data, quiet=True)


def test_errors_have_classes(clm, tmp_path):
    for kind in ("Config", "Data", "Checkpoint", "Device", "Diverged"):
        assert issubclass(getattr(jaxpt, f"{kind}Error"), jaxpt.UserError)
    with pytest.raises(jaxpt.ConfigError):
        jaxpt.read_config("quickstart", {"train.step": 5})
    with pytest.raises(jaxpt.ConfigError):
        jaxpt.prepare("quickstart", {"train.steps": 0})
    with pytest.raises(jaxpt.CheckpointError):
        jaxpt.load(tmp_path)


def test_what_cannot_be_loaded_is_one_line(tmp_path, refuses):
    with refuses("source=", "this folder does not exist, and it is not a name on"):
        jaxpt.load(tmp_path / "no" / "such" / "run")
    for source in (tmp_path, "org/name@v1"):
        with refuses("revision=v2: must be left out"):
            jaxpt.load(source, revision="v2")
    with refuses("must be a run's folder, or one of transformers"):
        jaxpt.load(tmp_path)


def test_a_folder_of_transformers_is_loaded(speech, tmp_path):
    from jaxpt.hub.export import export_run

    config = make_config(speech, "clm", model__positions="learned")
    config.model.max_len = 128  # the length of default rows
    run = jaxpt.load(write_run(config, tmp_path / "run"))
    export_run(tmp_path / "run", tmp_path / "hf", "")
    again = jaxpt.load(tmp_path / "hf")
    assert again.workdir is None
    ids = run.tokenizer.encode("the men speak")
    assert again.tokenizer.encode("the men speak").tolist() == ids.tolist()
    result, expected = (
        each.model.next_logits(each.params, ids[None]) for each in (again, run)
    )
    np.testing.assert_allclose(result, expected, atol=1e-4)


def test_evaluate_asks_for_metrics_or_tasks(speech, tmp_path):
    config = make_config(speech, "clm", train__steps=2)
    result = jaxpt.train(config, tmp_path / "run", {"train.log_every": 1})
    assert jaxpt.evaluate(tmp_path / "run")["valid_loss"] == pytest.approx(
        result["metrics"]["valid_loss"], rel=1e-5
    )
    pair = {"sentence_good": "the men", "sentence_bad": "men the", "UID": "order"}
    (tmp_path / "pairs.jsonl").write_text(json.dumps(pair))
    (output,) = jaxpt.evaluate(tmp_path / "run", f"pairs:{tmp_path}/pairs.jsonl")
    assert output["num_items"] == 1 and "causal" in output["results"]


@pytest.mark.parametrize("rows", ["chunks", "packed"])
def test_an_export_scores_texts_as_its_run_does(rows, speech, tmp_path):
    specials = ("pad", "unk", "mask", "bos", "eos")
    changes = {"data__rows": rows, "tokenizer__specials": specials}
    folder = write_run(make_config(speech, "clm", **changes), tmp_path / "run")
    run = jaxpt.load(folder)
    export_run(folder, tmp_path / "exported", "gpt2")
    other = jaxpt.load(tmp_path / "exported")
    texts = ["the union", "it"]
    # Behind the [EOS] that ends the text before it, or behind nothing; never [BOS].
    is_scored = run._score().is_first_scored("causal")
    assert is_scored == other._score().is_first_scored("causal") == (rows == "chunks")
    for log_probs, its in zip(run.token_log_probs(texts), other.token_log_probs(texts)):
        np.testing.assert_allclose(its, log_probs, atol=1e-5)


@pytest.mark.slow
def test_compare_is_a_function(speech, tmp_path):
    settings = {
        "compare.objectives": ("clm", "mlm"),
        "compare.seeds": (0,),
        "compare.budget": "steps",
        "train.steps": 2,
    }
    report = jaxpt.compare(make_config(speech), tmp_path / "compared", settings)
    assert [run["objective"] for run in report["runs"]] == ["clm", "mlm"]


def test_finetune_is_a_function(mlm, tmp_path):
    rows = [f"we {'speak' if i % 2 else 'hear'} well\t{i % 2}" for i in range(8)]
    for name in ("train", "dev"):
        (tmp_path / f"{name}.tsv").write_text("\n".join(["text\tlabel", *rows, ""]))
    config = default_finetune_config("classification")
    tuned = {"task.text": "text", "task.label": "label", "task.max_len": 16}
    tuned |= {
        f"data.{name}": str(tmp_path / f"{name}.tsv") for name in ("train", "dev")
    }
    result = jaxpt.finetune(config, mlm.workdir, tmp_path / "tuned", tuned)
    assert result["examples"] == {"train": 8, "dev": 8}


@pytest.fixture(scope="module")
def comparison():
    """A comparison whose report has a shared metric, without training."""
    values = {"a": [0.9, 0.901] * 2, "b": [0.5, 0.51] * 2, "c": [0.503, 0.509] * 2}
    return jaxpt.Comparison(make_report(make_runs(values)).to_json())


def test_a_comparison_is_its_report_and_prints_as_a_table(comparison):
    assert isinstance(comparison, dict) and len(comparison["runs"]) == 12
    assert repr(comparison) == str(comparison) == format_table(comparison.report)
    html = comparison._repr_html_()
    assert html.count("<table>") == 1 and html.count("<img") == 1
    assert 'alt="Means, higher is better: a 0.90' in html
    assert "a is ahead of c and b on linear probe on frozen features." in html
    for form in ("markdown", "latex", "html"):
        assert "objective" in comparison.format(form)
        pairs = comparison.format(form, with_pairs=True)
        assert "better mean" in pairs and "better mean" not in comparison.format(form)


def test_a_comparison_has_its_tables_for_pandas(comparison):
    pytest.importorskip("pandas")
    frame = comparison.to_pandas()
    assert frame["objective"].tolist() == ["a", "c", "b"]
    assert frame["letters"].tolist() == ["a", "b", "b"]
    assert (frame["low"] <= frame["mean"]).all() and (frame["cost"] == 1.67e14).all()
    pairs = comparison.to_pandas(pairs=True)
    assert pairs["outcome"].tolist() == ["ahead", "ahead", "tie"]
    runs = comparison.to_pandas(runs=True)
    assert runs["probe_accuracy"].tolist()[:2] == [0.9, 0.901]
    assert runs["seed"].tolist() == [0, 1, 2, 3] * 3
    with pytest.raises(jaxpt.ConfigError, match="pairs=True, runs=True: must be one"):
        comparison.to_pandas(pairs=True, runs=True)


def test_a_comparison_is_read_from_its_folder(comparison, tmp_path, refuses):
    write_report(comparison.report, tmp_path)
    assert jaxpt.load_comparison(tmp_path) == comparison
    with refuses(f"{tmp_path / 'none' / 'report.json'}: not found", "of a comparison"):
        jaxpt.load_comparison(tmp_path / "none")


def test_a_run_is_a_table_in_a_notebook(mlm, refuses):
    html = mlm._repr_html_()
    assert "<td" in html and f"{mlm.num_params:,}" in html and str(mlm.workdir) in html
    with refuses("has no result.json; only a finished run has one"):
        mlm.to_pandas()


def test_a_fine_tuning_is_a_table(refuses):
    pytest.importorskip("pandas")
    cells = [
        {"lr": lr, "batch_size": 8, "epochs": 1, "seed": seed, "steps": 4}
        | {"dev": {"accuracy": value + seed / 100}}
        for lr, value in ((1e-3, 0.5), (1e-2, 0.9))
        for seed in range(3)
    ]
    content = {"task": "topics", "metric": "accuracy", "cells": cells, "method": "all"}
    content["unfinished"] = False
    content |= summarise(cells, "accuracy") | {"constant": {"dev": {"accuracy": 0.25}}}
    result = jaxpt.FineTuning(content)
    expected = "topics: dev accuracy 0.910; the best constant prediction reaches 0.250"
    assert result.sentence == expected
    assert repr(result).startswith(expected) and expected in result._repr_html_()
    frame = result.to_pandas()
    assert frame["picked"].tolist() == [False, True]
    assert frame["dev_accuracy"].tolist() == pytest.approx([0.51, 0.91])
    assert result.to_pandas(runs=True)["dev_accuracy"].tolist()[3] == 0.9
