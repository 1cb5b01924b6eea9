# SPDX-License-Identifier: Apache-2.0
"""Import of a script's modules with their loops rewritten.

While the finder is installed, modules of the script's own (those that came by no installer) and the
modules of frameworks that hold training loops are rewritten as they are imported. Their files,
sources and line numbers are the plain ones for `inspect`, tracebacks and pdb. Modules that are no
source files are left alone.
"""

import importlib.util
import io
import sys
import threading
from collections.abc import Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec, SourceFileLoader
from types import CodeType, ModuleType
from typing import Any

from trainmover.installed import is_installed
from trainmover.loops.cache import rewrite_cached
from trainmover.loops.compiler import DYNAMO, teach_if_imported, teach_when_imported
from trainmover.loops.frameworks import TRAINING_MODULES
from trainmover.loops.place import register

RUNTIME = frozenset({"trainmover", "torch"})
"""Packages that are never rewritten, wherever they lie."""


class LoopLoader(SourceFileLoader):
    """Loader of one module's source, which has its loops rewritten. repeats: see `rewrite`"""

    def __init__(self, fullname: str, path: str, *, repeats: bool = True) -> None:
        super().__init__(fullname, path)
        self._repeats = repeats

    def get_code(self, fullname: str) -> CodeType | None:
        path = self.get_filename(fullname)
        source = self.get_data(path)
        return _code(source, path, self._repeats) or super().get_code(fullname)


class LoopFinder(MetaPathFinder):
    """Finder of modules to rewrite: asks the finders after it, and exchanges loaders.

    repeats  see `rewrite`
    """

    def __init__(self, *, repeats: bool = True) -> None:
        self._repeats = repeats
        self._thread = threading.local()

    def install(self) -> None:
        """Rewrite what is imported from now on, also by other threads."""
        is_installed(__file__)  # It imports modules itself, the first time.
        teach_if_imported()
        if self not in sys.meta_path:
            sys.meta_path.insert(0, self)

    def remove(self) -> None:
        """Leave further imports alone. What was imported stays rewritten."""
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Return the spec that the other finders give, its loader exchanged where that is due."""
        is_runtime = fullname.partition(".")[0] in RUNTIME and fullname != DYNAMO
        if is_runtime or getattr(self._thread, "is_busy", False):
            return None
        self._thread.is_busy = True
        try:
            spec = self._find_plain(fullname, path, target)
        finally:
            self._thread.is_busy = False
        if fullname == DYNAMO:
            teach_when_imported(spec)
        elif spec is not None and _is_rewritten(spec):
            spec.loader = LoopLoader(spec.name, str(spec.origin), repeats=self._repeats)
        return spec

    def _find_plain(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None
    ) -> ModuleSpec | None:
        finders = [*sys.meta_path]
        start = finders.index(self) + 1 if self in finders else 0
        for finder in finders[start:]:
            find_spec = getattr(finder, "find_spec", None)
            spec: ModuleSpec | None = find_spec and find_spec(fullname, path, target)
            if spec is not None:
                return spec
        return None


def code_of(path: str, *, repeats: bool = True) -> CodeType:
    """Return the rewritten code of a script's file. Raises OSError and, as Python, SyntaxError."""
    with io.open_code(path) as file:
        source = file.read()
    return _code(source, path, repeats) or compile(source, path, "exec", dont_inherit=True)


def code_of_module(name: str, *, repeats: bool = True) -> tuple[CodeType, ModuleSpec]:
    """Return the rewritten code of a module that is run by `-m`, and its spec.

    A package stands for its `__main__`, and is imported. Raises ImportError.
    """
    spec = importlib.util.find_spec(name)
    if spec is not None and spec.submodule_search_locations is not None:
        return code_of_module(f"{name}.__main__", repeats=repeats)
    get_code = getattr(spec and spec.loader, "get_code", None)
    code = None
    if spec is not None and get_code is not None:
        if _is_rewritten(spec):
            spec.loader = LoopLoader(spec.name, str(spec.origin), repeats=repeats)
            get_code = spec.loader.get_code
        code = get_code(spec.name)
    if spec is None or code is None:
        raise ImportError(f"No code object available for {name}", name=name)
    return code, spec


def main_code(
    name: str, *, is_module: bool, repeats: bool = True
) -> tuple[CodeType, dict[str, Any]]:
    """Return the rewritten code of a script, and names that Python gives its main module.

    name  path of its file, or what is run by `-m`
    """
    if not is_module:
        return code_of(name, repeats=repeats), {"__file__": name}
    code, spec = code_of_module(name, repeats=repeats)
    return code, {"__file__": spec.origin, "__spec__": spec, "__package__": spec.parent}


def _is_rewritten(spec: ModuleSpec) -> bool:
    if type(spec.loader) is not SourceFileLoader or spec.origin is None:
        return False
    return spec.name in TRAINING_MODULES or not is_installed(spec.origin)


def _code(source: bytes, path: str, repeats: bool) -> CodeType | None:
    rewritten = rewrite_cached(source, path, repeats=repeats)
    register(path, rewritten.sites)
    return rewritten.code
