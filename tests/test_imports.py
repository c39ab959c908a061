"""The house holds: imports only go down, each outside library has its owner."""

import ast
import functools
import importlib.util
import itertools
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
FILES = sorted((ROOT / "jaxpt").rglob("*.py"))

# From the lowest to the highest: a subpackage imports those before it and no other.
ORDER = (
    *("version", "errors", "interrupts", "setting_types", "dims", "rng", "trust"),
    "user_code",
    *("distributed", "files", "logs"),
    *("judge", "text", "ops", "nn", "learn", "objectives"),
    *("evaluation", "zero_shot", "tasks", "config", "runs", "training", "hub"),
    *("finetuning", "report", "comparison", "doctor", "api", "cli", "__main__"),
)
# What it does not import although it is lower. `text` and `judge` work
# without jax; what is measured of a network knows no objective and no config.
NOT = {
    "judge": {"rng", "files", "distributed", "logs"},
    "text": {"rng", "logs", "distributed", "judge"},
    "files": {"rng"},
    "ops": {"text", "files", "distributed", "judge"},
    "nn": {"text", "files", "distributed", "judge"},
    "learn": {"text", "files", "distributed", "judge"},
    "objectives": {"files", "distributed", "judge"},
    "evaluation": {"files", "distributed", "objectives"},
    "zero_shot": {"files", "distributed", "objectives"},
    "tasks": {"files", "distributed", "objectives"},
    "finetuning": {"training"},
}
TOP = {"api", "config", "errors", "rng"}  # of jaxpt/__init__.py


def may_import(room: str, other: str) -> bool:
    if not room:
        return other in TOP
    is_lower = ORDER.index(other) < ORDER.index(room)
    return is_lower and other not in NOT.get(room, set())


# Within text, too: a layer imports itself and those before it.
TEXT_LAYERS = (("tokens", "sources"), ("stores",), ("rows",))

# Who alone may import an outside library: rooms and files. () is nobody.
OWNERS = {
    "tensorflow_datasets": ("text",),
    "grain": ("text",),
    "tokenizers": ("text",),
    "sentencepiece": ("text",),
    "fsspec": ("files/objects.py",),
    "pyarrow": ("text/sources/files.py",),
    "orbax": ("runs/checkpoint.py", "runs/manifest.py"),
    "ml_collections": ("config", "cli/flags.py", "hub/imports.py"),
    "absl": ("cli",),
    "matplotlib": (),  # pictures are SVG
    "jinja2": ("report/pages.py",),
    "safetensors": ("hub/files.py",),
    "huggingface_hub": ("hub/download.py", "hub/upload.py", "hub/card.py"),
    "ray": ("comparison/on_ray.py",),
    "lm_eval": ("hub/lm_eval.py",),
    "jax2onnx": ("hub/onnx_files.py",),
    "onnx": ("hub/onnx_files.py",),
    "onnxruntime": ("hub/onnx_files.py",),
    "tensorboardX": ("training/trackers.py",),
    "wandb": ("training/trackers.py",),
    "mlflow": ("training/trackers.py",),
    "seqeval": ("tasks/span_metrics.py",),
    "rouge_score": ("tasks/text_metrics.py",),
    "sacrebleu": ("tasks/text_metrics.py",),
    "flax": ("nn", "objectives", "runs", "training", "hub"),
    "transformers": (),
    "torch": (),
    "tensorflow": (),
}


def name_of(path: Path) -> str:
    return path.relative_to(ROOT / "jaxpt").as_posix()


def room_of(parts) -> str:
    """The room of a dotted module or a path below jaxpt/; "" for the package itself."""
    first = parts[0].removesuffix(".py") if parts else ""
    return "" if first == "__init__" else first


def imports(path: Path) -> set[str]:
    """Dotted names of all modules that a file imports, anywhere in it."""
    result = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            result |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"{name_of(path)}: a relative import"
            result |= {f"{node.module}.{alias.name}" for alias in node.names}
    return result


def layer_of(module: str) -> int:
    """The layer of a dotted module of text; its own files lie above its folders."""
    folder = module.split(".")[2:3]
    results = [i for i, layer in enumerate(TEXT_LAYERS) if set(folder) & set(layer)]
    return results[0] if results else len(TEXT_LAYERS)


@pytest.mark.slow_cases("text/rows/forms.py")
@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_imports_go_down_only(path):
    room = room_of(path.relative_to(ROOT / "jaxpt").parts)
    for module in imports(path):
        parts = module.split(".")
        if parts[0] == "jaxpt":
            other = room_of(parts[1:])
            if other in ("", "version"):
                continue
            assert other == room or may_import(room, other), f"{room} imports {module}"
    if room == "text":
        place = layer_of(module_of(path))
        below = [m for m in imports(path) if m.startswith("jaxpt.text.")]
        assert all(layer_of(module) <= place for module in below), below
        outside = {module.split(".")[0] for module in imports(path)}
        assert not outside & {"jax", "jaxlib", "flax", "optax", "jaxtyping"}


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_outside_libraries_have_one_owner(path):
    name = name_of(path)
    for library in {module.split(".")[0] for module in imports(path)} & set(OWNERS):
        owners = OWNERS[library]
        assert name in owners or room_of(name.split("/")) in owners, (
            f"{name} imports {library}"
        )


def test_every_subpackage_has_its_place_in_the_order():
    rooms = {room_of(path.relative_to(ROOT / "jaxpt").parts) for path in FILES}
    assert rooms <= {"", *ORDER} and set(NOT) <= set(ORDER)
    assert len(FILES) > 30


def module_of(path: Path) -> str:
    parts = path.relative_to(ROOT).with_suffix("").parts
    return ".".join(parts).removesuffix(".__init__")


def test_no_two_files_import_each_other():
    modules = {module_of(path): path for path in FILES}
    edges = {
        name: {
            other
            for result in imports(path)
            for other in [result if result in modules else result.rpartition(".")[0]]
            if other in modules and other != name
        }
        for name, path in modules.items()
    }

    def visit(name, above):
        assert name not in above, " -> ".join([*above, name])
        for other in edges[name] if name not in done else ():
            visit(other, [*above, name])
        done.add(name)

    done = set()
    for name in edges:
        visit(name, [])


def mentions_objective(node) -> bool:
    name = getattr(node, "id", getattr(node, "attr", ""))
    return name == "objective" or name.endswith("objective_name")


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_nothing_asks_which_objective_it_is(path):
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            values = [n for side in sides for n in ast.walk(side)]
            if any(mentions_objective(side) for side in sides):
                assert not any(
                    isinstance(n, ast.Constant) and n.value in OBJECTIVE_NAMES
                    for n in values
                ), f"{name_of(path)}:{node.lineno}"
        if isinstance(node, ast.Match):
            asks = mentions_objective(node.subject)
            assert not asks, f"{name_of(path)}:{node.lineno}"


OBJECTIVE_NAMES = {path.stem for path in FILES if path.parent.name == "objectives"}


# The glossary may name loss terms and labels, too.
NAMING_TERMS = {"dims.py"}


@functools.cache
def list_terms() -> set[str]:
    """The loss terms and row labels of all objectives, with settings that add some."""
    from jaxpt.nn.networks.electra import VARIANTS
    from jaxpt.objectives import OBJECTIVES, bert, electra

    specs = [module.Spec(row_length=24) for module in OBJECTIVES.values()]
    specs += [electra.Spec(24, variant=variant) for variant in VARIANTS]
    specs += [bert.Spec(24, sentence_task=task) for task in bert.TASKS]
    terms = {name: term for spec in specs for name, term in spec.terms.items()}
    labels = {term.targets for term in terms.values() if term.answers}
    return terms.keys() - {"loss"} | labels | {term.selects for term in terms.values()}


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_nothing_outside_objectives_names_a_loss_term_or_a_label(path):
    assert {"nsp_loss", "sop_labels", "restoring_loss", "clm_loss"} <= list_terms()
    if name_of(path) in NAMING_TERMS or path.parent.name == "objectives":
        return
    for node in ast.walk(ast.parse(path.read_text())):
        is_named = isinstance(node, ast.Constant) and isinstance(node.value, str)
        if is_named and node.value:
            assert node.value not in list_terms(), f"{name_of(path)}:{node.lineno}"


# Who may open files for writing, and who may rename what is finished.
# JAX's cache is below `files`.
WRITERS = {"files/disk.py", "distributed/compilation_cache.py"}
MOVERS = WRITERS | {"text/stores/draft.py", "hub/files.py"}


def name_call(node: ast.Call) -> str:
    """`os.replace` of `os.replace(a, b)`, `.write_text` of `path.write_text(a)`."""
    function = node.func
    if isinstance(function, ast.Name):
        return function.id
    owner = getattr(getattr(function, "value", None), "id", "")
    return f"{owner if owner == 'os' else ''}.{getattr(function, 'attr', '')}"


@pytest.mark.parametrize("path", FILES, ids=name_of)
def test_files_are_written_in_one_place(path):
    """Where no link is followed and nothing is left half-written."""
    calls = [n for n in ast.walk(ast.parse(path.read_text())) if type(n) is ast.Call]
    for node in calls:
        name, values = name_call(node), [*node.args, *(k.value for k in node.keywords)]
        texts = [v.value for v in values if isinstance(v, ast.Constant)]
        modes = [t for t in texts if isinstance(t, str) and {*t} <= {*"rwaxbt+"}]
        is_write = name in (".write_text", ".write_bytes")
        is_write |= name in ("open", ".open") and any({*m} & {*"wax+"} for m in modes)
        assert not is_write or name_of(path) in WRITERS, f"{path}:{node.lineno}"
        is_move = name in ("os.replace", "os.rename", "os.link", "os.symlink")
        assert not is_move or name_of(path) in MOVERS, f"{path}:{node.lineno}"


@pytest.mark.parametrize("room", ["text", "judge"])
def test_these_subpackages_do_not_import_jax(room):
    folder = ROOT / "jaxpt" / room
    modules = [module_of(path) for path in FILES if path.is_relative_to(folder)]
    code = f"import sys, {', '.join(modules)}; sys.exit('jax' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], cwd=ROOT).returncode == 0


def test_the_architecture_picture_has_every_subpackage_in_order():
    spec = importlib.util.spec_from_file_location(
        "architecture", ROOT / "docs" / "architecture.py"
    )
    drawing = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(drawing)
    layers = [packages.split() for _, packages in drawing.LAYERS]
    packages = {path.parent.name for path in (ROOT / "jaxpt").glob("*/__init__.py")}
    assert {name for layer in layers for name in layer} == packages
    places = [[ORDER.index(name) for name in layer] for layer in layers]
    for higher, lower in itertools.pairwise(places):
        assert min(higher) > max(lower)
    assert (ROOT / "docs" / "architecture.svg").read_text() == drawing.draw()
