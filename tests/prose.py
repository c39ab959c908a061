"""Checks documentation, docstrings, comments and messages for unclear phrases.

    .venv/bin/python tests/prose.py

Part of `make lint`. Prints each line with a phrase to replace, and a replacement. If
the phrase is right, end the line (or its statement) with a comment `prose: ok`.
"""

import io
import re
import sys
import tokenize
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
PHRASES = {
    r"\byardsticks?\b": "metric",
    r"\bfresh (parameters|network|model)\b": "random initialization",
    r"\bbesides?\b": "next to, in addition to",
    r"\b(is|are|was|were|be|been) (said|told)\b|\bsays so\b": "reports, prints",
    r"\b(stands?|stood) (beside|behind|before|for|in|at|there)\b": "is, is in",
    r"\bheld (to|against)\b": "tested against",
    r"\b(go|goes|gone|went) on\b": "continue, resume",
    r"\bof (one's|its|their|our) own\b": "own, separate",
    r"\b(so|as) many\b(?! as)": "N, the same number of",
    r"\b(alike|anew|nobody|somebody)\b": "the same, again, no one",
    r"\bone (can|may|has|wants|who)\b": "you can",
    r"\b(of|by|for|with) what (is|was|it|they|has|one|stands|comes|makes)\b": "a noun",
}
SKIPPED = {"CHANGELOG.md", "prose.py"}


def list_texts(path: Path):
    """(line number, line) of a page's prose, or of a module's strings and comments."""
    source = path.read_text()
    if path.suffix == ".md":
        code = re.compile(r"```.*?```", re.DOTALL)
        source = code.sub(lambda match: "\n" * match[0].count("\n"), source)
        yield from enumerate(source.splitlines(), 1)
        return
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if tokenize.tok_name[token.type] in ("COMMENT", "STRING", "FSTRING_MIDDLE"):
            yield from enumerate(token.string.splitlines(), token.start[0])


if __name__ == "__main__":
    paths = [*ROOT.glob("*.md")]
    for folder in ("jaxpt", "docs", "configs"):
        paths += [p for end in ("md", "py") for p in (ROOT / folder).rglob(f"*.{end}")]
    results = [
        f'{path.relative_to(ROOT)}:{number}: "{match[0]}": better: {better}'
        for path in sorted(p for p in paths if p.name not in SKIPPED)
        for number, text in list_texts(path)
        for phrase, better in PHRASES.items()
        if (match := re.search(phrase, text))
        and "prose: ok" not in path.read_text().splitlines()[number - 1]
    ]
    print(*results, sep="\n", end="")
    sys.exit(bool(results))
