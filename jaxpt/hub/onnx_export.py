"""Exports runs as folders that onnxruntime needs nothing else for.

Beside the graphs lies `model.json`, which says what is put around a text, which ids are
special and how far the graphs are from JAX, and `tokenizer.json`.
"""

from pathlib import Path
from typing import NamedTuple

import jax

from jaxpt.errors import UserError
from jaxpt.files.folder import is_new
from jaxpt.hub import onnx_files
from jaxpt.hub.files import write_file, write_json
from jaxpt.hub.onnx_files import Difference
from jaxpt.hub.onnx_graphs import list_graphs
from jaxpt.nn.networks.abilities import FillsMasks, name_writing
from jaxpt.nn.networks.electra import ElectraNetwork
from jaxpt.nn.networks.network import Network
from jaxpt.text.tokens import tokenizer as tokenizers
from jaxpt.training.run_framing import find_frame, find_framing
from jaxpt.training.task import find_banned
from jaxpt.training.workdir import LoadedRun, load_run

VERSION = 1
# Of a run by the heads of its parts; a causal one that reads ahead is "prefix".
KINDS = {
    ("causal",): "causal",
    ("masked",): "masked",
    ("pretraining",): "masked",
    ("generator", "discriminator"): "electra",
    ("generator", "masked"): "masked",
    ("seq2seq",): "seq2seq",
}


class Written(NamedTuple):
    """A graph as a file.

    Attributes:
      data: its bytes.
      difference: from JAX.
    """

    data: bytes
    difference: Difference


def export_onnx(
    workdir: Path, folder: Path, precision: str = "float32", attentions: bool = False
) -> list[str]:
    """Writes a run's newest checkpoint as ONNX graphs, each held to JAX's numbers.

    Args:
      precision: one of `PRECISIONS`.
      attentions: the graphs give the weights of all heads, too.

    Returns:
      Lines to print: each file, its size and its difference from JAX.

    Raises:
      UserError: there is no run, it has no graph, a package is missing, or the folder
        is not empty or cannot be written.
    """
    onnx_files.require(precision)
    if not is_new(folder):
        raise UserError(f"--to={folder}: must be a new or an empty folder")
    run = load_run(workdir)
    graphs = make_graphs(run, precision, attentions)
    told = describe(run, graphs, precision) | {"version": VERSION}
    lines = []
    for name, (data, difference) in graphs.items():
        write_file(folder, f"{name}.onnx", data)
        size = f"{len(data) / 1e6:.1f} MB, {precision}"
        lines.append(f"{folder / name}.onnx: {size}; {difference}")
    tokenizers.export(
        run.tokenizer, folder / "tokenizer.json", find_framing(run.program.task)
    )
    write_json(folder, "model.json", told)
    lines.append(f"{folder}: {told['kind']} model of {told['parameters']:,} parameters")
    return lines


def make_graphs(
    run: LoadedRun, precision: str = "float32", attentions: bool = False
) -> dict[str, Written]:
    """The ONNX files of a run by name, each held to JAX's numbers.

    Raises:
      UserError: the run has none, or in float32 a graph gives other numbers than JAX.
    """
    task = run.program.task
    graphs = list_graphs(task.model, run.params, attentions)
    if not graphs:
        raise UserError(
            f"ONNX: a {task.plan.objective_name} run has no Transformer; only "
            f"these are written as graphs"
        )
    made = {}
    for graph in graphs:
        data = onnx_files.convert(graph, precision)
        made[graph.name] = Written(data, onnx_files.check(graph, data, precision))
    return made


def describe(run: LoadedRun, graphs: dict[str, Written], precision: str) -> dict:
    """What whoever runs the graphs must know, as plain values."""
    task, tokenizer = run.program.task, run.tokenizer
    network, vocab, framing = task.model, tokenizer.vocab, find_framing(task)
    parts = network.export_parts(run.params)
    # What fills gaps reads behind its mode token, where it has one (UL2).
    read = find_frame(task) if network.HAS_DECODER else None
    before, after = read or (framing.before, framing.after)
    is_prefix = "causal" in parts and network.READS_AHEAD
    fills = isinstance(network, FillsMasks)
    has_decoder = network.HAS_DECODER
    size = task.model_spec.vocab_size
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
        "difference": max(made.difference.scores for made in graphs.values()),
        "probability_difference": max(
            made.difference.probabilities for made in graphs.values()
        ),
        "same_best": min(made.difference.same_best for made in graphs.values()),
        "max_length": task.model_spec.max_len,
        "vocab_size": size,
        "before": list(before),
        "after": list(after),
        "start": vocab.start if has_decoder else None,
        "first": framing.first if has_decoder else None,
        "last": framing.last if has_decoder else None,
        "ends": list(framing.ends),
        "banned": [int(i) for i in find_banned(run.program.task, framing, has_decoder)],
        "nonwords": [int(i) for i in task.nonwords],
        "mask": vocab.mask,
        "sentinels": list(vocab.sentinels) if task.spec.needs.num_sentinels else [],
        "has_types": task.model_spec.num_types > 1,
        "tokens": names + [f"<unused {i}>" for i in range(len(names), size)],
        "word_starts": "".join("01"[is_start] for is_start in vocab.word_starts),
    }


def _find_fake_temperature(network: Network) -> float:
    """That of a generator's samples, as its discriminator has met them in training."""
    return network.temperature if isinstance(network, ElectraNetwork) else 1.0


def _count_parameters(parts: dict) -> int:
    """Those of all parts; what two of them share counts once."""
    leaves = jax.tree.leaves([own for _, own in parts.values()])
    return sum(int(leaf.size) for leaf in {id(leaf): leaf for leaf in leaves}.values())
