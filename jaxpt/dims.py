"""The glossary: what the letters in array names mean, and the closed set of batch keys.

An array called `q_BTNH` has shape [B, T, N, H]; public signatures carry the same
letters through jaxtyping (`Float[Array, "B T D"]`).
"""

LETTERS = {
    "B": "batch: rows in a step",
    "R": "raw length: tokens in a row before corruption",
    "T": "query or target length",
    "S": "key or source length",
    "D": "model width",
    "N": "attention heads",
    "H": "width of one head",
    "F": "MLP width",
    "E": "embedding width, where it differs from D",
    "V": "vocabulary size",
    "P": "predicted positions of a row",
}

# Before corruption.
ROW_KEYS = {
    "tokens": "int32 [B, R]",
    "index": "int32 [B]: place in the global batch, which keys the row's randomness",
    "segment_ids": "int32 [B, R], optional: 0 is padding, 1.. the packed documents",
    "type_ids": "int32 [B, R], optional: 0 in sentence A of a pair, 1 in B",
    "is_random_next": "int32 [B], optional: 1 where B does not follow A",
    "is_swapped": "int32 [B], optional: 1 where B precedes A",
    "sentence_ids": "int32 [B, R], optional: 1.. the sentences of a row, 0 padding",
    "progress": "float32 [B], while training: the share of its steps that are done",
    "row_weights": "float32 [B], while measuring: 0 in rows that only fill up a batch",
}

# After corruption. A decoder's carry the prefix `dec_`; what is float32 is a weight.
BATCH_KEYS = {
    "index": "int32 [B]: the row's own, which keys the generator's samples",
    "inputs": "int32 [B, T]",
    "targets": "int32 [B, T] or [B, P]",
    "loss_weights": "float32, shaped as targets",
    "positions": "int32 [B, P]: where the P predictions are read",
    "segment_ids": "int32 [B, T], where rows carried them or are filled up",
    "type_ids": "int32 [B, T], where the rows carried them",
    "nsp_labels": "int32 [B]: BERT's 1 where B does not follow A",
    "sop_labels": "int32 [B]: 1 where B precedes A",
    "is_pair": "float32 [B]: 1 where a row holds a pair, 0 where it is empty",
    "span_starts": "int32 [B, P]: the first place of the span that each position is in",
    "span_ends": "int32 [B, P]: its last place",
    "boundary_weights": "float32 [B, P]: 1 where the span has a token on either side",
    "is_prefix": "bool [B, T]: True at inputs that all of their document may see",
    "fill_positions": "int32 [B, P]: where clm_mlm's masked rows are read",
    "fill_weights": "float32 [B, P]: 0 in its causal rows",
    "dec_inputs": "int32 [B, T]",
    "dec_segment_ids": "int32 [B, T], where there are segment_ids",
    "original": "int32 [B, T]: ELECTRA's row before masking",
    "real": "float32 [B, T]: ELECTRA's 1 where it is asked whether a token is replaced",
    "restored": "float32 [B, T]: its 1 where it is asked what a token was",
    "negatives": "int32 [B, T K]: K words that each place is told from",
    "back_targets": "int32 [B, T]: what a model that reads backward predicts",
    "back_weights": "float32 [B, T]: the weights of those",
    "soft_weights": "float32 [B, T]: where a teacher's distribution is learnt",
}
