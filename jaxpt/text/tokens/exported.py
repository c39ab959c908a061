"""Writes a tokenizer for transformers, with the special tokens around a text."""

import os

from jaxpt.errors import UserError
from jaxpt.files import disk
from jaxpt.text.tokens.core import dump_core
from jaxpt.text.tokens.encoding import Tokenizer
from jaxpt.text.tokens.post_processor import (
    read_pair_template,
    read_template,
    write_template,
)
from jaxpt.text.tokens.tokenizer import add_roles
from jaxpt.text_form import TextForm


def export_tokenizer(
    tokenizer: Tokenizer,
    path: str | os.PathLike,
    form: TextForm | None = None,
    has_types: bool = False,
    has_roles: bool = False,
) -> None:
    """Writes a tokenizer for transformers.

    It encodes a text like `encode_prompt`, with the form around it, if specials in
    the text have their names in the vocabulary.

    Args:
      form: None keeps the post-processor of the tokenizer's original file. Without
        `between`, two texts are written as in the original file, or else as
        `write_template` does.
      has_types: whether the second of two texts then has type ids 1.
      has_roles: whether it has the roles of its special tokens, as a run's has. Without
        them, other files of its folder determine the roles.
    """
    core = tokenizer.to_core()
    if form is not None:
        core |= {"truncation": None, "padding": None}
        is_same = _template_or_none(core) == (form.before, form.after)
        if form.between is not None:
            both = read_pair_template(core["post_processor"])
            is_same = is_same and both is not None and both.pair == form.pair
        if not is_same:
            used = {*form.before, *form.separator, *form.after}
            names = {id_: tokenizer.token_name(id_) for id_ in used}
            template = write_template(form, names, has_types)
            core["post_processor"] = template
    if has_roles:
        core = add_roles(core, tokenizer.vocab)
    disk.replace(path, dump_core(core))


def _template_or_none(core: dict) -> tuple | None:
    try:
        return read_template(core["post_processor"])
    except UserError:
        return None
