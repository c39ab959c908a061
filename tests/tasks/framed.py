"""Encoders of the tests: characters, bytes, and pieces of words, in BERT's form."""

from jaxpt.tasks.encoder import TextEncoder
from jaxpt.text.tokens.symbols import CharTokenizer
from jaxpt.text.tokens.training import train_subword
from jaxpt.text_form import TextForm

SPECIALS = ("pad", "unk", "cls", "sep", "eos")
TEXTS = [
    "the lower lowest slower slowest newer newest wide wider cat sat on the mat"
] * 9


def make_tokenizer(kind):
    """One that cuts words in pieces, or in characters."""
    if kind == "char":
        return CharTokenizer(set("".join(TEXTS)) | set("().,"), SPECIALS, 0)
    return train_subword(kind, TEXTS, 48 if kind != "bpe" else 285, SPECIALS, 0, False)


def make_encoder(kind="wordpiece", max_len=32, pair=True):
    """[CLS] A [SEP] B [SEP], the second text of type 1."""
    tokenizer = make_tokenizer(kind)
    vocab = tokenizer.vocab
    form = TextForm((vocab.cls,), (vocab.sep,), second_type=1)
    return TextEncoder(tokenizer, form if pair else TextForm(), max_len, vocab.pad)
