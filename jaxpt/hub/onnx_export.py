"""Exports runs as folders of ONNX graphs for onnxruntime.

Next to the graphs are `tokenizer.json` and `model.json`, which has the special ids, the
ids around a text and the differences of the graphs from JAX.
"""

from pathlib import Path
from typing import NamedTuple

import jax

from jaxpt.errors import DataError
from jaxpt.files import checksums
from jaxpt.files.folder import new_folder
from jaxpt.hub import onnx_files
from jaxpt.hub.files import write_file, write_json
from jaxpt.hub.onnx_files import OutputDifference
from jaxpt.hub.onnx_graphs import list_graphs
from jaxpt.nn.networks.abilities import FillsMasks, name_writing
from jaxpt.nn.networks.electra import ElectraNetwork
from jaxpt.nn.networks.network import Network
from jaxpt.runs.random_parts import check_networks
from jaxpt.runs.workdir import LoadedRun, load_run
from jaxpt.text.tokens.exported import export_tokenizer

VERSION = 1
# The kind of a run by the heads of its networks; a causal one that reads ahead is
# "prefix".
KINDS = {
    ("causal",): "causal",
    ("masked",): "masked",
    ("pretraining",): "masked",
    ("generator", "discriminator"): "electra",
    ("generator", "masked"): "masked",
    ("seq2seq",): "seq2seq",
}


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
    description = make_model_json(run, graphs, precision) | {"version": VERSION}
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


def make_model_json(run: LoadedRun, graphs: dict[str, Written], precision: str) -> dict:
    """The content of model.json: how to run the graphs, as plain values."""
    task, tokenizer = run.program.task, run.tokenizer
    network, vocab, form = task.model, tokenizer.vocab, task.text_form
    parts = network.export_parts(run.params)
    # An encoder-decoder that fills gaps has its mode token before a text (UL2).
    before = form.opening if network.HAS_DECODER else form.before
    is_prefix = "causal" in parts and network.READS_AHEAD
    fills = isinstance(network, FillsMasks)
    has_decoder = network.HAS_DECODER
    size = task.model_spec.vocab_size
    differences = [written.difference for written in graphs.values()]
    names = [tokenizer.token_name(i) for i in range(vocab.size)]
    return {
        "objective": task.plan.objective_name,
        "kind": "prefix" if is_prefix else KINDS[tuple(parts)],
        "writes": name_writing(network),
        "fills": fills,
        # A causal head fills a mask from the position before it.
        "fill_offset": int(fills and "causal" in parts),
        "generation_prefix": "prompt" if is_prefix and not fills else "none",
        "fake_temperature": _find_fake_temperature(network),
        "parameters": _count_parameters(parts),
        "step": int(run.step),
        "precision": precision,
        "difference": max(each.scores for each in differences),
        "probability_difference": max(each.probabilities for each in differences),
        "same_best": min(each.same_best for each in differences),
        "max_length": task.model_spec.max_len,
        "vocab_size": size,
        "before": list(before),
        "after": list(form.after),
        "start": vocab.start if has_decoder else None,
        "first": form.first,
        "last": form.last if has_decoder else None,
        "ends": list(form.ends),
        "banned": [int(i) for i in task.find_banned(has_decoder)],
        "nonwords": [int(i) for i in task.nonwords],
        "mask": vocab.mask,
        "sentinels": list(vocab.sentinels) if task.has_sentinels else [],
        "has_types": task.model_spec.num_types > 1,
        "tokens": names + [f"<unused {i}>" for i in range(len(names), size)],
        "word_starts": "".join("01"[is_start] for is_start in vocab.word_starts),
    }


def _find_fake_temperature(network: Network) -> float:
    """The temperature of a generator's samples in the training of ELECTRA."""
    return network.temperature if isinstance(network, ElectraNetwork) else 1.0


def _count_parameters(parts: dict) -> int:
    """Counts the parameters of all networks; shared ones count once."""
    leaves = jax.tree.leaves([params for _, params in parts.values()])
    return sum(int(leaf.size) for leaf in {id(leaf): leaf for leaf in leaves}.values())
