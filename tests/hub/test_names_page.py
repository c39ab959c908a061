"""The page of models by name is what `docs/names.py` writes."""

import importlib.util
from pathlib import Path

import pytest

DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="module")
def names():
    spec = importlib.util.spec_from_file_location("names", DOCS / "names.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_the_page_of_names_is_up_to_date(names):
    """Else: .venv/bin/python docs/names.py"""
    assert (DOCS / "names.md").read_text(encoding="utf-8") == names.write()


def test_a_config_is_judged_by_its_fields(names):
    assert names.judge(names.of("olmo3", rope_scaling=names.YARN))[0]
    is_read, reason = names.judge(names.of("olmo3", attention_bias=True))
    assert not is_read and "attention_bias=True" in reason
    assert names.judge(names.of("other")) == (False, "model_type='other'")
    reason = "model_type='mixtral': is not supported: its MLPs are mixtures of experts"
    assert names.judge(names.of("mixtral")) == (False, reason)
