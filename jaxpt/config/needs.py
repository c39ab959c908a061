"""Fills in the settings that an objective needs and a config lacks.

Any objective trains from any config: a decoder, special tokens, sentinels, the form of
rows, sentences, segment types and positions are added if the objective needs them
(`jaxpt.objectives.spec.Needs`). A setting that the user has set by a flag is never
changed; if it contradicts the objective, `jaxpt.config.plan` raises an error.
"""

import dataclasses
import math
from collections.abc import Collection, Iterable
from pathlib import Path
from typing import Any

from jaxpt.by_name import load_place
from jaxpt.config.settings import to_dict
from jaxpt.files.remote import fetch
from jaxpt.languages import is_language
from jaxpt.objectives.spec import Needs, ObjectiveSpec
from jaxpt.text.rows.rows_spec import FORMS, PACKED, PAIRS, RowsSpec
from jaxpt.text.sources.source_spec import parse_mixture
from jaxpt.text.stores.store import TOKENIZER, is_store
from jaxpt.text.text_spec import TextSpec
from jaxpt.text.tokens.tokenizer import TokenizerSpec, load

# The default of data.sentences if an objective needs sentences.
SENTENCES = "punctuation"
PLAIN_ROWS = "chunks"
# The most ids that a question adds to a document: [CLS], [SEP], PRE, SUF and MID.
NUM_AROUND = 5


class Filler:
    """Changes a plain config and records the changes.

    Args:
      explicit_names: full names ("model.num_layers") of settings that must not be
        changed.
    """

    def __init__(self, config: dict, explicit_names: Collection[str]):
        self.config, self.explicit_names = config, frozenset(explicit_names)
        self.changes: dict[str, object] = {}

    def get(self, name: str, default: Any) -> Any:
        """A setting's value, or `default` if the config does not have it."""
        section, field = name.split(".")
        return self.config.get(section, {}).get(field, default)

    def set(self, name: str, value: Any) -> None:
        """Changes a setting, unless the user has set it."""
        section, field = name.split(".")
        if name in self.explicit_names or self.get(name, None) == value:
            return
        self.config.setdefault(section, {})[field] = value
        self.changes[name] = value

    def add(self, name: str, values: Iterable[str]) -> None:
        """Appends the values that a list lacks."""
        present = list(self.get(name, ()))
        missing = [value for value in values if value not in present]
        if missing:
            self.set(name, present + missing)

    def describe(self) -> str:
        """The changes as one line; "" for none."""
        return ", ".join(f"{name}={_show(v)}" for name, v in self.changes.items())


def fill_decoder(
    filler: Filler,
    spec_type: type[ObjectiveSpec],
    parts: Collection[type[ObjectiveSpec]] = (),
) -> None:
    """Adds or removes decoder layers, for the architectures of the objective.

    Args:
      parts: the objectives that it mixes, all of which have to train the network.
    """
    num_layers = filler.get("model.num_decoder_layers", 0)
    other = 0 if num_layers else filler.get("model.num_layers", 2)
    is_wanted = spec_type.networks()[0].HAS_DECODER and not num_layers
    if parts:
        can_stay, can_change = (
            all(part.kind(number) is not None for part in parts)
            for number in (num_layers, other)
        )
        is_wanted = can_change and not can_stay
    if spec_type.kind(num_layers) is None or is_wanted:
        filler.set("model.num_decoder_layers", other)


def fill_answers(filler: Filler, reads: frozenset[str]) -> None:
    """Reads losses in the answers of a task, if the objective can."""
    path, form = filler.get("data.path", ""), filler.get("data.rows", PLAIN_ROWS)
    is_task = False
    if is_language(path):
        is_task = load_place("jaxpt.languages.parameters:find_spec")(path).HAS_ANSWERS
    is_alone = not filler.get("data.mixture", ()) and form not in PAIRS
    if is_task and is_alone and "answers" in reads:
        filler.set("data.answers_only", True)
    elif "answers" not in reads and filler.get("data.answers_only", False):
        filler.set("data.answers_only", False)


def fill_rows(filler: Filler, needs: Needs, reads: frozenset[str]) -> None:
    """Chooses a form of rows that the objective can read, with the fields it needs."""
    form = filler.get("data.rows", PLAIN_ROWS)
    if needs.rows and form not in needs.rows:
        filler.set("data.rows", needs.rows[0])
    elif form in FORMS and not set(RowsSpec(128, form).keys) <= reads:
        filler.set("data.rows", PLAIN_ROWS)
    form = filler.get("data.rows", PLAIN_ROWS)
    if needs.sentence_ids and form not in PAIRS:  # which have two sentences
        filler.set("data.sentence_ids", True)
    elif "sentence_ids" not in reads and filler.get("data.sentence_ids", False):
        filler.set("data.sentence_ids", False)
    cuts = form in (*PACKED[1:], *PAIRS)
    if (cuts or needs.sentence_ids) and not filler.get("data.sentences", ""):
        filler.set("data.sentences", SENTENCES)


def fill_store(filler: Filler) -> None:
    """Takes the tokenizer of a prepared text, in place of a config file's settings."""
    path = filler.get("data.path", "")
    if filler.get("data.mixture", ()) or not is_store(path):
        return
    section = filler.config.setdefault("tokenizer", {})
    for name, default in to_dict(dataclasses.asdict(TokenizerSpec())).items():
        is_given = f"tokenizer.{name}" in filler.explicit_names
        if not is_given and section.get(name, default) != default:
            section[name] = default
            filler.changes["tokenizer"] = f"that of {path}"


def fill_tokenizer(filler: Filler, needs: Needs) -> None:
    """Adds special tokens and sentinels; to a stored tokenizer, only missing ones."""
    if {"tokenizer.specials", "tokenizer.num_sentinels"} <= filler.explicit_names:
        return
    specials, num_sentinels = needs.specials, 0
    if filler.get("data.add_special_tokens", False):
        specials = tuple(dict.fromkeys((*specials, "cls", "sep")))
    if path := _find_tokenizer(filler):
        vocab = load(path).vocab
        specials = tuple(r for r in specials if getattr(vocab, r) is None)
        num_sentinels = vocab.num_sentinels
    filler.add("tokenizer.specials", specials)
    num_sentinels = max(num_sentinels, filler.get("tokenizer.num_sentinels", 0))
    if num_sentinels < needs.num_sentinels:
        filler.set("tokenizer.num_sentinels", needs.num_sentinels)


def _find_tokenizer(filler: Filler) -> Path | None:
    """The file of an existing tokenizer: a named one, or that of a prepared text.

    An empty name is refused later, when the tokenizer is made.
    """
    if filler.get("tokenizer.kind", "") == "file":
        path = filler.get("tokenizer.path", "")
        return fetch(path) if path else None
    mixture = filler.get("data.mixture", ())
    paths = [path for path, _ in parse_mixture(mixture)] if mixture else []
    for path in paths or [filler.get("data.path", "")]:
        if is_store(path):
            return fetch(path) / TOKENIZER
    return None


def share_text(filler: Filler, text: TextSpec) -> None:
    """Adds what one objective needs of text and tokenizer to the shared config."""
    filler.add("tokenizer.specials", text.tokenizer.specials)
    if filler.get("tokenizer.num_sentinels", 0) < text.tokenizer.num_sentinels:
        filler.set("tokenizer.num_sentinels", text.tokenizer.num_sentinels)
    if text.sentences:
        filler.set("data.sentences", text.sentences)


def fill_model(filler: Filler, needs: Needs, lengths: dict[str, int]) -> None:
    """Adds segment types, and positions for the longest input of a stack.

    Inputs of training, and documents of a language, of which regret is measured.
    """
    if filler.get("model.num_types", 0) < needs.num_types:
        filler.set("model.num_types", needs.num_types)
    longest = max(*lengths.values(), _find_question_length(filler))
    is_table = filler.get("model.positions", "learned") in ("learned", "sinusoidal")
    if is_table and filler.get("model.max_len", math.inf) < longest:
        filler.set("model.max_len", longest)


def _find_question_length(filler: Filler) -> int:
    """Positions of a question about a document with exact answers; 0 without one."""
    path = filler.get("data.path", "")
    is_asked = is_language(path) and filler.get("eval.regret_documents", 1)
    if not is_asked or filler.get("data.mixture", ()):
        return 0
    named = load_place("jaxpt.languages.parameters:read_language")(path)
    return int(named.spec.document_length) + NUM_AROUND


def fill_warmup(filler: Filler) -> None:
    """Shortens a warm-up that is longer than the run, to a tenth of its steps."""
    steps = filler.get("train.steps", math.inf)
    if filler.get("optim.warmup_steps", 0) >= steps >= 1:
        filler.set("optim.warmup_steps", steps // 10)
        if steps < 10:  # without a warm-up, none is flat
            filler.set("optim.warmup_type", "linear")


def _show(value: Any) -> str:
    return "+".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
