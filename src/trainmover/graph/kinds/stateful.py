# SPDX-License-Identifier: Apache-2.0
"""Objects in C whose state is a plain value that they give and take, such as random generators."""

import array
import io
import random
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import numpy
import torch

from trainmover.graph.kinds.kind import HOLE, Body, Kind
from trainmover.graph.nodes import Path

if TYPE_CHECKING:
    from trainmover.graph.restore import Restore
    from trainmover.graph.walk import Walk


class Stateful(Kind):
    """Instances of one type.

    get   returns the state, a value that `state.encode` has
    set   gives a live instance a state
    make  returns a new instance for a state; None: one cannot be made
    """

    def __init__(
        self,
        name: str,
        type: type,
        get: Callable[[Any], Any],
        set: Callable[[Any, Any], Any],
        make: Callable[[Any], Any] | None,
    ) -> None:
        self.name, self.type = name, type
        self._get, self._set, self._make = get, set, make

    def read(self, obj: Any, walk: "Walk", path: Path) -> Body:
        return type(obj).__name__, self._get(obj)

    def restore(self, ref: int, live: Any, restore: "Restore", body: Body) -> Any:
        kind, state = body
        fits = isinstance(live, self.type) and type(live).__name__ == kind
        if not fits or not restore.is_free(live, ref):
            if self._make is None:
                return HOLE
            live = self._make(state)
        self._set(live, state)
        return restore.take(ref, live)


def _set_torch(generator: torch.Generator, state: tuple[bytes, str]) -> None:
    generator.set_state(torch.frombuffer(bytearray(state[0]), dtype=torch.uint8))


def _set_bytes(held: bytearray, content: bytes) -> None:
    if held != content:
        held[:] = content


def _set_array(held: "array.array[Any]", state: tuple[str, bytes]) -> None:
    if held.tobytes() != state[1]:
        del held[:]
        held.frombytes(state[1])


def _set_stream(stream: Any, state: list[Any]) -> None:
    stream.seek(0)
    stream.truncate()
    stream.write(state[0])
    stream.seek(state[1])


def _set_index(iterator: Any, state: int) -> None:
    iterator.iterindex = state


STATEFUL = (
    Stateful(
        "torch-generator",
        torch.Generator,
        lambda one: (one.get_state().numpy().tobytes(), str(one.device)),
        _set_torch,
        lambda state: torch.Generator(state[1]),
    ),
    Stateful(
        "python-random",
        random.Random,
        random.Random.getstate,
        random.Random.setstate,
        lambda state: random.Random(),
    ),
    Stateful(
        "numpy-random-state",
        numpy.random.RandomState,
        lambda one: one.get_state(legacy=False),
        lambda one, state: one.set_state(state),
        lambda state: numpy.random.RandomState(),
    ),
    Stateful("bytearray", bytearray, bytes, _set_bytes, lambda state: bytearray()),
    Stateful(
        "array-module",
        array.array,
        lambda one: (one.typecode, one.tobytes()),
        _set_array,
        lambda state: array.array(state[0]),
    ),
    *(
        Stateful(
            f"stream-{kind.__name__}",
            kind,
            lambda one: [one.getvalue(), one.tell()],  # No tuple: ("", 0) is a reference.
            _set_stream,
            lambda state, kind=kind: kind(),  # type: ignore[misc]
        )
        for kind in (io.BytesIO, io.StringIO)
    ),
    Stateful("read-stream", io.IOBase, lambda one: one.tell(), lambda one, at: one.seek(at), None),
    Stateful("array-iterator", numpy.nditer, lambda one: one.iterindex, _set_index, None),
)


def is_read_stream(obj: Any) -> bool:
    """Tell whether the position of an open file is all of its state."""
    return (
        isinstance(obj, io.IOBase)
        and not obj.closed
        and obj.readable()
        and obj.seekable()
        and not obj.writable()
    )


class BitGenerator(Kind):
    """A bit generator of numpy, and the seeds that it spawns from."""

    name = "numpy-bit-generator"

    def read(self, obj: Any, walk: "Walk", path: Path) -> Body:
        return type(obj).__name__, obj.state, walk.ref(obj.seed_seq, path, ".seed_seq")

    def restore(self, ref: int, live: Any, restore: "Restore", body: Body) -> Any:
        kind, state, seeds = body
        cls: Any = getattr(numpy.random, kind)
        if type(live) is not cls or not restore.is_free(live, ref):
            live = cls()
        found: Any = restore.get(seeds, live.seed_seq)
        if found is not live.seed_seq:
            live = _with_seeds(live, found)
        live.state = state
        return restore.take(ref, live)


def _with_seeds(live: Any, seeds: Any) -> Any:
    """Return a bit generator with these seeds: the live one, where numpy can give it others."""
    try:
        live.__setstate__((live.state, seeds))
    except (TypeError, ValueError):  # Before numpy 2.0.
        return type(live)(seeds)
    return live


class SeedSequence(Kind):
    """A seed sequence of numpy, which counts the children that it has spawned."""

    name = "numpy-seed-sequence"

    def read(self, obj: Any, walk: "Walk", path: Path) -> Body:
        return (obj.state,)

    def restore(self, ref: int, live: Any, restore: "Restore", body: Body) -> Any:
        (state,) = body
        count = state["n_children_spawned"]
        known = isinstance(live, numpy.random.SeedSequence) and restore.is_free(live, ref)
        mine = live.state if known else {}
        if mine.get("n_children_spawned", count + 1) > count or not _same_seeds(mine, state):
            live = numpy.random.SeedSequence(**state)
        elif mine["n_children_spawned"] < count:
            live.spawn(count - mine["n_children_spawned"])
        return restore.take(ref, live)


def _same_seeds(mine: dict[str, Any], state: dict[str, Any]) -> bool:
    names = ("entropy", "spawn_key", "pool_size")
    return all(str(mine[name]) == str(state[name]) for name in names)
