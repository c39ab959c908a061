"""Writes the fixtures: small checkpoints of transformers and their outputs.

    .venv-peers/bin/python tests/hub/make_fixtures.py [CASE ...]

Run after `make test-peers` has made that environment, and only to change a fixture.
"""

import json
import sys
import tempfile
from pathlib import Path

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path[:0] = [str(HERE.parent), str(HERE.parents[1])]

from hub.cases import CASES, make_batch  # noqa: E402
from hub.peers import make_theirs, run_theirs, save  # noqa: E402


def main() -> None:
    """One .npz a case: "config" and arrays named tensor/, batch/, theirs/, grads/."""
    (HERE / "fixtures").mkdir(exist_ok=True)
    for name in sys.argv[1:] or CASES:
        reference, batch = make_theirs(name), make_batch(name)
        with tempfile.TemporaryDirectory() as folder:
            config, tensors = save(reference, Path(folder))
        result = run_theirs(reference, batch, name)
        grads = result.pop("grads")
        arrays = {f"tensor/{key}": value for key, value in tensors.items()}
        arrays |= {f"batch/{key}": value for key, value in batch.items()}
        arrays |= {f"theirs/{key}": value for key, value in result.items()}
        arrays |= {f"grads/{key}": value for key, value in grads.items()}
        path = HERE / "fixtures" / f"{name}.npz"
        np.savez_compressed(path, config=json.dumps(config), **arrays)
        print(path.name, path.stat().st_size)


if __name__ == "__main__":
    main()
