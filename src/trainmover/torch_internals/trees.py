# SPDX-License-Identifier: Apache-2.0
"""Nested lists, tuples and dicts, and what a library has registered as such."""

from torch.utils._pytree import tree_flatten, tree_map, tree_unflatten

__all__ = ["tree_flatten", "tree_map", "tree_unflatten"]
