"""Settings of objectives that are refused."""

import re

import pytest
from tiny_refusals import check_refusal, refused

from jaxpt.config.plan import make_plan
from jaxpt.objectives import OBJECTIVES

MASKING = """
    masking=word: must be one of tokens, words, spans
    span_p=0.0: must be between 0 and 1; span_p=1.0
    max_span_length=0: must be from 1
    static_masks=-1: must be at least 0
    static_masks=2 & mask_rate_end=0.1: must be 0 with
    mask_rate_end=1.0: must be at least 0 and below 1
    mask_rate=1.0: must be between 0 and 1
"""
MLM = """
    mask_rate=0.0; mask_rate=1.0; mask_rate=nan
    replace_mask=-0.1; replace_mask=nan
    replace_mask=0.8 & replace_random=0.3 ... , mlm.replace_random=0.3: their sum must
"""
SPAN_CORRUPTION = """
    noise_density=0.0; noise_density=1.0; mean_span_length=0.5; mean_span_length=nan
    mean_span_length=500.0: must be at most
    noise_density=0.9 & mean_span_length=1.0 ... fit
"""
ELECTRA = """
    mask_rate=0.0; replace_mask=1.1; generator_size=0.0; generator_size=1.5
    temperature=0.0; generator_weight=-1.0; discriminator_weight=0.0
    variant=bert: must be one of full, electra_15, replace_mlm
    share_embeddings=False: must be one of shared, separate, disentangled
"""
BERT = """
    mask_rate=0.0; replace_mask=0.8 & replace_random=0.3 ... , bert.replace_random=0.3
    max_predictions=-1: must be at least 0
    sentence_task=order ... nsp, sop, none
"""
SPANBERT = """
    max_targets=0: must be at least 1
    place_width=0: must be at least 1
    boundary_weight=0.0: must be above 0
    mask_rate=0.0: must be between
    replace_mask=0.95 ... spanbert.replace_random=0.1: their sum
"""
BART = """
    infill_rate=-0.1: must be from 0 to 1; infill_rate=nan; permute_sentences=1.5
    rotate=2.0; insert_rate=1.1; poisson_mean=0.0; poisson_mean=1000.0
    infill_rate=0.3 & mask_rate=0.4 & delete_rate=0.4 ... 0.4: must be less than 1
"""
CLM_MLM = """
    mlm_share=-0.1: must be from 0 to 1; mlm_share=1.5; mlm_share=nan
    mlm_schedule=(0.25, 0.0): must be pairs (until, share) such as ((0.25, 0.0),)
    mlm_schedule=((0.5, 0.0), (0.5, 1.0)); mlm_schedule=((0.0, 1.0),)
    mlm_schedule=((1.5, 1.0),); mlm_schedule=((0.5, -0.1),); mlm_schedule=((0.5,),)
    mlm_schedule=((0.5, 'all'),); mlm_schedule=((0.5, 1.5),); mask_rate=0.0
    replace_mask=0.95 ... clm_mlm.replace_random=0.1
"""
UL2 = """
    rates=(0.0, 0.0, 0.0): must be three weights
    rates=(1.0, -1.0, 1.0); rates=(1.0, 1.0); rates=(1.0, nan, 1.0)
    rates=(inf, 1.0, 1.0)
    r_densities=(0.0, 0.15) ... between 0 and 1
    x_mean_spans=(0.5, 8.0, 64.0, 64.0) ... at least 1
    x_mean_spans=(3.0,) ... the same number as ul2.x_densities
    r_densities=() & r_mean_spans=()
"""
DISTILLATION = """
    temperature=0.0: must be above 0; kl_weight=0.0; mlm_weight=-1.0; cosine_weight=nan
    mask_rate=1.0; replace_mask=-0.1
    replace_mask=0.8 & replace_random=0.3 ... their sum must
"""
SELECTIVE = """
    share=0.0: must be above 0, at most 1; share=1.5; share=nan
    select=threshold: must be one of excess, reference, loss, random
"""
BILM = """
    num_chars=6; char_width=0; filters=(); filters=(4, 0); num_highway=-1
    cell_clip=0.0; proj_clip=nan
"""
SKIP_GRAM = """
    window=0; num_negatives=0; negative_power=-0.1; subsample=1.0; subsample=nan
"""
FIM = """
    rate=-0.1: must be from 0 to 1; rate=nan; spm_share=1.5: must be from 0 to 1
"""
MULTI_TOKEN = """
    offset_weights=(); offset_weights=(0.5, -0.1)
    offset_weights=(nan,); fade_end=1.5: must be from 0 to 1; fade_end=nan
"""
FUTURE_SUMMARY = """
    horizon=0: must be at least 1; horizon=25: must be from ... to 24
    first_offset=0: must be at least 1; summary_weight=0.0: must be above 0
    average=mean: must be one of vocabulary, none; bag=past: must be one of future
"""
NEXT_LATENT = """
    horizon=0: must be at least 1; horizon=24: must be at most 23, the states
    step_width=-1: must be at least 0; latent_weight=-1.0; divergence_weight=nan
    latent_weight=0.0 & divergence_weight=0.0: must be above 0 with next_latent.div
"""
LATENT_PREDICTION = """
    horizon=0: must be at least 1; horizon=24: must be at most 23, the states
    latent_weight=-1.0: must be at least 0; variance_weight=nan; covariance_weight=-1.0
    decay=1.5: must be from 0 to 1; target=mean: must be one of ema, frozen, shuffle
    min_rank=1.0: must be at least 0 and below 1; min_rank=nan
"""
PREFIX_TOKEN = """
    prefix_weight=-0.1: must be at least 0; prefix_weight=nan; offset_weights=(-1.0,)
    prefix_fade=(0.5, 0.2): must be two fractions; prefix_fade=(0.5,)
    prefix_fade=(0.5, 1.5); target=suffix: must be one of prefix, ranked, uniform
"""
MULTI_TOKEN_HEADS = """
    variant=other: must be one of parallel, sequential; num_extra=-1
    weight_schedule=(1.0, 0.3): must be pairs (until, weight); weight_schedule=((1.0,),)
    weight_schedule=((0.5, 0.3),); weight_schedule=((0.5, 0.3), (0.5, 0.1), (1.0, 0.1))
    weight_schedule=((1.0, -0.1),); weight_schedule=((1.0, inf),)
    weight_schedule=((0.0, 0.3), (1.0, 0.1)); weight_schedule=((1.0, 'all'),)
"""
HYBRID_DIFFUSION = """
    noise=masks: must be one of mask, hybrid, uniform; noise_scale=0.0: must be above 0
    noise_scale=1.5; noise_shift=2000.0: must be from -1000 to 1000; noise_shift=nan
    noise_shift=1.0 & noise=uniform: must be 0 without noise=hybrid
    noise_scale=0.5 & noise=mask: must be 1 without noise=hybrid
    weight=mean: must be one of reweighted, bound; bound_samples=0: must be at least 1
"""
DIFFUSION = """
    average=sum: must be one of inverse_rate, mean, row_mean
    rates=linear: must be one of uniform, cosine, bimodal
    weight=word: must be one of row, token; frequency_power=-1.0; frequency_power=nan
    weight=token: must be row without
    weight=token & frequency_power=0.02 & average=mean: must be row without
    min_rate=0.0: must be between 0 and 1
    bound_samples=0: must be at least 1
"""
ADAPTIVE = """
    masking=words: must be tokens; static_masks=10 & mask_rate_end=0.0: must be 0
    update_every=-1: must be at least 0; mask_rate=0.0; mask_rate_end=1.0
"""
DUAL = """
    diffusion_share=0.0: must be above 0, at most 1; diffusion_share=1.5
    diffusion_share=nan; min_rate=0.0: must be between 0 and 1; bound_samples=0
"""
MASKED_INPUT = """
    max_rate=0.0; max_rate=1.5; max_rate=nan; masked_weight=0.0; clean_inputs=-1
    passes=one: must be one of both, masked; hide_by=noise: must be one of mask, random
    hide_rate=-0.1: must be at least 0 and below 1; hide_rate=1.0; hide_rate=nan
    clean_inputs=24: must be at most 23, one less than the inputs of a row
"""
MIXTURE = """
    parts=('clm',): must be a list of texts, two or more, each once
    parts=('clm', 'clm'): must be a list of texts, two or more, each once
    parts=('clm', 'x'): must be two or more of clm, mlm; parts=('clm', 'mixture')
    shares=(1.0,): must be shares of 2 parts, with the sum 1; shares=(0.9, 0.2)
    shares=(1.5, -0.5): must be a list of numbers, each from 0 to 1; shares=(nan, 1.0)
    schedule=(0.5, 0.5): must be pairs (until, shares) such as; schedule=((0.5, 1.0),)
    schedule=((0.5, (1.0, 0.0)), (0.4, (0.0, 1.0))); schedule=((1.5, (1.0, 0.0)),)
    schedule=((0.5, (1.0,)),): must be shares of 2 parts; weights=(1.0,): must be ()
    weights=(0.0, 1.0): must be a list of numbers, each above 0
    parts=('clm', 'electra'): must be objectives that share a network and a reading
"""
TABLES = {
    "mlm": MLM,
    "adaptive_mlm": ADAPTIVE,
    "span_corruption": SPAN_CORRUPTION,
    "electra": ELECTRA,
    "bert": BERT,
    "spanbert": SPANBERT,
    "bart": BART,
    "clm_mlm": CLM_MLM,
    "distillation": DISTILLATION,
    "causal_distillation": "temperature=-1.0; clm_weight=-0.1",
    "selective_clm": SELECTIVE,
    "bilm": BILM,
    "skip_gram": SKIP_GRAM,
    "fill_in_the_middle": FIM,
    "multi_token": MULTI_TOKEN,
    "multi_token_heads": MULTI_TOKEN_HEADS,
    "prefix_token": PREFIX_TOKEN,
    "next_latent": NEXT_LATENT,
    "latent_prediction": LATENT_PREDICTION,
    "future_summary": FUTURE_SUMMARY,
    "token_order": "order_weight=0.0",
    "masked_diffusion": DIFFUSION,
    "hybrid_diffusion": HYBRID_DIFFUSION,
    "dual": DUAL,
    "masked_input_clm": MASKED_INPUT,
    "mixture": MIXTURE,
}


SPECS = {name: module.Spec for name, module in OBJECTIVES.items()}
Ul2 = SPECS["ul2"]


def list_cases():
    for name, table in TABLES.items():
        yield from refused(SPECS[name].for_seq_len, name, table, 24)
    for name in ("mlm", "electra"):
        yield from refused(SPECS[name].for_seq_len, name, MASKING, 24)
    yield from refused(Ul2, "ul2", UL2, 40)
    long = "r_densities=(0.9,) ... 36 spans do not fit 36 noise and 4 clean"
    yield from refused(Ul2, "ul2", long, 40, r_mean_spans=(1.0,))


@pytest.mark.parametrize("make, parts", list(list_cases()))
def test_bad_settings_are_refused(make, parts, refuses):
    message = check_refusal(make, parts, refuses)
    sections = re.findall(r"([a-z0-9_]+)\.[a-z_]", message)
    assert set(sections) == {parts[0].partition(".")[0]}  # and no base class's


OF_ROWS = ["bilm", "causal_distillation", "clm", "clm_mlm", "multi_token"]
OF_ROWS += ["prefix_lm", "skip_gram", "prefix_token", "token_order"]
OF_ROWS += ["selective_clm"]
OF_ROWS += ["dual", "masked_input_clm", "mixture"]
SPANS = ["span_corruption", "ul2"]


@pytest.mark.parametrize("name", [*OF_ROWS, *SPANS])
def test_a_row_of_one_token_is_refused(name, refuses):
    start = f"data.row_length=1: {name} needs at least "
    check_refusal(lambda: SPECS[name](1), [start], refuses)


@pytest.mark.parametrize("name", SPANS)
def test_a_negative_number_of_documents_is_refused(name, refuses):
    config = {"objective": name, "data": {"max_documents": -1}}
    start = "data.max_documents=-1: must be at least 1"
    check_refusal(lambda: make_plan(config), [start], refuses)


def test_a_sequence_too_short_for_its_modes_is_refused(refuses):
    start = "data.seq_len=4: ul2 needs at least 6"
    check_refusal(lambda: Ul2.for_seq_len(4), [start], refuses)
