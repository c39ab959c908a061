"""What pyproject.toml cannot state: configs/ is a part of the installed package, and
the README's relative links become addresses for a package index."""

import re
import tomllib
from pathlib import Path

from setuptools import find_packages, setup

ROOT = Path(__file__).resolve().parent
CONFIGS = {"jaxpt.configs": "configs", "jaxpt.configs.tasks": "configs/tasks"}


def read_readme() -> str:
    """README.md with addresses in place of relative links, once there is a release."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    if "urls" not in project["project"]:
        return text
    base = project["project"]["urls"]["Repository"]
    relative = r"\]\((?!\w+:|#)"
    text = re.sub(rf"(!\[[^\]]*){relative}", rf"\1]({base}/raw/main/", text)
    return re.sub(relative, f"]({base}/blob/main/", text)


setup(
    packages=[*find_packages(include=["jaxpt*"]), *CONFIGS],
    package_dir=CONFIGS,
    long_description=read_readme(),
    long_description_content_type="text/markdown",
)
