"""Every objective on the embedded corpus, at equal FLOPs.

    jaxpt compare --config configs/quickstart_all.py --workdir runs/all

Five seeds each, with the quickstart's text, model and learning rates, which are tuned
for four of them. About 30 minutes on 2 cores.
"""

from quickstart import ENCODER_DECODER
from quickstart import get_config as get_base

from jaxpt.objectives import OBJECTIVES

# Word vectors read single tokens, which no multiple-choice cloze asks for.
LEFT_OUT = ("skip_gram",)
SEQ2SEQ = ("span_corruption", "bart", "ul2")


def get_config():
    """The quickstart's budget, for all objectives that answer its cloze."""
    config = get_base()
    compare = config.compare
    compare.objectives = tuple(name for name in OBJECTIVES if name not in LEFT_OUT)
    compare.overrides = {name: {"model": ENCODER_DECODER} for name in SEQ2SEQ}
    return config
