# SPDX-License-Identifier: Apache-2.0
"""Captures of a script's variables, compared: of a rank and of who is to take its place, or of one
process at two fetches.
"""

import os
import re
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import dataclass
from typing import NamedTuple

import msgspec

from trainmover.errors import ProtocolError
from trainmover.state.script import handles
from trainmover.state.script.putting import says_all
from trainmover.state.script.search.layout import (
    BEFORE,
    HOOKS,
    LAYERS,
    PROCESS,
    SAME,
    Place,
)
from trainmover.state.script.values import NO_VALUE, PLAIN, Entry, known_as, same, shown

_encoder, _decoder = msgspec.msgpack.Encoder(), msgspec.msgpack.Decoder()
GONE = ""
"""In place of a value that nobody knows."""
OWN = "each rank's own"
"""In place of one that says nothing of what it is behind the next step."""
_OF_LOOPS = (BEFORE, LAYERS, HOOKS)
THE_FETCH = "the fetch"
Known = bytes | int | None
"""What the entries of one handle have in common, in all processes."""
Apart = Callable[[Known, Known], bool]
"""Of two handles that are known: whether they are what one line gives to each of two ranks."""


@dataclass(frozen=True)
class Difference:
    """A variable that is another here. line: of the last store to it, 0 if that is not known."""

    name: str
    file: str
    line: int
    theirs: str
    own: str

    def __str__(self) -> str:
        where = f"{self.file} line {self.line}" if self.line else self.file
        if self.theirs == GONE:
            return (
                f"`{self.name}` ({where}) was {self.own} before the last step, which may have "
                "changed it"
            )
        if self.theirs == OWN:
            return (
                f"`{self.name}` ({where}) is {OWN}, and what its last step makes of it is gone "
                "with a rank"
            )
        if self.theirs == self.own:
            return f"`{self.name}` ({where}) is another on the rank than here"
        return f"`{self.name}` ({where}) is {self.theirs} on the rank and {self.own} here"


def never_apart(theirs: Known, own: Known) -> bool:
    return False


class Comparison:
    """line_of: file and line where a variable is stored to, by its key"""

    def __init__(self, line_of: Callable[[str], tuple[str, int]]) -> None:
        self._line_of = line_of

    def differences(
        self,
        theirs: bytes,
        own: bytes,
        *,
        ended: bool = False,
        at_boundary: bool = True,
    ) -> list[Difference]:
        """What is another here than on the rank. Raises ProtocolError on malformed bytes.

        own          a full capture, at the place where the rank's was made
        ended        the loop has no further round: what is read after it counts too
        at_boundary  False: tracked state is of another moment here; what hangs on it is left out,
                     and a step follows that is passed over, with the tensors that it is given
        """
        if not theirs:
            return []
        their_place, their, their_end, their_tracked, no_value, *_, their_at = decoded(theirs)
        if collecting := _collecting(their_place):
            return collecting
        own_place, mine, mine_end, tracked, others, _, extra, at = decoded(own)
        if [one[:2] for one in their_place] != [one[:2] for one in own_place]:
            return [elsewhere(theirs, own)]
        found = list(_different(their, mine))
        if their_place == own_place and their_at == at:
            found += _only_here(their.keys() | their_end.keys() | {*extra, *no_value}, mine)
        if ended:
            numbers = {key: one for key, one in their_end.items() if not isinstance(one, list)}
            found += _different(their_end if at_boundary else numbers, mine_end)
        going = {key for key in their_tracked if key in tracked or key not in mine}
        unknown = {*others, *(() if at_boundary else going)}
        found = [one for one in found if one[0] not in unknown]
        named = [self._difference(*one) for one in found]
        return list({(one.name, one.theirs, one.own): one for one in reversed(named)}.values())[
            ::-1
        ]

    def on_stacks(self, theirs: bytes, own: bytes) -> list[Difference]:
        """Return what differs of that which lies on the stacks of frames, and in no graph: what the
        statement that fetches has read before. Raises ProtocolError on malformed bytes."""
        if not theirs:
            return []
        place, their, *_ = decoded(theirs)
        if collecting := _collecting(place):
            return collecting
        on_stacks = {key: one for key, one in their.items() if path_of(key).startswith(BEFORE)}
        return [self._difference(*one) for one in _different(on_stacks, decoded(own).found)]

    def begun(
        self,
        history: Sequence[bytes],
        own: bytes,
        apart: Apart = never_apart,
        summed: Set[str] = frozenset(),
        made_here: Set[str] = frozenset(),
    ) -> list[Difference]:
        """What the source's last step has changed from what it was at first, or where a run in the
        sandbox stands, or from what it is here, and is another here: that step was passed over
        here, and what it did on the lost rank nobody knows. What has changed since, and is no
        rank's but the source's, is none of these. Raises ProtocolError on malformed bytes.

        history  captures of the source: at its first fetch, behind its shadow steps or those that
                 were recorded, at the fetch for its last step, and now
        own      a full capture, now
        apart    of a handle there and one here: they are what one line gives to each of two ranks
        summed   keys of what sums up results: the lines that do were run here, with the rank's own
        made_here  of what other lines have changed, which were run here too
        """
        if not all(history):
            return []
        (_, first, *_), (_, stood, *_), (at, before, *_), (here, now, *_) = map(decoded, history)
        _, mine, _, tracked, others, *_ = decoded(own)
        known = now if at == here else now.keys() & before.keys()
        news = {
            key: now[key]
            for key in known
            if not _as_in(before, key, now[key])
            and any(_as_in(one, key, before.get(key, NO_VALUE)) for one in (first, stood, mine))
        }
        unknown = {*tracked, *others, *made_here, *_parted(news, mine, apart)}
        unknown |= {*_plain(summed, now, mine)}
        found = [one for one in _different(news, mine) if one[0] not in unknown]
        return [self._difference(*one) for one in found]

    def of_rank(
        self,
        theirs: bytes,
        stood: bytes,
        history: Sequence[bytes],
        own: bytes,
        *,
        in_steps: Callable[[str], bool],
        parted: Set[str],
        but: Set[str],
    ) -> list[Difference]:
        """What was the rank's own at the fetch for a step that it has made and that was passed over
        here, is still the same here, and may have been changed by that step: another rank's value
        says nothing then, also if it was the same by chance. Raises ProtocolError on malformed
        bytes.

        theirs    where the rank fetched for that step
        stood     of this run, in the sandbox
        history   as in `begun`
        in_steps  whether steps may store to it, by its path
        parted    keys of what steps store to, and has not been the same on both: see `Courses`
        but       keys of what is known
        """
        if not theirs or not stood or not all(history):
            return []
        first, before, now = (decoded(one).found for one in history[1:])
        their, here, mine = decoded(theirs), decoded(stood).found, decoded(own)
        left_out = {*their.tracked, *mine.tracked, *mine.others, *but}

        def may_change(key: str, entry: Entry) -> bool:
            path = path_of(key)
            by_lines = _is_local(key) and not isinstance(entry, list)
            if not _as_in(now, key, before[key]) and not by_lines:
                return True
            stood_so = _as_in(here, key, entry) and _as_in(first, key, before[key])
            return in_steps(path) and not stood_so

        return [
            self._difference(key, GONE, shown(entry))
            for key, entry in their.found.items()
            if key not in left_out
            and key in before
            and says_all(entry)
            and _as_in(mine.found, key, entry)
            and (key in parted or (not same(entry, before[key]) and may_change(key, entry)))
        ]

    def by_both(
        self,
        theirs: Mapping[str, Entry],
        history: Sequence[bytes],
        own: bytes,
        in_steps: Callable[[str], bool],
        but: Set[str],
    ) -> list[Difference]:
        """What lines since the fetch have changed here, and a step that was passed over may have
        changed on the rank: nobody knows what the two together have made of it there, unless the
        rank had what the source had, and the source has what is here. Raises ProtocolError on
        malformed bytes.

        theirs  of the rank, where it fetched for that step
        history, in_steps, but  as in `of_rank`
        """
        if not all(history):
            return []
        before, now = (decoded(one).found for one in history[2:])
        mine = decoded(own)
        left_out = {*mine.tracked, *mine.others, *but}
        return [
            self._difference(key, GONE, shown(entry))
            for key, entry in theirs.items()
            if key in mine.found.keys() - left_out
            and NO_VALUE not in (entry, mine.found[key])
            and not same(entry, mine.found[key])
            and in_steps(path_of(key))
            and not (_as_in(before, key, entry) and _as_in(now, key, mine.found[key]))
        ]

    def asked(
        self, theirs: Mapping[str, Entry], history: Sequence[bytes], own: bytes
    ) -> list[Difference]:
        """What lines since the fetch have changed here, where they have made collectives whose
        values are gone: what came of these may be in it, and nobody knows what the rank had, unless
        it is what the source has. Raises ProtocolError on malformed bytes.

        theirs, history  as in `by_both`
        """
        if not all(history):
            return []
        now, mine = decoded(history[-1]).found, decoded(own)
        left_out = {*mine.tracked, *mine.others}
        return [
            self._difference(key, shown(now[key]) if key in now else GONE, shown(entry))
            for key, entry in mine.found.items()
            if key not in left_out
            and entry is not NO_VALUE
            and (key in theirs or key in now)  # Not what is there for who compares all.
            and not _as_in(theirs, key, entry)
            and not _as_in(now, key, entry)
        ]

    def left(
        self,
        history: Sequence[bytes],
        own: bytes,
        apart: Apart = never_apart,
        *,
        asked: bool,
    ) -> list[Difference]:
        """What the source has changed since it fetched for its last step, and is another here: the
        lines were run here too, on what could be had. What is each rank's own and stays is not
        looked at. Raises ProtocolError on malformed bytes.

        history, apart  as in `begun`
        asked    what is new counts as well: others were asked for values on the way
        """
        if not all(history):
            return []
        *_, (_, before, *_), (_, now, *_) = map(decoded, history)
        news = {
            key: entry
            for key, entry in now.items()
            if (key in before or asked) and not _as_in(before, key, entry)
        }
        _, mine, _, tracked, others, *_ = decoded(own)
        unknown = {*tracked, *others, *_parted(news, mine, apart)}
        found = [one for one in _different(news, mine) if one[0] not in unknown]
        return [self._difference(*one) for one in found]

    def names_in(self, own: bytes) -> set[str]:
        """Of all that is compared in a capture."""
        return {path_of(key) for key in decoded(own)[1]}

    def _difference(self, key: str, theirs: str, own: str) -> Difference:
        file, line = self._line_of(key)
        return Difference(path_of(key), file, line, theirs, own)


def sentence(rank: int, differences: list[Difference]) -> str:
    """One line for all of them."""
    named = "; ".join(map(str, differences[:3]))
    more = f"; and {len(differences) - 3} more" if len(differences) > 3 else ""
    return (
        f"variables of the script would be wrong on a machine that takes rank {rank}: {named}{more}"
    )


def advice(differences: Sequence[Difference]) -> str:
    """What to do about them."""
    if any(one.name.startswith((LAYERS, HOOKS)) for one in differences):
        return (
            "give the model its layers, hooks, parameters and persistent buffers where it is "
            "built, in the order and under the names that they keep, before job.track(...), on "
            "every run alike"
        )
    if any(one.name == THE_FETCH for one in differences):
        return (
            "draw all batches of a pass in one line, as a `for` loop does, or have nothing but the "
            "loop's condition between the line that draws the first one and the loop"
        )
    if any(one.name.startswith(BEFORE) for one in differences):
        return (
            "fetch, and call what fetches, in a line of its own: what the same statement has read "
            "before lies where nothing can be put"
        )
    if any(one.theirs.startswith(handles.OVER_BATCHES) for one in differences):
        return (
            "begin all iterators over batches before the first step, and those that are to begin "
            "again as job.batches(loader, passes=None), which goes from one pass to the next"
        )
    return "keep such values with job.values(...), or track the object that holds them"


def same_place(theirs: bytes, own: bytes) -> bool:
    """Whether both were captured at the same line of the script."""
    return bool(theirs and own and decoded(theirs)[0] == decoded(own)[0])


class Captured(NamedTuple):
    """place    where the script stood
    found    entries by key
    at_end   those that are read only behind the loop
    tracked  keys of what hangs on tracked state
    others   keys of what has no plain value
    brief    entries of what is written before it is read, for all that the source says
    shown    keys of what is only there for who compares
    at       instructions at which its frames stood
    """

    place: Place
    found: dict[str, Entry]
    at_end: dict[str, Entry]
    tracked: list[str]
    others: list[str]
    brief: dict[str, Entry]
    shown: list[str]
    at: list[int]


def decoded(data: bytes) -> Captured:
    """Raises ProtocolError on malformed bytes."""
    try:
        captured = Captured(*_decoder.decode(data))
        dicts = (captured.found, captured.at_end, captured.brief)
        if all(isinstance(one, dict) for one in dicts):
            return captured._replace(
                tracked=[*captured.tracked], others=[*captured.others], shown=[*captured.shown]
            )
    except (msgspec.MsgspecError, TypeError, ValueError) as error:
        raise ProtocolError(f"These bytes are no variables of a script: {error}.") from error
    raise ProtocolError("These bytes are no variables of a script.")


def all_in(data: bytes) -> tuple[dict[str, Entry], list[str]]:
    """Also what is read only behind the loop; and keys of what hangs on tracked state."""
    _, found, at_end, tracked, *_ = decoded(data)
    return at_end | found, tracked


def states_in(data: bytes, keys: Iterable[str]) -> dict[str, bytes]:
    """Of a capture, what these variables were, as far as it has them: see `state_of`."""
    found = decoded(data).found if data else {}
    return {key: state_of(found[key]) for key in keys if key in found}


def state_of(entry: Entry) -> bytes:
    """The same bytes for the same entry, in all processes."""
    return _encoder.encode(entry)


def known_of(entry: Entry) -> Known:
    """By what the handle is known whose entry this is; else nothing that is known."""
    return entry if type(entry) is int else known_as(entry)


def _parted(theirs: Mapping[str, Entry], mine: Mapping[str, Entry], apart: Apart) -> Iterator[str]:
    """Of what is in both, the handles that are each rank's own."""
    for key in theirs.keys() & mine.keys():
        if NO_VALUE not in (theirs[key], mine[key]) and apart(
            known_of(theirs[key]), known_of(mine[key])
        ):
            yield key


def is_given(theirs: Entry, own: object, given: Container[Known]) -> bool:
    """Whether a variable is a handle on the rank, and can become this process's own. A number that
    stands for a handle, as torch has it for a group without this rank, is taken for one only where
    there is nothing else."""
    known = None if theirs is NO_VALUE else known_of(theirs)
    return known is not None and known in given and (type(theirs) is list or own is None)


def _different(
    theirs: Mapping[str, Entry], mine: Mapping[str, Entry]
) -> Iterator[tuple[str, str, str]]:
    """What the rank has and this process has not, or has otherwise; but for what a statement has
    read before a fetch that is not this one."""
    for key, entry in theirs.items():
        if key not in mine and path_of(key).startswith(BEFORE):
            continue
        if key not in mine:
            yield key, shown(entry), _where_it_is_not(key)
        elif not same(entry, mine[key]):
            yield key, shown(entry), shown(mine[key])


def _plain(keys: Set[str], theirs: Mapping[str, Entry], mine: Mapping[str, Entry]) -> Iterator[str]:
    """Of these, those whose value is plain in both."""
    for key in keys & theirs.keys() & mine.keys():
        if type(theirs[key]) in PLAIN and type(mine[key]) in PLAIN:
            yield key


def _only_here(known: Set[str], mine: Mapping[str, Entry]) -> Iterator[tuple[str, str, str]]:
    """What this process has and the rank has not, since it was deleted there, or set here only: of
    names and attributes, not of what a loop or a statement has read."""
    for key in mine.keys() - known:
        if not (key.startswith(PROCESS) or path_of(key).startswith(_OF_LOOPS)):
            yield key, _where_it_is_not(key), shown(mine[key])


def _where_it_is_not(key: str) -> str:
    return "one of its own" if path_of(key).startswith(SAME) else "not set"


def path_of(key: str) -> str:
    return key.rpartition("\x1f")[2]


def words_in(path: str) -> list[str]:
    """Names in it."""
    return re.findall(r"\w+", path)


def _is_local(key: str) -> bool:
    """Whether it is a function's own name, which only lines of that function bind, and functions in
    it that say so. (A global may be bound by a text, or as an entry of `globals()`.)"""
    _, function, _, path = key.split("\x1f")
    return function != "<module>" and path.isidentifier()


def _as_in(found: Mapping[str, Entry], key: str, entry: Entry) -> bool:
    """Whether it was the same there: also if there was none."""
    other = found.get(key, NO_VALUE)
    return other is entry is NO_VALUE or (NO_VALUE not in (other, entry) and same(entry, other))


def elsewhere(theirs: bytes, own: bytes) -> Difference:
    """The script stands somewhere else."""
    there, here = decoded(theirs).place, decoded(own).place

    def said(place: Place) -> str:
        return f"{place[-1][1]} at line {place[-1][2]}" if place else "no function of the script"

    file = os.path.basename(there[-1][0]) if there else "the script"
    return Difference(THE_FETCH, file, 0, f"in {said(there)}", f"in {said(here)}")


def _collecting(place: Place) -> list[Difference]:
    """The first values lie where nobody can read them, so nobody else can have them."""
    return [
        Difference("what is collected", os.path.basename(file), line, "partly made", "not known")
        for file, _, line, collects in place
        if collects
    ]
