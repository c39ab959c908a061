"""Which objective a checkpoint of transformers is trained on under."""

from jaxpt.errors import UserError
from jaxpt.objectives import OBJECTIVES
from jaxpt.objectives.spec import ObjectiveSpec
from jaxpt.text.tokens.vocab import Vocab

ROW_LENGTH = 64  # of a row whose needs are looked at


def choose_objective(head: str, vocab: Vocab) -> str:
    """The first objective that trains such a network and whose needs the ids serve.

    Args:
      head: a key of `Family.heads`.
    """
    names = [name for name, each in OBJECTIVES.items() if head in each.Spec.heads()]
    served = [name for name in names if _serves(vocab, OBJECTIVES[name].Spec)]
    return (served or names)[0]


def _serves(vocab: Vocab, spec_type: type[ObjectiveSpec]) -> bool:
    """Whether the vocabulary has what an objective needs, at its default settings."""
    needs = spec_type.for_seq_len(ROW_LENGTH).needs
    try:
        for role in needs.specials:
            vocab.require(role)
        vocab.require_sentinels(needs.num_sentinels)
    except UserError:
        return False
    return True
