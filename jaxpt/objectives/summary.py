"""The formula, the source and the control of an objective, from its docstring."""

import re
import textwrap
from typing import NamedTuple

WORK = r"\b(19|20)\d\d\b|arXiv|\.py\b|\w/\w"  # of a paper, a repository or its file


class Summary(NamedTuple):
    """What a module's docstring says of its objective, each part in one line or more.

    Attributes:
      title: its first line.
      formula: the indented lines that begin with "loss =".
      source: the first sentence that names a paper or a repository.
      control: from "Control:" or "Controls:" to the end of the paragraph.
    """

    title: str
    formula: str
    source: str
    control: str


def summarise(docstring: str) -> Summary:
    """Reads a docstring; a part that it lacks is "".

    >>> text = '''A title.
    ...
    ... Smith et al. 2018; a/repository. More of it.
    ...
    ...     loss = a
    ...            + b
    ...
    ... Control: `clm`.
    ... '''
    >>> _, formula, source, control = summarise(text)
    >>> print(formula, "|", source, control)
    loss = a
           + b | Smith et al. 2018; a/repository. `clm`.
    """
    title, _, body = docstring.strip().partition("\n")
    paragraphs = [part for part in re.split(r"\n\s*\n", body) if part.strip()]
    formula = ""
    for part in paragraphs:
        if found := re.search(r"^ +loss = .*(\n +.*)*", part, re.M):
            formula = formula or textwrap.dedent(found[0])
    prose = [" ".join(part.split()) for part in paragraphs if part[:1] != " "]
    sentences = [s for part in prose for s in re.split(r"(?<!\bal)\. (?=\S)", part)]
    source = next((s for s in sentences if re.search(WORK, s)), "")
    controls = (re.search(r"\bControls?: (.*)", part) for part in prose)
    control = next((found[1] for found in controls if found), "")
    return Summary(title, formula, source and source.rstrip(".") + ".", control)
