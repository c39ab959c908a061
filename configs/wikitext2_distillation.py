"""DistilBERT on WikiText-2: a student of one layer, initialized from a teacher of two.

    jaxpt train --config configs/wikitext2.py:DIR --config.objective=mlm \
        --workdir runs/mlm
    jaxpt train --config configs/wikitext2_distillation.py:DIR \
        --config.distillation.teacher=runs/mlm --workdir runs/distilled

DIR, text, tokenizer and model are those of wikitext2.py. Losses and weights are
DistilBERT's. A causal student has a clm run as its teacher:
--config.objective=causal_distillation --config.causal_distillation.teacher=runs/clm

About 1 minute on 2 cores, and the same for the teacher. Expected: valid_loss 13.29;
cloze accuracy 7.0% (teacher 5.5%). Causal: 1.99 bits per byte (teacher 2.10); with its
teacher's training the student has seen twice the text.
"""

from wikitext2 import get_config as get_base


def get_config(folder="."):
    """400 steps of 32 rows of 128 tokens."""
    config = get_base(folder)
    config.objective = "distillation"
    config.model.num_layers = 1
    for name in ("distillation", "causal_distillation"):
        config[name].student_layers = (0,)
    return config
