# SPDX-License-Identifier: Apache-2.0
"""Modules and files that classes are from, and types whose values say all of themselves."""

import sys
from collections.abc import Callable
from types import FunctionType

PLAIN = frozenset({type(None), bool, int, float, str, bytes, complex})
"""Types of what never changes, and says all of itself."""


def module_of(kind: type) -> str:
    """Name of the module it says it is from; a class may say anything."""
    name: object = kind.__module__
    return name if type(name) is str else ""


def file_of(kind: type) -> str:
    """Of the class's module; where Python knows none by that name, as of a config that is loaded by
    its path, of its functions. "" if it has none."""
    if path := getattr(sys.modules.get(module_of(kind)), "__file__", None):
        return str(path)
    codes = [one.__code__ for one in vars(kind).values() if type(one) is FunctionType]
    return codes[0].co_filename if codes else ""


class OwnTypes:
    """Whether a class is of the script's own code."""

    def __init__(self, is_own_file: Callable[[str], bool]) -> None:
        self._is_own_file = is_own_file
        self._known: dict[type, bool] = {}

    def __call__(self, kind: type) -> bool:
        if kind not in self._known:
            path = file_of(kind)
            self._known[kind] = bool(path) and self._is_own_file(path)
        return self._known[kind]
