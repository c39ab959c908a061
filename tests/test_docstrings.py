"""Public functions are documented: where they are, or in what they implement."""

import ast
from pathlib import Path

import jaxpt

PACKAGE = Path(jaxpt.__file__).parent
FRAMEWORKS = {"setup"}  # of Flax's modules


def is_public(node):
    is_named = isinstance(node, ast.FunctionDef | ast.ClassDef)
    return is_named and not node.name.startswith("_")


def is_overload(node):
    names = {getattr(each, "id", "") for each in getattr(node, "decorator_list", ())}
    return "overload" in names


def list_members():
    """(file, class or "", node) of all public functions and classes."""
    for path in sorted(PACKAGE.rglob("*.py")):
        name = str(path.relative_to(PACKAGE))
        for node in filter(is_public, ast.parse(path.read_text("utf-8")).body):
            yield name, "", node
            if isinstance(node, ast.ClassDef):
                for member in filter(is_public, node.body):
                    yield name, node.name, member


def test_every_public_function_has_a_docstring():
    members = [each for each in list_members() if not is_overload(each[2])]
    # A method may have that of the protocol or the base that it implements.
    documented = FRAMEWORKS | {
        node.name for _, owner, node in members if owner and ast.get_docstring(node)
    }
    missing = [
        f"{name}: {owner}.{node.name}"
        for name, owner, node in members
        if not ast.get_docstring(node) and not (owner and node.name in documented)
    ]
    assert len(members) > 2000 and not missing
