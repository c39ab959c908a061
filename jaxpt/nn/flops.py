"""FLOPs of models, counted from their sizes.

Counted: every matrix product (2 operations per multiply-add), attention in full (T x S,
also under a causal mask; in local layers both sides of the window, without the padding
of blocks), the vocabulary head on the predicted positions. Not counted: embedding
look-ups, norms, softmax, activations. The products of an optimizer (Muon's) are added
once per step (`jaxpt.learn.optimizer.count_flops`). A training step is 3 forward
passes: one forward, two for the gradients of inputs and of weights; recomputation to
save memory is not counted. With N parameters in kernels and in the head's table this is
6 N + 12 L D T per token (PaLM, appendix B).

Disentangled attention multiplies each query and key with the embeddings of all
distances in the row. The projections of these embeddings are counted once per batch
(`batch_flops`), as all its rows share them.

The products of a compiled step are counted exactly, except for windows. XLA's count of
all operations (`jaxpt.runs.xla_flops`) is higher, the more so in narrower models.
"""

from jaxpt.nn.layers import ValueEmbedding
from jaxpt.nn.model_spec import DISENTANGLED, ModelSpec

TRAIN_FACTOR = 3


def stack_flops(
    spec: ModelSpec, num_layers: int, length: int, source_length: int = 0
) -> float:
    """Forward operations of one stack on one row.

    Args:
      length: T, the positions of the stack.
      source_length: S, the positions that the cross-attention reads; 0 for none.
    """
    # The total width of the heads of queries, and of keys or values.
    queries, keys = (n * spec.head_width for n in (spec.num_heads, spec.kv_heads))
    projections = 4 * length * spec.d_model * (queries + keys)
    gate = 2 * length * spec.d_model * queries if spec.attention_gate else 0
    projections += gate
    matrices = 3 if spec.gated_mlp else 2
    mlp = 2 * matrices * length * spec.d_model * spec.d_ff
    cross = 0
    if source_length:
        cross = 4 * spec.d_model * (length * queries + source_length * keys)
        cross += 4 * length * source_length * queries + gate
    num_attended, gates = 0, 0  # keys per query, gates of values, summed over layers
    for layer in range(num_layers):
        if spec.has_values(layer, num_layers):
            read = min(ValueEmbedding.width, spec.d_model)
            gates += 2 * length * read * spec.kv_heads
        is_local = spec.is_local(layer)
        num_attended += min(length, 2 * spec.window + 1) if is_local else length
    layers: float = num_layers * (projections + mlp + cross) + gates
    layers += distance_flops(spec, num_layers, length)
    return layers + 4 * length * num_attended * queries


def distance_flops(spec: ModelSpec, num_layers: int, length: int) -> float:
    """Forward operations of the products of disentangled attention on one row."""
    heads = DISENTANGLED[spec.disentangled] * spec.num_heads * spec.head_width
    return 2 * num_layers * length * (2 * length - 1) * heads


def batch_flops(spec: ModelSpec) -> float:
    """Forward operations of a Transformer on a batch, whatever its rows are.

    >>> spec = ModelSpec(disentangled="c2p", relative_buckets=8)
    >>> batch_flops(spec)  # 2 layers: 2 x 8 x 128 x 128 each
    524288
    """
    widths = {"c2p": spec.kv_heads, "p2c": spec.num_heads}
    heads = sum(n for part, n in widths.items() if spec.disentangled in (part, "both"))
    layer = 2 * spec.relative_buckets * spec.d_model * heads * spec.head_width
    return (spec.num_layers + spec.num_decoder_layers) * layer


def project_flops(spec: ModelSpec, length: int) -> float:
    """Forward operations of the projection from embedding to model width, if any."""
    if spec.embedding_dim == spec.d_model:
        return 0
    return 2 * length * spec.embedding_dim * spec.d_model


def head_flops(spec: ModelSpec, num_positions: float) -> float:
    """Forward operations of the vocabulary head on `num_positions`."""
    table = spec.embedding_dim if spec.tie_embeddings else spec.d_model
    if spec.head_transform:
        table = spec.transform_width
    operations = 2 * num_positions * table * spec.vocab_size
    if spec.head_transform or (spec.tie_embeddings and table != spec.d_model):
        operations += 2 * num_positions * spec.d_model * table
    return operations


def transformer_flops(
    spec: ModelSpec, lengths: dict[str, int], num_predictions: float
) -> float:
    """Forward operations of a whole Transformer on one row.

    Args:
      lengths: the positions of the only stack, or of the encoder and the decoder.
      num_predictions: the positions of the vocabulary head.
    """
    source, *target = lengths.values()
    forward = project_flops(spec, source + sum(target))
    forward += stack_flops(spec, spec.num_layers, source)
    if target:
        forward += stack_flops(
            spec.of_decoder, spec.num_decoder_layers, target[0], source
        )
    return forward + head_flops(spec, num_predictions)


def clark_flops(
    spec: ModelSpec,
    length: int,
    output_share: float = 0.15625,
    is_discriminator: bool = False,
) -> float:
    """Training operations of one row by the count of ELECTRA's published totals.

    Clark et al. 2020; google-research/electra, flops_computation.py. Differences from
    the count above: the backward pass costs the same as the forward pass, embedding
    look-ups are products with the table, and elementwise operations are counted. The
    count is kept as published, with its errors: the layer norm after the attention has
    5 operations in total, and the output of the heads has width D for any head width.

    Args:
      length: that of the row, in every stack.
      output_share: the fraction of positions that the vocabulary head computes.
      is_discriminator: the head is ELECTRA's discriminator instead.
    """
    width, embed, vocab = spec.d_model, spec.embedding_dim, spec.vocab_size
    dropout, norm, activation, softmax = 4, 5, 8, 5
    lookup = 2 * embed * vocab + 2 * embed * (length + 2) + 2 * embed
    lookup += (norm + dropout) * embed
    if embed != width:
        lookup += 2 * width * embed + width
    scores = 2 * embed * vocab + 2 * width * embed + embed + softmax * vocab + 2 * vocab
    head = output_share * (scores + (activation + norm) * embed)
    if is_discriminator:
        head = 2 * width * width + width + activation * width + 2 * width

    heads = spec.num_heads * spec.head_width
    attention = 6 * width * heads + 3 * heads + 2 * heads * length
    attention += (softmax + dropout + 1) * length * spec.num_heads
    attention += 2 * width * length + 2 * width * width
    attention += (1 + dropout + 1) * width + norm
    mlp = 4 * width * spec.d_ff + (activation + 1) * spec.d_ff
    mlp += (1 + dropout + 1 + norm) * width

    # A decoder's layers have two attentions, and the decoder embeds its tokens.
    layers = spec.num_layers * (attention + mlp)
    decoder = spec.num_decoder_layers * (2 * attention + mlp)
    lookups = lookup * (2 if spec.num_decoder_layers else 1)
    return 2 * length * (lookups + layers + decoder + head)
