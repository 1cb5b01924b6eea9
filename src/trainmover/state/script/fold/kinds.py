# SPDX-License-Identifier: Apache-2.0
"""What has no value of its own still has a type: None, a sentinel or a library's object in its
place is another value.
"""

import io
import subprocess
import threading
from concurrent.futures import Executor, Future
from multiprocessing.process import BaseProcess
from typing import Any

import torch
import xxhash

from trainmover.state.class_caches import cached_by_class
from trainmover.state.script import handles
from trainmover.state.script.things.libraries import module_of, only_shows
from trainmover.torch_internals.distributed.c10d import ProcessGroup, Store, Work

PLAIN = frozenset({type(None), bool, int, float, str, bytes, complex})
"""What never changes, and says all of itself."""
_OURS = __name__.partition(".")[0]
_EACH_ITS_OWN = (ProcessGroup, Store, Work)
"""A rank has another class of these than a run in the sandbox."""
_OF_THE_MACHINE = (
    *(threading.Thread, subprocess.Popen, Executor, Future, BaseProcess, io.IOBase),
    *(torch.Event, torch.Stream),
)
"""Made where and when it is needed, as a thread that writes a checkpoint: none there is no other
value."""
_SHOWS = ("torch.utils.tensorboard.",)
"""What it is given, and gives nothing of it back: as in `only_shows`."""


@cached_by_class
def name_of(kind: type) -> str:
    """The same in all processes; "" where a rank and a run in the sandbox may differ."""
    return "" if _may_differ(kind) else f"{module_of(kind)}.{kind.__qualname__}"


@cached_by_class
def entry_of(kind: type) -> list[Any] | None:
    """Of every object that nothing but its type tells; None where not even that is compared.

    Whether there is one that only shows what it is given, or a thread, counts for nothing.
    """
    name = name_of(kind)
    if handles.is_one(kind) or only_shows(kind) or module_of(kind).startswith(_SHOWS):
        return None
    if issubclass(kind, _OF_THE_MACHINE):
        return None
    return [_digest_of("of the kind", name), f"a {kind.__name__}"] if name else None


@cached_by_class
def unread_entry_of(kind: type) -> list[Any] | None:
    """Of one that cannot be looked at, as a text that is closed."""
    name = name_of(kind)
    text = f"a {kind.__name__} that cannot be read"
    return [_digest_of("not read", name), text] if name else None


def _digest_of(*words: str) -> bytes:
    return xxhash.xxh3_64_digest("\x1f".join(words).encode("utf8", "surrogatepass"))


def _may_differ(kind: type) -> bool:
    module = module_of(kind)
    ours = module == _OURS or module.startswith(f"{_OURS}.")
    return ours or issubclass(kind, _EACH_ITS_OWN)
