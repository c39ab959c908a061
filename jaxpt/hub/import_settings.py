"""Merges the settings of an import with those of the imported folder.

A flag is applied, or refused if it contradicts the folder. The folder overrides the
settings of a config file, and a line reports them.
"""

import dataclasses
from collections.abc import Collection
from pathlib import Path
from typing import Any

from jaxpt.config.settings import (
    SECTIONS,
    default_config,
    default_section,
    list_derived,
    override,
    to_dict,
)
from jaxpt.errors import ConfigError, DataError, UserError, argument
from jaxpt.hub.origin import Origin
from jaxpt.nn.model_differences import COMPUTING, find_differences
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.objectives import OBJECTIVES
from jaxpt.objectives.spec import ObjectiveSpec
from jaxpt.text.tokens import tokenizer as tokenizers
from jaxpt.text.tokens.tokenizer import Tokenizer, TokenizerSpec, make_tokenizer
from jaxpt.text.tokens.vocab import Vocab

ROW_LENGTH = 64  # at which the needs of an objective are determined
# The settings of an objective's needs that the folder determines.
FIXED = (
    "tokenizer.specials",
    "tokenizer.num_sentinels",
    "model.num_decoder_layers",
    "model.num_types",
    "model.max_len",
)


class ImportSettings:
    """The settings of an import.

    Args:
      config: all settings, as given to `import_run`.
      flags: full names of the settings that flags have set, such as "model.dropout".
      source: the folder or name that is imported, for error messages.
    """

    def __init__(self, config: Any, flags: Collection[str], source: str) -> None:
        self.config = to_dict(config)
        self._defaults = to_dict(default_config())
        self._flags, self.source = frozenset(flags), source
        self._replaced: list[str] = []

    def __contains__(self, name: str) -> bool:
        return name in self._flags

    @property
    def fixed(self) -> set[str]:
        """Settings that no objective's needs may change: flags, the folder's sizes."""
        return {*self._flags, *FIXED}

    @property
    def model(self) -> dict[str, Any]:
        """The fields of the model that flags have set, with their values."""
        names = [field.name for field in dataclasses.fields(ModelSpec)]
        return {n: self.get(f"model.{n}") for n in names if f"model.{n}" in self}

    def get(self, name: str) -> Any:
        """A setting by its full name."""
        return _find_section(self.config, name)[name.rpartition(".")[2]]

    def take(self, name: str, value: Any) -> None:
        """Sets the folder's value; a flag must have the same value."""
        if name in self and self.get(name) != value:
            raise self.refusal(name, f"must be {value!r}")
        self.prefer(name, value)

    def prefer(self, name: str, value: Any) -> None:
        """Sets the folder's value unless a flag has set another one."""
        if name in self:
            return
        if self.is_set(name) and self.get(name) != value:
            self._replaced.append(f"{name}={self.get(name)!r} ({value!r})")
        self._set(name, value)

    def is_set(self, name: str) -> bool:
        """Whether a flag sets it, or a config file, to other than the default."""
        default = _find_section(self._defaults, name)[name.rpartition(".")[2]]
        return name in self or self.get(name) != default

    def suggest(self, name: str, value: Any) -> bool:
        """Sets a value that is neither the user's nor the folder's.

        Returns:
          whether it was changed.
        """
        if self.is_set(name) or self.get(name) == value:
            return False
        self._set(name, value)
        return True

    def _set(self, name: str, value: Any) -> None:
        _find_section(self.config, name)[name.rpartition(".")[2]] = value

    def refusal(self, name: str, allowed: str) -> UserError:
        """The error for a flag whose value contradicts the folder."""
        return ConfigError(
            f"{argument(f'config.{name}')}={self.get(name)}: {allowed} for "
            f"{argument('from')}={self.source}, or be left out"
        )

    def resolve_model(self, spec: ModelSpec) -> None:
        """Sets the model's section to the folder's spec.

        The user may change fields that do not change the network, such as dropout and
        how it is computed.
        """
        changed = dataclasses.replace(spec, **self.model)
        differences = dict(find_differences(changed, spec))
        for name in self.model:
            if name in differences:
                raise self.refusal(f"model.{name}", f"must be {getattr(spec, name)!r}")
        for name, value in dataclasses.asdict(spec).items():
            if name not in COMPUTING:
                self.prefer(f"model.{name}", value)

    def resolve_objective(self, name: str, origin: Origin | None) -> None:
        """Sets the objective, and its section to that of the exported run."""
        self.prefer("objective", name)
        defaults = to_dict(default_section(*SECTIONS[name]))
        section = self.config.setdefault(name, dict(defaults))
        self._defaults[name] = defaults
        if origin and origin.objective == name:
            for each, settings in {name: origin.settings, **origin.parts}.items():
                override(self.config, {each: settings}, str(origin.path))
                for field, value in settings.items():
                    self.prefer(f"{each}.{field}", value)
        for field in list_derived(OBJECTIVES[name].Spec) & section.keys():
            section[field] = defaults[field]

    def resolve_tokenizer(self, place: Path, size: int) -> Tokenizer:
        """The folder's tokenizer; specials that flags add are at its end.

        Args:
          place: the folder of its files.
          size: the number of ids of the model.
        """
        tokenizer = tokenizers.load(place)
        num_ids = tokenizer.vocab.size
        if num_ids > size:
            raise DataError(
                f"{place}: its tokenizer has {num_ids} ids, its config "
                f"vocab_size={size}, which must be at least {num_ids}"
            )
        self.take("tokenizer.kind", "file")
        self.take("tokenizer.lowercase", False)  # the file determines it
        if "tokenizer.strip_accents" in self:
            self.take("tokenizer.strip_accents", "auto")
        if "tokenizer.vocab_size" in self:
            self.take("tokenizer.vocab_size", num_ids)
        if "tokenizer.path" in self:
            other = tokenizers.load(self.get("tokenizer.path"))
            if tokenizers.fingerprint(other) != tokenizers.fingerprint(tokenizer):
                raise self.refusal("tokenizer.path", "must be the same tokenizer")
        for field in ("path", "vocab_size", "specials", "num_sentinels"):
            self.prefer(f"tokenizer.{field}", self._defaults["tokenizer"][field])
        return self._add_specials(tokenizer, place, size)

    def _add_specials(self, tokenizer: Tokenizer, place: Path, size: int) -> Tokenizer:
        for field in ("specials", "num_sentinels"):
            name = f"tokenizer.{field}"
            if name not in self:
                continue
            section = self.config["tokenizer"]
            specials = tuple(section["specials"])
            num_sentinels = section["num_sentinels"] if field == "num_sentinels" else 0
            spec = TokenizerSpec("file", str(place), 1, specials, num_sentinels)
            try:
                tokenizer = make_tokenizer(spec, ())
            except UserError as error:
                raise ConfigError(
                    f"{argument(f'config.{name}')}={self.get(name)}: {error}"
                ) from error
            if tokenizer.vocab.size > size:
                raise self.refusal(
                    name,
                    f"needs {tokenizer.vocab.size} ids, must fit into the model's "
                    f"{size}",
                )
        return tokenizer

    def list_replaced(self) -> list[str]:
        """A line on the settings of a config file that the folder overrides, if any."""
        if not self._replaced:
            return []
        settings = ", ".join(self._replaced)
        return [
            f"{argument('from')}={self.source} overrides settings of "
            f"{argument('config')}: {settings}"
        ]


def _find_section(config: dict[str, Any], name: str) -> dict[str, Any]:
    """The section of a full name; the config itself for "objective"."""
    section = name.rpartition(".")[0]
    if section and section not in config:  # of another objective
        config[section] = to_dict(default_section(*SECTIONS[section]))
    return config[section] if section else config


def choose_objective(head: str, vocab: Vocab) -> str:
    """The first objective that trains such a network and whose needs the ids meet.

    Args:
      head: a key of `Family.heads`.
    """
    names = [name for name, each in OBJECTIVES.items() if head in each.Spec.heads()]
    fitting = [name for name in names if _meets(vocab, OBJECTIVES[name].Spec)]
    return (fitting or names)[0]


def _meets(vocab: Vocab, spec_type: type[ObjectiveSpec]) -> bool:
    """Whether the vocabulary has what an objective needs, at its default settings."""
    needs = spec_type.for_seq_len(ROW_LENGTH).needs
    try:
        for role in needs.specials:
            vocab.require(role)
    except UserError:
        return False
    return vocab.num_sentinels >= needs.num_sentinels
