"""Parses annotated texts: SQuAD's JSON, CoNLL, CoNLL-U, labels before texts, STS-B."""

import re
from collections.abc import Iterator
from typing import Any

from jaxpt.errors import DataError
from jaxpt.text.sources.delimited import BLANKS, split_lines, split_tsv
from jaxpt.text.sources.files import parse_object
from jaxpt.text.sources.reading import Record

# The columns of CoNLL-U in lower case, and those in which "_" means no value.
CONLLU = tuple("id form lemma upos xpos feats head deprel deps misc".split())
_TAGS = ("upos", "xpos", "head", "deprel")
# GLUE's names of the fields of STS-B's original files; sources may follow.
STS = ("genre", "filename", "year", "old_index", "score", "sentence1", "sentence2")


def read_squad(text: str, where: str) -> Iterator[Record]:
    """Reads the questions of SQuAD's JSON, 1.1 or 2.0, numbered from 0.

    Each question becomes a row with the columns of TFDS's "squad": id, title, context,
    question, answers {text: [...], answer_start: [...]}, and is_impossible, which is
    False in version 1.1.
    """
    whole, number = parse_object(text, where), 0
    try:
        for article in whole["data"]:
            for paragraph in article["paragraphs"]:
                for question in paragraph["qas"]:
                    answers = question.get("answers", [])
                    yield Record(
                        number,
                        f"question {number}",
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
                        True,
                    )
                    number += 1
    except (KeyError, TypeError, AttributeError) as error:
        raise DataError(
            f"{where} question {number}: not SQuAD's JSON: {error!r}; a file of "
            "objects has format='json' or 'jsonl'"
        ) from error


def split_labels(text: str, where: str) -> Iterator[Record]:
    """Reads lines of a label, a space and a text."""
    for number, line in split_lines(text):
        label, blank, rest = line.partition(" ")
        if not label or not blank:
            raise DataError(f"{where} line {number}: must be a label, a space, a text")
        yield _make(number, {"label": label, "text": rest})


def name_sts(text: str, where: str) -> Iterator[Record]:
    """Reads the lines of STS-B: tabs between the fields `STS`, without a header."""
    for number, fields in split_tsv(text.split("\n")):
        if len(fields) < len(STS):
            raise DataError(
                f"{where} line {number}: has {len(fields)} fields between tabs; must "
                f"have {', '.join(STS)}"
            )
        yield _make(number, dict(zip(STS, fields, strict=False)))


def read_conll(text: str, where: str) -> Iterator[Record]:
    """Reads sentences with a token per line, numbered by their first line.

    Fields are separated by tabs or else by spaces; other whitespace, such as a no-break
    space, belongs to a token. A line of blanks ends a sentence, as in WNUT-17;
    CoNLL-2003's mark of a new document, -DOCSTART-, is skipped.
    """
    num_fields, is_conllu = 0, False
    for number, lines in _group_sentences(text):
        fields = [
            line.split("\t") if "\t" in line else re.split(" +", line.strip(" "))
            for line in lines
        ]
        num_fields = num_fields or len(fields[0])
        is_conllu = is_conllu or lines[0].startswith("#")
        for i, values in enumerate(fields, number):
            if len(values) != num_fields or not all(values):
                hint = "; CoNLL-U has format='conllu'" if is_conllu else ""
                raise DataError(
                    f"{where} line {i}: must have {num_fields} fields as the first, "
                    f"none of them empty{hint}"
                )
        if fields[0][0] != "-DOCSTART-":
            columns = enumerate(zip(*fields, strict=True))
            yield _make(number, {str(i): list(column) for i, column in columns})


def read_conllu(text: str, where: str) -> Iterator[Record]:
    """Reads the words of CoNLL-U by the columns `CONLLU`.

    Comments, multiword tokens (1-2) and empty nodes (3.1) are skipped. An unspecified
    tag, "_", is None.
    """
    for number, lines in _group_sentences(text):
        words = []
        for i, line in enumerate(lines, number):
            if line.startswith("#"):
                continue
            fields = line.split("\t")
            if len(fields) != len(CONLLU) or not all(fields):
                raise DataError(
                    f"{where} line {i}: must have the {len(CONLLU)} fields of CoNLL-U "
                    f"between tabs ({', '.join(CONLLU)}), none of them empty"
                )
            if re.fullmatch(r"\d+[-.]\d+", fields[0]):
                continue
            row = dict(zip(CONLLU, fields, strict=True))
            words.append(
                {k: None if v == "_" and k in _TAGS else v for k, v in row.items()}
            )
        if words:
            yield _make(
                number, {name: [word[name] for word in words] for name in CONLLU}
            )


def _group_sentences(text: str) -> Iterator[tuple[int, list[str]]]:
    """The lines between blank ones, with the number of the first."""
    first = 0
    lines: list[str] = []
    for number, line in enumerate([*text.split("\n"), ""], 1):
        line = line.removesuffix("\r")
        if line.strip(BLANKS):
            first = first if lines else number
            lines.append(line)
        elif lines:
            yield first, lines
            lines = []


def _make(number: int, fields: dict[str, Any]) -> Record:
    return Record(number, f"line {number}", fields)
