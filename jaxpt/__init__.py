"""Pretrain Transformers under any objective and say which taught most for the same cost."""

__version__ = "0.1.0"
