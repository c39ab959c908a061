"""`framing.json` of a run: the special tokens of the model that was imported."""

import dataclasses
from pathlib import Path

from jaxpt.errors import CheckpointError, UserError
from jaxpt.files.folder import load_json, write_json
from jaxpt.text.tokens.vocab import Vocab
from jaxpt.text_form import TextForm, from_json

NAME = "framing.json"


def write_text_form(workdir: Path, form: TextForm) -> None:
    """Writes the file."""
    write_json(workdir / NAME, form.to_json())


def with_text_form(vocab: Vocab, workdir: Path) -> Vocab:
    """The vocabulary with the special tokens of the folder's imported model, if any."""
    path = workdir / NAME
    if not path.exists():
        return vocab
    values = load_json(path, {str: object}, "import the model again")
    try:
        form = from_json(values)
    except UserError as error:
        raise CheckpointError(f"{path}: {error}; import the model again") from None
    return dataclasses.replace(vocab, text_form=form)
