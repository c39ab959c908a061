"""What `make release` checks and writes, on small packages made here."""

import importlib.util
import io
import json
import tarfile
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
SPEC = importlib.util.spec_from_file_location("release", ROOT / ".ci" / "release.py")
release = importlib.util.module_from_spec(SPEC)
SPEC.loader.exec_module(release)

CHANGELOG = """# Changelog

## [1.2.0] - unreleased

One
sentence.

### Added

- A thing that is
  described in two lines.
- Another.

## [1.1.0] - 2020-01-02

- Older.
"""
PROJECT = '[project]\nname = "jaxpt"\n\n[project.scripts]\njaxpt = "jaxpt:main"\n'
URL = "https://github.com/someone/jaxpt"


@pytest.fixture
def checkout(tmp_path):
    """A checkout of version 1.2.0 with two modules and a config."""
    files = {
        "jaxpt/version.py": '__version__ = "1.2.0"\n',
        "jaxpt/a.py": "",
        "jaxpt/__pycache__/a.pyc": "",
        "configs/tasks/b.py": "",
        "pyproject.toml": PROJECT,
        "README.md": "",
        "CHANGELOG.md": CHANGELOG,
    }
    for name, text in files.items():
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    return tmp_path


def write_wheel(root, names, version="1.2.0"):
    path = root / f"jaxpt-{version}-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        for name in [*names, f"jaxpt-{version}.dist-info/METADATA"]:
            archive.writestr(name, "")
    return path


def write_sdist(root, names):
    path = root / "jaxpt-1.2.0.tar.gz"
    with tarfile.open(path, "w:gz") as archive:
        for name in names:
            archive.addfile(tarfile.TarInfo(f"jaxpt-1.2.0/{name}"), io.BytesIO())
    return path


FILES = ["jaxpt/version.py", "jaxpt/a.py", "jaxpt/configs/tasks/b.py"]


def test_a_wheel_has_the_package_and_nothing_else(checkout):
    assert release.check(write_wheel(checkout, FILES), checkout) == []
    results = [*FILES[:2], "tests/test_a.py"]
    assert release.check(write_wheel(checkout, results), checkout) == [
        "lacks jaxpt/configs/tasks/b.py",
        "has tests/test_a.py, which is not in the checkout",
    ]


def test_a_wheel_of_another_version_or_of_a_great_size_is_refused(
    checkout, monkeypatch
):
    monkeypatch.setattr(release, "MAX_MB", 1e-6)
    version, size = release.check(write_wheel(checkout, FILES, "1.1.0"), checkout)
    assert version == "is not of version 1.2.0" and "more than" in size


def test_a_source_archive_builds_the_wheel(checkout):
    names = ["jaxpt/version.py", "jaxpt/a.py", "configs/tasks/b.py", *release.SOURCE]
    assert release.check(write_sdist(checkout, names), checkout) == []
    assert release.check(write_sdist(checkout, names[:-1]), checkout) == [
        f"lacks {names[-1]}"
    ]


def test_notes_are_the_version_s_section_with_an_item_on_each_line():
    assert release.read_notes(CHANGELOG, "1.2.0") == (
        "One sentence.\n\n### Added\n\n"
        "- A thing that is described in two lines.\n- Another.\n"
    )
    assert release.read_notes(CHANGELOG, "1.1.0") == "- Older.\n"
    with pytest.raises(SystemExit, match="no section"):
        release.read_notes(CHANGELOG, "1.3.0")


def test_the_changelog_has_notes_for_this_version():
    text = (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    notes = release.read_notes(text, release.read_version())
    assert "### Added\n\n" in notes and "\n- " in notes and "## [" not in notes


def test_a_missing_address_or_an_undated_section_blocks_an_upload(checkout):
    address, date = release.find_blockers(checkout)
    assert "make release URL=" in address and "[1.2.0] has no date" in date
    publish(URL, checkout)
    dated = CHANGELOG.replace("unreleased", "2020-02-03")
    (checkout / "CHANGELOG.md").write_text(dated)
    assert release.find_blockers(checkout) == []


def publish(url, root):
    for path, text in release.publish(url, root).items():
        path.write_text(text, encoding="utf-8")


@pytest.fixture
def copied(checkout):
    """The checkout with the README, notebooks and settings of this one."""
    (checkout / "notebooks").mkdir()
    for name in ["README.md", "pyproject.toml", *NOTEBOOKS]:
        (checkout / name).write_bytes((ROOT / name).read_bytes())
    return checkout


NOTEBOOKS = [f"notebooks/{path.name}" for path in (ROOT / "notebooks").glob("*.ipynb")]


def test_this_checkout_has_no_dead_address():
    """Before a release none at all; after it, those that a release has written."""
    urls, kinds = release.read_urls(ROOT), (".md", ".py", ".ipynb", ".toml", ".yml")
    texts = {
        path.relative_to(ROOT).as_posix(): path.read_text(encoding="utf-8")
        for folder in (".", ".github", "docs", "notebooks", "jaxpt", "launch")
        for path in (ROOT / folder).glob("*" if folder == "." else "**/*")
        if path.suffix in kinds
    }
    assert texts.keys() >= {"README.md", "pyproject.toml", *NOTEBOOKS}
    place = urls.get("Repository", "github.com/OWNER")
    named = {name for name, text in texts.items() if place in text}
    opens = {name for name, text in texts.items() if f"{release.COLAB}/github" in text}
    if not urls:
        assert not named and not opens
        return
    assert named == {"pyproject.toml"} and opens == {"README.md", *NOTEBOOKS}
    written = release.publish(urls["Repository"])
    assert all(path.read_text("utf-8") == text for path, text in written.items())


def test_a_release_writes_addresses_links_and_the_index(copied):
    before = {name: (copied / name).read_text("utf-8") for name in NOTEBOOKS}
    publish(URL, copied)
    urls = release.read_urls(copied)
    assert len(urls) == 4 and all(url.startswith(URL) for url in urls.values())
    readme = (copied / "README.md").read_text("utf-8")
    assert len(NOTEBOOKS) == 7
    for name in NOTEBOOKS:
        link = f"{release.COLAB}/github/someone/jaxpt/blob/main/{name}"
        assert readme.count(f"]({name}) ([Open in Colab]({link})):") == 1
        cells = json.loads((copied / name).read_text("utf-8"))["cells"]
        title, badge = "".join(cells[0]["source"]).splitlines()[:3:2]
        assert title.startswith("# ") and badge == f"{release.BADGE}({link})"
        assert 'SOURCE = "jaxpt"  # @param' in "".join(cells[1]["source"])
        old = json.loads(before[name])["cells"]
        assert old[2:] == cells[2:]


def test_a_release_may_be_written_again_and_elsewhere(copied):
    publish(URL, copied)
    once = {path: path.read_text("utf-8") for path in release.publish(URL, copied)}
    assert release.publish(URL, copied) == once
    other = release.publish("https://github.com/other/jaxpt", copied)
    for path, text in other.items():
        assert text == once[path].replace("/someone/", "/other/") != once[path]


@pytest.mark.parametrize("url", ["", "someone/jaxpt", "https://example.org/a/b", "x"])
def test_an_address_must_be_one_that_colab_opens(url, copied):
    with pytest.raises(SystemExit, match="must be https://github.com/ACCOUNT/NAME"):
        release.publish(url, copied)


def test_make_release_writes_them_before_it_builds():
    text = (ROOT / ".github" / "maintainers.mk").read_text(encoding="utf-8")
    recipe = text.partition("\nrelease: ")[2].splitlines()[1:]
    first = "\t$(if $(URL),$(RELEASE)/bin/python .ci/release.py publish $(URL))"
    assert recipe[0] == first and "python -m build" in recipe[2]


def test_licences_are_of_all_that_the_package_requires():
    rows = {
        name: (version, licence)
        for name, version, licence in release.list_licences("jax")
    }
    assert {"jax", "jaxlib", "numpy"} <= rows.keys() and "pytest" not in rows
    assert rows["jax"][1].startswith("Apache")
    assert not [name for name, row in rows.items() if row[1] == "not stated"]
