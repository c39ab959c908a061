"""The house holds: imports only go down, each outside library has its owner."""

import ast
import functools
import importlib.util
import itertools
import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
from tiny import make_config, write_stored

ROOT = Path(__file__).resolve().parents[1]
FILES = sorted((ROOT / "jaxpt").rglob("*.py"))

# From the lowest to the highest: a subpackage imports those before it and no other.
ORDER = (
    *("version", "by_name", "errors", "interrupts", "setting_types", "dims", "rng"),
    "text_form",
    *("trust", "user_code", "optional"),
    *("distributed", "files", "logs"),
    *("judge", "languages", "text", "ops", "nn", "learn", "objectives"),
    *("evaluation", "zero_shot", "tasks", "config", "runs", "training", "hub"),
    *("finetuning", "report", "external"),
    *("comparison", "doctor", "api", "cli", "__main__"),
)
# What it does not import although it is lower. `text` and `judge` work
# without jax; what is measured of a network knows no objective and no config. Whoever
# only reads or uses a run needs nothing that trains it.
NOT = {
    "judge": {"rng", "files", "distributed", "logs"},
    "languages": {"rng", "files", "logs", "distributed", "judge"},
    "text": {"rng", "logs", "distributed", "judge"},
    "files": {"rng"},
    "ops": {"text", "languages", "files", "distributed", "judge"},
    "nn": {"text", "languages", "files", "distributed", "judge"},
    "learn": {"text", "languages", "files", "distributed", "judge"},
    "objectives": {"languages", "files", "distributed", "judge"},
    "evaluation": {"files", "distributed", "objectives"},
    "zero_shot": {"files", "distributed", "objectives"},
    "tasks": {"files", "distributed", "objectives"},
    "hub": {"training"},
    "finetuning": {"training"},
    "report": {"training"},
    "external": {"training", "runs", "config", "hub", "finetuning", "evaluation"},
}
TOP = {"api", "config", "errors", "external", "rng"}  # of jaxpt/__init__.py


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
    "huggingface_hub": (
        *("hub/download.py", "hub/upload.py", "hub/card.py", "hub/files.py"),
    ),
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


# A module or an attribute of one, as a text: "jaxpt.cli.train:train".
PLACE = re.compile(r"jaxpt(\.\w+)+(:\w+)?")
COMPUTING = {"jax", "jaxlib", "flax", "optax", "jaxtyping"}


@functools.cache
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


def list_modules(path: Path) -> set[str]:
    """The modules that a file imports, or loads by name (`jaxpt.by_name`)."""
    return imports(path) | {
        node.value.partition(":")[0]
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.Constant) and PLACE.fullmatch(str(node.value))
    }


def test_imports_go_down_only():
    """Also those by name: "jaxpt.cli.train:train"."""
    wrong = []
    for path in FILES:
        room, modules = room_of(path.relative_to(ROOT / "jaxpt").parts), []
        for module in list_modules(path):
            parts = module.split(".")
            if parts[0] == "jaxpt" and room_of(parts[1:]) not in ("", "version", room):
                modules.append((room_of(parts[1:]), module))
        wrong += [
            f"{name_of(path)} imports {module}"
            for other, module in modules
            if not may_import(room, other)
        ]
        if room == "text":
            place = layer_of(module_of(path))
            wrong += [
                f"{name_of(path)} imports {module}"
                for module in imports(path)
                if (module.startswith("jaxpt.text.") and layer_of(module) > place)
                or module.split(".")[0] in COMPUTING
            ]
    assert not wrong, "\n".join(wrong)


def test_outside_libraries_have_one_owner():
    wrong = []
    for path in FILES:
        name = name_of(path)
        for library in {module.split(".")[0] for module in imports(path)} & set(OWNERS):
            owners = OWNERS[library]
            if name not in owners and room_of(name.split("/")) not in owners:
                wrong.append(f"{name} imports {library}")
    assert not wrong, "\n".join(wrong)


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


def walk():
    """Each node of each file, with the file."""
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            yield path, node


def mentions_objective(node) -> bool:
    name = getattr(node, "id", getattr(node, "attr", ""))
    return name == "objective" or name.endswith("objective_name")


def asks_objective(node) -> bool:
    """Whether a node compares an objective's name with one of ours, or matches it."""
    if isinstance(node, ast.Match):
        return mentions_objective(node.subject)
    if not isinstance(node, ast.Compare):
        return False
    sides = [node.left, *node.comparators]
    values = [n for side in sides for n in ast.walk(side)]
    return any(map(mentions_objective, sides)) and any(
        isinstance(n, ast.Constant) and n.value in OBJECTIVE_NAMES for n in values
    )


def test_nothing_asks_which_objective_it_is():
    wrong = [f"{name_of(path)}:{n.lineno}" for path, n in walk() if asks_objective(n)]
    assert not wrong, "\n".join(wrong)


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


def test_nothing_outside_objectives_names_a_loss_term_or_a_label():
    terms = list_terms()
    assert {"nsp_loss", "sop_labels", "restoring_loss", "clm_loss"} <= terms
    wrong = [
        f"{name_of(path)}:{node.lineno}: {node.value}"
        for path, node in walk()
        if isinstance(node, ast.Constant) and isinstance(node.value, str)
        if node.value and node.value in terms and path.parent.name != "objectives"
        if name_of(path) not in NAMING_TERMS
    ]
    assert not wrong, "\n".join(wrong)


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


def test_files_are_written_in_one_place():
    """Where no link is followed and nothing is left half-written."""
    wrong = []
    for path, node in walk():
        if type(node) is not ast.Call:
            continue
        name, values = name_call(node), [*node.args, *(k.value for k in node.keywords)]
        texts = [v.value for v in values if isinstance(v, ast.Constant)]
        modes = [t for t in texts if isinstance(t, str) and {*t} <= {*"rwaxbt+"}]
        is_write = name in (".write_text", ".write_bytes")
        is_write |= name in ("open", ".open") and any({*m} & {*"wax+"} for m in modes)
        is_move = name in ("os.replace", "os.rename", "os.link", "os.symlink")
        if (is_write and name_of(path) not in WRITERS) or (
            is_move and name_of(path) not in MOVERS
        ):
            wrong.append(f"{name_of(path)}:{node.lineno}: {name}")
    assert not wrong, "\n".join(wrong)


# The science: it reads no file, no config and no run, and of text the vocabulary.
SCIENCE = ("ops", "nn", "learn", "objectives")
SCIENCE_READS = {*SCIENCE, "dims", "rng", "errors", "setting_types", "by_name"}
SCIENCE_READS |= {"text_form"}
# An objective outside jaxpt is imported only if the user has named it.
OUTSIDE = ("objectives/outside.py", {"trust", "user_code"})


def test_the_science_stands_alone():
    wrong = []
    for path in FILES:
        name, module = name_of(path), module_of(path)
        if module.split(".")[1:2] and module.split(".")[1] in SCIENCE:
            allowed = SCIENCE_READS | (OUTSIDE[1] if name == OUTSIDE[0] else set())
            wrong += [
                f"{name} imports {each}"
                for each in list_modules(path)
                if each.startswith("jaxpt.") and each.split(".")[1] not in allowed
                if not each.startswith("jaxpt.text.tokens.vocab.")
                if each not in {f"jaxpt.{part}" for part in allowed}
            ]
    assert not wrong, "\n".join(wrong)


# These work without jax; one Python imports them in turn.
HOST_ONLY = ("judge", "languages", "text", "external")


def test_these_subpackages_do_not_import_jax():
    code = "import sys\n"
    for room in HOST_ONLY:
        folder = ROOT / "jaxpt" / room
        modules = [module_of(path) for path in FILES if path.is_relative_to(folder)]
        code += f"import {', '.join(modules)}\n"
        code += f"assert 'jax' not in sys.modules, {room!r}\n"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()


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


# What each entry loads of the package: at most so many files, empty ones left out, and
# lines. `train` and `fill` are those of a run of mlm.
CEILINGS = {
    "train": (156, 30_000),
    "fill": (114, 23_500),
    "jaxpt.objectives.mlm": (35, 6_900),
    "--help": (12, 1_350),
    "jaxpt": (2, 100),
}
# Calls from `__main__.main` to the objective's `train_step`, and to `train_run`.
MOST_CALLS, MOST_CALLS_OF_SHELL = 10, 4
# Modules that an environment may import when Python starts (site, .pth files).
STARTED = ("_distutils_hack", "sitecustomize", "usercustomize", "distutils-precedence")
MEASURE = """
import json, sys
sys.argv = ["jaxpt", *json.loads(sys.argv[1])]
calls = []


def note(frame):
    while frame:
        path = frame.f_code.co_filename
        if PACKAGE in path:
            calls.append(f"{path.partition(PACKAGE)[2]}:{frame.f_code.co_name}")
        frame = frame.f_back


def watch():
    from jaxpt.objectives import mlm
    from jaxpt.runs.train_calls import TrainCalls

    step = mlm.train_step
    mlm.train_step = lambda *a, **k: (calls or note(sys._getframe(1)), step(*a, **k))[1]
    TrainCalls.begin = lambda *args: None  # it compiles in a thread, whose stack is new


if sys.argv[1:2] == ["train"]:
    watch()
if sys.argv[1:2] and sys.argv[1] in ("train", "fill", "--help"):
    from jaxpt.__main__ import main
    code = main()
else:
    code = __import__(sys.argv[1]) and 0
loaded = {getattr(m, "__file__", "") or "" for m in list(sys.modules.values())}
lines = {p: len(open(p).readlines()) for p in loaded if PACKAGE in p}
lines = {path.partition(PACKAGE)[2]: num for path, num in lines.items() if num}
print(json.dumps({"code": code, "lines": lines, "calls": calls}), file=sys.stderr)
"""


def measure(*argv: str, cwd: Path = ROOT) -> dict:
    """What an entry loads: {"lines": {file: number}, "calls": frames to the step}."""
    code = f"PACKAGE = {str(ROOT / 'jaxpt')!r} + '/'\n{MEASURE}"
    command = [sys.executable, "-c", code, json.dumps(argv)]
    done = subprocess.run(command, cwd=cwd, capture_output=True, text=True)
    result = json.loads(done.stderr.splitlines()[-1])
    assert result["code"] == 0, done.stderr
    return result


def check_ceiling(entry: str, lines: dict[str, int]) -> None:
    files, most = CEILINGS[entry]
    text = f"{entry}: {len(lines)} files, {sum(lines.values())} lines"
    print(text)
    listed = "\n".join(f"{num:5} {name}" for name, num in sorted(lines.items()))
    assert len(lines) <= files and sum(lines.values()) <= most, f"{text}\n{listed}"


@pytest.fixture(scope="module")
def trained(tmp_path_factory):
    """A folder with a run of mlm, and what training it has loaded."""
    folder = tmp_path_factory.mktemp("paths")
    (folder / "my.txt").write_text("the state of the union and the people\n" * 99)
    changes = {"train__steps": 2, "train__steps_per_call": 1}
    config = make_config(folder / "my.txt", "mlm", **changes)
    del config.electra  # `make_config` sets it for all
    write_stored(folder / "config.json", config)
    argv = ["train", "--config", "config.json", "--workdir", "run", "--quiet"]
    return folder, measure(*argv, cwd=folder)


def test_training_loads_what_it_uses(trained):
    check_ceiling("train", trained[1]["lines"])
    assert not any(name.startswith("hub/") for name in trained[1]["lines"])


def test_filling_loads_what_it_uses(trained):
    argv = "fill", "--workdir", "run", "--text", "the [MASK] of"
    lines = measure(*argv, cwd=trained[0])["lines"]
    check_ceiling("fill", lines)
    assert not any(name.startswith("training/") for name in lines)


def test_few_calls_lead_to_the_step(trained):
    calls = trained[1]["calls"]
    assert calls[-1] == "__main__.py:main"
    print("\n".join(reversed(calls)))
    assert len(calls) <= MOST_CALLS, "\n".join(reversed(calls))
    of_shell = calls[calls.index("training/train_run.py:train_run") :]
    assert len(of_shell) <= MOST_CALLS_OF_SHELL, "\n".join(reversed(of_shell))
    # The architecture page names the same files, in the same order.
    page = (ROOT / "docs" / "design.md").read_text(encoding="utf-8")
    walk = page.partition("open these files in this order")[2]
    files = [call.partition(":")[0] for call in reversed(calls)]
    files += ["objectives/mlm.py", "learn/update.py"]
    places = [walk.index(f"{file}`") for file in dict.fromkeys(files)]
    assert places == sorted(places)


@pytest.mark.parametrize("entry", ["jaxpt.objectives.mlm", "--help", "jaxpt"])
def test_an_entry_loads_what_it_uses(entry):
    check_ceiling(entry, measure(entry)["lines"])


def test_the_help_imports_no_other_package():
    command = [sys.executable, "-X", "importtime", "-m", "jaxpt", "--help"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True)
    rows = [line.split("|") for line in done.stderr.splitlines() if "|" in line][1:]
    packages = {row[2].strip().partition(".")[0] for row in rows}
    assert done.returncode == 0 and "jaxpt" in packages
    allowed = {"jaxpt", *sys.stdlib_module_names, *STARTED}
    assert not {name for name in packages - allowed if not name.startswith("__")}


# Each module of these kinds has a class of this name: the objective's contract, the
# task's.
BY_CONTRACT = {"Spec", "Example"}


# Public functions named describe_... return a text. `prepare` makes the store of a
# text, as the command does, but in the Python API all that a training loop needs.
TEXTS_OF = {"str", "list[str]", "tuple[str, float]", "list[Setting]"}
TEXTS_OF |= {"dict[str, list[Setting]]", "'Mapping[str, list[Setting]]'"}
PREPARES = {"api/preparing.py", "cli/texts.py", "text/stores/prepare.py"}
PREPARES |= {"training/prepare_text.py", "text/parts.py"}
PREPARES |= {"comparison/prepare_on_ray.py"}


def test_a_verb_means_one_thing():
    """`describe` returns a text for a reader."""
    wrong = []
    for path, node in walk():
        if isinstance(node, ast.FunctionDef):
            verb = node.name.partition("_")[0]
            returns = ast.unparse(node.returns) if node.returns else ""
            is_wrong = verb == "describe" and returns not in TEXTS_OF
            is_wrong |= verb == "prepare" and name_of(path) not in PREPARES
            wrong += [f"{name_of(path)}:{node.lineno}: {node.name}"] * is_wrong
    assert not wrong, "\n".join(wrong)


def test_a_class_name_means_one_thing():
    places = {}
    for path in FILES:
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.ClassDef) and node.name not in BY_CONTRACT:
                places.setdefault(node.name, []).append(name_of(path))
    assert not {name: found for name, found in places.items() if len(found) > 1}
