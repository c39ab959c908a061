"""Writes a static site of interactive demos of runs (`jaxpt applet`).

The page is built from `web/` and is stored in `static/`. Models and onnxruntime's
WebAssembly (`runtime`) are scripts with base64 text. So the site works from any file
server and from a local disk, offline, where browsers let a page read no other files.
"""

import base64
import gzip
import json
import zlib
from collections.abc import Sequence
from pathlib import Path

from jaxpt.files import checksums
from jaxpt.files.folder import new_folder
from jaxpt.hub import onnx_files
from jaxpt.hub.applets.examples import choose_examples
from jaxpt.hub.applets.runtime import load_runtime, read_runtime
from jaxpt.hub.files import write_file
from jaxpt.hub.onnx_export import make_graphs, make_onnx_json
from jaxpt.runs.first_seeds import list_first_seeds
from jaxpt.runs.workdir import LoadedRun, load_run, load_task

STATIC = Path(__file__).parent / "static"
PAGE = ("app.js", "style.css", "LICENSES.txt", "index.html")
RUNTIME = STATIC / "runtime.json"
# A script's share of a file: browsers limit the length of one text.
PART = 24_000_000
NUM_EXAMPLES = 6


def write_site(
    workdirs: Sequence[Path],
    folder: Path,
    precision: str = "float32",
    runtime: str = "",
) -> list[str]:
    """Writes a site of the runs' newest checkpoints.

    Args:
      workdirs: of runs, or of a comparison, of which the runs of the first seed are
        used.
      precision: of the graphs, one of `jaxpt.hub.onnx_files.PRECISIONS`.
      runtime: the file of onnxruntime's WebAssembly, or of its npm package; "" is the
        cache or the npm registry (`jaxpt.hub.applets.runtime`).

    Returns:
      Lines to print: each model with its size and its difference from JAX, and where
      the page is.
    """
    onnx_files.require(precision)
    with new_folder(folder) as place:
        return _write_site(workdirs, folder, place, precision, runtime)


def _write_site(
    workdirs: Sequence[Path], folder: Path, place: Path, precision: str, source: str
) -> list[str]:
    """Writes the content of a folder to another place."""
    files: dict[str, bytes] = {}
    manifests, lines = [], []
    folders = list_first_seeds(workdirs)
    for workdir in folders.values():
        load_task(workdir)  # rejects other folders before the download
    packed = gzip.compress(load_runtime(read_runtime(RUNTIME), source), mtime=0)
    files["runtime.js"] = _write_script("runtime.js", packed)
    for name, workdir in folders.items():
        manifest, scripts = _make_model(load_run(workdir), workdir, name, precision)
        files |= scripts
        manifests.append(manifest)
        size = sum(graph["bytes"] for graph in manifest["graphs"].values())
        lines.append(
            f"{name}: {manifest['kind']} model of {manifest['parameters']:,} "
            f"parameters, {size / 1e6:.1f} MB; probabilities differ from JAX's by at "
            f"most {manifest['probability_difference']:.1e}, the likeliest token is "
            f"the same at {manifest['same_best']:.2%} of positions"
        )
        if not manifest.pop("own_examples"):  # only for this line
            lines.append(
                f"{name}: its examples are general sentences, as its held-out text is "
                f"missing or has too few sentences of a length that it reads"
            )
    manifests.sort(key=_count_purposes)
    models = json.dumps(manifests, separators=(",", ":"))
    files["models.js"] = f"window.jaxptModels = {models};\n".encode()
    files |= {name: (STATIC / name).read_bytes() for name in PAGE}
    for name, data in files.items():
        write_file(place, name, data)
    checksums.record_tree(place)
    size = sum(map(len, files.values()))
    num = "1 model" if len(manifests) == 1 else f"{len(manifests)} models"
    lines.append(f"{folder / PAGE[-1]}: {num}, {size / 1e6:.1f} MB")
    return lines


def _make_model(
    run: LoadedRun, workdir: Path, name: str, precision: str
) -> tuple[dict, dict[str, bytes]]:
    """A run's manifest for the page, and the scripts of its graphs by path."""
    graphs = make_graphs(run, precision, attentions=True)
    files, scripts = {}, {}
    for graph, (data, _) in graphs.items():
        key = graph.removesuffix("_model")
        if "restorer" in graphs and key == "generator":
            key = "model"  # fills masks; the network that restores tokens sees none
        packed, parts = gzip.compress(data, mtime=0), []
        for i, start in enumerate(range(0, len(packed), PART)):
            path = f"models/{name}.{key}.{i:04d}.js"
            scripts[path] = _write_script(path, packed[start : start + PART])
            parts.append(path)
        files[key] = {"parts": parts, "bytes": len(data), "crc32": zlib.crc32(data)}
    examples = choose_examples(run, workdir, NUM_EXAMPLES)
    page_facts = {
        "name": name,
        "tokenizer": run.tokenizer.to_json(),
        "examples": examples.texts,
        "own_examples": examples.are_own,
        "graphs": files,
    }
    return make_onnx_json(run, graphs, precision) | page_facts, scripts


def _count_purposes(manifest: dict) -> int:
    """The number of applets with the model; an applet selects the most specific one."""
    is_electra = manifest["kind"] == "electra"
    return bool(manifest["writes"]) + bool(manifest["fills"]) + is_electra


def _write_script(path: str, packed: bytes) -> bytes:
    """A script that passes a file's compressed bytes to the page as text."""
    text = base64.b64encode(packed).decode()
    return f'window.jaxptPart({json.dumps(path)}, "{text}");\n'.encode()
