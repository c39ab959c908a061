"""Prints how far attention over spans of rows is from attention on one device.

Started by test_context, with XLA_FLAGS that make eight CPU devices. Of each case the
greatest difference of outputs and gradients; queries without visible keys are left out.

    attention_by_spans.py [MESH ...]     by default, all
"""

import functools
import json
import sys

import jax
import jax.numpy as jnp
import numpy as np
from ops.alike import normal

from jaxpt.ops import attention, context, masks
from jaxpt.runs.sharding import make_mesh

B, T, N, K, H = 2, 16, 4, 2, 8
MESHES = {
    "context 4": (1, 1, 4, 1),
    "data 2, context 4": (2, 1, 4, 1),
    "fsdp 2, context 2, tensor 2": (1, 2, 2, 2),
}
# Documents that end within a span, and padding; a row of one document.
SEGMENTS = jnp.array([[1] * 5 + [2] * 6 + [3] * 3 + [0] * 2, [1] * T])
MASKS = {
    "full": masks.full(),
    "causal": masks.causal(),
    "segments": masks.segments(SEGMENTS),
    "causal segments": masks.causal(SEGMENTS),
    "blocks of 3": masks.causal_blocks(3, SEGMENTS),
    "prefix": masks.prefix(jnp.array([3, 9])),
    "prefix keys": masks.prefix_keys(SEGMENTS == 2, SEGMENTS),
    "lengths": masks.key_padding(jnp.array([7, T])),
    "wide window": masks.local(masks.causal(SEGMENTS), 6, T),
    "window ahead": masks.local(masks.full(), 5, T),
    "narrow window": masks.local(masks.causal(SEGMENTS), 2, T),
    "array": masks.anticausal(T, SEGMENTS),
    "array of one row": masks.anticausal(T),
}
GATHERED = ("causal segments", "prefix keys", "lengths", "window ahead", "array")


def attend_gathered(q, k, v, mask, bias=None):
    attend = functools.partial(attention.attend_cudnn, implementation="xla")
    if jax.sharding.get_abstract_mesh().empty:
        return attend(q, k, v, mask, bias)
    return context.attend_gathered(attend, q, k, v, mask, bias)


def list_cases():
    """(name, attend, mask, has_bias, keywords)."""
    for name, mask in MASKS.items():
        yield f"ring, {name}", attention.attend, mask, False, {}
    for name in GATHERED:
        yield f"gathered, {name}", attend_gathered, MASKS[name], False, {}
    for name in ("causal", "array"):
        yield f"ring, bias, {name}", attention.attend, MASKS[name], True, {}
    cap = {"softcap": 2.0}
    yield "ring, cap", attention.attend, MASKS["causal segments"], True, cap
    yield "gathered, bias", attend_gathered, MASKS["lengths"], True, {}
    drop = {"dropout_rate": 0.3, "rng": jax.random.key(5)}
    yield "dropout", attention.attend, MASKS["causal segments"], True, drop
    wide = normal(8, B, N, T, T)  # a bias of each row
    yield "ring, bias of rows", attention.attend, MASKS["causal"], wide, {}


def make_run(num_rows):
    """All cases' outputs and gradients, in one program."""
    cases = list(list_cases())
    cases = cases if num_rows == B else cases[:4]

    def run(q, k, v, bias):
        results = {}
        for name, attend, mask, has_bias, how in cases:
            mask = jax.tree.map(lambda x: x[:num_rows] if len(x) == B else x, mask)
            inputs = [q, k, v]
            if has_bias is not False:
                inputs.append(bias if has_bias is True else has_bias[:num_rows])
            sees = masks.materialise(mask, T, T).any(-1)[:, 0, :, None, None]

            def total(*inputs, attend=attend, mask=mask, how=how, sees=sees):
                out = jnp.where(sees, attend(*inputs[:3], mask, *inputs[3:], **how), 0)
                return (out * normal(9, *q.shape)).sum(), out

            argnums = tuple(range(len(inputs)))
            pull = jax.value_and_grad(total, argnums, has_aux=True)
            results[name] = pull(*inputs)
        return results

    return jax.jit(run)


def find_difference(result, expected):
    """The greatest, as a share of the array's greatest entry."""
    pairs = zip(jax.tree.leaves(result), jax.tree.leaves(expected), strict=True)
    return max(float(np.abs(a - b).max() / np.abs(b).max()) for a, b in pairs)


def main(names):
    for num_rows in (B, 1):  # one row does not divide among the devices
        inputs = [normal(i, num_rows, T, n, H) for i, n in enumerate((N, K, K))]
        inputs.append(normal(3, 1, N, T, T))
        expected = jax.device_get(make_run(num_rows)(*inputs))
        for name in names or (MESHES if num_rows == B else ("data 2, context 4",)):
            shape = MESHES[name]
            mesh = make_mesh(shape, jax.devices()[: int(np.prod(shape))])
            with jax.set_mesh(mesh):
                compiled = make_run(num_rows).lower(*inputs).compile()
                result = jax.device_get(compiled(*inputs))
            differences = {
                case: find_difference(result[case], expected[case]) for case in result
            }
            exchanged = "collective-permute" in compiled.as_text()
            output = {"case": f"{name}, {num_rows} rows", "exchanged": exchanged}
            print(json.dumps(output | {"differences": differences}), flush=True)


if __name__ == "__main__":
    jax.config.update("jax_disable_most_optimizations", True)  # compiles faster
    main(sys.argv[1:])
