"""Draws docs/architecture.svg: the subpackages by layer, and the flow of data.

    .venv/bin/python docs/architecture.py

A layer imports only layers below it. tests/test_imports.py checks that the layers have
all subpackages in order, and that the picture is up to date.
"""

import html
from pathlib import Path

# From the highest to the lowest: what a layer is for, and its subpackages.
LAYERS = (
    ("entry points", "cli api"),
    ("comparisons and reports", "comparison external report finetuning"),
    ("runs", "hub training runs config"),
    ("measurements", "tasks zero_shot evaluation"),
    ("objectives and networks", "objectives learn nn ops"),
    ("text and statistics", "text languages judge"),
    ("foundations", "files distributed"),
)
# The flow of data: steps on the host, and those inside one compiled step.
HOST = ("documents", "tokenizer", "rows", "store", "feed[step]")
COMPILED = ("corrupt", "masks", "network", "loss", "update")
AFTER = ("checkpoint", "evaluation", "report", "export")

WIDTH, ROW, GAP, LEFT = 940, 46, 10, 210
STYLE = (
    "text{font:15px system-ui,sans-serif;fill:#1f2937}.n{fill:#6b7280}"
    ".m{font-family:ui-monospace,monospace;font-size:14px}"
    "rect{fill:#eef2ff;stroke:#6366f1}.d rect{fill:#ecfdf5;stroke:#10b981}"
    ".c rect{fill:#fef3c7;stroke:#d97706}path{stroke:#6b7280;fill:none}"
    "@media(prefers-color-scheme:dark){text{fill:#e5e7eb}.n{fill:#9ca3af}"
    "rect{fill:#1e1b4b}.d rect{fill:#052e21}.c rect{fill:#3b2405}}"
)


def box(x: float, y: float, width: float, text: str, group: str = "") -> str:
    """A rectangle with a centred text."""
    return (
        f'<g class="{group}"><rect x="{x:g}" y="{y:g}" width="{width:g}" '
        f'height="{ROW - 8}" rx="6"/><text class="m" text-anchor="middle" '
        f'x="{x + width / 2:g}" y="{y + 24:g}">{html.escape(text)}</text></g>'
    )


def boxes(y: float, names, group: str = "", arrows: bool = False) -> list[str]:
    """A row of equal boxes, optionally with arrows between them."""
    gap = 26 if arrows else GAP
    width = (WIDTH - LEFT - 20 - gap * (len(names) - 1)) / len(names)
    parts = []
    for i, name in enumerate(names):
        x = LEFT + i * (width + gap)
        parts.append(box(x, y, width, name, group))
        if arrows and i:
            end, middle = x - 4, y + (ROW - 8) / 2
            parts.append(
                f'<path d="M{x - gap + 3:g} {middle:g}H{end:g}m-5-4l5 4l-5 4"/>'
            )
    return parts


def label(y: float, text: str) -> str:
    """The name of a row, on its left."""
    return f'<text class="n" x="16" y="{y + 24:g}">{html.escape(text)}</text>'


def draw() -> str:
    """The picture as SVG."""
    parts, y = [], 52
    title = "Subpackages: imports go down only"
    parts.append(f'<text x="16" y="30" font-weight="600">{title}</text>')
    for name, packages in LAYERS:
        parts += [label(y, name), *boxes(y, packages.split())]
        y += ROW
    y += 44
    parts.append(f'<text x="16" y="{y - 14}" font-weight="600">Flow of data</text>')
    for name, steps, group in (
        ("on the host", HOST, "d"),
        ("one compiled step", COMPILED, "c"),
        ("after training", AFTER, "d"),
    ):
        parts += [label(y, name), *boxes(y, steps, group, arrows=True)]
        y += ROW
    head = (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {y + 8}" '
        f'role="img"><title>Architecture of jaxpt</title><style>{STYLE}</style>'
    )
    return "\n".join([head, *parts, "</svg>", ""])


if __name__ == "__main__":
    Path(__file__).with_suffix(".svg").write_text(draw())
