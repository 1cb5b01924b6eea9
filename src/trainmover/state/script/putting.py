# SPDX-License-Identifier: Apache-2.0
"""Plain values that a joiner's script has made otherwise on its way are put as the rank has them.

Lines between two passes run again on a joiner's way (an evaluation, and what follows from it: the
best so far, how often there was none better, a list of all), on state and values that are no
rank's. What they leave in a variable is then another than the rank's, whose record has it. A plain
value says all of itself, and so does a small collection of such, or a small tensor. It can be had
where the rank had it; who compares afterwards sees that nothing else is another.

    stored     lines that have run since the set-up have stored to it: it is none of the machine's
               own, as a port or the number of a file
    no target  of a loop, which shows how far an iterator is
"""

from collections.abc import Iterable, Mapping, Sequence, Set
from types import FrameType
from typing import Any

from trainmover.state.encode import decode
from trainmover.state.script.fold.there import is_of_there
from trainmover.state.script.handles import store
from trainmover.state.script.search.layout import Slot
from trainmover.state.script.values import PLAIN, Entry, same

_STORELESS = (list, tuple)


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


def is_there(own: object, value: object) -> bool:
    """Whether a plain value is what stands there already."""
    return type(own) in PLAIN and type(own) is type(value) and own == value


def store_in(slot: Slot, frame: FrameType | None, value: object) -> None:
    """As the script would, if there is a name to store to."""
    if slot.of is not None:
        setattr(slot.of, slot.name, value)
    elif not isinstance(slot.owner, _STORELESS):
        store(frame if slot.owner is None else slot.owner, slot.name, value)
