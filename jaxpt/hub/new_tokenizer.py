"""Gives an imported model another tokenizer, for a new domain or language.

    new token     in the old vocabulary     its embedding
    the           the                       that of `the`
    [MASK]        [MASK]                    that of [MASK]
    myocarditis   my ##oc ##ard ##itis      the mean of these four
    中            [UNK]                     the mean of all ordinary tokens

Tokens are compared by their text and by whether they begin a word, so that the `Ġthe`
of GPT-2 is the `the` of BERT. Rows of output layers and their biases are treated in the
same way. The model must be trained further: until then it reads a foreign vocabulary.

Source: Gee et al. 2022 (https://aclanthology.org/2022.emnlp-industry.41), fast
vocabulary transfer. Departure: unknown texts get the mean of all ordinary tokens.
"""

import dataclasses
from collections.abc import Collection
from typing import Any

import flax.traverse_util
import jax.numpy as jnp
import numpy as np

from jaxpt.config.plan import make_plan
from jaxpt.errors import ConfigError, argument
from jaxpt.hub.convert import flatten
from jaxpt.runs.program import Program
from jaxpt.runs.task import Task, make_task
from jaxpt.text.tokens.tokenizer import Tokenizer
from jaxpt.text.tokens.vocab import SPECIALS, Vocab
from jaxpt.text_form import STORED, TextForm

Ids = list[int]


def map_tokens(old: Tokenizer, new: Tokenizer) -> list[Ids]:
    """For each id of the new tokenizer, the ids of the old one that it is made from.

    None are those of a special token or a text that the old one does not have.
    """
    known = _find_specials(old.vocab)
    special_of = {id_: known.get(key) for key, id_ in _find_specials(new.vocab).items()}
    id_of: dict[tuple[bytes, bool], int] = {}
    for id_ in old.vocab.ordinary_ids.tolist():
        id_of.setdefault(_describe(old.vocab, id_), id_)
    is_special, out = new.vocab.is_special, []
    for id_ in range(new.vocab.size):
        if is_special[id_]:
            same = special_of.get(id_)
            out.append([] if same is None else [same])
            continue
        text, is_start = _describe(new.vocab, id_)
        same = id_of.get((text, is_start))
        out.append(_split(old, text, is_start) if same is None else [same])
    return out


def _find_specials(vocab: Vocab) -> dict[str, int]:
    """Ids of specials by role, or by number or name."""
    ids = {role: getattr(vocab, role) for role in SPECIALS}
    named = {role: id_ for role, id_ in ids.items() if id_ is not None}
    named |= {f"sentinel {i}": id_ for i, id_ in enumerate(vocab.sentinels)}
    return {vocab.special_names[id_]: id_ for id_ in vocab.others} | named


def _describe(vocab: Vocab, id_: int) -> tuple[bytes, bool]:
    """A token's text without the space before it, and whether it begins a word."""
    piece = vocab.pieces[id_]
    return piece.removeprefix(b" ") or piece, vocab.word_starts[id_]


def _split(old: Tokenizer, text: bytes, is_start: bool) -> Ids:
    """The old tokens of a text; none if one is unknown, or it is not UTF-8."""
    try:
        ids = old.encode((" " if is_start else "") + text.decode()).tolist()
    except UnicodeDecodeError:
        return []
    return [] if old.vocab.unk in ids else ids


def mean_rows(
    value: np.ndarray, axis: int, parts: list[Ids], ordinary: np.ndarray
) -> np.ndarray:
    """The means of a table's entries along an axis; of `ordinary` for no part.

    >>> mean_rows(np.array([[0.0, 2.0, 6.0]]), 1, [[2], [0, 1], []], np.array([1, 2]))
    array([[6., 1., 4.]])
    """
    whole = value.take(ordinary, axis).mean(axis)
    rows = [value.take(ids, axis).mean(axis) if ids else whole for ids in parts]
    return np.stack(rows, axis).astype(value.dtype)


def move_text_form(form: TextForm, old: Vocab, new: Vocab) -> TextForm:
    """The special tokens around texts, as ids of the new vocabulary.

    The ids that begin or end generated text are left out if it lacks them.
    """
    ids = _find_specials(new)
    named = {id_: ids.get(name) for name, id_ in _find_specials(old).items()}
    place = {id_: to for id_, to in named.items() if to is not None}
    form = dataclasses.replace(
        form,
        bos=form.bos if form.bos in place else None,
        ends=tuple(id_ for id_ in form.ends if id_ in place),
    )

    def move(id_: int) -> int:
        if (result := place.get(id_)) is None:
            name = old.special_names.get(id_, f"id {id_}")
            raise ConfigError(
                f"{argument('new_tokenizer')}: must have {name}, which the model puts "
                "around texts"
            )
        return result

    values: dict[str, Any] = {name: getattr(form, name) for name in STORED}
    for name, value in values.items():
        if isinstance(value, tuple):
            values[name] = tuple(map(move, value))
        elif value is not None:
            values[name] = move(value)
    return TextForm(**values)


def change_tokenizer(
    params: dict,
    task: Task,
    old: Tokenizer,
    new: Tokenizer,
    config: dict[str, Any],
    fixed: Collection[str],
) -> tuple[dict, Task]:
    """The parameters and the task of the same model with another tokenizer.

    Args:
      params, task: with the old tokenizer.
      config, fixed: all settings, of which `tokenizer.path` names the new one, and
        those that may not be changed.
    """
    for name, each in ((argument("from"), old), (argument("new_tokenizer"), new)):
        if not (each.vocab.pieces and each.vocab.word_starts):
            raise ConfigError(
                f"{name}: its tokenizer must know the text of its tokens and where "
                f"words begin, to be exchanged"
            )
    assert task.vocab.text_form is not None
    form = move_text_form(task.vocab.text_form, old.vocab, new.vocab)
    vocab = dataclasses.replace(new.vocab, text_form=form)
    model = config["model"] | {"vocab_size": 0}  # that of the tokenizer
    if model["token_dropout"] >= 0 and vocab.mask is not None:
        model["token_dropout"] = vocab.mask
    plan = make_plan(config | {"model": model}, fixed)
    result = make_task(plan, vocab)
    # Axes with an entry for each id are those that depend on the number of ids.
    longer = make_task(plan, dataclasses.replace(vocab, size=vocab.size + 1))
    shapes, others = (flatten(_shapes_of(each)) for each in (result, longer))
    parts, flat = map_tokens(old, new), flatten(params)
    for path, value in flat.items():
        pairs = zip(shapes[path].shape, others[path].shape, strict=True)
        for axis in [i for i, (size, other) in enumerate(pairs) if size != other]:
            value = mean_rows(np.asarray(value), axis, parts, old.vocab.ordinary_ids)
        flat[path] = jnp.asarray(value)
    return flax.traverse_util.unflatten_dict(flat, sep="/"), result


def _shapes_of(task: Task) -> Any:
    return Program(task, is_training=False).abstract_state().params
