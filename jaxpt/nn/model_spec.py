"""ModelSpec: the configuration of a Transformer.

A family (GPT-2, BERT, T5 ...) is a set of these values, never a subclass. Every option
is one that a named family needs.
"""

import dataclasses
from typing import Annotated, Any, ClassVar

from jaxpt.by_name import load_place
from jaxpt.nn.model_conditions import list_conditions
from jaxpt.ops.kernel_choice import KERNELS, has_bfloat16
from jaxpt.ops.losses import LogitOptions
from jaxpt.setting_types import (
    BelowOne,
    Limits,
    NonNegativeFloat,
    NonNegativeInt,
    OneOf,
    PositiveFloat,
    PositiveFraction,
    PositiveInt,
    Rule,
    Settings,
    refuse,
)

NORMS = ("layernorm", "rmsnorm")
NORM_POSITIONS = ("pre", "post", "output", "both")
QK_NORMS = ("none", "unscaled", "scaled", "width")
ATTENTION_NORMS = ("none", "before", "after")  # of the output layer
BIASES = ("auto", "yes", "no")
ACTIVATIONS = ("relu", "relu2", "gelu", "gelu_tanh", "silu")
POSITIONS = ("learned", "sinusoidal", "relative", "rotary", "alibi", "none")
SINUSOIDS = ("pairs", "halves", "fairseq")  # the order and the rates
LIMITED = ("learned", "sinusoidal")  # at most `max_len` positions
DIRECTIONS = ("auto", "both", "past")
# The products with embeddings of distances: of keys' contents, of queries', or of both.
DISENTANGLED = {"none": 0, "c2p": 1, "p2c": 1, "both": 2}
INITS = ("normal", "truncated", "gpt2", "t5", "torch")
# By parametrization, alpha: residual branches have the factor depth^-alpha.
DEPTH_EXPONENTS = {"standard": 0.0, "mup": 0.0, "depth_mup": 0.5, "completep": 1.0}
DTYPES = ("auto", "float32", "bfloat16", "float16")
REMATS = ("none", "dots", "full")
MAX_LAYERS = 1000  # of a stack
MAX_WIDTH = 2**24
Width = Annotated[int, Limits(least=1, most=MAX_WIDTH)]
DerivedWidth = Annotated[int, Limits(least=0, most=MAX_WIDTH)]
NumLayers = Annotated[int, Limits(least=1, most=MAX_LAYERS)]
SCALING = (
    "(), (factor >= 1,), (factor, low > 0, high > low, length >= 1) or these four and "
    "magnitude > 0; length whole"
)

FACTORS = "() or a whole length, a magnitude and two lists of divisors, above 0"


def _is_scaling(value: tuple[float, ...]) -> bool:
    """Whether a value of `rotary_scaling` is allowed."""
    if len(value) in (0, 1):
        return all(factor >= 1 for factor in value)
    if len(value) not in (4, 5):
        return False
    factor, low, high, length, magnitude = (*value, 1.0)[:5]
    is_length = length >= 1 and length == int(length)
    return factor >= 1 and 0 < low < high and is_length and magnitude > 0


def _are_factors(value: tuple[float, ...]) -> bool:
    """Whether a value of `rotary_factors` is allowed, but for its length."""
    if not value:
        return True
    is_whole = len(value) >= 4 and len(value) % 2 == 0 and value[0] == int(value[0])
    return is_whole and value[0] >= 1 and all(0 < x < float("inf") for x in value)


def _are_multipliers(value: tuple[float, ...]) -> bool:
    """Whether a value of `multipliers` is allowed."""
    return len(value) in (0, 3) and all(factor > 0 for factor in value)


@dataclasses.dataclass(frozen=True)
class ModelSpec(Settings):
    """Sizes and choices of a Transformer with one stack, or with two.

    Attributes:
      vocab_size: V, rows of the table and scores of the head; 0 is the number of the
        tokenizer's ids. More pads them (GPT-2 to 50,304 for speed, T5 to 32,128).
      num_layers: layers of the only stack, or of the encoder.
      num_decoder_layers: 0 for one stack; more makes an encoder-decoder.
      d_model: D, the width of the hidden states.
      num_heads: N, heads of attention.
      d_ff: F, the width between the two layers of an MLP.
      max_len: positions of the learned table, and the longest generation.
      embedding_size: E; 0 means E = D. Otherwise a projection leads from E to D
        (ELECTRA).
      num_kv_heads: heads of keys and values, each shared by several heads of queries
        (Llama); 0 means num_heads.
      head_dim: H; 0 means D / num_heads (T5 1.1 has another).
      num_types: rows of the table of segment types, added to the embeddings (BERT: 2).
      norm: "layernorm" or "rmsnorm" (T5, Llama).
      norm_epsilon: added to the variance.
      norm_scale: norms have factors, and LayerNorms a bias. Without, only those of
        embeddings of distances and of `attention_out_norm=after` have (LTG-BERT).
      norm_bias: LayerNorms with factors have a bias, too (ModernBERT's have none).
      norm_position: "pre", x + f(norm(x)) (GPT-2, T5); "post", norm(x + f(x)) (BERT:
        the embeddings are normed too); "output", x + norm(f(x)) (OLMo 2); or "both",
        x + norm'(f(norm(x))) (Gemma). All but "post" have a last norm after the stack.
      norm_offset: norms scale by 1 + w instead of w (Gemma).
      parallel_residual: x + attention(norm(x)) + MLP(norm'(x)), where the MLP does not
        read the attention's output (GPT-NeoX).
      shared_norm: with parallel_residual, both read the same norm(x) (Phi).
      embed_norm: with "pre", the embeddings are normed instead of the first layer's
        input (ModernBERT).
      first_norm: with embed_norm, the first layer's input is normed, too
        (RoBERTa-PreLayerNorm).
      post_embed_norm: with "post", the embeddings are normed, too; without, they are
        not (Vaswani et al. 2017; Marian).
      activation: of the MLPs and of the heads' dense layers; "relu2" is the square of
        relu (Primer; modded-nanogpt).
      gated_mlp: act(x V) * (x W) instead of act(x W) (T5 1.1, Llama, ModernBERT).
      inner_norm: an MLP's states between its layers are normed (LTG-BERT).
      positions: learned and sinusoidal are added to the embeddings, separately for an
        encoder and a decoder; relative is T5's bucketed bias, one table per stack;
        rotary rotates queries and keys (Su et al. 2021, in Llama's halves); alibi adds
        a slope of each head times minus the distance (Press et al. 2022), in both
        directions where a token reads ahead (Jina 2).
      sinusoids: of sinusoidal positions: "pairs" of a sine and a cosine (Vaswani et al.
        2017), first all sines and then all cosines ("halves": Marian, Pegasus), or
        these with rates from 1 to 1/10000, both included ("fairseq": M2M-100).
      rotary_base: of the angles' frequencies.
      rotary_scaling: slower frequencies for texts longer than those of the pretraining
        (Llama 3.1: factor, low, high, length = 8, 1, 4, 8192). A frequency with less
        than `low` turns in `length` tokens is divided by `factor`, one with more than
        `high` is kept, and between them it is interpolated. A fifth number is YaRN's
        magnitude, by which rotated queries and keys are multiplied (OLMo 3: 8, 1, 32,
        8192, 1.2079); it interpolates by the frequency's place among the frequencies.
        (factor,) divides all (Gemma 3). (): none is changed. Local layers with
        `local_rotary_base` are not scaled.
      rotary_factors: other frequencies for rows longer than those of the pretraining
        (LongRoPE, Ding et al. 2024; Phi-3's 128k). The numbers are a length, the
        magnitude (as YaRN's), what divides each frequency in rows of at most that
        length, and what does in longer ones. All positions of a row have the same, and
        generation stays within that length.
      rotary_fraction: the part of each head, from its first number on, that is rotated
        (GPT-NeoX: 0.25).
      unrotated_every: with rotary positions, the last of every n layers has none
        (SmolLM3: 4); 0: all layers have them.
      window: a query of a local layer attends to at most this number of tokens before
        it and, in an encoder, after it; 0: no layer is local. A window of 64 is
        ModernBERT's `local_attention` of 128, and Mistral's `sliding_window` of 65.
      global_every: with a window, every n-th layer, from the first on, attends to
        everything (ModernBERT: 3); 0: none (Mistral).
      global_last: with global_every, those layers are the last of each n instead of
        the first (Gemma 2 and 3).
      decoder_window: that of a decoder with an encoder, 0 for none; -1 means `window`
        (T5Gemma as transformers reads it: 4095, next to 4096).
      local_rotary_base: of local layers; 0 means rotary_base.
      relative_bias: T5's bias is added to other positions, too (MPNet, to learned).
      relative_every_layer: T5's bias has a table for each layer instead of one for the
        stack (UMT5).
      relative_buckets: the number of buckets of T5's bias, or of disentangled
        attention, where half of them are for each side (DeBERTa-v3: 512). With
        `disentangled` an odd number has the same buckets for both sides, and one for
        distance 0 between them (LTG-BERT: 63).
      relative_max_distance: all larger distances share a bucket. With `disentangled`,
        half of `relative_buckets` gives each smaller distance a bucket. With an odd
        number of buckets, this distance is the first that shares one.
      relative_directions: T5's buckets are for "both" sides of a token, half of them
        for each, or all for its "past" (always so in a decoder with an encoder). "auto"
        is "past" for an objective that never reads ahead (`clm`,
        `causal_distillation`), "both" for others. A run that continues another one
        must have the same.
      disentangled: the logits of attention get products with embeddings of distances
        (DeBERTa): of each query ("c2p"), of each key ("p2c"), or of "both"; they are
        divided by sqrt(2 H) or sqrt(3 H) instead of sqrt(H). In addition to learned,
        sinusoidal or no positions (DeBERTa-v3: none). Only XLA has a kernel for it
        here.
      disentangled_projections: embeddings of distances have separate projections;
        otherwise they share those of keys and queries (DeBERTa-v3).
      disentangled_norm: embeddings of distances are normed (DeBERTa-v2 and v3).
      position_offset: unused rows of the learned or sinusoidal table before the first
        position (RoBERTa, BART, M2M-100: 2).
      scale_attention: logits are divided by sqrt(H) (T5's are not).
      attention_scalar: logits are divided by sqrt of this instead of sqrt(H) (Gemma);
        0: they are not.
      attention_softcap: c: the logits of attention are c tanh(logits / c) (Gemma 2:
        50), for which only XLA has a kernel here; 0: they are not limited.
      qk_norm: each head's queries and keys are divided by their RMS, before rotary
        positions: "unscaled" (modded-nanogpt, nanochat), or "scaled" by a learned
        factor for each of the H numbers (Qwen3). "width": all heads together are
        divided by one RMS and scaled by a factor for each of their numbers (OLMo 2).
      attention_out_norm: the heads' results, side by side, are normed "before"
        attention's output layer (GPT-BERT), or its output "after" it (LTG-BERT).
      attention_gate: the heads' results are multiplied by gelu(x W + b) of attention's
        input, before that norm (GPT-BERT).
      depth_sums: what each attention or MLP adds to is replaced, after the addition, by
        a learned weighted sum of itself, of all such results before it and of the
        stack's input (DenseFormer; GPT-BERT). In one stack only.
      layer_sums: a layer reads a sum of the stack's input and of the outputs of all
        layers before it, weighted by a softmax of learned numbers, and attention's
        output replaces that sum instead of being added to it (ELC-BERT). In one stack
        only.
      value_embeddings: the last layer of a stack, and every other one before it, adds
        to the values of its self-attention a vector of each token, from a table
        [V, key heads x H] of the layer, with a gate for each head (nanochat). These
        parameters hardly add FLOPs. Only in Transformers.
      smear: each token's embedding gets a gated share of the one before it, if the
        token attends to that (modded-nanogpt, nanochat). Only in Transformers.
      use_bias: dense layers have biases (T5's and Llama's have none).
      qkv_bias: the dense layers of queries, keys and values have biases: "yes" (Qwen 2,
        whose others have none), "no" (GPT-Neo, whose others have some), or "auto", as
        `use_bias`.
      out_bias: the dense layers of attention's outputs have biases, likewise (GPT-J,
        whose MLPs have some, has none there).
      up_bias: the dense layers of an MLP that read its input have biases, likewise
        (GTE, whose others have some, has none there).
      down_bias: the last dense layer of an MLP has a bias, likewise (LTG-BERT, whose
        attention has some, has none in MLPs).
      tie_embeddings: the vocabulary head reuses the token table.
      decoder_tokens: a decoder with an encoder has its own token table, which a tied
        head reuses (T5Gemma).
      scale_embeddings: token embeddings are multiplied by sqrt(D) (Gemma).
      token_dropout: the id of [MASK], whose embedding is then 0, while the others of a
        text are multiplied by 0.88 / (1 - r), where r is the share of [MASK] in it
        (ESM-2; 0.12 is its share in training); -1: not so. Not in a decoder.
      scale_logits: hidden states are divided by sqrt(D) before the head (T5 1.0).
      multipliers: the sum of embeddings is multiplied by the first,
        the outputs of attention and MLP by the second, and logits,
        without their bias, are divided by the third (Granite 3.1: 12, 0.22, 8). (): by
        1.
      head_bias: the vocabulary head has one (BERT).
      logit_softcap: c: the vocabulary's logits are c tanh(logits / c) (Gemma 2: 30;
        nanochat: 15); 0: they are not limited.
      head_transform: BERT's dense + activation + norm before the vocabulary.
      head_activation: of the heads' dense layers; "auto" is `activation` (LTG-BERT:
        gelu, and gelu_tanh in its MLPs).
      transform_bias: its dense layer has a bias, likewise (NomicBERT has one there).
      transform_size: the width of `head_transform` and of an untied head's table
        (RemBERT: 1664, next to E = 256); 0 means E.
      z_loss: the loss over the vocabulary gets this times (log sum exp(logits))^2 for
        each target, in its gradient; the reported losses stay without it (PaLM: 1e-4).
      dropout: on the output of every attention and MLP.
      embed_dropout: on the embeddings.
      attention_dropout: on the attention weights.
      init: "normal" (std `init_std`; zero biases); "truncated" (the same, cut at two
        std: BERT); "gpt2" (the same, with layers that add to the residual stream
        divided by sqrt(number of additions)); "t5" (by fan in, as Mesh TensorFlow; an
        untied head too, so that the first loss is near ln V); or "torch" (PyTorch's
        defaults: uniform in 1/sqrt(fan in); standard normal embeddings unless they are
        tied).
      init_std: the standard deviation of "normal", "truncated" and "gpt2".
      parametrization: how initial values, learning rates, weight decay, Adam's epsilon
        and the factors of residual branches and logits depend on the width and depth
        (`jaxpt.nn.parametrization`): "standard" (they do not), "mup" (on the width),
        "completep" (on both) or "depth_mup" (the same with alpha = 1/2). Settings that
        are tuned at `base_width` and `base_depth` then apply at other sizes.
      base_width: the width for which settings are tuned, if not "standard".
      base_depth: the number of layers of a stack for which settings are tuned, with
        "completep" and "depth_mup".
      dtype: of matrix products and of layers' outputs; "auto" is bfloat16 on TPU
        and GPU, float32 on CPU and on NVIDIA GPUs below compute capability 8.0, which
        emulate bfloat16. "float16", for those, trains with dynamic loss scaling
        (`jaxpt.learn.loss_scale`). Parameters, softmax, norms and losses stay float32.
        A run records the value of "auto", and keeps it on another device.
      attention: the kernel of attention; "auto" is the fastest possible one (table in
        `ops/kernel_choice.py`); "xla", "cudnn" or "splash" is that one, and an error in
        training if it is not possible.
      loss_chunk: the most rows whose logits exist at once in a loss over the
        vocabulary; 0 depends on the device: 4M logits on CPU, 268M elsewhere, and at
        least 256 rows.
      scan_layers: the layers of a stack run in a loop over stacked parameters
        (`jaxpt.nn.scan`), so that compile time does not grow with their number; steps
        of small models on CPU are slower. Only dropout differs from unrolled layers.
      remat: what a layer recomputes for the gradient instead of storing it: "none",
        "dots" (all but its products with weights) or "full" (all but its input).
    """

    SECTION: ClassVar[str] = "model"

    vocab_size: NonNegativeInt = 0
    num_layers: NumLayers = 2
    num_decoder_layers: Annotated[int, Limits(least=0, most=MAX_LAYERS)] = 0
    d_model: Width = 128
    num_heads: Width = 4
    d_ff: Width = 512
    max_len: PositiveInt = 128
    embedding_size: DerivedWidth = 0
    num_kv_heads: DerivedWidth = 0
    head_dim: DerivedWidth = 0
    num_types: NonNegativeInt = 0
    norm: Annotated[str, OneOf(*NORMS)] = "layernorm"
    norm_position: Annotated[str, OneOf(*NORM_POSITIONS)] = "pre"
    norm_epsilon: PositiveFloat = 1e-5
    norm_scale: bool = True
    norm_bias: bool = True
    norm_offset: bool = False
    parallel_residual: bool = False
    shared_norm: bool = False
    embed_norm: bool = False
    first_norm: bool = False
    post_embed_norm: bool = True
    activation: Annotated[str, OneOf(*ACTIVATIONS)] = "gelu"
    gated_mlp: bool = False
    inner_norm: bool = False
    positions: Annotated[str, OneOf(*POSITIONS)] = "learned"
    sinusoids: Annotated[str, OneOf(*SINUSOIDS)] = "pairs"
    position_offset: NonNegativeInt = 0
    rotary_base: PositiveFloat = 10000.0
    rotary_scaling: Annotated[tuple[float, ...], Rule(_is_scaling, SCALING)] = ()
    rotary_factors: Annotated[tuple[float, ...], Rule(_are_factors, FACTORS)] = ()
    rotary_fraction: PositiveFraction = 1.0
    unrotated_every: NonNegativeInt = 0
    window: NonNegativeInt = 0
    global_every: NonNegativeInt = 0
    global_last: bool = False
    decoder_window: Annotated[int, Limits(least=-1)] = -1
    local_rotary_base: NonNegativeFloat = 0.0
    relative_bias: bool = False
    relative_every_layer: bool = False
    relative_buckets: Annotated[int, Limits(least=4)] = 32
    relative_max_distance: PositiveInt = 128
    relative_directions: Annotated[str, OneOf(*DIRECTIONS)] = "auto"
    disentangled: Annotated[str, OneOf(*DISENTANGLED)] = "none"
    disentangled_projections: bool = False
    disentangled_norm: bool = False
    scale_attention: bool = True
    attention_scalar: NonNegativeInt = 0
    attention_softcap: NonNegativeFloat = 0.0
    qk_norm: Annotated[str, OneOf(*QK_NORMS)] = "none"
    attention_out_norm: Annotated[str, OneOf(*ATTENTION_NORMS)] = "none"
    attention_gate: bool = False
    depth_sums: bool = False
    layer_sums: bool = False
    value_embeddings: bool = False
    smear: bool = False
    use_bias: bool = True
    qkv_bias: Annotated[str, OneOf(*BIASES)] = "auto"
    out_bias: Annotated[str, OneOf(*BIASES)] = "auto"
    up_bias: Annotated[str, OneOf(*BIASES)] = "auto"
    down_bias: Annotated[str, OneOf(*BIASES)] = "auto"
    tie_embeddings: bool = True
    decoder_tokens: bool = False
    scale_embeddings: bool = False
    token_dropout: Annotated[int, Limits(least=-1)] = -1
    scale_logits: bool = False
    multipliers: Annotated[
        tuple[float, ...], Rule(_are_multipliers, "() or three numbers above 0")
    ] = ()
    head_bias: bool = False
    head_transform: bool = False
    head_activation: Annotated[str, OneOf("auto", *ACTIVATIONS)] = "auto"
    transform_bias: Annotated[str, OneOf(*BIASES)] = "auto"
    transform_size: DerivedWidth = 0
    logit_softcap: NonNegativeFloat = 0.0
    z_loss: NonNegativeFloat = 0.0
    dropout: BelowOne = 0.0
    embed_dropout: BelowOne = 0.0
    attention_dropout: BelowOne = 0.0
    init: Annotated[str, OneOf(*INITS)] = "normal"
    init_std: PositiveFloat = 0.02
    parametrization: Annotated[str, OneOf(*DEPTH_EXPONENTS)] = "standard"
    base_width: Width = 256
    base_depth: NumLayers = 2
    dtype: Annotated[str, OneOf(*DTYPES)] = "auto"
    attention: Annotated[str, OneOf(*KERNELS)] = "auto"
    loss_chunk: NonNegativeInt = 0
    scan_layers: bool = False
    remat: Annotated[str, OneOf(*REMATS)] = "none"

    def __post_init__(self) -> None:
        super().__post_init__()
        self._check_together()
        if self.parametrization != "standard":
            load_place("jaxpt.nn.parametrization:check_model")(self)

    def _check_together(self) -> None:
        """Raises UserError for settings that exclude each other."""
        table = "embedding_size" if self.embedding_size else "d_model"
        own = {"head_dim": self.head_width, table: self.embedding_dim}
        for name, is_good, allowed in list_conditions(self, table):
            if not is_good:
                value = own.get(name, getattr(self, name))
                raise refuse(self.full_name(name), value, allowed)

    @property
    def embedding_dim(self) -> int:
        """E: the width of the embedding table."""
        return self.embedding_size or self.d_model

    @property
    def transform_width(self) -> int:
        """The width of the head's transform."""
        return self.transform_size or self.embedding_dim

    @property
    def head_width(self) -> int:
        """H: the width of one attention head."""
        return self.head_dim or self.d_model // self.num_heads

    @property
    def attention_divisor(self) -> int:
        """The logits of attention are divided by its root, unless they are not scaled.

        >>> ModelSpec(d_model=128, num_heads=2, disentangled="both").attention_divisor
        192
        """
        num_products = 1 + DISENTANGLED[self.disentangled]
        return self.attention_scalar or self.head_width * num_products

    @property
    def rotary_width(self) -> int:
        """How many numbers of each head are rotated."""
        return int(self.head_width * self.rotary_fraction)

    @property
    def width_ratio(self) -> float:
        """m_N: the width over the one for which settings are tuned."""
        is_scaled = self.parametrization != "standard"
        return self.d_model / self.base_width if is_scaled else 1.0

    def residual_scale(self, num_layers: int) -> float:
        """m_L^-alpha: the factor of the branches of a stack of `num_layers` layers.

        >>> ModelSpec(parametrization="completep", base_depth=2).residual_scale(16)
        0.125
        """
        exponent = DEPTH_EXPONENTS[self.parametrization]
        return float((num_layers / self.base_depth) ** -exponent)

    def branch_scale(self, num_layers: int) -> float:
        """The factor of the branches of a stack, with that of `multipliers`."""
        own = self.multipliers[1] if self.multipliers else 1.0
        return self.residual_scale(num_layers) * own

    @property
    def has_qkv_bias(self) -> bool:
        """Whether the dense layers of queries, keys and values have biases."""
        return self.use_bias if self.qkv_bias == "auto" else self.qkv_bias == "yes"

    @property
    def has_out_bias(self) -> bool:
        """Whether the dense layers of attention's outputs have biases."""
        return self.use_bias if self.out_bias == "auto" else self.out_bias == "yes"

    @property
    def has_up_bias(self) -> bool:
        """Whether the dense layers that read an MLP's input have biases."""
        return self.use_bias if self.up_bias == "auto" else self.up_bias == "yes"

    @property
    def has_down_bias(self) -> bool:
        """Whether the last dense layer of an MLP has a bias."""
        return self.use_bias if self.down_bias == "auto" else self.down_bias == "yes"

    @property
    def transform_activation(self) -> str:
        """The activation of the heads' dense layers."""
        is_auto = self.head_activation == "auto"
        return self.activation if is_auto else self.head_activation

    @property
    def has_transform_bias(self) -> bool:
        """Whether the dense layer of the head's transform has a bias."""
        is_auto = self.transform_bias == "auto"
        return self.use_bias if is_auto else self.transform_bias == "yes"

    def is_local(self, layer: int) -> bool:
        """Whether a layer of a stack, counted from 0, is limited to `window`."""
        if not self.window or not self.global_every:
            return self.window > 0
        place = self.global_every - 1 if self.global_last else 0
        return layer % self.global_every != place

    @property
    def of_decoder(self) -> "ModelSpec":
        """The spec of a decoder's layers, whose window is `window`.

        >>> spec = ModelSpec(num_decoder_layers=2, window=4, decoder_window=3)
        >>> spec.of_decoder.window
        3
        """
        if self.decoder_window < 0:
            return self
        return dataclasses.replace(
            self,
            window=self.decoder_window,
            decoder_window=-1,
            global_every=self.global_every if self.decoder_window else 0,
        )

    def layer_scaling(self, is_local: bool) -> tuple[float, ...]:
        """`rotary_scaling` of a global or of a local layer."""
        return () if is_local and self.local_rotary_base else self.rotary_scaling

    @property
    def generation_len(self) -> int:
        """The longest sequence that is generated with a cache."""
        if not self.rotary_factors:
            return self.max_len
        return min(self.max_len, int(self.rotary_factors[0]))

    def choose_factors(self, length: Any) -> "ModelSpec":
        """The spec whose `rotary_factors` are those of rows of this length for any row.

        >>> spec = ModelSpec(positions="rotary", num_heads=1, d_model=2, d_ff=2)
        >>> spec = dataclasses.replace(spec, rotary_factors=(8.0, 1.5, 2.0, 4.0))
        >>> [spec.choose_factors(i).rotary_factors for i in (8, 9)]
        [(8.0, 1.5, 2.0, 2.0), (8.0, 1.5, 4.0, 4.0)]
        """
        if not self.rotary_factors:
            return self
        if not isinstance(length, int):
            raise refuse(
                self.full_name("rotary_factors"),
                self.rotary_factors[:1],
                "() in a function for rows of any length",
            )
        first, magnitude, *both = self.rotary_factors
        half = len(both) // 2
        own = both[half:] if length > first else both[:half]
        return dataclasses.replace(self, rotary_factors=(first, magnitude, *own, *own))

    def is_rotated(self, layer: int) -> bool:
        """Whether a layer of a stack, counted from 0, has rotary positions.

        >>> spec = ModelSpec(positions="rotary", unrotated_every=2)
        >>> [spec.is_rotated(layer) for layer in range(5)]
        [True, False, True, False, True]
        """
        every = self.unrotated_every
        is_left_out = every > 0 and layer % every == every - 1
        return self.positions == "rotary" and not is_left_out

    def has_values(self, layer: int, num_layers: int) -> bool:
        """Whether a layer of a stack, counted from 0, has value embeddings.

        >>> spec = ModelSpec(value_embeddings=True)
        >>> [spec.has_values(layer, 5) for layer in range(5)]
        [True, False, True, False, True]
        """
        return self.value_embeddings and (num_layers - 1 - layer) % 2 == 0

    @property
    def keeps_results(self) -> bool:
        """Whether layers read results of others before the last one."""
        return self.depth_sums or self.layer_sums

    @property
    def kv_heads(self) -> int:
        """Heads of keys and values."""
        return self.num_kv_heads or self.num_heads

    @property
    def compute_dtype(self) -> str:
        """`dtype`, or what "auto" means on this machine."""
        if self.dtype != "auto":
            return self.dtype
        return "bfloat16" if has_bfloat16() else "float32"

    @property
    def logit_options(self) -> LogitOptions:
        """The soft cap and the z-loss."""
        return LogitOptions(self.logit_softcap, self.z_loss)

    @property
    def has_relative_bias(self) -> bool:
        """Whether T5's bias is added to the logits of attention."""
        return self.positions == "relative" or self.relative_bias

    @property
    def has_distance_bias(self) -> bool:
        """Whether a bias by distance, the same for all queries, is added to logits."""
        return self.has_relative_bias or self.positions == "alibi"

    @property
    def is_disentangled(self) -> bool:
        """Whether attention multiplies with embeddings of distances."""
        return self.disentangled != "none"

    @property
    def is_bidirectional(self) -> bool:
        """Whether the relative bias (of the only stack, or encoder) has two sides."""
        return self.relative_directions != "past"

    def direct(self, reads_ahead: bool) -> "ModelSpec":
        """The spec with `relative_directions=auto` resolved for a network."""
        if not self.has_relative_bias or self.relative_directions != "auto":
            return self
        directions = "both" if reads_ahead else "past"
        return dataclasses.replace(self, relative_directions=directions)

    @property
    def has_last_norm(self) -> bool:
        """Whether a stack ends with a norm."""
        return self.norm_position != "post"

    @property
    def norms_embeddings(self) -> bool:
        """Whether the embeddings are normed."""
        return self.embed_norm or (
            self.norm_position == "post" and self.post_embed_norm
        )

    @property
    def omits_first_norm(self) -> bool:
        """Whether a first layer reads normed embeddings as they are."""
        return self.embed_norm and not self.first_norm
