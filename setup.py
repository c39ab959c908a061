"""What pyproject.toml cannot say: configs/ is a part of the installed package."""

from setuptools import find_packages, setup

CONFIGS = {"jaxpt.configs": "configs", "jaxpt.configs.tasks": "configs/tasks"}

setup(packages=[*find_packages(include=["jaxpt*"]), *CONFIGS], package_dir=CONFIGS)
