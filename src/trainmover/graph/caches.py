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
    plain: Any = functools.lru_cache
    wrapper = _in_python()
    if wrapper is None:
        return
    names = vars(functools) | {_NAME: wrapper}
    own = types.FunctionType(plain.__code__, names, argdefs=plain.__defaults__)

    def choose(function: Any) -> Any:
        code = getattr(function, "__code__", None)
        return own if isinstance(code, types.CodeType) and script.owns_code(code) else plain

    @functools.wraps(plain)
    def lru_cache(maxsize: Any = 128, typed: bool = False) -> Any:
        if callable(maxsize):
            return choose(maxsize)(maxsize, typed)
        return lambda function: choose(function)(maxsize, typed)(function)

    @functools.wraps(functools.cache)
    def cache(function: Any, /) -> Any:
        return lru_cache(maxsize=None)(function)

    functools.lru_cache, functools.cache = lru_cache, cache


def _in_python() -> Any:
    """Return the version in Python, of which the module has the code; None if it has not."""
    spec = functools.__spec__
    loader: Any = None if spec is None else spec.loader
    code = None if loader is None else loader.get_code(functools.__name__)
    for one in () if code is None else code.co_consts:
        if isinstance(one, types.CodeType) and one.co_name == _NAME:
            return types.FunctionType(one, vars(functools))
    return None
