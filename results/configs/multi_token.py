"""Does multi-token prediction teach a causal model more than next-token prediction?

    for width in 32 64 96; do
        for budget in flops seconds; do
            jaxpt compare --config results/configs/multi_token.py:$width,$budget \
                --workdir runs/multi_token-$width-$budget
        done
    done

`clm` against three forms: without extra heads (modded-nanogpt), with parallel heads
(Gloeckle et al. 2024) and sequential ones (DeepSeek-V3). Ten seeds, three widths, and
budgets in FLOPs and in seconds. All four try the same values of Muon's rate and of the
weight decay. The six comparisons share the error rate of 0.05. Text and model are the
quickstart's; the shared metric is bits per byte of the held-out text. About 35 minutes
on 2 cores for FLOPs, and 35 for seconds, while nothing else runs.
"""

from jaxpt.config.config_files import read_config_file

# The budgets grow with the square of the width, as training to equal losses would.
BUDGETS = {
    "flops": {"32": 1.5e11, "64": 6e11, "96": 1.4e12},
    "seconds": {"32": 4.0, "64": 8.0, "96": 14.0},
}
FORMS = {
    "multi_token": {"objective": "multi_token"},
    "sequential": {
        "objective": "multi_token_heads",
        "multi_token_heads": {"variant": "sequential"},
    },
    "parallel": {
        "objective": "multi_token_heads",
        "multi_token_heads": {"variant": "parallel"},
    },
}


def get_config(arguments="64,flops"):
    """WIDTH,BUDGET: one of the six comparisons."""
    width, _, budget = arguments.partition(",")
    config = read_config_file("configs/quickstart.py:clm")
    config.model.d_model = int(width)
    config.model.d_ff = 3 * int(width)
    config.optim.weight_decay = 0.1
    config.eval.pair_questions = 0
    compare = config.compare
    compare.objectives = ("clm", *FORMS)
    compare.overrides = FORMS
    compare.seeds = tuple(range(10))
    compare.budget = budget
    compare.amount = BUDGETS[budget][width]
    compare.num_evals = 4
    compare.alpha = 0.05 / 6
    compare.tune = "optim.muon_lr=0.01,0.02; optim.weight_decay=0.01,0.1"
    compare.tune_share = 0.5
    return config
