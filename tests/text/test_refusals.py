"""Settings of rows and tokenizers that are refused."""

import pytest
from tiny_refusals import check_refusal, refused

from jaxpt.text.rows.rows_spec import RowsSpec
from jaxpt.text.tokens.tokenizer import TokenizerSpec, make_tokenizer

ROWS = """
    rows=rows ... chunks, windows, packed
    long_documents=drop ... split, truncate
    row_length=0 ... at least 1
    row_length=4 & rows=pairs ... at least 5
    row_length=4 & rows=ordered_pairs
    max_documents=0 ... at least 1
    dupe_factor=0 ... at least 1
    short_seq_prob=-0.1; short_seq_prob=nan
    sentence_ids=True & rows=pairs ... pairs
    sentence_ids=True & rows=ordered_pairs ... ordered_pairs
"""
TOKENIZER = """
    kind=word ... char, byte
    num_sentinels=-1
    path=x & kind=bpe ... '' ... bpe
    path='' & kind=file ... must be the name of a file
    lowercase=True & kind=bpe ... must be False
    vocab_size=255 & kind=bpe ... 256
"""


def tokenize(**settings):
    make_tokenizer(TokenizerSpec(**settings), ["ab"])


@pytest.mark.parametrize(
    "make, parts",
    [
        *refused(RowsSpec, "data", ROWS, row_length=8),
        *refused(tokenize, "tokenizer", TOKENIZER),
    ],
)
def test_bad_settings_are_refused(make, parts, refuses):
    check_refusal(make, parts, refuses)
