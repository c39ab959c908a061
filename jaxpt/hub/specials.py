"""Reads the framing of a checkpoint of transformers: its special ids around texts.

The ids around a text are those of `AutoTokenizer`: those of tokenizer.json's template,
else of the tokenizer class of the family, else, for a vocabulary in other files, those
that tokenizer_config.json asks for (`add_bos_token`). The ids that begin and end text
are those of generation_config.json, else of config.json, else of the family's config
class.
"""

from pathlib import Path

from jaxpt.errors import UserError
from jaxpt.hub.files import read_json
from jaxpt.text.tokens.framing import Framing, from_json, read_template
from jaxpt.text.tokens.subword import SubwordTokenizer
from jaxpt.text.tokens.tokenizer import Tokenizer
from jaxpt.training.run_framing import NAME

# Defaults of transformers' config classes, by model_type.
DEFAULTS = {
    "gpt2": {"bos_token_id": 50256, "eos_token_id": 50256},
    "llama": {"bos_token_id": 1, "eos_token_id": 2},
    "mistral": {"bos_token_id": 1, "eos_token_id": 2},
    "t5": {"eos_token_id": 1, "decoder_start_token_id": 0},
    "bart": {
        "bos_token_id": 0,
        "eos_token_id": 2,
        "decoder_start_token_id": 2,
        "forced_eos_token_id": 2,
    },
}
# The roles of the ids that a family's tokenizer class puts before and after a text.
CLASSES = {
    "bert": ("cls", "sep"),
    "electra": ("cls", "sep"),
    "distilbert": ("cls", "sep"),
    "roberta": ("cls", "sep"),
    "bart": ("cls", "sep"),
    "t5": (None, "eos"),
}
# Tokenizer classes that add no ids, without the suffix "Fast".
PLAIN = ("PreTrainedTokenizer", "TokenizersBackend")


def read_framing(
    place: Path, kind: str, config: dict, tokenizer: Tokenizer, num_ids: int
) -> Framing:
    """The framing of a model's texts: ids around them and at their generated ends.

    Args:
      place: a folder with the tokenizer's files, and generation_config.json if any.
      kind: `model_type`.
      config: the content of config.json.
      num_ids: the number of ids of the model.

    Raises:
      UserError: a value is not an id, or not an id of the model.
    """
    if (place / NAME).exists():
        return from_json(read_json(place, NAME))
    before, after = _read_around(place, kind, tokenizer)
    told = DEFAULTS.get(kind, {}) | config
    later = _read_if_there(place, "generation_config.json")
    told |= {name: value for name, value in later.items() if value is not None}

    def read(name: str) -> tuple[int, ...]:
        value = told.get(f"{name}_token_id")
        ids = value if isinstance(value, list) else [value] * (value is not None)
        if not all(type(id_) is int and id_ >= 0 for id_ in ids):
            raise UserError(
                f"{place}: {name}_token_id={value!r}: must be an id, a list of ids or "
                "null"
            )
        return tuple(ids)

    def read_one(name: str) -> int | None:
        ids = read(name)
        if len(ids) > 1 or any(id_ >= num_ids for id_ in ids):
            raise UserError(
                f"{place}: {name}_token_id={told[f'{name}_token_id']}: must be one id "
                f"below vocab_size={num_ids}"
            )
        return ids[0] if ids else None

    # An end beyond the model's ids never occurs: small models keep GPT-2's 50256.
    ends = tuple(id_ for id_ in dict.fromkeys(read("eos")) if id_ < num_ids)
    bos = [id_ for id_ in read("bos") if id_ < num_ids]
    if any(id_ >= num_ids for id_ in before + after):
        raise UserError(
            f"{place}: its tokenizer puts {list(before)} and {list(after)} around a "
            f"text: must be ids below vocab_size={num_ids}"
        )
    return Framing(
        before,
        after,
        bos=bos[0] if bos else None,
        start=read_one("decoder_start"),
        first=read_one("forced_bos"),
        last=read_one("forced_eos"),
        ends=ends,
    )


def _read_around(
    place: Path, kind: str, tokenizer: Tokenizer
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The ids that `AutoTokenizer` puts before and after a text."""
    if not isinstance(tokenizer, SubwordTokenizer):
        return (), ()
    settings, vocab = _read_if_there(place, "tokenizer_config.json"), tokenizer.vocab

    def find(role: str | None) -> tuple[int, ...]:
        told = settings.get(f"{role}_token")
        text = told.get("content") if isinstance(told, dict) else told
        id_ = tokenizer.find_id(text) if isinstance(text, str) else None
        id_ = getattr(vocab, role or "", None) if id_ is None else id_
        return () if id_ is None else (id_,)

    template = tokenizer.to_json()["core"]["post_processor"]
    if template is not None:
        try:
            return read_template(template)
        except UserError as error:
            raise UserError(f"{place / 'tokenizer.json'}: {error}") from error
    roles: tuple[str | None, ...] = CLASSES.get(kind, (None, None))
    if settings.get("tokenizer_class", "").removesuffix("Fast") in PLAIN:
        roles = None, None
    if roles == (None, None) and not (place / "tokenizer.json").exists():
        asked = {role: settings.get(f"add_{role}_token") for role in ("bos", "eos")}
        roles = tuple(role if asked[role] else None for role in asked)
    return find(roles[0]), find(roles[1])


def _read_if_there(place: Path, name: str) -> dict:
    return read_json(place, name) if (place / name).exists() else {}
