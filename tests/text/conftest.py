"""What tests of readers share: data sets count as named by the user."""

import pytest

from jaxpt import trust


@pytest.fixture(autouse=True)
def trusts_data_sets(trusts_nothing):
    """Of TFDS and of the Hub, by any name."""
    trust.trust(["tfds", "hf"])
