"""For the doctests of `import jaxpt`: a folder with what a user has who reads them."""

import os
import pathlib

import pytest

TEXT = "The state of the union is strong. " * 60


@pytest.fixture(scope="session")
def users_folder(tmp_path_factory):
    """`my.txt`, `reviews.tsv`, `pairs.tsv`, and the runs `runs/mlm` and `runs/clm`."""
    from tiny import make_config, write_run

    folder = tmp_path_factory.mktemp("user")
    (folder / "my.txt").write_text(TEXT, encoding="utf-8")
    rows = ["sentence\tlabel", *(f"{w} a film\t{w}" for w in ["good", "bad"] * 8)]
    (folder / "reviews.tsv").write_text("\n".join(rows), encoding="utf-8")
    pairs = "good\tbad\nthe union is\tthe union are\n"
    (folder / "pairs.tsv").write_text(pairs, encoding="utf-8")
    for name in ("mlm", "clm"):
        write_run(make_config(folder / "my.txt", name), folder / "runs" / name)
    return folder


@pytest.fixture(autouse=True)
def trusts_nothing():
    """What one test has named is not trusted in the next."""
    from jaxpt import trust

    trust._trusted.clear()


@pytest.fixture(autouse=True)
def in_users_folder(request, doctest_namespace):
    """Runs the doctests of the public names there."""
    test = getattr(request.node, "dtest", None)
    if test is None or not test.name.startswith("jaxpt.api"):
        yield
        return
    import jaxpt

    doctest_namespace["jaxpt"] = jaxpt
    before = pathlib.Path.cwd()
    os.chdir(request.getfixturevalue("users_folder"))
    try:
        yield
    finally:
        os.chdir(before)
