"""A tokenizer of characters and encoders of it, for tests of tasks."""

import numpy as np

from jaxpt.tasks.encoder import TextEncoder
from jaxpt.text.tokens.symbols import CharTokenizer
from jaxpt.text_form import TextForm

CLS, SEP, PAD = 0, 1, 2
TOKENIZER = CharTokenizer(set(" abcdefgh.é"), ("cls", "sep", "pad"))


def make_encoder(max_len=32, **values):
    """An encoder whose rows are [CLS] a text [SEP] another [SEP]."""
    form = TextForm((CLS,), (SEP,), second_type=1)
    return TextEncoder(TOKENIZER, values.pop("form", form), max_len, PAD)


def show(ids):
    """Ids as characters; [ and | are the special tokens."""
    marks = {CLS: "[", SEP: "|"}
    return "".join(
        marks.get(int(i)) or TOKENIZER.decode(np.array([i], np.int32)) for i in ids
    )
