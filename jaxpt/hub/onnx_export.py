"""Exports runs as folders of ONNX graphs for onnxruntime.

Next to the graphs are `tokenizer.json` and `model.json`, which has the special ids, the
ids around a text and the differences of the graphs from JAX.
"""

from pathlib import Path
from typing import NamedTuple

from jaxpt.errors import DataError
from jaxpt.files import checksums
from jaxpt.files.folder import new_folder
from jaxpt.hub import onnx_files
from jaxpt.hub.files import write_file, write_json
from jaxpt.hub.graphs import list_graphs
from jaxpt.hub.model_json import VERSION, make_model_json
from jaxpt.hub.onnx_files import OutputDifference
from jaxpt.runs.random_parts import check_networks
from jaxpt.runs.workdir import LoadedRun, load_run
from jaxpt.text.tokens.exported import export_tokenizer


class Written(NamedTuple):
    """The bytes of an ONNX file and its difference from JAX."""

    data: bytes
    difference: OutputDifference


def export_onnx(
    workdir: Path, folder: Path, precision: str = "float32", attentions: bool = False
) -> list[str]:
    """Writes a run's newest checkpoint as ONNX graphs, each checked against JAX.

    Args:
      precision: one of `PRECISIONS`.
      attentions: whether the graphs also return the attention weights of all heads.

    Returns:
      Lines to print: each file, its size and its difference from JAX.
    """
    onnx_files.require(precision)
    with new_folder(folder) as place:
        return _export(workdir, folder, place, precision, attentions)


def _export(
    workdir: Path, folder: Path, place: Path, precision: str, attentions: bool
) -> list[str]:
    """Writes the content of a folder to another place."""
    run = load_run(workdir)
    check_networks(run.program.task, "ONNX")
    graphs = make_graphs(run, precision, attentions)
    description = make_onnx_json(run, graphs, precision) | {"version": VERSION}
    lines = []
    for name, (data, difference) in graphs.items():
        write_file(place, f"{name}.onnx", data)
        size = f"{len(data) / 1e6:.1f} MB, {precision}"
        lines.append(f"{folder / name}.onnx: {size}; {difference}")
    export_tokenizer(
        run.tokenizer, place / "tokenizer.json", run.program.task.text_form
    )
    write_json(place, "model.json", description)
    checksums.record_tree(place)
    kind, size = description["kind"], f"{description['parameters']:,}"
    return [*lines, f"{folder}: {kind} model of {size} parameters"]


def make_graphs(
    run: LoadedRun, precision: str = "float32", attentions: bool = False
) -> dict[str, Written]:
    """Converts a run to ONNX files, by name, and checks each against JAX."""
    task = run.program.task
    graphs = list_graphs(task.model, run.params, attentions)
    if not graphs:
        raise DataError(
            f"ONNX: a {task.plan.objective_name} run has no Transformer; only "
            f"these are exported as graphs"
        )
    files = {}
    for graph in graphs:
        data = onnx_files.convert(graph, precision)
        files[graph.name] = Written(data, onnx_files.check(graph, data, precision))
    return files


def make_onnx_json(run: LoadedRun, graphs: dict[str, Written], precision: str) -> dict:
    """The content of model.json, with the differences of the graphs from JAX."""
    differences = [written.difference for written in graphs.values()]
    return make_model_json(run) | {
        "precision": precision,
        "difference": max(each.scores for each in differences),
        "probability_difference": max(each.probabilities for each in differences),
        "same_best": min(each.same_best for each in differences),
    }
