"""Real corpora, vocabularies and weights that lie in `shared/data` beside the checkout.

A machine need not have them: the tests that read them are then skipped, and the summary
of the run says what each would have shown.
"""

from pathlib import Path

import pytest

DATA = Path(__file__).resolve().parents[2] / "shared" / "data"


def find_shared(path: str, shows: str) -> Path:
    """The file or folder; where it is missing the test is skipped.

    Args:
      path: below `shared/data`.
      shows: what the test shows, read after "would show".
    """
    if not (DATA / path).exists():
        pytest.skip(f"no ../shared/data/{path}; would show {shows}")
    return DATA / path
