# SPDX-License-Identifier: Apache-2.0
"""Plain values that a joiner's script has made otherwise on its way are put as the rank has them.

Lines between two passes run again on a joiner's way (an evaluation, and what follows from it: the
best so far, how often there was none better, a list of all), on state and values that are no
rank's. What they leave in a variable is then another than the rank's, whose record has it. A plain
value says all of itself, and so does a small collection of such, or a small tensor. It can be had
where the rank had it; who compares afterwards sees that nothing else is another.

A value may also be all that shows of what nobody can compare: the count of an object of some
library, or of a thread. Where a script keeps such, and it has changed on the way, nothing is put.

    stored     lines that have run since the set-up have stored to it: it is none of the machine's
               own, as a port or the number of a file
    no target  of a loop, which shows how far an iterator is
"""

import sys
import threading
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence, Set
from dataclasses import dataclass
from functools import partial
from types import FrameType
from typing import Any

import xxhash
from torch import nn

from trainmover.state.encode import decode
from trainmover.state.kinds.filling import filled
from trainmover.state.kinds.modules.attributes import Attributes
from trainmover.state.script.fold.there import is_of_there
from trainmover.state.script.handles import store
from trainmover.state.script.search.layout import Slot
from trainmover.state.script.things.held import held_by
from trainmover.state.script.things.libraries import kept_in
from trainmover.state.script.things.things import Things, is_closed
from trainmover.state.script.values import PLAIN, Entry, Fold, could_be_read, same

_STORELESS = (list, tuple)


@dataclass(frozen=True)
class Closed:
    """An object of some library's. seen: a hash of what it holds, as far as that can be looked at;
    b"": it cannot."""

    value: object
    seen: bytes


def stored(*histories: Sequence[Mapping[str, Entry]]) -> set[str]:
    """Keys of variables that have got another value from one capture to a later one.

    histories: of one process each
    """
    found = set()
    for captures in histories:
        for number, later in enumerate(captures):
            for before in captures[:number]:
                common = later.keys() & before.keys()
                found |= {key for key in common if not same(before[key], later[key])}
    return found


def to_put(
    theirs: Mapping[str, Entry], mine: Mapping[str, Entry], among: Set[str]
) -> dict[str, Any]:
    """By key what is to be in those whose value is another here, where both values say all of
    themselves. Raises ProtocolError for contents that are none."""
    both = theirs.keys() & mine.keys() & among
    others = {key for key in both if not same(theirs[key], mine[key])}
    known = {key for key in others if can_be_put(theirs[key]) and can_be_put(mine[key])}
    return {key: _value_of(theirs[key]) for key in known}


def larger(theirs: Mapping[str, Entry], keys: Iterable[str]) -> dict[str, Any]:
    """The same of what is no small value here and was one there."""
    return {key: _value_of(theirs[key]) for key in keys if can_be_put(theirs[key])}


def can_be_put(entry: Entry) -> bool:
    """Whether it has the value itself."""
    return says_all(entry) and not is_of_there(entry)


def says_all(entry: Entry) -> bool:
    """Of what counts: the value, or whether there is a time."""
    return type(entry) in PLAIN or len(entry) > 2


def _value_of(entry: Entry) -> Any:
    return entry if type(entry) in PLAIN else decode(entry[2])


def put(
    slot: Slot, frame: FrameType | None, own: object, value: object, *, is_one: bool = True
) -> None:
    """Have this value in it. What others may hold too is filled; else it is stored, as the script
    would, if there is a name to store to.

    is_one: all variables that hold the same object are to have this value
    """
    if slot.target or is_there(own, value):
        return  # As of an object whose class has got it meanwhile.
    if not (is_one and _is_filled(own, value)):
        store_in(slot, frame, value)


def is_there(own: object, value: object) -> bool:
    """Whether a plain value is what stands there already."""
    return type(own) in PLAIN and type(own) is type(value) and own == value


def store_in(slot: Slot, frame: FrameType | None, value: object) -> None:
    """As the script would, if there is a name to store to."""
    if slot.of is not None:
        setattr(slot.of, slot.name, value)
    elif not isinstance(slot.owner, _STORELESS):
        store(frame if slot.owner is None else slot.owner, slot.name, value)


def _is_filled(own: Any, value: Any) -> bool:
    """Whether the very object could take what the other holds."""
    if isinstance(own, nn.Module) and isinstance(value, dict):
        Attributes(own, kept_in).load_state_dict(value)
        return True
    if type(own) is type(value) and isinstance(own, dict):
        for key, one in value.items():
            value[key] = _in_place_of(own.get(key), one)
    elif type(own) is type(value) and isinstance(own, list | deque):
        for place, (mine, one) in enumerate(zip(own, value, strict=False)):
            value[place] = _in_place_of(mine, one)
    return filled(own, value)


def _in_place_of(own: object, value: object) -> object:
    return own if _is_filled(own, value) else value


def keeps_elsewhere(
    kept: Iterable[object], before: Mapping[int, Closed], is_own: Callable[[str], bool]
) -> bool:
    """Whether the script may keep something that nobody compares, and that has changed.

    kept: what its variables hold. before: as `closed_in` found it where the run parked.
    is_own: whether a file is the script's
    """
    now = closed_in(kept)
    return _has_threads(is_own) or any(
        not one.seen or key not in before or one.seen != before[key].seen
        for key, one in now.items()
    )


def closed_in(kept: Iterable[object]) -> dict[int, Closed]:
    """Objects of libraries' among these, by their ids."""
    held = (one for value in kept for one in [value, *could_be_read(partial(_content, value), [])])
    return {id(one): Closed(one, _seen_of(one)) for one in held if is_closed(type(one))}


def _seen_of(value: object) -> bytes:
    seen = could_be_read(lambda: repr(Fold(things=_OfLibraries()).of(value)), "")
    if not seen or not held_by(value):
        return b""
    return xxhash.xxh3_128_digest(seen.encode("utf8", "surrogatepass"))


class _OfLibraries(Things):
    """Sees what objects of libraries hold; of what is known elsewhere that it is there."""

    def folded(self, value: object, inside: Callable[[object], Any]) -> Any:
        if not is_closed(type(value)):
            return [type(value).__name__]
        held = [part for name, one in held_by(value).items() for part in (name, inside(one))]
        return [type(value).__name__, *held]


def _content(value: Any) -> list[Any]:
    if type(value) is dict:
        return [*value.values()]
    return [*value] if type(value) in (list, tuple, set) else []


def _has_threads(is_own: Callable[[str], bool]) -> bool:
    """Whether lines of the script's run in another thread."""
    own = threading.get_ident()
    for number, frame in sys._current_frames().items():
        at: FrameType | None = frame
        while number != own and at is not None:
            if is_own(at.f_code.co_filename):
                return True
            at = at.f_back
    return False
