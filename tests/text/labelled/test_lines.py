"""Formats of lines split at their own separators only; CoNLL-U."""

import csv
import io
import json

import pytest

from jaxpt.tasks import tagging
from jaxpt.text.labelled.tables import TableSpec, read_table
from jaxpt.text.sources.annotated import CONLLU, STS
from jaxpt.text.sources.source import SourceSpec, read_documents

# All that `str.split()`, `str.splitlines()` or `str.strip()` take for whitespace or for
# a line's end, but no format does; and two without width.
CHARS = [
    *map(chr, [0x0B, 0x0C, 0x1C, 0x1D, 0x1E, 0x1F, 0x85, 0xA0, 0x1680, 0x2028, 0x2029]),
    *map(chr, [*range(0x2000, 0x200B), 0x202F, 0x205F, 0x3000, 0x200B, 0xFEFF]),
]
EACH = pytest.mark.parametrize("char", CHARS, ids=[f"U+{ord(c):04X}" for c in CHARS])


def read(path, columns=(), **settings):
    return read_table(TableSpec(str(path), **settings), columns)


def write_csv(rows, delimiter):
    out = io.StringIO()
    csv.writer(out, delimiter=delimiter, lineterminator="\n").writerows(rows)
    return out.getvalue()


@EACH
def test_a_text_is_whole_in_every_format(char, tmp_path):
    texts = [f"a{char}b", f"{char}a", f"a{char}", f"{char}a{char}{char}b"]
    rows = [{"text": text, "label": "x"} for text in texts]
    lines = [json.dumps(row, ensure_ascii=False) for row in rows]
    fields = [["text", "label"], *([text, "x"] for text in texts)]
    for name, text in (
        ("a.jsonl", "\n".join(lines)),
        ("a.json", f"[{','.join(lines)}]"),
        ("a.tsv", "\n".join(map("\t".join, fields))),
        ("a.csv", write_csv(fields, ",")),
    ):
        (tmp_path / name).write_text(text, encoding="utf-8", newline="")
        assert read(tmp_path / name).columns["text"] == texts, name
        documents = read_documents(SourceSpec(str(tmp_path / name)))
        assert [document.text for document in documents] == texts, name
    text = "".join(f"x {each}\n" for each in texts)
    (tmp_path / "a.txt").write_text(text, encoding="utf-8", newline="")
    made = read(tmp_path / "a.txt", format="label_text")
    assert made.columns == {"label": ["x"] * 4, "text": texts}
    sts = "".join("\t".join([each] * len(STS)) + "\n" for each in texts)
    (tmp_path / "sts.txt").write_text(sts, encoding="utf-8", newline="")
    assert read(tmp_path / "sts.txt", format="sts").columns["sentence1"] == texts


@EACH
@pytest.mark.parametrize("separator", ["\t", " ", "  "])
def test_a_token_of_conll_is_whole(char, separator, tmp_path):
    words = [f"10{char}000", f"{char}a", f"a{char}", char]
    text = "".join(f"{word}{separator}O\r\n" for word in words) + "\n"
    (tmp_path / "a.conll").write_text(text + text, encoding="utf-8", newline="")
    table = read(tmp_path / "a.conll")
    assert table.columns == {"0": [words] * 2, "1": [["O"] * 4] * 2}
    spec = tagging.Spec(metric="accuracy", labels=("O", "B"))
    examples, _ = tagging.read(table, spec, ("O", "B"))
    assert examples[0].words == tuple(words)


ENGLISH = """\
# sent_id = 1
# text = Don't go
1-2\tDon't\t_\t_\t_\t_\t_\t_\t_\t_
1\tDo\tdo\tAUX\tVBP\t_\t3\taux\t_\t_
2\tn't\tnot\tPART\tRB\t_\t3\tadvmod\t_\t_
3\tgo\tgo\tVERB\tVB\t_\t0\troot\t_\t_
3.1\tx\tx\tX\tX\t_\t_\t_\t_\t_

# sent_id = 2
1\t10 000\t_\tNUM\tCD\t_\t0\troot\t_\tSpaceAfter=No
2\t_\t_\tSYM\tNFP\t_\t1\tpunct\t_\t_

# only a comment
"""


def test_conllu_by_hand(tmp_path):
    (tmp_path / "en.conllu").write_text(ENGLISH.replace("\n", "\r\n"), newline="")
    table = read(tmp_path / "en.conllu")
    assert tuple(table.columns) == CONLLU
    assert table.columns["form"] == [["Do", "n't", "go"], ["10 000", "_"]]
    assert table.columns["upos"] == [["AUX", "PART", "VERB"], ["NUM", "SYM"]]
    assert table.columns["xpos"] == [["VBP", "RB", "VB"], ["CD", "NFP"]]
    assert table.columns["id"] == [["1", "2", "3"], ["1", "2"]]
    assert table.where(1) == f"{tmp_path}/en.conllu line 9"
    spec = tagging.Spec(words="form", tags="upos", metric="accuracy")
    examples, labels = tagging.read(table, spec, None)
    assert labels == ("AUX", "NUM", "PART", "SYM", "VERB")
    assert examples[0].words == ("Do", "n't", "go")


@pytest.mark.parametrize("column", ["upos", "xpos", "deprel"])
def test_an_unspecified_tag_of_conllu_is_missing(column, tmp_path, refuses):
    fields = dict(zip(CONLLU, "1 a a X Y _ 0 root _ _".split(), strict=True))
    lines = ["\t".join(fields.values()), "\t".join((fields | {column: "_"}).values())]
    (tmp_path / "a.conllu").write_text("\n".join(lines))
    table = read(tmp_path / "a.conllu")
    spec = tagging.Spec(words="form", tags=column, metric="accuracy")
    with refuses(f"a.conllu line 1: '{column}' has no value for word 2 of 2"):
        tagging.read(table, spec, None)


@pytest.mark.parametrize(
    "name, text, message",
    [
        ("a.conllu", "1\ta\n", "a.conllu line 1: must have the 10 fields of CoNLL-U"),
        ("a.conllu", ENGLISH.replace("\t", " "), "line 3: must have the 10 fields"),
        ("a.conllu", "# a\n\n# b\n", "the table has no row"),
        ("a.conll", ENGLISH, "a.conll line 2: .*; CoNLL-U has format='conllu'"),
        ("a.conll", "a B\nc\n", "a.conll line 2: must have 2 fields as the first"),
    ],
)
def test_faults(name, text, message, tmp_path):
    (tmp_path / name).write_text(text)
    with pytest.raises(Exception, match=message):
        read(tmp_path / name)
