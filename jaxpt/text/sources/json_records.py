"""Reads JSON objects: one a line, or the objects of an array."""

from collections.abc import Iterable, Iterator

from jaxpt.errors import DataError
from jaxpt.files import schema
from jaxpt.text.sources.delimited import BLANKS
from jaxpt.text.sources.files import parse_object, read_lines
from jaxpt.text.sources.reading import Record


def read_json_lines(
    blocks: Iterable[str], where: str, first: int = 1
) -> Iterator[Record]:
    """The object of each line; skips blank lines.

    A whole line is held in memory, of at most `schema.MAX_BYTES` characters.

    Args:
      blocks: the characters of the file.
      where: the file, which begins an error message.
      first: the number of the first line.
    """
    for number, (line, _) in enumerate(read_lines(blocks, schema.MAX_BYTES), first):
        if line.strip(BLANKS):
            place = f"line {number}"
            fields = parse_object(line, f"{where} {place}")
            yield Record(number, place, fields, "\\u" in line)


def read_json(blocks: Iterable[str], where: str) -> Iterator[Record]:
    """The objects of a file: JSON lines, an array of objects, or one object.

    Unless the first line is an object, all of the file is held in memory, of at most
    `schema.MAX_BYTES` characters.

    >>> [record.fields for record in read_json(['[{"a": 1},', '{"a": 2}]'], "a.json")]
    [{'a': 1}, {'a': 2}]
    """
    lines, head, number = read_lines(blocks, schema.MAX_BYTES), "", 0
    for head, _ in lines:
        number += 1
        if head.strip(BLANKS):
            break
    if is_object(head):
        rest = (line for line, _ in lines)
        yield from read_json_lines(_chain(head, rest), where, number)
        return
    text = _join(_chain(head, (line for line, _ in lines)), where)
    if not text.strip(BLANKS):
        return
    if text.lstrip(BLANKS)[0] != "[":
        yield Record(1, "record 1", parse_object(text, where), True)
        return
    try:
        values = schema.parse(text, [object])
    except ValueError as error:
        raise DataError(f"{where}: {error}") from error
    for number, value in enumerate(values, 1):
        if not isinstance(value, dict):
            raise DataError(f"{where} record {number}: not a JSON object")
        yield Record(number, f"record {number}", value, True)


def is_object(line: str) -> bool:
    """Whether a line is a JSON object.

    >>> is_object('{"text": "a"}'), is_object('{"text":'), is_object('{a}')
    (True, False, False)
    """
    if not line.lstrip(BLANKS).startswith("{"):
        return False
    try:
        schema.parse(line, {str: object})
    except ValueError:
        return False
    return True


def _chain(head: str, rest: Iterable[str]) -> Iterator[str]:
    yield head
    yield from rest


def _join(blocks: Iterable[str], where: str) -> str:
    parts, size = [], 0
    for block in blocks:
        parts.append(block)
        size += len(block)
        if size > schema.MAX_BYTES:
            raise DataError(
                f"{where}: is larger than {schema.MAX_BYTES >> 20} MiB as one JSON "
                "value; a .jsonl file with an object a line may have any size"
            )
    return "".join(parts)
