"""Every setting at its default, or as the config.json of a run has it."""

from pathlib import Path

from jaxpt.config.settings import default_config
from jaxpt.errors import UserError
from jaxpt.folder import load_config


def get_config(path=""):
    """As a config file has it.

    Args:
      path: of a stored config, JSON; settings that it lacks stay at their defaults.

    Raises:
      UserError: it cannot be read, or has a setting that there is not.
    """
    config = default_config()
    if not path:
        return config
    stored = load_config(Path(path), "--config=FILE.json must be a run's config.json")
    if not isinstance(stored, dict):
        raise UserError(f"--config={path}: must hold sections of settings")
    for name, value in stored.items():
        if name == "objective" and isinstance(value, str):
            config.objective = value
            continue
        if name not in config or not isinstance(value, dict):
            raise UserError(f"--config={path}: {name}: is no section of settings")
        for field, setting in value.items():
            if field not in config[name]:
                raise UserError(f"--config={path}: {name}.{field}: is no setting")
            is_list = isinstance(setting, list)
            config[name][field] = tuple(setting) if is_list else setting
    return config
