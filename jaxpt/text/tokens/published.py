"""Reads published tokenizers: GPT-2's, BERT's and T5's files and `tokenizer.json`."""

import itertools
import json
import os
import re
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import tokenizers
from google.protobuf.message import DecodeError
from sentencepiece import sentencepiece_model_pb2
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers

from jaxpt.errors import DataError, UserError
from jaxpt.files import disk, schema
from jaxpt.text.tokens.encoding import Tokenizer
from jaxpt.text.tokens.folder_options import FolderOptions, find_unknown, read_options
from jaxpt.text.tokens.subword import SubwordTokenizer, check_ids, is_byte_level
from jaxpt.text.tokens.symbols import read_symbols
from jaxpt.text.tokens.transformers_classes import CLASSES
from jaxpt.text.tokens.vocab import MODES, SPECIALS

# The files of a folder; the first complete entry is read.
FOLDERS = (
    ("tokenizer.json",),
    ("encoder.json", "vocab.bpe"),
    ("vocab.json", "merges.txt"),
    ("vocab.txt",),
    ("spiece.model",),
    ("sentencepiece.bpe.model",),
)
_PAIRS = {names[0]: names[1] for names in FOLDERS if len(names) == 2}
# The ids of fairseq's models by `model_type`: tokens before the SentencePiece model's
# pieces, and the number of those that are left out; <mask> is the last id.
FAIRSEQ = {
    "xlm-roberta": (("<s>", "<pad>", "</s>", "<unk>"), 3),
    "camembert": (("<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<unk>NOTUSED"), 1),
}

# Usual names of special tokens, for a file that lists special tokens without roles.
_NAMES = {
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


def read_published(
    path: str | os.PathLike, specials: tuple[str, ...] = (), num_sentinels: int = 0
) -> Tokenizer:
    """Reads a published vocabulary; missing specials are added at its end.

    Args:
      path: a `tokenizer.json`, a SentencePiece `.model` (Unigram), BERT's `vocab.txt`,
        or a folder with one of `FOLDERS`. A SentencePiece model in a folder has the ids
        of the folder's model (config.json): T5's sentinels, XLM-R's shift. The other
        files of the folder are read, too (`folder_options`).
      specials: keys of `vocab.SPECIALS` that the vocabulary must have.
      num_sentinels: the number of `<extra_id_*>` that it must have; added ones descend
        from the last id, as T5's do.
    """
    path = Path(path)
    try:
        file, options = _find_file(path)
        core = _read_core(file)
        has_list = file.suffix == ".json" and file.name not in _PAIRS
        roles = None if has_list else _find_format_roles(core, file)
        return name_specials(core, specials, num_sentinels, roles, options=options)
    except OSError as error:
        raise DataError(f"tokenizer file {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"tokenizer file {path}: not UTF-8: {error}") from error
    except UserError as error:
        raise DataError(f"tokenizer file {path}: {error}") from error


def read_json(data: dict) -> tokenizers.Tokenizer:
    """The library's tokenizer of a parsed `tokenizer.json`."""
    try:
        model = data["model"]
        if model["type"] == "Unigram":
            data = data | {"model": model | {"vocab": _round_scores(model["vocab"])}}
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
    options: FolderOptions | None = None,
) -> Tokenizer:
    """Finds the special ids of a tokenizer, and adds missing ones.

    If tokens include the space before a word, a mask or sentinel that becomes special
    here gets `lstrip`, as the token that it replaces includes that space. Tokens that
    are special already keep their flags.

    Args:
      roles: ids by role, if they are known; likewise `sentinels`.
      is_own: whether jaxpt made the tokenizer; then all of these get the flag.
      options: what the files next to it state. If they name special tokens, `roles`
        are not used.
    """
    check_ids(core)
    if options is not None:
        core, known = options.apply(core)
        check_ids(core)
        usual = find_roles(core) if roles is None else roles
        roles = known if options.is_given else usual | known
        options.frame(core, roles)
    roles = find_roles(core) if roles is None else dict(roles)
    if sentinels is None:
        has_pieces = options is not None and options.name == "T5Tokenizer"
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
        roles[role] = _append(core, SPECIALS[role])
    added = [_append(core, f"<extra_id_{i}>") for i in missing]
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
    return SubwordTokenizer(core, roles, sentinels)


def find_roles(core: tokenizers.Tokenizer) -> dict[str, int]:
    """The roles of a tokenizer.json's special tokens, by their usual names.

    For a file alone, which lists special tokens but not what they are for. Ordinary
    entries of the vocabulary have no role, whatever their names.
    """
    added = core.get_added_tokens_decoder()
    ids = {token.content: id_ for id_, token in added.items() if token.special}
    unk = find_unknown(core, json.loads(core.to_str())["model"])
    roles: dict[str, int] = {} if unk is None else {"unk": unk}
    for role, names in _NAMES.items():
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


def _find_format_roles(core: tokenizers.Tokenizer, file: Path) -> dict[str, int]:
    """The roles that the format of a vocabulary without other files determines."""
    if file.suffix == ".model":
        names = _list_trained(file)
    else:
        kind = "GPT2Tokenizer" if file.suffix == ".json" else "BertTokenizer"
        names = dict(CLASSES[kind].names)
        if kind == "GPT2Tokenizer":
            del names["unk"]  # no text is unknown
    ids = {role: core.token_to_id(name) for role, name in names.items()}
    return {role: id_ for role, id_ in ids.items() if id_ is not None}


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


def _append(core: tokenizers.Tokenizer, name: str) -> int:
    """Adds a special token, at the end if it is missing; returns its id."""
    core.add_special_tokens([AddedToken(name, special=True, normalized=False)])
    return core.get_vocab(with_added_tokens=True)[name]


def _find_file(path: Path) -> tuple[Path, FolderOptions | None]:
    """A vocabulary's file (of two, the first), and what its folder states of it."""
    if not path.is_dir():
        is_standard = any(path.name in names for names in FOLDERS) and path.is_file()
        return path, read_options(path.parent) if is_standard else None
    for names in FOLDERS:
        if all((path / name).is_file() for name in names):
            return path / names[0], read_options(path)
    raise DataError(
        f"the folder must hold {', or '.join(' and '.join(f) for f in FOLDERS)}"
    )


def _read_core(file: Path) -> tokenizers.Tokenizer:
    if file.name in _PAIRS:
        return _read_bpe(file, file.parent / _PAIRS[file.name])
    if any(file.name in names for names in FOLDERS) and file.suffix == ".model":
        return _read_sentencepiece_folder(file)
    if file.suffix == ".model":
        return _read_sentencepiece(file)
    if file.suffix == ".json":
        return read_json(_parse(file))
    return _read_wordpiece(file)


def _read_bpe(vocab_path: Path, merges_path: Path) -> tokenizers.Tokenizer:
    _parse(vocab_path)
    try:
        return make_bpe(models.BPE.from_file(str(vocab_path), str(merges_path)))
    except Exception as error:  # the library has no finer exceptions
        raise DataError(f"not a byte-level BPE: {error}") from error


def make_bpe(model: models.BPE) -> tokenizers.Tokenizer:
    """Byte-level BPE with GPT-2's pre-tokenizer and decoder."""
    core = tokenizers.Tokenizer(model)
    core.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    core.decoder = decoders.ByteLevel()
    return core


def _read_wordpiece(path: Path) -> tokenizers.Tokenizer:
    """Reads BERT's WordPiece; uncased if no token has an upper-case letter."""
    text = disk.read(path).decode()
    tokens = re.split("\r\n|\r|\n", text)
    tokens = tokens[:-1] if not tokens[-1] else tokens
    ids = {}
    for number, token in enumerate(tokens):
        if token in ids or not token:
            problem = "token twice" if token else "line that is empty"
            raise DataError(f"a {problem}: line {number + 1}, {token!r}")
        ids[token] = number
    if "[UNK]" not in ids:
        raise DataError("not a WordPiece vocabulary: it lacks [UNK]")
    # For a file alone: with tokenizer_config.json, `do_lower_case` determines it.
    names = {name for names in _NAMES.values() for name in names}
    is_cased = any(token != token.lower() for token in ids if token not in names)
    return make_wordpiece(ids, not is_cased)


def make_wordpiece(ids: dict[str, int], lowercase: bool) -> tokenizers.Tokenizer:
    """WordPiece with BERT's normalizer, pre-tokenizer and decoder."""
    core = tokenizers.Tokenizer(models.WordPiece(ids, unk_token=SPECIALS["unk"]))
    core.normalizer = normalizers.BertNormalizer(lowercase=lowercase)
    core.pre_tokenizer = pre_tokenizers.BertPreTokenizer()
    core.decoder = decoders.WordPiece(prefix="##")
    return core


def _read_sentencepiece_folder(path: Path) -> tokenizers.Tokenizer:
    """Reads a SentencePiece model with the ids that the folder's model gives it."""
    values: dict[str, Any] = {}
    for name in ("config.json", "tokenizer_config.json"):
        if (file := path.parent / name).is_file():
            values |= _parse(file)
    kind = values.get("model_type")
    if path.name == "spiece.model":
        core = _read_sentencepiece(path)
        num = values.get("extra_ids", 100) if kind == "t5" else 0
        if type(num) is not int or not 0 <= num <= 1000:
            raise DataError(f"extra_ids={num!r}: must be from 0 to 1000")
        for i in range(num - 1, -1, -1):
            if core.token_to_id(f"<extra_id_{i}>") is None:
                _append(core, f"<extra_id_{i}>")
        return core
    if kind not in FAIRSEQ:
        raise DataError(
            f"config.json: model_type={kind!r}: must be one of {', '.join(FAIRSEQ)} "
            f"with {path.name}"
        )
    return _read_sentencepiece(path, *FAIRSEQ[kind])


def _list_trained(path: Path) -> dict[str, str]:
    """The special pieces by role that a SentencePiece model declares."""
    proto = sentencepiece_model_pb2.ModelProto.FromString(disk.read(path))
    trainer, pieces = proto.trainer_spec, proto.pieces
    ids = {
        role: getattr(trainer, f"{role}_id") for role in ("pad", "unk", "bos", "eos")
    }
    return {
        role: pieces[id_].piece for role, id_ in ids.items() if 0 <= id_ < len(pieces)
    }


def _read_sentencepiece(
    path: Path, front: tuple[str, ...] = (), num_left_out: int = 0
) -> tokenizers.Tokenizer:
    """Reads SentencePiece's Unigram model as transformers does for T5.

    Args:
      front: tokens before its pieces, of which `<unk>` is one; then `<mask>` is added
        after them.
      num_left_out: of its first pieces.
    """
    proto = sentencepiece_model_pb2.ModelProto()
    try:
        proto.ParseFromString(disk.read(path))
    except DecodeError as error:
        raise DataError("not a SentencePiece model") from error
    trainer, normalizer = proto.trainer_spec, proto.normalizer_spec
    if not proto.pieces:
        raise DataError("not a SentencePiece model: it has no pieces")
    sentinel = re.compile("▁?<extra_id_[0-9]+>")
    types = {
        piece.type for piece in proto.pieces if not sentinel.fullmatch(piece.piece)
    }
    kinds = proto.SentencePiece
    if (
        trainer.model_type != trainer.UNIGRAM
        or kinds.USER_DEFINED in types
        or trainer.treat_whitespace_as_suffix
        or not normalizer.add_dummy_prefix
        or not normalizer.remove_extra_whitespaces
        or not normalizer.escape_whitespaces
    ):
        raise DataError(
            "a SentencePiece model must be a Unigram of T5's form: no user-defined "
            "pieces, a space before the text, extra spaces removed"
        )
    pieces = [(piece.piece, piece.score) for piece in proto.pieces]
    silent = (kinds.CONTROL, kinds.UNKNOWN, kinds.UNUSED)
    names = [piece.piece for piece in proto.pieces if piece.type in silent]
    unk_id = trainer.unk_id
    if front:
        added = [*front, "<mask>"]
        first, last = [(name, 0.0) for name in front], ("<mask>", 0.0)
        pieces = [*first, *pieces[num_left_out:], last]
        names, unk_id = (
            [*added, *(n for n in names if n not in added)],
            front.index("<unk>"),
        )
    charsmap = normalizer.precompiled_charsmap
    try:
        core = make_unigram(pieces, unk_id, charsmap, trainer.byte_fallback)
    except Exception as error:  # the library has no finer exceptions
        raise DataError(f"not a Unigram model: {error}") from error
    core.add_special_tokens(
        [AddedToken(name, special=True, normalized=False) for name in names]
    )
    return core


def make_unigram(
    pieces: list[tuple[str, float]],
    unk_id: int,
    charsmap: bytes = b"",
    byte_fallback: bool = False,
) -> tokenizers.Tokenizer:
    """Unigram with T5's normalizer, pre-tokenizer and decoder; words begin with "▁".

    Args:
      pieces: with their log probabilities, in the order of ids.
      charsmap: SentencePiece's compiled normalization rules.
    """
    pieces = _round_scores(pieces)
    core = tokenizers.Tokenizer(models.Unigram(pieces, unk_id, byte_fallback))
    if charsmap:
        core.normalizer = normalizers.Precompiled(charsmap)
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]
    )
    core.decoder = decoders.Metaspace()
    return core


def _round_scores(pieces: Iterable[tuple[str, float]]) -> list[tuple[str, float]]:
    """Scores rounded to 12 decimals, which the library writes and reads unchanged."""
    return [(piece, round(float(score), 12)) for piece, score in pieces]


def _parse(path: Path) -> dict:
    """Reads a JSON object; raises UserError if the file is not one."""
    try:
        return schema.parse(disk.read(path), {str: object})
    except ValueError as error:
        raise DataError(f"{path.name}: {error}") from error
