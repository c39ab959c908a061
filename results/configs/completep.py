"""Do learning rates transfer over widths? clm and mlm, standard and CompleteP.

    jaxpt compare --config results/configs/completep.py --workdir runs/completep
    jaxpt compare --config results/configs/completep.py:512 --workdir runs/completep-512
    python results/configs/completep.py runs/completep runs/completep-512

Each objective is trained with both parametrizations at three widths and eight learning
rates of AdamW, a factor of 1.5 apart: 96 runs of 300 steps (2.5e14 FLOPs, 50 minutes of
2 cores at 80 GFLOP/s), one seed. Settings are those of width 64, where both
parametrizations are the same model. The second command trains CompleteP alone at width
512, at the rates around the best at 256 (1.7e14 FLOPs). The third prints the best rate
of each width, by the validation loss, and checks what is expected:

    completep   the best rates of all widths are within a factor of 1.5
    standard    they are not, and the best rate falls as the width grows

A best rate next to one that was not tried counts as not found. Differences are not
tested.
"""

import itertools
import json
import sys
from collections import defaultdict
from pathlib import Path

WIDTHS = (64, 128, 256)
BASE = WIDTHS[0]
# The numbers of the rates at larger widths: a run costs 4 times as much as at 256.
NEAR = {"clm": (3, 4, 5, 6), "mlm": (3, 4, 5)}
RATES = tuple(round(1e-3 * 1.5**i, 6) for i in range(8))
PARAMETRIZATIONS = ("standard", "completep")
OBJECTIVES = ("clm", "mlm")
WITHIN = 1.5


def get_config(width=""):
    """A name such as clm-completep-128-3 is of an objective, a width and a rate.

    Heads are 16 wide at all widths. Steps are the same for all: costs are not matched.
    """
    from jaxpt.config.config_files import read_config_file

    config = read_config_file("configs/quickstart.py")
    config.optim.name = "adamw"
    config.optim.beta2 = 0.95
    config.optim.weight_decay = 0.1
    config.optim.schedule = "cosine"
    config.model.base_width = BASE
    config.model.base_depth = config.model.num_layers
    config.train.steps = 300
    config.eval.pair_questions = 0
    config.eval.probe_every_eval = False

    compare = config.compare
    compare.budget, compare.amount = "steps", 0.0
    compare.num_evals = 1
    compare.seeds = (0,)
    compare.overrides = {
        f"{objective}-{name}-{width}-{i}": {
            "objective": objective,
            "model": {
                "parametrization": name,
                "d_model": width,
                "num_heads": width // 16,
                "d_ff": 4 * width,
            },
            "optim": {"lr": RATES[i]},
        }
        for objective, name, width, i in list_runs(int(width or 0))
    }
    compare.objectives = tuple(compare.overrides)
    return config


def list_runs(width):
    """Objective, parametrization, width and number of the rate of each run."""
    if width:
        return [
            (o, "completep", width, i) for o, numbers in NEAR.items() for i in numbers
        ]
    return itertools.product(OBJECTIVES, PARAMETRIZATIONS, WIDTHS, range(len(RATES)))


def read_losses(folders):
    """{(objective, parametrization): {width: {number of the rate: loss}}} of runs.

    A run that has diverged has no result.
    """
    losses = defaultdict(lambda: defaultdict(dict))
    for path in (p for f in folders for p in Path(f, "runs").glob("*/result.json")):
        name = path.parent.name.rpartition("-seed")[0]
        objective, parametrization, width, i = name.split("-")
        metrics = json.loads(path.read_text())["metrics"]
        of_width = losses[objective, parametrization][int(width)]
        of_width[int(i)] = metrics["valid_loss"]
    return {key: dict(sorted(each.items())) for key, each in sorted(losses.items())}


def main(*folders):
    """Prints the best rates, and whether they are within the factor."""
    for (objective, name), losses in read_losses(folders).items():
        best = {width: min(each, key=each.get) for width, each in losses.items()}
        listed = ", ".join(f"{width}: {RATES[i]:g}" for width, i in best.items())
        ratio = RATES[max(best.values())] / RATES[min(best.values())]
        verdict = f"{'with' if ratio < WITHIN * 1.01 else 'not with'}in {WITHIN}"
        if any(not {i - 1, i + 1} <= {*losses[width]} for width, i in best.items()):
            verdict = "not found: a best rate is at an edge"
        print(f"{objective} {name}: {listed}; ratio {ratio:.2f}, {verdict}")


if __name__ == "__main__":
    main(*sys.argv[1:])
