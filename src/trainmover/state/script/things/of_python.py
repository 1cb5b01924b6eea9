# SPDX-License-Identifier: Apache-2.0
"""Objects of Python's own library that a script keeps values in, and what is read of each.

Most say it by an attribute or two; the others they have are locks, names and places of the machine.
"""

import asyncio
import codecs
import csv
import decimal
import os
import queue
import sched
import shelve
import tarfile
import tempfile
import threading
import wave
from collections import ChainMap, UserDict, UserList, UserString, deque
from collections.abc import Callable
from configparser import RawConfigParser
from contextlib import AsyncExitStack, ExitStack
from email.message import Message
from multiprocessing.shared_memory import ShareableList, SharedMemory
from types import FunctionType
from typing import Any
from xml.etree.ElementTree import Element

from trainmover.state.script.things.held import closed_over, held_by

Inside = Callable[[object], Any]
"""Folds what a thing holds."""
Reader = Callable[[Any, Inside], Any]
"""Gives plain values that stand for a thing, the same in all processes that have done the same."""
_BYTES_MAX = 64 * 1024

_BY_ATTRIBUTES: dict[type, tuple[str, ...]] = {
    queue.Queue: ("queue",),
    threading.Semaphore: ("_value",),
    threading.Event: ("_flag",),
    asyncio.Queue: ("_queue",),
    asyncio.Semaphore: ("_value",),
    asyncio.Event: ("_value",),
    asyncio.Lock: ("_locked",),
    tempfile.SpooledTemporaryFile: ("_file",),
    tempfile._TemporaryFileWrapper: ("file",),
    tarfile.TarFile: ("offset",),
    wave.Wave_read: ("_soundpos",),
    csv.DictReader: ("line_num",),
    shelve.Shelf: ("dict", "cache"),
    Message: ("_headers", "_payload"),
    **dict.fromkeys((UserDict, UserList, UserString), ("data",)),
    ChainMap: ("maps",),
}


def _reader_by(*names: str) -> Reader:
    def read(value: Any, inside: Inside) -> Any:
        held = held_by(value)
        found = [held.get(name) for name in names]
        return [inside([*one] if type(one) is deque else one) for one in found]

    return read


def _shared(value: SharedMemory, inside: Inside) -> Any:
    return [value.size, inside(bytes((value.buf or b"")[:_BYTES_MAX]))]


def _listed(value: Any, inside: Inside) -> Any:
    entries: Any = value
    return inside([*entries]) if type(value) is ShareableList else None


def _element(value: "Element[Any]", inside: Inside) -> Any:
    return [inside([value.tag, dict(value.attrib), value.text, value.tail]), inside([*value])]


def _state(value: Any, inside: Inside) -> Any:
    is_pythons = type(value).__module__.partition(".")[0] in ("codecs", "encodings")
    return inside(value.getstate()) if is_pythons else None


def _config(value: Any, inside: Inside) -> Any:
    """But for what it has of the machine's environment."""
    held = held_by(value)
    machine = {name.lower(): one for name, one in os.environ.items()}
    own = {n: one for n, one in held["_defaults"].items() if machine.get(n.lower()) != one}
    return [inside(held["_sections"]), inside(own)]


def _stack(value: Any, inside: Inside) -> Any:
    """What it is to call, and with what."""
    calls = [one for _, one in held_by(value).get("_exit_callbacks", ())]
    own = [closed_over(one) if type(one) is FunctionType else {} for one in calls]
    return [
        inside([*cells.values()] if cells else one) for cells, one in zip(own, calls, strict=True)
    ]


def _planned(value: sched.scheduler, inside: Inside) -> Any:
    """What it is to call; and when, if that is no time of the machine's."""
    held = held_by(value)
    tells = getattr(held.get("timefunc"), "__module__", "") == "time"
    return [
        inside([None if tells else event.time, event.priority, event.action, event.argument])
        for event in sorted(held.get("_queue", ()))
    ]


READERS: dict[type, Reader] = {
    **{kind: _reader_by(*names) for kind, names in _BY_ATTRIBUTES.items()},
    RawConfigParser: _config,
    SharedMemory: _shared,
    ShareableList: _listed,
    **dict.fromkeys((ExitStack, AsyncExitStack), _stack),
    Element: _element,
    sched.scheduler: _planned,
    decimal.Context: lambda value, inside: repr(value),
    **dict.fromkeys((codecs.IncrementalDecoder, codecs.IncrementalEncoder), _state),
}
"""By kind; those derived from one are read like it."""
