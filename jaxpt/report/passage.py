"""What objectives make of one passage: what is hidden, who sees whom, what is scored.

The passage is a row that training would read at some step, only shorter, with the draws
of that step.
"""

import dataclasses
import difflib
from typing import Any

import jax
import numpy as np

from jaxpt.config.plan import Plan, make_plan, plan_as
from jaxpt.config.settings import override
from jaxpt.errors import UserError
from jaxpt.objectives import OBJECTIVES
from jaxpt.ops.masks import materialise
from jaxpt.rng import stream
from jaxpt.run.data import make_feed, with_token_counts
from jaxpt.run.task import Task, make_task
from jaxpt.text.dataset import Split
from jaxpt.text.tokens.tokenizer import Tokenizer
from jaxpt.text.tokens.vocab import Vocab

# What a place of a strip is: as the text has it, hidden from the model, standing for
# what is hidden, scored by a loss, or nothing at all.
KINDS = ("plain", "hidden", "changed", "scored", "empty")
# Losses over a row that have no target token of their own.
JUDGED = {"real": "replaced?", "restored": "was what?", "soft_weights": "as taught"}
# Labels of a whole row, read at its first place: the question, the answers 0 and 1.
LABELS = {
    "nsp_labels": ("is B next?", ("yes", "no")),
    "sop_labels": ("A before B?", ("yes", "no")),
}


@dataclasses.dataclass(frozen=True)
class Strip:
    """One line of tokens; `kinds` are of `KINDS`, one a token."""

    name: str
    tokens: tuple[str, ...]
    kinds: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class View:
    """One objective's treatment of a passage.

    Attributes:
      title: what the objective does, in a sentence.
      mask: as `plots.attention_masks` takes it.
      signal: loss term -> what it scores, a raw token (at the config's own length).
      flops: of training, a raw token (the same).
    """

    name: str
    title: str
    strips: tuple[Strip, ...]
    mask: dict
    signal: dict[str, float]
    flops: float


def make_plans(config: dict, names: list[str]) -> dict[str, Plan]:
    """A plan for each objective, or other name in a comparison.

    Raises:
      UserError: a name that is neither, or a config that does not serve it.
    """
    compared = config.get("compare", {}).get("objectives", ())
    known = dict.fromkeys((*OBJECTIVES, *compared))
    for name in names:
        if name not in known:
            raise UserError(f"--objectives={name}: must be among {', '.join(known)}")
    return {name: plan_as(config, name) for name in names}


def view(
    name: str,
    plan: Plan,
    tokenizer: Tokenizer,
    train: Split,
    length: int,
    step: int = 0,
) -> View:
    """The first row of a step as rows of `length` tokens would have it.

    Raises:
      UserError: the objective cannot do with such rows.
    """
    whole = make_task(plan, with_token_counts(plan, tokenizer.vocab, train))
    task = shorten(plan, whole.vocab, length)
    row, batch = draw_row(task, train, step)
    module: Any = task.module
    return View(
        name=name,
        title=module.__doc__.partition("\n")[0],
        strips=tuple(make_strips(row, batch, tokenizer)),
        mask=compose_mask(task, batch, tokenizer),
        signal=_count_signal(whole, train, step),
        flops=module.count_flops(whole.model_spec, whole.spec) / whole.spec.row_length,
    )


def shorten(plan: Plan, vocab: Vocab, length: int) -> Task:
    """The plan's task on rows of `length` tokens."""
    config = override(plan.config, {"data": {"row_length": length}})
    return make_task(make_plan(config), vocab)


def draw_batch(task: Task, rows: dict, step: int) -> dict:
    """What training makes of a step's rows."""
    rng, *_ = jax.random.split(stream(task.plan.train.seed, step, "train"))
    share = np.float32(step / task.plan.train.steps)
    if "progress" in task.module.READS:
        rows = rows | {"progress": np.full(rows["index"].shape, share)}
    return task.module.corrupt(rng, rows, task.vocab, task.spec)


def draw_row(task: Task, train: Split, step: int) -> tuple[dict, dict]:
    """The first row of a step, and what is made of it, as batches of one."""
    rows = make_feed(task, train)[step]
    rows = {key: value[:1] for key, value in rows.items()}
    batch = draw_batch(task, rows, step)
    return rows, {key: np.asarray(value) for key, value in batch.items()}


def _count_signal(task: Task, train: Split, step: int) -> dict[str, float]:
    rows = make_feed(task, train)[step]
    num_raw = (rows.get("segment_ids", np.ones_like(rows["tokens"])) > 0).sum()
    weights = task.module.weights(draw_batch(task, rows, step))
    return {name: float(weight) / num_raw for name, weight in weights.items()}


def make_strips(rows: dict, batch: dict, tokenizer: Tokenizer):
    """The strips of a batch of one row."""
    row = {key: value[0] for key, value in batch.items()}
    text, inputs, pad = rows["tokens"][0], row["inputs"], tokenizer.vocab.pad
    is_text = rows.get("segment_ids", np.ones_like(rows["tokens"]))[0] > 0
    hidden, changed = _find_hidden(row, text, is_text, tokenizer)

    def strip(name, ids, kinds):
        names = [_name(tokenizer, int(i)) for i in ids]
        tokens = [n * (k != "empty") for n, k in zip(names, kinds, strict=True)]
        return Strip(name, tuple(tokens), tuple(map(str, kinds)))

    def reads(key, kinds):
        segments = row.get(key.replace("inputs", "segment_ids"))
        is_last = np.cumsum((row[key] != pad)[::-1])[::-1] == 0
        empty = is_last if segments is None else segments == 0
        return np.where(empty, "empty", kinds)

    kinds = np.where(hidden, "hidden", "plain")
    yield strip("text", text, np.where(is_text, kinds, "empty"))
    kinds = np.where(changed, "changed", "plain")
    yield strip("model reads", inputs, reads("inputs", kinds))
    if "dec_inputs" in row:
        ids = row["dec_inputs"]
        yield strip(
            "decoder reads", ids, reads("dec_inputs", np.full(len(ids), "plain"))
        )
    yield from _ask(row, strip, tokenizer)
    for key, name in JUDGED.items():
        if key in row:
            if key == "real" and "original" not in row:
                name = "state as taught"
            scored = tuple("scored" if value > 0 else "empty" for value in row[key])
            tokens = tuple("?" * (kind == "scored") for kind in scored)
            yield Strip(name, tokens, scored)
    for key, (question, answers) in LABELS.items():
        if key in row:
            yield Strip(question, (answers[int(row[key])],), ("scored",))


def _ask(row: dict, strip, tokenizer: Tokenizer):
    """The strips of what is to be said where."""
    targets, is_scored = row["targets"], row["loss_weights"] > 0
    if "positions" in row:
        said: list[list[str]] = [[] for _ in row["inputs"]]
        places = row["positions"][is_scored]
        for place, id_ in zip(places, targets[is_scored], strict=True):
            said[place].append(_name(tokenizer, int(id_)))
        kinds = tuple("scored" if names else "empty" for names in said)
        yield Strip("is to say", tuple(map(" ".join, said)), kinds)
    else:
        if "fill_positions" in row:
            is_scored[row["fill_positions"][row["fill_weights"] > 0]] = True
        yield strip("is to say", targets, np.where(is_scored, "scored", "empty"))
    if "back_targets" in row:
        is_back = np.where(row["back_weights"] > 0, "scored", "empty")
        yield strip("and backward", row["back_targets"], is_back)


def _find_hidden(row: dict, text: np.ndarray, is_text: np.ndarray, tokenizer):
    """Which tokens of the text [R] are hidden, and which of the inputs [T] are new."""
    inputs, vocab = row["inputs"], tokenizer.vocab
    hidden, changed = np.zeros(len(text), bool), np.zeros(len(inputs), bool)
    if "negatives" in row:  # neighbours are asked for, and nothing is hidden
        return hidden, changed
    if "positions" in row:
        hidden[row["positions"][row["loss_weights"] > 0]] = True
        return hidden, inputs != text[: len(inputs)]
    hidden[is_text], changed = find_changes(text[is_text], inputs)
    # What opens, closes or fills a row stands for nothing.
    others = vocab.bos, vocab.eos, vocab.cls, vocab.sep, vocab.pad
    changed &= ~np.isin(inputs, [i for i in others if i is not None])
    is_cut_off = hidden[is_text].argmax() == is_text.sum() - hidden.sum()
    if is_cut_off and not changed.any():  # the last token is no input
        hidden[:] = False
    return hidden, changed


def find_changes(text: np.ndarray, inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """What of a text is not in the input made of it, and what of that is not in it.

    >>> find_changes(np.array([5, 6, 7, 8]), np.array([5, 99, 8, 1]))
    (array([False,  True,  True, False]), array([False,  True, False,  True]))
    """
    hidden, changed = np.ones(len(text), bool), np.ones(len(inputs), bool)
    matcher = difflib.SequenceMatcher(None, list(text), list(inputs), autojunk=False)
    for block in matcher.get_matching_blocks():
        hidden[block.a : block.a + block.size] = False
        changed[block.b : block.b + block.size] = False
    return hidden, changed


def compose_mask(task: Task, batch: dict, tokenizer: Tokenizer | None = None) -> dict:
    """Who may see whom in a batch's first row, as `plots.attention_masks` takes it.

    An encoder-decoder is shown as one square: encoder places first, then the decoder's.

    Args:
      tokenizer: names the places by their tokens; without it they are numbered.
    """
    masks = task.module.masks(batch)
    ids = {key: batch[key][0] for key in ("inputs", "dec_inputs") if key in batch}

    def label(key, letter):
        if tokenizer is not None:
            return [_name(tokenizer, int(i)) for i in ids[key]]
        return [f"{letter}{i + 1}" for i in range(len(ids[key]))]

    source = len(ids["inputs"])
    if "self" not in masks:  # one for each direction
        labels = label("inputs", "")
        both = [
            np.asarray(materialise(m, source, source))[0, 0] for m in masks.values()
        ]
        return {
            "mask": np.concatenate(both, axis=1),
            "query_labels": labels,
            "key_labels": len(both) * labels,
            "split": (source, source),
        }
    if "cross" not in masks:
        labels = label("inputs", "")
        mask = np.asarray(materialise(masks["self"], source, source))[0, 0]
        return {"mask": mask, "query_labels": labels, "key_labels": labels}
    target = len(ids["dec_inputs"])
    whole = np.zeros((source + target, source + target), bool)
    whole[:source, :source] = materialise(masks["self"], source, source)[0, 0]
    whole[source:, :source] = materialise(masks["cross"], target, source)[0, 0]
    whole[source:, source:] = materialise(masks["dec_self"], target, target)[0, 0]
    labels = label("inputs", "e") + label("dec_inputs", "d")
    return {
        "mask": whole,
        "query_labels": labels,
        "key_labels": labels,
        "split": (source, source),
    }


def _name(tokenizer: Tokenizer, id_: int) -> str:
    """A token without the space before it, unless that is all there is."""
    name = tokenizer.token_name(id_)
    return name.removeprefix("␣") or name
