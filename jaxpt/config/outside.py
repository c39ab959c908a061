"""A config with the settings of objectives of the user's own, for flags to change."""

from ml_collections import ConfigDict

from jaxpt.config import stored
from jaxpt.config.config_files import read_config_file
from jaxpt.config.settings import default_section
from jaxpt.objectives import find, find_section


def get_config(told):
    """As a config file has it.

    Args:
      told: "NAME,NAME|CONFIG": the objectives, and the config as --config names it; ""
        is every setting at its default.

    Raises:
      UserError: an objective or the config cannot be loaded.
    """
    names, _, path = told.partition("|")
    if path and not path.endswith(".json"):
        config = read_config_file(path)
    else:
        config = stored.get_config(path)
    for name in names.split(","):
        section = find_section(name)
        if section not in config:
            config[section] = ConfigDict(default_section(find(name).Spec))
    return config
