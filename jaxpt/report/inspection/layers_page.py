"""The pictures and the page of an analysis: states, attention heads, a sentence."""

from pathlib import Path

import numpy as np

from jaxpt.files import disk
from jaxpt.report import charts
from jaxpt.report.charts import BOTTOM, TOP, place_chart
from jaxpt.report.drawing import Picture, document, grid, heat_map, show_token
from jaxpt.report.pages import PageTable, inline_picture, render

NAME = "analysis.html"
CAPTIONS = {
    "cka": (
        "Debiased linear CKA between the states of the same tokens: 1 means equal up "
        "to rotation, scale and shift; 0 means nothing in common. Layer 0 is the input "
        "of the first layer. An encoder-decoder is represented by its encoder, ELECTRA "
        "by the discriminator, a distillation by the student."
    ),
    "contextuality": (
        "Self-similarity is the mean cosine between states of the same token in "
        "different rows. Anisotropy, the mean cosine of any two states of different "
        "rows, is its value if tokens had no meaning, and is subtracted. If it is near "
        "1, all states are nearly equal and the remainder is not informative."
    ),
    "heads": (
        "The mean attention weight of each head on the query's own token, its "
        "neighbours, the row's first token, special tokens and punctuation; kinds "
        "overlap. The line 'even' is a head with equal weights on all visible tokens. "
        "A number in brackets marks a positional head: at least 90 % of its queries "
        "have their largest weight at that offset. In cross-attention, 'self' is the "
        "source token that is to be written."
    ),
    "attention": "The weights of the chosen head on the sentence.",
    "rollout": (
        "Attention rollout: the share of each token in each position of the last "
        "layer, by the mean of the heads, with the residual stream counted as half."
    ),
}
WORDS = {
    "self": "self-attention",
    "dec_self": "the decoder's self-attention",
    "cross": "cross-attention",
}
KINDS = ("self", "previous", "next", "first", "special", "punctuation")
PANELS = {
    "adjusted": "self-similarity less anisotropy (low: states depend on context)",
    "anisotropy": "anisotropy, the mean cosine of any two states",
    "max_explained_variance": "max explained variance (high: a static vector would do)",
}


def draw(result: dict, folder: Path) -> dict[str, str]:
    """Writes the pictures of analysis.json's numbers; returns file names by picture."""
    figures = {"cka": draw_cka(result), "contextuality": draw_contextuality(result)}
    if any(run["attention"] for run in result["runs"]):
        figures["heads"] = draw_heads(result)
    if "sentence" in result:
        for method in ("attention", "rollout"):
            figures[method] = draw_sentence(result["sentence"]["maps"], method)
    for name, picture in figures.items():
        label = f"{name} of {', '.join(run['name'] for run in result['runs'])}"
        text = document(picture, label, len(result["runs"]))
        disk.replace(folder / f"{name}.svg", text.encode())
    return {name: f"{name}.svg" for name in figures}


def draw_cka(result: dict) -> Picture:
    """Debiased CKA of every layer of every run with every other, in blocks by run."""
    values = np.nan_to_num(np.array(result["cka"]["debiased"], float))
    names = [
        f"{run['name']} {layer}"
        for run in result["runs"]
        for layer in range(run["num_layers"] + 1)
    ]
    sizes = [run["num_layers"] + 1 for run in result["runs"]]
    edges = np.cumsum(sizes)[:-1].tolist()
    title = "debiased linear CKA of the layers' states (0: embeddings)"
    splits = [(edge, edge) for edge in edges]
    return heat_map(title, values, names, names, 22.0, splits, has_numbers=True)


def draw_contextuality(result: dict) -> Picture:
    """Self-similarity less anisotropy, anisotropy, and explained variance by layer."""
    runs = {run["name"]: run for run in result["runs"]}
    panels = []
    for key, title in PANELS.items():
        lines = {
            name: [None if x[key] is None else x[key] for x in run["contextuality"]]
            for name, run in runs.items()
        }
        known = [v for line in lines.values() for v in line if v is not None]
        deepest = max(len(line) for line in lines.values()) - 1
        x = charts.make_layer_axis(deepest)
        y = charts.make_axis([0.0, 0.1, *known], "", "{:g}".format, BOTTOM, TOP)
        chart = charts.draw_lines(lines, x, y, f"{title} of {', '.join(runs)}")
        panels.append(place_chart(chart, title))
    return grid(panels, 2)


def draw_heads(result: dict) -> Picture:
    """A row of cells for each head: its shares, and its entropy relative to even."""
    blocks = [
        _draw_block(run["name"], kind, heads)
        for run in result["runs"]
        for kind, heads in run["attention"].items()
    ]
    return grid(blocks, min(3, len(blocks)))


def _draw_block(name: str, kind: str, heads: dict) -> Picture:
    num_layers, num_heads = np.shape(heads["entropy"])
    cells = [np.ravel(heads["shares"][key]) for key in KINDS]
    # Entropy is shown as a share of that of even attention.
    most = max(heads["even"]["entropy"], 1e-9)
    cells.append(np.ravel(heads["entropy"]) / most)
    even = [heads["even"][key] for key in KINDS] + [1.0]
    labels = []
    for layer in range(num_layers):
        for head in range(num_heads):
            offset = heads["offset"][layer][head]
            mark = f" [{offset:+d}]" if heads["is_positional"][layer][head] else ""
            labels.append(f"{layer + 1}.{head + 1}{mark}")
    title = f"{name}\n{WORDS[kind]}, layer.head"
    table, columns = [*np.array(cells).T, even], [*KINDS, "entropy / even"]
    return heat_map(title, table, [*labels, "even"], columns, 22.0, has_numbers=True)


def draw_sentence(maps: list[dict], method: str) -> Picture:
    """A sentence's attention, or its rollout: queries down, keys across.

    Shades are of the square root of the weights, as most of them are small.

    Args:
      maps: of analysis.json's "sentence".
      method: "attention" or "rollout".
    """
    panels = []
    for run in maps:
        tokens = [show_token(token) for token in run["tokens"]]
        dec_tokens = [show_token(token) for token in run["dec_tokens"]]
        if method == "rollout":
            panels.append((f"{run['name']}\nrollout", run["rollout"], tokens, tokens))
            continue
        head = f"head {run['head']}" if run["head"] else "mean of heads"
        for kind, weights in run["weights"].items():
            title = f"{run['name']}: {WORDS[kind]}\nlayer {run['layer']}, {head}"
            queries = tokens if kind == "self" else dec_tokens
            keys = dec_tokens if kind == "dec_self" else tokens
            panels.append((title, weights, queries, keys))
    drawn = [
        heat_map(title, np.sqrt(weights), queries, keys, axes=("query", "key"))
        for title, weights, queries, keys in panels
    ]
    return grid(drawn, min(3, len(drawn)))


def write_page(result: dict, folder: Path) -> Path:
    """Writes analysis.html.

    Raises:
      OSError: it cannot be written.
    """
    path = folder / NAME
    disk.replace(path, build_page(result, folder).encode())
    return path


def build_page(result: dict, folder: Path) -> str:
    """The page as HTML."""
    names = ", ".join(run["name"] for run in result["runs"])
    rows = [row for run in result["runs"] for row in list_heads(run)]
    length = result["row_length"]
    header = ["run", "attention", "layer.head", *KINDS, "entropy", "looks most at"]
    return render(
        "analysis.html",
        title=f"Layers and attention heads of {names}",
        text=f"{result['rows']} rows of {length} tokens; {result['text']}",
        pictures=[
            (name, inline_picture(disk.read(folder / file)), CAPTIONS[name])
            for name, file in result["figures"].items()
        ],
        states=_tabulate_states(result),
        heads=PageTable(header, rows, 2),
        without_attention=[r["name"] for r in result["runs"] if not r["attention"]],
    )


def _tabulate_states(result: dict) -> PageTable:
    header = ["run", "layer", "self-similarity", "anisotropy", "adjusted", "MEV"]
    keys = ("self_similarity", "anisotropy", "adjusted", "max_explained_variance")
    rows = [
        [run["name"], str(layer), *(_format(values[key]) for key in keys)]
        for run in result["runs"]
        for layer, values in enumerate(run["contextuality"])
    ]
    return PageTable(header, rows)


def format_states(result: dict) -> list[str]:
    """The terminal's table: how contextual the states of each layer are."""
    header = f"{'run':24s} layer  self-similarity  anisotropy  adjusted  explained"
    return [header] + [
        f"{name:24s} {layer:>5s} {'   '.join(f'{cell:>10s}' for cell in cells)}"
        for name, layer, *cells in _tabulate_states(result).rows
    ]


def list_heads(run: dict) -> list[list[str]]:
    """A row of text for each head of a run, and one for an even head."""
    rows = []
    for kind, heads in run["attention"].items():
        for layer, entropies in enumerate(heads["entropy"]):
            for head, entropy in enumerate(entropies):
                shares = [heads["shares"][key][layer][head] for key in KINDS]
                offset = heads["offset"][layer][head]
                share = heads["offset_share"][layer][head]
                where = f"{offset:+d} ({share:.0%})"
                if heads["is_positional"][layer][head]:
                    where += " positional"
                cells = [_format(x) for x in (*shares, entropy)]
                number = f"{layer + 1}.{head + 1}"
                rows.append([run["name"], WORDS[kind], number, *cells, where])
        even = [_format(heads["even"][key]) for key in (*KINDS, "entropy")]
        rows.append([run["name"], WORDS[kind], "even", *even, ""])
    return rows


def _format(value: float | None) -> str:
    return "" if value is None else f"{value:.3f}"
