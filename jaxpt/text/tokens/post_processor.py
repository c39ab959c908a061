"""Post-processors of `tokenizer.json`: the special tokens around one text or two."""

import json
from typing import Any

import tokenizers

from jaxpt.errors import DataError
from jaxpt.text_form import TextForm


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


def read_pair_template(post_processor: dict | None) -> TextForm | None:
    """What a `tokenizer.json`'s post-processor adds around two texts.

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
    return TextForm(
        before=tuple(ids[:first]),
        between=tuple(ids[first + 1 : second]),
        after=tuple(ids[second + 1 :]),
        second_type=encoding.type_ids[second],
    )


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
    form: TextForm, names: dict[int, str], has_types: bool
) -> dict | None:
    """The post-processor that adds a form's ids around a text, or around two texts.

    Args:
      names: the name of each special id.
      has_types: whether the second text's ids have type 1, if the form has no
        `between`.
    """
    before, between, after = form.before, form.separator, form.after
    kind = form.second_type
    if form.between is None:
        if not before and not after:
            return None
        kind = int(has_types)

    def special(id_: int, kind: int = 0) -> dict:
        return {"SpecialToken": {"id": names[id_], "type_id": kind}}

    def text(name: str, kind: int = 0) -> dict:
        return {"Sequence": {"id": name, "type_id": kind}}

    single = [*map(special, before), text("A"), *map(special, after)]
    both = [*map(special, before), text("A"), *map(special, between)]
    both += [text("B", kind), *(special(id_, kind) for id_ in after)]
    used = sorted({*before, *between, *after})
    return {
        "type": "TemplateProcessing",
        "single": single,
        "pair": both,
        "special_tokens": {
            names[id_]: {"id": names[id_], "ids": [id_], "tokens": [names[id_]]}
            for id_ in used
        },
    }
