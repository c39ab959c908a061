"""Counts of a program's text: a stored one by hand, and one that XLA compiles here."""

import jax
import jax.numpy as jnp
import pytest

from jaxpt.training.fit.program_text import count, part_of, shorten

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


ROW = 8 * 4 * 4  # bytes of f32[8,4]


def test_a_loop_counts_as_often_as_it_runs():
    counts = count(PROGRAM)
    ((flops, dtypes, shape, _),) = counts.products
    assert (flops, dtypes, shape) == (12 * 2 * 8 * 4 * 4, "f32xf32", "f32[8,4]")
    assert counts.collectives == {"all-reduce f32": 12, "reduce-scatter f32": 1}
    # Of a reduce-scatter what goes in, as it is more than what comes out.
    assert counts.exchanged == {"all-reduce": 12 * ROW, "reduce-scatter": ROW}
    assert counts.exchanged_parts == {"loss": 12 * ROW, "rest": ROW}
    assert counts.kernels == {"begin": 1}


def test_a_slice_that_is_written_in_place_moves_its_own_bytes():
    ops = {op.name: op for op in count(PROGRAM).ops}
    kept = ops["kept"]
    assert kept.times == 12 and kept.num_bytes == 12 * (4 + ROW + ROW)
    assert kept.group == "slices" and kept.writes == "f32[12,8,4]"
    assert kept.reads == "f32[12,8,4], s32[], f32[8,4]"


def test_bytes_by_class_are_all_bytes():
    counts = count(PROGRAM)
    moved = counts.sum_bytes("group")
    assert moved["slices"] == 12 * (4 + 2 * ROW)
    assert moved["products"] == 12 * (2 * ROW + 4 * 4 * 4)  # x, w and y
    assert moved["collectives"] == 12 * 2 * ROW + ROW + ROW // 4
    assert sum(moved.values()) == sum(counts.sum_bytes("part").values())
    assert counts.sum_cycles() == {}


FUSED = """HloModule classes

%f (p: BODY) -> f32[8,4] {
  %p = f32[8,4]{1,0} parameter(0)
  %zero = s32[] constant(0)
  %at = s32[] add(%zero, %zero)
  ROOT %r = INNER
}

ENTRY %main (a: f32[8,4]) -> f32[8,4] {
  %a = f32[8,4]{1,0} parameter(0)
  ROOT %out = OUTER
}
"""
FUSION = "f32[8,4]{1,0} fusion(%a), kind=kLoop, calls=%f"


@pytest.mark.parametrize(
    "inner, outer, group",
    [
        ("f32[8,4] multiply(%p, %p)", FUSION, "element-wise"),
        ("f32[8] reduce(%p, %zero), to_apply=%add", FUSION, "reductions"),
        ("bf16[8,4] convert(%p)", FUSION, "casts"),
        ("f32[4,8] transpose(%p), dimensions={1,0}", FUSION, "copies"),
        ("f32[1,4] dynamic-slice(%p, %at, %at)", FUSION, "slices"),
        ("f32[2,4] gather(%p, %at)", FUSION, "gathers"),
        ("f32[8,8] dot(%p, %p)", FUSION, "products"),
        ("", "f32[8,4] copy(%a)", "copies"),
        (
            "",
            'f32[8,4] custom-call(%a), custom_call_target="__cudnn$fmhaSoftmax"',
            "attention kernels",
        ),
    ],
)
def test_an_operation_has_the_class_of_its_inner_work(inner, outer, group):
    text = FUSED.replace("INNER", inner or "f32[8,4] negate(%p)")
    (op,) = count(text.replace("OUTER", outer)).ops
    assert op.group == group


@pytest.mark.parametrize(
    "scope, part",
    [
        ("jit(call)/CausalLM.score/head.score/while/body/dot_general", "loss"),
        ("jit(call)/encoder/while/body/layers/mlp_norm/reduce_sum", "norms"),
        ("jit(call)/encoder/while/body/layers/mlp/up/dot_general", "mlp"),
        ("jit(call)/encoder/while/body/dynamic_slice", "loop over layers"),
        ("jit(call)/while/body/optimizer/mul", "optimizer"),
        ("jit(call)/while/body/mul", "rest"),
    ],
)
def test_a_scope_belongs_to_a_part(scope, part):
    assert part_of(scope) == part


def test_the_products_of_a_compiled_program_are_counted():
    def run(x, ws):
        return jax.lax.scan(lambda x, w: (jnp.tanh(x @ w), None), x, ws)[0]

    args = [jax.ShapeDtypeStruct(s, jnp.float32) for s in ((6, 5), (7, 5, 5))]
    text = jax.jit(run).lower(*args).compile().as_text()
    counts = count(text)
    assert sum(p[0] for p in counts.products) == 7 * 2 * 6 * 5 * 5
    assert (
        counts.collectives == {}
        and sum(counts.sum_bytes("group").values()) > 7 * 25 * 4
    )
    assert shorten("f32[6,5]{1,0}") == "f32[6,5]"
