"""Small trained models that come with jaxpt, by name: "demo:mlm".

`make models` trains them (configs/models.py). Each is a folder of transformers in
jaxpt/hub/models, whose model card states how it was trained and the verdicts of the
comparison that it is from.
"""

from pathlib import Path

from jaxpt.errors import DataError, argument
from jaxpt.hub.opened import PREFIX

PLACE = Path(__file__).parent / "models"


def find_model(source: str) -> str:
    """The folder of `demo:NAME`; another source is returned as it is.

    >>> Path(find_model("demo:mlm")).name, find_model("runs/mlm")
    ('mlm', 'runs/mlm')
    """
    if not source.startswith(PREFIX):
        return source
    names = list_models()
    if source not in names:
        raise DataError(
            f"{argument('from')}={source}: must be one of {', '.join(names)}"
        )
    return str(PLACE / source.removeprefix(PREFIX))


def list_models() -> dict[str, str]:
    """What each shipped model is, the title of its model card, by its name."""
    cards = sorted(PLACE.glob("*/README.md"))
    return {f"{PREFIX}{path.parent.name}": _read_title(path) for path in cards}


def _read_title(path: Path) -> str:
    lines = path.read_text(encoding="utf-8").splitlines()
    return next(line.removeprefix("# ") for line in lines if line.startswith("# "))
