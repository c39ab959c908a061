"""ELECTRA's ablations on the embedded corpus, as in Table 5 of its paper.

    jaxpt compare --config results/configs/quickstart_ablations.py \
        --workdir runs/ablations

Which part of ELECTRA makes the difference to `mlm`? Five seeds each, at equal FLOPs:
a discriminator loss on masked tokens only (electra_15), prediction of the original
tokens where a generator's sample replaces [MASK] (replace_mlm), prediction of all
original tokens (all_tokens_mlm). The paper (Clark et al. 2020), base size, GLUE:
electra 85.0, all_tokens_mlm 84.3, replace_mlm 82.4, electra_15 82.4, BERT 82.2.

A few minutes on 2 cores; not run with the quickstart's present settings, in which the
generator samples at temperature 2 and masks 25 % (ELECTRA: 1 and 15 %). With an earlier
model (width 96, relative positions, AdamW, 1.45e12 FLOPs, three seeds) the cloze
accuracy was 0.412 for mlm and 0.27 to 0.29 for the others, whose generator, a quarter
as wide, answers it.
"""

from jaxpt.config.config_files import read_config_file

VARIANTS = ("electra_15", "replace_mlm", "all_tokens_mlm")


def get_config():
    """The quickstart's text, its model and its budget."""
    config = read_config_file("configs/quickstart.py")
    config.objective = "electra"
    compare = config.compare
    compare.objectives = ("mlm", *VARIANTS, "electra")
    compare.overrides = {
        name: {"objective": "electra", "electra": {"variant": name}}
        for name in VARIANTS
    }
    return config
