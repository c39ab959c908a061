"""Finds the family of a config.json or of a spec, and converts one to the other.

A spec fits a family if writing its config and reading that gives the spec back.
"""

import contextlib
import dataclasses
from collections.abc import Iterable, Mapping
from typing import Any

from jaxpt.errors import ConfigError, DataError, UserError, argument
from jaxpt.hub.families import (
    FAMILIES,
    OLDER_TYPES,
    REFUSED,
    REMOTE_CLASSES,
    VARIANTS,
)
from jaxpt.hub.family import Family, find_family, list_families
from jaxpt.hub.fields import Config, refusal
from jaxpt.nn.model_differences import find_differences
from jaxpt.nn.model_spec import ModelSpec
from jaxpt.text.tokens.vocab import Vocab


class NoFamilyError(ConfigError):
    """No family fits a spec.

    Attributes:
      nearest: the name of the family that differs in the fewest fields.
      settings: "model.FIELD=VALUE (now OTHER)" of each change with which it would fit.
    """

    def __init__(self, nearest: str, settings: Iterable[str]) -> None:
        self.nearest, self.settings = nearest, tuple(settings)
        super().__init__(
            f"no family of transformers has such a model; the nearest, {nearest}, "
            f"needs {', '.join(self.settings)}"
        )


def read_config(config: Config) -> tuple[Family, ModelSpec]:
    """The family and the spec of a `config.json`."""
    classes = config.get("architectures")
    kind = _find_type(config.get("model_type"), classes, config.get("auto_map"))
    for (name, field, value), variant in VARIANTS.items():
        kind = variant if kind == name and config.get(field) == value else kind
    if isinstance(kind, str) and kind in REFUSED:
        raise DataError(
            f"config.json: model_type={kind!r}: is not supported: its {REFUSED[kind]}"
        )
    if not isinstance(kind, str) or kind not in FAMILIES:
        if not config.get("auto_map"):
            raise refusal("model_type", kind, f"one of {', '.join(FAMILIES)}")
        raise DataError(
            f"config.json: model_type={kind!r}: is defined by code in its repository "
            f"(auto_map), which is not executed; must be one of {', '.join(FAMILIES)}"
        )
    if classes is not None and not (
        isinstance(classes, list) and all(isinstance(name, str) for name in classes)
    ):
        raise refusal("architectures", classes, "null or a list of names of classes")
    family = find_family(kind)
    return family, family.read(config)


def _find_type(kind: Any, classes: Any, code: Any = None) -> Any:
    """The `model_type` of a config, or what its classes or an older name mean.

    Args:
      code: its `auto_map`, by whose other classes two of one name are distinguished.

    >>> _find_type("new", None), _find_type("", ["LtgbertForMaskedLM"])
    ('gte', 'ltgbert')
    """
    if kind in (None, "") and isinstance(classes, list):
        others = code.values() if isinstance(code, dict) else ()
        texts = [name for name in (*others, *classes) if isinstance(name, str)]
        names = [name.rpartition(".")[2] for name in texts]
        names.sort(key=lambda name: "Causal" not in name)
        return next((REMOTE_CLASSES[n] for n in names if n in REMOTE_CLASSES), kind)
    return OLDER_TYPES.get(kind, kind) if isinstance(kind, str) else kind


def write_configs(
    specs: Mapping[str, ModelSpec],
    name: str = "",
    vocab: Vocab | None = None,
    objective: str = "",
) -> dict[str, tuple[Family, Config]]:
    """The families and configs of the networks of a run, by purpose.

    Raises:
      NoFamilyError: with the changes that all of them need.
    """
    written: dict[str, tuple[Family, Config]] = {}
    error: NoFamilyError | None = None
    for head, spec in specs.items():
        try:
            written[head] = write_config(spec, head, name, vocab, objective)
        except NoFamilyError as other:
            before = () if error is None else error.settings
            settings = dict.fromkeys((*before, *other.settings))
            error = NoFamilyError(other.nearest, settings)
    if error:
        raise error
    return written


def write_config(
    spec: ModelSpec,
    head: str,
    name: str = "",
    vocab: Vocab | None = None,
    objective: str = "",
) -> tuple[Family, Config]:
    """The family of a spec, and its `config.json`.

    Args:
      head: the model's purpose, a key of `Family.heads`.
      name: the family; "" is the first that the spec fits.
      vocab: the vocabulary for whose padding id the spec is first adapted
        (`Family.lay_out`); None for a spec that is adapted already.
      objective: of the run, whose attention mask the class must not contradict.
    """
    families = iter([_find_named(name, head)]) if name else list_families(head)
    families = (each for each in families if name or each.fits_objective(objective))
    misfits: list[tuple[str, dict[str, object]]] = []
    error: UserError | None = None
    for family in families:
        try:
            config, differences = _fit(spec, family, vocab)
        except UserError as exception:
            error = exception
            continue
        if not differences:
            if vocab is not None:
                family.check_pad(family.lay_out(spec, vocab.pad), vocab.pad)
            config |= {"model_type": family.name, "architectures": [family.heads[head]]}
            config |= family.purpose_fields.get(head, {})
            return family, family.restore(config)
        misfits.append((family.name, _list_changes(spec, family, vocab)))
    if not misfits:
        raise ConfigError(f"no family of transformers has such a model: {error}")
    nearest, changes = min(misfits, key=lambda misfit: len(misfit[1]))
    raise NoFamilyError(
        nearest,
        (
            f"model.{field}={value} (now {getattr(spec, field)})"
            for field, value in changes.items()
        ),
    )


def _fit(
    spec: ModelSpec, family: Family, vocab: Vocab | None
) -> tuple[Config, dict[str, object]]:
    """A spec's config.json in a family, and the fields that it does not say.

    Raises:
      UserError: the family cannot read the config.
    """
    export_spec = spec if vocab is None else family.lay_out(spec, vocab.pad)
    config = family.write(export_spec)
    unwritten = {field: getattr(export_spec, field) for field in family.unwritten}
    again = dataclasses.replace(family.read(config), **unwritten)
    return config, dict(find_differences(export_spec, again))


def _list_changes(
    spec: ModelSpec, family: Family, vocab: Vocab | None
) -> dict[str, object]:
    """The values with which a spec would fit, as far as they are known.

    A change may lead to others: learned positions have an offset, rotary ones do not.
    """
    changes: dict[str, Any] = {}
    with contextlib.suppress(UserError):
        while more := _fit(dataclasses.replace(spec, **changes), family, vocab)[1]:
            if more.keys() <= changes.keys():
                break
            changes |= more
    return changes


def _find_named(name: str, head: str) -> Family:
    """The family with this name."""
    if name in FAMILIES and head in find_family(name).heads:
        return find_family(name)
    names = ", ".join(family.name for family in list_families(head))
    raise ConfigError(
        f"{argument('family')}={name}: must be one that has a {head} model: {names}"
    )
