"""Reads data sets of TensorFlow Datasets (TFDS): "tfds:NAME" or "tfds:NAME:SPLIT"."""

import contextlib
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from jaxpt import trust
from jaxpt.errors import DataError, UserError
from jaxpt.files.objects import check_url
from jaxpt.text.sources.reading import Reading, Record


def read(path: str, how: Reading) -> Iterator[Record]:
    """Reads the records of "tfds:NAME" (train) or "tfds:NAME:SPLIT", from number 0."""
    source = open_tfds(path, how.data_dir, how.setting)
    features, where = source.dataset_info.features, f"{how.setting}{path}"
    columns = how.choose_columns(sorted(features), where)
    columns = [name for name in features if name in columns]
    name = ":".join(_split_tfds(path))
    for number in range(len(source)):
        record, place = source[number], f"record {number}"
        fields = {
            column: how.to_plain(
                record[column], features[column], column, f"{where} {place}"
            )
            for column in columns
        }
        yield Record(number, place, fields, file=path, name=name)


def _split_tfds(path: str) -> tuple[str, str]:
    name, _, split = path.removeprefix("tfds:").partition(":")
    return name, split or "train"


def open_tfds(path: str, data_dir: str, setting: str = "data.path=") -> Any:
    """Opens a TFDS data source, which TFDS downloads and prepares if needed.

    Args:
      setting: the text before the path in an error message.
    """
    try:
        import tensorflow_datasets as tfds
    except ImportError as error:
        raise DataError(
            f"{setting}{path} needs TFDS: pip install tensorflow-datasets array_record"
        ) from error
    trust.check_place(path)
    if trust.is_url(data_dir):
        check_url(trust.normalise(data_dir))
    name, split = _split_tfds(path)
    try:
        with _trusted_features(tfds.features.FeatureConnector, f"{setting}{path}"):
            try:
                return tfds.data_source(name, split=split, data_dir=data_dir or None)
            except tfds.core.DatasetNotFoundError:
                # glue, c4, wikipedia and others are registered only by this import.
                import tensorflow_datasets.text

                return tfds.data_source(name, split=split, data_dir=data_dir or None)
    except UserError:
        raise
    except Exception as error:  # A builder may fail in any way: network, disk, format.
        reason = (str(error).splitlines() or [type(error).__name__])[0]
        raise DataError(f"{setting}{path}: {reason}") from error


@contextlib.contextmanager
def _trusted_features(connector: Any, setting: str) -> Iterator[None]:
    """Keeps TFDS from importing modules that a data set names and the user does not.

    A data set's features.json names a class for each field, and TFDS imports the module
    of an unknown class (`FeatureConnector.cls_from_name`).
    """
    known = connector.__dict__["cls_from_name"]

    def find(cls: type, name: str) -> Any:
        module = name.rpartition(".")[0]
        if module not in sys.modules and not module.startswith("tensorflow_datasets."):
            trust.check(module, setting)
        return known.__get__(None, cls)(name)

    connector.cls_from_name = classmethod(find)
    try:
        yield
    finally:
        connector.cls_from_name = known


def identify(path: str, data_dir: str) -> tuple[dict, list[Path]]:
    """Lists a data set's full name, split and number of records, and its files.

    The files are those of the split and those that describe its fields, as far as they
    are on this machine.
    """
    source = open_tfds(path, data_dir)
    info, split = source.dataset_info, _split_tfds(path)[1]
    about = {"tfds": info.full_name, "split": split, "records": len(source)}
    folder = Path(info.data_dir)
    paths = [Path(path) for path in info.splits[split].filepaths]
    paths += [*folder.glob("*.json"), *folder.glob("*.txt")]
    return about, sorted(path for path in paths if path.is_file())
