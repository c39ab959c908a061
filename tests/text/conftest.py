"""Fixtures of the tests of jaxpt.text."""

from pathlib import Path

import pytest
from shared import find_shared


@pytest.fixture
def tinyshakespeare() -> Path:
    """The file, from the folder `shared` next to the checkout."""
    return find_shared(
        "corpora/tinyshakespeare/input.txt",
        "the founding experiment's numbers of tokens, stores of a real text after "
        "kills, and published vocabularies on it",
    )
