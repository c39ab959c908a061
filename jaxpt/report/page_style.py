"""The style sheet of the pages: light, dark, narrow and printed, and what is toggled.

The page has no script. A radio button or checkbox shows and hides by `:has()`; a
browser that does not know it shows the default view of each chart and no controls.
"""

from jaxpt.report.styles import choose_styles

STYLE = """
:root { color-scheme: light dark; --ink: #1c1e21; --paper: #fff; --soft: #5c636b;
  --line: #d8dce0; --tint: #f4f6f8; }
@media (prefers-color-scheme: dark) { :root { --ink: #e4e6e9; --paper: #16181b;
  --soft: #a0a7af; --line: #3a3f45; --tint: #202428; } }
body { margin: 2rem auto; padding: 0 1rem; max-width: 66rem; color: var(--ink);
  background: var(--paper); font: 16px/1.55 system-ui, sans-serif; }
h1 { line-height: 1.2; margin-bottom: 0; }
h2 { margin-top: 2.5rem; border-bottom: 1px solid var(--line); }
p, li, figcaption { max-width: 46rem; overflow-wrap: anywhere; }
.soft, figcaption { color: var(--soft); font-size: .9rem; }
.wide { overflow-x: auto; }
table { border-collapse: collapse; font-size: .875rem; margin-bottom: 1.2rem; }
th, td { padding: .35rem .7rem; text-align: right; white-space: nowrap;
  border-bottom: 1px solid var(--line); font-variant-numeric: tabular-nums; }
th { background: var(--tint); }
.text { text-align: left; }
figure { margin: 1.5rem 0 2.5rem; }
img { max-width: 100%; height: auto; background: #fff; border-radius: 6px; }
pre { overflow-x: auto; padding: 1rem; background: var(--tint); font-size: .8rem; }
"""

REPORT_STYLE = """
h1, h2, h3, summary { overflow-wrap: anywhere; }
h3 { margin: 1.8rem 0 .4rem; font-size: 1.05rem; }
a { color: inherit; }
nav { display: flex; flex-wrap: wrap; gap: .2rem 1.1rem; font-size: .9rem; }
summary { cursor: pointer; }
.verdicts { padding-left: 1.2rem; }
.answer { width: 100%; table-layout: fixed; }
.answer td, .answer th { white-space: pre-line; text-align: left; vertical-align: top;
  overflow-wrap: anywhere; }
.answer .who { font-weight: 600; }
.controls { display: none; flex-wrap: wrap; gap: .5rem 1.6rem; margin: .8rem 0; }
@supports selector(:has(a)) { .controls { display: flex; } }
fieldset { border: 0; padding: 0; margin: 0; min-width: 0; display: flex;
  flex-wrap: wrap; gap: .1rem .9rem; font-size: .9rem; }
legend { padding: 0; float: left; color: var(--soft); }
fieldset label { display: inline-flex; align-items: center; gap: .35rem;
  overflow-wrap: anywhere; }
fieldset input { margin: 0; accent-color: var(--ink); }
.swatch { width: 34px; height: 12px; flex: none; }
.panel:not(.default) { display: none; }
.plot { max-width: 52rem; overflow: hidden; }
.chart { display: block; width: 100%; height: auto; }
svg text { font: 12.5px system-ui, sans-serif; fill: var(--soft); }
svg .title, svg .name { fill: var(--ink); }
svg path { fill: none; stroke-linejoin: round; }
.grid { stroke: var(--line); }
.axis { stroke: var(--soft); }
.mean { stroke: var(--c); stroke-width: 2.4; stroke-dasharray: var(--d); }
.seed { stroke: var(--c); stroke-width: 1; opacity: .45; }
.fresh { stroke: var(--c); stroke-width: 1.3; stroke-dasharray: 6 4; }
.constant { stroke: var(--soft); stroke-width: 1.5; stroke-dasharray: 1 4; }
svg .band { fill: var(--c); opacity: .13; }
.thread { stroke: var(--soft); stroke-dasharray: 1 3; }
.front { stroke: var(--soft); stroke-width: 1.5; stroke-dasharray: 5 4; }
svg .dot { fill: var(--c, var(--ink)); stroke: var(--paper); stroke-width: .8; }
svg .small { fill: var(--c); opacity: .75; }
svg .hollow { fill: var(--paper); stroke: var(--ink); stroke-width: 1.6; }
.interval { stroke: var(--ink); stroke-width: 1.6; }
.margin { fill: var(--soft); opacity: .22; }
body:has([id^=show-]:not(:checked)) .front { display: none; }
.chart:has(.s:hover) .s:not(:hover) { opacity: .25; }
.forests .plot { max-width: none; }
.forest { width: 100%; }
.forest th, .forest td { padding: .1rem .6rem; }
.forest th:nth-child(2), .forest td:nth-child(2) { padding: 0; width: 36%; }
.forest svg { display: block; width: 100%; min-width: 220px; height: auto; }
.forest .text { white-space: normal; }
.forest .pair, .forest .outcome { width: 24%; overflow-wrap: anywhere; }
.forest td:nth-child(3), .forest .p { white-space: nowrap; }
.pictures { display: grid; gap: 1rem 1.5rem; align-items: start;
  grid-template-columns: repeat(auto-fit, minmax(min(100%, 24rem), 1fr)); }
.pictures figure { margin: .5rem 0 1rem; }
.pictures .broad { grid-column: 1 / -1; }
@media screen and (max-width: 45rem) {
  body { margin-top: 1rem; }
  h1 { font-size: 1.6rem; }
  /* The names are in the legend; the chart takes their room, and larger letters. */
  .curves .chart { width: 119%; }
  .curves .name, .thread { display: none; }
  .chart text { font-size: 17px; }
  .chart .title { font-size: 15px; }
  .answer thead { display: none; }
  .answer, .answer tbody, .answer tr, .answer td { display: block; }
  .answer tr { border-bottom: 1px solid var(--line); padding: .5rem 0; }
  .answer td { border: 0; padding: .1rem 0; }
  .answer td::before { content: attr(data-head) ": "; color: var(--soft);
    font-weight: 400; }
  .answer td:first-child { font-weight: 600; }
  .answer td:first-child::before { content: ""; }
  .forest, .forest thead, .forest tbody { display: block; }
  .forest td.pair, .forest td.outcome { width: auto; }
  .forest tr { display: grid; grid-template-columns: 1fr auto; padding: .35rem 0;
    border-bottom: 1px solid var(--line); }
  .forest th, .forest td { border: 0; padding: 0 .2rem; }
  .forest th.text:not(:first-child) { display: none; }
  .forest th:nth-child(2), .forest td:nth-child(2) { grid-column: 1 / 3; width: auto;
    order: 1; }
  .forest td:nth-child(3), .forest .p { order: 2; }
  .forest .p::before { content: "p "; }
  .forest td.outcome, .forest td.p { text-align: right; }
}
@media print {
  :root { color-scheme: light; --ink: #000; --paper: #fff; --soft: #444;
    --line: #ccc; --tint: #f4f4f4; }
  body { max-width: none; margin: 0; font-size: 11pt; }
  nav, .controls input, .forests .controls { display: none; }
  label:has([type=radio]:not(:checked)) { display: none; }
  .plot, figure, tr, .answer { break-inside: avoid; }
  h2, h3, .controls { break-after: avoid; }
  .wide { overflow: visible; }
  .wide table { font-size: 7pt; }
  .wide th, .wide td { white-space: normal; padding: .15rem .3rem; }
  .forests .panel { display: block !important; }
  .more::details-content { content-visibility: visible; display: block; }
}
"""

DASHES = ("none", "8 4", "2 3", "10 3 2 3")
DARK_PAPER = "#16181b"
LEAST_CONTRAST = 4.5


def make_rules(names: list[str], choices: dict[str, list[int]]) -> str:
    """The rules that depend on a report: colours, and what a control shows.

    Args:
      names: of the objectives, in the report's order.
      choices: for each section's id, how many values each of its groups of radio
        buttons has; the panel `v1-0` is of the second value of its first group and the
        first of its second, and the buttons are `{section}-{group}-{value}`.
    """
    colors = [color for color, _ in choose_styles(names).values()]
    light = "\n".join(
        f".o{i} {{ --c: {color}; --d: {DASHES[i % len(DASHES)]}; }}"
        for i, color in enumerate(colors)
    )
    dark = " ".join(f".o{i} {{ --c: {lighten(c)}; }}" for i, c in enumerate(colors))
    lines = [light, f"@media screen and (prefers-color-scheme: dark) {{ {dark} }}"]
    for i in range(len(names)):
        off = f"body:has(#show-{i}:not(:checked))"
        lines.append(
            f"{off} .s.o{i}, {off} .p{i} {{ display: none; }} "
            f"{off} label.o{i} {{ opacity: .4; }} "
            f"section:has(label.o{i}:hover) .s:not(.o{i}) {{ opacity: .2; }}"
        )
    for section, counts in choices.items():
        # The default is hidden only where another panel can be chosen.
        lines.append(
            f"@supports selector(:has(a)) {{ #{section} .panel {{ display: none; }} }}"
        )
        for place in _list_places(counts):
            chosen = "".join(
                f":has(#{section}-{group}-{value}:checked)"
                for group, value in enumerate(place)
            )
            view = "-".join(map(str, place))
            lines.append(f"#{section}{chosen} .v{view} {{ display: block; }}")
    return "\n".join(lines)


def _list_places(counts: list[int]) -> list[tuple[int, ...]]:
    places: list[tuple[int, ...]] = [()]
    for count in counts:
        places = [(*place, value) for place in places for value in range(count)]
    return places


def lighten(color: str) -> str:
    """The colour, mixed with white until it can be read on dark paper.

    >>> lighten("#ffffff"), lighten("#000000")
    ('#ffffff', '#808080')
    """
    red, green, blue = (int(color[i : i + 2], 16) for i in (1, 3, 5))
    for share in range(101):
        mixed = [part + (255 - part) * share / 100 for part in (red, green, blue)]
        found = "#" + "".join(f"{round(part):02x}" for part in mixed)
        if find_contrast(found, DARK_PAPER) >= LEAST_CONTRAST:
            break
    return found


def find_contrast(one: str, other: str) -> float:
    """The contrast of two colours as WCAG 2 defines it, from 1 to 21."""
    bright, dark = sorted((_find_luminance(one), _find_luminance(other)), reverse=True)
    return (bright + 0.05) / (dark + 0.05)


def _find_luminance(color: str) -> float:
    parts = [int(color[i : i + 2], 16) / 255 for i in (1, 3, 5)]
    linear = [
        p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]
