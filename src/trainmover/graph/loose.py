# SPDX-License-Identifier: Apache-2.0
"""Objects of the script that no Python object leads to, as the hooks of autograd's nodes.

Only the garbage collector knows them, so garbage is collected first, and the search takes tens of
milliseconds. Two processes match them by what made them, in order.
"""

import gc
import types
from collections.abc import Container
from typing import Any

from torch import Tensor

from trainmover.graph.script import Script, code_key

_HEAP_TYPE = 1 << 9


def loose_objects(script: Script, visited: Container[int]) -> dict[tuple[Any, ...], list[object]]:
    """Return closures and instances of the script whose address is not among those visited."""
    found: dict[tuple[Any, ...], list[object]] = {}
    gc.collect()
    for obj in gc.get_objects():
        if id(obj) in visited:
            continue
        key = _key_of(obj, script)
        if key is not None:
            found.setdefault(key, []).append(obj)
    return found


def _key_of(obj: Any, script: Script) -> tuple[Any, ...] | None:
    kind = type(obj)
    if kind is types.FunctionType:
        is_of_run = obj.__globals__ is script.modules().get(obj.__module__)
        if obj.__closure__ and is_of_run and script.owns_code(obj.__code__):
            return ("function", *code_key(obj.__code__))
        return None
    if not kind.__flags__ & _HEAP_TYPE or issubclass(kind, type):
        return None
    if not script.has_defined(kind) or isinstance(obj, Tensor | BaseException):
        return None
    return "instance", kind.__module__, kind.__qualname__
