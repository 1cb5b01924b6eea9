"""A process in which one module of trainmover is changed.

It is forked from one that has imported everything else, so that it costs next to nothing. Whoever
imports the module there gets the changed one: nothing of it can have been imported before.
"""

import ast
import importlib.abc
import importlib.machinery
import importlib.util
import json
import os
import resource
import select
import signal
import sys
import traceback
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from types import CodeType, FrameType, ModuleType
from typing import Any, NoReturn

from trainmover.lifeline import die_with

CPU_S = 240
MEMORY = 3 << 30
"""Of all that a process may do."""


class Hung(BaseException):
    """What is done takes much longer than it should. No code of ours catches it."""


def plant(module: str, path: Path, tree: ast.Module) -> None:
    """From now on that module is this one."""
    assert module not in sys.modules, f"{module} is imported already: who has it has the old one"
    sys.meta_path.insert(0, _Finder(module, path, compile(tree, str(path), "exec")))


class _Finder(importlib.abc.MetaPathFinder):
    def __init__(self, module: str, path: Path, code: CodeType) -> None:
        self._module, self._path, self._code = module, path, code

    def find_spec(
        self, fullname: str, path: Any, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        if fullname != self._module:
            return None
        loader = _Loader(fullname, str(self._path), self._code)
        return importlib.util.spec_from_file_location(fullname, self._path, loader=loader)


class _Loader(importlib.machinery.SourceFileLoader):
    def __init__(self, fullname: str, path: str, code: CodeType) -> None:
        super().__init__(fullname, path)
        self._code = code

    def get_code(self, fullname: str) -> CodeType:
        return self._code


@contextmanager
def within(cpu_s: float) -> Iterator[None]:
    """Raises Hung if what is done takes more processor time."""

    def hung(_: int, __: FrameType | None) -> NoReturn:
        raise Hung

    before = signal.signal(signal.SIGPROF, hung)
    signal.setitimer(signal.ITIMER_PROF, cpu_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


class Child:
    """A forked process that does something, and says one thing that JSON can."""

    def __init__(self, act: Callable[[], dict[str, Any]]) -> None:
        self._reads, writes = os.pipe()
        parent, self.pid = os.getpid(), os.fork()
        if self.pid == 0:
            die_with(parent)
            _be(act, writes)
        os.close(writes)

    def fileno(self) -> int:
        """Readable once it has said something or ended."""
        return self._reads

    def said(self) -> dict[str, Any] | None:
        """At its end, for which this waits; None: a signal has ended it."""
        with os.fdopen(self._reads) as file:
            text = file.read()
        _, status = os.waitpid(self.pid, 0)
        if os.WIFSIGNALED(status):
            return None
        said: dict[str, Any] = json.loads(text)
        if "error" in said:
            raise RuntimeError(said["error"])
        return said


def ended(children: list[Child]) -> list[Child]:
    """Waits until one of them has, if there is any, and for no other child of this process."""
    return select.select(children, [], [])[0] if children else []


def _be(act: Callable[[], dict[str, Any]], writes: int) -> NoReturn:
    """What goes wrong here is ours, never a change that is found: the parent raises it."""
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_S, CPU_S))
    resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))
    quiet = os.open(os.devnull, os.O_RDWR)
    for stream in (0, 1, 2):
        os.dup2(quiet, stream)
    try:
        said = act()
    except BaseException:  # noqa: BLE001  # It is raised there.
        said = {"error": traceback.format_exc()}
    with os.fdopen(writes, "w") as file:
        json.dump(said, file)
    os._exit(0)
