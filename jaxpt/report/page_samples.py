"""Samples of each model's work on a report's page: the objectives side by side.

What a mark means is told by more than its colour, so that it can be read in print too.
"""

import html

from jaxpt.generation.samples import Piece, show_blank
from jaxpt.report.samples import FORMS, RULE


def build_samples(report: dict) -> str:
    """The page's section: the passages, and under each the objectives side by side."""
    taken = report["samples"]
    used = {form for of_name in taken.values() for form in of_name["forms"]}
    without = [name for name, of_name in taken.items() if not of_name["forms"]]
    parts = [f'<p class="soft">{RULE}</p>', _build_legend(used)]
    if without:
        names = html.escape(", ".join(without))
        parts.append(
            f'<p class="soft">{names}: no sample, as such a network neither writes nor '
            f"fills, or its rows are too short.</p>"
        )
    count = max(
        (len(own) for o in taken.values() for own in o["forms"].values()), default=0
    )
    for i in range(count):
        cards = [
            _build_card(name, form, of_passages[i])
            for name, of_name in taken.items()
            for form, of_passages in of_name["forms"].items()
            if i < len(of_passages)
        ]
        parts.append(f"<h3>Passage {i + 1}</h3>")
        parts.append(f'<div class="samples">{"".join(cards)}</div>')
    return "\n".join(parts)


def _build_legend(used: set[str]) -> str:
    """What each form shows, and how its marks are drawn."""
    hidden = "<b>e</b> hidden and written rightly; <del>a</del><ins>e</ins> a wrong "
    hidden += "token, struck out, before the true one"
    fakes = (
        "<mark>a</mark><ins>e</ins> a fake that was marked, before the true token; "
        "<i>a</i><ins>e</ins> a fake that was not marked; <u>a</u> no fake, but marked"
    )
    keys = dict.fromkeys(("spans", "rewriting", "fills"), hidden) | {"fakes": fakes}
    items = [
        f"<li><strong>{form.title}</strong>: {html.escape(form.text)}"
        + (f' <span class="passage">{keys[name]}</span>.' if name in keys else "")
        + "</li>"
        for name, form in FORMS.items()
        if name in used
    ]
    return f'<ul class="legend soft">{"".join(items)}</ul>'


def _build_card(name: str, form: str, pieces: list) -> str:
    title = f"{html.escape(name)} <span>{FORMS[form].title}</span>"
    text = "".join(_build_piece(Piece(*piece)) for piece in pieces)
    return f'<article><h4>{title}</h4><p class="passage">{text}</p></article>'


TAGS = {
    "right": "b",
    "wrong": "del",
    "written": "em",
    "caught": "mark",
    "missed": "i",
    "alarm": "u",
}


def _build_piece(piece: Piece) -> str:
    """A piece as HTML; kinds differ in more than their colours."""
    if piece.kind == "given":
        return html.escape(piece.text)
    if piece.kind == "truth":
        return f"<small>text: {html.escape(piece.text)}</small>"
    tag, own = TAGS[piece.kind], html.escape(show_blank(piece.text))
    own = f"<{tag}>{own}</{tag}>" if piece.text else ""
    truth = html.escape(show_blank(piece.truth))
    return f"{own}<ins>{truth}</ins>" if piece.truth else own


SAMPLES_STYLE = """
:root { --good: #12632b; --good-tint: #d9f2e0; --bad: #9a1c1c; --bad-tint: #fbe0e0; }
@media (prefers-color-scheme: dark) { :root { --good: #9be3b0; --good-tint: #163d23;
  --bad: #ffb3ad; --bad-tint: #4b1d1c; } }
.samples { display: grid; gap: .8rem; align-items: start; margin: .6rem 0 1.6rem;
  grid-template-columns: repeat(auto-fill, minmax(min(100%, 18rem), 1fr)); }
.samples article { background: var(--tint); border-radius: 6px; padding: .6rem .8rem;
  break-inside: avoid; min-width: 0; }
.samples h4 { margin: 0 0 .3rem; font-size: .95rem; overflow-wrap: anywhere; }
.samples h4 span { font-weight: 400; color: var(--soft); }
.samples p { margin: 0; }
.passage { white-space: pre-wrap; overflow-wrap: anywhere; }
.passage small { display: block; margin-top: .4rem; color: var(--soft); }
.passage em { font-style: normal; font-weight: 600; border-bottom: 2px solid; }
.passage b, .passage mark { color: var(--good); background: var(--good-tint);
  font-weight: 600; border-bottom: 2px solid; }
.passage del, .passage i { color: var(--bad); background: var(--bad-tint);
  font-style: normal; }
.passage i { border-bottom: 2px dotted; }
.passage u { text-decoration: underline wavy var(--bad); }
.passage ins { color: var(--soft); font-size: .75em; vertical-align: super;
  text-decoration: none; line-height: 0; }
.legend .passage { white-space: normal; }
@media print { :root { --good: #000; --bad: #000; --good-tint: #fff;
  --bad-tint: #fff; } .samples article { border: 1px solid var(--line); } }
"""
