"""The notebooks run from top to bottom, and are kept with what they show."""

import ast
import copy
import importlib.metadata
import importlib.util
import os
import re
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import jupyter_client
import nbformat
import pytest
from nbclient import NotebookClient
from packaging.requirements import Requirement

ROOT = Path(__file__).resolve().parents[1]
NOTEBOOKS = sorted((ROOT / "notebooks").glob("*.ipynb"))
# Folders of some machine, which no output may name: a home, a temporary folder, a root.
MACHINE = re.compile(r"/(home|mnt|private|root|tmp|Users|var|work)/")
SECONDS = 300  # for one cell, on a machine that does other work


def read(path: Path):
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    return notebook


def find_parameters(notebook) -> int:
    """The place of the one cell that is tagged `parameters`."""
    tags = [cell.metadata.get("tags", []) for cell in notebook.cells]
    (place,) = [i for i, own in enumerate(tags) if "parameters" in own]
    return place


def list_texts(cell) -> list[str]:
    """What a cell has printed, and its outputs as text; no pictures."""
    texts = []
    for out in cell.get("outputs", []):
        data = out.get("data", {})
        texts.append(out.get("text", ""))
        texts += [str(data[kind]) for kind in data if not kind.startswith("image/")]
    return texts


def list_names(code: str) -> set[str]:
    """What a cell of assignments sets."""
    lines = [n for n in ast.parse(code).body if isinstance(n, ast.Assign)]
    nodes = [node for n in lines for target in n.targets for node in ast.walk(target)]
    return {node.id for node in nodes if isinstance(node, ast.Name)}


def make_short(notebook):
    """The notebook with its short settings behind its own."""
    short = copy.deepcopy(notebook)
    place = find_parameters(short)
    code = short.cells[place].metadata["jaxpt"]["short"]
    short.cells.insert(place + 1, nbformat.v4.new_code_cell(code))
    return short


def test_there_are_notebooks():
    assert NOTEBOOKS


@pytest.mark.slow_except("your_own_text")
@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_runs_from_top_to_bottom(path, tmp_path, monkeypatch):
    """In an empty folder, by this Python, with the package of this checkout."""
    paths = [str(ROOT), *filter(None, [os.environ.get("PYTHONPATH")])]
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join(paths))
    monkeypatch.setenv("IPYTHONDIR", str(tmp_path / "ipython"))
    folder = tmp_path / "here"
    folder.mkdir()
    kernel = jupyter_client.AsyncKernelManager()
    # Not by a kernel's name, which may be that of another Python.
    kernel.kernel_spec.argv[0] = sys.executable
    client = NotebookClient(
        make_short(read(path)),
        km=kernel,
        timeout=SECONDS,
        resources={"metadata": {"path": str(folder)}},
    )
    client.owns_km = True  # also ends a kernel that it has not made
    client.execute()
    assert not kernel.has_kernel
    assert {result.name for result in folder.iterdir()} <= {"runs"}


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_is_kept_with_its_outputs(path):
    notebook = read(path)
    first, second = notebook.cells[:2]
    assert first.cell_type == "markdown" and first.source.startswith("# ")
    assert "minute" in first.source, "must say how long it takes"
    assert second.cell_type == "code" and "SOURCE" in second.source
    codes = [cell for cell in notebook.cells if cell.cell_type == "code"]
    counts = [cell.execution_count for cell in codes]
    assert counts == list(range(1, len(codes) + 1)), "must be run from top to bottom"
    kinds = {out.output_type for cell in codes for out in cell.outputs}
    assert kinds and "error" not in kinds
    for cell in notebook.cells:
        match = MACHINE.search("\n".join([cell.source, *list_texts(cell)]))
        assert match is None, f"names a folder of some machine: {match[0]}"


WHEEL = "jaxpt-9.9.0-py3-none-any.whl"


def read_first_cell():
    (cell,) = {read(path).cells[1].source for path in NOTEBOOKS}  # the same in all
    return cell


def run_first_cell(folder, source, monkeypatch, jax="0.10.2", has_gpu=False):
    """What the first cell sets in a folder without jaxpt, up to its installing."""
    monkeypatch.chdir(folder)
    monkeypatch.setenv("PATH", str(folder))  # without nvidia-smi
    if has_gpu:
        (folder / "nvidia-smi").touch(0o755)
    monkeypatch.setattr(importlib.metadata, "version", {"jax": jax}.get)
    monkeypatch.setattr(importlib.util, "find_spec", lambda name: jax)
    monkeypatch.setitem(sys.modules, "jaxpt", None)
    text = re.sub(r'(?m)^SOURCE = "\w*"', f'SOURCE = "{source}"', read_first_cell())
    code, install = text.split("    %pip ")
    assert install == 'install --quiet "{PACKAGE}" "{PIN}"\n    import jaxpt'
    values = {}
    exec(code, values)
    return values


@pytest.mark.parametrize(
    "in_clone, source, jax, has_gpu, package, pin",
    [
        (True, "", "0.10.2", False, "..", "jax==0.10.2"),
        (True, "jaxpt", "0.10.2", False, "..", "jax==0.10.2"),
        (False, "jaxpt", "0.12.0.1", True, "jaxpt", "jax==0.12.0.1"),
        (False, "jaxpt", "0.9.2", True, "jaxpt[cuda12]", "jax>=0.10"),
        (False, WHEEL, "0.12.0", True, WHEEL, "jax==0.12.0"),
        (True, WHEEL, None, True, f"{WHEEL}[cuda12]", "jax>=0.10"),
        (False, "./a", None, True, "./a[cuda12]", "jax>=0.10"),
        (True, "git+file:a", "1.0", True, "jaxpt @ git+file:a", "jax==1.0"),
        (
            *(False, "https://a.b/c.whl", None, True),
            *("jaxpt[cuda12] @ https://a.b/c.whl", "jax>=0.10"),
        ),
    ],
)
def test_the_first_cell_installs_what_is_missing(
    in_clone, source, jax, has_gpu, package, pin, tmp_path, monkeypatch
):
    """From a wheel, a folder, a URL or the index; a new enough JAX is kept."""
    (tmp_path / "notebooks").mkdir()
    if in_clone:
        (tmp_path / "jaxpt").mkdir()
    folder = tmp_path / "notebooks"
    values = run_first_cell(folder, source, monkeypatch, jax, has_gpu)
    assert (values["PACKAGE"], values["PIN"]) == (package, pin)
    assert values["MIN_JAX"] in read_range("jax")


def test_without_a_release_the_first_cell_says_what_to_do(tmp_path, monkeypatch):
    """It asks no index for a package that this project does not own."""
    with pytest.raises(SystemExit, match="has no release yet.*make wheel.*set SOURCE"):
        run_first_cell(tmp_path, "", monkeypatch)
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    is_released = "urls" in project["project"]  # make release URL=... writes both
    default = re.search(r'^SOURCE = "(\w*)"', read_first_cell(), re.M)[1]
    assert default == ("jaxpt" if is_released else "")


def write_wheel(path):
    """A wheel of a package of this name, with the extra, and nothing in it."""
    info = (
        "Metadata-Version: 2.1\nName: jaxpt\nVersion: 9.9.0\nProvides-Extra: cuda12\n"
    )
    wheel = "Wheel-Version: 1.0\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
    files = {"METADATA": info, "WHEEL": wheel, "RECORD": ""}
    with zipfile.ZipFile(path, "w") as archive:
        for name, text in files.items():
            archive.writestr(f"jaxpt-9.9.0.dist-info/{name}", text)


@pytest.mark.parametrize("jax", ["0.10.2", None], ids=["kept", "with the extra"])
@pytest.mark.parametrize("source", [WHEEL, "file://{folder}/" + WHEEL])
def test_pip_takes_what_the_first_cell_names(source, jax, tmp_path, monkeypatch):
    write_wheel(tmp_path / WHEEL)
    source = source.format(folder=tmp_path)
    with monkeypatch.context() as patch:
        values = run_first_cell(tmp_path, source, patch, jax, has_gpu=True)
    assert ("[cuda12]" in values["PACKAGE"]) == (jax is None)
    pip = [sys.executable, "-m", "pip", "install", "--dry-run", "--no-index"]
    pip += ["--no-deps", "--ignore-installed", values["PACKAGE"]]
    done = subprocess.run(pip, cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert "Would install jaxpt-9.9.0" in done.stdout


def read_range(name):
    """The versions of a package that pyproject.toml allows."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    needs = map(Requirement, project["project"]["dependencies"])
    (need,) = [need for need in needs if need.name == name]
    return str(need.specifier).split(">=")


@pytest.mark.parametrize("path", NOTEBOOKS, ids=lambda path: path.stem)
def test_has_short_settings(path):
    """They set again, and alone, what the cell of parameters has set."""
    notebook = read(path)
    cell = notebook.cells[find_parameters(notebook)]
    short = list_names(cell.metadata["jaxpt"]["short"])
    assert short and short <= list_names(cell.source)
