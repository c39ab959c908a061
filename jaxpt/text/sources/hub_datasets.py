"""Reads data sets of the Hugging Face Hub with the library `datasets`.

    hf:roneneldan/TinyStories
    hf:Salesforce/wikitext:wikitext-2-raw-v1          with a config
    hf:Salesforce/wikitext:wikitext-2-raw-v1:test     and a split

A data set is downloaded into the library's cache and read from there. If only its
beginning is needed (`data.limit_chars`), its records are streamed.
No code of a data set is executed: `datasets` reads files only, from version 4 on.
"""

import contextlib
from collections.abc import Iterator
from typing import Any

from jaxpt import optional, trust
from jaxpt.errors import DataError
from jaxpt.text.sources.documents import Document, make_documents

PREFIX = "hf:"


def split_name(path: str) -> tuple[str, str | None, str]:
    """The name, the config (None: the default one) and the split of "hf:...".

    >>> split_name("hf:a/b"), split_name("hf:a/b::test")
    (('a/b', None, 'train'), ('a/b', None, 'test'))
    """
    name, _, rest = path.removeprefix(PREFIX).partition(":")
    config, _, split = rest.partition(":")
    return name, config or None, split or "train"


@contextlib.contextmanager
def _reporting(path: str) -> Iterator[None]:
    """Whatever fails (network, disk, format) is one line."""
    try:
        yield
    except DataError:
        raise
    except Exception as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise DataError(f"data.path={path}: {reason}") from error


def _open(path: str) -> tuple[Any, str]:
    """The builder of a data set, and the split.

    Raises:
      UserError: the data set or config does not exist, or cannot be reached; or the
        user has not named it (`jaxpt.trust`).
    """
    trust.check_place(path)
    datasets = optional.need("datasets", "datasets", f"data.path={path}")
    name, config, split = split_name(path)
    with _reporting(path):
        builder = datasets.load_dataset_builder(name, config)
    return builder, split


def describe_hub(path: str) -> dict[str, str]:
    """The identity of a data set's content: it changes if a file changes.

    Raises:
      UserError: as `read_hub`.
    """
    builder, split = _open(path)
    about = {"hf": builder.dataset_name, "config": builder.config.name}
    return about | {"split": split, "hash": builder.hash}


def read_hub(
    path: str, text_field: str, label_field: str, is_partial: bool
) -> Iterator[Document]:
    """The records of a data set as documents.

    Args:
      is_partial: only the first ones are needed, so that they are streamed.

    Raises:
      UserError: the data set, split or field does not exist, or it cannot be read.
    """
    builder, split = _open(path)
    with _reporting(path):
        if is_partial:
            records = builder.as_streaming_dataset(split)
        else:
            builder.download_and_prepare()
            records = builder.as_dataset(split)
    features = records.features or {}
    for setting, field in (
        ("data.text_field", text_field),
        ("data.label_field", label_field),
    ):
        if field and features and field not in features:
            names = ", ".join(sorted(features))
            raise DataError(f"{setting}={field!r}: {path} has {names}")
    with _reporting(path):
        for number, record in enumerate(records):
            where = f"data.path={path} record {number}"
            text = _read_field(record, text_field, "data.text_field", where)
            label = ""
            if label_field:
                label = _read_label(record, features, label_field, where)
            yield from make_documents(
                text, f"{path.removeprefix(PREFIX)}:{number}", label
            )


def _read_label(record: dict, features: Any, field: str, where: str) -> str:
    """The name of a class ("" for -1, no class), or a text."""
    feature, value = features.get(field), record.get(field)
    if hasattr(feature, "int2str") and isinstance(value, int):
        return feature.int2str(value) if value >= 0 else ""
    return _read_field(record, field, "data.label_field", where)


def _read_field(record: dict, field: str, setting: str, where: str) -> str:
    """A field's text; "" for null."""
    value = record.get(field)
    if not isinstance(value, str | None):
        raise DataError(
            f"{where}: {field!r} ({setting}) must be a text, is {type(value).__name__}"
        )
    return value or ""
