"""ESM's tokenizer: the tokens of a vocab.txt, without words.

    "MKT<null_1> zA"   ->   M K T <null_1> <unk> A

Any token of the vocabulary is found in a text, the longest first. White space is left
out, and unknown text between two tokens is one <unk>. Source: `EsmTokenizer` of
transformers 5, which reads no other file.
"""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken, Regex, decoders, models, pre_tokenizers

from jaxpt.errors import DataError
from jaxpt.files import disk
from jaxpt.text.tokens.added_tokens import (
    EXTRA_LISTS,
    ROLES,
    SPECIFIC,
    make_token,
    read_decoder,
)
from jaxpt.text.tokens.encoding import Tokenizer
from jaxpt.text.tokens.post_processor import write_template
from jaxpt.text.tokens.special_names import name_specials, read_json
from jaxpt.text.tokens.transformers_classes import LETTERS as NAME
from jaxpt.text_form import TextForm

FILE = "vocab.txt"
_NAMES = {role: f"<{role}>" for role in ("unk", "cls", "pad", "mask", "eos")}
# Of `str.split`; that of the library lacks the last four.
_SPACE = r"[\s\x1c-\x1f]+"


def read_letters(
    folder: Path, options: dict[str, Any], specials: tuple[str, ...], num: int
) -> Tokenizer:
    """The tokenizer of a folder.

    Args:
      options: of tokenizer_config.json, with the tokens of special_tokens_map.json.
      specials, num: special tokens and the number of sentinels that it must have.
    """
    ids = _read_vocab(folder)
    _check_added(folder, options, ids)
    named = _find_roles(folder, options, ids)
    model = models.BPE(ids, [], unk_token=named["unk"], fuse_unk=True)
    core = tokenizers.Tokenizer(model)
    core.pre_tokenizer = pre_tokenizers.Split(Regex(_SPACE), "removed")
    core.decoder = decoders.Fuse()
    _add(core.add_tokens, [token for token in ids if len(token) > 1])
    _add(core.add_special_tokens, [*named.values(), *_list_extra(options)])
    around = {ids[named[role]]: named[role] for role in ("cls", "eos") if role in named}
    first, *after = around
    form = TextForm((first,), tuple(after), between=tuple(after))
    template = {"post_processor": write_template(form, around, False)}
    core = read_json(json.loads(core.to_str()) | template)
    roles = {role: ids[token] for role, token in named.items()}
    return name_specials(core, specials, num, roles)


def _add(add: Callable[[list[AddedToken]], int], tokens: list[str]) -> None:
    add([AddedToken(token, normalized=False) for token in tokens])


def _read_vocab(folder: Path) -> dict[str, int]:
    """The ids of a vocab.txt by token."""
    if not (folder / FILE).is_file():
        raise DataError(f"{folder}: lacks {FILE}, the only file that {NAME} reads")
    ids: dict[str, int] = {}
    for line in disk.read(folder / FILE).decode().splitlines():
        token = line.strip()
        if token in ids or not token:
            problem = "token twice" if token else "line that is empty"
            raise DataError(f"{folder / FILE}: a {problem}: line {len(ids) + 1}")
        ids[token] = len(ids)
    return ids


def _list_extra(options: dict[str, Any]) -> list[str]:
    """The contents of the special tokens without a role."""
    more: list[Any] = [*options.get(SPECIFIC, {}).values()]
    for name in EXTRA_LISTS:
        listed = options.get(name) or []
        more += listed.values() if isinstance(listed, dict) else listed
    return [token.content for token in map(make_token, more) if token is not None]


def _find_roles(
    folder: Path, options: dict[str, Any], ids: dict[str, int]
) -> dict[str, str]:
    """The special tokens by role."""
    given = {role: options.get(f"{role}_token", _NAMES.get(role)) for role in ROLES}
    tokens = {role: make_token(value) for role, value in given.items()}
    named = {role: token.content for role, token in tokens.items() if token is not None}
    for role in ("unk", "cls"):
        if role not in named:
            raise DataError(f"{folder}: {role}_token=None: must be a token in {NAME}")
    for name in (*named.values(), *_list_extra(options)):
        if name not in ids:
            raise DataError(f"{folder}: special token {name!r}: must be in {FILE}")
    return named


def _check_added(folder: Path, options: dict[str, Any], ids: dict[str, int]) -> None:
    """Refuses what would change ids: other added tokens, and whole words only."""
    listed = options.get("added_tokens_decoder") or {}
    added = read_decoder(listed, str(folder / "tokenizer_config.json"))
    for id_, token in added.items():
        if ids.get(token.content) != id_:
            raise DataError(
                f"{folder}: the added token {token.content!r} (id {id_}): must be in "
                f"{FILE} with this id"
            )
    if (folder / "added_tokens.json").is_file() and not listed:
        raise DataError(f"{folder}: added_tokens.json: is not supported with {NAME}")
    values = [make_token(value) for value in options.values()]
    for token in (*added.values(), *filter(None, values)):
        if token.single_word:
            raise DataError(
                f"{folder}: special token {token.content!r}: single_word=true: is not "
                f"supported with {NAME}"
            )
