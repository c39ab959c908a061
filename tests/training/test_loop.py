"""The loop: what it writes, how it stops, and that a resumed run ends the same."""

import ast
import dataclasses
import hashlib
import json
import os
import re
import signal
import subprocess
import sys
import time
from pathlib import Path

import jax
import jax.numpy as jnp
import numpy as np
import optax
import pytest
from stops import stop_after
from tiny import CORE, make_config, prepare, slow, slow_but, write_config

from jaxpt.cli.main import main
from jaxpt.config.plan import make_plan
from jaxpt.errors import DivergedError, UserError
from jaxpt.objectives import masked_diffusion, mlm
from jaxpt.objectives.spec import Predictions
from jaxpt.ops import kernel_choice, packing
from jaxpt.runs.checkpoint import Checkpointer
from jaxpt.runs.metrics_file import read_metrics
from jaxpt.runs.passage_samples import list_forms
from jaxpt.runs.program import Program
from jaxpt.runs.signals import SignalWatch, Stopped
from jaxpt.runs.task import make_task
from jaxpt.runs.workdir import load_run, load_task, lock_workdir
from jaxpt.text.dataset import load_text
from jaxpt.text.tokens import tokenizer as tokenizers
from jaxpt.text.tokens.tokenizer import ByteTokenizer
from jaxpt.training import evaluator, loop, run_log
from jaxpt.training.call_reader import CallReader
from jaxpt.training.check import check_run
from jaxpt.training.hooks import Hooks
from jaxpt.training.measure import Measured, measure_valid

ROOT = Path(__file__).resolve().parents[2]


PROGRAMS = {}  # by config and vocabulary: compiling is what takes time here


def run(config, workdir):
    plan = make_plan(config)
    tokenizer, corpora = load_text(plan.text)
    task = make_task(plan, tokenizer.vocab)
    key = json.dumps(plan.config, sort_keys=True), tokenizer.vocab.size
    if key not in PROGRAMS:
        PROGRAMS[key] = Program(task)
    result = loop.train(task, tokenizer, corpora, workdir, PROGRAMS[key])
    return PROGRAMS[key].task, result


def final_hash(task, workdir):
    """SHA-256 of every byte of the last checkpoint's state."""
    with Checkpointer(workdir / "checkpoints") as checkpointer:
        state, step = checkpointer.restore(Program(task).abstract_state())
    digest = hashlib.sha256(str(step).encode())
    for path, leaf in jax.tree_util.tree_leaves_with_path(state):
        digest.update(jax.tree_util.keystr(path).encode())
        digest.update(np.asarray(leaf).tobytes())
    return digest.hexdigest()


def distance(left, right):
    return float(optax.tree.norm(jax.tree.map(jnp.subtract, left, right)))


EMA = {"optim__ema_decay": 0.9}
OPTIM = {
    "clm": {"optim__name": "muon", "optim__schedule": "wsd"},
    "mlm": {},
    "span_corruption": {"optim__name": "adafactor", "optim__beta1": 0.9} | EMA,
    "electra": {"optim__name": "lamb", "train__backend": "pmap"} | EMA,
    "adaptive_mlm": {"adaptive_mlm__update_every": 3},
    "multi_token": {},
    "multi_token_heads": {"optim__name": "muon"},
    "fill_in_the_middle": {
        "model__parametrization": "completep",
        "model__num_layers": 3,
        "model__base_width": 8,
        "model__scan_layers": True,
    },
    "mixture": {"mixture__schedule": ((0.5, (0.75, 0.25)),)},
}


@pytest.mark.slow_cases("clm", "electra")
@pytest.mark.parametrize("objective", slow_but(("clm", "mlm", "electra"), OPTIM))
def test_stopped_and_resumed_ends_bit_identical(
    objective, speech, tmp_path, monkeypatch
):
    config = make_config(speech, objective, model__dropout=0.1, **OPTIM[objective])
    task, whole = run(config, tmp_path / "whole")
    with monkeypatch.context() as patch:
        patch.setattr(loop, "SignalWatch", stop_after(3))
        with pytest.raises(Stopped) as stop:
            run(config, tmp_path / "parts")
    assert "start again" in str(stop.value)
    steps = Checkpointer(tmp_path / "parts" / "checkpoints").steps()
    assert 0 < steps[-1] < config.train.steps
    _, parts = run(config, tmp_path / "parts")
    assert final_hash(task, tmp_path / "whole") == final_hash(task, tmp_path / "parts")
    assert whole["metrics"] == parts["metrics"]
    timed = {"seconds", "first_step_seconds", "tokens_per_second"}
    logs = [
        [
            {k: v for k, v in line.items() if k not in timed}
            for line in read_metrics(folder)
        ]
        for folder in (tmp_path / "whole", tmp_path / "parts")
    ]
    assert logs[0] == logs[1]


def test_a_log_that_was_altered_before_its_checkpoint_is_refused(
    speech, tmp_path, monkeypatch, refuses
):
    config = make_config(speech, "mlm", model__dropout=0.1, **OPTIM["mlm"])
    with monkeypatch.context() as patch:
        patch.setattr(loop, "SignalWatch", stop_after(3))
        with pytest.raises(Stopped):
            run(config, tmp_path)
    log = tmp_path / "metrics.jsonl"
    log.write_bytes(log.read_bytes().replace(b"loss", b"less", 1))
    with refuses(str(log), "was altered"):
        run(config, tmp_path)


@pytest.mark.parametrize(
    "kernel, changes, lacking",
    [
        ("cudnn", {}, "cudnn needs an NVIDIA GPU"),
        ("splash", {}, "splash needs a TPU"),
        ("cudnn", {"model__attention_dropout": 0.1}, "no model.attention_dropout"),
        (
            "cudnn",
            {"model__positions": "relative", "data__rows": "packed"},
            "only with a full or causal mask and rows that are not packed",
        ),
    ],
)
def test_a_kernel_that_cannot_train_this_is_refused_before_anything_is_written(
    kernel, changes, lacking, speech, tmp_path, monkeypatch, refuses
):
    config = make_config(speech, "mlm", model__attention=kernel, **changes)
    plan = make_plan(config)
    tokenizer, corpora = load_text(plan.text)
    if changes:  # what a GPU lacks is seen on a GPU
        monkeypatch.setattr(kernel_choice, "find_platform", lambda: "nvidia")
        config.model.dtype = "bfloat16"
    task = make_task(make_plan(config), tokenizer.vocab)
    with refuses(f"model.attention={kernel}: must be auto or xla here: ", lacking):
        loop.train(task, tokenizer, corpora, tmp_path / "run")
    assert not (tmp_path / "run").exists()


def test_a_run_keeps_the_dtype_it_began_with(
    speech, tmp_path, monkeypatch, refuses, capsys
):
    config = make_config(speech, train__steps=2)
    assert config.model.dtype == "auto"
    task, _ = run(config, tmp_path)
    assert "x cpu, float32" in capsys.readouterr().out
    assert task.model_spec.dtype == task.plan.model.dtype == "float32"
    stored = json.loads((tmp_path / "config.json").read_text())
    assert stored["model"]["dtype"] == "float32"
    tokenizer, corpora = load_text(task.plan.text)
    with monkeypatch.context() as patch:
        patch.setattr(jax, "default_backend", lambda: "gpu")
        elsewhere = make_task(make_plan(config), tokenizer.vocab)
        assert load_task(tmp_path)[0].model_spec.dtype == "float32"
    assert elsewhere.model_spec.dtype == "bfloat16"
    with refuses("holds a run with model.dtype=float32, not bfloat16"):
        lock_workdir(tmp_path, elsewhere.plan, tokenizer, corpora)


def start(config_path, workdir):
    command = [sys.executable, "-m", "jaxpt", "train"]
    command += ["--config", str(config_path), "--workdir", str(workdir)]
    return subprocess.Popen(
        command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
    )


def wait_for_step(workdir, step):
    for _ in range(1200):
        if any(line["step"] >= step for line in read_or_empty(workdir)):
            return
        time.sleep(0.05)
    raise AssertionError("the run never got there")


def read_or_empty(workdir):
    return read_metrics(workdir) if (workdir / "metrics.jsonl").exists() else []


def test_killed_with_sigkill_and_started_again_ends_bit_identical(
    speech, tmp_path, capsys
):
    changes = {
        "train__steps": 200,
        "train__checkpoint_every": 20,
        "model__dropout": 0.1,
    }
    write_config(tmp_path / "config.py", speech, objective="mlm", **changes)
    process = start(tmp_path / "config.py", tmp_path / "parts")
    wait_for_step(tmp_path / "parts", 60)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert not (tmp_path / "parts" / "result.json").exists()
    config = make_config(speech, "mlm", **changes)
    run(config, tmp_path / "parts")
    assert "resuming from step" in capsys.readouterr().out
    task, _ = run(config, tmp_path / "whole")
    assert final_hash(task, tmp_path / "whole") == final_hash(task, tmp_path / "parts")


@pytest.mark.slow
def test_sigterm_saves_and_says_so(speech, tmp_path):
    write_config(tmp_path / "config.py", speech, train__steps=100_000)
    process = start(tmp_path / "config.py", tmp_path / "run")
    wait_for_step(tmp_path / "run", 6)
    process.send_signal(signal.SIGTERM)
    _, err = process.communicate(timeout=60)
    assert process.returncode == 128 + signal.SIGTERM
    assert "stopped at step" in err and "Traceback" not in err
    step = int(err.split("stopped at step ")[1].split(";")[0])
    assert Checkpointer(tmp_path / "run" / "checkpoints").steps()[-1] == step


@pytest.mark.parametrize("signum", [signal.SIGTERM, signal.SIGINT, signal.SIGHUP])
def test_a_signal_is_remembered_and_a_second_one_acts(signum):
    received = []
    before = signal.signal(signum, lambda *args: received.append(args[0]))
    try:
        with SignalWatch() as watch:
            assert watch.ask() is None
            signal.raise_signal(signum)
            assert (watch.ask(), received) == (signum, [])
            signal.raise_signal(signum)
            assert received == [signum]
    finally:
        signal.signal(signum, before)


def test_a_run_under_nohup_survives_its_terminal():
    before = signal.signal(signal.SIGHUP, signal.SIG_IGN)
    try:
        with SignalWatch() as watch:
            signal.raise_signal(signal.SIGHUP)
            assert watch.ask() is None
    finally:
        signal.signal(signal.SIGHUP, before)


def test_a_signal_during_the_last_measurement_is_not_lost(
    speech, tmp_path, monkeypatch
):
    measure = evaluator.measure

    def interrupted(*args, **keywords):
        signal.raise_signal(signal.SIGINT)
        return measure(*args, **keywords)

    monkeypatch.setattr(evaluator, "measure", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(make_config(speech), tmp_path)
    assert (tmp_path / "result.json").exists()


def test_a_batch_that_devices_cannot_share_leaves_nothing_behind(
    speech, tmp_path, monkeypatch
):
    task, tokenizer, corpora = prepare(make_config(speech))
    three = jax.devices() * 3
    monkeypatch.setattr(jax, "devices", lambda: three)
    with pytest.raises(UserError, match="train.batch_size=8"):
        loop.train(task, tokenizer, corpora, tmp_path / "run")
    assert not (tmp_path / "run").exists()


@pytest.mark.slow
def test_result_and_log_say_what_was_done(speech, tmp_path):
    config = make_config(speech, "mlm", train__eval_every=4)
    task, result = run(config, tmp_path)
    assert result == json.loads((tmp_path / "result.json").read_text())
    assert result["objective"] == "mlm" and result["steps"] == 12
    assert result["raw_tokens"] == 12 * 8 * 24 == result["model_tokens"]
    assert result["flops"] == 12 * 8 * task.count_flops()
    leaves = jax.tree.leaves(Program(task).abstract_state().params)
    assert result["params"] == sum(leaf.size for leaf in leaves)
    assert [point["step"] for point in result["curve"]] == [0, 4, 8, 12]
    assert result["train_seconds"] > 0 and result["steps_per_second"] > 0
    assert result["first_step_seconds"] > 0
    trained = [line for line in read_metrics(tmp_path) if "lr" in line]
    assert [line["step"] for line in trained] == [2, 4, 6, 8, 10, 12]
    assert trained[0]["raw_tokens"] == 2 * 8 * 24
    assert any((tmp_path / "tensorboard").iterdir())


@pytest.mark.slow
def test_the_mean_of_the_parameters_is_what_is_judged(speech, tmp_path, capsys):
    changes = {"train__eval_every": 6}
    _, plain_result = run(make_config(speech, **changes), tmp_path / "plain")
    assert "EMA" not in capsys.readouterr().out
    config = make_config(speech, **changes, **EMA)
    task, result = run(config, tmp_path / "mean")
    out = capsys.readouterr().out
    assert "(EMA), optim.ema_decay=0.9" in out and "step 6 (EMA)  valid_loss" in out
    assert result["ema_decay"] == 0.9 and "ema_decay" not in plain_result
    # Training is the same without it, as far as two programs round alike.
    with Checkpointer(tmp_path / "mean" / "checkpoints") as checkpointer:
        state, _ = checkpointer.restore(Program(task).abstract_state())
    _, _, params, _ = load_run(tmp_path / "plain")
    off = distance(params, state.params)
    # What is used afterwards, and what was measured, is the mean.
    program, _, mean, _ = load_run(tmp_path / "mean")
    assert jax.tree.all(jax.tree.map(np.array_equal, mean, state.ema))
    # It has followed the parameters, from a few steps behind.
    fresh = program.init_state(config.train.seed).params
    far, near = (distance(tree, state.params) for tree in (fresh, mean))
    assert 0 < near < far / 2 and off < near / 1000
    _, corpora = load_text(task.plan.text)
    for params, results in ((mean, result), (state.params, plain_result)):
        loss = measure_valid(program, params, corpora)["valid_loss"]
        assert results["metrics"]["valid_loss"] == pytest.approx(loss, rel=1e-6)
    lines = read_metrics(tmp_path / "mean")
    assert all(("valid_loss" in line) == ("ema_decay" in line) for line in lines)


@pytest.mark.slow_cases("mlm")
@pytest.mark.parametrize("objective", slow_but(("mlm",), CORE))
def test_samples_are_shown_and_change_nothing(objective, speech, tmp_path, capsys):
    settings = {"train__steps": 4, "train__eval_every": 2, "model__dropout": 0.1}
    logs, hashes, program = [], [], None
    for num in (0, 2):
        folder = tmp_path / str(num)
        config = make_config(speech, objective, eval__samples=num, **settings)
        task, tokenizer, corpora = prepare(config)
        program = program or Program(task)
        loop.train(task, tokenizer, corpora, folder, program)
        hashes.append(final_hash(task, folder))
        logs.append(read_metrics(folder))
    assert hashes[0] == hashes[1]
    output = [line.pop("sample").splitlines() for line in logs[1] if "sample" in line]
    assert len(output) == 3 and all(
        len(lines) == 2 for lines in output
    )  # steps 0, 2, 4
    form = list_forms(task)[0]
    printed = capsys.readouterr().out.splitlines()
    for step, lines in zip((0, 2, 4), output):
        places = [printed.index(f"step {step}  {line}") for line in lines]
        assert all(line.startswith(f"{form}: ") for line in lines)
        # Behind the evaluation's own line.
        assert printed[places[0] - 1].startswith(f"step {step}  valid_loss")
        assert places[1] == places[0] + 1
    timed = ("seconds", "first_step_seconds", "tokens_per_second")
    for line in (*logs[0], *logs[1]):
        for name in timed:
            line.pop(name, None)
    assert logs[0] == logs[1]


@pytest.mark.slow
def test_a_trace_of_the_steps_after_compiling_changes_nothing(speech, tmp_path):
    hashes, traces, program = [], [], None
    for num in (0, 3):
        settings = {"train__steps": 8, "train__profile_steps": num}
        task, tokenizer, corpora = prepare(make_config(speech, "clm", **settings))
        program = program or Program(task)
        loop.train(task, tokenizer, corpora, tmp_path / str(num), program)
        hashes.append(final_hash(task, tmp_path / str(num)))
        traces.append(list((tmp_path / str(num)).rglob("profile/**/*.xplane.pb")))
    assert hashes[0] == hashes[1]
    assert [len(result) for result in traces] == [0, 1]
    # Two calls of two steps are in it, as many as hold three, but not the first.
    data = jax.profiler.ProfileData.from_file(str(traces[1][0]))
    events = [e for p in data.planes for line in p.lines for e in line.events]
    calls = [dict(event.stats)["step_num"] for event in events if event.name == "train"]
    assert sorted(map(int, calls)) == [2, 4]


def test_a_run_of_many_shows_no_samples(speech, tmp_path):
    config = make_config(speech, "clm", train__steps=2, eval__samples=1)
    task, tokenizer, corpora = prepare(config)
    loop.train(task, tokenizer, corpora, tmp_path, label="clm seed 0")
    assert not any("sample" in line for line in read_metrics(tmp_path))


@pytest.mark.slow
def test_a_step_logs_its_rates_and_the_gradients_norm(speech, tmp_path):
    config = make_config(speech, optim__name="muon", optim__warmup_steps=10)
    run(config, tmp_path)
    for line in read_metrics(tmp_path):
        if "lr" in line and line["step"] <= 10:
            share = (line["step"] - 1) / 10
            assert line["lr"] == pytest.approx(1e-3 * share)
            assert line["muon_lr"] == pytest.approx(0.02 * share)
            assert 0 < line["grad_norm"] < 100


def test_what_is_logged_waits_for_no_device(speech, tmp_path, monkeypatch):
    """A call is running; whatever is computed beside it would wait until it ends."""
    log_call, num = run_log.RunLog.log_call, []

    def guarded(self, *args):
        num.append(args)
        with jax.transfer_guard("disallow"):
            log_call(self, *args)

    monkeypatch.setattr(run_log.RunLog, "log_call", guarded)
    run(make_config(speech, optim__warmup_steps=10), tmp_path)
    assert num


def test_what_mfu_means_is_said_with_it(speech, tmp_path, capsys, monkeypatch):
    monkeypatch.setattr(run_log, "device_peak", lambda: 1e12)
    _, result = run(make_config(speech), tmp_path)
    header, *_, last = [
        line for line in capsys.readouterr().out.splitlines() if "mfu" in line
    ]
    assert "6N + 12LdT a token" in header and "peak" in header
    assert re.search(r"  mfu \d+\.\d%  ", last)
    for line in read_metrics(tmp_path):
        if "mfu" in line:
            # A row's operations by its 24 tokens, times tokens a second.
            per_token = result["flops"] / result["raw_tokens"]
            expected = line["tokens_per_second"] * per_token / 1e12
            assert line["mfu"] == pytest.approx(expected)


def test_a_lost_fused_kernel_is_said(speech, tmp_path, monkeypatch):
    """Of a published preset's dropout on a GPU, where cuDNN would have served."""
    changes = {"model__dtype": "bfloat16", "model__attention_dropout": 0.1}
    task, tokenizer, corpora = prepare(make_config(speech, **changes))
    program, feed = check_run(task, tokenizer, corpora)
    log = run_log.RunLog(program, feed, corpora, tmp_path)
    assert not any("fused" in line for line in log.list_header())
    monkeypatch.setattr(kernel_choice, "find_platform", lambda: "nvidia")
    expected = "without the fused kernel: xla, as cudnn has no model.attention_dropout"
    assert any(line.endswith(expected) for line in log.list_header())


@pytest.mark.parametrize(
    ("changes", "said"),
    [
        ({}, "mlm reads 24 tokens at once, so eval.word_context=16 must be at most 11"),
        ({"eval__word_context": 4}, ""),
        ({"eval__pair_questions": 0}, ""),
    ],
)
def test_a_run_reports_why_it_lacks_the_shared_metric(changes, said, speech, tmp_path):
    task, tokenizer, corpora = prepare(make_config(speech, "mlm", **changes))
    program, feed = check_run(task, tokenizer, corpora)
    for label in ("", "mlm seed 0"):  # a comparison has one line for all of its runs
        log = run_log.RunLog(program, feed, corpora, tmp_path, label)
        lines = [x for x in log.list_header() if x.startswith("bigram-matched cloze")]
        is_said = bool(said) and not label
        assert lines == [f"bigram-matched cloze: not measured: {said}"] * is_said


def test_a_run_that_leaves_out_predictions_warns_once(
    speech, tmp_path, capsys, monkeypatch
):
    """With a law of 16 tokens of each row, where 21.6 of 24 are masked on average."""
    wrong = Predictions(24, {"loss": packing.exactly(16)})
    monkeypatch.setattr(masked_diffusion.Spec, "predictions", wrong)
    settings = {"masked_diffusion__min_rate": 0.8, "train__steps": 4}
    config = make_config(speech, "masked_diffusion", **settings)
    task, tokenizer, corpora = prepare(config)
    loop.train(task, tokenizer, corpora, tmp_path, only_valid=True)
    lines = capsys.readouterr().err.splitlines()
    (result,) = [line for line in lines if line.startswith("jaxpt: warning: ")]
    share = re.search(r"masked_diffusion leaves (\d+\.\d\d)% of its pred", result)[1]
    assert float(share) == pytest.approx(100 * (1 - 16 / 21.6), abs=3)
    assert "train.num_microbatches" in result


def test_controls_are_of_the_evaluation_before_the_first_step(
    speech, tmp_path, monkeypatch
):
    """A run that evaluates its probes as it goes does not measure them again."""
    kwargs = {}

    def measure(program, params, corpora, seed, known, control):
        kwargs.update(known=known, control=control)
        return Measured({"valid_loss": 1.0}, {}, {})

    monkeypatch.setattr(evaluator, "measure", measure)
    _, result = run(make_config(speech, eval__probe_every_eval=True), tmp_path)
    lines = {line["step"]: line for line in read_metrics(tmp_path)}
    for name, step in (("control", 0), ("known", 12)):
        values = kwargs[name].metrics
        assert values.items() <= lines[step].items() and "valid_loss" in values
    assert kwargs["control"].metrics != kwargs["known"].metrics
    assert result["metrics"] == {"valid_loss": 1.0}


def test_hooks_are_called_with_what_happened(speech, tmp_path):
    calls = []

    def copy(x):
        return np.array(x) if isinstance(x, jax.Array) else x

    def keep(name):
        return lambda *args: calls.append((name, *jax.tree.map(copy, args)))

    names = ("on_log", "on_evaluation", "on_checkpoint", "on_end")
    hooks = Hooks(**{name: keep(name) for name in names})
    plan = make_plan(make_config(speech, train__log_every=4, **EMA))
    tokenizer, corpora = load_text(plan.text)
    task = make_task(plan, tokenizer.vocab)
    result = loop.train(task, tokenizer, corpora, tmp_path, hooks=hooks)
    lines = [line for line in read_metrics(tmp_path) if "loss" in line]
    logged = [call[1:] for call in calls if call[0] == "on_log"]
    assert [step for step, _ in logged] == [line["step"] for line in lines]
    assert [step for step, _ in logged] == [4, 8, 12]  # calls have 2 steps
    assert [v["loss"] for _, v in logged] == [line["loss"] for line in lines]
    evaluated = [call[1:] for call in calls if call[0] == "on_evaluation"]
    curve = {point["step"]: point["valid_loss"] for point in result["curve"]}
    assert {step: values["valid_loss"] for step, values, _ in evaluated} == curve
    states = [call[1:] for call in calls if call[0] == "on_checkpoint"]
    step, state = states[-1]
    assert step == state.step == evaluated[-1][0] == 12
    for other, is_same in ((state.ema, True), (state.params, False)):  # are the EMA
        same = jax.tree.map(np.array_equal, evaluated[-1][2], other)
        assert jax.tree.all(same) == is_same
    assert calls[-1] == ("on_end", result)


def test_few_predictions_without_a_slot_are_no_warning(speech, tmp_path):
    plan = make_plan(make_config(speech))
    task = make_task(plan, load_text(plan.text)[0].vocab)
    log = run_log.RunLog(Program(task), None, {}, tmp_path)
    lines = []
    log.warn = lines.append
    for left_out in (0.0, 2.0, 2.0):  # of 1,000 in each of two steps
        log.check_overflow({"overflow": (np.array([left_out, 0]), np.full(2, 1e3))})
        log.check_overflow({"loss": (np.ones(2), np.ones(2))})
    assert lines == []  # 4 of 6,000
    for _ in range(2):
        log.check_overflow({"overflow": (np.array([3.0, 3.0]), np.full(2, 1e3))})
    assert len(lines) == 1 and "clm leaves 0.12% of its predictions" in lines[0]


def test_a_run_says_what_takes_long_and_when_it_will_end(speech, tmp_path, capsys):
    plan = make_plan(make_config(speech))
    tokenizer, corpora = load_text(plan.text)
    task = make_task(plan, tokenizer.vocab)
    result = loop.train(task, tokenizer, corpora, tmp_path)  # nothing compiled before
    lines = capsys.readouterr().out.splitlines()
    size, steps = task.plan.train.steps_per_call, result["steps"]
    silent = [
        "evaluating the initial parameters",
        f"compiling a call of {size} steps",
        f"measuring the run after step {steps}",
    ]
    places = [lines.index(line) for line in silent]
    assert places == sorted(places)
    (end,) = [i for i, line in enumerate(lines) if line.startswith("training takes ")]
    first = next(i for i, line in enumerate(lines) if line.startswith("step 0 "))
    assert places[0] < first < places[1] < end < places[2]


def test_the_time_left_is_of_the_calls_left(speech, tmp_path):
    task, _ = run(make_config(speech), tmp_path)
    program = Program(task)
    log = run_log.RunLog(program, None, {}, tmp_path)
    lines = []
    log.info = lines.append
    call, size = task.plan.train.steps_per_call, task.plan.train.steps
    log.log_end_time(
        call, 0.0, 3600.0 * call / (size - call), call
    )  # an hour for the rest
    log.log_end_time(size, 0.0, 9.0, call)  # nothing is left
    assert len(lines) == 1 and "takes 1:00 hours more" in lines[0]
    log.spec = dataclasses.replace(log.spec, seconds=3 * 3600.0)
    log.log_end_time(call, 100.0, 1.0, call)  # by the clock, not by steps
    assert "takes 2:58 hours more" in lines[1] and lines[2].startswith("warning: ")


LOOP = ("loop", "setup", "restore", "call_reader", "evaluator", "saver", "rewind")


@pytest.mark.parametrize("name", LOOP)
def test_the_loop_reads_like_a_loop(name):
    """One function, in a short file; its objects change a value in one method only."""
    text = Path(loop.__file__).with_name(f"{name}.py").read_text()
    assert len(text.splitlines()) <= 250
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, ast.FunctionDef):
            assert node.end_lineno - node.lineno < 80, node.name
        if isinstance(node, ast.ClassDef):
            methods = [x for x in node.body if isinstance(x, ast.FunctionDef)]
            changed = [
                target.attr
                for method in methods
                if method.name != "__init__"
                for target in {
                    x.attr: x
                    for x in ast.walk(method)
                    if isinstance(x, ast.Attribute) and isinstance(x.ctx, ast.Store)
                }.values()
            ]
            assert len(changed) == len(set(changed)), node.name


def test_a_finished_run_is_not_trained_again(speech, tmp_path):
    config = make_config(speech)
    _, first = run(config, tmp_path)
    before = (tmp_path / "metrics.jsonl").read_bytes()
    _, second = run(config, tmp_path)
    assert first == second
    assert (tmp_path / "metrics.jsonl").read_bytes() == before


def test_a_loss_that_is_not_finite_stops_the_run(speech, tmp_path):
    # Without clipping, Adam's step is lr itself: parameters of 1e25 overflow in a
    # product.
    config = make_config(speech, optim__lr=1e25, optim__schedule="constant")
    with pytest.raises(DivergedError) as error:
        run(config, tmp_path)
    message = str(error.value)
    assert "at step 2 " in message and "optim.lr=1e+25" in message
    assert not (tmp_path / "result.json").exists()


def test_divergence_keeps_the_last_good_checkpoint(speech, tmp_path, monkeypatch):
    config = make_config(speech)
    read = CallReader.read

    def poisoned(self, call):
        if call and call.step > 8:
            total, weight = call.metrics["loss"]
            bad = {"loss": (total * np.nan, weight)}
            call = call._replace(metrics=call.metrics | bad)
        read(self, call)

    monkeypatch.setattr(CallReader, "read", poisoned)
    with pytest.raises(
        DivergedError, match="the loss is nan at step 9 .*step 8 is kept"
    ):
        run(config, tmp_path)
    with Checkpointer(tmp_path / "checkpoints") as checkpointer:
        assert checkpointer.steps()[-1] == 8


def test_an_altered_checkpoint_falls_back_and_says_so(speech, tmp_path, capsys):
    config = make_config(speech)
    task, _ = run(config, tmp_path)
    (tmp_path / "result.json").unlink()
    good = final_hash(task, tmp_path)
    for file in sorted((tmp_path / "checkpoints" / "12").rglob("*")):
        if file.is_file() and file.stat().st_size > 1000:
            content = bytearray(file.read_bytes())
            content[len(content) // 2] ^= 1
            file.write_bytes(content)
            break
    run(config, tmp_path)
    assert "12" in capsys.readouterr().err
    assert final_hash(task, tmp_path) == good


def test_refuses_when_no_checkpoint_is_good(speech, tmp_path):
    config = make_config(speech)
    run(config, tmp_path)
    for file in (tmp_path / "checkpoints").rglob("*"):
        if file.is_file() and not file.name.endswith(".manifest.json"):
            os.truncate(file, file.stat().st_size // 2)
    with pytest.raises(UserError):
        run(config, tmp_path)


@pytest.mark.parametrize(
    "change, named",
    [
        slow({"optim__lr": 5e-4}, "optim.lr"),
        ({"train__seed": 7}, "train.seed"),
        slow({"tokenizer__kind": "byte"}, "tokenizer.kind"),
        slow({"data__valid_fraction": 0.2}, "data.valid_fraction"),
    ],
)
def test_a_folder_of_another_config_is_refused_untouched(
    change, named, speech, tmp_path
):
    run(make_config(speech), tmp_path)
    before = {f: f.read_bytes() for f in tmp_path.rglob("*") if f.is_file()}
    with pytest.raises(UserError, match=named.replace(".", r"\.")):
        run(make_config(speech, **change), tmp_path)
    assert before == {f: f.read_bytes() for f in tmp_path.rglob("*") if f.is_file()}


def test_a_folder_of_other_text_or_tokenizer_is_refused(speech, tmp_path):
    text = tmp_path / "text.txt"
    content = speech.read_text(encoding="utf-8")
    text.write_text(content, encoding="utf-8")
    run(make_config(text), tmp_path / "run")
    text.write_text(content.replace("the", "eth"), encoding="utf-8")
    with pytest.raises(UserError, match="other text"):
        run(make_config(text), tmp_path / "run")
    text.write_text(content + "Ω", encoding="utf-8")
    with pytest.raises(UserError, match="another tokenizer"):
        run(make_config(text), tmp_path / "run")


@pytest.mark.slow
def test_a_runs_tokenizer_is_the_one_in_its_folder(speech, tmp_path, capsys):
    """Wherever the run lies, and whatever became of the file that it was given."""
    tokenizer_path, first = tmp_path / "given.json", tmp_path / "first"
    tokenizer, _ = load_text(make_plan(make_config(speech)).text)
    tokenizers.save(tokenizer, tokenizer_path)
    few = {"train__steps": 2, "tokenizer__kind": "file"}
    config = make_config(speech, tokenizer__path=str(tokenizer_path), **few)
    _, result = run(config, first)
    # Its own copy is the same file, so this is the same run.
    own = make_config(speech, tokenizer__path=str(first), **few)
    assert run(own, first)[1] == result
    first.rename(tmp_path / "moved")
    tokenizers.save(ByteTokenizer(("pad", "unk", "mask", "eos"), 4), tokenizer_path)
    (tmp_path / "moved" / "result.json").unlink()
    assert main(["train", f"--workdir={tmp_path / 'moved'}"]) == 0
    assert main(["evaluate", f"--workdir={tmp_path / 'moved'}"]) == 0
    stored = json.loads((tmp_path / "moved" / "result.json").read_text())
    assert stored["metrics"] == result["metrics"]
    with pytest.raises(UserError, match="another tokenizer"):
        run(config, tmp_path / "moved")


def test_settings_that_change_no_number_may_change(speech, tmp_path):
    run(make_config(speech), tmp_path)
    more = {"train__log_every": 3, "eval__samples": 1, "mlm__mask_rate": 0.5}
    run(make_config(speech, **more), tmp_path)


def test_two_good_checkpoints_are_kept(speech, tmp_path):
    run(make_config(speech), tmp_path)
    assert Checkpointer(tmp_path / "checkpoints").steps() == [8, 12]


def test_a_result_is_written_after_the_last_checkpoint(speech, tmp_path, monkeypatch):
    """A process may be killed between the two: a result says that all is there."""
    order, write, wait = [], loop.write_result, Checkpointer.wait

    def write_last(workdir, *args):
        order.append("result")
        return write(workdir, *args)

    def wait_before(checkpointer):
        wait(checkpointer)
        order.append(checkpointer.steps())

    monkeypatch.setattr(loop, "write_result", write_last)
    monkeypatch.setattr(Checkpointer, "wait", wait_before)
    task, tokenizer, corpora = prepare(make_config(speech, train__steps=4))
    loop.train(task, tokenizer, corpora, tmp_path / "run")
    assert order[order.index("result") - 1][-1] == 4


NO_SPACES = "abcdefgh" * 800


@pytest.mark.parametrize("masking", ["words", "spans"])
def test_text_without_words_is_refused_before_training(masking, tmp_path, refuses):
    (tmp_path / "text.txt").write_text(NO_SPACES)
    config = make_config(tmp_path / "text.txt", "mlm", mlm__masking=masking)
    with refuses(f"mlm.masking={masking}", "100%", "no spaces", "must be tokens"):
        run(config, tmp_path / "run")
    assert not (tmp_path / "run" / "metrics.jsonl").exists()


def test_batches_without_targets_are_no_divergence(tmp_path, monkeypatch, capsys):
    """Each row is one word, which is never hidden."""
    monkeypatch.setattr(mlm.Spec, "check_rows", lambda *_: None)
    (tmp_path / "text.txt").write_text(NO_SPACES)
    config = make_config(tmp_path / "text.txt", "mlm", mlm__masking="words")
    run(config, tmp_path / "run")
    result = capsys.readouterr()
    assert "steps 1 to 2: 2 batches have no token" in result.out + result.err
    assert "nan" not in json.dumps(read_metrics(tmp_path / "run")[1])
