"""Computes golden losses: 50 training steps of every objective and variant.

    .venv/bin/python tests/objectives/golden.py         # writes golden.json next to it
    .venv/bin/python tests/objectives/golden.py NAME... # replaces or adds these names

Write the file again only if a change of numbers is intended; the changelog lists it.
"""

import json
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
FILE = Path(__file__).with_name("golden.json")
NUM_STEPS, NUM_ROWS, LR = 50, 8, 3e-3
# Forms that read clean rows, or leave out a term, without the progress of a training.
IN_TRAINING = ("meap", "diffusion_means", "diffusion_by_rank", "prefix_token")
IN_TRAINING += ("prefix_and_offsets", "future_summary", "next_latent")
IN_TRAINING += ("hybrid_diffusion", "uniform_diffusion")
IN_TRAINING += ("diffusion_from_causal", "growing_blocks", "latent_prediction")
if __name__ == "__main__":
    sys.path[:0] = [str(ROOT), str(ROOT / "tests")]


def compute_losses(name: str, num_steps: int = NUM_STEPS) -> list[float]:
    """The training losses of a small model of an objective or variant, from step 0.

    Parameters and rows are drawn by NumPy; corruption and dropout by JAX.
    """
    import jax
    import jax.numpy as jnp
    import numpy as np
    import optax
    from objectives.conftest import carry, make

    from jaxpt.ops.metrics import counted, divide

    case = make(name)
    optimizer = optax.adam(LR)
    step = jax.jit(case.make_step(optimizer))
    state = case.init_state(optimizer)
    draw = np.random.default_rng(7)
    losses, shape = [], (NUM_ROWS, case.spec.row_length)
    for number in range(num_steps):
        tokens = draw.integers(7, 32, shape, np.int32)
        rows = {"tokens": jnp.asarray(tokens), "index": jnp.arange(NUM_ROWS)}
        rows |= carry(case.spec, tokens)
        if name in IN_TRAINING:
            rows["progress"] = jnp.full(NUM_ROWS, number / num_steps)
        state, sums = step(state, rows, jax.random.key(number))
        means = divide(counted({name: sums[name] for name in case.spec.coefficients}))
        factors = case.spec.coefficients
        if "progress" in rows:
            factors = case.spec.coefficients_at(number / num_steps)
        losses.append(sum(factors[name] * float(x) for name, x in means.items()))
    return losses


def list_names() -> list[str]:
    """All objectives and variants."""
    from tiny import VARIANTS

    from jaxpt.objectives import OBJECTIVES

    return [*OBJECTIVES, *VARIANTS]


if __name__ == "__main__":
    names = sys.argv[1:]
    golden = json.loads(FILE.read_text()) if names else {}
    for name in names or list_names():
        golden[name] = [round(x, 7) for x in compute_losses(name)]
    lines = [f"{json.dumps(name)}: {json.dumps(x)}" for name, x in golden.items()]
    FILE.write_text("{\n" + ",\n".join(lines) + "\n}\n")
    print(f"{FILE}: {len(golden)} objectives and variants, {NUM_STEPS} steps each")
