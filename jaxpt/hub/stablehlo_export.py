"""Exports runs as StableHLO functions that JAX runs without jaxpt.

    model.jax_export     the function, of `jax.export`, for any batch size and length
    model.safetensors    its first argument: the parameters by name, float32
    tokenizer.json       for tokenizers
    model.json           special ids, ids around a text, inputs and outputs
    README.md            how to load it, and how it was trained

The parameters are an argument, not constants: a serialized function has at most 2 GiB
(a limit of FlatBuffers, as of protobuf), safetensors has no limit, and the functions of
a run with several networks share them. A matrix product has the precision "highest",
so that GPUs and TPUs compute in float32, too.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import jax
import numpy as np
from flax.traverse_util import flatten_dict, unflatten_dict
from jax import export

from jaxpt import optional
from jaxpt.errors import DataError
from jaxpt.files import checksums
from jaxpt.files.folder import new_folder
from jaxpt.hub.card import TASKS, Card, format_card
from jaxpt.hub.export import list_facts, name_data
from jaxpt.hub.files import write_file, write_json, write_tensors
from jaxpt.hub.graphs import BATCH, LENGTH, SOURCE, Graph, list_graphs
from jaxpt.hub.model_json import VERSION, make_model_json
from jaxpt.hub.origin import read_base_model
from jaxpt.nn.networks.network import Network
from jaxpt.runs.random_parts import check_networks
from jaxpt.runs.result import load_result
from jaxpt.runs.workdir import LoadedRun, load_run
from jaxpt.text.tokens.exported import export_tokenizer

PLATFORMS = ("cpu", "cuda", "tpu")
SUFFIX = ".jax_export"
# Allowed difference from the run's own function, over the largest output or 1.
TOLERANCE = 1e-5
CHECK_LENGTH = 7  # tokens; the longest text that the network reads is checked, too

Tensors = dict[str, Any]


class CheckedFunction(NamedTuple):
    """A function that is exported, and its difference from the run's."""

    graph: Graph
    exported: export.Exported
    difference: float


def export_stablehlo(workdir: Path, folder: Path) -> list[str]:
    """Writes a run's newest checkpoint as functions that JAX runs without jaxpt.

    Returns:
      Lines to print: each file, its size and its difference from the run.
    """
    optional.check("flatbuffers", "stablehlo", "a StableHLO function")
    with new_folder(folder) as place:
        return _export(workdir, folder, place)


def _export(workdir: Path, folder: Path, place: Path) -> list[str]:
    """Writes the content of a folder to another place."""
    run = load_run(workdir)
    check_networks(run.program.task, "StableHLO")
    tensors, functions = make_functions(run)
    description = make_model_json(run) | {
        "version": VERSION,
        "platforms": list(PLATFORMS),
        "functions": {name: _describe(each) for name, each in functions.items()},
    }
    lines = []
    for name, written in functions.items():
        data = written.exported.serialize()
        write_file(place, name + SUFFIX, bytes(data))
        lines.append(
            f"{folder / name}{SUFFIX}: {len(data) / 1e6:.1f} MB for "
            f"{', '.join(PLATFORMS)}; outputs differ from the run's by at most "
            f"{written.difference:.1e}"
        )
    write_tensors(place, tensors, max_shard_bytes=1 << 62)
    export_tokenizer(
        run.tokenizer, place / "tokenizer.json", run.program.task.text_form
    )
    write_json(place, "model.json", description)
    card = make_card(run, workdir, folder.name, functions)
    write_file(place, "README.md", format_card(card).encode())
    checksums.record_tree(place)
    kind, size = description["kind"], f"{description['parameters']:,}"
    return [*lines, f"{folder}: {kind} model of {size} parameters"]


def make_functions(run: LoadedRun) -> tuple[Tensors, dict[str, CheckedFunction]]:
    """The parameters by name, and the functions by the names of their files."""
    network = run.program.task.model
    graphs = list_functions(network, run.params)
    if not graphs:
        raise DataError(
            f"StableHLO: a {run.program.task.plan.objective_name} run has no "
            "Transformer; only these are exported"
        )
    tensors = {
        name: np.asarray(tensor)
        for name, tensor in flatten_dict(run.params, sep="/").items()
    }
    # Parameters that only training reads (other heads) are left out.
    used = {name for graph in graphs for name in _list_used(network, graph, tensors)}
    tensors = {name: tensors[name] for name in sorted(used)}
    functions = {}
    for graph in graphs:
        exported = convert(network, graph, tensors)
        functions[graph.name] = CheckedFunction(
            graph, exported, check(graph, exported, tensors)
        )
    return tensors, functions


def list_functions(network: Network, params: Any) -> list[Graph]:
    """The graphs of a run; an encoder and a decoder are one function."""
    graphs = list_graphs(network, params)
    return [_join(*graphs)] if network.HAS_DECODER else graphs


def _join(encoder: Graph, decoder: Graph) -> Graph:
    """The function of both stacks: the logits of what a decoder reads."""

    def run(ids: Any, attention_mask: Any, decoder_ids: Any) -> tuple[Any, ...]:
        (states,) = encoder.run(ids, attention_mask)
        return decoder.run(decoder_ids, states, attention_mask)

    inputs: dict[str, tuple[str | int, ...]] = {
        "input_ids": (BATCH, SOURCE),
        "attention_mask": (BATCH, SOURCE),
        "decoder_input_ids": (BATCH, LENGTH),
    }
    return Graph("model", run, inputs, decoder.outputs, decoder.spec)


def make_function(network: Network, graph: Graph) -> Callable[..., dict[str, Any]]:
    """A graph as a function of the parameters by name and of its inputs."""

    def run(weights: Tensors, *inputs: Any) -> dict[str, Any]:
        params = unflatten_dict(weights, sep="/")
        graphs = {each.name: each for each in list_functions(network, params)}
        outputs = graphs[graph.name].run(*inputs)
        return dict(zip(graph.outputs, outputs, strict=True))

    return run


def convert(network: Network, graph: Graph, tensors: Tensors) -> export.Exported:
    """Exports a graph for any batch size and length, and for all platforms."""
    axes = {axis for each in graph.inputs.values() for axis in each}
    limits = [f"{axis} <= {graph.spec.max_len}" for axis in sorted(axes - {BATCH})]
    scope = export.SymbolicScope(limits)
    inputs = [
        jax.ShapeDtypeStruct(
            export.symbolic_shape(f"({', '.join(map(str, shape))},)", scope=scope),
            np.int32,
        )
        for shape in graph.inputs.values()
    ]
    function = jax.jit(make_function(network, graph))
    with jax.default_matmul_precision("highest"):
        return export.export(function, platforms=PLATFORMS)(_shapes(tensors), *inputs)


def _list_used(network: Network, graph: Graph, tensors: Tensors) -> list[str]:
    """The parameters that a graph reads; JAX finds them for fixed shapes alone."""
    drawn = graph.draw_inputs(np.random.default_rng(0), 1).values()
    inputs = [jax.ShapeDtypeStruct(each.shape, np.int32) for each in drawn]
    function = jax.jit(make_function(network, graph))
    exported = export.export(function)(_shapes(tensors), *inputs)
    names = sorted(tensors)  # as JAX orders a dict
    return [names[i] for i in exported.module_kept_var_idx if i < len(names)]


def _shapes(tensors: Tensors) -> dict[str, jax.ShapeDtypeStruct]:
    return {n: jax.ShapeDtypeStruct(x.shape, x.dtype) for n, x in tensors.items()}


def check(graph: Graph, exported: export.Exported, tensors: Tensors) -> float:
    """The largest difference from the run's function, which is refused if it is large.

    Both run on the machine's own platform. Texts have several lengths and padding.
    """
    loaded = export.deserialize(exported.serialize())
    rng, worst = np.random.default_rng(0), 0.0
    longest = graph.longest_check
    for length in (min(CHECK_LENGTH, longest), longest):
        inputs = [
            np.asarray(each, np.int32)
            for each in graph.draw_inputs(rng, length).values()
        ]
        with jax.default_matmul_precision("highest"):
            expected = jax.jit(graph.run)(*inputs)
        outputs = loaded.call(tensors, *inputs)
        for name, reference in zip(graph.outputs, expected, strict=True):
            difference = float(np.max(np.abs(outputs[name] - reference)))
            scale = max(1.0, float(np.max(np.abs(reference))))
            if not difference <= TOLERANCE * scale:  # NaN, too
                raise DataError(
                    f"StableHLO: {graph.name}{SUFFIX} is wrong: {name} differs from "
                    f"the run's by {difference:.1e}"
                )
            worst = max(worst, difference)
    return worst


def _describe(written: CheckedFunction) -> dict[str, Any]:
    """The arguments of a function after the parameters, in order, and its outputs."""
    graph = written.graph
    return {
        "inputs": [
            {"name": name, "shape": list(shape)} for name, shape in graph.inputs.items()
        ],
        "outputs": list(graph.outputs),
        "difference": written.difference,
    }


def make_card(
    run: LoadedRun, workdir: Path, name: str, functions: Mapping[str, CheckedFunction]
) -> Card:
    """The model card, with a program that loads each function."""
    task, result = run.program.task, load_result(workdir)
    heads = list(task.model.export_parts(run.params))
    data = name_data(task.plan.text)
    notes = _list_notes(heads, task.model, functions)
    return Card(
        title=f"{task.plan.objective_name} pretrained with jaxpt, as StableHLO",
        name=name,
        task=TASKS[heads[-1]],
        data=data,
        facts=list_facts(
            task, result, ", ".join(heads), int(run.step), (), notes, data
        ),
        metrics=result["metrics"] if result else {},
        split="held-out text",
        base=read_base_model(workdir),
        tags=(task.plan.objective_name, "stablehlo"),
        library="jax",
        usage="\n\n".join(write_usage(each.graph) for each in functions.values()),
    )


def _list_notes(
    heads: Sequence[str], network: Network, functions: Mapping[str, CheckedFunction]
) -> list[str]:
    """Notes for users of the functions."""
    longest = max(each.graph.spec.max_len for each in functions.values())
    notes = [
        f"any batch size, 1 to {longest} tokens; texts are padded on the right, and "
        "attention_mask is 0 there",
        f"for {', '.join(PLATFORMS)}; all numbers are float32",
        "the parameters are an argument: change model.safetensors, not the function",
    ]
    if {"causal", "seq2seq"} & set(heads):
        notes.append(
            "no key-value cache: generation reads the whole text again for each token"
        )
    if "causal" in heads and network.READS_AHEAD:
        notes.append("prefix_lengths: leading tokens that attend to each other")
    return notes


def write_usage(graph: Graph) -> str:
    """A Python program, in Markdown, that loads a function and calls it."""
    sizes = {BATCH: 2, LENGTH: 3, SOURCE: 3}
    values = {}
    for name, axes in graph.inputs.items():
        shape = [axis if isinstance(axis, int) else sizes[axis] for axis in axes]
        values[name] = _write_example(name, shape)
    lines = [f"{name} = np.array({value}, np.int32)" for name, value in values.items()]
    code = "\n".join(
        [
            "import numpy as np",
            "from jax import export",
            "from safetensors.numpy import load_file",
            "",
            'weights = load_file("model.safetensors")',
            f'with open("{graph.name}{SUFFIX}", "rb") as file:',
            "    model = export.deserialize(bytearray(file.read()))",
            *lines,
            f"outputs = model.call(weights, {', '.join(values)})",
            f'print(outputs["{graph.outputs[0]}"].shape)',
        ]
    )
    return f"```python\n{code}\n```"


def _write_example(name: str, shape: list[int]) -> str:
    """An input of two texts, the second of which is shorter, as Python code."""
    if name.endswith("input_ids"):
        values = np.arange(5, 5 + np.prod(shape)).reshape(shape)
    elif name.endswith("attention_mask"):
        values = np.ones(shape, int)
        values[-1, -1] = 0
    else:  # prefix_lengths, token_type_ids
        values = np.zeros(shape, int)
    return str(values.tolist())
