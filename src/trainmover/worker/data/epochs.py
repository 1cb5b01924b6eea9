# SPDX-License-Identifier: Apache-2.0
"""Which epoch samplers are in: what the script says, as without us. Only where one call of
`job.batches` makes several passes, and the script says nothing between them, are they numbered on.

    for epoch in range(9):                       for batch in job.batches(loader, passes=9): ...
        sampler.set_epoch(epoch)                 the same: epochs 0 to 8
        for batch in job.batches(loader): ...

What was numbered on is put back when a later call begins, so that this one finds what the script
has said.
"""

import weakref
from typing import Any

from trainmover.worker.data.loader_parts import parts

_numbered: "weakref.WeakKeyDictionary[Any, tuple[int, int]]" = weakref.WeakKeyDictionary()
"""Sampler -> the epoch that the script left it in, and the one that we have set last."""


class Epochs:
    """Those of one loader's parts, in one `Batches`."""

    def __init__(self, loader: Any) -> None:
        self._parts: list[Any] = []
        for _, part in parts(loader):
            if hasattr(part, "set_epoch") and not any(part is other for other in self._parts):
                self._parts.append(part)
        self._begun: list[int | None] = []

    def begin_pass(self, number: int) -> None:
        """The pass of this number, from 0, is about to begin."""
        if number == 0:
            for part in self._parts:
                _take_back(part)
        else:
            for part, begun in zip(self._parts, self._begun, strict=True):
                _go_on(part, begun, number)
        self._begun = [_epoch_of(part) for part in self._parts]

    def state(self) -> list[list[int | None]]:
        """Of each part: its epoch, and the one that the script left it in, if it was numbered on.
        Nothing for one that does not show its epoch."""
        found: list[list[int | None]] = []
        for part in self._parts:
            now, marked = _epoch_of(part), _mark_of(part)
            found.append([now, marked[0] if marked is not None and marked[1] == now else None])
        return found

    def resume(self, state: list[list[int | None]], number: int) -> None:
        """Stand in pass `number` as another process did. state: as that began"""
        for part, (epoch, _) in zip(self._parts, state, strict=True):
            if epoch is None and number:
                part.set_epoch(number)
        self.put(state)
        self._begun = [epoch for epoch, _ in state]

    def put(self, state: list[list[int | None]]) -> None:
        """What the script has said, in this pass or for the next ones."""
        for part, (epoch, left_in) in zip(self._parts, state, strict=True):
            if epoch is None:
                continue
            if _epoch_of(part) != epoch:
                part.set_epoch(epoch)
            _mark(part, None if left_in is None else (left_in, epoch))


def _take_back(part: Any) -> None:
    marked = _mark_of(part)
    if marked is not None and marked[1] == _epoch_of(part):
        part.set_epoch(marked[0])
    _mark(part, None)


def _go_on(part: Any, begun: int | None, number: int) -> None:
    """begun: the epoch of the pass before; another one now was set by the script since."""
    now = _epoch_of(part)
    if now is None:
        part.set_epoch(number)
    elif now == begun:
        marked = _mark_of(part)
        part.set_epoch(now + 1)
        _mark(part, (marked[0] if marked is not None else now, now + 1))
    else:
        _mark(part, None)


def _epoch_of(part: Any) -> int | None:
    """As the part shows it, or what it wraps; None: it does not."""
    for owner in (part, *(it for it in _held(part) if hasattr(it, "set_epoch"))):
        for name in ("epoch", "_epoch"):
            value = getattr(owner, name, None)
            if type(value) is int:
                return value
    return None


def _held(part: Any) -> list[Any]:
    return list(getattr(part, "__dict__", {}).values())


def _mark_of(part: Any) -> tuple[int, int] | None:
    try:
        return _numbered.get(part)
    except TypeError:  # Neither hashed nor referred to weakly: such a part keeps what it has.
        return None


def _mark(part: Any, mark: tuple[int, int] | None) -> None:
    try:
        if mark is None:
            _numbered.pop(part, None)
        else:
            _numbered[part] = mark
    except TypeError:
        return
