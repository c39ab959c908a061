"""All that is known about a family is in one file, which is loaded when it is used."""

import ast
import subprocess
import sys
from pathlib import Path

import pytest

from jaxpt.hub.families import FAMILIES, REFUSED
from jaxpt.hub.family import NONE, find_family, list_families

ROOT = Path(__file__).resolve().parents[2]
HUB = ROOT / "jaxpt" / "hub"
FILES = {path.stem: path for path in (HUB / "families").glob("[!_]*.py")}
# What shares a name with a family and is not one: an ELECTRA run's ONNX graphs, and
# owners of models on the Hub.
OTHERS = {("model_json.py", "electra"), ("download.py", "gpt2")}
OTHERS |= {("download.py", "distilbert"), ("download.py", "openai-gpt")}


def list_strings(path):
    """The constants of a file that are no docstrings."""
    tree = ast.parse(path.read_text())
    own = {
        id(node.body[0].value)
        for node in ast.walk(tree)
        if isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef)
        and node.body
        and isinstance(node.body[0], ast.Expr)
    }
    return [
        node.value
        for node in ast.walk(tree)
        if isinstance(node, ast.Constant)
        and isinstance(node.value, str)
        and id(node) not in own
    ]


def test_each_file_is_a_family_or_a_form_that_several_have():
    forms = {name for name in FILES if name.endswith("_form")}
    modules = {module.rpartition(".")[2] for module in FAMILIES.values()}
    assert modules == set(FILES) - forms
    for name in forms:
        users = [
            p for p in FILES.values() if f"families.{name} import" in p.read_text()
        ]
        assert users, name
    assert not FAMILIES.keys() & REFUSED.keys()


@pytest.mark.parametrize("kind", FAMILIES)
def test_a_file_describes_its_family(kind):
    family = find_family(kind)
    assert family.name == kind
    assert FAMILIES[kind].endswith(f".{kind.replace('-', '_').lower()}")
    assert kind in list_strings(FILES[kind.replace("-", "_").lower()])
    assert family.body == "" or family.body.endswith(".")
    assert family.buffers == NONE or "\\." in family.buffers
    assert family.marks.keys() <= family.heads.keys()
    for head in family.heads:
        assert family in list(list_families(head))


def test_no_other_file_of_the_hub_names_a_family():
    """So that another family is one file and one line."""
    found = set()
    for path in HUB.glob("*.py"):
        words = {word for text in list_strings(path) for word in text.split()}
        found |= {(path.name, word) for word in words & FAMILIES.keys()}
    assert found <= OTHERS


CODE = """
import sys
from jaxpt.hub import configs, convert, imports, specials, task_heads
from jaxpt.nn.model_spec import ModelSpec
def loaded():
    return {name.rpartition(".")[2] for name in sys.modules
            if name.startswith("jaxpt.hub.families.")}
assert not loaded(), loaded()
configs.read_config({"model_type": "qwen3"})
assert loaded() == {"qwen3", "qwen_form", "llama_form"}, loaded()
configs.write_config(ModelSpec(vocab_size=9, init="gpt2"), "causal")
assert loaded() == {"qwen3", "qwen_form", "llama_form", "gpt2"}, loaded()
"""


def test_a_family_is_loaded_when_it_is_used():
    subprocess.run([sys.executable, "-c", CODE], cwd=ROOT, check=True)
