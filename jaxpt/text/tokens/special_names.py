"""Finds the special tokens of a tokenizer of the `tokenizers` library.

tokenizer.json -> read_json -> name_specials -> a `Tokenizer` of its kind
"""

import itertools
import json
from collections.abc import Iterable

import tokenizers
from tokenizers import AddedToken

from jaxpt.by_name import load_place
from jaxpt.errors import DataError
from jaxpt.text.tokens.core import check_ids, is_byte_level
from jaxpt.text.tokens.encoding import Tokenizer
from jaxpt.text.tokens.symbols import read_symbols
from jaxpt.text.tokens.vocab import MODES, SPECIALS

# Usual names of special tokens, for a file that lists special tokens without roles.
USUAL_NAMES = {
    "pad": ("[PAD]", "<pad>", "<|pad|>"),
    "unk": ("[UNK]", "<unk>"),
    "cls": ("[CLS]", "<cls>", "<s>"),
    "sep": ("[SEP]", "<sep>", "</s>"),
    "mask": ("[MASK]", "<mask>", "<|mask|>"),
    "bos": ("[BOS]", "<bos>", "<s>", "<|begin_of_text|>", "<|endoftext|>"),
    "eos": ("[EOS]", "<eos>", "</s>", "<|end_of_text|>", "<|endoftext|>"),
    "nlu": ("[NLU]",),
    "nlg": ("[NLG]",),
    "s2s": ("[S2S]",),
}


def read_json(data: dict) -> tokenizers.Tokenizer:
    """The library's tokenizer of a parsed `tokenizer.json`."""
    try:
        model = data["model"]
        if model["type"] == "Unigram":
            data = data | {"model": model | {"vocab": round_scores(model["vocab"])}}
        return tokenizers.Tokenizer.from_str(json.dumps(data))
    except Exception as error:  # the library has no finer exceptions
        raise DataError(f"not a Hugging Face tokenizer.json: {error}") from error


def name_specials(
    core: tokenizers.Tokenizer,
    specials: tuple[str, ...] = (),
    num_sentinels: int = 0,
    roles: dict[str, int] | None = None,
    sentinels: tuple[int, ...] | None = None,
    is_own: bool = False,
    has_pieces: bool = False,
) -> Tokenizer:
    """Finds the special ids of a tokenizer, and adds missing ones.

    If tokens include the space before a word, a mask or sentinel that becomes special
    here gets `lstrip`, as the token that it replaces includes that space. Tokens that
    are special already keep their flags.

    Args:
      roles: ids by role, if they are known; likewise `sentinels`.
      is_own: whether jaxpt made the tokenizer; then all of these get the flag.
      has_pieces: as of `find_sentinels`.
    """
    check_ids(core)
    roles = find_roles(core) if roles is None else dict(roles)
    if sentinels is None:
        sentinels = find_sentinels(core, has_pieces)
        roles = _find_modes(core) | roles
    core, marked = _mark_special(core, [*roles.values(), *sentinels])
    lacking_roles = [role for role in specials if role not in roles]
    missing = range(num_sentinels - 1, len(sentinels) - 1, -1)
    if symbols := read_symbols(json.loads(core.to_str()), roles, sentinels):
        if lacking_roles or missing:
            raise DataError(
                f"lacks {', '.join(map(repr, lacking_roles)) or 'sentinels'}: a "
                f"{symbols.kind} tokenizer must be made with all its specials"
            )
        return symbols
    for role in lacking_roles:
        roles[role] = append(core, SPECIALS[role])
    added = [append(core, f"<extra_id_{i}>") for i in missing]
    sentinels = (*sentinels, *reversed(added))
    strippers = {*sentinels, *(roles[role] for role in ("mask",) if role in roles)}
    if not is_own:
        strippers &= {*marked, *added, *(roles[role] for role in lacking_roles)}
    if strippers and is_byte_level(json.loads(core.to_str())):
        core.add_special_tokens(
            [
                AddedToken(core.id_to_token(i), normalized=False, lstrip=True)
                for i in sorted(strippers)
            ]
        )
    make = load_place("jaxpt.text.tokens.subword:SubwordTokenizer")
    subword: Tokenizer = make(core, roles, sentinels)
    return subword


def find_roles(core: tokenizers.Tokenizer) -> dict[str, int]:
    """The roles of a tokenizer.json's special tokens, by their usual names.

    For a file alone, which lists special tokens but not what they are for. Ordinary
    entries of the vocabulary have no role, whatever their names.
    """
    added = core.get_added_tokens_decoder()
    ids = {token.content: id_ for id_, token in added.items() if token.special}
    unk = find_unknown(core, json.loads(core.to_str())["model"])
    roles: dict[str, int] = {} if unk is None else {"unk": unk}
    for role, names in USUAL_NAMES.items():
        if role in ("cls", "sep") and "<s>" not in ids:
            names = names[:2]  # T5's </s> only ends a text; RoBERTa's also separates
        if present := [name for name in names if name in ids]:
            roles.setdefault(role, ids[present[0]])
    return roles


def _find_modes(core: tokenizers.Tokenizer) -> dict[str, int]:
    """The ids of UL2's mode tokens, which an export lists as special tokens."""
    added = core.get_added_tokens_decoder()
    ids = {token.content: id_ for id_, token in added.items() if token.special}
    return {mode: ids[SPECIALS[mode]] for mode in MODES if SPECIALS[mode] in ids}


def find_unknown(core: tokenizers.Tokenizer, model: dict) -> int | None:
    """The id that a tokenizer's model gives to unknown text, or None."""
    if model.get("type") == "Unigram":
        return model.get("unk_id")
    name = model.get("unk_token")
    return None if name is None else core.token_to_id(name)


def find_sentinels(
    core: tokenizers.Tokenizer, has_pieces: bool = False
) -> tuple[int, ...]:
    """The ids of `<extra_id_0>`, `<extra_id_1>`, ... before the first missing one.

    They are added tokens. In mT5's vocabulary they are pieces that begin with "▁".

    Args:
      has_pieces: whether pieces of the vocabulary count, as for T5.
    """
    added = core.get_added_tokens_decoder().items()
    ids = {token.content: id_ for id_, token in added}
    ids = core.get_vocab(with_added_tokens=True) if has_pieces else ids
    name = "▁<extra_id_{}>" if "▁<extra_id_0>" in ids else "<extra_id_{}>"
    names = itertools.takewhile(ids.__contains__, map(name.format, itertools.count()))
    return tuple(ids[name] for name in names)


def _mark_special(
    core: tokenizers.Tokenizer, ids: list[int]
) -> tuple[tokenizers.Tokenizer, list[int]]:
    """Makes tokens special, with the same ids; also returns those that were not."""
    added = core.get_added_tokens_decoder()
    plain = [i for i in ids if i not in added or not added[i].special]
    if added.keys() & set(plain):  # the library keeps the flags of an added token
        data = json.loads(core.to_str())
        for token in data["added_tokens"]:
            token["special"] = token["special"] or token["id"] in plain
        core = read_json(data)
    core.add_special_tokens(
        [
            AddedToken(core.id_to_token(i), special=True, normalized=False)
            for i in plain
            if i not in added
        ]
    )
    return core, plain


def append(core: tokenizers.Tokenizer, name: str) -> int:
    """Adds a special token, at the end if it is missing; returns its id."""
    core.add_special_tokens([AddedToken(name, special=True, normalized=False)])
    return core.get_vocab(with_added_tokens=True)[name]


def round_scores(pieces: Iterable[tuple[str, float]]) -> list[tuple[str, float]]:
    """Scores rounded to 12 decimals, which the library writes and reads unchanged."""
    return [(piece, round(float(score), 12)) for piece, score in pieces]
