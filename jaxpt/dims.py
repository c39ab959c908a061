"""The glossary: letters of array shapes, and the keys of rows and batches as types.

An array called `q_BTNH` has shape [B, T, N, H]; public signatures carry the same
letters through jaxtyping (`Float[Array, "B T D"]`).
"""

from typing import TYPE_CHECKING, Any, TypedDict

if TYPE_CHECKING:  # else whoever reads the glossary imports jax
    from jax import Array
else:
    Array = Any
# Dicts, tuples and lists of arrays. jaxtyping's has no type that pyright knows.
PyTree = Any

LETTERS = {
    "B": "batch: rows in a step",
    "R": "raw length: tokens in a row before corruption",
    "T": "query or target length",
    "S": "key or source length",
    "D": "model width",
    "N": "attention heads",
    "H": "width of one head",
    "F": "MLP width",
    "E": "embedding width, if it differs from D",
    "V": "vocabulary size",
    "P": "predicted positions of a row",
}


class Rows(TypedDict, total=False):
    """Rows before corruption, as `ROW_KEYS` describes them."""

    tokens: Array
    index: Array
    segment_ids: Array
    type_ids: Array
    is_random_next: Array
    is_swapped: Array
    sentence_ids: Array
    answers: Array
    progress: Array
    row_weights: Array


class Batch(TypedDict, total=False):
    """Rows after corruption, as `BATCH_KEYS` describes them."""

    index: Array
    inputs: Array
    targets: Array
    weights: dict[str, Array]
    masked_positions: Array
    segment_ids: Array
    type_ids: Array
    is_prefix: Array
    dec_inputs: Array
    dec_segment_ids: Array
    nsp_labels: Array
    sop_labels: Array
    span_starts: Array
    span_ends: Array
    original: Array
    inverse_rates: Array
    noise_levels: Array
    loss_limits: Array
    offset_weights: Array
    prefix_targets: Array
    prefix_weights: Array
    state_pairs: Array
    prediction_pairs: Array
    bag_tokens: Array
    bag_weights: Array
    other_rows: dict[str, Array]
    blocks: Array
    mask_seeds: Array
    later_shares: Array
    negatives: Array
    back_targets: Array
    kind: Array
    parts: dict[str, "Batch"]


ROW_KEYS = {
    "tokens": "int32 [B, R]",
    "index": "int32 [B]: index in the global batch, which seeds the row's key",
    "segment_ids": "int32 [B, R], optional: 0 is padding, 1.. the packed documents",
    "type_ids": "int32 [B, R], optional: 0 in sentence A of a pair, 1 in B",
    "is_random_next": "int32 [B], optional: 1 if B does not follow A",
    "is_swapped": "int32 [B], optional: 1 if B precedes A",
    "sentence_ids": "int32 [B, R], optional: 1.. the sentences of a row, 0 padding",
    "answers": "int32 [B, R], optional: 1 where losses are read, if not everywhere",
    "progress": "float32 [B], in training: the fraction of all steps that are done",
    "row_weights": "float32 [B], in evaluation: 0 in rows that only pad a batch",
}

# After corruption. Keys of a decoder have the prefix `dec_`.
BATCH_KEYS = {
    "index": "int32 [B]: that of the row, which seeds the generator's samples",
    "inputs": "int32 [B, T]",
    "targets": "int32 [B, T], or [B, P] at the masked positions",
    "weights": "{term: float32}: loss weights by term, by whose sum it is divided",
    "masked_positions": "int32 [B, P]: positions of the P predictions",
    "segment_ids": "int32 [B, T], if the rows have them or are padded",
    "type_ids": "int32 [B, T], if the rows have them",
    "is_prefix": "bool [B, T]: True at inputs that are visible to their whole document",
    "dec_inputs": "int32 [B, T]",
    "dec_segment_ids": "int32 [B, T], if the batch has segment_ids",
    "nsp_labels": "int32 [B]: BERT's 1 if B does not follow A",
    "sop_labels": "int32 [B]: 1 if B precedes A",
    "span_starts": "int32 [B, P]: first position of the span around each prediction",
    "span_ends": "int32 [B, P]: its last position",
    "original": "int32 [B, T]: the inputs before masking, if they are read too",
    "inverse_rates": "float32 [B, T]: weights of masked tokens, such as 1 / their rate",
    "noise_levels": "float32 [B]: the level of a row's noise, log (signal / noise)",
    "loss_limits": "float32 [B]: the most that the loss of a token is",
    "offset_weights": "float32 [B, K]: weights of targets at the offsets 2, 3, ...",
    "prefix_targets": "int32 [B, T]: second targets, prefixes of the first",
    "prefix_weights": "float32 [B, T]: their weights, 0 if there is none",
    "state_pairs": "float32 [B, T, K]: 1 where a state k ahead is predicted, else 0",
    "prediction_pairs": "float32 [B, T, K]: 1 where its prediction is too",
    "bag_tokens": "int32 [B, T, K]: the tokens after the next one of each position",
    "bag_weights": "float32 [B, T, K]: 1 where one counts, 0 for a repeated one",
    "other_rows": "{key: array}: inputs of other rows, whose states are targets",
    "blocks": "int32 [B, T]: the block of its document that each position is in",
    "mask_seeds": "uint32 [B]: of the mask's draw, the same in every row",
    "later_shares": "float32 [B]: of the later tokens that a token attends to",
    "negatives": "int32 [B, T K]: K negative samples of each position",
    "back_targets": "int32 [B, T]: targets of a model that reads backward",
    "kind": "int32 [B]: the part of a mixture of objectives that a row is of",
    "parts": "{part: batch}: of a mixture, the batch of each part, without weights",
}
# Keys of rows and batches that hold token ids.
TOKEN_KEYS = frozenset(
    ("tokens", "inputs", "original", "dec_inputs", "targets")
    + ("back_targets", "negatives", "prefix_targets", "bag_tokens")
)
