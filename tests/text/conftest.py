"""What the tests of the text room share."""

import contextlib
import hashlib
from pathlib import Path

import numpy as np
import pytest

from jaxpt.errors import UserError
from jaxpt.text.rows import Corpus


@pytest.fixture
def refuses():
    """`with refuses("data.path", "x.txt"):` wants a UserError of one line with both."""

    @contextlib.contextmanager
    def check(*parts: str):
        with pytest.raises(UserError) as caught:
            yield caught
        message = str(caught.value)
        assert len(message.splitlines()) == 1
        for part in parts:
            assert part in message

    return check


@pytest.fixture
def make_corpus():
    """`make_corpus(n)`: one document of the tokens 0 .. n-1."""

    def make(num_tokens, doc_starts=None, labels=(-1,), label_names=()):
        tokens = np.arange(num_tokens, dtype=np.int32)
        starts = np.array([0, num_tokens] if doc_starts is None else doc_starts)
        digest = hashlib.sha256(tokens).hexdigest()
        labels = np.array(labels, np.int32)
        return Corpus(tokens, starts, labels, label_names, 0, digest)

    return make


@pytest.fixture
def tinyshakespeare() -> Path:
    """The file, from the folder `shared` beside the checkout."""
    root = Path(__file__).resolve().parents[2]
    path = root / "../shared/data/corpora/tinyshakespeare/input.txt"
    if not path.exists():
        pytest.skip("shared/data is not beside this checkout")
    return path
