"""Local copies of URLs, and how a path in one is shown to the user."""

ROOTS: dict[str, str] = {}  # the local folder of each URL that this process has copied


def with_urls(value: object) -> str:
    """A path or a text, with URLs in the place of the paths of local copies."""
    text = str(value)
    for url, root in ROOTS.items():
        text = text.replace(root, url)
    return text
