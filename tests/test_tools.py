"""The tools' files agree: ranges, exact sets, versions, what the gate runs."""

import json
import re
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import jaxpt

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
# The two sets of requirements.txt: the first Python of each.
PYTHONS = ("3.11", "3.12")
LINTERS = ("ruff check", "ruff format --check", "mypy", "python tests/prose.py")


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def read_pins(name: str, python: str) -> dict[str, Requirement]:
    """The lines of a requirements file that hold for a Python, by package."""
    lines = [line.partition("  #")[0].strip() for line in read(name).splitlines()]
    found = [Requirement(line) for line in lines if line and line[0] != "#"]
    values = {"python_version": python, "python_full_version": f"{python}.0"}
    held = [r for r in found if r.marker is None or r.marker.evaluate(values)]
    pins = {canonicalize_name(r.name): r for r in held}
    assert len(pins) == len(held), f"{name} names a package twice for Python {python}"
    return pins


def read_ranges(extra: str = "") -> dict[str, Requirement]:
    """The requirements of pyproject.toml, or those of an extra, by package."""
    project = PROJECT["project"]
    extras = {"": project["dependencies"], **project["optional-dependencies"]}
    return {canonicalize_name(r.name): r for r in map(Requirement, extras[extra])}


SETS = [("requirements.txt", ""), ("requirements-dev.txt", "dev")]


@pytest.mark.parametrize("name, extra", SETS, ids=["run", "dev"])
def test_the_package_asks_for_ranges(name, extra):
    """A package that pins with == cannot be installed beside anything."""
    for requirement in read_ranges(extra).values():
        operators = {part.operator for part in requirement.specifier}
        assert ">=" in operators and not operators & {"==", "==="}, str(requirement)


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize("name, extra", SETS, ids=["run", "dev"])
def test_the_tested_set_is_exact_and_lies_in_the_ranges(name, extra, python):
    pins, ranges = read_pins(name, python), read_ranges(extra)
    assert set(pins) == set(ranges)
    for package, pin in pins.items():
        (part,) = pin.specifier
        assert part.operator == "==" and "*" not in part.version, str(pin)
        assert ranges[package].specifier.contains(part.version), str(ranges[package])


def test_the_tests_have_the_metrics_that_users_install_by_an_extra():
    assert read_ranges("eval").items() <= read_ranges("dev").items()


def test_one_version():
    citation = yaml.safe_load(read("CITATION.cff"))
    assert citation["version"] == jaxpt.__version__
    assert citation["license"] == PROJECT["project"]["license"]
    newest = re.search(r"^## \[(\d\S*)\]", read("CHANGELOG.md"), re.M)
    assert newest[1] == jaxpt.__version__
    assert PROJECT["tool"]["setuptools"]["dynamic"] == {
        "version": {"attr": "jaxpt.version.__version__"}
    }


def test_the_package_says_that_it_is_typed():
    assert (ROOT / "jaxpt" / "py.typed").exists()
    assert "py.typed" in PROJECT["tool"]["setuptools"]["package-data"]["jaxpt"]


def test_the_wheel_has_every_file_that_is_not_python():
    patterns = PROJECT["tool"]["setuptools"]["package-data"]["jaxpt"]
    package = ROOT / "jaxpt"
    included = {path for pattern in patterns for path in package.glob(pattern)}
    others = {
        path
        for path in package.rglob("*")
        if path.is_file() and path.suffix not in (".py", ".pyc")
    }
    assert others == included
    assert package / "report" / "templates" / "style.css" in included


def test_the_gate_the_makefile_and_the_hooks_run_the_same_linters():
    recipe = re.search(r"^lint:.*\n((?:\t.*\n)+)", read("Makefile"), re.M)[1]
    lines = [line.strip().removeprefix("$(BIN)/") for line in recipe.splitlines()]
    assert [line.removesuffix(" .") for line in lines] == list(LINTERS)
    (repo,) = yaml.safe_load(read(".pre-commit-config.yaml"))["repos"]
    assert repo["repo"] == "local"  # nothing is fetched
    entries = [hook["entry"].removesuffix(" --force-exclude") for hook in repo["hooks"]]
    assert entries == [f".venv/bin/{linter}" for linter in LINTERS]
    assert {hook["language"] for hook in repo["hooks"]} == {"system"}
    gate = re.findall(r"^make (\w+)", read(".ci/run"), re.M)
    assert gate == ["clean", "lint", "docs", "test", "wheel"]


def test_the_same_command_installs_the_tools():
    makefile = read("Makefile")
    given = re.search(r"^SET := (.*)$", makefile, re.M)[1]
    assert given == "-r requirements.txt -r requirements-dev.txt -e '.[dev]'"
    assert makefile.count("pip install $(SET)") == 4  # and peers, ray, aot


def test_ray_is_tried_in_its_range():
    (part,) = Requirement(re.search(r"ray==\S+", read("Makefile"))[0]).specifier
    assert read_ranges("ray")["ray"].specifier.contains(part.version)


def test_what_images_and_notebooks_install_needs_no_second_file():
    """They copy or clone the package and its exact set, without the tools."""
    notebook = json.loads(read("launch/colab.ipynb"))
    text = "".join(line for cell in notebook["cells"] for line in cell["source"])
    for script in (text, read("launch/Dockerfile"), read("launch/tpu_pod.sh")):
        assert "requirements.txt" in script and "requirements-dev" not in script
