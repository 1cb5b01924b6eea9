# SPDX-License-Identifier: Apache-2.0
"""What a step leaves in variables of the script, for the lines behind it.

A step may fill a list that the lines behind it add up and empty, or set a flag that they count: at
each fetch the variable is as it was, and no record has what it was between. Where a step is passed
over because its machine is lost, that is gone. The variable is *put away* then (`away`), until the
next fetch: whoever uses it hears of it, instead of going on with what lies there.

Which variables those are is seen while the run in the sandbox makes its steps, but for the first,
which may make what stays; and, of those that steps seem to write before they read them, known by
the source (`code.in_steps`).
"""

from collections.abc import Callable, Iterable, Iterator, Set
from functools import partial
from types import FrameType
from typing import Any, NamedTuple

from trainmover.state.script import away, handles
from trainmover.state.script.putting import store_in
from trainmover.state.script.search.layout import Slot
from trainmover.state.script.values import NO_VALUE, Entry, same


class Now(NamedTuple):
    """A variable: its slot, what it holds, and the frame that has it, if one of a function has."""

    slot: Slot
    value: Any
    frame: FrameType | None


class Left:
    """Of one run of the script.

    now    gives all variables, but for what goes with tracked state
    entry  of a value in a slot
    said   what stands for a key, with file and line
    keys     of values that a step has left otherwise than it found them
    changed  the same, of all that has an entry: what is no value cannot be put away, but is no work
             of the lines behind the step either
    """

    def __init__(
        self,
        now: Callable[[FrameType | None], Iterable[Now]],
        entry: Callable[[Slot, Any], Entry],
        said: Callable[[str], str],
    ) -> None:
        self.keys, self.changed = set[str](), set[str]()
        self._now, self._entry, self._said = now, entry, said
        self._before: dict[str, Entry] = {}
        self._steps = 0
        self._at_fetch: dict[str, Any] = {}
        self._put: list[tuple[Now, away.Away]] = []

    # --- in the sandbox ---------------------------------------------------------------------------

    def begin_step(self, frame: FrameType) -> None:
        """A step is called below this frame."""
        self._steps += 1
        self._before = {}
        if self._steps > 1:
            self._before = {key: entry for key, entry, _ in self._entries(frame)}

    def end_step(self, frame: FrameType) -> None:
        """It has returned."""
        before, self._before = self._before, {}
        if not before:
            return
        for key, entry, value in self._entries(frame):
            was = before.get(key, NO_VALUE)
            if NO_VALUE not in (entry, was) and not same(entry, was):
                self.changed.add(key)
                if away.is_value(value):
                    self.keys.add(key)

    def _entries(self, frame: FrameType) -> Iterator[tuple[str, Entry, object]]:
        for slot, value, _ in self._now(frame):
            yield slot.key, self._entry(slot, value), value

    # --- where a rank is taken --------------------------------------------------------------------

    def stand(self, frame: FrameType | None) -> None:
        """Here the rank has fetched, and its values are put."""
        self._at_fetch = {one.slot.key: one.value for one in self._now(frame)}

    def forget(self) -> None:
        """All steps that the rank has made are passed over."""
        self._at_fetch = {}

    def put_away(
        self, frame: FrameType | None, written: Set[str], known: Set[str] = frozenset()
    ) -> None:
        """A step that the rank has made is passed over.

        written: keys of what steps store to, and which has changed before
        known: of what is as the step has left it
        """
        put = {id(gone) for _, gone in self._put}
        for one in self._now(frame):
            key = one.slot.key
            stays = key not in self.keys and (key not in written or self._is_newer(key, one.value))
            stays |= key in known
            if stays or id(one.value) in put or not away.is_value(one.value):
                continue
            gone = away.Away(self._said(key), partial(_restored, one))
            _store(one, gone)
            self._put.append((one, gone))

    def put_back(self, frame: FrameType | None) -> None:
        """At the next fetch, or the next step: what nobody has stored to since is compared."""
        if not self._put:
            return
        put, self._put = {id(gone): one.value for one, gone in self._put}, []
        for one in self._now(frame):
            if id(one.value) in put:
                _store(one, put[id(one.value)])

    def _is_newer(self, key: str, value: object) -> bool:
        """Lines since the fetch have stored to it, as the rank's did."""
        return key in self._at_fetch and self._at_fetch[key] is not value


def _restored(one: Now) -> Any:
    _store(one, one.value)
    return one.value


def _store(one: Now, value: object) -> None:
    if one.frame is not None and one.slot.owner is None:
        handles.store(one.frame, one.slot.name, value)
    else:
        store_in(one.slot, None, value)
