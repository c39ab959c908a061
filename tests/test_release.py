"""What `make release` checks and writes, on small packages made here."""

import importlib.util
import io
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
PROJECT = '[project.urls]\nRepository = "https://github.com/{owner}/jaxpt"\n'


@pytest.fixture
def checkout(tmp_path):
    """A checkout of version 1.2.0 with two modules and a config."""
    files = {
        "jaxpt/version.py": '__version__ = "1.2.0"\n',
        "jaxpt/a.py": "",
        "jaxpt/__pycache__/a.pyc": "",
        "configs/tasks/b.py": "",
        "pyproject.toml": PROJECT.format(owner="OWNER"),
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


def test_a_placeholder_or_an_undated_section_blocks_an_upload(checkout):
    url, date = release.find_blockers(checkout)
    assert "Repository" in url and "[1.2.0] has no date" in date
    (checkout / "pyproject.toml").write_text(PROJECT.format(owner="someone"))
    dated = CHANGELOG.replace("unreleased", "2020-02-03")
    (checkout / "CHANGELOG.md").write_text(dated)
    assert release.find_blockers(checkout) == []


def test_colab_links_have_the_address_of_the_repository(checkout):
    """In this checkout, and in one whose address has changed."""
    texts = {p: p.read_text(encoding="utf-8") for p in release.list_badges()}
    assert len(texts) > 6 and release.list_badges() == texts
    assert all(release.BADGE.search(text) for text in texts.values())
    (checkout / "notebooks").mkdir()
    names = ["README.md", "notebooks/your_own_text.ipynb"]
    for name in names:
        (checkout / name).write_text(texts[ROOT / name])
    (checkout / "pyproject.toml").write_text(PROJECT.format(owner="someone"))
    changed = release.list_badges(checkout)
    for name in names:
        whole = texts[ROOT / name].replace("/OWNER/", "/someone/")
        assert changed[checkout / name] == whole != texts[ROOT / name]


def test_licences_are_of_all_that_the_package_requires():
    rows = {
        name: (version, licence)
        for name, version, licence in release.list_licences("jax")
    }
    assert {"jax", "jaxlib", "numpy"} <= rows.keys() and "pytest" not in rows
    assert rows["jax"][1].startswith("Apache")
    assert not [name for name, row in rows.items() if row[1] == "not stated"]
