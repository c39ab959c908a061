"""Shows the doctests of docstrings as code; Markdown reads `>>>` as three quotations.

An extension of Griffe, which mkdocs.yml names.
"""

import re

import griffe

# A doctest with its output, up to an empty line.
DOCTEST = re.compile(r"^>>> .*(?:\n(?!\s*$).*)*", re.MULTILINE)


class Doctests(griffe.Extension):
    """Puts each doctest in a fence."""

    def on_object(self, *, obj, **kwargs) -> None:
        """Changes the docstring of an object when it is loaded."""
        if obj.docstring:
            text = obj.docstring.value
            obj.docstring.value = DOCTEST.sub(r"```pycon\n\g<0>\n```", text)
