"""The version, which every file that is written says."""

__version__ = "0.2.0"
