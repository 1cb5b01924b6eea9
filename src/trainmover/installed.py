# SPDX-License-Identifier: Apache-2.0
"""What came with Python or by a package installer, and is none of a script's own files."""

import os
import site
import sysconfig
from functools import cache, lru_cache

_SITES = frozenset({"site-packages", "dist-packages"})


@cache
def _installed_at() -> tuple[str, ...]:
    places = {sysconfig.get_path(name) for name in ("stdlib", "platstdlib", "purelib", "platlib")}
    places |= {*site.getsitepackages(), site.getusersitepackages()}
    return tuple(os.path.join(os.path.realpath(place), "") for place in places)


@lru_cache(maxsize=4096)
def _real_folder(path: str) -> str:
    """Thousands of modules lie in some hundred folders."""
    return os.path.realpath(path)


def is_installed(path: str) -> bool:
    """Whether a module's file came with Python or by a package installer."""
    folder, name = os.path.split(path)
    real = os.path.join(_real_folder(folder), name)
    if os.path.islink(real):
        real = os.path.realpath(real)
    return real.startswith(_installed_at()) or not _SITES.isdisjoint(real.split(os.sep))
