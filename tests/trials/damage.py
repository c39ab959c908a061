"""Damage to every file of the newest checkpoint: cut short, deleted, one bit flipped.

    python tests/trials/damage.py --repeat 4 --seed 7

Each repetition draws the places of the cuts and flips again. A trial holds if `restore`
reports the damaged step in one line and returns the step before it, with its values.
The same for folders beside the steps that are none: empty, foreign, partial, links.
"""

import random
import shutil
import sys
import tempfile
from pathlib import Path

from counting import Count, read_arguments


def make_state(step: int):
    """The arrays of a step."""
    import jax.numpy as jnp
    import numpy as np

    draw = np.random.default_rng(step)
    shapes = {"w": (100, 70), "b": (70,), "step": ()}
    return {k: jnp.asarray(draw.normal(size=s), "float32") for k, s in shapes.items()}


def damage(path: Path, how: str, draw: random.Random) -> None:
    data = bytearray(path.read_bytes())
    if how == "deleted":
        path.unlink()
    elif how == "cut short":
        path.write_bytes(data[: draw.randrange(len(data))])
    else:
        data[draw.randrange(len(data))] ^= 1 << draw.randrange(8)
        path.write_bytes(data)


def restore(folder: Path) -> tuple[int, bool, list[str]]:
    """The restored step, whether its values are right, and the warnings."""
    import jax
    import numpy as np

    from jaxpt.runs.checkpoint import Checkpointer

    lines: list[str] = []
    with Checkpointer(folder, warn=lines.append) as checkpointer:
        state, step = checkpointer.restore(make_state(0))
    same = jax.tree.map(np.array_equal, state, make_state(step))
    return step, all(jax.tree.leaves(same)), lines


def add_foreign(folder: Path, source: Path) -> None:
    """Adds entries with larger numbers that are no checkpoints."""
    (folder / "30").mkdir()
    (folder / "31").mkdir()
    (folder / "31" / "notes.txt").write_text("mine")
    shutil.copytree(source / "20", folder / "32.orbax-checkpoint-tmp")
    (folder / "33").symlink_to(source / "20")
    (folder / "34").write_text("a file")
    shutil.copytree(source / "20", folder / "35")


def main() -> int:
    values = read_arguments(__doc__, 2)
    count, draw = Count(), random.Random(values.seed)
    from jaxpt.runs.checkpoint import Checkpointer

    with tempfile.TemporaryDirectory() as place:
        whole, folder = Path(place) / "whole", Path(place) / "copy"
        with Checkpointer(whole) as checkpointer:
            for step in (10, 20):
                checkpointer.save(step, make_state(step))
        files = [p.relative_to(whole) for p in (whole / "20").rglob("*") if p.is_file()]
        files.append(Path("20.manifest.json"))
        for _ in range(values.repeat):
            for how in ("cut short", "deleted", "flipped"):
                for name in files:
                    if not (whole / name).stat().st_size:
                        continue
                    shutil.rmtree(folder, ignore_errors=True)
                    shutil.copytree(whole, folder)
                    damage(folder / name, how, draw)
                    step, is_right, lines = restore(folder)
                    # Without its manifest a step counts as unfinished, not damaged.
                    is_silent = how == "deleted" and name == files[-1]
                    holds = step == 10 and is_right and len(lines) == 1 - is_silent
                    count.add(holds, f"{name} {how}: step {step}, {lines}")
        shutil.rmtree(folder)
        shutil.copytree(whole, folder)
        add_foreign(folder, whole)
        step, is_right, _ = restore(folder)
        count.add(step == 20 and is_right, f"foreign folders: step {step}")
    return count.close()


if __name__ == "__main__":
    sys.exit(main())
