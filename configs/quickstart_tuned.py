"""The quickstart's four objectives, each with learning rates that are tuned for it.

    jaxpt compare --config configs/quickstart_tuned.py --workdir runs/quickstart_tuned

Each objective tries nine pairs of learning rates for half of the budget, on training
text that is held out for the choice: three rates of Muon, which trains the matrices of
the layers, and three of AdamW, which trains all other parameters. The trials cost 1.5
times the FLOPs of the runs: 2.5 times the minutes of the quickstart in all.
"""

from quickstart import get_config as get_base


def get_config():
    """The quickstart's text, models, budget and seeds."""
    config = get_base()
    config.compare.tune = "optim.muon_lr=0.01,0.02,0.04; optim.lr=3e-3,6e-3,1.2e-2"
    config.compare.tune_share = 0.5
    return config
