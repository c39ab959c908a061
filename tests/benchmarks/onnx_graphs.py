"""ONNX graphs beside JAX: how far apart, how large, how fast, here and in a browser.

    make test-onnx   # once, for an environment with jax2onnx
    .venv-onnx/bin/python tests/benchmarks/onnx_graphs.py
    .venv-onnx/bin/python tests/benchmarks/onnx_graphs.py --browser \\
        --workdir runs/applets/*

Without --workdir the models are families of 4 layers of 256 with a vocabulary of 8,192
and drawn parameters; else runs. Milliseconds are medians of reading
one text of a length once by all graphs of a model: a decoder reads as much as its
encoder. onnxruntime has all cores, the browser one; --browser needs Node, Chromium and
`npm ci` in web/.
"""

import argparse
import json
import statistics
import subprocess
import tempfile
import time
from pathlib import Path

import jax
import numpy as np

from jaxpt.hub import onnx_files
from jaxpt.hub.applets.site import write_site
from jaxpt.hub.graphs import LENGTH, SOURCE, list_graphs
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.nn.networks.encoder_decoder import EncoderDecoder
from jaxpt.nn.networks.one_stack import CausalLM, MaskedLM, PrefixLM
from jaxpt.nn.presets import PRESETS
from jaxpt.runs.first_seeds import list_first_seeds
from jaxpt.runs.workdir import load_run

WEB = Path(__file__).resolve().parents[2] / "web"
FAMILIES = {
    "gpt2": CausalLM,
    "bert-base": MaskedLM,
    "roberta-base": MaskedLM,
    "modern-base": MaskedLM,
    "llama-135m": PrefixLM,
    "t5-small": EncoderDecoder,
    "bart-base": EncoderDecoder,
}
SIZES = {
    "vocab_size": 8192,
    "num_layers": 4,
    "d_model": 256,
    "num_heads": 4,
    "d_ff": 1024,
    "max_len": 128,
    "head_dim": 0,
    "embedding_size": 0,
    "num_kv_heads": 0,
}
LENGTHS = (1, 16, 128)


def make_families():
    """Networks by name, with parameters far from zero."""
    for name, kind in FAMILIES.items():
        fields = PRESETS[name] | SIZES
        if fields.get("num_decoder_layers"):
            fields |= {"num_layers": 2, "num_decoder_layers": 2}
        network = kind(ModelSpec(**fields).direct(kind.READS_AHEAD))
        yield name, network, network.init_params(jax.random.key(0))


def read_runs(workdirs: list[Path]):
    """The runs' networks by name."""
    for name, folder in list_first_seeds(workdirs).items():
        run = load_run(folder)
        yield name, run.program.task.model, run.params


def time_calls(call, runs: int) -> float:
    """The median milliseconds of a call; the first is not counted."""
    call()
    times = []
    for _ in range(runs):
        begin = time.perf_counter()
        call()
        times.append(1000 * (time.perf_counter() - begin))
    return statistics.median(times)


def make_inputs(graph, length: int) -> dict[str, np.ndarray]:
    """One row of a length, whose decoder reads as much as its encoder."""
    rng, sizes = np.random.default_rng(0), {LENGTH: length, SOURCE: length}
    made = {}
    for name, axes in graph.inputs.items():
        shape = [a if isinstance(a, int) else sizes.get(a, 1) for a in axes]
        if name.endswith("states"):
            made[name] = rng.standard_normal(shape, np.float32)
        else:
            high = graph.spec.vocab_size if name == "input_ids" else 1
            made[name] = rng.integers(0, high, shape) + name.endswith("mask")
    return made


def measure(graphs, lengths, precision: str, runs: int) -> dict:
    """Sizes, differences and milliseconds of a model's graphs in one precision."""
    files = [onnx_files.convert(graph, precision) for graph in graphs]
    far = [
        onnx_files.check(g, d, precision) for g, d in zip(graphs, files, strict=True)
    ]
    sessions = [onnx_files.open_session(data) for data in files]
    result = {
        "megabytes": sum(map(len, files)) / 1e6,
        "scores": max(each.scores for each in far),
        "probabilities": max(each.probabilities for each in far),
        "same_best": min(each.same_best for each in far),
        "onnxruntime": [],
        "jax": [],
    }
    for length in lengths:
        rows = [make_inputs(graph, length) for graph in graphs]

        def run_onnx(rows=rows):
            for session, row in zip(sessions, rows, strict=True):
                session.run(None, row)

        result["onnxruntime"].append(time_calls(run_onnx, runs))
        if precision == "float32":
            calls = [
                (jax.jit(graph.run), [np.asarray(x, _narrow(x)) for x in row.values()])
                for graph, row in zip(graphs, rows, strict=True)
            ]

            def run_jax(calls=calls):
                for call, inputs in calls:
                    jax.block_until_ready(call(*inputs))

            result["jax"].append(time_calls(run_jax, runs))
    return result


def _narrow(x):
    return np.float32 if x.dtype == np.float32 else np.int32


def measure_in_browser(
    workdirs: list[Path], lengths, precision: str, runs: int
) -> dict:
    """Milliseconds by model, of `web/bench.mjs`."""
    with tempfile.TemporaryDirectory() as place:
        site = Path(place) / "site"
        write_site(workdirs, site, precision)
        command = ["node", "bench.mjs", site, ",".join(map(str, lengths)), str(runs)]
        done = subprocess.run(
            command, cwd=WEB, check=True, text=True, stdout=subprocess.PIPE
        )
    return json.loads(done.stdout)


def main() -> None:
    """Prints a row for each model and precision."""
    parser = argparse.ArgumentParser(
        "onnx_graphs",
        description=__doc__,
        formatter_class=argparse.RawTextHelpFormatter,
    )
    parser.add_argument("--workdir", type=Path, nargs="*", help="runs' folders")
    parser.add_argument("--browser", action="store_true")
    parser.add_argument("--runs", type=int, default=30)
    parser.add_argument("--json", type=Path, help="write what is found there, too")
    args = parser.parse_args()
    if args.browser and not args.workdir:
        parser.error("--browser needs --workdir")
    models = list(read_runs(args.workdir) if args.workdir else make_families())
    most = min(model.export_parts(p).popitem()[1][0].max_len for _, model, p in models)
    lengths = [length for length in LENGTHS if length < most] + [most]
    output = "/".join(map(str, lengths))
    print(f"milliseconds at lengths {output}")
    print(
        "| model | precision | MB | scores differ by | probabilities by | same token "
        "| JAX | onnxruntime | browser |\n|---|---|---|---|---|---|---|---|---|"
    )
    result: dict = {}
    for precision in onnx_files.PRECISIONS:
        seen = {}
        if args.browser:
            seen = measure_in_browser(args.workdir, lengths, precision, args.runs)
        for name, network, params in models:
            graphs = list_graphs(network, params, attentions=args.browser)
            made = measure(graphs, lengths, precision, args.runs)
            made["browser"] = seen.get(name, [])
            result[f"{name}/{precision}"] = made
            times = [
                " / ".join(f"{ms:.1f}" for ms in made[key])
                for key in ("jax", "onnxruntime", "browser")
            ]
            print(
                f"| {name} | {precision} | {made['megabytes']:.1f} "
                f"| {made['scores']:.1e} | {made['probabilities']:.1e} "
                f"| {made['same_best']:.2%} | {' | '.join(times)} |",
                flush=True,
            )
    if args.json:
        args.json.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
