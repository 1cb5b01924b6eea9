# SPDX-License-Identifier: Apache-2.0
"""What a run of the script may set in its process, and how it is put back.

A setting is read as a value that compares, and written back. Modules that stay loaded between runs
set things as they are imported (a filter, a path, a variable); that must stay too, because their
second import does nothing. So each setting knows how to carry such a change over: `merge`.
"""

import builtins
import faulthandler
import gc
import os
import signal
import socket
import sys
import threading
import warnings
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

_STREAMS = ("stdin", "stdout", "stderr", "displayhook", "excepthook", "unraisablehook")


def folder() -> str | None:
    """The current one; None if somebody has removed it."""
    with suppress(FileNotFoundError):
        return os.getcwd()
    return None


def enter(path: str | None) -> None:
    """Make it the current one, if it was there."""
    if path is not None:
        os.chdir(path)


def newest(kept: Any, before: Any, after: Any) -> Any:
    """Of one value: what it was changed to."""
    return after


def merged_mapping(
    kept: Mapping[Any, Any], before: Mapping[Any, Any], after: Mapping[Any, Any]
) -> dict[Any, Any]:
    """`kept` with the keys that changed from `before` to `after`."""
    changed = {
        key: value for key, value in after.items() if key not in before or before[key] != value
    }
    return {
        key: value for key, value in kept.items() if key not in before or key in after
    } | changed


def merged_sequence(kept: list[Any], before: list[Any], after: list[Any]) -> list[Any]:
    """`kept` with what was added, where it was added."""
    return [item for item in after if item in kept or item not in before]


@dataclass(frozen=True)
class Setting:
    """One thing that a run may change.

    `read` is cheap and changes nothing. `write` is called when the value has changed; it may raise
    OSError, ValueError or RuntimeError.
    """

    name: str
    read: Callable[[], Any]
    write: Callable[[Any], None]
    merge: Callable[[Any, Any, Any], Any] = newest


def attribute(owner: Any, name: str) -> Setting:
    """A name in a module."""
    return Setting(
        f"{owner.__name__}.{name}",
        lambda: getattr(owner, name, None),
        lambda value: setattr(owner, name, value),
    )


def mapping(name: str, owner: dict[Any, Any]) -> Setting:
    """A dict that stays the same object."""

    def write(value: dict[Any, Any]) -> None:
        owner.clear()
        owner.update(value)

    return Setting(name, lambda: dict(owner), write, merged_mapping)


def sequence(name: str, owner: list[Any]) -> Setting:
    """A list that stays the same object."""

    def write(value: list[Any]) -> None:
        owner[:] = value

    return Setting(name, lambda: list(owner), write, merged_sequence)


def of_python() -> list[Setting]:
    """Everything but torch, loggers and modules."""
    return [
        Setting("the environment", lambda: dict(os.environ), _write_environ, merged_mapping),
        Setting("the working directory", folder, enter),
        Setting("the umask", _umask, _write_umask),
        Setting("the processors used", lambda: os.sched_getaffinity(0), _run_on),
        sequence("sys.path", sys.path),
        sequence("sys.meta_path", sys.meta_path),
        sequence("sys.path_hooks", sys.path_hooks),
        attribute(sys, "argv"),
        *(attribute(sys, name) for name in _STREAMS),
        attribute(threading, "excepthook"),
        mapping("the builtins", vars(builtins)),
        Setting("the filters of warnings", _filters, _write_filters, merged_sequence),
        attribute(warnings, "showwarning"),
        # Off before its handler is gone: without one it ends the process. No module needs it on.
        Setting("the alarm", _alarm, _write_alarm, lambda kept, before, after: kept),
        Setting("the signal handlers", _handlers, _write_handlers, merged_mapping),
        Setting("the recursion limit", sys.getrecursionlimit, sys.setrecursionlimit),
        Setting("the garbage collector", _collector, _write_collector),
        Setting("faulthandler", faulthandler.is_enabled, _write_faulthandler),
        Setting("the sockets' timeout", socket.getdefaulttimeout, socket.setdefaulttimeout),
        Setting("the start method of multiprocessing", _start_method, _write_start_method),
    ]


def _write_environ(value: dict[str, str]) -> None:
    for name in os.environ.keys() - value.keys():
        del os.environ[name]
    for name, text in value.items():
        if os.environ.get(name) != text:
            os.environ[name] = text


def _umask() -> int:
    now = os.umask(0o077)  # There is no other way to ask.
    os.umask(now)
    return now


def _write_umask(value: int) -> None:
    os.umask(value)


def _run_on(processors: set[int]) -> None:
    os.sched_setaffinity(0, processors)


def _filters() -> list[Any]:
    return list(warnings.filters)


def _write_filters(value: list[Any]) -> None:
    warnings.filters[:] = value  # type: ignore[index]
    warnings._filters_mutated()  # type: ignore[attr-defined]


def _handlers() -> dict[int, Any]:
    return {number: signal.getsignal(number) for number in signal.valid_signals()}


def _write_handlers(value: dict[int, Any]) -> None:
    """Raises ValueError for one that was not set by Python and cannot be set by it."""
    lost = []
    for number, handler in value.items():
        if signal.getsignal(number) == handler:
            continue
        if handler is None:
            lost.append(signal.Signals(number).name)
        else:
            signal.signal(number, handler)
    if lost:
        raise ValueError(", ".join(lost))


def _alarm() -> bool:
    """Whether it will ring. When is another answer each time."""
    return signal.getitimer(signal.ITIMER_REAL) != (0.0, 0.0)


def _write_alarm(rings: bool) -> None:
    if not rings:
        signal.setitimer(signal.ITIMER_REAL, 0)


def _collector() -> tuple[bool, tuple[int, int, int]]:
    return gc.isenabled(), gc.get_threshold()


def _write_collector(value: tuple[bool, tuple[int, int, int]]) -> None:
    enabled, threshold = value
    gc.set_threshold(*threshold)
    if enabled:
        gc.enable()
    else:
        gc.disable()


def _write_faulthandler(enabled: bool) -> None:
    if enabled:
        faulthandler.enable()
    else:
        faulthandler.disable()


def _start_method() -> Any:
    context = sys.modules.get("multiprocessing.context")
    return None if context is None else context._default_context._actual_context


def _write_start_method(value: Any) -> None:
    context = sys.modules.get("multiprocessing.context")
    if context is not None:
        context._default_context._actual_context = value  # A second choice would be refused.
