"""Objects of Python's own library that a script keeps values in, and what is read of each.

Most say it by an attribute or two; the others they have are locks, names and places of the machine.
"""

import asyncio
import codecs
import csv
import decimal
import queue
import sched
import shelve
import tempfile
import threading
from collections import ChainMap, UserDict, UserList, UserString, deque
from collections.abc import Callable
from configparser import RawConfigParser
from email.message import Message
from multiprocessing import synchronize
from multiprocessing.shared_memory import ShareableList, SharedMemory
from typing import Any
from xml.etree.ElementTree import Element

from trainmover.state.script.things.held import held_by

Inside = Callable[[object], Any]
"""Folds what a thing holds."""
Reader = Callable[[Any, Inside], Any]
"""Gives plain values that stand for a thing, the same in all processes that have done the same."""
_BYTES_MAX = 64 * 1024

_BY_ATTRIBUTES: dict[type, tuple[str, ...]] = {
    queue.Queue: ("queue",),
    threading.Semaphore: ("_value",),
    threading.Event: ("_flag",),
    threading.Barrier: ("_count", "_state"),
    asyncio.Queue: ("_queue",),
    asyncio.Semaphore: ("_value",),
    asyncio.Event: ("_value",),
    asyncio.Lock: ("_locked",),
    synchronize.Event: ("_flag",),
    tempfile.SpooledTemporaryFile: ("_file",),
    csv.DictReader: ("reader", "line_num"),
    csv.DictWriter: ("fieldnames",),
    shelve.Shelf: ("dict", "cache"),
    sched.scheduler: ("_queue",),
    RawConfigParser: ("_sections", "_defaults"),
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


def _count(value: Any, inside: Inside) -> Any:
    """Of a semaphore that processes share, or a lock."""
    return value._semlock._get_value()


def _shared(value: SharedMemory, inside: Inside) -> Any:
    return [value.size, inside(bytes((value.buf or b"")[:_BYTES_MAX]))]


def _listed(value: Any, inside: Inside) -> Any:
    return inside([*value])


def _element(value: "Element[Any]", inside: Inside) -> Any:
    own = [value.tag, dict(value.attrib), value.text, value.tail]
    return [inside(own), *(_element(one, inside) for one in value)]


def _state(value: Any, inside: Inside) -> Any:
    return inside(value.getstate())


READERS: dict[type, Reader] = {
    **{kind: _reader_by(*names) for kind, names in _BY_ATTRIBUTES.items()},
    synchronize.SemLock: _count,
    SharedMemory: _shared,
    ShareableList: _listed,
    Element: _element,
    decimal.Context: lambda value, inside: repr(value),
    **dict.fromkeys((codecs.IncrementalDecoder, codecs.IncrementalEncoder), _state),
}
"""By kind; those derived from one are read like it."""
