"""Configs that come with jaxpt, by name: "quickstart" is configs/quickstart.py."""

import ast
from pathlib import Path

PACKAGE = Path(__file__).parents[1]
# In an installed package, and in a checkout.
PLACES = (PACKAGE / "configs", PACKAGE.parent / "configs")


def find_config(source: str) -> str:
    """The file of `NAME` or `NAME:ARGUMENT`, if the name is that of a shipped config.

    Its path in the repository is such a name, too. Another source is returned as it is.

    >>> Path(find_config("quickstart:mlm")).name
    'quickstart.py:mlm'
    >>> Path(find_config("configs/quickstart.py")).resolve().is_file()
    True
    >>> find_config("mine.py")
    'mine.py'
    """
    name, mark, argument = source.partition(":")
    if not name or Path(name).exists():
        return source
    if name.startswith("configs/"):
        name = name.removeprefix("configs/").removesuffix(".py")
    for place in PLACES:
        if not Path(name).suffix and (path := place / f"{name}.py").is_file():
            return f"{path}{mark}{argument}"
    return source


def is_shipped(source: str) -> bool:
    """Whether `FILE` or `FILE:ARGUMENT` is a config that comes with jaxpt.

    >>> is_shipped(find_config("quickstart:mlm")), is_shipped("quickstart.py")
    (True, False)
    """
    file = Path(source.partition(":")[0]).resolve()
    return any(file.is_relative_to(place.resolve()) for place in PLACES)


def list_configs() -> dict[str, str]:
    """The title of each shipped config, by its name."""
    place = next((place for place in PLACES if place.is_dir()), PLACES[0])
    return {
        path.relative_to(place).with_suffix("").as_posix(): read_title(path)
        for path in sorted(place.rglob("*.py"))
    }


def read_title(path: Path) -> str:
    """The first line of a module's docstring; it is not executed."""
    text = ast.get_docstring(ast.parse(path.read_text(encoding="utf-8")))
    return (text or "").partition("\n")[0]
