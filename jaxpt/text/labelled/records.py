"""Rows of tables whose fields have names and types: JSON, SQuAD's, Parquet, TFDS."""

import json
from collections.abc import Collection, Iterator
from pathlib import Path
from typing import Any

from jaxpt.errors import UserError
from jaxpt.text.sources.files import need_pyarrow, reading
from jaxpt.text.sources.records import open_tfds

Row = tuple[int, dict[str, Any]]


def read_json(text: str, file: Path) -> Iterator[Row]:
    """The object of each line, numbered from 1; blank lines are skipped.

    Raises:
      UserError: a line is not a JSON object.
    """
    for number, line in enumerate(text.split("\n"), 1):
        if line.strip():
            yield number, _parse(line, f"{file} line {number}")


def _parse(text: str, where: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except json.JSONDecodeError as error:
        raise UserError(f"{where}: not JSON: {error.msg}") from error
    except (ValueError, RecursionError) as error:  # numbers too long, too deep
        raise UserError(f"{where}: not JSON: {error}") from error
    if not isinstance(value, dict):
        raise UserError(f"{where}: not a JSON object")
    return value


def read_squad(text: str, file: Path) -> Iterator[Row]:
    """The questions of SQuAD's JSON, 1.1 or 2.0, numbered from 0.

    data -> paragraphs -> qas becomes one row a question with the columns of TFDS's
    "squad": id, title, context, question, answers {text: [...], answer_start: [...]},
    and is_impossible, which version 1.1 lacks and is False there.

    Raises:
      UserError: the file has another form.
    """
    whole, number = _parse(text, str(file)), 0
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
        raise UserError(
            f"{file} question {number}: not SQuAD's JSON: {error!r}; a file with one "
            "object a line has format='jsonl'"
        ) from error


def read_parquet(file: Path, columns: Collection[str]) -> Iterator[Row]:
    """The rows of a Parquet file, numbered from 0.

    Raises:
      UserError: the file is damaged or lacks a column.
    """
    pyarrow = need_pyarrow(file, "")
    try:
        with (
            reading(file, ""),
            open(file, "rb") as raw,
            pyarrow.parquet.ParquetFile(raw) as table,
        ):
            names = table.schema_arrow.names
            _check_columns(columns, names, str(file))
            found = table.read(
                [name for name in names if not columns or name in columns]
            )
            rows = found.to_pylist()
    except pyarrow.ArrowException as error:
        raise UserError(f"{file}: damaged .parquet data: {error}") from error
    except UnicodeDecodeError as error:
        raise UserError(f"{file}: a text is not UTF-8: {error}") from error
    return enumerate(rows)


def _check_columns(
    columns: Collection[str], names: Collection[str], where: str
) -> None:
    if missing := [column for column in columns if column not in names]:
        listed = ", ".join(map(repr, names)) or "none"
        raise UserError(f"{where}: no column {missing[0]!r}; it has {listed}")


def read_tfds(
    path: str, split: str, data_dir: str, columns: Collection[str]
) -> Iterator[Row]:
    """The records of a TFDS data set, numbered from 0; a class is its name.

    Raises:
      UserError: there is no such data set, split or column, or TFDS cannot read it.
    """
    name, _, in_path = path.removeprefix("tfds:").partition(":")
    if in_path and split:
        raise UserError(f"{path}: name the split there or by split={split!r}, not both")
    if not in_path and not split:
        raise UserError(f"{path}: set split, such as 'train'")
    source = open_tfds(f"tfds:{name}:{in_path or split}", data_dir, "")
    features = source.dataset_info.features
    _check_columns(columns, sorted(features), path)
    names = [name for name in features if not columns or name in columns]
    for number in range(len(source)):
        record, where = source[number], f"{path} record {number}"
        yield number, {n: _to_plain(record[n], features[n], where) for n in names}


def _to_plain(value: Any, feature: Any, where: str) -> Any:
    """A field as Python's own types; -1 of a class, which says none, is None."""
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
            raise UserError(f"{where}: a text is not UTF-8: {error.reason}") from error
    return value.item() if hasattr(value, "item") else value
