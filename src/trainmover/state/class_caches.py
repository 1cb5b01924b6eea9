# SPDX-License-Identifier: Apache-2.0
"""Caches of what is known of a class, emptied when a run of the script is over.

A class of the script refers to its methods, those to the globals of their file, and those to the
model, the optimizers and the newest batch. So one entry of a cache would keep all of a run in
memory for as long as the process lives.
"""

from collections.abc import Callable
from functools import lru_cache
from typing import Any, ParamSpec, TypeVar

_ENTRIES_MAX = 4096
_caches: list[Any] = []
P = ParamSpec("P")
T = TypeVar("T")


def cached_by_class(function: Callable[P, T]) -> Callable[P, T]:
    """Cache what `function` returns for a class, until `forget_classes`."""
    cache = lru_cache(maxsize=_ENTRIES_MAX)(function)
    _caches.append(cache)
    return cache  # type: ignore[return-value]


def forget_classes() -> None:
    """Empty all of these caches. Called when the script's run in this process is over."""
    for cache in _caches:
        cache.cache_clear()
