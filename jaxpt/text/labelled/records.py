"""Reads table rows with named and typed fields: JSON, SQuAD, Parquet, TFDS."""

from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from jaxpt.errors import DataError
from jaxpt.files import disk
from jaxpt.text.sources.files import open_parquet, parse_object
from jaxpt.text.sources.json_records import read_json, read_json_lines
from jaxpt.text.sources.records import open_tfds

Row = tuple[int, dict[str, Any]]


def read_lines_of_json(text: str, file: Path) -> Iterator[Row]:
    """Reads the JSON object of each line, numbered from 1; skips blank lines.

    Raises:
      UserError: a line is not a JSON object.
    """
    for record in read_json_lines([text], str(file)):
        yield record.number, record.fields


def read_any_json(text: str, file: Path) -> Iterator[Row]:
    """Reads SQuAD's JSON, an array of objects, JSON lines or one object.

    Raises:
      UserError: the file has another form.
    """
    for record in read_json([text], str(file)):
        if isinstance(record.fields.get("data"), list):
            yield from read_squad(text, file)
            return
        yield record.number, record.fields


def read_squad(text: str, file: Path) -> Iterator[Row]:
    """Reads the questions of SQuAD's JSON, 1.1 or 2.0, numbered from 0.

    Each question becomes a row with the columns of TFDS's "squad": id, title, context,
    question, answers {text: [...], answer_start: [...]}, and is_impossible, which is
    False in version 1.1.

    Raises:
      UserError: the file has another form.
    """
    whole, number = parse_object(text, str(file)), 0
    try:
        for article in whole["data"]:
            for paragraph in article["paragraphs"]:
                for question in paragraph["qas"]:
                    answers = question.get("answers", [])
                    yield (
                        number,
                        {
                            "id": str(question["id"]),
                            "title": article.get("title", ""),
                            "context": paragraph["context"],
                            "question": question["question"],
                            "answers": {
                                "text": [a["text"] for a in answers],
                                "answer_start": [a["answer_start"] for a in answers],
                            },
                            "is_impossible": bool(question.get("is_impossible")),
                        },
                    )
                    number += 1
    except (KeyError, TypeError, AttributeError) as error:
        raise DataError(
            f"{file} question {number}: not SQuAD's JSON: {error!r}; a file of objects "
            "has format='json' or 'jsonl'"
        ) from error


def read_parquet(file: Path, columns: Collection[str]) -> Iterator[Row]:
    """Reads the rows of a Parquet file, numbered from 0.

    Raises:
      UserError: the file is damaged, too large or does not have a column.
    """
    with open_parquet(file, "") as table:
        names = table.schema_arrow.names
        _check_columns(columns, names, str(file))
        meta = table.metadata
        sizes = [meta.row_group(i).total_byte_size for i in range(meta.num_row_groups)]
        if sum(sizes) > disk.WHOLE_BYTES:
            raise DataError(f"{file}: {disk.TOO_LARGE}")
        selected = [name for name in names if not columns or name in columns]
        try:
            return enumerate(table.read(selected).to_pylist())
        except UnicodeDecodeError as error:
            raise DataError(f"{file}: a text is not UTF-8: {error}") from error


def _check_columns(
    columns: Collection[str], names: Collection[str], where: str
) -> None:
    if missing := [column for column in columns if column not in names]:
        listed = ", ".join(map(repr, names)) or "none"
        raise DataError(f"{where}: no column {missing[0]!r}; it has {listed}")


def read_tfds(
    path: str, split: str, data_dir: str, columns: Collection[str]
) -> Iterator[Row]:
    """Reads the records of a TFDS data set, numbered from 0; classes become names.

    Raises:
      UserError: the data set, split or column does not exist, or TFDS cannot read it.
    """
    name, _, in_path = path.removeprefix("tfds:").partition(":")
    if in_path and split:
        raise DataError(f"{path}: name the split there or by split={split!r}, not both")
    if not in_path and not split:
        raise DataError(f"{path}: set split, such as 'train'")
    source = open_tfds(f"tfds:{name}:{in_path or split}", data_dir, "")
    features = source.dataset_info.features
    _check_columns(columns, sorted(features), path)
    names = [name for name in features if not columns or name in columns]
    for number in range(len(source)):
        record, where = source[number], f"{path} record {number}"
        yield number, {n: _to_plain(record[n], features[n], where) for n in names}


def _to_plain(value: Any, feature: Any, where: str) -> Any:
    """Converts a field to built-in types; class -1 (no class) becomes None."""
    if isinstance(value, dict):
        return {key: _to_plain(value[key], feature[key], where) for key in value}
    if isinstance(value, list) or getattr(value, "ndim", 0) > 0:
        inner = getattr(feature, "feature", feature)
        return [_to_plain(item, inner, where) for item in value]
    if hasattr(feature, "int2str"):
        return feature.int2str(int(value)) if value >= 0 else None
    if isinstance(value, bytes):
        try:
            return value.decode("utf-8")
        except UnicodeDecodeError as error:
            raise DataError(f"{where}: a text is not UTF-8: {error.reason}") from error
    return value.item() if hasattr(value, "item") else value
