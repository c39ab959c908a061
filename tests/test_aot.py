"""What is read of compiled programs, and what XLA's compilers say of ours.

Those marked `aot` need the compilers for TPUs and GPUs (`make test-aot`), no device.
"""

import json
import subprocess
import sys
from pathlib import Path

import jax
import jax.numpy as jnp
import pytest

ROOT = Path(__file__).resolve().parents[1]
AOT = ROOT / "tests" / "benchmarks" / "aot"
sys.path.insert(0, str(AOT))
import program_text  # noqa: E402

PROGRAM = """HloModule step

%fused (p.0: f32[12,8,4], p.1: s32[], p.2: f32[8,4]) -> f32[12,8,4] {
  %p.0 = f32[12,8,4]{2,1,0} parameter(0)
  %p.1 = s32[] parameter(1)
  %p.2 = f32[8,4]{1,0} parameter(2)
  %new = f32[1,8,4]{2,1,0} bitcast(%p.2)
  %zero = s32[] constant(0)
  ROOT %put = f32[12,8,4]{2,1,0} dynamic-update-slice(%p.0, %new, %p.1, %zero, %zero)
}

%body (state: (s32[], f32[12,8,4], f32[8,4])) -> (s32[], f32[12,8,4], f32[8,4]) {
  %state = (s32[], f32[12,8,4]{2,1,0}, f32[8,4]{1,0}) parameter(0)
  %i = s32[] get-tuple-element(%state), index=0
  %all = f32[12,8,4]{2,1,0} get-tuple-element(%state), index=1
  %x = f32[8,4]{1,0} get-tuple-element(%state), index=2
  %w = f32[4,4]{1,0} constant({...})
  %y = f32[8,4]{1,0} dot(%x, %w), lhs_contracting_dims={1}, rhs_contracting_dims={0}
  %sum = f32[8,4]{1,0} all-reduce(%y), to_apply=%add, metadata={op_name="a/score/b"}
  %kept = f32[12,8,4]{2,1,0} fusion(%all, %i, %sum), kind=kLoop, calls=%fused
  ROOT %out = (s32[], f32[12,8,4]{2,1,0}, f32[8,4]{1,0}) tuple(%i, %kept, %sum)
}

%condition (state: (s32[], f32[12,8,4], f32[8,4])) -> pred[] {
  %state = (s32[], f32[12,8,4]{2,1,0}, f32[8,4]{1,0}) parameter(0)
  %i = s32[] get-tuple-element(%state), index=0
  %n = s32[] constant(12)
  ROOT %less = pred[] compare(%i, %n), direction=LT
}

ENTRY %main (a: f32[8,4], b: f32[2,4]) -> f32[12,8,4] {
  %a = f32[8,4]{1,0} parameter(0)
  %b = f32[2,4]{1,0} parameter(1)
  %t = (s32[], f32[12,8,4], f32[8,4]) custom-call(%a), custom_call_target="begin"
  %loop = (s32[], f32[12,8,4], f32[8,4]) while(%t), condition=%condition, body=%body
  %parts = f32[2,4]{1,0} reduce-scatter(%a), dimensions={0}, to_apply=%add
  ROOT %last = f32[12,8,4]{2,1,0} get-tuple-element(%loop), index=1
}
"""


def test_what_stands_in_a_loop_counts_as_often_as_it_runs():
    result = program_text.analyse(PROGRAM)
    ((flops, dtypes, shape, _),) = result["products"]
    assert (flops, dtypes, shape) == (12 * 2 * 8 * 4 * 4, "f32xf32", "f32[8,4]")
    assert result["collectives"] == {"all-reduce f32": 12, "reduce-scatter f32": 1}
    # Of a reduce-scatter what goes in, as it is more than what comes out.
    expected = {"all-reduce": 12 * 8 * 4 * 4, "reduce-scatter": 8 * 4 * 4}
    assert result["collective_bytes"] == expected
    assert result["collective_parts"] == {"loss": 12 * 8 * 4 * 4, "rest": 8 * 4 * 4}
    assert result["kernels"] == {"begin": 1}


def test_a_slice_that_is_written_in_place_moves_its_own_bytes():
    ops = {op[4]: op for op in program_text.analyse(PROGRAM)["ops"]}
    moved, _, times, *_ = ops["kept"]
    row = 8 * 4 * 4
    assert times == 12 and moved == 12 * (4 + row + row)  # index, update, slice


def test_the_products_of_a_compiled_program_are_counted():
    def run(x, ws):
        return jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, ws)[0]

    args = [jax.ShapeDtypeStruct(s, jnp.float32) for s in ((6, 5), (7, 5, 5))]
    text = jax.jit(run).lower(*args).compile().as_text()
    result = program_text.analyse(text)
    assert sum(p[0] for p in result["products"]) == 7 * 2 * 6 * 5 * 5
    assert result["collectives"] == {} and sum(result["moved"].values()) > 7 * 25 * 4


def ask(tmp_path, *args) -> dict:
    """The table of a case; {} where the compiler refuses it."""
    path = tmp_path / "told.json"
    scan = ("--no_dropout", "--set", "model.scan_layers=True", "--json", str(path))
    command = [sys.executable, str(AOT), *map(str, args), *scan]
    done = subprocess.run(
        command, cwd=ROOT, capture_output=True, text=True, timeout=500
    )
    assert done.returncode in (0, 1), done.stderr[-2000:]
    return json.loads(path.read_text()) if path.is_file() else {}


GPT2 = ("clm", "gpt2", 1024)


@pytest.mark.aot
def test_gpt2_on_a_gpu(tmp_path):
    output = ask(tmp_path, *GPT2, 32, "--target", "h200")
    assert output["temporary_gib"] * 2**30 < 12.5e9
    assert output["donated_mib"] >= output["state_mib"]
    assert output["float32_products"] == []
    for kernel in ("__cudnn$fmhaSoftmax", "__cudnn$fmhaSoftmaxBackward"):
        assert output["kernels"][kernel] == 12
    full, dots = (
        ask(tmp_path, *GPT2, 32, "--target", "h200", "--set", f"model.remat={remat}")
        for remat in ("full", "dots")
    )
    assert dots["kernels"]["__cudnn$fmhaSoftmax"] == 12
    assert full["kernels"]["__cudnn$fmhaSoftmax"] == 24
    assert full["product_flops"] > 1.1 * dots["product_flops"]
    assert (
        full["temporary_gib"]
        < 0.5 * dots["temporary_gib"]
        < 0.5 * output["temporary_gib"]
    )


@pytest.mark.aot
@pytest.mark.parametrize("mesh", ["train.fsdp=8", "train.fsdp=1"])
def test_gpt2_on_eight_gpus(mesh, tmp_path):
    output = ask(tmp_path, *GPT2, 256, "--target", "h200:8", "--set", mesh)
    # Of the head: its weights gathered once in bfloat16, its gradient summed once.
    assert output["collective_part_mib"].get("loss", 0) <= 0.3 * 1024
    assert sum(output["collective_mib"].values()) <= 1.1 * 1024
    assert output["kernels"]["__cudnn$fmhaSoftmax"] == 12


@pytest.mark.aot
def test_spans_of_a_long_row_on_eight_gpus(tmp_path):
    sets = ("--set", "train.context=8", "--set", "model.max_len=32768")
    output = ask(tmp_path, "clm", "gpt2", 32768, 1, "--target", "h200:8", *sets)
    assert output["peak_gib"] < 4.5  # without, 12.8
    for kernel in (
        "__cudnn$fmhaScaleBiasSoftmax",
        "__cudnn$fmhaScaleBiasSoftmaxBackward",
    ):
        assert output["kernels"][kernel] == 12
    # Keys and values are gathered forward and backward, and their gradients summed.
    assert output["collective_part_mib"]["attention"] <= 3500


@pytest.mark.aot
@pytest.mark.parametrize("name", ["muon", "normuon"])
def test_muon_moves_each_matrix_twice(name, tmp_path):
    sets = ("--set", "train.fsdp=8", "--set", f"optim.name={name}")
    output = ask(tmp_path, *GPT2, 256, "--target", "h200:8", *sets)
    # AdamW exchanges 1,020 MiB; iterations on sharded matrices, 4,800.
    assert sum(output["collective_mib"].values()) <= 1150


@pytest.mark.aot
def test_gpt2_fits_one_small_tpu(tmp_path):
    output = ask(tmp_path, *GPT2, 16, "--target", "v5e:1x1")
    assert output["peak_gib"] < 12 < output["device_gib"]
    assert output["kernels"]["splash_mha_fwd_residuals"] == 12
    assert output["kernels"]["splash_mha_dkv_no_residuals"] == 12
    assert "splash_mha_dq_no_residuals" not in output["kernels"]


@pytest.mark.aot
@pytest.mark.parametrize(
    ("target", "kernel"),
    [
        ("b200", "__cudnn$fmhaSoftmaxBackward"),
        ("v6e:1x1", "splash_mha_dkv_no_residuals"),
        ("tpu7x:2x2x1", "splash_mha_dkv_no_residuals"),
    ],
)
def test_gpt2_on_newer_devices(target, kernel, tmp_path):
    output = ask(tmp_path, *GPT2, 16, "--target", target)
    assert output["kernels"][kernel] == 12
    assert output["peak_gib"] < output["device_gib"]
    assert output["donated_mib"] >= output["state_mib"]
    assert output["float32_products"] == []
