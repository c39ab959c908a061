"""Special tokens: the ids around a model's texts, and those that end generation.

For a run trained here they follow from its objective and rows. For an imported model
they are stored in the run's folder as `framing.json`.
"""

import dataclasses
import json
from typing import Any

import numpy as np
import tokenizers

from jaxpt.errors import DataError


@dataclasses.dataclass(frozen=True)
class Framing:
    """Special ids around a text; hashable.

    Attributes:
      before, after: around each text that the model (or its encoder) reads.
      bos: the first id of a text that is scored, or generated without a prompt.
      start: a decoder's first input; None means [PAD], as for T5.
      first, last: a decoder's forced first output, and its forced output at the last
        position (`forced_bos_token_id`, `forced_eos_token_id` of transformers).
      ends: ids that end generation.
    """

    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()
    bos: int | None = None
    start: int | None = None
    first: int | None = None
    last: int | None = None
    ends: tuple[int, ...] = ()

    def wrap(self, ids: np.ndarray) -> np.ndarray:
        """The int32 ids of a text with `before` and `after` around it.

        >>> Framing(before=(1,), after=(2, 3)).wrap(np.array([7, 8])).tolist()
        [1, 7, 8, 2, 3]
        """
        return np.concatenate([self.before, ids, self.after]).astype(np.int32)

    def to_json(self) -> dict:
        """Plain values, tuples as lists."""
        return json.loads(json.dumps(dataclasses.asdict(self)))


def from_json(values: dict) -> Framing:
    """Restores a framing from its `to_json`."""
    fields = {field.name: field.default for field in dataclasses.fields(Framing)}
    if not isinstance(values, dict) or set(values) != set(fields):
        raise DataError(f"must have {', '.join(fields)}")
    for name, default in fields.items():
        value, is_list = values[name], isinstance(default, tuple)
        ids = value if isinstance(value, list) else [value] * (value is not None)
        if is_list != isinstance(value, list) or not all(
            type(id_) is int and id_ >= 0 for id_ in ids
        ):
            allowed = "a list of ids" if is_list else "an id or null"
            raise DataError(f"{name} is {value!r}: must be {allowed}")
    parsed: dict[str, Any] = {
        k: tuple(v) if type(v) is list else v for k, v in values.items()
    }
    return Framing(**parsed)


def read_template(
    post_processor: dict | None,
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The ids that a `tokenizer.json`'s post-processor adds before and after a text.

    The `tokenizers` library applies it, so any kind of post-processor works.
    """
    try:
        encoding = _apply_template(post_processor)
    except Exception as error:  # the library has no finer exceptions
        raise DataError(f"post_processor: not one of tokenizers: {error}") from error
    positions = [i for i, text in enumerate(encoding.sequence_ids) if text == 0]
    if len(positions) != 1:
        raise DataError("post_processor: must leave a text's tokens as they are")
    if any(encoding.type_ids):
        raise DataError(
            f"post_processor: gives a single text the type ids {encoding.type_ids}: "
            "must be 0 throughout"
        )
    (position,) = positions
    return tuple(encoding.ids[:position]), tuple(encoding.ids[position + 1 :])


# The ids before the first of two texts, between them, and after the second; the type id
# of the second text.
Pair = tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...], int]


def read_pair_template(post_processor: dict | None) -> Pair | None:
    """The ids that a `tokenizer.json`'s post-processor adds around two texts.

    Returns None without a post-processor, or if it adds nothing, or if it changes the
    texts or their order.
    """
    if post_processor is None:
        return None
    try:
        encoding = _apply_template(post_processor, "x")
    except Exception:  # the library has no finer exceptions
        return None
    places = [i for i, text in enumerate(encoding.sequence_ids) if text is not None]
    if [encoding.sequence_ids[i] for i in places] != [0, 1]:
        return None
    first, second = places
    ids = encoding.ids
    if len(ids) == len(places):
        return None
    parts = ids[:first], ids[first + 1 : second], ids[second + 1 :]
    before, between, after = map(tuple, parts)
    return before, between, after, encoding.type_ids[second]


def _apply_template(
    post_processor: dict | None, pair: str | None = None
) -> tokenizers.Encoding:
    """Applies a post-processor to a text of one token, or to two such texts."""
    plain: dict[str, Any] = {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [],
        "normalizer": None,
        "pre_tokenizer": None,
        "post_processor": post_processor,
        "decoder": None,
        "model": {"type": "WordLevel", "vocab": {"x": 0}, "unk_token": "x"},
    }
    return tokenizers.Tokenizer.from_str(json.dumps(plain)).encode("x", pair)


def write_template(
    framing: Framing, names: dict[int, str], has_types: bool, pair: Pair | None = None
) -> dict | None:
    """The post-processor that adds a framing around a text, or around two texts.

    Args:
      names: the name of each special id.
      has_types: whether the second text's ids have type 1.
      pair: the ids around two texts; None is `before` A `after` B `after`, as in BERT.
    """
    before, after = framing.before, framing.after
    if pair is None and not before and not after:
        return None
    first, between, last, kind = pair or (before, after, after, int(has_types))

    def special(id_: int, kind: int = 0) -> dict:
        return {"SpecialToken": {"id": names[id_], "type_id": kind}}

    def text(name: str, kind: int = 0) -> dict:
        return {"Sequence": {"id": name, "type_id": kind}}

    single = [*map(special, before), text("A"), *map(special, after)]
    both = [*map(special, first), text("A"), *map(special, between)]
    both += [text("B", kind), *(special(id_, kind) for id_ in last)]
    used = sorted({*before, *after, *first, *between, *last})
    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": both,
        "special_tokens": {
            names[id_]: {"id": names[id_], "ids": [id_], "tokens": [names[id_]]}
            for id_ in used
        },
    }
