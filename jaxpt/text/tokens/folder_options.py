"""The files next to a tokenizer's vocabulary: options, added and special tokens.

    tokenizer_config.json      options, special tokens by role, added tokens
    special_tokens_map.json    special tokens, and
    added_tokens.json          added tokens, unless tokenizer_config.json lists them
    config.json                the tokenizer's class by model_type
    (generation_)config.json   ids of special tokens that no other file names

Each option gives the ids of transformers, changes none, or is refused by name. Special
tokens are never recognized by a name in the vocabulary.
"""

import json
import logging
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import tokenizers
from tokenizers import AddedToken

from jaxpt.errors import DataError
from jaxpt.files import disk, schema
from jaxpt.text.tokens import special_names
from jaxpt.text.tokens.added_tokens import (
    EXTRA_LISTS,
    ROLES,
    SPECIFIC,
    make_token,
    merge_specials,
    read_added,
    read_decoder,
)
from jaxpt.text.tokens.core import check_ids
from jaxpt.text.tokens.encoding import Tokenizer
from jaxpt.text.tokens.letters import read_letters
from jaxpt.text.tokens.post_processor import write_template
from jaxpt.text.tokens.special_names import find_roles, find_unknown
from jaxpt.text.tokens.transformers_classes import (
    CLASSES,
    LETTERS,
    PLAIN_NAMES,
    REMOTE,
    TokenizerClass,
    apply_class,
    choose_class,
)
from jaxpt.text_form import TextForm

_log = logging.getLogger(__name__)

CONFIG, MAP = "tokenizer_config.json", "special_tokens_map.json"
ADDED = "added_tokens.json"
NAMES = (CONFIG, MAP, ADDED)
# Options of tokenizer_config.json that change no ids of a text: what it is decoded to,
# its length, padding, conversation, the names of files, and what transformers ignores.
INERT = frozenset(
    """
    _commit_hash add_bos_token add_eos_token additional_special_tokens
    added_tokens_decoder backend chat_control_tokens chat_template clean_text
    clean_up_tokenization_spaces cls_token_type_id device_map do_basic_tokenize errors
    extra_ids extra_special_tokens from_slow full_tokenizer_file is_fast is_local
    keep_accents language local_files_only max_len max_length max_seq_length
    merges_file model_input_names model_max_length model_type name_or_path never_split
    pad_to_multiple_of pad_token_type_id padding padding_side processor_class
    remove_space src_lang tgt_lang response_schema response_template return_tensors
    return_token_type_ids spaces_between_special_tokens special_tokens_map_file stride
    tokenizer_class tokenizer_file tokenizer_type transformers_version trim_offsets
    truncation truncation_side truncation_strategy use_default_system_prompt use_fast
    fast fast_tokenizer bos_token_id eos_token_id pad_token_id unk_token_id cls_token_id
    sep_token_id mask_token_id verbose vocab_file vocab_size wordpieces_prefix
    add_prefix_space do_lower_case legacy split_by_punct strip_accents
    tokenize_chinese_chars
    """.split()
)
# Options that would change ids, with the values at which they change none.
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "split_special_tokens": (False, None),
    "fix_mistral_regex": (False, None),
    "trust_remote_code": (False, None),  # tokenizer.json as it is, for any class
    "sp_model_kwargs": ({}, None),
    "init_inputs": ([], None),
    SPECIFIC: ({}, None),
    "offset": (103, None),  # of Pegasus
    "mask_token_sent": ("<mask_1>", None),
}


@dataclass(frozen=True)
class FolderOptions:
    """The content of the files next to a vocabulary.

    Attributes:
      folder: where they are.
      options: of tokenizer_config.json, with the tokens of special_tokens_map.json.
      added: added tokens by their ids, which they must get.
      has_all: whether these are all of them, and those of tokenizer.json do not count.
      name: a key of `CLASSES`, `LETTERS` or None.
      is_named: whether a file names the class, not only the model's type.
      ids: ids of special tokens by role, of generation_config.json and config.json.
      size: the number of ids of the folder's model, if it has one.
      is_given: whether a file names special tokens or options.
    """

    folder: Path
    options: dict[str, Any]
    added: dict[int, AddedToken]
    has_all: bool
    name: str | None
    is_named: bool
    ids: dict[str, int]
    size: int | None
    is_given: bool

    def name_specials(
        self,
        core: tokenizers.Tokenizer,
        specials: tuple[str, ...] = (),
        num_sentinels: int = 0,
        roles: dict[str, int] | None = None,
    ) -> Tokenizer:
        """As `special_names.name_specials`, for the tokenizer of the folder.

        Args:
          roles: are not used if the files name special tokens.
        """
        check_ids(core)
        core, known = self.apply(core)
        check_ids(core)
        usual = find_roles(core) if roles is None else roles
        roles = known if self.is_given else usual | known
        self.frame(core, roles)
        has_pieces = self.name == "T5Tokenizer"
        return special_names.name_specials(
            core, specials, num_sentinels, roles, has_pieces=has_pieces
        )

    def apply(
        self, core: tokenizers.Tokenizer
    ) -> tuple[tokenizers.Tokenizer, dict[str, int]]:
        """The tokenizer that transformers makes of the folder, and its special ids."""
        if self.name is None:
            return core, self._find_roles(core)
        data = json.loads(core.to_str())
        where = str(self.folder / CONFIG)
        own = {token.pop("id"): AddedToken(**token) for token in data["added_tokens"]}
        if is_class := self._has_class(data["model"]):
            data = apply_class(self.name, data, self.options, where)
            self._check_unknown(data["model"])
            data["added_tokens"] = []
            own = {} if self.has_all else own
            core = _parse(data)
        named, listed = self._list_specials(is_class)
        added = own | self.added if self.has_all else self.added | own
        self._add(core, added, {token.content for token in named})
        self._add_named(core, [*named, *listed])
        if is_class and CLASSES[self.name].drops_flags:
            names = {token.content for token in (*named, *listed)}
            core.add_special_tokens(sorted(names & core.get_vocab().keys()))
        return core, self._find_roles(core)

    def _has_class(self, model: dict) -> bool:
        """Whether the class is one that rebuilds a model of this type."""
        kind = CLASSES[self.name or ""].model
        return kind == model.get("type") or bool(kind and self.is_named)

    def _check_unknown(self, model: dict) -> None:
        """Refuses an `unk_token` that is not what the class makes of unknown text."""
        named = self.options.get("unk_token", CLASSES[self.name or ""].names.get("unk"))
        is_unigram = model["type"] == "Unigram"
        unk = model["vocab"][model["unk_id"]][0] if is_unigram else model["unk_token"]
        token = make_token(named)
        if unk is not None and (token is None or token.content != unk):
            raise DataError(
                f"{self.folder / CONFIG}: unk_token={named!r}: must be {unk!r}, which "
                f"{self.name} gives for unknown text"
            )
        if not is_unigram and unk is not None and unk not in model["vocab"]:
            raise DataError(
                f"{self.folder / CONFIG}: unk_token={named!r}: is not in the vocabulary"
            )

    def _add(
        self, core: tokenizers.Tokenizer, tokens: dict[int, AddedToken], named: set[str]
    ) -> None:
        """Adds tokens that have ids; those that the files name become special."""
        for id_, token in sorted(tokens.items()):
            token.special = token.special or token.content in named
            core.add_tokens([token])
            if (given := core.token_to_id(token.content)) != id_:
                raise DataError(
                    f"the added token {token.content!r} has the id {id_} in the "
                    f"folder's files, but transformers gives it {given}"
                )

    def _list_specials(
        self, is_class: bool
    ) -> tuple[list[AddedToken], list[AddedToken]]:
        """The tokens that the files or the class name, and those that they list."""
        each = CLASSES[self.name or ""]
        defaults = each.names if is_class else {}
        values = [
            _flag(self.options.get(f"{role}_token", defaults.get(role)), each, role)
            for role in ROLES
        ]
        values += each.more if is_class else ()
        values += self.options.get(SPECIFIC, {}).values()
        more = self.options.get("additional_special_tokens")
        if "extra_special_tokens" in self.options:
            more = self.options["extra_special_tokens"]
        elif is_class:
            more = each.extra(more, self.options)
        named, listed = (
            [
                token
                for i, value in enumerate(part)
                if value not in part[:i] and (token := make_token(value)) is not None
            ]
            for part in (values, list(more or []))
        )
        for token in named:
            token.special = True
        return named, listed

    def _add_named(self, core: tokenizers.Tokenizer, tokens: list[AddedToken]) -> None:
        """Adds the tokens that are not added yet, and for which the model has an id."""
        defaults = CLASSES[self.name or ""].names.values()
        known = {token.content for token in core.get_added_tokens_decoder().values()}
        vocab = core.get_vocab(with_added_tokens=True)
        for token in tokens:
            if token.content in known:
                continue
            if token.content not in vocab and len(vocab) == self.size:
                if token.content not in defaults:
                    _log.warning(
                        f"{self.folder}: the special token {token.content!r} is not in "
                        f"the vocabulary, and the model has no id for it (vocab_size="
                        f"{self.size}): left out"
                    )
                continue
            core.add_tokens([token])  # the flags of a later one of the name count
            vocab = core.get_vocab(with_added_tokens=True)

    def _find_roles(self, core: tokenizers.Tokenizer) -> dict[str, int]:
        """The ids by role: those of the files, the class, and the model's config."""
        defaults = CLASSES[self.name].names if self.name else {}
        added = core.get_added_tokens_decoder().items()
        special = {id_ for id_, token in added if token.special}
        roles = {}
        for role in ROLES:
            value = self.options.get(f"{role}_token", defaults.get(role))
            token = make_token(value)
            id_ = None if token is None else core.token_to_id(token.content)
            if id_ is None and (id_ := self.ids.get(role)) is not None:
                # Ids in copied configs are often those of another vocabulary.
                id_ = id_ if id_ in special else None
            if id_ is not None:
                roles[role] = id_
        model = json.loads(core.to_str())["model"]
        if (unk := find_unknown(core, model)) is not None:
            roles["unk"] = unk  # what the model makes of unknown text
        elif roles.get("unk") == roles.get("eos"):
            roles.pop("unk", None)  # GPT-2: no text is unknown
        return roles

    def frame(self, core: tokenizers.Tokenizer, roles: dict[str, int]) -> None:
        """Sets the special tokens that the class puts around a text."""
        if self.name is None:
            return
        each = CLASSES[self.name]
        around: tuple[str | None, str | None] | None = each.around
        data = json.loads(core.to_str())
        if around is None:
            has_file = (self.folder / "tokenizer.json").exists()
            if has_file or data["post_processor"] is not None:
                return
            flags = {role: self.options.get(f"add_{role}_token") for role in roles}
            bos, eos = (role if flags.get(role) else None for role in ("bos", "eos"))
            around = (bos, eos)
        for role in filter(None, around if self._has_class(data["model"]) else ()):
            value = self.options.get(f"{role}_token", each.names.get(role))
            if value is None or role not in roles:
                raise DataError(
                    f"{self.folder / CONFIG}: {role}_token={value!r}: must be a token "
                    f"that has an id: {self.name} puts it around a text"
                )
        before, after = (
            tuple(id_ for role, id_ in roles.items() if role == name) for name in around
        )
        between = after * 2 if each.is_double else after or before
        if each.around is None:
            between = after + before
        if each.is_joined:
            between = ()
        if code := self._find_language(core):
            before = code + before if each.is_prefixed else before
            after = after if each.is_prefixed else after + code
        names = {id_: core.id_to_token(id_) or "" for id_ in (*before, *after)}
        form = TextForm(before, after, between=between, second_type=int(each.has_types))
        data["post_processor"] = write_template(form, names, each.has_types)
        core.post_processor = _parse(data | {"added_tokens": []}).post_processor

    def _find_language(self, core: tokenizers.Tokenizer) -> tuple[int, ...]:
        """The id of the language code that the class puts around a text, if any."""
        language = CLASSES[self.name or ""].language
        if not language:
            return ()
        given = self.options.get("src_lang")
        name = given or language
        id_ = core.token_to_id(name) if isinstance(name, str) else None
        if id_ is None and not (given or self.is_named):
            return ()  # a vocabulary of another class
        if id_ is None:
            raise DataError(
                f"{self.folder / CONFIG}: src_lang={name!r}: must be one of the "
                "vocabulary's language codes"
            )
        return (id_,)


def read_named(
    core: tokenizers.Tokenizer, folder: Path, specials: tuple[str, ...], num: int
) -> Tokenizer:
    """The tokenizer of a folder's tokenizer.json, with the files next to it.

    Args:
      specials, num: special tokens and the number of sentinels that it must have.
    """
    options = read_options(folder)
    if options is not None and options.name == LETTERS:
        return read_letters(folder, options.options, specials, num)
    name = special_names.name_specials if options is None else options.name_specials
    return name(core, specials, num)


def read_options(folder: Path) -> FolderOptions | None:
    """Reads the files next to a vocabulary; None if the folder has none of them."""
    files = {name: _read(folder, name) for name in (*NAMES, "config.json")}
    general = files["config.json"] or {}
    kind = general.get("model_type")
    if not any(files[name] is not None for name in NAMES) and kind is None:
        return None
    options = files[CONFIG] or {}
    _check(options, str(folder / CONFIG))
    listed = options.get("added_tokens_decoder")
    special_map = None if listed is not None else files[MAP]
    _check(special_map or {}, str(folder / MAP))
    options = merge_specials(options, special_map)
    added = {}
    if listed is not None:
        added = read_decoder(listed, str(folder / CONFIG))
    elif files[ADDED] is not None:
        added = read_added(files[ADDED] or {}, options, str(folder / ADDED))
    where = str(folder / CONFIG)
    named = options.get("tokenizer_class") or general.get("tokenizer_class")
    model_name = general.get("model_name")
    name = choose_class(named, kind, _has_bytes(folder), where, model_name)
    ids = {}
    for values in (general, _read(folder, "generation_config.json") or {}):
        for role in ROLES:
            value = values.get(f"{role}_token_id")
            first = value[0] if isinstance(value, list) and value else value
            if type(first) is int and first >= 0:
                ids[role] = first
    size = general.get("vocab_size")
    size = size if type(size) is int else None
    is_given = any(files[each] is not None for each in NAMES)
    is_named = named is not None
    has_all = listed is not None
    return FolderOptions(
        folder, options, added, has_all, name, is_named, ids, size, is_given
    )


def _check(options: dict, where: str) -> None:
    """Refuses options that are unknown or that change ids."""
    is_plain = options.get("tokenizer_class") in PLAIN_NAMES
    for name, value in options.items():
        if name == "trust_remote_code" and is_plain:
            continue  # the file is read as it is, anyway (LLaDA)
        if name in NEUTRAL:
            if value not in NEUTRAL[name]:
                allowed = " or ".join(map(json.dumps, NEUTRAL[name]))
                raise DataError(f"{where}: {name}={value!r}: must be {allowed}")
        elif name == "auto_map":
            if not isinstance(value, dict) or not _is_known(value.get("AutoTokenizer")):
                raise DataError(
                    f"{where}: auto_map={value!r}: is not supported: it names code of "
                    "the repository, which jaxpt does not run"
                )
        elif name in EXTRA_LISTS:
            tokens = value.values() if isinstance(value, dict) else value or []
            if not isinstance(value, list | dict | None) or not all(
                map(make_token, tokens)
            ):
                raise DataError(f"{where}: {name}={value!r}: must be a list of tokens")
            # Which classes of transformers read in different ways.
            extra = options.get("extra_special_tokens")
            if name != "extra_special_tokens" and isinstance(value, dict) and extra:
                raise DataError(
                    f"{where}: {name}={value!r}: must be a list next to "
                    "extra_special_tokens"
                )
        elif name.endswith("_token") and name not in INERT:
            if value is not None and make_token(value) is None:
                raise DataError(f"{where}: {name}={value!r}: must be a token or null")
        elif name not in INERT:
            raise DataError(
                f"{where}: {name}={value!r}: is not known, so it might change ids; "
                "remove it if it does not"
            )


def _is_known(places: Any) -> bool:
    """Whether classes of a repository's code are all in `REMOTE`, or none.

    >>> _is_known(["tokenization_dream.DreamTokenizer", None]), _is_known("a.B")
    (True, False)
    """
    places = places if isinstance(places, list) else [places]
    names = [str(place).rpartition(".")[2] for place in places if place is not None]
    return all(name in REMOTE for name in names)


def _flag(value: Any, kind: TokenizerClass, role: str) -> Any:
    """A special token with the flags that a class gives to a plain string."""
    flags = kind.flags.get(role)
    return {"content": value, **flags} if isinstance(value, str) and flags else value


def _has_bytes(folder: Path) -> bool:
    """Whether a folder's tokenizer.json is byte-level, as transformers tests it."""
    path = folder / "tokenizer.json"
    return path.is_file() and b'"ByteLevel"' in disk.read(path)


def _parse(data: dict) -> tokenizers.Tokenizer:
    try:
        return tokenizers.Tokenizer.from_str(json.dumps(data))
    except Exception as error:  # the library has no finer exceptions
        raise DataError(f"not a Hugging Face tokenizer.json: {error}") from error


def _read(folder: Path, name: str) -> dict | None:
    """The content of a JSON file, or None without the file."""
    path = folder / name
    if not path.is_file():
        return None
    try:
        return schema.parse(disk.read(path), {str: object})
    except ValueError as error:
        raise DataError(f"{path}: {error}") from error
