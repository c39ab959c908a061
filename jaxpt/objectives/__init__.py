"""The objectives: one module each, whole, and this dict of their names.

Every module has `READS, Spec, make_spec, model_lengths, count_flops, make_model,
init_params, corrupt, masks, coefficients, weights, loss, make_train_step,
make_eval_step, features, HEADS, networks, join_networks`. `READS` names the keys of
rows that the objective can read; rows of a form that carries others are not for it.
`HEADS` names what `networks` gives, which is what is exported; of those of one stack
and of two ("seq2seq"), a run has the ones of its model. What only some can do is
found by name: `token_nll` (a likelihood), `next_logits` (scores of what follows),
`make_decoder` (generation), `fill_logits` (scores for [MASK]); `READS_AHEAD` (False
where a token never sees what follows it: `ModelSpec.relative_directions`); `NETWORK`
(fields of `Spec` that change numbers and no parameter's shape); `needs` (keys of rows
that a spec cannot do without -> the setting that asks for them); `frozen` (paths of
parameters that no step changes); `TEACHER` with `begin` (what the network must be for
that another run lends it, and how it begins with that); `COUNTS` (it must be told how
often each token stands in the text to train on); `START` (the special behind which one
stack reads a text) and `describe_mask` (what one stack saw that is no causal model's),
both for those who use an export.
"""

from jaxpt.objectives import (
    bart,
    bert,
    bilm,
    causal_distillation,
    clm,
    clm_mlm,
    distillation,
    electra,
    mlm,
    prefix_lm,
    skip_gram,
    span_corruption,
    spanbert,
    ul2,
)

OBJECTIVES = {
    "clm": clm,
    "mlm": mlm,
    "span_corruption": span_corruption,
    "electra": electra,
    "bert": bert,
    "spanbert": spanbert,
    "bart": bart,
    "prefix_lm": prefix_lm,
    "clm_mlm": clm_mlm,
    "ul2": ul2,
    "distillation": distillation,
    "causal_distillation": causal_distillation,
    "bilm": bilm,
    "skip_gram": skip_gram,
}
