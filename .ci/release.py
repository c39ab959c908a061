"""Checks built packages and writes the notes of a release.

    python .ci/release.py check dist/*      # contents, size, version
    python .ci/release.py notes FILE        # the version's section of CHANGELOG.md
    python .ci/release.py ready             # fails while something blocks an upload
    python .ci/release.py badges            # Colab links, from pyproject.toml's address
    python .ci/release.py licences FILE     # of all that this environment's jaxpt needs

`make release` runs the first three and `make wheel` the first and the last. Only the
standard library is needed.
"""

import csv
import importlib.metadata
import re
import sys
import tarfile
import tomllib
import zipfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MAX_MB = 2.2  # of each file
# What a source archive must have in addition to the wheel's files.
SOURCE = ("pyproject.toml", "setup.py", "README.md", "LICENSE")
PLACEHOLDER = "OWNER"
# A link that opens a notebook of the repository in Colab, up to the notebook's path.
BADGE = re.compile(
    r"(https://colab\.research\.google\.com)/github/[^/]+/[^/]+/blob/main/"
)


def read_version(root: Path = ROOT) -> str:
    text = (root / "jaxpt" / "version.py").read_text(encoding="utf-8")
    return re.search(r'^__version__ = "([^"]+)"$', text, re.M)[1]


def expected_files(root: Path = ROOT) -> set[str]:
    """The installed package's files: all of jaxpt/, and configs/ as jaxpt/configs/."""
    names = set()
    for folder, prefix in (("jaxpt", "jaxpt"), ("configs", "jaxpt/configs")):
        for path in (root / folder).rglob("*"):
            if path.is_file() and "__pycache__" not in path.parts:
                names.add(f"{prefix}/{path.relative_to(root / folder).as_posix()}")
    return names


def list_wheel(path: Path) -> set[str]:
    """The wheel's files, without its metadata."""
    with zipfile.ZipFile(path) as archive:
        names = [name for name in archive.namelist() if not name.endswith("/")]
    return {name for name in names if ".dist-info/" not in name}


def list_sdist(path: Path) -> set[str]:
    """The source archive's files, relative to its one top folder."""
    with tarfile.open(path) as archive:
        names = [member.name for member in archive if member.isfile()]
    return {name.partition("/")[2] for name in names}


def describe_difference(files: set[str], expected: set[str]) -> list[str]:
    missing, extra = sorted(expected - files), sorted(files - expected)
    return [
        *(f"lacks {name}" for name in missing),
        *(f"has {name}, which is not in the checkout" for name in extra),
    ]


def check(path: Path, root: Path = ROOT) -> list[str]:
    """What is wrong with a built package; [] if nothing is."""
    errors = []
    if read_version(root) not in path.name:
        errors.append(f"is not of version {read_version(root)}")
    size = path.stat().st_size / 1e6
    if size > MAX_MB:
        errors.append(f"has {size:.1f} MB, more than {MAX_MB} MB")
    expected = expected_files(root)
    if path.suffix == ".whl":
        return errors + describe_difference(list_wheel(path), expected)
    files = list_sdist(path)
    configs = re.compile("^jaxpt/configs/")
    needed = {configs.sub("configs/", name) for name in expected} | set(SOURCE)
    return errors + describe_difference(files & needed, needed)


def read_notes(text: str, version: str) -> str:
    """The section of a version, one line per item: release pages keep line breaks."""
    heading = re.compile(rf"^## \[{re.escape(version)}\].*\n", re.M)
    start = heading.search(text)
    if start is None:
        raise SystemExit(f"CHANGELOG.md has no section [{version}]")
    section = re.split(r"^(?:## |\[\d)", text[start.end() :], maxsplit=1, flags=re.M)[0]
    return re.sub(r"(?<=\S)\n *(?=[^\s#*-])", " ", section).strip() + "\n"


def list_badges(root: Path = ROOT) -> dict[Path, str]:
    """README.md and the notebooks as text, with the Colab links of this repository."""
    address = read_urls(root)["Repository"].removeprefix("https://github.com/")
    paths = [root / "README.md", *sorted((root / "notebooks").glob("*.ipynb"))]
    link = rf"\1/github/{address}/blob/main/"
    return {path: BADGE.sub(link, path.read_text(encoding="utf-8")) for path in paths}


def read_urls(root: Path) -> dict[str, str]:
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    return project["project"]["urls"]


def find_blockers(root: Path = ROOT) -> list[str]:
    """What must be changed before an upload."""
    version, blockers = read_version(root), []
    for name, url in read_urls(root).items():
        if PLACEHOLDER in url:
            blockers.append(f"pyproject.toml: the URL {name} has {PLACEHOLDER}: {url}")
    changelog = (root / "CHANGELOG.md").read_text(encoding="utf-8")
    dated = rf"^## \[{re.escape(version)}\] - \d{{4}}-\d\d-\d\d$"
    if not re.search(dated, changelog, re.M):
        blockers.append(f"CHANGELOG.md: the section [{version}] has no date")
    return blockers


def list_licences(name: str = "jaxpt") -> list[tuple[str, str, str]]:
    """Name, version and licence of an installed package and all that it requires.

    Extras and what only other platforms need are left out.
    """
    rows, todo = {}, [name]
    while todo:
        name = re.sub(r"[-_.]+", "-", todo.pop()).lower()
        try:
            package = importlib.metadata.distribution(name)
        except importlib.metadata.PackageNotFoundError:  # of another platform
            continue
        if name in rows:
            continue
        meta = package.metadata
        marked = [x for x in meta.get_all("Classifier", []) if "License ::" in x]
        names = [x.rpartition(" :: ")[2] for x in marked]
        stated = (meta.get("License") or "").strip().partition("\n")[0]
        licence = meta.get("License-Expression") or "; ".join(names) or stated
        rows[name] = (name, package.version, licence or "not stated")
        needs = [x for x in package.requires or [] if "extra ==" not in x]
        todo += [re.match(r"[\w.-]+", need)[0] for need in needs]
    return sorted(rows.values())


def main(arguments: list[str]) -> int:
    command, *paths = arguments or [""]
    if command == "check" and paths:
        failed = 0
        for path in map(Path, paths):
            errors = check(path)
            failed += bool(errors)
            count = len(list_wheel(path) if path.suffix == ".whl" else list_sdist(path))
            print(f"{path.name}: {count} files, {path.stat().st_size / 1e6:.2f} MB")
            print("".join(f"  {error}\n" for error in errors), end="")
        return int(failed > 0)
    if command == "notes" and len(paths) == 1:
        text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
        Path(paths[0]).parent.mkdir(parents=True, exist_ok=True)
        notes = read_notes(text, read_version())
        Path(paths[0]).write_text(notes, encoding="utf-8")
        print(f"wrote {paths[0]}")
        return 0
    if command == "licences" and len(paths) == 1:
        rows = list_licences()
        Path(paths[0]).parent.mkdir(parents=True, exist_ok=True)
        with open(paths[0], "w", newline="", encoding="utf-8") as file:
            csv.writer(file).writerows([("package", "version", "licence"), *rows])
        print(f"{paths[0]}: {len(rows)} packages")
        return 0
    if command == "badges" and not paths:
        for path, text in list_badges().items():
            path.write_text(text, encoding="utf-8")
        return 0
    if command == "ready" and not paths:
        blockers = find_blockers()
        print("".join(f"not ready to upload: {b}\n" for b in blockers), end="")
        return int(bool(blockers))
    print(__doc__)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
