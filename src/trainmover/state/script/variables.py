"""The variables of a script that nobody tracks: found, captured at each fetch, compared.

What counts, in the frames of the script's own files, from its top to the fetch:

    locals      that may still be read (`liveness`), and targets of the `for` loops around, which
                show how far an iterator without a name is
    globals     that some function stores to, or whose content some code changes
    cells       of the script's functions
    attributes  of objects of the script's own classes that are reached from there, and that are
                stored to after the set-up, unless each step writes them before it reads them
    generators  of random numbers, wherever one of these is one: what they will draw from, but for
                those that go with the rank: tracked ones, and those of the loops under way

Not what tells the time or the machine (`source`), nor what is no plain value (`values`). Where all
that lies is found once for a place in the script, and looked for again when something is another
object than it was; a capture only reads it.
"""

import inspect
import os
import sys
from collections import deque
from collections.abc import Callable, Container, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from types import CellType, CodeType, FrameType, FunctionType, ModuleType, NoneType
from typing import Any

import msgspec
from torch import Tensor, nn

from trainmover.errors import ProtocolError
from trainmover.state.kinds.generators import KeptGenerator, is_generator
from trainmover.state.script import handles
from trainmover.state.script.liveness import live_at
from trainmover.state.script.source import MODULE, Scope, Source, source_of, together
from trainmover.state.script.values import (
    NO_VALUE,
    PLAIN,
    Entry,
    entry_of,
    generator_entry,
    is_secret,
    known_as,
    same,
    shown,
)
from trainmover.state.script.views import Views

SLOTS_MAX = 512
OBJECTS_MAX = 256
DEPTH_MAX = 6
LAYOUTS_MAX = 4
LOOKS_AGAIN_EVERY = 64
"""Captures after which a place is searched anew, in case a list has got another object."""
_SMALL, _NESTED_MAX = 64, 3
_HELD_BY_US = 4
"""References to what a frame shows of its locals: its own, our list's, our loop's, the count's."""
_RESUMED = inspect.CO_GENERATOR | inspect.CO_COROUTINE | inspect.CO_ASYNC_GENERATOR
"""Of code whose frame is called anew each time it goes on."""
ABSENT: Any = object()
_PACKAGE = os.path.join(
    os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__)))), ""
)
_NEVER: Any = object()
_NO_TYPES: frozenset[type] = frozenset()
_encoder = msgspec.msgpack.Encoder()
_decoder = msgspec.msgpack.Decoder()
_UNKNOWN = Scope()
Known = bytes | int | None
"""What the entries of one handle have in common, in all processes."""
Place = list[Any]
"""File, function and line of each of the script's frames, outermost first, and whether something is
being collected there that no variable holds yet: by a comprehension, or as in `sum(map(...))`."""


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
        if self.theirs == self.own:
            return f"`{self.name}` ({where}) is another on the rank than here"
        return f"`{self.name}` ({where}) is {self.theirs} on the rank and {self.own} here"


@dataclass(slots=True)
class _Slot:
    """One variable. owner[name] is its value; a cell is its own owner.

    key     file, function and path: what it is known by in another process
    owner   what holds it: a dict, a cell, or an object with slots; None: the frame of a function
    at_end  counts only if the loop ends here
    count   is the target of a loop, and counts if it is no part of the batch
    last    value that `entry` is of, if that is never changed in place
    silent  types of which it has no entry, now that it was one of them
    before  entry of the last value that may change in place
    """

    key: str
    owner: Any
    name: str
    secret: bool
    at_end: bool = False
    count: bool = False
    is_asked: bool = False
    missing: bool = True
    last: Any = _NEVER
    entry: Entry = NO_VALUE
    silent: frozenset[type] = frozenset()
    before: Entry = None


@dataclass
class _Layout:
    """Where the variables are, for one place in the script.

    frames    slots of the locals of each frame, outermost first
    outside   slots of all others
    roots     of the objects that the search went through: in which frame, by which name
    children  the others: what held them must hold them still
    tracked   keys of what was reached from a tracked object
    sizes     of the dicts and lists that it looked through
    """

    frames: list[list[_Slot]] = field(default_factory=list)
    outside: list[_Slot] = field(default_factory=list)
    roots: list[tuple[int, str, object]] = field(default_factory=list)
    children: list[tuple[dict[str, Any], str, object]] = field(default_factory=list)
    sizes: list[tuple[Any, int]] = field(default_factory=list)
    place: Place = field(default_factory=list)
    tracked: list[str] = field(default_factory=list)
    uses: int = 0


def all_loaded() -> list[ModuleType]:
    return [module for module in list(sys.modules.values()) if type(module) is ModuleType]


class Variables:
    """Of one run of the script. Main thread only.

    tracked  the objects that it tracks, by name
    is_own   whether a file is the script's own, and not installed
    of_loops generators that draw for the loops under way
    loaded   modules of which some may be the script's own
    """

    def __init__(
        self,
        tracked: Callable[[], Iterable[tuple[str, object]]],
        is_own: Callable[[str], bool],
        of_loops: Callable[[], Iterable[object]] = tuple,
        loaded: Callable[[], Iterable[ModuleType]] = all_loaded,
    ) -> None:
        self._tracked = tracked
        self._is_own = is_own
        self._of_loops = of_loops
        self._loaded = loaded
        self._own_codes: dict[CodeType, bool] = {}
        self._own_files: dict[str, bool] = {}
        self._outermost: FrameType | None = None
        self._layouts: dict[tuple[Any, ...], _Layout] = {}
        self._modules_seen = 0
        self._own_modules: list[ModuleType] = []
        self._source = Source()
        self._outgrown = False
        self._no_values: set[type] = set()  # Of which no object is a plain value.
        self._counting: set[str] = set()  # Keys of loops' targets that have been no part of one.
        self._newest: _Layout | None = None
        self._views = Views()
        self._given: tuple[object, ...] = ()  # Plain values in the batch that came last.

    # --- capture ----------------------------------------------------------------------------------

    def capture(self, *, full: bool = False) -> bytes:
        """What they are now, to be called below the script's frames.

        full: with the names of those that have no plain value, to compare with another's
        """
        frames = self.frames(sys._getframe(1))
        captured = self._read_all(frames, full)
        if self._outgrown:  # Where a plain value was there is an object now: look what it holds.
            self._layouts.clear()
            captured = self._read_all(frames, full)
        return captured

    def gave(self, batch: object) -> None:
        """The script gets this batch: its parts are no variables of the script's."""
        self._given = () if isinstance(batch, Tensor) else tuple(_plain_parts(batch, 3))

    def _read_all(self, frames: list[FrameType], full: bool) -> bytes:
        locals_of = [frame.f_locals for frame in frames]
        layout = self._layout_for(frames, locals_of)
        self._outgrown = False
        found: dict[str, Entry] = {}
        at_end: dict[str, Entry] = {}
        self._read_locals(layout, locals_of, full, found, at_end)
        for slot in layout.outside:
            value = _value(slot) if slot.is_asked else slot.owner.get(slot.name, ABSENT)
            if value is not slot.last:
                self._read(slot, value, full)
            if slot.entry is not NO_VALUE:
                found[slot.key] = slot.entry
        others: list[str] = []
        if full:
            every = [slot for slots in [*layout.frames, layout.outside] for slot in slots]
            others = [slot.key for slot in every if slot.entry is NO_VALUE and not slot.missing]
        _let_go(frames, locals_of)
        return _encoder.encode([layout.place, found, at_end, layout.tracked, others])

    def _read_locals(
        self,
        layout: _Layout,
        locals_of: list[Any],
        full: bool,
        found: dict[str, Entry],
        at_end: dict[str, Entry],
    ) -> None:
        """Of all frames. Every call counts here: this is done at each fetch."""
        for values, slots in zip(locals_of, layout.frames, strict=True):
            get = values.get
            for slot in slots:
                value = get(slot.name, ABSENT)
                if value is not slot.last and type(value) not in slot.silent:
                    self._read(slot, value, full)
                if slot.entry is not NO_VALUE:
                    (at_end if slot.at_end else found)[slot.key] = slot.entry

    def _read(self, slot: _Slot, value: Any, full: bool) -> None:
        """Of a value that is not the very object it was, or may have changed in place. `last` and
        `silent` say what need not be read again."""
        kind = type(value)
        slot.missing, slot.silent = value is ABSENT, _NO_TYPES
        if kind in PLAIN:
            if slot.count:
                counts = self._counts(slot, value, full)
                slot.entry = entry_of(value, secret=slot.secret) if counts else NO_VALUE
            else:
                slot.last = value
                slot.entry = entry_of(value, secret=slot.secret)
            return
        was_plain, slot.last = type(slot.last) in PLAIN, _NEVER
        self._outgrown |= was_plain and not slot.missing and not isinstance(value, Tensor)
        slot.entry = NO_VALUE
        if slot.missing:
            slot.last = ABSENT
        elif slot.count or kind in self._no_values:
            slot.silent = frozenset({kind})
        elif is_generator(value):
            if not any(value is one for one in self._going_along()):
                slot.entry = generator_entry(value)
        else:
            slot.entry = entry_of(value, secret=slot.secret, before=slot.before, views=self._views)
            slot.before = slot.entry
            if slot.entry is NO_VALUE and not issubclass(kind, Tensor) and not handles.is_one(kind):
                self._no_values.add(kind)

    def _going_along(self) -> Iterator[object]:
        """Generators that a rank takes with it."""
        for _, obj in self._tracked():
            yield obj.generator if isinstance(obj, KeptGenerator) else obj
        yield from self._of_loops()

    def _counts(self, slot: _Slot, value: object, full: bool) -> bool:
        """Whether a loop's target shows how far its iterator is: not if it is the batch, or a part
        of it, since that follows from where the loader stands. Small numbers may be equal by
        chance, so it counts for good once it was no part; who compares has it in any case."""
        if slot.key not in self._counting and not any(value is one for one in self._given):
            self._counting.add(slot.key)
        return full or slot.key in self._counting

    def frames(self, innermost: FrameType | None) -> list[FrameType]:
        """Those of the script's own code, outermost first.

        What has called the outermost one is not looked at again: that stays the same for as long as
        it runs, unless it is a generator.
        """
        found = []
        frame, own, outermost = innermost, self._own_codes, self._outermost
        while frame is not None:
            code = frame.f_code
            is_own = own.get(code)
            if is_own is None:
                is_own = own[code] = self._is_own_file(code.co_filename)
            if is_own:
                found.append(frame)
                if frame is outermost:
                    break
            frame = frame.f_back
        if frame is None:
            is_fixed = found and not found[-1].f_code.co_flags & _RESUMED
            self._outermost = found[-1] if is_fixed else None
        found.reverse()
        return found

    def _is_own_file(self, path: str) -> bool:
        if path not in self._own_files:
            may_be = not path.startswith(_PACKAGE) and self._is_own(path)
            self._own_files[path] = may_be and os.path.isfile(path)
        return self._own_files[path]

    def _layout_for(self, frames: list[FrameType], locals_of: list[Any]) -> _Layout:
        at = tuple([(frame.f_code, frame.f_lasti) for frame in frames])
        layout = self._layouts.get(at)
        if layout is None or not _holds(layout, locals_of):
            if len(self._layouts) >= LAYOUTS_MAX:
                self._layouts.clear()
            self._learn_modules()
            search = _Search(self._source, self._is_own_file, self._own_modules)
            self._views = Views(self._tracked())
            layout = self._layouts[at] = search.layout(frames, locals_of, self._tracked())
        layout.uses += 1
        self._newest = layout
        return layout

    def _learn_modules(self) -> None:
        """Which of the loaded modules are the script's own, and what their source says."""
        if len(sys.modules) == self._modules_seen:
            return
        self._modules_seen = len(sys.modules)
        paths = [(module, getattr(module, "__file__", None)) for module in self._loaded()]
        own = [(module, path) for module, path in paths if path and self._is_own_file(path)]
        self._own_modules = [module for module, _ in own]
        known = [source for _, path in own if (source := source_of(path)) is not None]
        self._source = together(known)

    def stored_on(self, owner: object) -> set[str]:
        """Attributes of an object that the script stores to after its set-up, and relies on later:
        by methods of its class, or from elsewhere, if it has them."""
        self._learn_modules()
        source = self._source
        known = source.by_others & vars(owner).keys()
        for kind in type(owner).__mro__:
            module = sys.modules.get(kind.__module__)
            if self._is_own_file(getattr(module, "__file__", None) or ""):
                known |= source.by_class.get(kind.__name__, set())
        clocks = {name for name in known if f".{name}" in source.clocks}
        return known - source.temporary - clocks

    def outside(self) -> list[tuple[Any, str, Any]]:
        """What code can change that is called from here: globals, cells, attributes, as the search
        for the last fetch found them: its owner, name and value; ABSENT: it has none."""
        newest = self._newest
        if newest is None:
            return []
        return [
            (one.owner, one.name, _value(one) if one.is_asked else one.owner.get(one.name, ABSENT))
            for one in [slot for slots in newest.frames for slot in slots] + newest.outside
            if one.owner is not None
        ]

    # --- handles ----------------------------------------------------------------------------------

    def held(self) -> list[object]:
        """The handles that variables are, to be called below the script's frames."""
        found = [value for _, value, _ in self._values_at(self.frames(sys._getframe(1)))]
        return [value for value in found if handles.is_one(type(value))]

    def give(self, theirs: bytes, own: Mapping[Known, object]) -> None:
        """Where the rank had a handle, store this process's own. To be called below the script's
        frames, where the rank's variables were captured.

        own: what this process has, by what the entries of each have in common
        Raises ProtocolError on malformed bytes.
        """
        if not theirs:
            return
        _, found, at_end, _, _ = _decoded(theirs)
        their = at_end | found
        for slot, value, frame in self._values_at(self.frames(sys._getframe(1))):
            entry = their.get(slot.key, NO_VALUE)
            if _is_given(entry, value, own) and value is not own[_known(entry)]:
                owner = frame if slot.owner is None else slot.owner
                handles.store(owner, slot.name, own[_known(entry)])

    def _values_at(self, frames: list[FrameType]) -> Iterator[tuple[_Slot, Any, FrameType | None]]:
        """Every variable, and the frame that has it, if one of a function has."""
        locals_of = [frame.f_locals for frame in frames]
        layout = self._layout_for(frames, locals_of)
        for frame, values, slots in zip(frames, locals_of, layout.frames, strict=True):
            for slot in slots:
                yield slot, values.get(slot.name, ABSENT), frame
        for slot in layout.outside:
            yield slot, _value(slot) if slot.is_asked else slot.owner.get(slot.name, ABSENT), None
        _let_go(frames, locals_of)

    def forget(self) -> None:
        """Drop every reference to what the script made."""
        self._given, self._newest, self._views = (), None, Views()
        self._outermost = None
        self._layouts.clear()
        self._own_modules.clear()
        self._own_codes.clear()

    # --- compare ----------------------------------------------------------------------------------

    def differences(
        self,
        theirs: bytes,
        own: bytes,
        *,
        ended: bool = False,
        at_boundary: bool = True,
        given: Container[Known] = (),
    ) -> list[Difference]:
        """What is another here than on the rank. Raises ProtocolError on malformed bytes.

        own          a full capture, at the place where the rank's was made
        ended        the loop has no further round: what is read after it counts too
        at_boundary  False: tracked state is of another moment here; what hangs on it is left out,
                     and a step follows that is passed over, with the tensors that it is given
        given        handles that this process is given where it takes the rank: see `give`
        """
        if not theirs:
            return []
        their_place, their, their_end, _, _ = _decoded(theirs)
        if collecting := _collecting(their_place):
            return collecting
        own_place, mine, mine_end, tracked, others = _decoded(own)
        if [one[:2] for one in their_place] != [one[:2] for one in own_place]:
            return [_elsewhere(their_place, own_place)]
        if their_place != own_place:  # As where a new iterator's first batch has a line of its own.
            their = {key: entry for key, entry in their.items() if key in mine}
        found = list(_different(their, mine, given))
        if ended:
            numbers = {key: one for key, one in their_end.items() if not isinstance(one, list)}
            found += _different(their_end if at_boundary else numbers, mine_end, given)
        unknown = {*others, *([] if at_boundary else tracked)}
        named = [self._difference(*one) for one in found if one[0] not in unknown]
        return list({(one.name, one.theirs, one.own): one for one in reversed(named)}.values())[
            ::-1
        ]

    def changes(self, before: bytes, now: bytes, given: Container[Known] = ()) -> list[Difference]:
        """What has changed on a rank between two fetches at the same place, but for tracked state:
        it lasts from one to the next, and follows from nothing that others have.

        given: as in `differences`
        """
        if not same_place(before, now):
            return []
        place, then, _, tracked, _ = _decoded(before)
        if collecting := _collecting(place):
            return collecting
        _, later, _, _, _ = _decoded(now)
        common = {key: entry for key, entry in later.items() if key in then and key not in tracked}
        return [self._difference(*one) for one in _different(common, then, given)]

    def begun(self, history: Sequence[bytes], own: bytes) -> list[Difference]:
        """What the source's last step has changed from what it was at first, and is another here:
        that step was passed over here, and what it did on the lost rank nobody knows. Raises
        ProtocolError on malformed bytes.

        history  captures of the source: at its first fetch, at that for its last step, and now
        own      a full capture, now
        """
        if not all(history):
            return []
        (_, first, _, _, _), (at, before, _, _, _), (here, now, _, _, _) = map(_decoded, history)
        known = now if at == here else now.keys() & before.keys()
        news = {
            key: now[key]
            for key in known
            if not _as_in(before, key, now[key]) and _as_in(first, key, before.get(key, NO_VALUE))
        }
        _, mine, _, tracked, others = _decoded(own)
        unknown = {*tracked, *others}
        found = [one for one in _different(news, mine) if one[0] not in unknown]
        return [self._difference(*one) for one in found]

    def _difference(self, key: str, theirs: str, own: str) -> Difference:
        file, function, first, path = key.split("\x1f")
        return Difference(path, os.path.basename(file), self._line(file, function, first, path),
                          theirs, own)  # fmt: skip

    def _line(self, file: str, function: str, first: str, path: str) -> int:
        """Where it is stored to, as far as the source tells."""
        source = next((source_of(p) for p in self._own_files if p.endswith(file)), None)
        if "." in path:
            return self._source.attributes.get(path.rpartition(".")[2], 0)
        if source is None:
            return 0
        scope = source.scopes.get((function, int(first))) or source.scopes.get(MODULE, Scope())
        return scope.lines.get(path, 0)


def sentence(rank: int, differences: list[Difference]) -> str:
    """One line for all of them."""
    named = "; ".join(map(str, differences[:3]))
    more = f"; and {len(differences) - 3} more" if len(differences) > 3 else ""
    return (
        f"variables of the script would be wrong on a machine that takes rank {rank}: {named}{more}"
    )


ADVICE = (
    "keep such values with job.values(...), counters with job.enumerate(...) in place of "
    "enumerate(...), or track the object that holds them"
)


def same_place(theirs: bytes, own: bytes) -> bool:
    """Whether both were captured at the same line of the script."""
    return bool(theirs and own and _decoded(theirs)[0] == _decoded(own)[0])


def _decoded(
    data: bytes,
) -> tuple[Place, dict[str, Entry], dict[str, Entry], list[str], list[str]]:
    try:
        place, found, at_end, tracked, others = _decoder.decode(data)
        if isinstance(found, dict) and isinstance(at_end, dict):
            return place, found, at_end, list(tracked), list(others)
    except (msgspec.MsgspecError, TypeError, ValueError) as error:
        raise ProtocolError(f"These bytes are no variables of a script: {error}.") from error
    raise ProtocolError("These bytes are no variables of a script.")


def _known(entry: Entry) -> Known:
    """By what the handle is known whose entry this is; else nothing that is known."""
    return entry if type(entry) is int else known_as(entry)


def _is_given(theirs: Entry, own: object, given: Container[Known]) -> bool:
    """Whether a variable is a handle on the rank, and can become this process's own. A number that
    stands for a handle, as torch has it for a group without this rank, is taken for one only where
    there is nothing else."""
    known = None if theirs is NO_VALUE else _known(theirs)
    return known is not None and known in given and (type(theirs) is list or own is None)


def _different(
    theirs: Mapping[str, Entry], mine: Mapping[str, Entry], given: Container[Known] = ()
) -> Iterator[tuple[str, str, str]]:
    """What the rank has and this process has not, or has otherwise; but for what it is given."""
    for key, entry in theirs.items():
        if _is_given(entry, mine.get(key, NO_VALUE), given) and key in mine:
            continue
        if key not in mine:
            yield key, shown(entry), "not set"
        elif not same(entry, mine[key]):
            yield key, shown(entry), shown(mine[key])


def _as_in(found: Mapping[str, Entry], key: str, entry: Entry) -> bool:
    """Whether it was the same there: also if there was none."""
    other = found.get(key, NO_VALUE)
    return other is entry is NO_VALUE or (NO_VALUE not in (other, entry) and same(entry, other))


def _elsewhere(theirs: Place, own: Place) -> Difference:
    def said(place: Place) -> str:
        return f"{place[-1][1]} at line {place[-1][2]}" if place else "no function of the script"

    file = os.path.basename(theirs[-1][0]) if theirs else "the script"
    return Difference("the fetch", file, 0, f"in {said(theirs)}", f"in {said(own)}")


def _fed(frames: list[FrameType]) -> set[FrameType]:
    """Of the script's frames those right above the fetch, or above a generator of the script's:
    what runs between both was not written in Python."""
    frame = sys._getframe(1)
    while frame.f_back is not None and frame.f_code.co_filename.startswith(_PACKAGE):
        frame = frame.f_back
    above = [one.f_back for one in frames if one.f_code.co_flags & inspect.CO_GENERATOR]
    return {one for one in [frame, *above] if one in frames and one is not None}


def _collecting(place: Place) -> list[Difference]:
    """The first values lie where nobody can read them, so nobody else can have them."""
    return [
        Difference("what is collected", os.path.basename(file), line, "partly made", "not known")
        for file, _, line, collects in place
        if collects
    ]


def _plain_parts(value: object, depth: int) -> Iterator[object]:
    """Plain values in a batch, as far as scripts unpack them."""
    if type(value) in PLAIN:
        yield value
    elif depth and isinstance(value, list | tuple | dict) and len(value) <= _SMALL:
        for one in value.values() if isinstance(value, dict) else value:
            yield from _plain_parts(one, depth - 1)


def _value(slot: _Slot) -> Any:
    """Of a cell, or of an object that has no dict."""
    if not isinstance(slot.owner, CellType):
        return getattr(slot.owner, slot.name, ABSENT)
    try:
        return slot.owner.cell_contents
    except ValueError:
        return ABSENT


def _holds(layout: _Layout, locals_of: list[Any]) -> bool:
    """Whether everything is where the search found it."""
    if layout.uses >= LOOKS_AGAIN_EVERY:
        return False
    for number, name, known in layout.roots:
        if locals_of[number].get(name) is not known:
            return False
    for owner, name, child in layout.children:
        if owner.get(name) is not child:
            return False
    return all([len(container) == size for container, size in layout.sizes])


def _let_go(frames: list[FrameType], locals_of: list[Any]) -> None:
    """Before Python 3.13 a frame keeps what it has shown of its locals: batches and graphs would
    live a step longer. Not where the script itself has asked for the same dict."""
    for number, frame in enumerate(frames):
        values = locals_of[number]
        is_shown = type(values) is dict and frame.f_code.co_flags & inspect.CO_OPTIMIZED
        if is_shown and sys.getrefcount(values) <= _HELD_BY_US:
            values.clear()


class _Search:
    """Goes through the script's frames, its modules and what it tracks, once for a place."""

    def __init__(
        self, source: Source, is_own_file: Callable[[str], bool], modules: list[ModuleType]
    ) -> None:
        self._source = source
        self._is_own_file = is_own_file
        self._modules = modules
        self._own_types: dict[type, bool] = {}
        self._seen: set[int] = set()
        self._held: list[object] = []  # So that no other object gets an id that was seen.
        self._layout = _Layout()
        self._locals_of: list[Any] = []
        self._objects = 0
        self._at: tuple[str, str, int] = ("", "", 0)
        self._stored = source.attributes.keys() - source.temporary

    def layout(
        self, frames: list[FrameType], locals_of: list[Any], tracked: Iterable[tuple[str, object]]
    ) -> _Layout:
        for frame, values in zip(frames, locals_of, strict=True):
            self._leave_out(_scope(frame.f_code), values)
        self._at = ("", "tracked", 0)
        for name, obj in tracked:
            self._go_into(obj, name, 0)
            if not self._is_own(type(obj)) and not isinstance(obj, nn.Module):
                self._go_into(dict(getattr(obj, "__dict__", {})), name, 1)
        self._layout.tracked = [slot.key for slot in self._layout.outside]
        fed = _fed(frames)
        for frame, values in zip(frames, locals_of, strict=True):
            self._frame(frame, values, fetches=frame is frames[-1], feeds=frame in fed)
        self._locals_of = locals_of
        for module in self._modules:
            self._at = (_short(module.__file__ or ""), "<module>", 0)
            self._module(module)
        return self._layout

    # --- where they are ---------------------------------------------------------------------------

    def _leave_out(self, scope: Scope, values: Mapping[str, Any]) -> None:
        """Objects that hold nothing but the time, by whatever way they are reached."""
        for name in scope.clocks:
            value = values.get(name)
            if self._is_own(type(value)):
                self._seen_before(value)

    def _frame(
        self, frame: FrameType, values: Mapping[str, Any], *, fetches: bool, feeds: bool
    ) -> None:
        """fetches: no other frame of the script's lies between it and the fetch. A loop over a
        generator of the script's shows how far that is in the generator's own frame.

        feeds: whatever it calls gets the batches themselves, or what a generator makes of them
        """
        code, slots = frame.f_code, list[_Slot]()
        live, scope, number = live_at(code, frame.f_lasti), _scope(code), len(self._layout.frames)
        collects = live.collects or (live.calls and feeds)
        self._at = _at(code)
        held, shared = None, {*code.co_cellvars, *code.co_freevars}
        if values is frame.f_globals:
            held = values
        if code.co_name == "<module>":
            source = source_of(code.co_filename)
            shared = self._source.globals | (source.read if source else set(values))
        names = live.names | (shared - live.own_targets)  # Those are stored as the fetch returns.
        at_end = live.at_end | (shared & live.own_targets)
        targets = (live.targets if fetches else live.targets - live.own_targets) - scope.given
        for name in sorted(names | targets | at_end):
            if name in scope.clocks or name.startswith(("__", ".")):
                continue
            slot = self._slot(name, held, name, values.get(name))
            slots.append(slot)
            if name not in names and name in targets:
                slot.count = name not in scope.counts
                continue
            slot.at_end = name not in names
            value = values.get(name)
            if self._may_hold_objects(value):
                self._layout.roots.append((number, name, value))
                self._go_into(value, name, 0)
        for value in list(values.values()):
            self._cells(value)
        self._layout.frames.append(slots)
        at = [_short(code.co_filename), code.co_name, frame.f_lineno, collects]
        self._layout.place.append(at)

    def _may_hold_objects(self, value: object, depth: int = 0) -> bool:
        if isinstance(value, list | tuple | deque | dict):
            if depth >= _NESTED_MAX or len(value) > _SMALL:
                return False
            entries = list(value.values() if isinstance(value, dict) else value)
            return any(self._may_hold_objects(entry, depth + 1) for entry in entries)
        return isinstance(value, nn.Module) or self._is_own(type(value))

    def _module(self, module: ModuleType) -> None:
        values = vars(module)
        changed = self._source.changed | self._source.globals | self._source.by_others
        source = source_of(module.__file__ or "")
        clocks = source.scopes[MODULE].clocks if source else set[str]()
        for name in sorted(values.keys() - clocks):
            value = values[name]
            if name.startswith("__"):
                continue
            counts = name in changed or is_generator(value)
            if counts and self._is_variable(value) and not self._is_local(values, name):
                self._outside(self._slot(name, values, name, value))
            if self._is_own(type(value)):
                self._layout.children.append((values, name, value))
            if self._may_hold_objects(value):
                self._go_into(value, name, 0)
            self._cells(value)

    def _is_local(self, values: Mapping[str, Any], name: str) -> bool:
        """Whether a frame of the module itself is among those captured, and has it."""
        return any(
            values is known and any(slot.name == name for slot in slots)
            for known, slots in zip(self._locals_of, self._layout.frames, strict=True)
        )

    def _cells(self, value: object) -> None:
        """Of a function of the script, also behind a decorator."""
        if not isinstance(value, FunctionType):
            return
        inner = vars(value).get("__wrapped__")
        value = inner if isinstance(inner, FunctionType) else value
        if not self._is_own_file(value.__code__.co_filename):
            return
        if value.__closure__ is None or self._seen_before(value):
            return
        code = value.__code__
        at, self._at = self._at, _at(code)
        for name, cell in zip(code.co_freevars, value.__closure__, strict=True):
            self._cell(name, cell, _scope(code))
        self._at = at

    def _cell(self, name: str, cell: CellType, scope: Scope) -> None:
        if id(cell) in self._seen or name in scope.clocks or name == "__class__":
            return
        self._seen.add(id(cell))
        self._held.append(cell)
        try:
            content = cell.cell_contents
        except ValueError:
            return
        if isinstance(content, FunctionType):
            self._cells(content)
        else:
            if self._is_variable(content):
                self._outside(self._slot(name, cell, name, content))
            if self._may_hold_objects(content):
                self._go_into(content, name, 0)

    # --- what they hold ---------------------------------------------------------------------------

    def _go_into(self, value: object, path: str, depth: int) -> None:
        """Objects of the script's own classes, below `value`; each once."""
        if depth >= DEPTH_MAX or self._objects >= OBJECTS_MAX or self._is_clock(path):
            return
        if self._seen_before(value):
            return
        if isinstance(value, dict):
            self._entries(value, list(value.items()), path, depth)
        elif isinstance(value, list | tuple | deque):
            self._entries(value, list(enumerate(value)), path, depth)
        elif isinstance(value, nn.Module):
            self._module_of_torch(value, path, depth)
        elif self._is_own(type(value)):
            self._attributes(value, path, depth)

    def _entries(
        self, container: Any, entries: list[tuple[Any, object]], path: str, depth: int
    ) -> None:
        if not isinstance(container, tuple):
            self._layout.sizes.append((container, len(container)))
        for name, entry in entries:
            if type(name) in (str, int) and self._may_hold_objects(entry):
                self._go_into(entry, f"{path}[{name!r}]", depth + 1)

    def _attributes(self, owner: object, path: str, depth: int) -> None:
        self._objects += 1
        held = getattr(owner, "__dict__", None)
        if type(held) is not dict:
            held = {}
        for name in self._stored & _slots_of(type(owner)):
            if not self._is_clock(f".{name}"):
                self._outside(self._slot(f"{path}.{name}", owner, name, None))
        self._layout.sizes.append((held, len(held)))
        for name, value in list(held.items()):
            below = f"{path}.{name}"
            if self._is_clock(below):
                continue
            counts = name in self._stored or is_generator(value)
            if counts and self._is_variable(value):
                self._outside(self._slot(below, held, name, value))
            if self._may_hold_objects(value):
                self._layout.children.append((held, name, value))
                self._go_into(value, below, depth + 1)
            elif isinstance(value, FunctionType):
                self._cells(value)

    def _module_of_torch(self, value: nn.Module, path: str, depth: int) -> None:
        """Its own attributes, and those of the modules in it."""
        for name, part in value.named_modules():
            if self._objects >= OBJECTS_MAX:
                return
            if self._is_own(type(part)) and (part is value or not self._seen_before(part)):
                self._attributes(part, f"{path}.{name}" if name else path, depth)

    # --- the parts of that ------------------------------------------------------------------------

    def _slot(self, path: str, owner: Any, name: str, value: object) -> _Slot:
        file, function, first = self._at
        key = f"{file}\x1f{function}\x1f{first}\x1f{path}"
        return _Slot(
            key,
            owner,
            name,
            is_secret(path, value),
            is_asked=not isinstance(owner, dict | NoneType),
        )

    def _outside(self, slot: _Slot) -> None:
        if len(self._layout.outside) < SLOTS_MAX:
            self._layout.outside.append(slot)

    def _is_variable(self, value: object) -> bool:
        plain = type(value) in PLAIN or is_generator(value)
        return plain or entry_of(value) is not NO_VALUE

    def _is_clock(self, path: str) -> bool:
        last = path[path.rfind(".") :] if "." in path else path
        return last in self._source.clocks

    def _is_own(self, kind: type) -> bool:
        if kind not in self._own_types:
            module = sys.modules.get(kind.__module__)
            path = getattr(module, "__file__", None) or ""
            self._own_types[kind] = bool(path) and self._is_own_file(path)
        return self._own_types[kind]

    def _seen_before(self, value: object) -> bool:
        if id(value) in self._seen:
            return True
        self._seen.add(id(value))
        self._held.append(value)
        return False


def _slots_of(kind: type) -> set[str]:
    every = [vars(one).get("__slots__", ()) for one in kind.__mro__]
    return {name for names in every for name in ((names,) if isinstance(names, str) else names)}


def _short(path: str) -> str:
    """The same on all machines, wherever the script lies there."""
    return os.sep.join(path.split(os.sep)[-2:])


def _at(code: CodeType) -> tuple[str, str, int]:
    first = 0 if code.co_name == "<module>" else code.co_firstlineno
    return _short(code.co_filename), code.co_name, first


def _scope(code: CodeType) -> Scope:
    source = source_of(code.co_filename)
    _, name, first = _at(code)
    return source.scopes.get((name, first), _UNKNOWN) if source else _UNKNOWN
