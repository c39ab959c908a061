"""Heads of downstream tasks: hidden states to the outputs of a task.

`FORMS` lists the pooling and the layers of each published family, with their source:

    bert        tanh(W h_first + b), which pretraining has trained; dropout, linear
                (google-research/bert: modeling.py, run_classifier.py)
    roberta     h_first, dropout, dense, tanh, dropout, linear, all newly initialized
                (fairseq: models/roberta/model.py)
    electra     h_first, dropout, linear (google-research/electra: model/modeling.py)
    electra_dense
                h_first, dropout, dense, GELU, dropout, linear, all newly initialized:
                not the original head, but ELECTRA's in transformers
                (models/electra, ElectraClassificationHead)
    gpt         the state of the last token, dropout, linear
                (openai/finetune-transformer-lm: train.py)
    gpt2        the state of the last token, linear without a bias, no dropout; GPT-2's
                authors trained no such head (transformers: models/gpt2,
                GPT2ForSequenceClassification)
    bart        as roberta, on the decoder's state at the last token, an [EOS]
                (fairseq: models/bart/model.py)
    distilbert  h_first, dense, ReLU, dropout 0.2, linear
                (transformers: models/distilbert)
    elmo        a trained mix of all layers (allennlp: modules/scalar_mix.py), its mean
                over the text, dropout 0.5, linear
    ulmfit      the last state, the maximum and the mean concatenated, dropout, dense to
                50, ReLU, dropout, linear (fastai1: courses/dl2/imdb_scripts/
                train_clas.py). Departure: no batch norms, and one dropout rate
                (the source's are 0.4 and 0.1)
    modernbert  h_first, then the dense layer, activation and norm of the masked
                language model's head, which pretraining has trained; linear, no dropout
                (transformers: models/modernbert; `classifier_pooling` is "cls")
    modernbert_mean
                the same on the mean of the states ("mean")
    mean        the mean of the states of a text, dropout, linear: for networks without
                a classification token and without a published head
"""

import dataclasses
import functools
from collections.abc import Callable

import flax.linen as nn
import jax
import jax.numpy as jnp
from jaxtyping import Array, Float, Int

from jaxpt.nn.layers import Dense, Dropout, Norm
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.nn.recurrent import ScalarMix
from jaxpt.ops import kernels

INIT_STD = 0.02
ACTIVATIONS: dict[str, Callable[[Array], Array]] = {
    "tanh": jnp.tanh,
    "relu": jax.nn.relu,
    "gelu": functools.partial(jax.nn.gelu, approximate=False),
}


@dataclasses.dataclass(frozen=True)
class HeadForm:
    """The pooling of a family and the layers after it.

    Attributes:
      pooling: of the states, "first", "last", "mean" or "concat" (last, maximum, mean).
      activation: that of a dense layer before the outputs, "tanh", "relu" or "gelu"
        (exact); "" for no such layer.
      hidden: the width of this dense layer; 0 means the input width.
      drops_pooled: dropout before this dense layer, too.
      dropout: the family's dropout rate, before the outputs.
      mixes_layers: the states are a trained mix of all layers.
      reads_decoder: the states are those of a decoder that reads the text again.
      has_bias: whether the output layer for texts has a bias.
      has_lm_head: the layers before the outputs are those of a masked language model's
        head: dense, the network's activation, norm; for tokens, too.
    """

    pooling: str = "first"
    activation: str = ""
    drops_pooled: bool = False
    dropout: float = 0.1
    hidden: int = 0
    mixes_layers: bool = False
    reads_decoder: bool = False
    has_bias: bool = True
    has_lm_head: bool = False


FORMS = {
    "bert": HeadForm(activation="tanh"),
    "roberta": HeadForm(activation="tanh", drops_pooled=True),
    "electra": HeadForm(),
    "electra_dense": HeadForm(activation="gelu", drops_pooled=True),
    "gpt": HeadForm(pooling="last"),
    "gpt2": HeadForm(pooling="last", dropout=0.0, has_bias=False),
    "bart": HeadForm("last", activation="tanh", drops_pooled=True, reads_decoder=True),
    "distilbert": HeadForm(activation="relu", dropout=0.2),
    "elmo": HeadForm(pooling="mean", dropout=0.5, mixes_layers=True),
    "ulmfit": HeadForm("concat", activation="relu", drops_pooled=True, hidden=50),
    "modernbert": HeadForm(dropout=0.0, has_lm_head=True),
    "modernbert_mean": HeadForm(pooling="mean", dropout=0.0, has_lm_head=True),
    "mean": HeadForm(pooling="mean"),
}


def pool(
    states: Float[Array, "B T W"], segment_ids: Int[Array, "B T"], pooling: str
) -> Float[Array, "B W"]:
    """One vector per text from the states of its tokens (segment 0 is padding).

    >>> states = jnp.array([[[1.0], [3.0], [9.0]]])
    >>> ids = jnp.array([[1, 1, 0]])
    >>> [pool(states, ids, name).tolist() for name in ("first", "last", "mean")]
    [[[1.0]], [[3.0]], [[2.0]]]
    >>> pool(states, ids, "concat").tolist()
    [[3.0, 3.0, 2.0]]
    """
    is_text = segment_ids > 0
    if pooling == "concat":
        parts = [pool(states, segment_ids, name) for name in ("last", "mean")]
        wide = jnp.where(is_text[..., None], states.astype(jnp.float32), -jnp.inf)
        last, mean = (part.astype(jnp.float32) for part in parts)
        return jnp.concatenate([last, wide.max(axis=1), mean], axis=-1)
    if pooling == "mean":
        weights = is_text.astype(jnp.float32)[..., None]
        total = jnp.sum(states.astype(jnp.float32) * weights, axis=1)
        return total / jnp.maximum(weights.sum(1), 1.0)
    places = jnp.arange(states.shape[1])
    if pooling == "first":
        chosen = jnp.argmax(is_text, axis=1)
    else:
        chosen = jnp.max(jnp.where(is_text, places, 0), axis=1)
    return jnp.take_along_axis(states, chosen[:, None, None], axis=1)[:, 0]


def _head_spec(spec: ModelSpec) -> ModelSpec:
    """New layers are initialized as in BERT, and have biases."""
    return dataclasses.replace(spec, init="truncated", init_std=INIT_STD, use_bias=True)


class _Head(nn.Module):
    """A head of a family, `form` of `FORMS`, with `num_outputs` C.

    If `mixes_layers`, its states are those of all layers, [L, B, T, W].
    """

    spec: ModelSpec
    form: str
    num_outputs: int
    dropout: float = -1.0  # -1: the family's rate

    @property
    def mixes_layers(self) -> bool:
        """Whether the head reads all layers."""
        return FORMS[self.form].mixes_layers

    def transform(self, x: Float[Array, "*B W"]) -> Float[Array, "*B W"]:
        """The layers of a masked language model's head before its logits."""
        spec = dataclasses.replace(self.spec, init="truncated", init_std=INIT_STD)
        x = Dense(x.shape[-1], spec, name="pool")(x)
        return Norm(spec, name="norm")(kernels.activate(spec.transform_activation, x))


class TextHead(_Head):
    """Outputs [B, C] of each text, in float32."""

    @nn.compact
    def __call__(
        self, states: Array, segment_ids: Int[Array, "B T"], *, deterministic: bool
    ) -> Float[Array, "B C"]:
        form, spec = FORMS[self.form], _head_spec(self.spec)
        dropout = Dropout(form.dropout if self.dropout < 0 else self.dropout)
        if form.mixes_layers:
            states = ScalarMix(name="mix")(states)
        x = pool(states, segment_ids, form.pooling)
        if form.drops_pooled:
            x = dropout(x, deterministic=deterministic)
        if form.activation:
            x = Dense(form.hidden or x.shape[-1], spec, name="pool")(x)
            x = ACTIVATIONS[form.activation](x)
        if form.has_lm_head:
            x = self.transform(x)
        x = dropout(x, deterministic=deterministic)
        out = Dense(self.num_outputs, spec, use_bias=form.has_bias, name="out")
        kernel, bias = out.read(x.shape[-1])
        return kernels.dense(x, kernel, bias, jnp.float32)


class TokenHead(_Head):
    """Outputs [B, T, C] of each token, in float32: dropout, linear.

    All families tag words in this way, and answer questions without the dropout
    (transformers: BertForTokenClassification, BertForQuestionAnswering); ModernBERT
    after the layers of its language model's head.
    """

    @nn.compact
    def __call__(
        self, states: Array, segment_ids: Int[Array, "B T"], *, deterministic: bool
    ) -> Float[Array, "B T C"]:
        form = FORMS[self.form]
        if form.mixes_layers:
            states = ScalarMix(name="mix")(states)
        if form.has_lm_head:
            states = self.transform(states)
        rate = form.dropout if self.dropout < 0 else self.dropout
        x = Dropout(rate)(states, deterministic=deterministic)
        dense = Dense(self.num_outputs, _head_spec(self.spec), name="out")
        kernel, bias = dense.read(x.shape[-1])
        return kernels.dense(x, kernel, bias, jnp.float32)
