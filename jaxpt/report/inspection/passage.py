"""One passage under several objectives: masked tokens, attention masks and targets.

The passage is a row that training would read at some step, only shorter, corrupted with
that step's random key.
"""

import dataclasses
import difflib
from collections.abc import Callable, Iterator, Mapping
from typing import cast

import jax
import numpy as np

from jaxpt.config.plan import Plan
from jaxpt.dims import Batch
from jaxpt.errors import ConfigError, argument
from jaxpt.objectives import OBJECTIVES
from jaxpt.objectives.spec import Term
from jaxpt.ops.masks import materialise
from jaxpt.report.formats import format_flops
from jaxpt.rng import split_step, stream
from jaxpt.runs.data import make_feed, with_token_counts
from jaxpt.runs.task import Task, make_task
from jaxpt.text.dataset import Split
from jaxpt.text.tokens.tokenizer import Tokenizer
from jaxpt.text.tokens.vocab import Vocab

# The kinds of a strip's cells: a token of the text as it is, a token that is masked in
# the input, a token of the input that replaces it, a target of a loss, and no token.
KINDS = ("plain", "masked", "replacement", "target", "empty")

Terms = Mapping[str, Term]


@dataclasses.dataclass(frozen=True)
class Strip:
    """One line of tokens, each with its kind, one of `KINDS`."""

    name: str
    tokens: tuple[str, ...]
    kinds: tuple[str, ...]


@dataclasses.dataclass(frozen=True)
class View:
    """One objective's treatment of a passage.

    Attributes:
      title: what the objective does, in a sentence.
      mask: as `figures.draw_masks` takes it.
      signal: loss term -> predictions per token, at the config's own row length.
      flops: training FLOPs per token, at the config's own row length.
    """

    name: str
    title: str
    strips: tuple[Strip, ...]
    mask: dict
    signal: dict[str, float]
    flops: float


def check_names(config: dict, names: list[str]) -> None:
    """Raises UserError for a name of neither an objective nor the comparison."""
    compared = config.get("compare", {}).get("objectives", ())
    known = dict.fromkeys((*OBJECTIVES, *compared))
    for name in names:
        if name not in known:
            raise ConfigError(
                f"{argument('objectives')}={name}: must be among {', '.join(known)}"
            )


def view(
    name: str,
    plan: Plan,
    tokenizer: Tokenizer,
    train: Split,
    length: int,
    step: int = 0,
) -> View:
    """The first row of a step, with rows of `length` tokens, under one objective."""
    whole = make_task(plan, with_token_counts(plan, tokenizer.vocab, train))
    task = shorten(plan, whole.vocab, length)
    row, batch = corrupt_row(task, train, step)
    return View(
        name=name,
        title=(task.objective.__doc__ or "").partition("\n")[0],
        strips=tuple(make_strips(row, batch, tokenizer, task.spec.terms)),
        mask=compose_mask(task, batch, tokenizer),
        signal=_count_signal(whole, train, step),
        flops=whole.count_flops() / whole.spec.row_length,
    )


def shorten(plan: Plan, vocab: Vocab, length: int) -> Task:
    """The plan's task on rows of `length` tokens, without phases of training."""
    stored = plan.config.get("train", {}).keys()
    schedules = {"batch_schedule", "length_schedule"} & stored
    changes = {"data": {"row_length": length}, "train": {n: [] for n in schedules}}
    return make_task(plan.change(changes), vocab)


def corrupt_batch(task: Task, rows: dict, step: int) -> dict:
    """A step's rows after corruption, as training reads them."""
    task = task.for_batch(*rows["tokens"].shape)
    rngs = split_step(stream(task.plan.train.seed, step, "train"))
    share = np.float32(step / task.plan.train.steps)
    if "progress" in task.spec.READS:
        rows = rows | {"progress": np.full(rows["index"].shape, share)}

    @jax.jit  # as in training
    def corrupt(rng, rows):
        return task.objective.corrupt(rng, rows, task.vocab, task.spec)

    return corrupt(rngs["corrupt"], rows)


def corrupt_row(task: Task, train: Split, step: int) -> tuple[dict, dict]:
    """The first row of a step before and after corruption, as batches of one row."""
    rows = make_feed(task, train)[step]
    task = task.for_batch(*rows["tokens"].shape)
    rows = {key: value[:1] for key, value in rows.items()}
    batch = corrupt_batch(task, rows, step)
    return rows, jax.tree.map(np.asarray, batch)


def _count_signal(task: Task, train: Split, step: int) -> dict[str, float]:
    rows = make_feed(task, train)[step]
    num_raw = (rows.get("segment_ids", np.ones_like(rows["tokens"])) > 0).sum()
    batch = corrupt_batch(task, rows, step)
    weights = prediction_weights(batch, task.spec.terms)
    return {name: float(weight.sum()) / num_raw for name, weight in weights.items()}


def prediction_weights(batch: dict, terms: Terms) -> dict:
    """The weights of each loss term at the positions that it predicts, 0 elsewhere.

    The loss of masked diffusion is a mean over all tokens, but only masked tokens are
    predicted.
    """
    return {
        name: weights * (batch[terms[name].selects] > 0)
        if terms[name].selects
        else weights
        for name, weights in batch["weights"].items()
    }


def make_strips(
    rows: dict, batch: dict, tokenizer: Tokenizer, terms: Terms
) -> Iterator[Strip]:
    """The strips of a batch of one row."""
    row = jax.tree.map(lambda x: x[0], batch)
    text, inputs, pad = rows["tokens"][0], row["inputs"], tokenizer.vocab.pad
    is_text = rows.get("segment_ids", np.ones_like(rows["tokens"]))[0] > 0
    is_masked, is_new = _find_masked(row, text, is_text, tokenizer, terms)

    def strip(name: str, ids: np.ndarray, kinds: np.ndarray) -> Strip:
        names = [_name(tokenizer, int(i)) for i in ids]
        tokens = [n * (k != "empty") for n, k in zip(names, kinds, strict=True)]
        return Strip(name, tuple(tokens), tuple(map(str, kinds)))

    def mark_padding(key: str, kinds: np.ndarray) -> np.ndarray:
        segments = row.get(key.replace("inputs", "segment_ids"))
        is_behind = np.cumsum((row[key] != pad)[::-1])[::-1] == 0
        empty = is_behind if segments is None else segments == 0
        return np.where(empty, "empty", kinds)

    kinds = np.where(is_masked, "masked", "plain")
    yield strip("text", text, np.where(is_text, kinds, "empty"))
    kinds = np.where(is_new, "replacement", "plain")
    yield strip("input", inputs, mark_padding("inputs", kinds))
    if "dec_inputs" in row:
        ids = row["dec_inputs"]
        kinds = mark_padding("dec_inputs", np.full(len(ids), "plain"))
        yield strip("decoder input", ids, kinds)
    yield from _make_targets(row, strip, tokenizer, terms)
    for name, term in terms.items():
        weights = row["weights"][name]
        if term.answers:
            answer = term.answers[int(row[term.targets])]
            yield Strip(term.label, (answer,), ("target",))
        elif not term.targets:
            cells = tuple("target" if w > 0 else "empty" for w in weights)
            tokens = tuple("?" * (cell == "target") for cell in cells)
            yield Strip(term.label, tokens, cells)


def main_weights(row: dict, terms: Terms) -> np.ndarray:
    """The weights of the main targets: the largest of the terms that predict them."""
    weights = prediction_weights(row, terms)
    shape = row["targets"].shape
    target_weights = [w for n, w in weights.items() if terms[n].targets == "targets"]
    return np.max(
        [np.zeros(shape), *(w for w in target_weights if w.shape == shape)], axis=0
    )


def has_gathered_targets(row: dict) -> bool:
    """Whether targets are those of the masked positions alone."""
    return len(row.get("masked_positions", ())) == len(row["targets"])


def _make_targets(
    row: dict, strip: Callable[..., Strip], tokenizer: Tokenizer, terms: Terms
) -> Iterator[Strip]:
    """The strips of target tokens: the main ones, then those of other keys."""
    targets, weights = row["targets"], prediction_weights(row, terms)
    is_target = main_weights(row, terms) > 0
    if has_gathered_targets(row):
        names_at: list[list[str]] = [[] for _ in row["inputs"]]
        positions = row["masked_positions"]
        for place, id_ in zip(positions[is_target], targets[is_target], strict=True):
            names_at[place].append(_name(tokenizer, int(id_)))
        kinds = tuple("target" if names else "empty" for names in names_at)
        yield Strip("targets", tuple(map(" ".join, names_at)), kinds)
    else:
        for name in weights:
            if positions_key := terms[name].positions:  # of a row with both kinds
                is_target[row[positions_key][weights[name] > 0]] = True
        yield strip("targets", targets, np.where(is_target, "target", "empty"))
    for name, of_term in weights.items():
        key = terms[name].targets
        if key not in ("", "targets") and not terms[name].answers:
            cells = np.where(of_term > 0, "target", "empty")
            yield strip(terms[name].label, row[key], cells)


def _find_masked(
    row: dict, text: np.ndarray, is_text: np.ndarray, tokenizer: Tokenizer, terms: Terms
) -> tuple[np.ndarray, np.ndarray]:
    """Which tokens of the text [R] are masked, and which of the inputs [T] are new."""
    inputs, vocab = row["inputs"], tokenizer.vocab
    is_masked, is_new = np.zeros(len(text), bool), np.zeros(len(inputs), bool)
    if has_gathered_targets(row):
        if not all(term.is_in_place for term in terms.values()):
            return is_masked, is_new  # others than the tokens at these positions
        is_masked[row["masked_positions"][main_weights(row, terms) > 0]] = True
        return is_masked, inputs != text[: len(inputs)]
    is_masked[is_text], is_new = find_changes(text[is_text], inputs)
    # Tokens that open, close or pad a row replace nothing.
    special_ids = vocab.bos, vocab.eos, vocab.cls, vocab.sep, vocab.pad
    is_new &= ~np.isin(inputs, [i for i in special_ids if i is not None])
    is_cut_off = is_masked[is_text].argmax() == is_text.sum() - is_masked.sum()
    if is_cut_off and not is_new.any():  # the last token is only a target, no input
        is_masked[:] = False
    return is_masked, is_new


def find_changes(text: np.ndarray, inputs: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Which tokens of a text are not in its input, and which of that not in the text.

    >>> find_changes(np.array([5, 6, 7, 8]), np.array([5, 99, 8, 1]))
    (array([False,  True,  True, False]), array([False,  True, False,  True]))
    """
    is_removed, is_new = np.ones(len(text), bool), np.ones(len(inputs), bool)
    matcher = difflib.SequenceMatcher(None, list(text), list(inputs), autojunk=False)
    for block in matcher.get_matching_blocks():
        is_removed[block.a : block.a + block.size] = False
        is_new[block.b : block.b + block.size] = False
    return is_removed, is_new


def compose_mask(task: Task, batch: dict, tokenizer: Tokenizer | None = None) -> dict:
    """The attention mask of a batch's first row, for `figures.draw_masks`.

    The masks of an encoder-decoder make one square: first the encoder's positions, then
    the decoder's.

    Args:
      tokenizer: labels positions with their tokens; without it they are numbered.
    """
    masks = task.objective.masks(cast(Batch, batch))
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
        if isinstance(masks["self"], jax.Array):  # also of a row that is read twice
            mask = np.asarray(masks["self"])[0, 0]
            labels = labels * (len(mask) // source)
        else:
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
    """A token without its leading space, unless it is only a space."""
    name = tokenizer.token_name(id_)
    return name.removeprefix("␣") or name


def describe_costs(view: View) -> str:
    """Predictions and training FLOPs per token, at the config's own row length."""
    terms = ", ".join(f"{name} {value:.3g}" for name, value in view.signal.items())
    return (
        f"predictions per token: {terms}; "
        f"training FLOPs per token: {format_flops(view.flops)}"
    )
