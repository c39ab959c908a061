"""All objectives on WikiText-2 for equal seconds of training, two seeds each.

    jaxpt compare --config results/configs/wikitext2_all.py:DIR --workdir runs/all

Two seeds give means and no verdicts; compare.seeds="(0,1,2,3,4)" gives both. DIR, text
and sizes are those of wikitext2.py; the tokenizer has the special tokens of
all objectives. Students are compared too if `:DIR,TEACHERS` names their teachers:

    for objective in mlm clm; do
        jaxpt train --config results/configs/wikitext2_all.py:DIR \
            --config.objective=$objective --workdir TEACHERS/$objective
    done

25 minutes on 2 cores, measured with thirteen objectives, after 4 for the teachers (400
steps each; a student starts from its teacher's first layer). Expected for 30 seconds:
bits per byte 2.27 for clm, 2.38 for clm_mlm, 2.57 for bilm and at most for
masked_diffusion, 2.11 for causal_distillation; cloze accuracy 8.4% for clm_mlm, 5.2%
for distillation, 5.1% for mlm, 4.5% for electra, 4.2% for spanbert and
masked_diffusion, 3.6% for bert.
"""

from jaxpt.config.config_files import read_config_file

OBJECTIVES = (
    "clm",
    "mlm",
    "span_corruption",
    "electra",
    "bert",
    "spanbert",
    "bart",
    "prefix_lm",
    "ul2",
    "clm_mlm",
    "adaptive_mlm",
    "multi_token",
    "multi_token_heads",
    "token_order",
    "prefix_token",
    "next_latent",
    "latent_prediction",
    "future_summary",
    "fill_in_the_middle",
    "bilm",
    "skip_gram",
    "masked_diffusion",
    "block_diffusion",
    "dual",
    "masked_input_clm",
    "mixture",
)
TAUGHT = {"distillation": "mlm", "causal_distillation": "clm"}
MODES = ("nlu", "nlg", "s2s")  # UL2's; the teachers' tokenizer has them, too


def get_config(folders="."):
    """The same text, tokenizer and row length for all objectives."""
    folder, _, teachers = folders.partition(",")
    config = read_config_file(f"configs/wikitext2.py:{folder}")
    config.data.sentences = "punctuation"
    config.tokenizer.specials += ("cls", "sep", *MODES)
    config.tokenizer.num_sentinels = 22
    config.train.checkpoint_every = 0
    config.optim.warmup_steps = 10  # some have 60 steps

    compare = config.compare
    compare.objectives = OBJECTIVES + tuple(TAUGHT) * bool(teachers)
    compare.overrides = {
        name: {
            "model": {"num_layers": 1},  # of a teacher with two
            name: {"student_layers": (0,), "teacher": f"{teachers}/{teacher}"},
        }
        for name, teacher in TAUGHT.items()
        if teachers
    }
    compare.seeds, compare.num_evals = (0, 1), 4
    compare.budget, compare.amount = "seconds", 30.0
    return config
