"""What do thirty objectives teach? Families of objectives, each with its own control.

    for family in causal masked diffusion seq2seq both; do
        jaxpt compare --config results/configs/objectives_30.py:DIR,$family,TEACHERS \
            --workdir runs/objectives-30-$family
    done

DIR is that of wikitext2.py. TEACHERS has the runs that the two students of distillation
learn from, and the reference of selective training:

    for objective in mlm clm; do
        jaxpt train --config results/configs/objectives_30.py:DIR,teacher \
            --config.objective=$objective --workdir TEACHERS/$objective
    done

Every objective and every control tries three learning rates of the matrices for half of
the budget, and more while the best one is at an edge. It then trains with five seeds.
The pairs with verdicts are those of a family's control with each other member. The
families share the error rate of 0.05. All read the same text with the same tokenizer,
so that the means of two families can be read next to each other. Training takes 90
minutes of two cores.

Word vectors (skip_gram) answer no shared metric and are left out.
"""

from jaxpt.config.config_files import read_config_file

# By family: its control, and its other members with the settings of each.
CAUSAL = {
    "prefix_token": {},
    "prefix_token-ranked": {"prefix_token": {"target": "ranked"}},
    "token_order": {},
    "multi_token": {},
    "multi_token_heads": {},
    "next_latent": {},
    "next_latent-divergence": {"next_latent": {"latent_weight": 0.0}},
    "future_summary": {},
    "future_summary-other-row": {"future_summary": {"bag": "other_row"}},
    "masked_input_clm": {},
    "masked_input_clm-masked": {"masked_input_clm": {"passes": "masked"}},
    "masked_input_clm-random": {"masked_input_clm": {"hide_by": "random"}},
    "clm-dropout": {"model": {"dropout": 0.1}},
    "fill_in_the_middle": {},
    "bilm": {},
    "causal_distillation": {},
    "selective_clm": {},
    "selective_clm-random": {"selective_clm": {"select": "random"}},
    "selective_clm-loss": {"selective_clm": {"select": "loss"}},
    "latent_prediction": {},
    "latent_prediction-frozen": {"latent_prediction": {"target": "frozen"}},
    "latent_prediction-shuffle": {"latent_prediction": {"target": "shuffle"}},
    "latent_prediction-light": {"latent_prediction": {"latent_weight": 0.001}},
}
MASKED = {
    "mlm-masks-only": {"mlm": {"replace_mask": 1.0, "replace_random": 0.0}},
    "mlm-rate-40": {"mlm": {"mask_rate": 0.4}},
    "mlm-schedule": {"mlm": {"mask_rate": 0.4, "mask_rate_end": 0.15}},
    "mlm-spans": {"mlm": {"masking": "spans"}},
    "adaptive_mlm": {},
    "bert": {},
    "bert-no-pairs": {"bert": {"sentence_task": "none"}},
    "spanbert": {},
    "electra": {},
    "distillation": {},
}
DIFFUSION = {
    "masked_diffusion-mean": {"masked_diffusion": {"average": "mean"}},
    "masked_diffusion-cosine": {"masked_diffusion": {"rates": "cosine"}},
    "masked_diffusion-bimodal": {"masked_diffusion": {"rates": "bimodal"}},
    "block_diffusion": {},
    "dual": {},
    "mlm": {},
    "hybrid_diffusion": {},
    "hybrid_diffusion-uniform": {"hybrid_diffusion": {"noise": "uniform"}},
    "hybrid_diffusion-mask": {"hybrid_diffusion": {"noise": "mask"}},
    "mlm-random": {"mlm": {"replace_mask": 0.0, "replace_random": 1.0}},
}
SEQ2SEQ = {
    "bart": {},
    "ul2": {},
    "ul2-short-spans": {"ul2": {"rates": (1.0, 0.0, 0.0)}},
    "prefix_lm": {},
}
BOTH = {
    "mlm": {},
    "clm_mlm": {},
    "mixture": {},
}
FAMILIES = {
    "causal": ("clm", CAUSAL),
    "masked": ("mlm", MASKED),
    "diffusion": ("masked_diffusion", DIFFUSION),
    "seq2seq": ("span_corruption", SEQ2SEQ),
    "both": ("clm", BOTH),
}
STUDENTS = {"distillation": "mlm", "causal_distillation": "clm"}
REFERRED = "selective_clm"  # to a trained clm, unless tokens are selected without it
MODES = ("nlu", "nlg", "s2s")  # UL2's


def get_config(arguments="."):
    """DIR,FAMILY,TEACHERS; the family "teacher" trains one.

    Without TEACHERS every student trains its own.
    """
    folder, _, rest = arguments.partition(",")
    family, _, teachers = (rest or "causal").partition(",")
    config = read_config_file(f"configs/wikitext2.py:{folder}")
    _set_text(config)
    _set_training(config)
    if family == "teacher":
        config.train.steps = 350
        return config

    control, others = FAMILIES[family]
    compare = config.compare
    compare.control = control
    compare.objectives = (control, *others)
    compare.overrides = {
        name: _find_settings(name, settings, family, teachers)
        for name, settings in others.items()
    }
    if family == "seq2seq":
        compare.overrides[control] = _find_settings(control, {}, family, teachers)
    compare.seeds = (0, 1, 2, 3, 4)
    compare.amount, compare.num_evals = 6e11, 3
    compare.alpha = 0.05 / len(FAMILIES)
    compare.tune = "optim.muon_lr=0.01,0.02,0.04"
    compare.tune_until, compare.tune_share = "interior", 0.5
    return config


def _set_text(config):
    config.data.row_length = 64
    config.data.limit_chars = 1_000_000
    config.data.sentences = "punctuation"
    config.tokenizer.vocab_size = 384
    config.tokenizer.specials += ("cls", "sep", *MODES)
    config.tokenizer.num_sentinels = 22
    config.eval.probe_passages = 0
    config.eval.pair_questions = 2000


def _set_training(config):
    """Two layers of width 64, and Muon, which leaves the token frequencies sooner."""
    model = config.model
    model.d_model, model.d_ff, model.max_len = 64, 256, 64
    model.activation, model.positions, model.rotary_base = "relu", "rotary", 100.0
    config.optim.name = "muon"
    config.optim.muon_lr, config.optim.lr = 0.02, 6e-3
    config.optim.weight_decay = 0.1
    config.train.checkpoint_every = 0
    config.span_corruption.noise_density = 0.2
    config.electra.mask_rate = 0.25
    config.electra.temperature = 2.0
    config.electra.discriminator_weight = 20.0
    config.bilm.num_chars, config.bilm.filters = 6, (16, 32, 32)


def _find_settings(name, settings, family, teachers):
    """The objective of a name before its first dash, with one stack or two."""
    objective = name.partition("-")[0]
    settings = {"objective": objective, **settings}
    if family == "seq2seq":  # two stacks of one layer each
        settings["model"] = {"num_layers": 1, "num_decoder_layers": 1}
    if objective in STUDENTS:  # one layer, of a teacher with two
        settings["model"] = {"num_layers": 1}
        settings[objective] = {"student_layers": (0,)}
    if teachers and (objective in STUDENTS or name == REFERRED):
        teacher = {"teacher": f"{teachers}/{STUDENTS.get(objective, 'clm')}"}
        settings[objective] = settings.get(objective, {}) | teacher
    return settings
