# SPDX-License-Identifier: Apache-2.0
"""Which modules are the script's own: they are loaded anew in each run, as `__main__` is.

What a script has installed stays loaded and warm. What lies beside it is the script in several
files: it may count, cache and configure as it is imported, so a second run that found it loaded
would not do what the first did. Packages with compiled parts are never loaded twice.
"""

import importlib.machinery
import itertools
import sys
from collections.abc import Iterable
from inspect import getattr_static

from trainmover.installed import is_installed
from trainmover.torch_internals.compiling import is_kept

_ours: frozenset[str] = frozenset()


def top_of(name: str) -> str:
    """The package that a module belongs to."""
    return name.partition(".")[0]


def last() -> str:
    """Name of the module that was loaded last."""
    return next(reversed(sys.modules))


def since(name: str) -> list[str]:
    """Those loaded after that one, in order; all, if it is no more.

    A process that was forked copies what it looks at, and thousands were loaded before.
    """
    newer = [*itertools.takewhile(lambda one: one != name, reversed(sys.modules))]
    return newer[::-1]


def ours_are_loaded() -> None:
    """No script has run yet, here or in what is forked from here: see `was_before`."""
    global _ours
    _ours = frozenset(sys.modules) - {"__main__"}


def was_before(name: str) -> bool:
    """Tell whether a module was loaded before any script ran here."""
    return name in _ours


def own(before: str) -> list[str]:
    """Names of the script's own modules among those loaded after the one named `before`. A package
    of which parts were there is none: its top is loaded first."""
    newer = since(before)
    tops = set(newer) - {"__main__", "trainmover"}
    packages: dict[str, list[str]] = {}
    for name in newer:
        if top_of(name) in tops:
            packages.setdefault(top_of(name), []).append(name)
    return [name for names in packages.values() if _all_own(names) for name in names]


def forget(names: Iterable[str]) -> None:
    """Let the next import load them anew."""
    for name in names:
        sys.modules.pop(name, None)


def is_own_file(path: str) -> bool:
    """Whether a file may be one of the script's own modules; what torch has compiled is none."""
    compiled = path.endswith(tuple(importlib.machinery.EXTENSION_SUFFIXES))
    return not compiled and not is_installed(path) and not is_kept(path)


def _all_own(names: list[str]) -> bool:
    """Whether a package consists of files that are the script's. Built-in modules have none, and
    the `__getattr__` of a stub has any."""
    modules = [sys.modules.get(name) for name in names]
    files = [path for one in modules if (path := getattr_static(one, "__file__", None))]
    folders = [folder for one in modules for folder in getattr_static(one, "__path__", ())]
    return bool(files) and all(map(is_own_file, files)) and not any(map(is_installed, folders))
