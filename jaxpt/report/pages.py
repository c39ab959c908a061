"""Renders HTML pages from the Jinja2 templates in templates/, with one style sheet.

Autoescape is on: only `Markup`, such as a chart of `jaxpt.report.charts`, is inserted
unescaped. A page is one file and loads nothing.
"""

import base64
from pathlib import Path
from typing import Any, NamedTuple

import jinja2
from markupsafe import Markup

ENVIRONMENT = jinja2.Environment(
    loader=jinja2.FileSystemLoader(Path(__file__).parent / "templates"),
    autoescape=True,
    undefined=jinja2.StrictUndefined,
    trim_blocks=True,
    lstrip_blocks=True,
    keep_trailing_newline=True,
)


class PageTable(NamedTuple):
    """A table for the macro `table`; its first `num_text` columns are text."""

    header: list[str]
    rows: list[list[str]]
    num_text: int = 1


def render(template: str, **values: Any) -> str:
    """A page of templates/, filled with values, which are escaped."""
    return ENVIRONMENT.get_template(template).render(values)


def call(template: str, macro: str, *values: Any, **named: Any) -> Markup:
    """A part of a page: the output of a macro of templates/, its values escaped."""
    return getattr(ENVIRONMENT.get_template(template).module, macro)(*values, **named)


def inline_picture(content: bytes) -> str:
    """An SVG as a data URI, in which no script runs and nothing is loaded."""
    return f"data:image/svg+xml;base64,{base64.b64encode(content).decode()}"
