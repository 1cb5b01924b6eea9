"""Nested lists, tuples and dicts, and what a library has registered as such."""

from torch.utils._pytree import tree_map

__all__ = ["tree_map"]
