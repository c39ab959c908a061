"""Prints how far losses in chunks on meshes of 8 devices are from one device's.

Started by test_chunked_loss, with XLA_FLAGS that make eight CPU devices. Of each case
the greatest relative difference of values and gradients, and which collectives occur in
a loop of the compiled program.
"""

import json
import re

import jax
import jax.numpy as jnp
import numpy as np
from jax.sharding import Mesh, NamedSharding
from jax.sharding import PartitionSpec as P

from jaxpt.ops import chunked_loss

B, T, E, V = 16, 6, 8, 40
MESHES = {
    "data 8": (8, 1, 1),
    "fsdp 8": (1, 8, 1),
    "data 2, fsdp 4": (2, 4, 1),
    "fsdp 2, tensor 4": (1, 2, 4),
}
COLLECTIVE = r"(all-reduce|all-gather|reduce-scatter|all-to-all)(?:-start)?\("


def list_cases(num_rows: int):
    """Functions of (x, kernel, bias), whose gradient is that of a mean loss."""
    draw = np.random.default_rng(0)
    shape = num_rows, T
    targets = jnp.asarray(draw.integers(0, V, shape))
    weights = jnp.asarray(draw.random(shape) * (draw.random(shape) < 0.7), jnp.float32)
    keys = jax.vmap(jax.random.key)(jnp.arange(num_rows))
    teacher = [
        jnp.asarray(draw.normal(size=s), jnp.float32)
        for s in ((*shape, E), (E, V), (V,))
    ]

    def score(x, kernel, bias, sampling=None):
        args = x, kernel, bias, targets, weights, 3, sampling
        result = chunked_loss.score(*args)
        return result.loss[0] / result.loss[1], result

    def sampled(*args):
        return score(*args, (keys, 0.7))

    def several(x, kernel, bias):
        both = [jnp.stack([a, jnp.roll(a, 1, 1)], -1) for a in (targets, weights)]
        result = chunked_loss.score(x, kernel, bias, *both, 3)
        return result.loss[0] / result.loss[1], result

    def token_scores(x, kernel, bias):
        result = chunked_loss.token_scores(x, kernel, bias, targets, 3)
        return (result[0] * weights).sum(), result

    def distillation(x, kernel, bias):
        student = x, kernel, bias
        result = chunked_loss.distillation_loss(student, teacher, targets, 2.0, 3)
        return (result.nll * weights + result.divergences).sum(), result

    def nll(x, kernel, bias):
        result = chunked_loss.nll(x, kernel, bias, targets, 3)
        return result.sum(), result

    cases = score, sampled, several, token_scores, distillation, nll
    return {case.__name__: case for case in cases}


def difference(result, expected) -> float:
    """The greatest, as a share of an array's greatest entry; of integers, their own."""
    worst = 0.0
    for a, b in zip(jax.tree.leaves(result), jax.tree.leaves(expected), strict=True):
        a, b = np.asarray(a, np.float64), np.asarray(b, np.float64)
        worst = max(worst, float(np.abs(a - b).max() / (np.abs(b).max() + 1e-30)))
    return worst


def main() -> None:
    for num_rows in (B, B - 3):  # the second does not divide among the devices
        draw = np.random.default_rng(1)
        shapes = (num_rows, T, E), (E, V), (V,)
        inputs = [jnp.asarray(draw.normal(size=s), jnp.float32) for s in shapes]
        for name, case in list_cases(num_rows).items():
            pull = jax.value_and_grad(case, (0, 1, 2), has_aux=True)
            expected = jax.jit(pull)(*inputs)
            for label, shape in MESHES.items():
                devices = np.array(jax.devices()).reshape(shape)
                mesh = Mesh(devices, ("data", "fsdp", "tensor"))
                rows = ("data", "fsdp") if num_rows == B else None
                places = P(rows), P("fsdp", "tensor"), P("tensor")
                places = [NamedSharding(mesh, place) for place in places]
                with jax.set_mesh(mesh):
                    run = jax.jit(pull, in_shardings=places)
                    compiled = run.lower(*inputs).compile()
                    placed = list(map(jax.device_put, inputs, places))
                    result = compiled(*placed)
                text = compiled.as_text()
                output = {
                    "case": f"{name}, {num_rows} rows, {label}",
                    "difference": difference(result, expected),
                    "in_loops": sorted(_collectives_in_loops(text)),
                }
                print(json.dumps(output), flush=True)


def _collectives_in_loops(text: str) -> set[str]:
    bodies = set(re.findall(r"body=%([\w.\-]+)", text))
    result, name = set(), ""
    for line in text.splitlines():
        if head := re.match(r"(?:ENTRY )?%([\w.\-]+) \(.*\{$", line):
            name = head[1]
        elif name in bodies and (kind := re.search(COLLECTIVE, line)):
            result.add(kind[1])
    return result


if __name__ == "__main__":
    main()
