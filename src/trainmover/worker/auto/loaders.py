# SPDX-License-Identifier: Apache-2.0
"""Iterators over a script's DataLoaders whose place is a value.

`iter(loader)` gives one where a script that never names trainmover trains (`loop.py`). Its place
lies in the script's graph like any variable. What it has given in the step under way it can give
again, with the random numbers as they were behind each batch, so a step that is run again gets the
same batches without a new pass.
"""

import sys
import weakref
from collections.abc import Callable, Iterator
from functools import cache
from typing import Any

import torch
from torch.utils.data import DataLoader

from trainmover.errors import UserError
from trainmover.graph.kinds.positioned import know_positioned
from trainmover.state import rng
from trainmover.state.encode import decode, encode
from trainmover.torch_internals.loaders import iterate_by
from trainmover.worker.data import batches as of_batches
from trainmover.worker.data.batches import OF_PASS, Batches

_live: "weakref.WeakSet[LoaderIterator]" = weakref.WeakSet()


class LoaderIterator:
    """One pass over a loader. Raises UserError for a loader whose place cannot be described.

    source  the loader
    given   in the step under way: place before each batch, batch, random numbers behind it
    """

    def __init__(self, loader: Any) -> None:
        self.source = loader
        self._batches = Batches(loader, 1)
        self._batches.watch(lambda: None)
        self._began: object = None
        self._begun: dict[str, bytes] = {}
        self._wanted: dict[str, Any] | None = None
        self.given: list[tuple[dict[str, Any], Any, bytes]] = []
        self._again = 0  # Of those given, the next that is given again; behind the last: none.
        _live.add(self)

    @classmethod
    def standing_nowhere(cls, source: Any) -> "LoaderIterator":
        """Return one over a loader, which is told next where to stand."""
        return cls(source)

    def __iter__(self) -> "LoaderIterator":
        return self

    def __len__(self) -> int:
        return len(self._batches)

    def __next__(self) -> Any:
        if self._again < len(self.given):
            _, batch, behind = self.given[self._again]
            self._again += 1
            rng.restore(behind)
            return batch
        self.settle()
        before = self._position()
        batch = next(self._batches)
        self.given.append((before, batch, rng.capture()))
        self._again = len(self.given)
        return batch

    @property
    def position(self) -> tuple[dict[str, Any], dict[str, bytes]]:
        """Where it stands, and what its pass began with."""
        place = self._position()
        return (
            {name: value for name, value in place.items() if name not in OF_PASS},
            self._begun_as({name: value for name, value in place.items() if name in OF_PASS}),
        )

    def _position(self) -> dict[str, Any]:
        if self._again < len(self.given):
            return self.given[self._again][0]
        return self._batches.position() if self._wanted is None else self._wanted

    def _begun_as(self, of_pass: dict[str, Any]) -> dict[str, bytes]:
        """Return one dict as long as the pass has begun with the same."""
        data = encode(of_pass)
        if self._begun.get("pass") != data:
            self._begun = {"pass": data}
        return self._begun

    def stand(
        self, source: Any, here: dict[str, Any], begun: dict[str, bytes], *, is_own: bool
    ) -> None:
        """Stand at a position over this loader; see `settle`.

        is_own  False: what was given may hold other values by now, and is not given again
        """
        place = here | decode(begun["pass"])
        if source is self.source:
            for number, (before, _, _) in enumerate(self.given if is_own else ()):
                if before == place:
                    self._again = number
                    return
            if self._again == len(self.given) and self._position() == place:
                return
        else:
            self.source = source
            self._batches = Batches(source, 1)
            self._batches.watch(lambda: None)
        self.given, self._again, self._wanted = [], 0, place

    def settle(self) -> None:
        """Come to where it was told to stand. Raises StateMismatch where the loader does not give
        what it has given there."""
        if self._wanted is not None:
            self._batches.resume(self._wanted)
            self._wanted = None


know_positioned(LoaderIterator)


def settle() -> None:
    """Have all iterators come to where they were told to stand. Raises StateMismatch."""
    for one in [*_live]:
        one.settle()


def forget_given() -> None:
    """Forget the batches of the step before: nobody makes that again."""
    for one in [*_live]:
        if one.given and one._again == len(one.given):
            one.given, one._again = [], 0


@cache
def wrap_loaders() -> None:
    """Give a `LoaderIterator` for each pass that the script begins to train from, from now on.

    Evaluation mostly runs under `torch.no_grad()`: such a pass is a plain one.
    """

    def iterator(loader: "DataLoader[Any]", plain: Any) -> Iterator[Any]:
        by = sys._getframe(2).f_globals.get("__name__")
        if not _is_on or by == of_batches.__name__ or not torch.is_grad_enabled():
            return plain(loader)  # type: ignore[no-any-return]
        try:
            return LoaderIterator(loader)
        except UserError as error:
            _tell(error.happened.partition(": ")[2].rstrip("."))
            return plain(loader)  # type: ignore[no-any-return]

    iterate_by(iterator)


_is_on = False


def _ignore(why: str) -> None:
    """Nobody asks."""


_tell: Callable[[str], None] = _ignore


def switch(*, on: bool, tell: Callable[[str], None] = _ignore) -> None:
    """Whether passes are given so. tell: called with why the place of one cannot be told"""
    global _is_on, _tell
    _is_on, _tell = on, tell
    if not on:
        _live.clear()
