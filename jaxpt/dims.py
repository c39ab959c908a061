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
    "progress": "float32 [B], while training: the fraction of its steps that are done",
    "row_weights": "float32 [B], while evaluating: 0 in rows that only pad a batch",
}

# After corruption. A decoder's carry the prefix `dec_`.
BATCH_KEYS = {
    "index": "int32 [B]: the row's own, which keys the generator's samples",
    "inputs": "int32 [B, T]",
    "targets": "int32 [B, T], or [B, P] at the masked positions",
    "weights": "{term: float32}: what each of its losses counts for; the sum divides",
    "masked_positions": "int32 [B, P]: where the P predictions are read",
    "segment_ids": "int32 [B, T], where rows carried them or are padded",
    "type_ids": "int32 [B, T], where the rows carried them",
    "is_prefix": "bool [B, T]: True at inputs that all of their document may see",
    "dec_inputs": "int32 [B, T]",
    "dec_segment_ids": "int32 [B, T], where there are segment_ids",
    "nsp_labels": "int32 [B]: BERT's 1 where B does not follow A",
    "sop_labels": "int32 [B]: 1 where B precedes A",
    "span_starts": "int32 [B, P]: first position of the span around each prediction",
    "span_ends": "int32 [B, P]: its last position",
    "original": "int32 [B, T]: ELECTRA's row before masking",
    "inverse_rates": "float32 [B, T]: 1 / the row's mask rate at masked tokens, else 0",
    "negatives": "int32 [B, T K]: K words that each position is told apart from",
    "back_targets": "int32 [B, T]: what a model that reads backward predicts",
}
