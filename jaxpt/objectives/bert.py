"""BERT's complete objective: masked tokens, and whether two sentences belong together.

Devlin et al. 2019; google-research/bert, `create_pretraining_data.py` and
`run_pretraining.py`. A row is [CLS] A [SEP] B [SEP]; the pooled first state predicts
whether B follows A (next-sentence prediction, rows `data.rows=pairs`) or precedes it
(sentence-order prediction: Lan et al. 2020, ALBERT; rows `data.rows=ordered_pairs`).

    loss = mean over masked i of -log p(x_i | row) + mean over rows of -log p(is B next)

Departures: those of `mlm`; both losses are divided by their own weights over the whole
batch (theirs adds 1e-5 to the masked one's); a row's pair is drawn on the host, its
masks again at every step.

Control: `sentence_task=none`, without the second loss.
"""

import dataclasses
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import jax
import jax.numpy as jnp

from jaxpt.dims import Batch, Rows
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.objectives import mlm
from jaxpt.objectives.masking import MASKED
from jaxpt.objectives.objective import (
    Keys,
    Masks,
    Sums,
    get_segments,
    make_train_step,
)
from jaxpt.objectives.spec import Needs, Term
from jaxpt.ops import edits, losses
from jaxpt.setting_types import NonNegativeInt, OneOf
from jaxpt.text.tokens.vocab import Vocab

if TYPE_CHECKING:
    from jaxpt.nn.networks.network import Network
    from jaxpt.nn.networks.one_stack import PairMaskedLM

# Of each sentence task, the rows' key of its label, and the form of rows that has it.
LABELS = {"nsp": "is_random_next", "sop": "is_swapped"}
ROWS = {"nsp": "pairs", "sop": "ordered_pairs"}
QUESTIONS = {"nsp": "is B next?", "sop": "A before B?"}
TASKS = (*LABELS, "none")


@dataclasses.dataclass(frozen=True)
class Spec(mlm.Spec):
    """Masking as in `mlm.Spec`, its cap, and the sentence task.

    Attributes:
      max_predictions: the maximum number of predictions in a row,
        `max_predictions_per_seq` there (20 at 128 tokens, 77 or more at 512, which is
        at least 15 % and so has no effect); 0 for no cap.
      sentence_task: "nsp" (does B follow A?), "sop" (or precede it?), or "none".
    """

    SECTION: ClassVar[str] = "bert"
    READS: ClassVar = mlm.Spec.READS | {"type_ids", *LABELS.values()}
    NETWORKS: ClassVar = ("one_stack.PairMaskedLM",)

    max_predictions: NonNegativeInt = 0
    sentence_task: Annotated[str, OneOf(*TASKS)] = "nsp"

    @property
    def num_masked(self) -> int:
        """P: masked tokens of a full row, at most the cap."""
        num = super().num_masked
        return min(num, self.max_predictions) if self.max_predictions else num

    @property
    def terms(self) -> dict[str, Term]:
        task = self.sentence_task
        if task == "none":
            return {"mlm_loss": MASKED}
        pair = Term(QUESTIONS[task], targets=f"{task}_labels", answers=("yes", "no"))
        return {"mlm_loss": MASKED, f"{task}_loss": pair}

    @property
    def needs(self) -> Needs:
        task, needs = (
            self.sentence_task,
            dataclasses.replace(super().needs, num_types=2),
        )
        if task == "none":
            return needs
        return dataclasses.replace(
            needs,
            specials=("pad", "mask", "cls", "sep"),
            rows=(ROWS[task],),
            asked_by=f"bert.sentence_task={task}",
        )

    def controls(self) -> dict[str, dict[str, Any]]:
        if self.sentence_task == "none":
            return {"mlm": {"objective": "mlm"}}
        return {"no-pairs": {self.SECTION: {"sentence_task": "none"}}}

    def make_network(
        self, model_spec: ModelSpec, vocab: Vocab, **fields: Any
    ) -> "Network":
        has_pairs = self.sentence_task != "none"
        return super().make_network(model_spec, vocab, has_pairs=has_pairs, **fields)


def corrupt(rng: jax.Array, rows: Rows, vocab: Vocab, spec: Spec) -> Batch:
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
    labels = {"nsp": rows.get("is_random_next"), "sop": rows.get("is_swapped")}
    task = spec.sentence_task
    if task == "none":
        return batch
    label = labels[task]
    if label is None:
        raise ValueError(f"rows lack {LABELS[task]}")
    is_pair = (get_segments(rows)[:, 0] > 0).astype(jnp.float32)
    batch["weights"][f"{task}_loss"] = is_pair
    return batch | ({"nsp_labels": label} if task == "nsp" else {"sop_labels": label})


masks = mlm.masks


def loss(
    params: Any, model: "PairMaskedLM", batch: Batch, masks: Masks, rngs: Keys
) -> tuple[Sums, Sums]:
    """Cross-entropy at the P masked positions, and of the pair at the first one."""
    targets, weights = batch["targets"], batch["weights"]
    labels = {"nsp": batch.get("nsp_labels"), "sop": batch.get("sop_labels")}
    has_pairs = any(label is not None for label in labels.values())

    def predict(model: "PairMaskedLM") -> tuple[losses.Scores, jax.Array | None]:
        states = model.batch_states(batch, masks, deterministic="dropout" not in rngs)
        pairs = model.pair_score(states) if has_pairs else None
        states = edits.gather(states, batch["masked_positions"])
        return model.score(states, targets, weights["mlm_loss"]), pairs

    scores, pairs = model.apply({"params": params}, rngs=rngs, method=predict)
    terms = {"mlm_loss": scores.loss}
    metrics = mlm.fill_metrics(scores.ranks, weights["mlm_loss"])
    for task, label in labels.items():
        if label is not None:
            is_pair = weights[f"{task}_loss"]
            terms[f"{task}_loss"] = losses.cross_entropy(pairs, label, is_pair)
            ranks = losses.target_ranks(pairs, label)
            metrics[f"{task}_accuracy"] = losses.rank_hits(ranks, is_pair)
    return terms, metrics


train_step = make_train_step(corrupt, masks, loss)
