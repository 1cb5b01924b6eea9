# SPDX-License-Identifier: Apache-2.0
"""What a rank itself takes for its steps: all but its waits for other ranks.

    gate k-1  |  update, fetch, forward, backward ...  |  gate k
              '--- less what the communicator has waited for others ---'

All ranks pass a gate together, so from outside each is as slow as the slowest. Nothing is called
between collectives: the communicator counts its waits where it waits anyway, and clocks are read
twice a step. How long the main thread ran on a processor tells a step that has become longer from
one that was kept from running. For whom it has waited longest goes along: where two wait for each
other, it is the way between them that takes the time.
"""

import time
from collections.abc import Callable, Sequence

from trainmover.comm.choice import Waits
from trainmover.ids import Rank, Step
from trainmover.protocol.messages import Took

WAITS_MOST = 4
WAITS_LEAST_US = 1000
"""What is told of waits: a step of a millisecond is worth no look at its network."""


class OwnTime:
    """Of one rank's main thread. waits: as in `Groups`; peers: by rank, as in `PrivateGroup`."""

    def __init__(self, waits: Waits | None, peers: Callable[[], Sequence[int]]) -> None:
        self._waits = waits
        self._peers = peers
        self._ranks: dict[int, Rank] = {}
        self._since: tuple[int, int] | None = None
        self._took: tuple[int, int] | None = None

    def at_gate(self) -> None:
        """The rank has computed its step."""
        if self._since is not None:
            own_ns, cpu_ns = self._clocks()
            self._took = own_ns - self._since[0], cpu_ns - self._since[1]

    def passed(self) -> None:
        """The next step begins."""
        if self._waits is not None:
            self._since = self._clocks()

    def took(self, step: Step) -> Took | None:
        """For the step that has just passed; None if it is not known."""
        waited = [] if self._waits is None else self._waits.by_peer()
        took, self._took = self._took, None
        if took is None:
            return None
        own_us, cpu_us = took[0] // 1000, took[1] // 1000
        return Took(
            step=step,
            own_us=max(own_us, 0),
            cpu_us=max(cpu_us, 0),
            waits_us=self._longest(waited) if waited else {},
        )

    def _longest(self, waited: Sequence[tuple[int, int]]) -> dict[Rank, int]:
        some = [(ns // 1000, peer) for peer, ns in waited if ns >= 1000 * WAITS_LEAST_US]
        if any(peer not in self._ranks for _, peer in some):
            self._ranks = {peer: Rank(rank) for rank, peer in enumerate(self._peers())}
        known = [(us, self._ranks[peer]) for us, peer in some if peer in self._ranks]
        return {rank: us for us, rank in sorted(known, reverse=True)[:WAITS_MOST]}

    def _clocks(self) -> tuple[int, int]:
        """Own time and that on a processor, both from some moment on."""
        assert self._waits is not None
        return time.monotonic_ns() - self._waits.total_ns(), time.thread_time_ns()
