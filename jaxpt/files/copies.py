"""Local copies of URLs, and how texts that may name them are shown to the user.

All that is printed, logged or written about a run passes `with_urls`, which also masks
passwords; what reaches a terminal or a log also passes `printable`.
"""

import os
import re

ROOTS: dict[str, str] = {}  # the local folder of each URL that this process has copied
# A URL's user and password. abfs://CONTAINER@ACCOUNT has neither.
PASSWORD = re.compile(
    r"(\bhttps?:/{1,2}|\b[A-Za-z][A-Za-z0-9+.-]*:/{1,2}(?=[^\s/@\"']*:))[^\s/@\"']+@"
)
# Environment variables that log in to a tracker, a hub or a store.
SECRETS = (
    *("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN", "WANDB_API_KEY", "MLFLOW_TRACKING_TOKEN"),
    *("MLFLOW_TRACKING_PASSWORD", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"),
    *("AZURE_STORAGE_ACCOUNT_KEY", "AZURE_STORAGE_SAS_TOKEN", "COMET_API_KEY"),
)
_SHORTEST = 8  # characters; a shorter value is no secret, and may be part of a word
# Control characters, which move the cursor of a terminal or give it commands;
# characters that change the direction of a text; halves of surrogate pairs.
_CONTROL = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u2028-\u202e\u2066-\u2069\ud800-\udfff]"
)


def with_urls(value: object) -> str:
    """A path or a text, with URLs in the place of the paths of local copies.

    Users and passwords of URLs are masked, and the values of `SECRETS`.

    >>> with_urls("s3://me:secret@bucket/a: is empty")
    's3://***@bucket/a: is empty'
    """
    text = str(value)
    for url, root in ROOTS.items():
        text = text.replace(root, url)
    for name in SECRETS:
        if len(secret := os.environ.get(name, "")) >= _SHORTEST:
            text = text.replace(secret, "***")
    return PASSWORD.sub(r"\1***@", text) if "@" in text else text


def printable(value: object) -> str:
    r"""As `with_urls`, with control characters as escape sequences of Python.

    Line breaks and tabs are kept. A stored name or text may hold anything.

    >>> print(printable("a\x1b[31mb\u202ec"))
    a\x1b[31mb\u202ec
    """
    return _CONTROL.sub(lambda found: ascii(found[0])[1:-1], with_urls(value))
