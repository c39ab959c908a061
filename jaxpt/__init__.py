"""Pretrain Transformers under any objective; say which taught most for its cost."""

__version__ = "0.2.0"
