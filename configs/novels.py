"""Four objectives on 100 English novels at equal FLOPs, with an 8k uncased WordPiece.

    jaxpt compare --config configs/novels.py:DIR --workdir runs/novels

DIR has one .txt file for each novel (78 MB); every tenth is held out. About 7 minutes
on 2 cores. Expected at 1e13 FLOPs each: clm 270 steps, 1.88 bits per byte; mlm 660
steps, cloze accuracy 6.7%, held-out mask accuracy 14.8%; span_corruption 510 steps,
loss 4.71; electra 600 steps, 6.3% and 19.0% by its generator. Without labels there is
no linear probe, and one seed gives no verdicts.
"""

from wikitext2 import get_config as get_base


def get_config(folder="."):
    """The model and schedule of wikitext2.py; a novel is a document."""
    config = get_base(folder)
    config.data.path = f"{folder}/*.txt"
    config.data.valid_path = ""
    config.data.documents = "file"
    config.tokenizer.kind = "wordpiece"
    config.tokenizer.lowercase = True
    config.tokenizer.specials = ("pad", "unk", "cls", "sep", "mask", "eos")
    return config
