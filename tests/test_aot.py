"""`jaxpt fit` with XLA's compilers for TPUs and GPUs, which need no device.

Run by `make test-aot`.
"""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.aot
ROOT = Path(__file__).resolve().parents[1]
GIB, MIB = 2**30, 2**20
# GPT-2 as published, without dropout and in a loop over layers.
GPT2 = {
    "data.row_length": 1025,  # the model reads one token less
    "data.rows": "chunks",
    "model.vocab_size": 50_257,
    "model.scan_layers": True,
    "model.dropout": 0.0,
    "model.embed_dropout": 0.0,
    "model.attention_dropout": 0.0,
}


def ask(target: str, num_rows: int, **changes) -> dict:
    """What `jaxpt fit --json` prints for GPT-2."""
    names = {name.replace("__", "."): value for name, value in changes.items()}
    settings = GPT2 | {"train.batch_size": num_rows} | names
    command = [sys.executable, "-m", "jaxpt", "fit", "--config=family:gpt2", "--json"]
    command += [f"--config.{name}={value}" for name, value in settings.items()]
    done = subprocess.run(
        [*command, f"--target={target}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=1500,
    )
    assert done.returncode in (0, 1), done.stderr[-2000:]
    return json.loads(done.stdout)


def test_gpt2_on_a_gpu():
    fit = ask("h200", 32)
    temporaries = fit["memory"]["temporaries"]
    assert temporaries < 12.5e9 and fit["fits"]
    assert fit["donated"] >= fit["memory"]["parameters"] + fit["memory"]["optimizer"]
    assert fit["float32_products"] == []
    for kernel in ("__cudnn$fmhaSoftmax", "__cudnn$fmhaSoftmaxBackward"):
        assert fit["kernels"][kernel] == 12
    full, dots = (ask("h200", 32, model__remat=remat) for remat in ("full", "dots"))
    assert dots["kernels"]["__cudnn$fmhaSoftmax"] == 12
    assert full["kernels"]["__cudnn$fmhaSoftmax"] == 24
    assert full["product_flops"] > 1.1 * dots["product_flops"]
    sizes = [each["memory"]["temporaries"] for each in (full, dots)]
    assert sizes[0] < 0.5 * sizes[1] < 0.5 * temporaries


def test_an_h100_has_less_memory_and_the_same_kernels():
    fit = ask("h100", 256)
    assert not fit["fits"] and fit["memory"]["limit"] < 80 * GIB < fit["memory"]["peak"]
    assert fit["kernels"]["__cudnn$fmhaSoftmax"] == 12


@pytest.mark.parametrize("fsdp", [8, 1])
def test_gpt2_on_eight_gpus(fsdp):
    fit = ask("h200:8", 256, train__fsdp=fsdp)
    # Of the head: its weights gathered once in bfloat16, its gradient summed once.
    assert fit["exchanged_parts"].get("loss", 0) <= 0.3 * GIB
    assert sum(fit["exchanged"].values()) <= 1.1 * GIB
    assert fit["kernels"]["__cudnn$fmhaSoftmax"] == 12
    whole = 4 * fit["num_parameters"]
    assert fit["memory"]["parameters"] == pytest.approx(whole / fsdp, rel=0.01)


def test_spans_of_a_long_row_on_eight_gpus():
    long = {"data__row_length": 32_769, "model__max_len": 32_768}
    fit = ask("h200:8", 1, train__context=8, **long)
    assert fit["memory"]["peak"] < 4.5 * GIB  # without, 12.8
    for kernel in (
        "__cudnn$fmhaScaleBiasSoftmax",
        "__cudnn$fmhaScaleBiasSoftmaxBackward",
    ):
        assert fit["kernels"][kernel] == 12
    # Keys and values are gathered forward and backward, and their gradients summed.
    assert fit["exchanged_parts"]["attention"] <= 3500 * MIB


@pytest.mark.parametrize("name", ["muon", "normuon"])
def test_muon_moves_each_matrix_twice(name):
    fit = ask("h200:8", 256, train__fsdp=8, optim__name=name)
    # AdamW exchanges 1,020 MiB; iterations on sharded matrices, 4,800.
    assert sum(fit["exchanged"].values()) <= 1150 * MIB


def test_gpt2_fits_one_small_tpu():
    fit = ask("v5e", 16)
    assert fit["memory"]["peak"] < 12 * GIB < fit["memory"]["limit"]
    assert fit["kernels"]["splash_mha_fwd_residuals"] == 12
    assert fit["kernels"]["splash_mha_dkv_no_residuals"] == 12
    assert "splash_mha_dq_no_residuals" not in fit["kernels"]
    assert sum(fit["cycles_ms"].values()) > 0


def test_a_program_that_a_tpu_refuses_does_not_fit():
    fit = ask("v5e", 256)
    assert not fit["fits"] and fit["moved"] == {}
    assert fit["memory"]["peak"] > fit["memory"]["limit"] == 15.75 * GIB


@pytest.mark.parametrize(
    ("target", "kernel"),
    [
        ("b200", "__cudnn$fmhaSoftmaxBackward"),
        ("v6e", "splash_mha_dkv_no_residuals"),
        ("tpu7x:4", "splash_mha_dkv_no_residuals"),
    ],
)
def test_gpt2_on_newer_devices(target, kernel):
    fit = ask(target, 16)
    assert fit["kernels"][kernel] == 12 and fit["fits"]
    assert fit["donated"] >= fit["memory"]["parameters"] + fit["memory"]["optimizer"]
    assert fit["float32_products"] == []
