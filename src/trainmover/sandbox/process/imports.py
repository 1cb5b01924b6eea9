# SPDX-License-Identifier: Apache-2.0
"""Tells what happens while a module that stays loaded is imported.

It is imported once in the life of the process. So what it sets then is part of the process, and
what a script sets is not.
"""

import sys
import threading
from collections.abc import Callable, Sequence
from importlib.abc import MetaPathFinder
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from trainmover.sandbox.process.modules import is_own_file


class ImportWatch(MetaPathFinder):
    """First on `sys.meta_path` while it watches; finds nothing itself.

    begins, ends  called around the import of each installed module that the script, or a module of
                  its own, is the first to import; not around those that it imports in turn
    own           called with the file of each module of the script's own that is about to be run
    """

    def __init__(
        self, begins: Callable[[], None], ends: Callable[[], None], own: Callable[[str], None]
    ) -> None:
        self._begins = begins
        self._ends = ends
        self._own = own
        self._thread = threading.get_ident()
        self._depth = 0

    @property
    def importing(self) -> bool:
        """Whether a module that stays is being imported right now, in the main thread."""
        return self._depth > 0 and threading.get_ident() == self._thread

    def watch(self) -> None:
        """From now on, in the thread that calls."""
        self._thread, self._depth = threading.get_ident(), 0
        sys.meta_path.insert(0, self)

    def stop(self) -> None:
        if self in sys.meta_path:
            sys.meta_path.remove(self)

    def find_spec(
        self, fullname: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """The spec that the others find, its loader made to tell."""
        if self._depth or threading.get_ident() != self._thread:
            return None
        spec = next(self._found(fullname, path, target), None)
        if spec is not None and _stays(spec):
            self._make_it_tell(spec.loader)
        elif spec is not None and spec.has_location and spec.origin and is_own_file(spec.origin):
            self._own(spec.origin)
        return spec

    def _found(self, fullname: str, path: Sequence[str] | None, target: ModuleType | None) -> Any:
        for finder in sys.meta_path:
            if finder is not self and hasattr(finder, "find_spec"):
                spec = finder.find_spec(fullname, path, target)
                if spec is not None:
                    yield spec

    def _make_it_tell(self, loader: Any) -> None:
        execute = loader.exec_module

        def exec_module(module: ModuleType) -> None:
            vars(loader).pop("exec_module", None)
            self._depth += 1
            if self._depth == 1:
                self._begins()
            try:
                execute(module)
            finally:
                self._depth -= 1
                if self._depth == 0:
                    self._ends()

        loader.exec_module = exec_module


def _stays(spec: ModuleSpec) -> bool:
    """A module of Python's own that has no loader object is built in: it sets nothing."""
    loader = spec.loader
    if loader is None or isinstance(loader, type) or not hasattr(loader, "__dict__"):
        return False
    return spec.origin is not None and not is_own_file(spec.origin)
