# SPDX-License-Identifier: Apache-2.0
"""Graph of what a rank's script holds, as it goes with the rank's records, and back into a script.

    live rank   at each fetch: a look (`graph.look`); its record has what has changed since the last
                whole graph, which lies beside the records in the buddy's vault
    joiner      restores it where the rank stood, over what the script has made of itself on its way

Tracked state is left out: it comes from those who hold the same. So is large memory: it is data, or
is named once the script writes to it.
"""

import os
import sys
import types
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from trainmover.asked import are
from trainmover.errors import StateMismatch, UserError
from trainmover.graph import delta as of_delta
from trainmover.graph import wire
from trainmover.graph.compare import differences
from trainmover.graph.delta import Delta, apply, merge
from trainmover.graph.frames import place_of, script_frames
from trainmover.graph.live import MAY_BE_DATA
from trainmover.graph.look import Look
from trainmover.graph.nodes import Graph, Opaque, type_name
from trainmover.graph.process import ProcessState
from trainmover.graph.restore import restore
from trainmover.graph.script import Script
from trainmover.graph.unfinished import unfinished
from trainmover.sandbox.process.modules import is_own_file, was_before
from trainmover.state.encode import decode, encode
from trainmover.torch_internals.tensors import version_of

COPIED_TO, TRUSTED_FROM = 64 << 20, 4 << 20
"""Bytes to which a block of memory goes along; and from which torch's counters of writes are
believed, where only tensors are views of it."""
NODES_WANTED, NODES_MAX, BYTES_MAX = 200_000, 1_000_000, 256 << 20
"""Of a graph: with more nodes large containers are left out; and what one that is kept has."""
ITEMS_MAX = (10_000, 1_000, 100)
"""Objects in a container, from which it is taken for data: the first number that fits."""
_DATA = frozenset(map(type_name, MAY_BE_DATA))
"""Types of what is taken for data."""
SENT_MIN, WHOLES_SENT = 256 << 10, 8
"""Bytes of changes that were sent since a whole graph, and how many times its own bytes, from which
the next one is made."""


Arguments = Sequence[Any]
"""Of a step: its positional ones and those by name; or nothing."""


class Changed(NamedTuple):
    """Changes since a whole graph. number: of that one; 0: there is none"""

    number: int
    changes: bytes


NOT_LOOKED_AT = Changed(0, b"")


class Coverage(NamedTuple):
    """What a graph has of a script: objects that go along, and opaque ones, which do not."""

    objects: int
    opaque: int


NO_COVERAGE = Coverage(0, 0)


class Whole(NamedTuple):
    """A whole graph. made: its bytes"""

    number: int
    made: bytes

    def to_bytes(self) -> bytes:
        """Return it as a vault keeps it."""
        return encode((self.number, self.made))

    @staticmethod
    def from_bytes(data: bytes | bytearray) -> "Whole":
        """Read it again. Raises ProtocolError on malformed bytes."""
        try:
            number, made = decode(bytes(data))
            return Whole(int(number), bytes(made))
        except wire.MALFORMED_GRAPH as error:
            raise wire.protocol_error("a script's state", error) from error


def graph_of(changed: Changed, whole: Whole | None) -> Graph | None:
    """Return the graph of a record; None if there is none, or the whole one is not at hand.

    Raises ProtocolError on malformed bytes.
    """
    if whole is None or not changed.number or whole.number != changed.number:
        return None
    graph = wire.from_bytes(whole.made)
    return apply(graph, of_delta.from_bytes(changed.changes)) if changed.changes else graph


class ScriptGraph:
    """Graph of the script that this process runs, from fetch to fetch. Main thread only.

    storages  returns the addresses of the memory that others carry
    loading   returns what makes batches in this process: datasets, and what puts samples together
    say       tells people a sentence
    whole     the newest whole graph
    coverage  of the first one
    """

    def __init__(
        self,
        storages: Callable[[], Iterable[int]],
        loading: Callable[[], Iterable[object]],
        say: Callable[[str], None],
    ) -> None:
        self._storages, self._say = storages, say
        self._loading = loading
        self.forget()

    def forget(self) -> None:
        """Begin anew, without a reference to what the script made: its run is over."""
        self.whole: Whole | None = None
        self._script = Script(is_own_file, is_before=was_before)
        self._process = ProcessState(self._script)
        self._look = self._new_look(ITEMS_MAX[0])
        self._since: Delta | None = None
        self._newest: Delta | None = None
        self._sent, self._encoded = 0, of_delta.Encoded()
        self._arguments: Arguments = ()
        self._loaders: dict[str, object] = {}
        self._is_begun = self._is_over = False
        self.coverage = NO_COVERAGE
        self._why_over = self._compiled = self._alike = self._written = self._unfinished = ""
        self._without_place = ""
        self._large: dict[int, tuple[weakref.ref[Any], int, int]] = {}
        self._fetches = 0

    def begin_anew(self) -> None:
        """Continue no whole graph of before: the script is about to hold what it held once."""
        self.whole = self._since = self._newest = None

    def stands_at(self, graph: Graph, frame: types.FrameType) -> bool:
        """Return whether the script stands where this was captured. frame: the innermost one"""
        return not self._is_over and place_of(self._frames(frame)) == graph.place

    def look(self, frame: types.FrameType) -> Changed:
        """At a fetch: return what has changed since the whole graph. frame: the innermost one"""
        frames = self._frames(frame)
        if not self._has_looked(frames, ()):
            return NOT_LOOKED_AT
        self._see_large()
        self._unfinished = unfinished(frames)
        try:
            return self._changed()
        except UserError as error:  # A value that has no encoding.
            self._end(error.happened)
            return NOT_LOOKED_AT

    def begin_step(self, frame: types.FrameType, arguments: Arguments) -> None:
        """As a step begins, which may have to be made again: see `put_back`.

        frame: the one that calls the step
        """
        self._arguments = arguments
        self._has_looked(self._frames(frame), arguments)

    @property
    def uncarried(self) -> str:
        """What no other process can have, and why, for people; "": nothing."""
        if self._unfinished:
            return f"{self._unfinished} lies on a stack while the script fetches"
        return (
            self._why_over or self._compiled or self._alike or self._written or self._without_place
        )

    def is_without_place(self, source: str) -> None:
        """Name what the script draws from in its training loop, and whose place nobody can tell."""
        self._without_place = source

    def put_back(self, frame: types.FrameType) -> str:
        """Have the script hold what it held as the step began. Returns what could not be put back,
        for people; "": all was."""
        if self._is_over:
            return self.uncarried
        if large := next(self._large_written(), ""):
            return f"it has changed {large}, which is too large to be copied"
        before = self._look.graph()
        notes = self._restore(before, frame, self._arguments)
        if notes is None:
            return "the script stands at another line than as it began"
        self._has_looked(self._frames(frame), self._arguments)
        if self._newest is not None and self._newest.is_empty:
            return ""
        unlike = [*differences(before, self._look.graph(), with_opaque=False)]
        return f"`{unlike[0].path}` is not as it was" if unlike else ""

    def _has_looked(self, frames: list[types.FrameType], arguments: Arguments) -> bool:
        if self._is_over:
            return False
        try:
            self._see(frames, self._roots_seen(arguments))
        except Exception as error:  # noqa: BLE001  Whatever a look meets, the script goes on.
            self._end(f"a look at it failed with {type(error).__name__}: {error}")
        return not self._is_over

    def _see(self, frames: list[types.FrameType], roots: Mapping[str, object]) -> None:
        self._look.leave_out(self._storages())
        if self._is_begun:
            delta = self._newest = self._look.delta(frames, roots)
            self._know_large(delta.objects, delta.removed)
            if delta.opaque is not None:
                self._note(delta.opaque)
            self._since = delta if self._since is None else merge(self._since, delta)
            return
        self._is_begun = True
        self._begin(frames, roots)

    def _begin(self, frames: list[types.FrameType], roots: Mapping[str, object]) -> None:
        """Capture the whole graph; with too many objects, without the largest containers."""
        for items_max in ITEMS_MAX:
            self._look = self._new_look(items_max)
            graph = self._look.capture(frames, roots, with_loose=True)
            if len(graph.nodes) <= NODES_WANTED:
                break
        size = sum(len(one[1]) for one in graph.nodes if type(one[-1]) is bytes)
        if len(graph.nodes) > NODES_MAX or size > BYTES_MAX:
            held = f"it has {len(graph.nodes):,} objects and {size >> 20} MiB of memory"
            self._end(f"that is too much for each step: {held}")
            return
        self._know_large(graph.objects, ())
        self._alike = _alike(graph)
        self.coverage = Coverage(len(graph.nodes), len(graph.opaque))
        self._note(graph.opaque)
        if data := [one.path for one in graph.opaque if one.type in _DATA]:
            self._say(
                f"`{data[0]}` is taken for data, with more than {items_max:,} objects: what "
                "the script changes in it would not go along with a rank"
            )

    def _new_look(self, items_max: int) -> Look:
        look = Look(
            self._script,
            with_gradients=False,
            trusted_from=TRUSTED_FROM,
            copied_to=COPIED_TO,
            items_max=items_max,
        )
        look.leave_out(self._storages())
        return look

    def _know_large(self, found: Iterable[int], removed: Iterable[int]) -> None:
        """Know the tensors that are too large to go along."""
        for number in removed:
            self._large.pop(number, None)
        for number, tensor in self._look.too_large(found):
            self._large[number] = weakref.ref(tensor), version_of(tensor), self._fetches

    def _see_large(self) -> None:
        """Name a tensor that is too large to go along, and was written to since it is known.

        One of a batch, which a step may write to, is not there for two fetches.
        """
        self._fetches += 1
        for written in self._large_written(lasts=1):
            self._written = f"{written} changes, and is not tracked"

    def _large_written(self, lasts: int = -1) -> Iterator[str]:
        """Name large tensors that were written to since they are known, for more fetches than
        this."""
        for number, (known, version, since) in self._large.items():
            tensor = known()
            is_old = self._fetches - since > lasts
            if is_old and tensor is not None and version_of(tensor) != version:
                yield f"`{self._look.path_of(number)}` of {tensor.nbytes >> 20} MiB"

    def _note(self, opaque: Iterable[Opaque]) -> None:
        """Find code that a text was: no other process can have it."""
        code = next((one.path for one in opaque if one.type == type_name(types.CodeType)), "")
        self._compiled = f"`{code}` was compiled from a text" if code else ""

    def _roots(self, arguments: Arguments) -> dict[str, object]:
        loading = {"loading": _numbered(self._loading())}
        return self._process.settings() | loading | _flat(arguments)

    def _roots_seen(self, arguments: Arguments) -> dict[str, object]:
        """Return the same, only to be read: the dicts of the last look where they are equal."""
        loading = [*self._loading()]
        if not are(loading, [*self._loaders.values()]):
            self._loaders = _numbered(loading)
        return self._process.seen() | {"loading": self._loaders} | _flat(arguments)

    def _changed(self) -> Changed:
        if self.whole is None:
            self._begin_whole()
        assert self.whole is not None
        changes = b"" if self._since is None else of_delta.to_bytes(self._since, self._encoded)
        self._sent += len(changes)
        if self._sent > max(SENT_MIN, WHOLES_SENT * len(self.whole.made)):
            self._begin_whole()
            changes = b""
        return Changed(self.whole.number, changes)

    def _begin_whole(self) -> None:
        number = _first_number() if self.whole is None else self.whole.number + 1
        self.whole = Whole(number, wire.to_bytes(self._look.graph()))
        self._since, self._sent, self._encoded = None, 0, {}

    def _end(self, why: str) -> None:
        self._is_over, self.whole = True, None
        self._look, self._newest = self._new_look(0), None
        self._why_over = f"the script is not looked at: {why}"
        self._say(f"{self._why_over}; no machine can take a rank, nor can a step be made again")

    def _frames(self, frame: types.FrameType) -> list[types.FrameType]:
        return script_frames(frame, vars(sys.modules["__main__"]))

    def restore(
        self, graph: Graph, frame: types.FrameType, *, has_state: bool = True
    ) -> list[str] | None:
        """Have the script hold what another process's held; returns what could not be had. None:
        the script stands at another place, and nothing was changed.

        has_state  tracked state has come before
        """
        return self._restore(graph, frame, (), has_state=has_state)

    def get_ready(self, frame: types.FrameType) -> None:
        """Look at what the script holds, so that `unlike` has only to look at what has changed."""
        if not self._is_begun:
            self._has_looked(self._frames(frame), ())

    def unlike(self, graph: Graph, frame: types.FrameType) -> list[str]:
        """Return where the script does not hold what it was restored to, for people."""
        if not self._has_looked(self._frames(frame), ()):
            return [self._why_over]
        unlike = differences(graph, self._look.graph(), with_opaque=False)
        return [f"`{one.path}` is {one.second}, not {one.first}" for one in unlike]

    def _restore(
        self,
        graph: Graph,
        frame: types.FrameType,
        arguments: Arguments,
        *,
        has_state: bool = True,
    ) -> list[str] | None:
        roots = self._roots(arguments)
        try:
            frames = self._frames(frame)
            notes = restore(
                *(graph, frames, self._script, roots),
                carried={*self._storages()},
                with_opaque=False,
                with_left_out=has_state,
            )
        except StateMismatch:
            return None
        self._process.write(roots)
        return notes


def _first_number() -> int:
    """Return a number that no other run has: records of one are no use with a graph of another."""
    return int.from_bytes(os.urandom(6), "big") + 1


def _numbered(objects: Iterable[object]) -> dict[str, object]:
    return {str(number): one for number, one in enumerate(objects)}


def _flat(arguments: Arguments) -> dict[str, object]:
    """Return a step's arguments as roots: calls copy their containers, so no script sees these."""
    args, kwargs = arguments or ((), {})
    found: dict[str, object] = {f"argument {number}": one for number, one in enumerate(args)}
    return found | {f"argument {name}=": one for name, one in kwargs.items()}


def _alike(graph: Graph) -> str:
    """Return which objects only C refers to, several of a kind: nobody could tell them apart."""
    for (kind, *what), refs in graph.roots.loose.items():
        if len(refs) > 1:
            file, name, line = (*what, 0)[:3] if kind == "function" else (what[0], what[1], 0)
            where = f"{file} line {line}" if line else file
            return f"`{name}` ({where}) is held {len(refs)} times by what is written in C"
    return ""
