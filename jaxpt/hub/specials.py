"""Reads which special ids a checkpoint of transformers puts around texts.

The ids around a text are those of the tokenizer's template, which is `AutoTokenizer`'s
(`jaxpt.text.tokens.folder_options`). The ids that begin and end generated text are
those of generation_config.json, else of config.json, else of the family's config class.
"""

import dataclasses
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from jaxpt.errors import DataError, UserError
from jaxpt.evaluation.scores import SampleSpec
from jaxpt.hub.files import read_json
from jaxpt.runs.generation_defaults import Defaults, check_defaults
from jaxpt.text.tokens.post_processor import read_template
from jaxpt.text.tokens.symbols import is_byt5
from jaxpt.text.tokens.tokenizer import Tokenizer
from jaxpt.text_form import TextForm

# Options of transformers' generation that an import keeps, those of sampling only with
# `do_sample`.
SAMPLING = ("temperature", "top_k", "top_p")
KEPT = (
    *("num_beams", "length_penalty", "repetition_penalty"),
    *("no_repeat_ngram_size", "min_new_tokens", "suppress_tokens"),
)
# Those that it does not keep, with the values at which they have no effect; null has
# none, either.
OPTIONS: dict[str, object] = {
    name: neutral
    for neutral, names in (
        (False, "early_stopping"),
        (1, "typical_p num_beam_groups encoder_repetition_penalty"),
        (0, "min_length min_p encoder_no_repeat_ngram_size"),
        (None, "bad_words_ids force_words_ids sequence_bias"),
        (None, "begin_suppress_tokens exponential_decay_length_penalty"),
    )
    for name in names.split()
}


def read_text_form(
    place: Path,
    ids: Mapping[str, int],
    config: dict,
    tokenizer: Tokenizer,
    num_ids: int,
) -> TextForm:
    """Reads the ids around a model's texts, and those that begin and end generation.

    Args:
      place: a folder with the tokenizer's files, and generation_config.json if any.
      ids: the defaults of the family's class (`Family.ids`).
      config: the content of config.json.
      num_ids: the number of ids of the model.
    """
    before, after = _read_around(place, tokenizer)
    values = {**ids, **config}
    overrides = _read_optional(place, "generation_config.json")
    values |= {name: value for name, value in overrides.items() if value is not None}

    def read(name: str) -> tuple[int, ...]:
        value = values.get(f"{name}_token_id")
        ids = value if isinstance(value, list) else [value] * (value is not None)
        if not all(type(id_) is int and id_ >= 0 for id_ in ids):
            raise DataError(
                f"{place}: {name}_token_id={value!r}: must be an id, a list of ids or "
                "null"
            )
        return tuple(ids)

    def read_one(name: str) -> int | None:
        ids = read(name)
        if len(ids) > 1 or any(id_ >= num_ids for id_ in ids):
            value = values[f"{name}_token_id"]
            raise DataError(
                f"{place}: {name}_token_id={value}: must be one id below "
                f"vocab_size={num_ids}"
            )
        return ids[0] if ids else None

    # An end beyond the model's ids never occurs: small models keep GPT-2's 50256.
    ends = tuple(id_ for id_ in dict.fromkeys(read("eos")) if id_ < num_ids)
    bos = [id_ for id_ in read("bos") if id_ < num_ids]
    if any(id_ >= num_ids for id_ in before + after):
        raise DataError(
            f"{place}: its tokenizer puts {list(before)} and {list(after)} around a "
            f"text: must be ids below vocab_size={num_ids}"
        )
    return TextForm(
        before,
        after,
        bos=bos[0] if bos else None,
        start=read_one("decoder_start"),
        first=read_one("forced_bos"),
        last=read_one("forced_eos"),
        ends=ends,
    )


def read_generation(
    place: Path, config: dict, is_seq2seq: bool
) -> tuple[Defaults, list[str]]:
    """The settings of generation that a checkpoint has, and those that are not kept.

    They are in generation_config.json; old checkpoints have them in config.json.

    Returns:
      the fields of `SampleSpec`, and "name=value" of each option that it lacks.
    """
    name = "generation_config.json"
    values = _read_optional(place, name) if (place / name).exists() else config
    values = {name: value for name, value in values.items() if value is not None}
    names = KEPT + (SAMPLING if values.get("do_sample") else ())
    kept = {name: values[name] for name in names if name in values}
    if is_seq2seq and isinstance(least := values.get("min_length", 0), int):
        # It counts the decoder's first input.
        kept["min_new_tokens"] = max(kept.get("min_new_tokens", 0), least - 1)
        values = values | {"min_length": 0}
    if kept.get("num_beams", 1) != 1 and (drawn := kept.keys() & set(SAMPLING)):
        # A beam search that samples.
        kept = {name: value for name, value in kept.items() if name not in drawn}
    left = [name for name in SAMPLING if name in values and name not in kept]
    ignored = [f"{name}={values[name]}" for name in left if values.get("do_sample")]
    ignored += [
        f"{name}={values[name]}"
        for name, neutral in OPTIONS.items()
        if name in values and values[name] != neutral
    ]
    neutral = {f.name: f.default for f in dataclasses.fields(SampleSpec)}
    try:
        defaults = check_defaults(kept)
    except UserError as error:
        raise DataError(f"{place / name}: {error}") from None
    return tuple((n, value) for n, value in defaults if value != neutral[n]), ignored


def write_generation(defaults: Defaults) -> dict[str, Any]:
    """The same settings, as transformers names them."""
    values = {n: list(v) if isinstance(v, tuple) else v for n, v in defaults}
    return values | ({"do_sample": True} if values.keys() & set(SAMPLING) else {})


def _read_around(
    place: Path, tokenizer: Tokenizer
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The ids that `AutoTokenizer` puts before and after a text."""
    if is_byt5(tokenizer) and not (place / "tokenizer.json").exists():
        return (), (tokenizer.vocab.require("eos"),)
    template = tokenizer.to_core()["post_processor"]
    try:
        return read_template(template)
    except UserError as error:
        raise DataError(f"{place / 'tokenizer.json'}: {error}") from error


def _read_optional(place: Path, name: str) -> dict:
    return read_json(place, name) if (place / name).exists() else {}
