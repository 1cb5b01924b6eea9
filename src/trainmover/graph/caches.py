# SPDX-License-Identifier: Apache-2.0
"""Caches of a script's functions (`functools.lru_cache`), with entries that the walk can reach.

CPython keeps the entries in C. Its own version in Python keeps them in variables that its functions
share; the functions of a script get that one, those of libraries stay as they are.
"""

import functools
import types
from typing import Any

from trainmover.graph.script import Script

_NAME = "_lru_cache_wrapper"


def keep_entries_in_python(script: Script) -> None:
    """Have caches of the script's functions keep their entries in Python from now on."""
    in_c: Any = vars(functools)[_NAME]
    in_python = _in_python()
    if in_python is None:
        return

    def wrapper(function: Any, *args: Any) -> Any:
        code = getattr(function, "__code__", None)
        is_own = isinstance(code, types.CodeType) and script.owns_code(code)
        return (in_python if is_own else in_c)(function, *args)

    setattr(functools, _NAME, wrapper)


def _in_python() -> Any:
    """Return the version in Python, of which the module has the code; None if it has not."""
    spec = functools.__spec__
    loader: Any = None if spec is None else spec.loader
    code = None if loader is None else loader.get_code(functools.__name__)
    for one in () if code is None else code.co_consts:
        if isinstance(one, types.CodeType) and one.co_name == _NAME:
            return types.FunctionType(one, vars(functools))
    return None
