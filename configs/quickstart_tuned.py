"""The quickstart's four objectives, each with learning rates that are tuned for it.

    jaxpt compare --config configs/quickstart_tuned.py --workdir runs/quickstart_tuned

Each objective tries six pairs of learning rates for half of the budget, on training
text that is held out for the choice: three rates of Muon, which trains the matrices of
the layers, and two of AdamW, which trains all other parameters. About 10 minutes on
2 cores, half of them for the trials.
"""

from quickstart import get_config as get_base


def get_config():
    """The quickstart's text, models, budget and seeds."""
    config = get_base()
    config.compare.tune = "optim.muon_lr=0.01,0.02,0.04; optim.lr=4e-3,8e-3"
    config.compare.tune_share = 0.5
    return config
