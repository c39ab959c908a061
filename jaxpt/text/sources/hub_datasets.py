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
from pathlib import Path
from typing import Any

from jaxpt import optional, trust
from jaxpt.errors import DataError
from jaxpt.text.sources.reading import Reading, Record

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
def _reporting(where: str) -> Iterator[None]:
    """Whatever fails (network, disk, format) is one line."""
    try:
        yield
    except DataError:
        raise
    except Exception as error:
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise DataError(f"{where}: {reason}") from error


def _open(path: str, setting: str = "data.path=") -> tuple[Any, str]:
    """The builder of a data set, and the split."""
    trust.check_place(path)
    datasets = optional.need("datasets", "datasets", f"{setting}{path}")
    name, config, split = split_name(path)
    with _reporting(f"{setting}{path}"):
        builder = datasets.load_dataset_builder(name, config)
    return builder, split


def identify(path: str, data_dir: str = "") -> tuple[dict[str, str], list[Path]]:
    """The identity of a data set's content, which changes if a file changes; no files.

    Args:
      data_dir: not used; `datasets` has its own cache.
    """
    builder, split = _open(path)
    about = {"hf": builder.dataset_name, "config": builder.config.name}
    return about | {"split": split, "hash": builder.hash}, []


def read(path: str, how: Reading) -> Iterator[Record]:
    """The records of a data set, from number 0."""
    builder, split = _open(path, how.setting)
    where, name = f"{how.setting}{path}", path.removeprefix(PREFIX)
    with _reporting(where):
        if how.is_partial:
            records = builder.as_streaming_dataset(split)
        else:
            builder.download_and_prepare()
            records = builder.as_dataset(split)
    features = records.features or {}
    columns = how.choose_columns(sorted(features), where) if features else []
    with _reporting(where):
        for number, record in enumerate(records):
            place = f"record {number}"
            fields = {
                column: how.to_plain(
                    record.get(column), features.get(column), column, f"{where} {place}"
                )
                for column in columns or how.choose_columns(record, f"{where} {place}")
            }
            yield Record(number, place, fields, file=path, name=name)
