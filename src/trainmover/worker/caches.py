# SPDX-License-Identifier: Apache-2.0
"""What torch has derived from a run's groups, and would hand to the next run in this process.

DTensor remembers its plans by mesh, and meshes of equal shape are equal: the next run, as another
rank, would be given a plan that names groups which are no more.
"""

import functools
import gc
import sys
from collections.abc import Iterator
from typing import Any

from trainmover.torch_internals.distributed.sharding import forget_plans

_CACHE = type(functools.lru_cache(lambda: None))
_OF = "torch.distributed"


def forget_groups() -> None:
    """Empty the caches of torch.distributed. Call it when the groups are destroyed; tens of ms."""
    if f"{_OF}.tensor" not in sys.modules:
        return
    for cache in _caches():
        cache.cache_clear()
    forget_plans()


def _caches() -> Iterator[Any]:
    """In modules and classes; and in closures and threads, which only the collector knows.

    It does not know what was frozen before the first run: that is the former.
    """
    for value in [*_attributes(), *gc.get_objects()]:
        if type(value) is _CACHE and (value.__module__ or "").startswith(_OF):
            yield value


def _attributes() -> Iterator[object]:
    modules = [module for name, module in list(sys.modules.items()) if name.startswith(_OF)]
    for value in [value for module in modules for value in vars(module).values()]:
        yield value
        if issubclass(type(value), type):  # isinstance() makes some warn.
            yield from (getattr(part, "__func__", part) for part in vars(value).values())
