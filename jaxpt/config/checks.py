"""Checks of the values of settings, with errors that name the setting."""

from typing import Any

from jaxpt.errors import ConfigError


def check(section: str, spec: Any, name: str, is_good: bool, allowed: str) -> None:
    """Raises ConfigError with the setting, its value and what is allowed.

    Args:
      spec: the dataclass that has the setting as a field.
    """
    if not is_good:
        value = getattr(spec, name)
        raise ConfigError(f"{section}.{name}={value}: must be {allowed}")


def check_least(section: str, spec: Any, least: int, *names: str) -> None:
    """Raises ConfigError if one of these settings is below the least allowed value."""
    for name in names:
        check(section, spec, name, getattr(spec, name) >= least, f"at least {least}")
