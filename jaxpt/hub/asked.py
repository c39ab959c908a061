"""What a user asks of an import, held against what the folder is.

A flag is heeded or refused. A config file gives way to the folder, and that is said.
"""

import dataclasses
from collections.abc import Collection
from pathlib import Path
from typing import Any

from jaxpt.config.settings import WRITTEN, default_config, override, to_dict
from jaxpt.errors import UserError
from jaxpt.hub.origin import Origin
from jaxpt.nn.model_spec import COMPUTING, ModelSpec, find_differences
from jaxpt.text.tokens import tokenizer as tokenizers
from jaxpt.text.tokens.tokenizer import Tokenizer, TokenizerSpec, make_tokenizer

# The settings of an objective's needs that the folder has said.
FIXED = (
    "tokenizer.specials",
    "tokenizer.num_sentinels",
    "model.num_decoder_layers",
    "model.num_types",
    "model.max_len",
)


class Asked:
    """The settings of an import.

    Args:
      config: all of them, as `import_run` is given them.
      flags: full names of those that flags have set, such as "model.dropout".
      folder: of the import, as errors name it.
    """

    def __init__(self, config, flags: Collection[str], folder: Path):
        self.config = to_dict(config)
        self._defaults = to_dict(default_config())
        self._flags, self.folder = frozenset(flags), folder
        self._replaced: list[str] = []

    def __contains__(self, name: str) -> bool:
        return name in self._flags

    @property
    def fixed(self) -> set[str]:
        """What no objective's needs may change: flags, the folder's ids and sizes."""
        return {*self._flags, *FIXED}

    @property
    def model(self) -> dict[str, Any]:
        """The fields of the model that flags have set, with their values."""
        names = [field.name for field in dataclasses.fields(ModelSpec)]
        return {n: self.get(f"model.{n}") for n in names if f"model.{n}" in self}

    def get(self, name: str):
        """A setting by its full name."""
        section, _, field = name.rpartition(".")
        return (self.config[section] if section else self.config)[field]

    def take(self, name: str, value) -> None:
        """Sets what the folder has; a flag must say the same.

        Raises:
          UserError: it says something else.
        """
        if name in self and self.get(name) != value:
            raise self.refusal(name, f"must be {value!r}")
        self.prefer(name, value)

    def prefer(self, name: str, value) -> None:
        """Sets what the folder has unless a flag says otherwise."""
        if name in self:
            return
        section, _, field = name.rpartition(".")
        here = self.config[section] if section else self.config
        default = (self._defaults[section] if section else self._defaults)[field]
        if here[field] not in (value, default):
            self._replaced.append(f"{name}={here[field]!r} ({value!r})")
        here[field] = value

    def refusal(self, name: str, allowed: str) -> UserError:
        """That a flag's value contradicts the folder."""
        return UserError(
            f"--config.{name}={self.get(name)}: {allowed} for --from={self.folder}, "
            f"or be left out"
        )

    def settle_model(self, spec: ModelSpec) -> None:
        """Sets the model's section to the folder's spec.

        What makes no other network of it (dropout, say, and how it is computed) is the
        user's to set.

        Raises:
          UserError: a flag makes another network of it.
        """
        apart = dict(find_differences(dataclasses.replace(spec, **self.model), spec))
        for name in self.model:
            if name in apart:
                held = getattr(spec, name)
                raise self.refusal(f"model.{name}", f"must be {held!r}")
        for name, value in dataclasses.asdict(spec).items():
            if name not in COMPUTING:
                self.prefer(f"model.{name}", value)

    def settle_objective(self, name: str, origin: Origin | None) -> None:
        """Sets the objective, and its section to that of the run that was exported.

        Raises:
          UserError: the run's file has what is no setting, or is of another type.
        """
        self.prefer("objective", name)
        section = self.config[name]
        if origin and origin.objective == name:
            override(self.config, {name: origin.settings}, str(origin.path))
            for field, value in origin.settings.items():
                self.prefer(f"{name}.{field}", value)
        for field in WRITTEN & section.keys():
            section[field] = self._defaults[name][field]

    def settle_tokenizer(self, place: Path, size: int) -> Tokenizer:
        """The folder's tokenizer, with the specials that flags ask for at its end.

        Args:
          place: of its files.
          size: ids of the model.

        Raises:
          UserError: it has more ids than the model, or a flag asks for another.
        """
        held = tokenizers.load(place)
        if held.vocab.size > size:
            raise UserError(
                f"{place}: its tokenizer has {held.vocab.size} ids, its config "
                f"vocab_size={size}, which must be at least as many"
            )
        self.take("tokenizer.kind", "file")
        self.take("tokenizer.lowercase", False)  # the file tells by itself
        if "tokenizer.vocab_size" in self:
            self.take("tokenizer.vocab_size", held.vocab.size)
        if "tokenizer.path" in self:
            other = tokenizers.load(self.get("tokenizer.path"))
            if tokenizers.fingerprint(other) != tokenizers.fingerprint(held):
                raise self.refusal("tokenizer.path", "must be the same tokenizer")
        for field in ("path", "vocab_size", "specials", "num_sentinels"):
            self.prefer(f"tokenizer.{field}", self._defaults["tokenizer"][field])
        return self._add_specials(held, place, size)

    def _add_specials(self, held: Tokenizer, place: Path, size: int) -> Tokenizer:
        for field in ("specials", "num_sentinels"):
            name = f"tokenizer.{field}"
            if name not in self:
                continue
            section = self.config["tokenizer"]
            specials = tuple(section["specials"])
            more = section["num_sentinels"] if field == "num_sentinels" else 0
            spec = TokenizerSpec("file", str(place), 1, specials, more)
            try:
                made = make_tokenizer(spec, ())
            except UserError as error:
                raise UserError(f"--config.{name}={self.get(name)}: {error}") from error
            if made.vocab.size > size:
                raise self.refusal(
                    name,
                    f"needs {made.vocab.size} ids, must fit into the model's {size}",
                )
            held = made
        return held

    def list_replaced(self) -> list[str]:
        """A line on what a config file says and the folder has otherwise, if any."""
        if not self._replaced:
            return []
        told = ", ".join(self._replaced)
        return [f"--config gives way to what --from={self.folder} has: {told}"]
