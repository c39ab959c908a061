"""Special and added tokens in the files next to a vocabulary, by transformers' rules.

Sources: `PreTrainedTokenizerBase._from_pretrained` and `__init__` in transformers 5.
"""

from typing import Any

from tokenizers import AddedToken

from jaxpt.errors import DataError

ROLES = ("bos", "eos", "unk", "sep", "pad", "cls", "mask")
EXTRA_LISTS = ("extra_special_tokens", "additional_special_tokens")
# Where transformers keeps the special tokens that have a name but no role.
SPECIFIC = "model_specific_special_tokens"


def merge_specials(options: dict, special_map: dict | None) -> dict:
    """The options with special_tokens_map.json, merged as in transformers' base class.

    Returns:
      the options; `SPECIFIC` has the special tokens whose names are not roles. If they
      have `extra_special_tokens`, `additional_special_tokens` does not count.
    """
    options = dict(options)
    extra, more = EXTRA_LISTS
    if more in options and not options.get(extra):
        options[extra] = options.pop(more)
    specific = {name: value for name, value in options.items() if _is_specific(name)}
    if isinstance(options.get(extra), dict):
        specific |= options.pop(extra)
    for name, value in (special_map or {}).items():
        if name == extra and isinstance(value, list):
            before = options.get(extra) or []
            options[extra] = [*before, *(_mark(t) for t in value if t not in before)]
        else:
            options[name] = _mark(value)
    if isinstance(options.get(extra), dict):
        specific |= options.pop(extra)
    specific |= {name: value for name, value in options.items() if _is_specific(name)}
    return options | {SPECIFIC: specific}


def _is_specific(name: str) -> bool:
    """Whether an option names a special token without a role, as `image_token`."""
    role = name.removesuffix("_token")
    return role != name and role not in (*ROLES, "add_bos", "add_eos")


def _mark(value: Any) -> Any:
    """A value of special_tokens_map.json; all tokens there are special."""
    if isinstance(value, list):
        return [_mark(each) for each in value]
    if isinstance(value, dict) and "content" in value:
        return {"normalized": False} | value | {"special": True}
    return value


def make_token(value: Any) -> AddedToken | None:
    """A token of a file: a string, which is special, or its fields."""
    if isinstance(value, str):
        return AddedToken(value, special=True, normalized=False)
    if isinstance(value, dict) and isinstance(value.get("content"), str):
        flags = {
            flag: value[flag]
            for flag in ("single_word", "lstrip", "rstrip", "normalized", "special")
            if type(value.get(flag)) is bool
        }
        return AddedToken(value["content"], **flags)
    return None


def read_decoder(listed: Any, where: str) -> dict[int, AddedToken]:
    """The tokens of `added_tokens_decoder` by id."""
    tokens = {}
    try:
        for id_, token in listed.items():
            known = {k: v for k, v in token.items() if k != "__type"}
            tokens[int(id_)] = AddedToken(**known)
    except (AttributeError, TypeError, ValueError) as error:
        raise DataError(
            f"{where}: added_tokens_decoder: must map ids to tokens: {error}"
        ) from error
    return tokens


def read_added(ids: dict, options: dict, where: str) -> dict[int, AddedToken]:
    """The tokens of added_tokens.json by id; special are those that options name.

    transformers compares texts before it reads the tokens of tokenizer_config.json that
    have fields: these do not count.
    """
    names = [options.get(f"{role}_token") for role in ROLES]
    names += options.get("extra_special_tokens") or []
    read = [x for x in names if not (isinstance(x, dict) and "__type" in x)]
    special = {t.content for value in read if (t := make_token(value))}
    tokens = {}
    for name, id_ in ids.items():
        if type(id_) is not int:
            raise DataError(f"{where}: {name}={id_!r}: must be an id")
        is_special = name in special
        tokens[id_] = AddedToken(name, normalized=not is_special, special=is_special)
    return tokens
