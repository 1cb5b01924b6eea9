# SPDX-License-Identifier: Apache-2.0
"""The client's side: one set of tensors, from several sources at once."""

import threading
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from torch import Tensor

from trainmover.errors import TrainmoverError
from trainmover.state.transfer.fetching import Fetching, Holds, Into

STREAMS = 1
"""To each source. On loopback more of them were slower (python -m bench.state)."""

Proof = bytes
OnProgress = Callable[[int, int], None]


@dataclass(frozen=True)
class Dropped:
    """A source that was not used to the end, and why."""

    address: str
    error: TrainmoverError


@dataclass(frozen=True)
class FetchReport:
    """What was fetched.

    alike    as all sources that gave something announced it
    bytes    that were fetched
    kept     numbers of tensors that were here already, as their hashes show
    source   whose header it is
    given    address of each source to the bytes that it gave
    dropped  sources that died, lied or hold something else
    proofs   address of each source that has answered to what it tells everybody; see `Offered`
    """

    header: bytes
    alike: str
    tensors: list[Tensor]
    bytes: int
    seconds: float
    source: str
    given: dict[str, int]
    dropped: list[Dropped]
    kept: frozenset[int] = frozenset()
    proofs: dict[str, Proof] = field(default_factory=dict)


def fetch(
    sources: Sequence[str],
    *,
    token: bytes,
    key: str,
    into: Into,
    holds: Holds = lambda tensors: (),
    cancelled: threading.Event,
    timeout_s: float,
    header_from_first: bool = False,
    streams: int = STREAMS,
    ask_all: bool = False,
    on_progress: OnProgress | None = None,
) -> FetchReport:
    """Fetch what the servers at these addresses offer as `key`, waiting for the offer if need be.

    sources            the first is asked first, the others if there is enough to share, or if the
                       first is lost
    into, holds        see `Into`, `Holds`; called in this thread, one after the other
    timeout_s          longest silence of a source, before the offer and after it
    header_from_first  no other source's header will do
    streams            connections to each source, at most
    ask_all            every source is asked, however little there is to share, for its proof
    on_progress        given the bytes that are here and those of the whole, at most four times a
                       second, if it takes longer than a second; called in this thread

    On return the tensors (none if `into` has said None) hold the sources' bytes, each chunk
    checked; after an exception they hold anything. If no source is left, raises what was wrong with
    them: StateMismatch (wrong bytes), ProtocolError (token), UserError (a source says that its
    state cannot be sent), else PeerLost (gone, silent, or `cancelled` set). Also StateMismatch if
    the tensors have other sizes than the source's, and whatever `into` raises.
    """
    fetching = Fetching(
        sources,
        token=token,
        key=key,
        cancelled=cancelled,
        timeout_s=timeout_s,
        header_from_first=header_from_first,
        streams=streams,
        ask_all=ask_all,
        on_progress=on_progress or (lambda here, whole: None),
    )
    try:
        tensors = fetching.run(into, holds)
    finally:
        fetching.end()
    used = fetching.sources
    return FetchReport(
        header=fetching.chosen.opening.header,
        alike=fetching.chosen.opening.alike,
        tensors=tensors,
        bytes=fetching.total,
        seconds=fetching.seconds,
        source=fetching.chosen.address,
        given={source.address: source.given for source in used if source.given},
        dropped=[Dropped(source.address, source.error) for source in used if source.error],
        kept=fetching.kept,
        proofs={source.address: source.opening.proof for source in used if source.opening},
    )
