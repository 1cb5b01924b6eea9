# SPDX-License-Identifier: Apache-2.0
"""Keeps one run of the script from reaching into the next run in the same process.

    snapshot   before a run: what the process is set to, what exits, processes and threads there are
    leave_no_traces  in it, before it goes on where a job does a thing once
    put_back   after it, once its model and groups are gone: settings as they were, its `__main__`
               and its own modules forgotten, its exit calls taken back, its processes ended

What installed modules do as they are imported stays, as they do: a second import does nothing.
What a run has them keep is put back (`libraries.py`), and so are functions of torch's that the
script's source patches by name (`patches.py`). If one has read which rank this is as it was
imported, the process is of use for that rank only (`known_rank.py`). What else a run may have
changed (an operator that is registered twice) cannot be seen from here. It shows when the script
runs a second time, and that is done in the sandbox.
"""

import gc
import os
from collections.abc import Callable
from typing import Any, NoReturn

import torch

from trainmover.sandbox.process import modules
from trainmover.sandbox.process.exit_calls import ExitCalls
from trainmover.sandbox.process.imports import ImportWatch
from trainmover.sandbox.process.known_rank import KnownRank
from trainmover.sandbox.process.libraries import Libraries
from trainmover.sandbox.process.loggers import of_loggers
from trainmover.sandbox.process.overlay import Overlay
from trainmover.sandbox.process.patches import Patches
from trainmover.sandbox.process.remains import Remains
from trainmover.sandbox.process.settings import Setting, of_python
from trainmover.sandbox.process.torch_settings import of_torch
from trainmover.sandbox.process.traces import NoTraces
from trainmover.torch_internals.modes import without_modes

_OUTPUTS = (0, 1, 2)


class Isolation:
    """One for the process; `snapshot` and `put_back` alternate, in the main thread."""

    def __init__(self) -> None:
        self._settings: list[Setting] = [*of_python(), *of_loggers(), *of_torch()]
        self._patches = Patches()
        self._libraries = Libraries()
        self.known_rank = KnownRank()
        self._imports = ImportWatch(self._import_begins, self._import_ends, self._patches.note)
        self._exit_calls = ExitCalls(stays=lambda: self._imports.importing)
        self._kept: list[Any] = []
        self._before_import: list[Any] = []
        self._last_module = ""
        self._outputs: list[int] = []
        self._remains: Remains | None = None
        self.overlay = Overlay()
        self._no_traces = NoTraces(self.overlay)

    def snapshot(self, script: str = "") -> None:
        """A run begins, of the script in this file; that of a module is found as it is imported."""
        self._last_module = modules.last()
        self._outputs = [os.dup(fd) for fd in _OUTPUTS]
        self._remains = Remains()
        self._kept = self._read()
        self._exit_calls.watch()
        self._imports.watch()
        if script:
            self._patches.note(script)

    def leave_no_traces(self, stop: Callable[[], NoReturn]) -> None:
        """The run stops, by what `stop` raises, before it leaves one from here on."""
        self._no_traces.begin(stop, self._remains.opened() if self._remains is not None else [])

    def put_back(self) -> list[str]:
        """The run is over: what could not be put back, in words that follow "the script"."""
        if self._remains is None:
            return []
        modules.forget(modules.own(self._last_module))
        gc.collect()  # What its objects do as they go leaves no traces, either.
        self._no_traces.end()
        self.overlay.end()
        self._imports.stop()
        self._exit_calls.put_back()
        self._put_back_outputs()
        lasting = self._write()
        self._patches.put_back()
        self._libraries.put_back()
        gc.collect()
        torch.clear_autocast_cache()
        remains, self._remains = self._remains, None
        return [*lasting, *remains.put_back()]

    def _read(self) -> list[Any]:
        with without_modes():  # A compiler imports parts of itself while tensors are fake.
            return [setting.read() for setting in self._settings]

    def _write(self) -> list[str]:
        lasting = []
        for setting, value in zip(self._settings, self._kept, strict=True):
            try:
                if setting.read() != value:
                    setting.write(value)
            except (OSError, ValueError, RuntimeError) as error:
                lasting.append(f"it changed {setting.name} for good ({error})")
        return lasting

    def _import_begins(self) -> None:
        self._before_import = self._read()
        self._libraries.import_begins()
        self.known_rank.begins()

    def _import_ends(self) -> None:
        """Carry over what the import has changed."""
        self.known_rank.ends()
        self._patches.look()
        changes = zip(self._settings, self._kept, self._before_import, self._read(), strict=True)
        self._kept = [
            kept if before == after else setting.merge(kept, before, after)
            for setting, kept, before, after in changes
        ]
        self._libraries.import_ends()

    def _put_back_outputs(self) -> None:
        """Standard streams that the run has pointed elsewhere, below Python."""
        for fd, kept in zip(_OUTPUTS, self._outputs, strict=True):
            if not _are_one(fd, kept):
                os.dup2(kept, fd)
            os.close(kept)
        self._outputs = []


def _are_one(fd: int, kept: int) -> bool:
    try:
        return os.path.sameopenfile(fd, kept)
    except OSError:  # It is closed.
        return False
