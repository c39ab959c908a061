"""Reads published tokenizers: GPT-2's, BERT's and T5's files and `tokenizer.json`."""

import os
import re
from pathlib import Path
from typing import Any

import tokenizers
from google.protobuf.message import DecodeError
from sentencepiece import sentencepiece_model_pb2
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers

from jaxpt.errors import DataError, UserError
from jaxpt.files import disk, schema
from jaxpt.text.tokens.encoding import Tokenizer
from jaxpt.text.tokens.folder_options import FolderOptions, read_options
from jaxpt.text.tokens.letters import read_letters
from jaxpt.text.tokens.special_names import (
    USUAL_NAMES,
    append,
    name_specials,
    read_json,
    round_scores,
)
from jaxpt.text.tokens.transformers_classes import CLASSES, LETTERS
from jaxpt.text.tokens.vocab import SPECIALS

# The files of a folder; the first complete entry is read.
FOLDERS = (
    ("tokenizer.json",),
    ("encoder.json", "vocab.bpe"),
    ("vocab.json", "merges.txt"),
    ("vocab.txt",),
    ("spiece.model",),
    ("sentencepiece.bpe.model",),
    ("sentencepiece.model",),
)
_PAIRS = {names[0]: names[1] for names in FOLDERS if len(names) == 2}
# The ids of fairseq's models by `model_type`: tokens before the SentencePiece model's
# pieces, and the number of those that are left out; <mask> is the last id.
FAIRSEQ = {
    "xlm-roberta": (("<s>", "<pad>", "</s>", "<unk>"), 3),
    "camembert": (("<s>NOTUSED", "<pad>", "</s>NOTUSED", "<unk>", "<unk>NOTUSED"), 1),
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
        if options is not None and options.name == LETTERS:
            given = options.options, specials, num_sentinels
            return read_letters(options.folder, *given)
        core = _read_core(file)
        has_list = file.suffix == ".json" and file.name not in _PAIRS
        roles = None if has_list else _find_format_roles(core, file)
        if options is None:
            return name_specials(core, specials, num_sentinels, roles)
        return options.name_specials(core, specials, num_sentinels, roles)
    except OSError as error:
        raise DataError(f"tokenizer file {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise DataError(f"tokenizer file {path}: not UTF-8: {error}") from error
    except UserError as error:
        raise DataError(f"tokenizer file {path}: {error}") from error


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
    names = {name for names in USUAL_NAMES.values() for name in names}
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
                append(core, f"<extra_id_{i}>")
        return core
    if path.name == "sentencepiece.model" and kind in (None, "rembert"):
        return _read_sentencepiece(path)
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
    pieces = round_scores(pieces)
    core = tokenizers.Tokenizer(models.Unigram(pieces, unk_id, byte_fallback))
    if charsmap:
        core.normalizer = normalizers.Precompiled(charsmap)
    core.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.WhitespaceSplit(), pre_tokenizers.Metaspace()]
    )
    core.decoder = decoders.Metaspace()
    return core


def _parse(path: Path) -> dict:
    """Reads a JSON object; raises UserError if the file is not one."""
    try:
        return schema.parse(disk.read(path), {str: object})
    except ValueError as error:
        raise DataError(f"{path.name}: {error}") from error
