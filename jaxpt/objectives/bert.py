"""BERT's whole objective: hidden tokens, and whether two sentences belong together.

Devlin et al. 2019; google-research/bert, `create_pretraining_data.py` and
`run_pretraining.py`. A row is [CLS] A [SEP] B [SEP]; the first state, pooled, says
whether B follows A (next-sentence prediction, rows `data.rows=pairs`) or precedes it
(sentence-order prediction: Lan et al. 2020, ALBERT; rows `data.rows=ordered_pairs`).

Departures: those of `mlm`; both losses are divided by their own weights over the whole
batch (theirs adds 1e-5 to the masked one's); a row's pair is drawn on the host, its
masks anew at every step.
"""

import dataclasses
import typing

import jax
import jax.numpy as jnp

from jaxpt.errors import UserError
from jaxpt.learn import update
from jaxpt.nn import flops, scan
from jaxpt.nn.heads import PairScore
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.nn.transformer import Transformer
from jaxpt.objectives import mlm
from jaxpt.ops import edits, losses
from jaxpt.ops import masks as attention_masks
from jaxpt.ops.segments import segment_positions
from jaxpt.text.tokens.vocab import Vocab

# What the rows of each sentence task call its label.
LABELS = {"nsp": "is_random_next", "sop": "is_swapped"}
TASKS = (*LABELS, "none")
# The keys of rows that this objective can read (`jaxpt.dims.ROW_KEYS`).
READS = mlm.READS | {"type_ids", *LABELS.values()}
# What its networks are for, as `jaxpt.hub.families` names it.
HEADS = ("pretraining",)


@dataclasses.dataclass(frozen=True)
class Spec(mlm.Spec):
    """Masking as `mlm.Spec` has it, its cap, and what is asked of the two sentences.

    Attributes:
      max_predictions: the most a row predicts, `max_predictions_per_seq` there (20 at
        128 tokens, 77 or more at 512; as it is no less than 15 % it binds nowhere); 0
        for no cap.
      sentence_task: "nsp" (does B follow A?), "sop" (or precede it?), or "none".
    """

    SECTION: typing.ClassVar[str] = "bert"

    max_predictions: int = 0
    sentence_task: str = "nsp"

    def __post_init__(self):
        super().__post_init__()
        self.check("max_predictions", self.max_predictions >= 0, "at least 0")
        is_good = self.sentence_task in TASKS
        self.check("sentence_task", is_good, f"one of {', '.join(TASKS)}")

    @property
    def num_slots(self) -> int:
        """P: predictions in a full row."""
        num = super().num_slots
        return min(num, self.max_predictions) if self.max_predictions else num


def needs(spec: Spec) -> dict[str, str]:
    """Keys that rows must have -> the setting that asks for them."""
    if spec.sentence_task == "none":
        return {}
    setting = f"bert.sentence_task={spec.sentence_task}"
    return {LABELS[spec.sentence_task]: setting, "type_ids": setting}


class Bert(Transformer):
    """The one stack, and the head that reads its first state if pairs are asked for."""

    has_pairs: bool = True

    def setup(self):
        super().setup()
        if self.has_pairs:
            self.pair_score = PairScore(self.spec)

    def __call__(self, ids, masks, *, deterministic):
        """Logits [B, T, V] at every position, and [B, 2] of the pair, if any."""
        hidden = self.encode(ids, masks["self"], deterministic=deterministic)
        pairs = self.pair_score(hidden) if self.has_pairs else None
        return self.logits(hidden), pairs


def make_spec(seq_len: int, **settings) -> Spec:
    """The spec whose rows let the model read `seq_len` tokens."""
    return Spec(row_length=seq_len, **settings)


def model_lengths(spec: Spec) -> dict[str, int]:
    """Positions each stack works on."""
    return {"encoder": spec.row_length}


def count_flops(model_spec: ModelSpec, spec: Spec) -> float:
    """Training operations for one row (convention: `jaxpt.nn.flops`)."""
    length, width = spec.row_length, model_spec.d_model
    forward = flops.project_flops(model_spec, length)
    forward += flops.stack_flops(model_spec, model_spec.num_layers, length)
    forward += flops.head_flops(model_spec, spec.num_slots)
    if spec.sentence_task != "none":
        forward += 2 * width * (width + 2)  # PairScore, of one state
    return flops.TRAIN_FACTOR * forward


def make_model(model_spec: ModelSpec, spec: Spec, vocab: Vocab) -> Bert:
    """One stack with a head for pairs.

    Raises:
      UserError: the vocabulary has no [MASK], or the spec needs words and it tells of
        none, or the model has a second stack, or no embeddings that tell the two
        sentences apart.
    """
    spec.check_vocab(vocab)
    if model_spec.num_decoder_layers:
        raise UserError(
            f"model.num_decoder_layers={model_spec.num_decoder_layers}: must be 0 for "
            f"bert, which has one stack (model.num_layers)"
        )
    if model_spec.num_types < 2:
        raise UserError(
            f"model.num_types={model_spec.num_types}: must be at least 2 for bert, one "
            f"for each sentence of a pair"
        )
    return Bert(model_spec, has_pairs=spec.sentence_task != "none")


def init_params(rng, model: Bert, spec: Spec):
    """Fresh parameters."""
    ids = jnp.zeros((1, spec.row_length), jnp.int32)
    mask = {"self": attention_masks.full()}
    return scan.init_params(model, rng, ids, mask, deterministic=True)


def corrupt(rng, rows: dict, vocab: Vocab, spec: Spec) -> dict:
    """Hides tokens as `mlm` does; the pair's label and types come with the row.

    >>> row = {"tokens": [[2, 8, 3, 9, 3, 0]], "segment_ids": [[1, 1, 1, 1, 1, 0]]}
    >>> row |= {"type_ids": [[0, 0, 0, 1, 1, 0]], "is_random_next": [1], "index": [0]}
    >>> rows = {key: jnp.array(value) for key, value in row.items()}
    >>> vocab = Vocab(size=10, pad=0, cls=2, sep=3, mask=4)
    >>> batch = corrupt(jax.random.key(0), rows, vocab, Spec(6, 0.4, 1.0, 0.0))
    >>> batch["inputs"].tolist(), batch["targets"].tolist()
    ([[2, 4, 3, 4, 3, 0]], [[9, 8]])
    >>> batch["nsp_labels"].tolist(), batch["is_pair"].tolist()
    ([1], [1.0])

    Raises:
      ValueError: rows without the label of the spec's sentence task.
    """
    batch = mlm.corrupt(rng, rows, vocab, spec)
    if "type_ids" in rows:
        batch["type_ids"] = rows["type_ids"]
    labels = {task: rows.get(key) for task, key in LABELS.items()}
    if spec.sentence_task == "none":
        return batch
    label = labels[spec.sentence_task]
    if label is None:
        raise ValueError(f"rows lack {LABELS[spec.sentence_task]}")
    is_real = rows.get("segment_ids", jnp.ones_like(rows["tokens"]))[:, 0] > 0
    return batch | {
        f"{spec.sentence_task}_labels": label,
        "is_pair": is_real.astype(jnp.float32),
    }


def masks(batch: dict) -> dict:
    """Everything sees everything, across both sentences; padding is not seen."""
    return {"self": attention_masks.segments(batch.get("segment_ids"))}


def coefficients(spec: Spec) -> dict[str, float]:
    """What each loss term counts for."""
    pair = {f"{task}_loss": 1.0 for task in LABELS if task == spec.sentence_task}
    return {"mlm_loss": 1.0} | pair


def _asked(batch: dict) -> list[str]:
    """The sentence task that the batch has labels of, if any."""
    return [task for task in LABELS if f"{task}_labels" in batch]


def weights(batch: dict) -> dict:
    """What each loss term is divided by: predicted tokens, and pairs."""
    pairs = {f"{task}_loss": batch["is_pair"].sum() for task in _asked(batch)}
    return {"mlm_loss": batch["loss_weights"].sum()} | pairs


def loss(params, model: Bert, batch: dict, masks: dict, rngs: dict):
    """Cross-entropy at the P hidden positions, and of the pair at the first one."""
    deterministic = "dropout" not in rngs
    places = segment_positions(batch.get("segment_ids"))
    targets, loss_weights = batch["targets"], batch["loss_weights"]
    tasks = _asked(batch)

    def predict(model):
        hidden = model.encode(
            batch["inputs"],
            masks["self"],
            places,
            batch.get("type_ids"),
            deterministic=deterministic,
        )
        pairs = model.pair_score(hidden) if tasks else None
        hidden = edits.gather(hidden, batch["positions"])
        return model.score(hidden, targets, loss_weights), pairs

    scores, pairs = model.apply({"params": params}, rngs=rngs, method=predict)
    terms, metrics = {"mlm_loss": scores.loss}, {}
    for task in tasks:
        labels, is_pair = batch[f"{task}_labels"], batch["is_pair"]
        terms[f"{task}_loss"] = losses.cross_entropy(pairs, labels, is_pair)
        ranks = losses.target_ranks(pairs, labels)
        metrics[f"{task}_accuracy"] = losses.rank_hits(ranks, is_pair)
    hits = losses.rank_hits(scores.ranks, loss_weights)
    return terms, terms | metrics | {
        "accuracy": hits,
        "fill_top1": hits,
        "fill_top5": losses.rank_hits(scores.ranks, loss_weights, k=5),
    }


def make_train_step(
    model, vocab: Vocab, spec: Spec, optimizer, num_microbatches=1, axis=None
):
    """step(state, rows, rng) -> state, {name: (sum, weight)}; `axis` names pmap's."""

    def train_step(state, rows, rng):
        rng_corrupt, rng_dropout = jax.random.split(rng)
        batch = corrupt(rng_corrupt, rows, vocab, spec)
        totals = update.add_devices(weights(batch), axis)

        def loss_fn(params, micro, rngs):
            terms, metrics = loss(params, model, micro, masks(micro), rngs)
            return update.weigh(terms, totals, coefficients(spec)), metrics

        rngs = {"dropout": rng_dropout}
        grads, metrics = update.accumulate(
            loss_fn, state.params, batch, rngs, num_microbatches, axis
        )
        grads, metrics = update.add_devices((grads, metrics), axis)
        state = update.apply_gradients(state, grads, optimizer)
        return state, metrics | update.gradient_norm(grads)

    return train_step


def make_eval_step(model, vocab: Vocab, spec: Spec):
    """step(params, rows, rng) -> {name: (sum, weight)}, without dropout."""

    def eval_step(params, rows, rng):
        batch = update.weigh_rows(corrupt(rng, rows, vocab, spec), rows)
        return loss(params, model, batch, masks(batch), {})[1]

    return eval_step


def features(params, model: Bert, tokens):
    """Frozen hidden states [B, T, D] of plain text [B, T], all of it sentence A."""
    return model.apply(
        {"params": params},
        tokens,
        attention_masks.full(),
        deterministic=True,
        method="encode",
    )


def fill_logits(params, model: Bert, tokens):
    """Scores [B, T, V] of every token at every position of text with [MASK]s in it."""
    mask = {"self": attention_masks.full()}
    return model.apply({"params": params}, tokens, mask, deterministic=True)[0]


def networks(params, model_spec: ModelSpec, spec: Spec) -> dict:
    """What is kept of a run, pooled head and all: for what use -> (spec, parameters).

    Without a sentence task there is no such head, and what is kept is as mlm's.
    """
    head = "masked" if spec.sentence_task == "none" else "pretraining"
    return {head: (model_spec, params)}


def join_networks(parts: dict):
    """The parameters of a run from those of its networks."""
    (params,) = parts.values()
    return params
