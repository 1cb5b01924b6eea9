# SPDX-License-Identifier: Apache-2.0
"""State of the process that a script changes: random generators, environment, loggers, settings.

Settings that are no Python objects are read into a dict, which is a root of the graph like any
other, and written back from it after a restore.
"""

import logging
import os
import sys
from collections.abc import Callable, Mapping
from functools import partial
from operator import attrgetter
from typing import Any, NamedTuple

import torch
from torch.utils.hooks import RemovableHandle

from trainmover.asked import NodeTable, is_in_c
from trainmover.graph.checks import ITEMS, Check
from trainmover.graph.kinds.kind import HOLE
from trainmover.graph.script import Script
from trainmover.state import rng

_OF_LAUNCHER = ("MASTER_ADDR", "MASTER_PORT", "TRAINMOVER_")
"""Begins of names of variables that are set anew for each machine, also while it runs."""

_ENVIRON = type(os.environ)
_IS_NATIVE = is_in_c("NodeTable")


class Setting(NamedTuple):
    """A setting of the process. read: returns a plain value; write: sets it"""

    read: Callable[[], Any]
    write: Callable[[Any], Any]


SETTINGS: dict[str, Setting] = {
    "working directory": Setting(os.getcwd, os.chdir),
    "default dtype": Setting(torch.get_default_dtype, torch.set_default_dtype),
    "matmul precision": Setting(
        torch.get_float32_matmul_precision, torch.set_float32_matmul_precision
    ),
    "grad mode": Setting(torch.is_grad_enabled, torch.set_grad_enabled),
    "autocast": Setting(
        partial(torch.is_autocast_enabled, "cpu"), lambda on: torch.set_autocast_enabled("cpu", on)
    ),
    "autocast dtype": Setting(
        partial(torch.get_autocast_dtype, "cpu"), lambda to: torch.set_autocast_dtype("cpu", to)
    ),
    "anomaly mode": Setting(torch.is_anomaly_enabled, torch.set_anomaly_enabled),
    "number of the next hook": Setting(
        partial(attrgetter("next_id"), RemovableHandle),
        lambda to: setattr(RemovableHandle, "next_id", to),
    ),
    "deterministic algorithms": Setting(
        torch.are_deterministic_algorithms_enabled, torch.use_deterministic_algorithms
    ),
}


class _Entries:
    """Entries of a dict as they were, where the extension can tell that none is another."""

    def __init__(self) -> None:
        self._held: object = None
        self._table = NodeTable()

    def may_be_other(self, held: dict[Any, Any]) -> bool:
        """Tell whether the dict may have other entries than at the last call, and note them."""
        if self._held is held and not self._table.changed()[0]:
            return False
        if _IS_NATIVE and Check(parts=ITEMS).put_into(self._table, 0, held):
            self._held = held
        return True


class ProcessState:
    """State of this process beside the script's objects.

    script  tells which functions in library modules the script has put there
    """

    def __init__(self, script: Script) -> None:
        self._script = script
        self._born = dict(os.environ)
        self._loaded = self._loaded_seen = -1
        self._libraries: set[str] = set()
        self._variables, self._known = _Entries(), _Entries()
        self._seen: dict[str, dict[str, Any]] = {}

    def seen(self) -> dict[str, object]:
        """Return what `settings` does, only to be read: the very dicts of before, if unchanged."""
        variables, loggers = os.environ, logging.Logger.manager.loggerDict
        self._keep("settings", _settings())
        data = vars(variables)["_data"] if type(variables) is _ENVIRON else None
        if type(data) is not dict or self._variables.may_be_other(data):
            self._keep("environment", self._environment())
        if self._known.may_be_other(loggers) or len(sys.modules) != self._loaded_seen:
            self._loaded_seen = len(sys.modules)
            self._keep("loggers", self._loggers())
        return self._seen | {"root logger": logging.root}

    def _keep(self, name: str, now: dict[str, Any]) -> None:
        before = self._seen.get(name, {})
        if name not in self._seen or now != before or [*now] != [*before]:
            self._seen[name] = now

    def settings(self) -> dict[str, object]:
        """Return the roots that are looked at in each step: others have their own ways there."""
        return {
            "settings": _settings(),
            "environment": self._environment(),
            "loggers": self._loggers(),
            "root logger": logging.root,
        }

    def roots(self) -> dict[str, object]:
        """Return the roots of a graph, by name."""
        of_torch, of_python, of_numpy, _ = rng.of_process()
        return self.settings() | {
            "patches": self._script.patches(),
            "torch generator": of_torch,
            "python generator": of_python,
            "numpy generator": of_numpy,
        }

    def write(self, roots: Mapping[str, Any]) -> None:
        """Set what restored roots say: settings, environment, patched functions."""
        for name, value in roots["settings"].items():
            if name in SETTINGS and SETTINGS[name].read() != value:
                SETTINGS[name].write(value)
        self._variables = _Entries()
        now, wanted = self._environment(), roots["environment"]
        for name in now.keys() - wanted.keys():
            os.environ.pop(name, None)
        for name in wanted:  # An earlier run in this process may have set it.
            self._born.pop(name, None)
        os.environ.update({name: text for name, text in wanted.items() if text != now.get(name)})
        for (module, name), function in roots.get("patches", {}).items():
            if module in sys.modules and function is not HOLE:
                setattr(sys.modules[module], name, function)

    def _loggers(self) -> dict[str, Any]:
        """Return the loggers that are none of a library's, which names its own after itself."""
        if len(sys.modules) != self._loaded:
            self._loaded = len(sys.modules)
            own = {name.partition(".")[0] for name in self._script.modules()}
            self._libraries = {name.partition(".")[0] for name in sys.modules} - own
        known = logging.Logger.manager.loggerDict
        of_libraries = self._libraries
        return {n: one for n, one in known.items() if n.partition(".")[0] not in of_libraries}

    def _environment(self) -> dict[str, str]:
        """Return the variables that the script has set: others are the machine's own."""
        return {
            name: text
            for name, text in sorted(os.environ.items())
            if self._born.get(name) != text and not name.startswith(_OF_LAUNCHER)
        }


def _settings() -> dict[str, Any]:
    found = {}
    for name, setting in SETTINGS.items():
        try:
            found[name] = setting.read()
        except RuntimeError:  # torch does not tell a precision that was set in two ways.
            continue
    return found
