"""BERT's whole objective: masked tokens, and whether two sentences belong together.

Devlin et al. 2019; google-research/bert, `create_pretraining_data.py` and
`run_pretraining.py`. A row is [CLS] A [SEP] B [SEP]; the first state, pooled, says
whether B follows A (next-sentence prediction, rows `data.rows=pairs`) or precedes it
(sentence-order prediction: Lan et al. 2020, ALBERT; rows `data.rows=ordered_pairs`).

    loss = mean over masked i of -log p(x_i | row) + mean over rows of -log p(is B next)

Departures: those of `mlm`; both losses are divided by their own weights over the whole
batch (theirs adds 1e-5 to the masked one's); a row's pair is drawn on the host, its
masks anew at every step.
"""

import dataclasses
from typing import ClassVar

import jax
import jax.numpy as jnp

from jaxpt.nn.networks.one_stack import PairMaskedLM
from jaxpt.objectives import mlm
from jaxpt.objectives.objective import Needs, get_segments
from jaxpt.ops import edits, losses
from jaxpt.text.tokens.vocab import Vocab

# What the rows of each sentence task call its label, and the form of rows that has it.
LABELS = {"nsp": "is_random_next", "sop": "is_swapped"}
ROWS = {"nsp": "pairs", "sop": "ordered_pairs"}
TASKS = (*LABELS, "none")


@dataclasses.dataclass(frozen=True)
class Spec(mlm.Spec):
    """Masking as `mlm.Spec` has it, its cap, and what is asked of the two sentences.

    Attributes:
      max_predictions: the most a row predicts, `max_predictions_per_seq` there (20 at
        128 tokens, 77 or more at 512; as it is no less than 15 % it binds nowhere); 0
        for no cap.
      sentence_task: "nsp" (does B follow A?), "sop" (or precede it?), or "none".
    """

    SECTION: ClassVar[str] = "bert"
    READS: ClassVar = mlm.Spec.READS | {"type_ids", *LABELS.values()}
    NETWORKS: ClassVar = (PairMaskedLM,)

    max_predictions: int = 0
    sentence_task: str = "nsp"

    def __post_init__(self):
        super().__post_init__()
        self.check("max_predictions", self.max_predictions >= 0, "at least 0")
        is_good = self.sentence_task in TASKS
        self.check("sentence_task", is_good, f"one of {', '.join(TASKS)}")

    @property
    def num_masked(self) -> int:
        """P: masked tokens of a full row, at most as many as the cap."""
        num = super().num_masked
        return min(num, self.max_predictions) if self.max_predictions else num

    @property
    def coefficients(self):
        pair = {f"{task}_loss": 1.0 for task in LABELS if task == self.sentence_task}
        return {"mlm_loss": 1.0} | pair

    @property
    def needs(self):
        task = self.sentence_task
        if task == "none":
            return Needs(specials=("mask",), num_types=2)
        return Needs(
            specials=("pad", "mask", "cls", "sep"),
            num_types=2,
            rows=(ROWS[task],),
            asked_by=f"bert.sentence_task={task}",
        )

    def network_fields(self, vocab):
        return {"has_pairs": self.sentence_task != "none"}


def corrupt(rng: jax.Array, rows: dict, vocab: Vocab, spec: Spec) -> dict:
    """Masks tokens as `mlm` does; the pair's label and types come with the row.

    >>> row = {"tokens": [[2, 8, 3, 9, 3, 0]], "segment_ids": [[1, 1, 1, 1, 1, 0]]}
    >>> row |= {"type_ids": [[0, 0, 0, 1, 1, 0]], "is_random_next": [1], "index": [0]}
    >>> rows = {key: jnp.array(value) for key, value in row.items()}
    >>> vocab = Vocab(size=10, pad=0, cls=2, sep=3, mask=4)
    >>> batch = corrupt(jax.random.key(0), rows, vocab, Spec(6, 0.4, 1.0, 0.0))
    >>> batch["inputs"].tolist(), batch["targets"].tolist()
    ([[2, 4, 3, 4, 3, 0]], [[9, 8]])
    >>> batch["nsp_labels"].tolist(), batch["weights"]["nsp_loss"].tolist()
    ([1], [1.0])

    Raises:
      ValueError: rows without the label of the spec's sentence task.
    """
    batch = mlm.corrupt(rng, rows, vocab, spec)
    batch["weights"] = {"mlm_loss": batch["weights"]["loss"]}
    if "type_ids" in rows:
        batch["type_ids"] = rows["type_ids"]
    labels, task = {key: rows.get(LABELS[key]) for key in LABELS}, spec.sentence_task
    if task == "none":
        return batch
    if labels[task] is None:
        raise ValueError(f"rows lack {LABELS[task]}")
    is_pair = (get_segments(rows)[:, 0] > 0).astype(jnp.float32)
    batch["weights"][f"{task}_loss"] = is_pair
    return batch | {f"{task}_labels": labels[task]}


def masks(batch: dict) -> dict:
    """Every position sees both sentences; padding is not seen."""
    return mlm.masks(batch)


def loss(params, model: PairMaskedLM, batch: dict, masks: dict, rngs: dict):
    """Cross-entropy at the P masked positions, and of the pair at the first one."""
    targets, weights = batch["targets"], batch["weights"]["mlm_loss"]
    tasks = [task for task in LABELS if f"{task}_labels" in batch]

    def predict(model):
        states = model.batch_states(batch, masks, deterministic="dropout" not in rngs)
        pairs = model.pair_score(states) if tasks else None
        states = edits.gather(states, batch["masked_positions"])
        return model.score(states, targets, weights), pairs

    scores, pairs = model.apply({"params": params}, rngs=rngs, method=predict)
    terms, metrics = {"mlm_loss": scores.loss}, mlm.fill_metrics(scores.ranks, weights)
    for task in tasks:
        labels, is_pair = batch[f"{task}_labels"], batch["weights"][f"{task}_loss"]
        terms[f"{task}_loss"] = losses.cross_entropy(pairs, labels, is_pair)
        ranks = losses.target_ranks(pairs, labels)
        metrics[f"{task}_accuracy"] = losses.rank_hits(ranks, is_pair)
    return terms, metrics


def train_step(state, rows: dict, rngs: dict, *, model, vocab, spec, update):
    """Mask tokens, read both sentences, predict the tokens and the pair."""
    batch = corrupt(rngs["corrupt"], rows, vocab, spec)

    def loss_fn(params, batch, rngs):
        return loss(params, model, batch, masks(batch), rngs)

    return update(state, batch, loss_fn, rngs, spec.coefficients)
