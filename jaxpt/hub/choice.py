"""Chooses the objective under which an imported checkpoint is trained further."""

from jaxpt.objectives import OBJECTIVES
from jaxpt.text.tokens.vocab import Vocab

# The purpose of a network -> the first objective whose runs have such a network.
HEADS = {
    head: name for name, module in reversed(OBJECTIVES.items()) for head in module.HEADS
}
# If several have it: what the vocabulary replaces masked text by -> the objective.
MARKS = {"seq2seq": {"sentinels": "span_corruption", "mask": "bart"}}
# Settings of the text that an objective needs when its own have their defaults.
SETTINGS = {
    "bart": {"data.sentences": "punctuation", "data.sentence_ids": True},
}


def choose_objective(head: str, vocab: Vocab) -> str:
    """The objective of a network by its purpose and its vocabulary.

    Args:
      head: a key of `Family.heads`.
    """
    for mark, name in MARKS.get(head, {}).items():
        if getattr(vocab, mark) not in (None, ()):
            return name
    return HEADS[head]
