# SPDX-License-Identifier: Apache-2.0
"""A fetch under way.

The first source's header says where to receive. Then others are asked as well, if there is enough
to share, and used if they announce the same. Each connection has a thread, which asks for the next
chunks as those before arrive. A source that dies, falls silent or sends wrong bytes is dropped, and
others are asked for what it was asked for. The calling thread watches; it alone looks at the clock.
"""

import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from trainmover.errors import PeerLost, StateMismatch, TrainmoverError
from trainmover.state import chunks
from trainmover.state.transfer import wire
from trainmover.state.transfer.dealing import Dealing, ahead
from trainmover.state.transfer.stream import Stream

SOURCES_MAX = 8
STRIPE_BYTES_MIN = 8 * 1024 * 1024
"""For less than that another connection is not worth while."""
PATIENCE_S = 2.0
"""With a source that has not answered, before another one is asked as well."""
STALL_S = 1.0
"""For which a source may send nothing while others have nothing left to do."""
PROGRESS_S = 0.25
PROGRESS_AFTER_S = 1.0
ANSWER_S = 10.0
"""For which sources that have not answered are waited for when all is here, if all are asked."""
_POLL_S = 0.05

Into = Callable[[bytes], Sequence[Tensor] | None]
"""Given the header, says where to receive each tensor; on the meta device: nowhere. None: there is
no place for any of them."""
Holds = Callable[[Sequence[Tensor]], Sequence[bytes]]
"""Given these, says the hash of each one's bytes as they are; b"": it is to be fetched."""


@dataclass(eq=False)
class Source:
    """opening: what it announced. error: why it is not used any more. begun: connections made."""

    address: str
    opening: wire.Opening | None = None
    error: TrainmoverError | None = None
    begun: int = 0
    streams: set[Stream] = field(default_factory=set)
    given: int = 0


@dataclass(frozen=True)
class Chosen:
    """Whose header counts."""

    address: str
    opening: wire.Opening


class Fetching:
    """What changes is guarded by `_changed`.

    sources  that were asked; the others are held in reserve
    total    bytes to be fetched
    kept     tensors that are here already, by number
    seconds  it took, once it is done
    """

    def __init__(
        self,
        addresses: Sequence[str],
        *,
        token: bytes,
        key: str,
        cancelled: threading.Event,
        timeout_s: float,
        header_from_first: bool,
        streams: int,
        ask_all: bool,
        on_progress: Callable[[int, int], None],
    ) -> None:
        self.sources: list[Source] = []
        self.total = 0
        self.kept: frozenset[int] = frozenset()
        self.seconds = 0.0
        self._reserve = [Source(address) for address in addresses]
        self._token = token
        self._key = key
        self._cancelled = cancelled
        self._timeout_s = timeout_s
        self._header_from_first = header_from_first
        self._streams_max = streams
        self._ask_all = ask_all
        self._on_progress = on_progress
        self._changed = threading.Condition()
        self._sources_wanted = self._streams_wanted = 1
        self._chosen: Chosen | None = None
        self._dealing = Dealing.of([])
        self._destination = chunks.Destination([])
        self._not_wanted: list[int] = []
        self._receiving: dict[Stream, threading.Thread] = {}
        self._failure: Exception | None = None
        self._over = False
        self._begun_s = self._asked_s = self._told_s = time.monotonic()

    @property
    def chosen(self) -> Chosen:
        """Once `run` has returned."""
        assert self._chosen is not None
        return self._chosen

    # --- the calling thread -----------------------------------------------------------------------

    def run(self, into: Into, holds: Holds) -> list[Tensor]:
        """From the first connection to the last chunk. The tensors, filled."""
        self._wait_for(lambda: any(source.opening for source in self.sources))
        source = next(source for source in self.sources if source.opening)
        assert source.opening is not None
        tensors = into(source.opening.header)
        chosen = Chosen(source.address, source.opening)
        if tensors is None:
            self._deal_out(chosen, [], set(), set(range(len(chosen.opening.sizes))))
        else:
            self._deal_out(chosen, tensors, *self._here(chosen, tensors, holds))
        self._wait_for(lambda: self._dealing.left == 0)
        if self._ask_all:
            until_s = time.monotonic() + ANSWER_S
            self._wait_for(lambda: self._all_have_answered() or time.monotonic() > until_s)
        self.seconds = time.monotonic() - self._begun_s
        return [] if tensors is None else list(tensors)

    def _all_have_answered(self) -> bool:
        """Or are gone. Called under the lock."""
        return not self._reserve and all(one.opening or one.error for one in self.sources)

    def end(self) -> None:
        """On return nobody writes to the tensors any more."""
        with self._changed:
            self._over = True
            for source in self.sources:
                for stream in source.streams:
                    stream.hang_up("the fetch is over")
            receiving = list(self._receiving.values())
            self._changed.notify_all()
        for thread in receiving:
            thread.join()

    def _here(
        self, chosen: Chosen, tensors: Sequence[Tensor], holds: Holds
    ) -> tuple[set[int], set[int]]:
        """Numbers of those that are here already, and of those that have no place. Raises
        StateMismatch."""
        sizes = [tensor.nbytes for tensor in tensors]
        if sizes != chosen.opening.sizes:
            raise _other_sizes(chosen.opening.sizes, sizes)
        held = enumerate(holds(tensors))
        kept = {n for n, its in held if its and its == chosen.opening.hash_of(n)}
        return kept, {n for n, tensor in enumerate(tensors) if tensor.is_meta}

    def _deal_out(
        self, chosen: Chosen, tensors: Sequence[Tensor], kept: set[int], nowhere: set[int]
    ) -> None:
        """From here on the chunks can be asked for."""
        destination = chunks.Destination(tensors, kept | nowhere)
        with self._changed:
            self._chosen, self._destination = chosen, destination
            self.kept, self._not_wanted = frozenset(kept), sorted(kept | nowhere)
            self.total = sum(map(chunks.length, destination.chunks))
            self._dealing = Dealing.of(range(len(destination.chunks)))
            if not chosen.opening.alike:
                self._reserve = []
            stripes = max(1, self.total // STRIPE_BYTES_MIN)
            known = len(self.sources) + len(self._reserve)
            self._sources_wanted = known if self._ask_all else min(stripes, SOURCES_MAX, known)
            streams = min(self._streams_max, stripes // self._sources_wanted)
            self._streams_wanted = max(1, streams)
            self._changed.notify_all()

    def _wait_for(self, fact: Callable[[], bool]) -> None:
        while True:
            with self._changed:
                self._look(time.monotonic())
                self._ask_more()
                if self._changed.wait_for(fact, _POLL_S):
                    return
            self._tell(time.monotonic())

    def _look(self, now_s: float) -> None:
        """For what ends the fetch, and for sources that keep it waiting. Raises."""
        if self._failure is not None:
            raise self._failure
        if self._cancelled.is_set():
            raise _cancelled(self._key)
        for source in self._in_use():
            answers = source.opening is not None or not self._ask_all
            stalls = answers and self._others_are_idle(source)
            limit_s = min(STALL_S, self._timeout_s) if stalls else self._timeout_s
            for stream in source.streams:
                if stream.waits and now_s - stream.heard_s > limit_s:
                    stream.hang_up(f"nothing came for {limit_s:g} s")
        patient = self._chosen is not None or self._header_from_first
        if not patient and now_s - self._asked_s > PATIENCE_S:
            self._sources_wanted += 1
            self._asked_s = now_s
        first_only = self._chosen is None and self._header_from_first
        if self.sources and not self._in_use() and (first_only or not self._reserve):
            raise self._worst()

    def _in_use(self) -> list[Source]:
        return [source for source in self.sources if source.error is None]

    def _others_are_idle(self, source: Source) -> bool:
        """Whether another source could take over what this one does not send."""
        if self._dealing.open:
            return False
        idle = (stream for stream in self._receiving if not stream.waits)
        return any(stream not in source.streams for stream in idle)

    def _worst(self) -> TrainmoverError:
        """Of what was wrong with the sources: that one is gone says least."""
        errors = [source.error for source in self.sources if source.error is not None]
        return next((error for error in errors if not isinstance(error, PeerLost)), errors[0])

    def _ask_more(self) -> None:
        """Begin with sources, and with connections to those in use, as far as they are wanted."""
        while len(self._in_use()) < self._sources_wanted and self._reserve:
            source = self._reserve.pop(0)
            self.sources.append(source)
            self._begin(source)
        for source in self._in_use():
            while source.opening is not None and source.begun < self._streams_wanted:
                self._begin(source)

    def _begin(self, source: Source) -> None:
        """Another connection to a source."""
        stream = Stream(source.address, timeout_s=self._timeout_s)
        source.streams.add(stream)
        source.begun += 1
        threading.Thread(
            target=self._pull,
            args=(source, stream, source.begun == 1),
            name="tm-fetch",
            daemon=True,  # Whoever still dials when the fetch is over is not waited for.
        ).start()

    def _tell(self, now_s: float) -> None:
        if self._chosen is None:
            return
        if now_s - self._begun_s > PROGRESS_AFTER_S and now_s - self._told_s > PROGRESS_S:
            self._told_s = now_s
            self._on_progress(sum(source.given for source in self.sources), self.total)

    # --- a thread for each connection -------------------------------------------------------------

    def _pull(self, source: Source, stream: Stream, first: bool) -> None:
        try:
            opening = stream.open(wire.Wanted(self._key, header=first), self._token)
            if self._admits(source, stream, opening):
                self._receive(source, stream)
        except TrainmoverError as error:
            self._drop(source, stream, error, first=first)
        except Exception as error:  # noqa: BLE001 outermost of this thread
            with self._changed:
                self._failure = error  # The calling thread raises it.
        finally:
            stream.close()
            with self._changed:
                self._dealing.drop(stream)
                source.streams.discard(stream)
                self._receiving.pop(stream, None)
                self._changed.notify_all()

    def _admits(self, source: Source, stream: Stream, opening: wire.Opening) -> bool:
        """Whether the fetch goes on once it is known whose header counts. Raises StateMismatch if
        this source announces something else."""
        with self._changed:
            if source.opening is None:
                source.opening = opening
                self._changed.notify_all()
            self._changed.wait_for(lambda: self._over or self._chosen is not None)
            if self._over:
                return False
            chosen = self.chosen
            if (opening.sizes, opening.alike) != (chosen.opening.sizes, chosen.opening.alike):
                raise _differs(source.address, chosen.address)
            self._receiving[stream] = threading.current_thread()
            return True

    def _receive(self, source: Source, stream: Stream) -> None:
        staging = bytearray(chunks.CHUNK_BYTES)
        stream.begin([len(self._not_wanted), *self._not_wanted])
        while (number := self._next(stream)) is not None:
            buffer = self._destination.buffer(number, staging)
            stream.read_chunk(number, buffer)
            self._destination.accept(number, buffer, staging)
            with self._changed:
                self._dealing.arrived(stream)
                source.given += len(buffer)
                if self._dealing.left == 0:
                    self._changed.notify_all()

    def _next(self, stream: Stream) -> int | None:
        """Ask for as much as is right; the chunk that comes next. None: there is nothing more."""
        with self._changed:
            while True:
                if self._over or self._dealing.left == 0:
                    return None
                count = ahead(stream.bytes_s, chunks.CHUNK_BYTES)
                more = self._dealing.ask(stream, count)
                number = self._dealing.next(stream)
                if number is not None:
                    break
                stream.waits = False
                self._changed.wait()
        if more:
            stream.ask(more)
        return number

    def _drop(self, source: Source, stream: Stream, error: TrainmoverError, *, first: bool) -> None:
        """Use this source no more. That it refused a further connection means nothing."""
        with self._changed:
            if self._over or not (first or stream in self._receiving):
                return
            if source.error is None:
                source.error = error
            for other in source.streams:
                other.hang_up("another connection to it has failed")


def _cancelled(key: str) -> PeerLost:
    return PeerLost(
        f"The fetch of state ({key}) was cancelled.",
        means="The tensors received so far are of no use.",
        do="Nothing by hand: something newer has begun.",
    )


def _differs(address: str, other: str) -> StateMismatch:
    return StateMismatch(
        f"The state source at {address} holds something else than the one at {other}.",
        means="It is no replica: nothing was taken from it.",
        do="If they should be equal, check the memory of both machines.",
    )


def _other_sizes(there: list[int], here: list[int]) -> StateMismatch:
    first = next(
        (n for n, (a, b) in enumerate(zip(there, here, strict=False)) if a != b),
        min(len(there), len(here)),
    )
    return StateMismatch(
        f"The source has {len(there)} tensors, here are {len(here)}; they differ from "
        f"number {first} on.",
        means="This process cannot take the rank: it built something else than the source did.",
        do="A script must build the same objects for a rank wherever it runs.",
    )
