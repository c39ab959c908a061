"""Settings of models and of adaptation that are refused."""

import pytest
from tiny_refusals import check_refusal, refused

from jaxpt.nn.adaptation.adapt_spec import AdaptSpec
from jaxpt.nn.model_spec import ModelSpec

MODEL = """
    num_layers=0; d_model=0; num_heads=0; d_ff=-1; max_len=0; vocab_size=-1
    num_decoder_layers=-1; embedding_size=-8; num_heads=4 & d_model=30
    d_model=33 & num_heads=3 & positions=sinusoidal
    embedding_size=33 & positions=sinusoidal
    relative_bias=True & positions=relative; relative_bias=True & positions=alibi
    relative_buckets=30; relative_buckets=0; relative_max_distance=16
    disentangled=p2p; disentangled=both & positions=rotary
    disentangled=both & positions=relative; disentangled=p2c & positions=alibi
    disentangled=c2p & relative_bias=True
    disentangled_norm=True; disentangled_projections=True: must be False with
    qk_norm=scaled & disentangled=p2c; attention_softcap=2.0 & disentangled=both
    relative_max_distance=15 & disentangled=both ... or equal to it
    relative_buckets=31: must be a multiple of 4, or odd
    relative_buckets=30 & disentangled=both: must be a multiple of 4, or odd
    relative_max_distance=9 & disentangled=both & relative_buckets=31 ... at least 10
    norm_offset=True & norm_scale=False: must be False with
    attention_out_norm=inside; down_bias=True; head_activation=tanh
    dropout=1.0; dropout=nan; embed_dropout=-0.1; attention_dropout=2
    norm=batchnorm; norm_position=middle; norm_epsilon=-1.0; init=xavier; init_std=-1.0
    activation=tanh; positions=t5; relative_directions=ahead; dtype=fp16
    remat=some; attention=flash; loss_chunk=-1; window=-1; global_every=2
    rotary_fraction=0.0; rotary_fraction=1.1; rotary_fraction=nan
    rotary_fraction=0.3 & positions=rotary & d_model=40
    rotary_fraction=0.1 & positions=rotary & d_model=40
    parallel_residual=True & norm_position=post
    parallel_residual=True & norm_position=output
    shared_norm=True: must be False with model.parallel_residual=False
    shared_norm=True & parallel_residual=True & embed_norm=True
    embed_norm=True & norm_position=output; unrotated_every=-1; first_norm=True
    embed_norm=True & norm_position=both; attention_scalar=-1; attention_softcap=-1.0
    attention_scalar=4 & scale_attention=False
    parallel_residual=True & num_decoder_layers=1; qkv_bias=True
    rotary_scaling=8.0; rotary_scaling=(0.5,); rotary_scaling=(8.0, 1.0)
    rotary_scaling=('8', 1.0, 4.0, 64.0)
    rotary_scaling=(0.5, 1.0, 4.0, 64.0); rotary_scaling=(8.0, 1.0, 4.0, 64.0, 0.0)
    rotary_scaling=(8.0, 1.0, 4.0, 64.0, 1.0, 1.0)
    rotary_scaling=(8.0, 0.0, 4.0, 64.0); rotary_scaling=(8.0, 4.0, 4.0, 64.0)
    rotary_scaling=(8.0, 1.0, 4.0, 0.0); rotary_scaling=(8.0, 1.0, 4.0, 64.5)
    rotary_scaling=(inf, 1.0, 4.0, 64.0); rotary_scaling=(8.0, 1.0, inf, 64.0)
    rotary_factors=(8.0, 1.0, 2.0) & positions=rotary; rotary_factors=(8.0, 1.0)
    rotary_factors=(8.5, 1.0, 2.0, 2.0); rotary_factors=(8.0, 0.0, 2.0, 2.0)
    rotary_factors=(8.0, 1.0, 2.0, 2.0) & positions=rotary: must be () or 34 numbers
    scan_layers=True & unrotated_every=2
    local_rotary_base=-1.0 & window=2; scan_layers=True & window=2 & global_every=2
    scan_layers=True & value_embeddings=True: must be False with
    scan_layers=True & depth_sums=True: must be False with model.depth_sums=True
    depth_sums=True & num_decoder_layers=1: must be False with
    depth_sums=True & parallel_residual=True: must be False with
    scan_layers=True & layer_sums=True: must be False with model.layer_sums=True
    layer_sums=True & num_decoder_layers=1: must be False with
    layer_sums=True & parallel_residual=True: must be False with
    layer_sums=True & depth_sums=True: must be False with
    post_embed_norm=False: must be True with; decoder_tokens=True: must be False with
    decoder_window=0: must be -1 with; decoder_window=-2 & num_decoder_layers=1
    relative_every_layer=True: must be False with; sinusoids=both
    d_model=2 & num_heads=1 & sinusoids=fairseq: must be at least 4
    transform_size=-1; transform_size=64: must be 0 or 128 with
    transform_size=64 & head_transform=True: must be 0 or 128 with
    token_dropout=-2; token_dropout=3 & num_decoder_layers=1: must be -1 with
"""
ADAPT = """
    method=qlora ... linear_probe, exact_probe, lora
    rank=0 & method=lora ... at least 1
    alpha=0.0 & method=lora ... above 0
    targets=() & method=lora ... not empty
    targets=('up', 'up') & method=lora ... repeats
    dropout=1.0 & method=lora ... below 1
    size=-1 & method=houlsby ... at least 0
    prompt_length=0 & method=prompt; prompt_init=zero & method=prompt
"""
# What the method does not use is not accepted either.
UNUSED = """
    rank=4: must be 8 ... adapt.method=full
    size=8 & method=bitfit ... adapt.method=bitfit
    prompt_length=5 & method=lora; rslora=True & method=prompt
"""


@pytest.mark.parametrize(
    "make, parts",
    [
        *refused(ModelSpec, "model", MODEL),
        *refused(AdaptSpec, "adapt", ADAPT),
        *refused(AdaptSpec, "adapt", UNUSED),
    ],
)
def test_bad_settings_are_refused(make, parts, refuses):
    check_refusal(make, parts, refuses)
