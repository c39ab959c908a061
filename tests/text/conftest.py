"""What tests of readers share: data sets count as named by the user; a real text."""

from pathlib import Path

import pytest
from shared import find_shared

from jaxpt import trust


@pytest.fixture(autouse=True)
def trusts_data_sets(trusts_nothing):
    """Of TFDS and of the Hub, by any name."""
    trust.trust(["tfds", "hf"])


@pytest.fixture
def tinyshakespeare() -> Path:
    """The file, from the folder `shared` next to the checkout."""
    return find_shared(
        "corpora/tinyshakespeare/input.txt",
        "the founding experiment's numbers of tokens, stores of a real text after "
        "kills, and published vocabularies on it",
    )
