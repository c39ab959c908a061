"""The page of an analysis: pictures, and tables of states and attention heads."""

from pathlib import Path

from jaxpt.files import disk
from jaxpt.report.analysis_plots import KINDS, WORDS
from jaxpt.report.pages import Table, inline_png, render

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
            (name, inline_png((folder / file).read_bytes()), CAPTIONS[name])
            for name, file in result["figures"].items()
        ],
        states=_tabulate_states(result),
        heads=Table(header, rows, 2),
        without_attention=[r["name"] for r in result["runs"] if not r["attention"]],
    )


def _tabulate_states(result: dict) -> Table:
    header = ["run", "layer", "self-similarity", "anisotropy", "adjusted", "MEV"]
    keys = ("self_similarity", "anisotropy", "adjusted", "max_explained_variance")
    rows = [
        [run["name"], str(layer), *(_format(values[key]) for key in keys)]
        for run in result["runs"]
        for layer, values in enumerate(run["contextuality"])
    ]
    return Table(header, rows)


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
