# SPDX-License-Identifier: Apache-2.0
"""What carries the bytes of one group, and how it is exchanged while the job runs.

A group keeps its seats for the life of the job: seat = rank in the group, never renumbered. Who
sits there changes from epoch to epoch. A *communicator* lives as long as its group; what it is
within one epoch is a *session*, and a session never outlives its epoch. Work that was started on
a session therefore can not leak into the next epoch.

    prepare(view)      phase 1, training goes on: meet the other seats of the coming epoch
    switchover(epoch)  phase 2, training is paused: the prepared session becomes the current one;
                       no seat of the old epoch, also none that leaves, is inside a call any more
    discard(epoch)     the epoch will not come: forget what was prepared for it

`gloo` builds the whole group anew for each epoch. A communicator that keeps most of its links
between epochs does the same three things with a smaller `prepare`.
"""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Protocol

from trainmover.torch_internals.distributed.c10d import Store


@dataclass(frozen=True)
class View:
    """One group in one epoch, seen from one seat.

    group   its name in every epoch
    store   shared by all seats of the epoch; the session keeps its keys under `epoch/at`
    fenced  refuse a seat that was already taken there: a prefix serves once
    at      where it meets in this epoch; "": under its name
    """

    epoch: int
    group: str
    store: Store
    seat: int
    size: int
    timeout: timedelta
    fenced: bool = True
    at: str = ""


@dataclass(frozen=True)
class LinkStats:
    """What the last switchover of one communicator did. Links count from this seat.

    leaked  threads that were left waiting for a peer that never came, since the beginning
    """

    opened: int = 0
    kept: int = 0
    closed: int = 0
    prepare_ns: int = 0
    switchover_ns: int = 0
    leaked: int = 0


class Session(Protocol):
    """A communicator within one epoch."""

    epoch: int
    immediate: bool
    """True when `issue` returns only finished work, so nobody ever has to wait."""
    prompt: bool
    """True when handles end with the session by themselves: it is a `PromptSession`."""

    def issue(self, op: str, args: Sequence[Any], kwargs: Mapping[str, Any]) -> Any:
        """Start the `dist.ProcessGroup` method of that name; the result is its Work, or None."""

    def sliced(self, op: str, work: Any) -> bool:
        """True when `work.wait(short timeout)` may fail and be called again without harm.

        Such work also has `get_future`. Other work needs a thread that waits for it.
        """

    def abort(self, why: str) -> None:
        """Wake what waits for peers, whatever state the peers are in. Never blocks; idempotent."""

    def backend(self, device: Any) -> Any:
        """The c10d backend inside, or None."""

    def set_timeout(self, timeout: timedelta) -> None:
        """For calls from now on."""

    def sequence_number(self) -> int:
        """Collectives so far, as c10d counts them."""


class PromptSession(Session, Protocol):
    """A session whose calls, when it is aborted, end within milliseconds whatever peers do."""

    direct: Mapping[str, Callable[..., Any]]
    """For every operation what `issue` does, by the shortest way; no profiler, no tap."""

    unfinished: bool
    """Whether a call with a future has begun and not ended, in any group of the process."""

    cut: bool
    """Whether the session was aborted before all had come through that was begun in it, and whose
    handles do not tell it: nobody may ever wait for them on the host."""

    def start(self, request: Any, told: Callable[[], None] | None) -> Any:
        """As `issue`; `told` is called once the outputs are final, before anybody is released."""

    def largest(self, numbers: Sequence[int]) -> list[int]:
        """Of each number of 64 bits the largest that any seat gives; by the shortest way."""

    def peers(self) -> list[int]:
        """By seat the number of the process that sits there, as `Waits.by_peer` has it."""

    def translate(self, error: Exception) -> Exception:
        """What a call has raised, in the words and types that scripts know."""

    def attach(self, absorb: Callable[[BaseException], bool], gave_up: Callable[[], None]) -> None:
        """Whom handles ask whether the caller must not see an error, and tell that he goes on
        without a result; see `Owner`."""


class Communicator(Protocol):
    """Carries one group from epoch to epoch."""

    @property
    def session(self) -> Session | None:
        """The current epoch's; None before the first switchover and after `close`."""

    def prepare(self, view: View) -> None:
        """Meet the other seats of `view`. Blocks until all came, so call it in the background.

        Idempotent for one epoch; the current session keeps working. Raises Drained once the epoch
        is discarded, PeerLost when a seat does not come within the view's timeout.
        """

    def switchover(self, epoch: int) -> None:
        """Make the session prepared for `epoch` the current one; the old one is destroyed later."""

    def discard(self, epoch: int) -> None:
        """Forget what is or is being prepared for `epoch`. Never blocks."""

    def abort(self, why: str) -> None:
        """Abort the current session."""

    def close(self) -> None:
        """Abort and destroy everything, in the background. Never blocks."""

    def stats(self) -> LinkStats:
        """Counts of the last switchover."""
