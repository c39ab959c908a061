"""Options of recent causal speedruns, on and off, for one objective of the quickstart.

    for objective in clm mlm span_corruption electra; do
        jaxpt compare --config results/configs/quickstart_options.py:$objective \
            --workdir runs/options-$objective
    done

Which of them helps an objective at equal FLOPs? Five seeds each, on the quickstart's
text and model with its learning rates, which are those of the runs without an option.
About 16 minutes on 2 cores for an objective. The verdicts are those of each option
against none, corrected for all options and metrics of one objective.
"""

from jaxpt.config.config_files import read_config_file

OPTIONS = {
    "qk_norm": {"model": {"qk_norm": "unscaled"}},
    "softcap": {"model": {"logit_softcap": 15.0}},
    "z_loss": {"model": {"z_loss": 1e-4}},
    "relu2": {"model": {"activation": "relu2"}},
    "value_embeddings": {"model": {"value_embeddings": True}},
    "smear": {"model": {"smear": True}},
    "normuon": {"optim": {"name": "normuon"}},
    "cautious": {"optim": {"cautious_decay": True}},
    "embed_decay_0": {"optim": {"decay_overrides": "embed=0"}},
    # The first 30 % of the steps with half of the rows, or with rows cut in two.
    "small_batches": {"train": {"batch_schedule": ((0.3, 0.5),)}},
    "short_rows": {"train": {"length_schedule": ((0.3, 2),)}},
}


def get_config(objective="clm"):
    """One objective without an option, and with each of them.

    Both clozes: that of the quickstart, and that of the studies in results/.
    """
    config = read_config_file(f"configs/quickstart.py:{objective}")
    config.eval.num_choices = 4
    config.eval.choice_questions = 2000
    compare = config.compare
    # The cautious and the missing decay need one that matters.
    config.optim.weight_decay = 0.1
    compare.seeds = (0, 1, 2, 3, 4)
    compare.overrides = {
        f"{objective}-{name}": {"objective": objective, **settings}
        for name, settings in OPTIONS.items()
    }
    compare.objectives = (objective, *compare.overrides)
    compare.control = objective
    return config
