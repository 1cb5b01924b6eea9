# SPDX-License-Identifier: Apache-2.0
"""The running script: its modules, its classes and its code, as opposed to those of libraries."""

import gc
import importlib.util
import os
import re
import sys
import types
import zlib
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any, NamedTuple

from trainmover.loops.rewrite import PREFIX

_GLOBALS_OF_PYTHON = frozenset(
    {"__builtins__", "__spec__", "__loader__", "__cached__", "__file__", "__name__", "__package__"}
    | {"__annotations__", "__doc__", "__path__", "__warningregistry__", "__tm__"}
)
"""Names in a module that the import system puts there."""
_OF_COMPILER = re.compile(
    r"__(compiled_fn|resume_at|import|builtins_dict|gen_rand_values|warnings_warn_wrapper)_|.*_\d+_c\d+$"
)
"""Names in a module under which torch.compile keeps what it has made (`install_global`)."""


_NOTHING = object()
_FOLDER = os.path.join(os.path.dirname(os.path.dirname(os.path.abspath(__file__))), "")


@lru_cache(maxsize=65536)
def is_own_name(name: str) -> bool:
    """Tell whether a name in one of the script's modules is its own, not put there by others."""
    return name not in _GLOBALS_OF_PYTHON and not _OF_COMPILER.match(name)


def loops_last(names: dict[str, Any]) -> dict[str, Any]:
    """Return variables in the order in which they are to be restored: those that hold loops last.

    An iterator in C shows nothing of what it holds: an object that is met through one first would
    be made anew, and not be the one that a variable has.
    """
    loops = [name for name in names if name.startswith(PREFIX)]
    if not loops:
        return names
    return {name: one for name, one in names.items() if name not in loops} | {
        name: names[name] for name in loops
    }


class CodeKey(NamedTuple):
    """Identity of a piece of code that is the same in all processes of a job.

    file  name without its folder
    crc   of its bytecode, names and constants, so that two versions of a function differ
    """

    file: str
    function: str
    line: int
    crc: int


@lru_cache(maxsize=4096)
def code_key(code: types.CodeType) -> CodeKey:
    """Return the identity of a code object."""
    constants = [
        code_key(one) if isinstance(one, types.CodeType) else one for one in code.co_consts
    ]
    crc = zlib.crc32(code.co_code + repr((code.co_names, constants)).encode())
    return CodeKey(code.co_filename.rpartition("/")[2], code.co_qualname, code.co_firstlineno, crc)


class Script:
    """Extent of the script's own code.

    is_own_file  tells whether a path is one of the script's source files
    main         name of its main module in `sys.modules`
    is_before    tells whether a module was loaded before the script began, so that it is none of it
    """

    def __init__(
        self,
        is_own_file: Callable[[str], bool],
        main: str = "__main__",
        is_before: Callable[[str], bool] = lambda name: False,
    ) -> None:
        self._is_own_file, self._main, self._is_before = is_own_file, main, is_before
        self._files: dict[str, bool] = {}
        self._modules: dict[str, dict[str, Any]] = {}
        self._loaded = -1

    def owns_file(self, path: object) -> bool:
        """Tell whether a file is one of the script's source files. Anything may be asked."""
        if type(path) is not str or not path.endswith(".py"):
            return False
        if path not in self._files:
            ours = os.path.abspath(path).startswith(_FOLDER)
            self._files[path] = not ours and self._is_own_file(path)
        return self._files[path]

    def modules(self) -> dict[str, dict[str, Any]]:
        """Return the names in each of the script's modules, by module."""
        if len(sys.modules) != self._loaded:
            self._loaded = len(sys.modules)
            self._modules = {
                name: vars(module)
                for name, module in list(sys.modules.items())
                if name == self._main or (self._is_own(module) and not self._is_before(name))
            }
        return self._modules

    def load(self, name: str) -> bool:
        """Import one of the script's modules that another process has; False if it is none here."""
        try:
            spec = importlib.util.find_spec(name)
            if spec is None or not self.owns_file(spec.origin):
                return False
            importlib.import_module(name)
        except (ImportError, ValueError, AttributeError):
            return False
        return name in self.modules()

    def _is_own(self, module: Any) -> bool:
        """Tell whether a loaded module is from one of the script's files; others only look so."""
        return type(module) is types.ModuleType and self.owns_file(vars(module).get("__file__"))

    def owns_module(self, module: types.ModuleType) -> bool:
        """Tell whether a module is one of the script's."""
        return module.__name__ in self.modules()

    def owns_class(self, cls: type) -> bool:
        """Tell whether a class is defined by the script."""
        return cls.__module__ in self.modules()

    def has_defined(self, cls: type) -> bool:
        """Tell whether a class was defined by this run of the script, not by one before in this
        process."""
        names = self.modules().get(cls.__module__)
        if names is None:
            return False
        functions = (one for one in vars(cls).values() if isinstance(one, types.FunctionType))
        return names.get(cls.__qualname__) is cls or any(
            one.__globals__ is names for one in functions
        )

    def owns_code(self, code: types.CodeType) -> bool:
        """Tell whether code comes from a file of the script."""
        return self.owns_file(code.co_filename)

    def classes(self) -> dict[tuple[str, str], type]:
        """Return the script's classes by module and qualified name, also those inside functions."""
        return {
            (one.__module__, one.__qualname__): one
            for one in gc.get_objects()
            if isinstance(one, type) and self.has_defined(one)
        }

    def codes(self) -> dict[CodeKey, types.CodeType]:
        """Return the code of all functions that the script has or can define, by key."""
        return {code_key(code): code for code in self._all_codes()}

    def _all_codes(self) -> Iterator[types.CodeType]:
        pending = [
            one.__code__
            for one in gc.get_objects()
            if type(one) is types.FunctionType and self.owns_code(one.__code__)
        ]
        pending += [code for names in self.modules().values() if (code := _code_of(names))]
        yield from _nested(pending)

    def patches(self) -> dict[tuple[str, str], object]:
        """Return functions that the script has put into library modules, by module and name."""
        own = self.modules()
        return {
            (module.__name__, name): value
            for key, module in list(sys.modules.items())
            if type(module) is types.ModuleType and key not in own
            for name, value in list(vars(module).items())
            if type(value) is types.FunctionType and self.owns_code(value.__code__)
        }


def code_of_library(module: str, key: CodeKey) -> types.CodeType | None:
    """Return the code that a loaded module of a library defines; None if it defines no such."""
    code = _code_of(vars(sys.modules[module])) if module in sys.modules else None
    found = _nested([] if code is None else [code])
    return next((one for one in found if one.co_name != "<module>" and code_key(one) == key), None)


def _nested(pending: list[types.CodeType]) -> Iterator[types.CodeType]:
    """Yield these and all that are defined within them."""
    seen = set()
    while pending:
        code = pending.pop()
        if id(code) in seen:
            continue
        seen.add(id(code))
        yield code
        pending += [one for one in code.co_consts if isinstance(one, types.CodeType)]


def _code_of(names: dict[str, Any]) -> types.CodeType | None:
    """Return the code that a module was made by, where its loader gives it."""
    spec = names.get("__spec__")
    give = getattr(getattr(spec, "loader", None), "get_code", None)
    if spec is None or give is None:
        return None
    try:
        code = give(spec.name)
    except (ImportError, OSError, SyntaxError):
        return None
    return code if isinstance(code, types.CodeType) else None


def is_importable(obj: object, module: str | None, qualname: str) -> bool:
    """Tell whether a module and a qualified name lead to this very object."""
    found: Any = sys.modules.get(module or "")
    for part in qualname.split("."):
        found = getattr(found, part, _NOTHING)
    return found is obj
