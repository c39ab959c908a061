"""Names of files that are next to data but are not data.

The rule is that of Spark and PyArrow, which skip names that begin with "." or "_"
(`.DS_Store`, `._a.txt`, `__MACOSX/`, `_SUCCESS`, `.part-0.txt.crc`), with the files
that operating systems, checksums and people add.
"""

from pathlib import PurePosixPath

_SYSTEM = ("thumbs.db", "desktop.ini", "sha256sums", "sha1sums", "md5sums")
_SUFFIXES = (
    *(".crc", ".md5", ".sha1", ".sha256", ".sha512", ".sig", ".asc"),
    *(".lock", ".tmp", ".part", ".partial", ".crdownload", ".swp", ".bak"),
)
# Of any suffix and case, as in README.md.
_ABOUT = tuple("readme license licence copying notice citation changelog".split())


def is_leftover(name: str, pattern: str = "*") -> bool:
    """Whether a file of a folder or glob is not data.

    Args:
      name: relative to the folder, with "/".
      pattern: the last part of a glob; a name is data if the pattern spells out what
        makes it a leftover.

    >>> is_leftover("a/.b/c.txt"), is_leftover("__MACOSX/._c.txt"), is_leftover("c.txt")
    (True, True, False)
    >>> is_leftover("README.md", "*.md"), is_leftover("README.md", "README*")
    (True, False)
    """
    *folders, base = PurePosixPath(name).parts
    if any(folder.startswith((".", "_")) for folder in folders):
        return True
    if base.startswith((".", "_")):
        return not pattern.startswith(base[0])
    lower, asked = base.lower(), pattern.lower()
    stem = lower.partition(".")[0]
    if stem in _ABOUT:
        return not asked.startswith(stem)
    if lower in _SYSTEM or lower.endswith("~"):
        return asked != lower
    suffix = PurePosixPath(lower).suffix
    return suffix in _SUFFIXES and not asked.endswith(suffix)
