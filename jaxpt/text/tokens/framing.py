"""What stands around texts without being text: how one begins, ends, and is answered.

A model that was trained on `[CLS] a text [SEP]` is to be given that, and one that ends
its texts with one of three ids is to be stopped at any of them. Of a run made here this
follows from its objective and its rows; what a model of another house came with is kept
in its run's folder as `framing.json`.
"""

import dataclasses
import json
from typing import Any

import numpy as np
import tokenizers

from jaxpt.errors import UserError


@dataclasses.dataclass(frozen=True)
class Framing:
    """Ids that are put around a text, hashable like the vocabulary they belong to.

    Attributes:
      before, after: around each text that is read (of an encoder-decoder by its
        encoder).
      bos: what a text that goes on from nothing begins with.
      start: what a decoder begins with; None is [PAD], as T5's.
      first, last: what a decoder must write first, and at the last place that it is
        given (`forced_bos_token_id`, `forced_eos_token_id` of transformers).
      ends: any of these ends what is written.
    """

    before: tuple[int, ...] = ()
    after: tuple[int, ...] = ()
    bos: int | None = None
    start: int | None = None
    first: int | None = None
    last: int | None = None
    ends: tuple[int, ...] = ()

    def wrap(self, ids: np.ndarray) -> np.ndarray:
        """The int32 ids of a text with what stands around it.

        >>> Framing(before=(1,), after=(2, 3)).wrap(np.array([7, 8])).tolist()
        [1, 7, 8, 2, 3]
        """
        return np.concatenate([self.before, ids, self.after]).astype(np.int32)

    def to_json(self) -> dict:
        """Plain values, tuples as lists."""
        return json.loads(json.dumps(dataclasses.asdict(self)))


def from_json(values: dict) -> Framing:
    """The framing of its `to_json`.

    Raises:
      UserError: the value is not one that `to_json` wrote.
    """
    fields = {field.name: field.default for field in dataclasses.fields(Framing)}
    if not isinstance(values, dict) or set(values) != set(fields):
        raise UserError(f"must have {', '.join(fields)}")
    for name, default in fields.items():
        held = values[name]
        is_list = isinstance(default, tuple)
        if is_list != isinstance(held, list):
            raise UserError(f"{name} is {held!r}: must be {_say(is_list)}")
        listed = held if is_list else [held] * (held is not None)
        if not all(type(id_) is int and id_ >= 0 for id_ in listed):
            raise UserError(f"{name} is {held!r}: must be {_say(is_list)}")
    made: dict[str, Any] = {
        k: tuple(v) if type(v) is list else v for k, v in values.items()
    }
    return Framing(**made)


def _say(is_list: bool) -> str:
    return "a list of ids" if is_list else "an id or null"


def read_template(
    post_processor: dict | None,
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """What a `tokenizer.json`'s post-processor puts before and after one text.

    The library itself is asked, whatever the kind of post-processor.

    Raises:
      UserError: it types the text's ids as of a second text, or is none.
    """
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
    try:
        found = tokenizers.Tokenizer.from_str(json.dumps(plain)).encode("x")
    except Exception as error:  # the library raises nothing finer
        raise UserError(f"post_processor: not one of tokenizers: {error}") from error
    places = [i for i, text in enumerate(found.sequence_ids) if text == 0]
    if len(places) != 1:
        raise UserError("post_processor: must leave a text's tokens as they are")
    if any(found.type_ids):
        raise UserError(
            f"post_processor: gives a single text the type ids {found.type_ids}: "
            "must be 0 throughout"
        )
    (place,) = places
    return tuple(found.ids[:place]), tuple(found.ids[place + 1 :])


def write_template(
    framing: Framing, names: dict[int, str], has_types: bool
) -> dict | None:
    """The post-processor that puts what the framing has around a text, or two of them.

    Two texts are `before` A `after` B `after`, BERT's way.

    Args:
      names: how each special id is written.
      has_types: whether the second text's ids are of type 1.
    """
    if not framing.before and not framing.after:
        return None

    def special(id_: int, kind: int = 0) -> dict:
        return {"SpecialToken": {"id": names[id_], "type_id": kind}}

    def text(name: str, kind: int = 0) -> dict:
        return {"Sequence": {"id": name, "type_id": kind}}

    before = [special(id_) for id_ in framing.before]
    single = [*before, text("A"), *(special(id_) for id_ in framing.after)]
    second = [special(id_, int(has_types)) for id_ in framing.after]
    used = sorted({*framing.before, *framing.after})
    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": [*single, text("B", int(has_types)), *second],
        "special_tokens": {
            names[id_]: {"id": names[id_], "ids": [id_], "tokens": [names[id_]]}
            for id_ in used
        },
    }
