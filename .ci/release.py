"""Checks built packages and writes the notes of a release.

    python .ci/release.py check dist/*      # contents, size, version
    python .ci/release.py notes FILE        # the version's section of CHANGELOG.md
    python .ci/release.py ready             # fails while something blocks an upload
    python .ci/release.py publish URL       # writes the repository's address and links
    python .ci/release.py licences FILE     # of all that this environment's jaxpt needs

`make release` runs the first three, and with URL=... `publish` before them; `make
wheel` runs the first and the last. Only the standard library is needed.
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
MAX_MB = 2.6  # of each file
# What a source archive must have in addition to the wheel's files.
SOURCE = ("pyproject.toml", "setup.py", "README.md", "LICENSE")
# Colab opens notebooks of GitHub only.
ADDRESS = re.compile(r"https://github\.com/([\w-]+/[\w.-]+)")
COLAB = "https://colab.research.google.com"
BADGE = f"[![Open in Colab]({COLAB}/assets/colab-badge.svg)]"
URLS = re.compile(r"^\[project\.urls\]\n(?:.+\n)*\n", re.M)


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


def publish(url: str, root: Path = ROOT) -> dict[Path, str]:
    """The texts of the files that a release changes, by path.

    pyproject.toml gets the addresses of the package index's page; README.md and the
    notebooks get links that open them in Colab, and install from the index.

    Args:
      url: of the repository, "https://github.com/ACCOUNT/jaxpt".
    """
    match = ADDRESS.fullmatch(url.rstrip("/"))
    if not match:
        raise SystemExit(f"{url}: must be https://github.com/ACCOUNT/NAME")
    place = f"{COLAB}/github/{match[1]}/blob/main/notebooks"
    texts = {}
    path = root / "pyproject.toml"
    lines = [
        "[project.urls]",
        f'Repository = "{match[0]}"',
        f'Documentation = "{match[0]}/tree/main/docs"',
        f'Changelog = "{match[0]}/blob/main/CHANGELOG.md"',
        f'Issues = "{match[0]}/issues"',
        "\n",
    ]
    text = URLS.sub("", path.read_text(encoding="utf-8"))
    scripts = "[project.scripts]\n"
    texts[path] = text.replace(scripts, "\n".join(lines) + scripts, 1)
    path = root / "README.md"
    named = r"(\[(\w+)\]\(notebooks/\2\.ipynb\))(?: \(\[Open in Colab\]\([^)]*\)\))?"
    link = rf"\1 ([Open in Colab]({place}/\2.ipynb))"
    texts[path] = re.sub(named, link, path.read_text(encoding="utf-8"))
    for path in sorted((root / "notebooks").glob("*.ipynb")):
        text = path.read_text(encoding="utf-8")
        # Below the title of the first cell, as lines of JSON.
        title = r'("# [^\n]*\\n",\n +"\\n",\n)( +"\[!\[Open in Colab.*\n +"\\n",\n)?'
        badge = rf'\1    "{BADGE}({place}/{path.name})\\n",\n    "\\n",\n'
        text = re.sub(title, badge, text, count=1)
        texts[path] = text.replace('SOURCE = \\"\\"', 'SOURCE = \\"jaxpt\\"', 1)
    return texts


def read_urls(root: Path) -> dict[str, str]:
    project = tomllib.loads((root / "pyproject.toml").read_text(encoding="utf-8"))
    return project.get("project", {}).get("urls", {})


def find_blockers(root: Path = ROOT) -> list[str]:
    """What must be changed before an upload."""
    version, blockers = read_version(root), []
    if not read_urls(root):
        blockers.append(
            "pyproject.toml: the repository has no address yet; make release "
            "URL=https://github.com/ACCOUNT/jaxpt writes it"
        )
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
    if command == "publish" and len(paths) == 1:
        for path, text in publish(paths[0]).items():
            path.write_text(text, encoding="utf-8")
            print(f"wrote {path.relative_to(ROOT)}")
        return 0
    if command == "ready" and not paths:
        blockers = find_blockers()
        print("".join(f"not ready to upload: {b}\n" for b in blockers), end="")
        return int(bool(blockers))
    print(__doc__)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
