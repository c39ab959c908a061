"""A step's counts: rows as of the feed, vocabularies, messages, printed lines.

The CPU is a target, too, whose compiler every machine has.
"""

import dataclasses
import json

import pytest
from tiny import make_config, write_config

from jaxpt.cli.main import main
from jaxpt.config.plan import make_plan
from jaxpt.errors import DeviceError
from jaxpt.runs.data import make_feed
from jaxpt.runs.task import make_task
from jaxpt.text.dataset import load_text
from jaxpt.training.fit.estimate import (
    GIB,
    Memory,
    estimate,
    find_largest,
    find_vocab_size,
    make_rows,
    make_vocab,
    read_refusal,
)
from jaxpt.training.fit.target import read_target
from jaxpt.training.fit.wording import format_fit, format_ops, format_verdict


@pytest.fixture(scope="module")
def small(speech):
    """The estimate of a small run on the CPU."""
    config = make_config(speech, "mlm", train__steps=4)
    return estimate(config, (), read_target("cpu"))


@pytest.mark.parametrize(
    "objective, changes",
    [
        ("clm", {}),
        ("mlm", {"data__rows": "packed"}),
        ("mlm", {"data__sentence_ids": True}),
        ("bert", {"data__rows": "pairs", "data__row_length": 128}),
        (
            "bert",
            {
                "data__rows": "ordered_pairs",
                "data__row_length": 128,
                "bert__sentence_task": "sop",
            },
        ),
    ],
)
def test_rows_have_the_shapes_of_the_feed(objective, changes, speech):
    plan = make_plan(make_config(speech, objective, **changes))
    tokenizer, corpora = load_text(plan.text)
    stack = make_feed(make_task(plan, tokenizer.vocab), corpora["train"]).stack(0, 2)
    shapes = {key: (x.shape, str(x.dtype)) for key, x in make_rows(plan).items()}
    assert shapes == {key: (x.shape, str(x.dtype)) for key, x in stack.items()}


def test_a_step_on_the_cpu_has_the_sizes_of_the_run(small):
    fit = small.fit
    # Parameters and two moments of float32, and a few counts of steps.
    assert fit.memory.parameters == 4 * fit.num_parameters
    rest = fit.memory.optimizer - 8 * fit.num_parameters
    assert 0 <= rest <= 64
    assert fit.memory.peak >= fit.memory.parameters + fit.memory.temporaries
    assert fit.memory.fits is None and fit.donated >= 12 * fit.num_parameters
    assert fit.collectives == {} and fit.num_devices == 1
    assert 0.9 * fit.flops < fit.product_flops < 1.1 * fit.flops
    assert sum(fit.moved.values()) == pytest.approx(sum(fit.moved_parts.values()))
    assert fit.moved["products"] > 0 and "ENTRY" in small.text


def test_a_known_size_needs_no_text(speech):
    config = make_config("missing.txt", "span_corruption", model__vocab_size=40)
    plan = make_plan(config)
    assert find_vocab_size(plan) == 40
    fit = estimate(config, (), read_target("cpu")).fit
    assert fit.vocab_size == 40
    subwords = {"tokenizer__kind": "bpe", "tokenizer__vocab_size": 300}
    assert find_vocab_size(make_plan(make_config("missing.txt", **subwords))) == 300
    assert find_vocab_size(make_plan(make_config(speech))) == 0  # characters


def test_a_vocabulary_too_small_for_its_specials_is_refused(refuses):
    with refuses("vocabulary of 9 ids: must have more than the 10 special tokens"):
        estimate(make_config("a.txt", model__vocab_size=9), (), read_target("cpu"))
    assert make_vocab(11, 0).special_ids.tolist() == list(range(10))


def test_what_cannot_be_estimated_is_refused(speech, refuses):
    with refuses("objective=distillation: trains a teacher first"):
        estimate(make_config(speech, "distillation"), (), read_target("cpu"))
    with refuses("train.backend=pmap: must be jit"):
        estimate(make_config(speech, train__backend="pmap"), (), read_target("cpu"))


def test_the_largest_batch_of_a_schedule_counts(speech):
    config = make_config(speech, train__steps=4, train__batch_schedule=((0.5, 0.25),))
    plan = make_plan(config, is_run=True)
    task = make_task(plan, make_vocab(40, 0))
    assert len(task.phases) == 2
    assert find_largest(task).plan.train.batch_size == plan.train.batch_size == 8


MESSAGES = [
    (
        "RESOURCE_EXHAUSTED: XLA:TPU compile permanent error. Ran out of memory in "
        "memory space hbm. Used 20.29G of 15.75G hbm. Exceeded hbm capacity by 4.54G.",
        20.29,
    ),
    (
        "RESOURCE_EXHAUSTED: Ran out of memory on HBM, the total memory required for "
        "HLO temporaries (153.24G) exceeds available HBM (15.75G).",
        153.24,
    ),
]


@pytest.mark.parametrize("message, used", MESSAGES)
def test_a_refusal_names_the_memory(message, used, small):
    memory = read_refusal(message)
    assert memory.peak == int(used * GIB) and memory.limit == 15.75 * GIB
    fit = dataclasses.replace(small.fit, memory=memory, moved={})
    lines = format_fit(fit)
    assert len(lines) == 4
    assert lines[-1].startswith(f"does not fit: more than {used:.3g} of 15.75 GiB; ")


def test_another_refusal_is_one_line():
    with pytest.raises(DeviceError, match="^target: XLA refused the program: INTERNAL"):
        read_refusal("INTERNAL: a\nb")


@pytest.mark.parametrize(
    "peak, device, verdict",
    [
        (61, "NVIDIA H200", "fits: 61 of 141 GiB"),
        (120, "NVIDIA H200", "fits with XLA_PYTHON_CLIENT_MEM_FRACTION=0.97: 120 of"),
        (120, "TPU v5e", "fits: 120 of 141 GiB"),
        (141.5, "NVIDIA H200", "does not fit: 142 of 141 GiB; train.num_microbatches"),
    ],
)
def test_the_verdict_is_one_line(peak, device, verdict, small):
    memory = Memory(0, 0, 0, 0, 0, int(peak * GIB), 141 * GIB)
    fit = dataclasses.replace(small.fit, memory=memory, device=device)
    line = format_verdict(fit)
    assert line.startswith(verdict) and "\n" not in line


def test_the_lines_have_all_counts(small):
    changes = {
        "dtype": "bfloat16",
        "collectives": {"all-gather bf16": 3},
        "exchanged": {"all-gather": 3 * 2**20},
        "exchanged_parts": {"mlp": 3 * 2**20},
        "float32_products": [("f32xf32", f"f32[{i}]", "a/mlp") for i in range(3)],
        "kernels": {"flash": 12},
        "moved": {"products": GIB, "casts": GIB / 2},
        "cycles_ms": {"mlp": 1.5},
    }
    text = "\n".join(format_fit(dataclasses.replace(small.fit, **changes)))
    for part in (
        "f32xf32 -> f32[0] [a/mlp]; f32xf32 -> f32[1] [a/mlp]; 1 more\n",
        "  collectives               all-gather bf16 3\n",
        "  exchanged, MiB            3.0: all-gather 3.0\n",
        "  fused kernels             flash 12\n",
        "  read and written, GiB     1.5: products 1, casts 0.5\n",
        "  ms by cycles              1.5: mlp 1.5\n",
    ):
        assert part in text


def test_the_largest_operations_come_first(small):
    head, *lines = format_ops(small.ops, 3)
    assert head.split()[:2] == ["MiB", "runs"] and len(lines) == 3
    sizes = [float(line.split()[0].replace(",", "")) for line in lines]
    largest = max(op.num_bytes for op in small.ops)
    assert sizes == sorted(sizes, reverse=True)
    assert sizes[0] == pytest.approx(largest / 2 / 2**20, abs=0.05)
    assert " -> " in lines[0]


def test_the_command_prints_and_writes(speech, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    write_config(tmp_path / "config.py", speech, train__steps=4)
    argv = ["fit", "--config=config.py", "--target=cpu"]
    assert main([*argv, "--json", "--hlo=step.txt"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["fits"] is None and result["memory"]["temporaries"] > 0
    assert (tmp_path / "step.txt").read_text().startswith("HloModule")
    assert main([*argv, "--top=2", "--config.train.batch_size=4"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert "a step of 4 rows" in "\n".join(lines) and lines[-1].startswith("needs ")
    assert lines[0].split()[:2] == ["MiB", "runs"]
    assert main([*argv, "--top=-1"]) == 2
    assert capsys.readouterr().err == "jaxpt: error: --top=-1: must be at least 0\n"


def test_a_run_that_does_not_fit_is_exit_code_1(speech, tmp_path, capsys, monkeypatch):
    write_config(tmp_path / "config.py", speech, train__steps=4)
    monkeypatch.setattr(
        "jaxpt.training.fit.estimate.measure",
        lambda *_: Memory(0, 0, 0, 0, 0, 2 * GIB, 1.0 * GIB),
    )
    argv = ["fit", f"--config={tmp_path / 'config.py'}", "--target=cpu"]
    assert main(argv) == 1
    assert capsys.readouterr().out.splitlines()[-1].startswith("does not fit: 2 of 1")
