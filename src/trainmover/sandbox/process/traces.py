# SPDX-License-Identifier: Apache-2.0
"""A run that must leave no traces: it is stopped before it makes one.

A shadow run makes the set-up and some steps of a script, and who writes there asks `job.is_shadow`,
or is told. What lies behind those steps a job does once: a standby that tries it, while the rank is
alive, must write no checkpoint over the rank's and send nothing to anybody. Python tells of files,
folders, processes and connections (`sys.addaudithook`): there the run is stopped. It goes on where
what it writes goes into copies (`overlay`). What torch and safetensors write themselves, as
checkpoints are, goes nowhere, and so does what is written to files that the run had opened before.
"""

import os
import sys
from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NoReturn

from trainmover.sandbox.process.opened import Copies, file_in, is_cache, place_of_script
from trainmover.torch_internals.writing import write_nowhere

_FILES = {"chmod", "chown", "link", "mkdir", "remove", "rename", "rmdir", "symlink", "truncate"}
_PROCESSES = {"exec", "kill", "killpg", "posix_spawn", "startfile", "system"}
_EVENTS = frozenset(
    {"open", "socket.connect", "socket.sendto", "socket.sendmsg", "sqlite3.connect"}
    | {"subprocess.Popen", "os.utime", "os.setxattr", "os.removexattr"}
    | {f"os.{name}" for name in _FILES | _PROCESSES}
)
_SAFETENSORS = ("safetensors.torch", "safetensors.numpy")
_SERIALIZE = "serialize_file"


class NoTraces:
    """One for the process; what it hears of lies between `begin` and `end`.

    copies: what is written elsewhere
    """

    def __init__(self, copies: Copies | None = None) -> None:
        self._copies = copies
        self._stop: Callable[[], NoReturn] | None = None
        self._ends: list[Callable[[], None]] = []
        self._hooked = False

    def begin(self, stop: Callable[[], NoReturn], opened: list[int]) -> None:
        """From here on `stop` is called, which raises, where the script's own code would make a
        trace. opened: descriptors of files that it has opened to write"""
        if not self._hooked:
            self._hooked = True
            sys.addaudithook(self._hear)
        self._ends = [write_nowhere(), *_safetensors_nowhere()]
        nowhere = os.open(os.devnull, os.O_RDWR)
        for descriptor in opened:
            os.dup2(nowhere, descriptor, inheritable=os.get_inheritable(descriptor))
        os.close(nowhere)
        self._stop = stop

    def end(self) -> None:
        """The run is over."""
        self._stop = None
        while self._ends:
            self._ends.pop()()

    def _hear(self, event: str, arguments: tuple[Any, ...]) -> None:
        if self._stop is None or event not in _EVENTS:
            return
        if event == "open":
            file, writes = file_in(arguments)
            is_led = self._copies is not None and self._copies.covers(file, writes=writes)
            if not writes or is_cache(file) or is_led:
                return
        if event.startswith("socket.") and not isinstance(arguments[1], tuple):
            return  # Of this host, as data loaders have them.
        if place_of_script(sys._getframe(1)):
            self._stop()


def _safetensors_nowhere() -> Iterator[Callable[[], None]]:
    for name in _SAFETENSORS:
        module: Any = sys.modules.get(name)
        if serialize := getattr(module, _SERIALIZE, None):
            setattr(module, _SERIALIZE, lambda *_, **__: None)
            yield partial(setattr, module, _SERIALIZE, serialize)
