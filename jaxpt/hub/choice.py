"""Which objective a checkpoint of transformers goes on under."""

from jaxpt.objectives import OBJECTIVES
from jaxpt.text.tokens.vocab import Vocab

# What a network is for -> the first objective whose runs have it.
HEADS = {
    head: name for name, module in reversed(OBJECTIVES.items()) for head in module.HEADS
}
# Where several have it: what a vocabulary hides text behind -> the one that does so.
MARKS = {"seq2seq": {"sentinels": "span_corruption", "mask": "bart"}}
# What an objective as it is by default asks of the rows, where they are so, too.
SETTINGS = {
    "bart": {"data.sentences": "punctuation", "data.sentence_ids": True},
}


def choose_objective(head: str, vocab: Vocab) -> str:
    """The objective of a network by what it is for, and what its vocabulary has.

    Args:
      head: a key of `Family.heads`.
    """
    for mark, name in MARKS.get(head, {}).items():
        if getattr(vocab, mark) not in (None, ()):
            return name
    return HEADS[head]
