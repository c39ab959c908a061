"""Four objectives on a mixture of BabyLM's parts at equal FLOPs, with an 8k Unigram.

    jaxpt compare --config configs/babylm3m.py:DIR --workdir runs/babylm3m

DIR has the parts as childes.train, childes_dev.train and so on, plain or compressed.
About 6 minutes on 2 cores. Expected at 1e13 FLOPs each: clm 270 steps, 2.13 bits per
byte; mlm 660 steps, cloze accuracy 13.8%; span_corruption 510 steps, loss 4.63; electra
600 steps, cloze accuracy of its generator 8.2%. One seed gives no verdicts.
"""

from wikitext2 import get_config as get_base

# Weights are shares of the tokens: child-directed speech counts double.
PARTS = {
    "childes": 2,
    "bnc_spoken": 1,
    "gutenberg": 1,
    "open_subtitles": 1,
    "simple_wiki": 1,
    "switchboard": 0.5,
}


def get_config(folder="."):
    """The model and schedule of wikitext2.py; a weighted mixture of six texts."""
    config = get_base(folder)
    data = config.data
    data.path = ""
    data.mixture = tuple(f"{folder}/{p}.train*={w}" for p, w in PARTS.items())
    data.valid_path = f"{folder}/*_dev.train*"
    data.documents = "file"
    config.tokenizer.kind = "unigram"
    return config
