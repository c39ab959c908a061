"""The tools' files agree: ranges, exact sets, versions, what the gate runs."""

import os
import re
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
import yaml
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

import jaxpt

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
# Those that the sets of requirements.txt must cover.
PYTHONS = ("3.11", "3.12", "3.13", "3.14")
LINTERS = ("ruff check", "ruff format --check", "mypy", "python tests/prose.py")


def read(name: str) -> str:
    return (ROOT / name).read_text(encoding="utf-8")


def read_pins(name: str, python: str) -> dict[str, Requirement]:
    """The lines of a requirements file that hold for a Python, by package."""
    lines = [line.partition("  #")[0].strip() for line in read(name).splitlines()]
    results = [Requirement(line) for line in lines if line and line[0] != "#"]
    values = {"python_version": python, "python_full_version": f"{python}.0"}
    held = [r for r in results if r.marker is None or r.marker.evaluate(values)]
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
    matches = {path for pattern in patterns for path in package.glob(pattern)}
    included = {path for path in matches if path.is_file()}
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


REQUIREMENTS = [path.name for path in ROOT.glob("requirements*")]
MAKEFILES = "Makefile", ".github/maintainers.mk"  # the first includes the second


def read_make() -> str:
    return "\n".join(map(read, MAKEFILES))


def read_targets() -> dict[str, list[str]]:
    """The makefiles' targets with their prerequisites."""
    lines = re.findall(r"^([\w./()$-]+):(?!=)(.*)$", read_make(), re.M)
    return {target: needs.split() for target, needs in lines}


def read_variable(name: str) -> str:
    return re.search(rf"^{name} := (.*)$", read_make(), re.M)[1]


def test_a_users_environment_has_no_tools():
    """`make quickstart` installs the first set; `make test` adds the second to it."""
    both = "-r requirements.txt -r requirements-dev.txt -e '.[dev]'"
    assert read_variable("SET") == both
    targets = read_targets()
    assert targets["quickstart"] == ["$(VENV)/ready"]
    for name in ("lint", "docs", "notebooks", "test", "test-all"):
        assert targets[name] == ["$(VENV)/ready-dev"]
    assert targets["$(VENV)/ready-dev"] == ["$(VENV)/ready", "requirements-dev.lock"]
    makefile = read_make()
    assert makefile.count("pip install $(LOCKED) -r requirements.lock &&") == 1
    assert makefile.count("pip install $(LOCKED) -r requirements-dev.lock &&") == 1
    assert makefile.count("pip install $(SET)") == 4  # peers, ray, aot, next


def read_phony() -> set[str]:
    """The names of all targets that are commands."""
    lists = re.findall(r"^\.PHONY: ((?:.*\\\n)*.*)", read_make(), re.M)
    return {name for each in lists for name in each.replace("\\", "").split()}


def test_make_alone_prints_the_commands_that_users_need(tmp_path):
    commands = make_dry(tmp_path)
    named = re.findall(r"^echo \"make ([\w-]+)", commands, re.M)
    assert named == ["quickstart", "test", "lint", "docs"]
    assert all(line.startswith("echo ") for line in commands.splitlines())


def test_documented_targets_exist(tmp_path):
    paths = [*ROOT.glob("*.md"), *ROOT.glob("docs/**/*.md"), ROOT / ".ci" / "run"]
    text = "\n".join(path.read_text("utf-8") for path in paths)
    named = re.findall(r"(?:^|`)make ([a-z][a-z-]*)", text, re.M)
    assert {"test-peers", "applets", "wheel", "release"} <= set(named) <= read_phony()
    make_dry(tmp_path, *sorted(set(named)))


def make_dry(folder: Path, *targets: str) -> str:
    """The commands that make would run in a checkout without environments."""
    for name in MAKEFILES:
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text(read(name), encoding="utf-8")
    for name in ("pyproject.toml", "setup.py", *REQUIREMENTS):
        (folder / name).touch()
    # Without the variables of a make that runs these tests.
    env = {key: os.environ[key] for key in os.environ if not key.startswith("MAKE")}
    command = ["make", "--dry-run", *targets]
    done = subprocess.run(command, cwd=folder, env=env, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("order", [("quickstart", "test"), ("test", "quickstart")])
def test_the_readmes_two_commands_share_an_environment(order, tmp_path):
    """In either order it is created once, and its tools are added once."""
    commands = make_dry(tmp_path, *order)
    assert commands.count("-m venv") == 1
    assert commands.count("-r requirements.lock &&") == 1
    assert commands.count("-r requirements-dev.lock &&") == 1


def read_lock(name: str) -> dict[str, list[tuple[Requirement, int]]]:
    """By package, the pins of a lock, each with the number of its hashes."""
    pins: dict[str, list] = {}
    for entry in re.split(r"\n(?! )", read(name).strip()):
        pin, *hashes = [line.strip(" \\") for line in entry.splitlines()]
        assert all(re.fullmatch(r"--hash=sha256:[0-9a-f]{64}", h) for h in hashes), pin
        requirement = Requirement(pin)
        package = canonicalize_name(requirement.name)
        pins.setdefault(package, []).append((requirement, len(hashes)))
    return pins


@pytest.mark.parametrize("python", PYTHONS)
@pytest.mark.parametrize(
    "name, files",
    [("requirements.lock", 1), ("requirements-dev.lock", 2)],
    ids=["run", "dev"],
)
def test_the_locks_have_the_tested_set_with_hashes(name, files, python):
    lock = read_lock(name)
    assert all(num for pins in lock.values() for _, num in pins)
    values = {"python_version": python, "python_full_version": f"{python}.0"}
    for file, _ in SETS[:files]:
        for package, pin in read_pins(file, python).items():
            versions = [
                str(each.specifier)
                for each, _ in lock[package]
                if each.marker is None or each.marker.evaluate(values)
            ]
            assert versions == [str(pin.specifier)], package
    if files == 1:  # one environment serves both
        both = read_lock("requirements-dev.lock")
        for package, pins in lock.items():
            assert {str(each.specifier) for each, _ in pins} <= {
                str(each.specifier) for each, _ in both[package]
            }


WORKFLOWS = sorted((ROOT / ".github" / "workflows").glob("*.yml"))


def read_jobs() -> dict[str, dict]:
    """The jobs of all workflows by name."""
    jobs = {}
    for path in WORKFLOWS:
        jobs |= yaml.safe_load(path.read_text(encoding="utf-8"))["jobs"]
    return jobs


def list_make_targets(job: dict) -> set[str]:
    """The targets that a job calls, with the values of its matrix."""
    runs = [step["run"] for step in job["steps"] if "run" in step]
    called = {name for run in runs for name in re.findall(r"\bmake (\S+)", run)}
    if '"$TARGET"' in called:
        called |= set(job["strategy"]["matrix"]["target"])
    return called - {'"$TARGET"'}


def test_workflows_call_only_existing_targets():
    phony = read_phony()
    jobs = read_jobs()
    called = {name: list_make_targets(job) for name, job in jobs.items()}
    assert all(called.values()), "each job calls make, as a developer does"
    assert set().union(*called.values()) <= phony
    gate = set(re.findall(r"^make (\w+)", read(".ci/run"), re.M)) - {"clean"}
    ci = yaml.safe_load(read(".github/workflows/ci.yml"))["jobs"]
    assert gate <= set().union(*(called[name] for name in ci))
    # No marker leaves a test out of all of them.
    tests = {name for name in phony if re.fullmatch(r"test(-\w+)?", name)}
    assert "test-all" in tests and tests <= set().union(*called.values())


def test_workflows_test_the_pythons_that_the_package_names():
    names = "Programming Language :: Python :: 3."
    classifiers = PROJECT["project"]["classifiers"]
    minors = {c.removeprefix(names) for c in classifiers if c.startswith(names)}
    tested = read_jobs()["test"]["strategy"]["matrix"]["python"]
    assert {f"3.{minor}" for minor in minors} == set(tested)


def test_workflows_may_only_read_and_stop_in_time():
    for path in WORKFLOWS:
        workflow = yaml.safe_load(path.read_text(encoding="utf-8"))
        assert workflow["permissions"] == {"contents": "read"}, path.name
        assert all("timeout-minutes" in job for job in workflow["jobs"].values())
        # A value that others set must not become a part of a shell command.
        runs = [s.get("run", "") for j in workflow["jobs"].values() for s in j["steps"]]
        assert not any("${{" in run for run in runs), path.name


def test_the_parts_of_the_weekly_trials_are_all_trials():
    command = [sys.executable, "tests/trials", "--list"]
    listed = subprocess.run(command, cwd=ROOT, capture_output=True, text=True).stdout
    parts = read_jobs()["trials"]["strategy"]["matrix"]["names"]
    names = [line.split()[0] for line in listed.splitlines()]
    assert len(names) > 20 and sorted(" ".join(parts).split()) == sorted(names)


def test_issue_forms_have_what_the_site_requires():
    forms = sorted((ROOT / ".github" / "ISSUE_TEMPLATE").glob("*.yml"))
    named = [yaml.safe_load(f.read_text("utf-8")) for f in forms if f.stem != "config"]
    assert len(named) == 3
    for form in named:
        assert set(form) == {"name", "description", "labels", "body"}
        inputs = [part for part in form["body"] if part["type"] != "markdown"]
        ids = [part["id"] for part in inputs]
        assert len(set(ids)) == len(ids)
        assert all(part["attributes"]["label"] for part in inputs)
        kinds = {part["type"] for part in form["body"]}
        assert kinds <= {"markdown", "input", "textarea", "dropdown", "checkboxes"}


def test_ray_is_tried_in_its_range():
    (part,) = Requirement(re.search(r"ray==\S+", read_make())[0]).specifier
    assert read_ranges("ray")["ray"].specifier.contains(part.version)


def test_what_images_install_needs_no_second_file():
    """They copy or clone the package and its exact set, without the tools."""
    for script in (read("launch/Dockerfile"), read("launch/tpu_pod.sh")):
        assert "requirements.txt" in script and "requirements-dev" not in script
