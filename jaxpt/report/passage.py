"""What objectives make of one passage: what is hidden, who sees whom, what is scored.

The passage is a row that training would read at some step, only shorter, with the draws
of that step.
"""

import dataclasses
import difflib

import jax
import numpy as np

from jaxpt.config.plan import Plan
from jaxpt.errors import UserError
from jaxpt.objectives import OBJECTIVES
from jaxpt.ops.masks import materialise
from jaxpt.rng import split_step, stream
from jaxpt.run.data import make_feed, with_token_counts
from jaxpt.run.task import Task, make_task
from jaxpt.text.dataset import Split
from jaxpt.text.tokens.tokenizer import Tokenizer
from jaxpt.text.tokens.vocab import Vocab

# What a place of a strip is: as the text has it, hidden from the model, standing for
# what is hidden, scored by a loss, or nothing at all.
KINDS = ("plain", "hidden", "changed", "scored", "empty")
# Losses over a row that have no target token of their own.
JUDGED = {
    "discriminator_loss": "replaced?",
    "restoring_loss": "was what?",
    "kl_loss": "as taught",
    "cosine_loss": "state as taught",
}
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


def check_names(config: dict, names: list[str]) -> None:
    """Raises UserError for a name that is no objective and not in the comparison."""
    compared = config.get("compare", {}).get("objectives", ())
    known = dict.fromkeys((*OBJECTIVES, *compared))
    for name in names:
        if name not in known:
            raise UserError(f"--objectives={name}: must be among {', '.join(known)}")


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
    return View(
        name=name,
        title=(task.objective.__doc__ or "").partition("\n")[0],
        strips=tuple(make_strips(row, batch, tokenizer)),
        mask=compose_mask(task, batch, tokenizer),
        signal=_count_signal(whole, train, step),
        flops=whole.count_flops() / whole.spec.row_length,
    )


def shorten(plan: Plan, vocab: Vocab, length: int) -> Task:
    """The plan's task on rows of `length` tokens."""
    return make_task(plan.change({"data": {"row_length": length}}), vocab)


def draw_batch(task: Task, rows: dict, step: int) -> dict:
    """What training makes of a step's rows."""
    rngs = split_step(stream(task.plan.train.seed, step, "train"))
    share = np.float32(step / task.plan.train.steps)
    if "progress" in task.spec.READS:
        rows = rows | {"progress": np.full(rows["index"].shape, share)}
    return task.objective.corrupt(rngs["corrupt"], rows, task.vocab, task.spec)


def draw_row(task: Task, train: Split, step: int) -> tuple[dict, dict]:
    """The first row of a step, and what is made of it, as batches of one."""
    rows = make_feed(task, train)[step]
    rows = {key: value[:1] for key, value in rows.items()}
    batch = draw_batch(task, rows, step)
    return rows, jax.tree.map(np.asarray, batch)


def _count_signal(task: Task, train: Split, step: int) -> dict[str, float]:
    rows = make_feed(task, train)[step]
    num_raw = (rows.get("segment_ids", np.ones_like(rows["tokens"])) > 0).sum()
    weights = draw_batch(task, rows, step)["weights"]
    return {name: float(weight.sum()) / num_raw for name, weight in weights.items()}


def make_strips(rows: dict, batch: dict, tokenizer: Tokenizer):
    """The strips of a batch of one row."""
    row = jax.tree.map(lambda x: x[0], batch)
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
    for term, name in JUDGED.items():
        if term in row["weights"]:
            weights = row["weights"][term]
            scored = tuple("scored" if w > 0 else "empty" for w in weights)
            tokens = tuple("?" * (kind == "scored") for kind in scored)
            yield Strip(name, tokens, scored)
    for key, (question, answers) in LABELS.items():
        if key in row:
            yield Strip(question, (answers[int(row[key])],), ("scored",))


def main_weights(row: dict) -> np.ndarray:
    """The weights of the targets: of the first term that has one for each."""
    return next(w for w in row["weights"].values() if w.shape == row["targets"].shape)


def _ask(row: dict, strip, tokenizer: Tokenizer):
    """The strips of what is to be predicted where."""
    targets, positions = row["targets"], row.get("masked_positions")
    is_scored = main_weights(row) > 0
    if positions is not None and len(positions) == len(targets):
        said: list[list[str]] = [[] for _ in row["inputs"]]
        for place, id_ in zip(positions[is_scored], targets[is_scored], strict=True):
            said[place].append(_name(tokenizer, int(id_)))
        kinds = tuple("scored" if names else "empty" for names in said)
        yield Strip("is to say", tuple(map(" ".join, said)), kinds)
    else:
        if positions is not None:  # of a row that is causal or masked
            is_scored[positions[row["weights"]["mlm_loss"] > 0]] = True
        yield strip("is to say", targets, np.where(is_scored, "scored", "empty"))
    if "back_targets" in row:
        is_back = np.where(row["weights"]["backward_loss"] > 0, "scored", "empty")
        yield strip("and backward", row["back_targets"], is_back)


def _find_hidden(row: dict, text: np.ndarray, is_text: np.ndarray, tokenizer):
    """Which tokens of the text [R] are hidden, and which of the inputs [T] are new."""
    inputs, vocab = row["inputs"], tokenizer.vocab
    hidden, changed = np.zeros(len(text), bool), np.zeros(len(inputs), bool)
    if "negatives" in row:  # neighbours are predicted, and nothing is hidden
        return hidden, changed
    positions = row.get("masked_positions")
    if positions is not None and len(positions) == len(row["targets"]):
        hidden[positions[main_weights(row) > 0]] = True
        return hidden, inputs != text[: len(inputs)]
    hidden[is_text], changed = find_changes(text[is_text], inputs)
    # What opens, closes or pads a row stands for nothing.
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
    masks = task.objective.masks(batch)
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
