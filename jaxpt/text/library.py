"""The disk cache of stores and tokenizers; creates missing ones."""

import dataclasses
import hashlib
import json
import os
import re
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from jaxpt import trust
from jaxpt.by_name import load_place
from jaxpt.errors import DataError, argument
from jaxpt.languages import is_language
from jaxpt.text.sources.hashes import Hashes
from jaxpt.text.sources.source import (
    LANGUAGE_TEXTS,
    identify_source,
    list_contents,
    read_documents,
)
from jaxpt.text.sources.source_spec import SourceSpec
from jaxpt.text.stores.prepare import Reporter, check_unchanged, prepare
from jaxpt.text.stores.store import FORMAT, Store, is_store, open_store
from jaxpt.text.stores.tasks import take
from jaxpt.text.text_spec import TextSpec
from jaxpt.text.tokens import tokenizer as tokenizers
from jaxpt.text.tokens.tokenizer import Tokenizer, TokenizerSpec, make_tokenizer

# How files are read and cut into sentences, and the form of tokenizer files. A cached
# store or tokenizer of another number is not used.
READING = 4


def open_stores(
    spec: TextSpec,
    tokenizer: Tokenizer | None = None,
    *,
    folder: Path | None = None,
    workers: int = 0,
    reporter: Reporter = Reporter(),
) -> tuple[Tokenizer, list[tuple[Store, float]], Store | None]:
    """Opens the tokenizer, each source's store with its weight, and valid_path's store.

    Args:
      folder: the folder of the only source's store; None is a folder in the cache.
    """
    sources = spec.sources
    check_languages(spec)
    if folder is not None and (len(sources) > 1 or spec.valid_path):
        raise DataError(
            f"{argument('to')}={folder}: can hold one text; prepare the sources of "
            "data.mixture and data.valid_path one by one"
        )
    opened = {s.path: open_store(s.path) for s, _ in sources if is_store(s.path)}
    if tokenizer is None and spec.tokenizer.kind == "file":
        tokenizer = make_tokenizer(spec.tokenizer, ())
    for path, store in opened.items():
        _check_store(spec, path, store)
        tokenizer = tokenizer or store.tokenizer
    if tokenizer is None:
        tokenizer = find_tokenizer(spec, reporter)

    def get(source: SourceSpec, limited: bool) -> Store:
        if is_language(source.path):
            load_place(f"{LANGUAGE_TEXTS}:check_tokenizer")(source.path, tokenizer)
        if is_store(source.path):
            store = opened.get(source.path) or open_store(source.path)
            fingerprint = tokenizers.fingerprint(tokenizer)
            if tokenizers.fingerprint(store.tokenizer) != fingerprint:
                raise DataError(
                    f"data.path={source.path}: was prepared with another tokenizer "
                    f"({store.card['tokenizer']['spec']['kind']}, "
                    f"{store.card['vocab_size']} tokens)"
                )
            return store
        return _find_store(spec, source, limited, tokenizer, folder, workers, reporter)

    stores = [(get(source, True), weight) for source, weight in sources]
    valid, valid_path = None, spec.valid_path
    if is_language(sources[0][0].path) and len(sources) == 1 and folder is None:
        name = f"{LANGUAGE_TEXTS}:find_valid_path"
        valid_path = valid_path or load_place(name)(sources[0][0].path)
    if valid_path:
        valid = get(spec.source(valid_path), False)
    return tokenizer, stores, valid


def cache_root(spec: TextSpec) -> Path:
    """The cache folder of stores and tokenizers."""
    root = spec.cache_dir or os.environ.get("JAXPT_CACHE", "")
    if trust.is_url(root):
        raise DataError(f"data.cache_dir={root}: must be a folder on a local disk")
    return Path(root) if root else Path.home() / ".cache" / "jaxpt"


def train_tokenizer(spec: TextSpec, reporter: Reporter = Reporter()) -> Tokenizer:
    """Trains the spec's tokenizer on the training text."""
    check_languages(spec)
    tokenizer_spec = spec.tokenizer
    kind, vocab_size = tokenizer_spec.kind, tokenizer_spec.vocab_size
    title = f"training a {kind} tokenizer of {vocab_size} tokens"
    if kind != "char":
        listed = ", ".join(source.path for source, _ in spec.sources)
        reporter.log(f"{title} on {listed}")
    progress = reporter.progress and reporter.progress(title, 0)
    try:
        return make_tokenizer(tokenizer_spec, _main_texts(spec, progress))
    finally:
        if progress:
            progress(None)


def _main_texts(spec: TextSpec, progress: Callable | None) -> Iterator[str]:
    """Yields the training text of all sources, in parts of documents."""
    num_bytes = num_documents = 0
    for source, _ in spec.sources:
        if is_language(source.path):
            yield load_place(f"{LANGUAGE_TEXTS}:list_characters")(source.path)
            continue
        documents = take(
            read_documents(source), spec.limit_chars, 0, f"data.path={source.path}"
        )
        for document, _ in documents:
            yield document.text
            num_bytes += len(document.text.encode("utf-8", "surrogatepass"))
            num_documents += document.is_start
            if progress:
                progress((num_bytes, num_documents, 0))


def check_languages(spec: TextSpec) -> None:
    """Raises DataError for settings that the text of a language cannot have."""
    paths = [source.path for source, _ in spec.sources] + [spec.valid_path]
    for path in filter(is_language, paths):
        given = spec.label_field, spec.limit_chars, spec.heldout_chars
        check = load_place(f"{LANGUAGE_TEXTS}:check_settings")
        check(path, *given, spec.tokenizer.kind)


def _key(*values: Any) -> str:
    text = json.dumps(values, sort_keys=True)
    return hashlib.sha256(text.encode()).hexdigest()[:16]


def find_tokenizer(
    spec: TextSpec, reporter: Reporter, trains: bool = True
) -> Tokenizer:
    """Loads the tokenizer of this text from the cache, or trains it into the cache.

    Raises:
      UserError: it is not in the cache, and `trains` is False.
    """
    tokenizer_spec = spec.tokenizer
    if tokenizer_spec.kind == "byte":
        return make_tokenizer(tokenizer_spec, ())
    sources = [source for source, _ in spec.sources]
    described = [identify_source(source) for source in sources]
    texts = [
        (_reading(source), list_cached_contents(spec, source)) for source in sources
    ]
    made_of = READING, dataclasses.asdict(tokenizer_spec), texts, spec.limit_chars
    key = _key(*made_of)
    path = cache_root(spec) / "tokenizers" / f"{tokenizer_spec.kind}-{key}.json"
    if path.exists():
        return tokenizers.load(path)
    if not trains:
        raise DataError(
            f"tokenizer.kind={tokenizer_spec.kind!r}: is not trained yet, and all parts"
            " of a text need the same tokenizer: write one with jaxpt tokenizer train, "
            "and set tokenizer.kind=file and tokenizer.path"
        )
    tokenizer = train_tokenizer(spec, reporter)
    for source, before in zip(sources, described, strict=True):
        check_unchanged(source, before)
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        tokenizers.save(tokenizer, path)
    except OSError as error:
        raise DataError(f"data.cache_dir: {path}: {error.strerror}") from error
    return tokenizer


def list_cached_contents(spec: TextSpec, source: SourceSpec) -> list[dict]:
    """`list_contents` with cached hashes of unchanged files."""
    name = _key(os.path.abspath(source.path), source.tfds_data_dir)
    hashes = Hashes(cache_root(spec) / "hashes" / f"{name}.json")
    contents = list_contents(source, hashes)
    hashes.save()
    return contents


def _reading(source: SourceSpec) -> dict:
    """The settings for reading a source, without its location."""
    reading = dataclasses.asdict(source)
    del reading["path"], reading["tfds_data_dir"], reading["is_partial"]
    return reading


def make_settings(spec: TextSpec, source: SourceSpec, limited: bool) -> dict:
    """The settings that a store depends on, apart from its text and tokenizer."""
    return _reading(source) | {
        "sentences": spec.sentences,
        "limit_chars": spec.limit_chars if limited else 0,
        "heldout_chars": spec.heldout_chars if limited else 0,
    }


def _find_store(
    spec: TextSpec,
    source: SourceSpec,
    limited: bool,
    tokenizer: Tokenizer,
    folder: Path | None,
    workers: int,
    reporter: Reporter,
) -> Store:
    """Opens the store of this text in the cache or in `folder`, or prepares it."""
    settings = make_settings(spec, source, limited)
    described = identify_source(source)
    contents = list_cached_contents(spec, source)
    place = folder
    if place is None:
        fingerprint = tokenizers.fingerprint(tokenizer)
        key = _key(FORMAT, READING, settings, contents, fingerprint)
        slug = re.sub(r"\W+", "-", Path(source.path).name).strip("-")[:40]
        place = cache_root(spec) / "stores" / f"{slug}-{key}"
    return prepare(
        source,
        described,
        contents,
        tokenizer,
        spec.tokenizer,
        place,
        settings=settings,
        workers=workers,
        reporter=reporter,
        is_keyed=folder is None,
    )


def _check_store(spec: TextSpec, path: str, store: Store) -> None:
    """Raises UserError if a setting that is set differs from the store's."""
    default = TextSpec()
    settings = make_settings(spec, spec.source(path), True)
    for name, value in settings.items():
        stored = store.card["settings"].get(name)
        if value not in (stored, getattr(default, name)):
            raise DataError(
                f"data.{name}={value!r}: the store {path} was prepared with {stored!r}"
            )
    if spec.tokenizer.kind == "file":
        return  # the content is compared, not the path
    requested = dataclasses.asdict(spec.tokenizer)
    stored = store.card["tokenizer"]["spec"]
    for name, value in dataclasses.asdict(TokenizerSpec()).items():
        setting = list(requested[name]) if isinstance(value, tuple) else requested[name]
        if requested[name] != value and setting != stored.get(name, value):
            raise DataError(
                f"tokenizer.{name}={setting!r}: the store {path} was prepared with "
                f"another tokenizer, whose tokenizer.{name} is "
                f"{stored.get(name, value)!r}"
            )
