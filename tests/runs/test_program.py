"""Eight devices on any mesh give one device's numbers, for every objective."""

import json
import os
import subprocess
import sys
import types
from pathlib import Path

import jax
import numpy as np
import pytest
from tiny import make_config, many_devices, prepare, slow

from jaxpt.config.plan import make_plan
from jaxpt.errors import UserError
from jaxpt.objectives import OBJECTIVES
from jaxpt.ops.layout import LENGTH_AXIS
from jaxpt.runs.data import make_feed
from jaxpt.runs.program import Program, _fit_mesh, device_peak
from jaxpt.runs.readers import Readers
from jaxpt.runs.task import make_task
from jaxpt.text.dataset import load_text

ROOT = Path(__file__).resolve().parents[2]
SCRIPT = ROOT / "tests" / "training" / "losses_by_devices.py"


def check_shares(name, trees):
    """What each device truly holds of the parameters and of both Adam moments."""
    for shares in trees:
        if name in ("data 8", "pmap 8", "data 2, context 4", "data 4, context 2"):
            whole = 0.125 if name == "pmap 8" else 1.0  # pmap's have an axis of devices
            assert set(shares.values()) == {whole}
            continue
        count = {"microbatches": 2, "fsdp 2, context 2, tensor 2": 4}.get(name, 8)
        if set(shares) == {"words", "contexts"}:  # skip_gram's, which has no layers
            assert max(shares.values()) < 1
            continue
        for path, share in shares.items():
            if path.endswith(("mlp/up/kernel", "query/kernel")):
                assert share == 1 / count, path
            if path.endswith("norm/scale"):
                assert share == 1, path
        assert max(shares.values()) == 1 and len(shares) > 15


# Of two and of three stacks one objective on the mesh that splits most; one of a single
# stack in other forms. All on all is slow.
ALL = "mlm"
SPLIT = ("one", "tensor 2, fsdp 4")
NO_SPANS = ("bilm", "skip_gram")
QUICK = {
    ALL: ("one", "fsdp 8", "pmap 8"),
    f"{ALL}/schedules": ("one", "fsdp 8", "pmap 8"),
    "span_corruption": SPLIT,
    "electra": SPLIT,
}
# Whose attention masks or blocks change while they train.
CONVERTED = ("diffusion_from_causal", "growing_blocks")


def list_cases():
    for objective, cases in QUICK.items():
        yield pytest.param(objective, cases, id=f"{objective}-some")
    for objective in (*OBJECTIVES, *CONVERTED, "clm/completep"):
        yield pytest.param(objective, (), marks=pytest.mark.slow, id=objective)


def run_script(speech, objective, *cases):
    """What losses_by_devices.py prints, by case."""
    path = os.pathsep.join([str(ROOT), str(ROOT / "tests")])
    done = subprocess.run(
        [sys.executable, str(SCRIPT), str(speech), objective, *cases],
        env={**os.environ, **many_devices(8), "PYTHONPATH": path},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout.splitlines()[-1])


def check_alike(one, data):
    """First gradients, 30 losses and measures of each mesh against one device's."""
    scale = max(map(abs, one["grads"]))
    assert scale > 1e-4  # there is a gradient to compare
    for name, other in data.items():
        check_shares(name, other["shares"])
        pairs = zip(one["grads"], other["grads"], strict=True)
        assert max(abs(a - b) for a, b in pairs) < 1e-5 * scale, name
        assert other["norm"] == pytest.approx(one["norm"], rel=1e-5), name
        pairs = zip(one["losses"], other["losses"], strict=True)
        assert max(abs(a - b) / abs(a) for a, b in pairs) < 1e-5, name
        # The last of 13 rows are measured with three that only fill up their batch.
        for metric, pair in (other["measured"] or {}).items():
            assert pair == pytest.approx(one["measured"][metric], rel=1e-5), metric


@pytest.mark.slow_cases("electra-some", "span_corruption-some", "mlm/schedules-some")
@pytest.mark.parametrize("objective, cases", list(list_cases()))
def test_eight_devices_give_one_devices_numbers(objective, cases, speech):
    data = run_script(speech, objective, *cases)
    one = data.pop("one")
    every = {"data 8", "fsdp 8", "tensor 2, fsdp 4", "pmap 8"}
    assert set(cases) - {"one"} <= set(data) if cases else every <= set(data)
    check_alike(one, data)
    is_measured = [bool(other["measured"]) for other in data.values()]
    assert sum(is_measured) == (1 if cases else 2)
    # A device gathers matrices; no hidden states, which are larger here, are exchanged.
    if objective == ALL:
        assert not one["collectives"]
        # Matrices are gathered, and gradients summed up.
        (_, gathered), (_, summed) = (
            data["fsdp 8"]["collectives"][kind] for kind in ("all-gather", "all-reduce")
        )
        assert gathered > 4 * one["largest"] and summed > 2 * len(one["grads"])
        assert data["fsdp 8"]["moved"] <= one["largest"] < 16 * 20 * 16


# Rows whose positions are on several devices: packed, in full, with relative positions
# and dropout. All others are slow.
SPAN_FORMS = [
    "mlm/context",
    slow("clm/context"),
    slow("clm/context_full"),
    slow("mlm/context_relative"),
    slow("mlm/context_disentangled"),
    slow("electra/context"),
    slow("masked_diffusion/context"),
    slow("span_corruption/context"),
    slow("span_corruption/context_relative"),
    # Rows of UL2 in full have two stacks that differ by one token.
    slow("ul2/context"),
    *(slow(f"{n}/context_full") for n in OBJECTIVES if n not in ("ul2", *NO_SPANS)),
]


@pytest.mark.parametrize("objective", SPAN_FORMS)
def test_spans_of_rows_give_one_devices_numbers(objective, speech):
    data = run_script(speech, objective)
    one = data.pop("one")
    context, both = data  # four devices, or two where no rows divide over four
    assert context in ("data 2, context 4", "data 4, context 2")
    assert both == "fsdp 2, context 2, tensor 2"
    check_alike(one, data)
    # Keys and values go round.
    assert "collective-permute" in data[context]["collectives"]


@pytest.mark.parametrize("objective", NO_SPANS)
def test_a_network_without_attention_does_not_divide_rows(objective, speech):
    task, _, _ = prepare(make_config(speech, objective, train__context=2))
    words = f"train.context=2: must be 1 with objective={objective}"
    with pytest.raises(UserError, match=words):
        Program(task, jax.devices() * 2)


def test_a_batch_that_devices_cannot_share_is_refused(speech):
    plan = make_plan(make_config(speech, train__batch_size=6))
    tokenizer, _ = load_text(plan.text)
    with pytest.raises(UserError, match="train.batch_size=6"):
        Program(make_task(plan, tokenizer.vocab), jax.devices() * 4)


def test_ids_that_the_devices_do_not_divide_are_told(speech):
    task, tokenizer, _ = prepare(make_config(speech, "clm"))
    program, size = Program(task), tokenizer.vocab.size
    assert program.describe_mesh() == []
    for tensor in (2, 7):
        shape = {"data": 1, "fsdp": 1, "tensor": tensor}
        program.mesh, program.devices = types.SimpleNamespace(shape=shape), [None] * 7
        output = [line for line in program.describe_mesh() if "vocab_size" in line]
        assert len(output) == (size % tensor > 0), (size, tensor)
    assert output[0].startswith(f"model.vocab_size={size} is not a multiple of train.")


def test_the_mesh_names_an_axis_of_length_only_where_it_divides(speech):
    task, *_ = prepare(make_config(speech, "clm"))
    program = Program(task)
    program.devices = [None] * 2
    for length in (1, 3):
        shape = {"data": 2, "fsdp": 1, "tensor": 1, LENGTH_AXIS: length}
        program.mesh = types.SimpleNamespace(shape=shape)
        (line, *_) = program.describe_mesh()
        assert (f"{LENGTH_AXIS} {length}" in line) == (length > 1)
        assert "data 2 x fsdp 1 x tensor 1" in line


def test_a_reader_is_made_when_it_is_used_and_only_of_an_ability(speech):
    task, _, _ = prepare(make_config(speech, "clm"))
    program, functions = Program(task), []
    compile_reader = program.compile_reader

    def count(function):
        functions.append(function)
        return compile_reader(function)

    readers = Readers(task, count)
    assert not functions and {*readers} == {*program.readers}
    assert {"eval_step", "next_logits", "token_nll"} <= {*readers}
    assert "fill_logits" not in readers and readers.get("fill_logits") is None
    with pytest.raises(KeyError, match="nll_bound"):
        readers["nll_bound"]
    assert readers["next_logits"] is readers["next_logits"] and len(functions) == 1
    masked, _, _ = prepare(make_config(speech, "mlm"))
    assert {"fill_logits", "fill_scores"} <= {*Program(masked).readers}


@pytest.mark.slow
def test_every_step_draws_its_own_corruption(speech):
    # Too small a rate to change a parameter: rows and masks alone make the loss.
    task, _, corpora = prepare(make_config(speech, "mlm", optim__lr=1e-30))
    program = Program(task)
    batch, losses = make_feed(task, corpora["train"]).stack(0, 1), []
    same = {key: value.repeat(3, axis=0) for key, value in batch.items()}
    for seed in (1, 1, 2):
        state = program.init_state(1)
        results = []
        for _ in range(2):
            state, sums = program.train_call(state, program.place(same), seed)
            results += np.asarray(sums["loss"][0]).tolist()
        losses.append(results)
    assert len(set(losses[0])) == 6
    assert losses[0] == losses[1] and not set(losses[0]) & set(losses[2])
    # The last call of a run may be shorter.
    short = program.place({key: value[:2] for key, value in same.items()})
    _, sums = program.train_call(program.init_state(1), short, 1)
    assert np.asarray(sums["loss"][0]).tolist() == pytest.approx(losses[0][:2])


def test_a_run_is_used_on_other_devices_than_those_it_trained_on(speech):
    task, _, _ = prepare(make_config(speech, train__fsdp=8))
    assert _fit_mesh(task, 8) == (1, 8, 1, 1)
    assert _fit_mesh(task, 3) == (1, 3, 1, 1)  # each holds a third
    task, _, _ = prepare(make_config(speech, train__context=4))
    assert _fit_mesh(task, 8) == (2, 1, 4, 1)
    assert _fit_mesh(task, 1) == (1, 1, 1, 1)


@pytest.mark.slow
def test_steps_per_call_does_not_change_the_numbers(speech):
    states = []
    for size in (1, 4):
        config = make_config(
            speech, "mlm", model__dropout=0.1, train__steps_per_call=size
        )
        task, _, corpora = prepare(config)
        program = Program(task)
        feed, state = make_feed(task, corpora["train"]), program.init_state(1)
        for step in range(0, 8, size):
            stack = program.place(feed.stack(step, size))
            state, _ = program.train_call(state, stack, 1)
        states.append(jax.device_get(state.params))
    pairs = zip(*map(jax.tree.leaves, states), strict=True)
    assert max(np.abs(a - b).max() for a, b in pairs) < 1e-6


@pytest.mark.parametrize(
    "kind, peak",
    [
        ("NVIDIA H100 80GB HBM3", 989e12),
        ("NVIDIA A100-SXM4-40GB", 312e12),
        ("NVIDIA H100 PCIe", 756e12),
        ("TPU v5", 459e12),
        ("TPU v5p", 459e12),
        ("TPU v5 lite", 197e12),
        ("cpu", None),
        ("NVIDIA GeForce RTX 9090", None),
    ],
)
def test_the_peak_that_mfu_is_a_share_of(kind, peak, monkeypatch):
    device = type("Device", (), {"device_kind": kind})()
    monkeypatch.setattr(jax, "devices", lambda: [device])
    monkeypatch.setattr(jax, "device_count", lambda: 2)
    assert device_peak() == (peak and 2 * peak)
