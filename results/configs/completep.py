"""Do learning rates transfer over widths? clm and mlm, standard and CompleteP.

    jaxpt compare --config results/configs/completep.py --workdir runs/completep
    python results/configs/completep.py runs/completep

Each objective is trained with both parametrizations at three widths and eight learning
rates of AdamW, a factor of 1.5 apart: 192 runs of 600 steps, with two seeds. These are
1e15 FLOPs: about 220 minutes of 2 cores at 80 GFLOP/s. Settings are those of width
64, where both parametrizations are the same model. The second command prints the best
rate of each width (by the mean validation loss of both seeds) and checks what is
expected:

    completep   the best rates of all widths are within a factor of 1.5
    standard    they are not, and the best rate falls as the width grows

A best rate at an edge of the grid counts as not found. `:512` adds that width, `:128`
leaves out larger ones. Differences are not tested.
"""

import itertools
import json
import sys
from collections import defaultdict
from pathlib import Path

WIDTHS = (64, 128, 256)
BASE = WIDTHS[0]
RATES = tuple(round(1e-3 * 1.5**i, 6) for i in range(8))
PARAMETRIZATIONS = ("standard", "completep")
OBJECTIVES = ("clm", "mlm")
WITHIN = 1.5


def get_config(largest=""):
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
    config.train.steps = 600
    config.eval.pair_questions = 0
    config.eval.probe_every_eval = False

    most = int(largest or WIDTHS[-1])
    widths = sorted({n for n in WIDTHS if n < most} | {most})
    compare = config.compare
    compare.budget, compare.amount = "steps", 0.0
    compare.num_evals = 1
    compare.seeds = (0, 1)
    compare.overrides = {
        f"{objective}-{name}-{width}-{i}": {
            "objective": objective,
            "model": {
                "parametrization": name,
                "d_model": width,
                "num_heads": width // 16,
                "d_ff": 4 * width,
            },
            "optim": {"lr": rate},
        }
        for objective, name, width in itertools.product(
            OBJECTIVES, PARAMETRIZATIONS, widths
        )
        for i, rate in enumerate(RATES)
    }
    compare.objectives = tuple(compare.overrides)
    return config


def find_best(folder):
    """{(objective, parametrization): {width: index of the best rate}} of a comparison.

    A run that has diverged has no result, and its rate no mean.
    """
    losses = defaultdict(list)
    for path in Path(folder, "runs").glob("*-seed*/result.json"):
        name = path.parent.name.rpartition("-seed")[0]
        losses[name].append(json.loads(path.read_text())["metrics"]["valid_loss"])
    num_seeds = max(map(len, losses.values()))
    best = defaultdict(dict)
    for name, values in losses.items():
        objective, parametrization, width, i = name.split("-")
        if len(values) == num_seeds:
            found = sum(values) / num_seeds, int(i)
            of_name = best[objective, parametrization]
            of_name[int(width)] = min(of_name.get(int(width), found), found)
    return {
        key: {width: i for width, (_, i) in sorted(of_name.items())}
        for key, of_name in sorted(best.items())
    }


def main(folder):
    """Prints the best rates, and whether they are within the factor."""
    for (objective, name), rates in find_best(folder).items():
        listed = ", ".join(f"{width}: {RATES[i]:g}" for width, i in rates.items())
        ratio = RATES[max(rates.values())] / RATES[min(rates.values())]
        verdict = f"{'with' if ratio < WITHIN * 1.01 else 'not with'}in {WITHIN}"
        if {0, len(RATES) - 1} & {*rates.values()}:
            verdict = "not found: a best rate is at an edge"
        print(f"{objective} {name}: {listed}; ratio {ratio:.2f}, {verdict}")


if __name__ == "__main__":
    main(sys.argv[1])
