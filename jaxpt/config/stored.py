"""Every setting at its default, or as the config.json of a run has it."""

from pathlib import Path

from ml_collections import ConfigDict

from jaxpt.config.settings import default_config, default_section, list_outside
from jaxpt.errors import UserError
from jaxpt.files.folder import load_config
from jaxpt.objectives import OBJECTIVES, find_section


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
    outside = {find_section(n): OBJECTIVES[n].Spec for n in list_outside(stored)}
    for name, value in stored.items():
        if name == "objective" and isinstance(value, str):
            config.objective = value
            continue
        if name in outside and isinstance(value, dict):
            config[name] = ConfigDict(default_section(outside[name]))
        if name not in config or not isinstance(value, dict):
            raise UserError(f"--config={path}: {name}: is no section of settings")
        for field, setting in value.items():
            if field not in config[name]:
                raise UserError(f"--config={path}: {name}.{field}: is no setting")
            is_list = isinstance(setting, list)
            config[name][field] = tuple(setting) if is_list else setting
    return config
