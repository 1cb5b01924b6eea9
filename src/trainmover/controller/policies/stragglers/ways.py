# SPDX-License-Identifier: Apache-2.0
"""The ways between machines: where two wait for each other, longer than they did. Pure.

Who is late is waited for, and waits for nobody. Two that wait for each other in the same step were
both there: it is the network between them that takes the time. (So the smaller of both waits
counts. A third one waits for whichever of them is late, and nobody waits for it.) Some pairs do
that anyway, as neighbours in a pipeline, so each is compared with what it was. What was slow from
the first step on is not found here: machines can be measured before they take ranks (`health`).
"""

import statistics
from collections import Counter, deque
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from itertools import islice

from trainmover.controller.policies.stragglers.excess import LASTS_US, is_slow, slow_for
from trainmover.ids import MachineId, Rank, Step
from trainmover.protocol.messages import Took

HISTORY = 256
BASE = 64
"""Steps of a way before it is compared with what it was; a quarter of them are the newest."""
PENDING_MAX = 4096
OVER = 10
AGAIN, AGAIN_MAX = 50, 1600
"""As in `pace`."""

Pair = tuple[MachineId, MachineId]


@dataclass(frozen=True)
class SlowWay:
    """machine: the end that has most of such ways, else the first; peer: the other one.

    steps     so many of the last ones show it
    own_us    a step, with what these two wait for each other; usual_us: with what they did before
    """

    machine: MachineId
    peer: MachineId
    steps: int
    own_us: float
    usual_us: float


class _Way:
    """mutual: of each step, microseconds; flags: which were slow. told: as in `pace`."""

    def __init__(self, steps: int) -> None:
        self.mutual: deque[float] = deque([0.0] * min(steps, HISTORY), maxlen=HISTORY)
        self.flags: deque[bool] = deque([False] * min(steps, HISTORY), maxlen=HISTORY)
        self.base: float | None = None
        self.told: int | None = None
        self.again = AGAIN
        self._until_base = 0

    def add(self, mutual: float, usual: float) -> None:
        if len(self.mutual) >= BASE and self._until_base <= 0:
            self.base = statistics.median(islice(self.mutual, len(self.mutual) - BASE // 4))
            self._until_base = BASE // 4
        self._until_base -= 1
        self.mutual.append(mutual)
        base = self.base
        self.flags.append(base is not None and is_slow(usual + mutual, usual + base))

    def last(self, count: int) -> float:
        return statistics.median(islice(reversed(self.mutual), count))

    @property
    def is_over(self) -> bool:
        return 2 * sum(islice(reversed(self.flags), OVER)) <= OVER

    def let_go(self) -> None:
        """What was told of it is over, and no reason to tell of it again."""
        self.told, self.again = None, AGAIN
        self.flags = deque([False] * len(self.flags), maxlen=HISTORY)

    @property
    def is_idle(self) -> bool:
        return not any(self.mutual)


class Pending:
    """Steps that not all have told."""

    def __init__(self) -> None:
        self._told: dict[Step, dict[Rank, Took]] = {}

    def add(self, rank: Rank, took: Took, count: int) -> dict[Rank, Took] | None:
        """One rank's step; those of all `count`, if all have told it now."""
        told = self._told.setdefault(took.step, {})
        told[rank] = took
        if len(told) == count:
            return self._told.pop(took.step)
        while len(self._told) > PENDING_MAX:
            del self._told[next(iter(self._told))]
        return None

    def clear(self) -> None:
        """Members are others now."""
        self._told.clear()


class Ways:
    """Between machines that have ranks, in one epoch after the other."""

    def __init__(self) -> None:
        self._ways: dict[Pair, _Way] = {}
        self._pending = Pending()
        self._steps = 0
        self._usual: deque[float] = deque(maxlen=HISTORY)

    def follow(self, seated: Iterable[MachineId]) -> None:
        """Members are others now: a way to a machine that comes is a new one."""
        here = set(seated)
        self._pending.clear()
        self._ways = {pair: way for pair, way in self._ways.items() if here.issuperset(pair)}

    def add(self, rank: Rank, took: Took, machine_of: Mapping[Rank, MachineId]) -> bool:
        """One rank's step; whether all have told it now. machine_of: of all ranks."""
        told = self._pending.add(rank, took, len(machine_of))
        if told is None:
            return False
        usual = statistics.median(one.own_us for one in told.values())
        mutual = _mutual(told, machine_of)
        for pair in mutual.keys() - self._ways.keys():
            self._ways[pair] = _Way(self._steps)
        for pair, way in list(self._ways.items()):
            way.add(mutual.get(pair, 0.0), usual)
            if way.is_idle:
                del self._ways[pair]
        self._steps += 1
        self._usual.append(usual)
        return True

    def slow(self, step: Step, is_late: Callable[[MachineId, int], bool]) -> SlowWay | None:
        """One that was not known to be slow, or is to be told again. is_late: whether a machine was
        slow itself in so many of the last steps; then nothing is said of its ways."""
        for way in self._ways.values():
            if way.told is not None and way.is_over:
                way.let_go()
        slow_of_all = sum(sum(way.flags) for way in self._ways.values())
        seen = sum(len(way.flags) for way in self._ways.values())
        found: dict[Pair, int] = {}
        for pair, way in self._ways.items():
            if way.flags[-1]:
                least = LASTS_US // max(int(self._usual[-1]), 1)
                flags = [*reversed(way.flags)]
                steps = OVER if way.told is not None else slow_for(flags, slow_of_all, seen, least)
                if steps and not any(is_late(end, steps) for end in pair):
                    found[pair] = steps
        return self._worst(found, step)

    def _worst(self, found: Mapping[Pair, int], step: Step) -> SlowWay | None:
        fresh = [pair for pair in found if self._is_due(pair, step)]
        if not fresh:
            return None
        ends = Counter(end for pair in found for end in pair)
        pair = max(fresh, key=lambda one: self._ways[one].last(found[one]))
        for one in found:  # All that were found by now are told with it.
            way = self._ways[one]
            way.told = step + way.again
            way.again = min(2 * way.again, AGAIN_MAX)
        machine, peer = sorted(pair, key=lambda end: (-ends[end], pair.index(end)))
        way, steps = self._ways[pair], found[pair]
        usual = statistics.median(islice(reversed(self._usual), steps))
        assert way.base is not None, "a step is slow only beside one"
        return SlowWay(machine, peer, steps, usual + way.last(steps), usual + way.base)

    def _is_due(self, pair: Pair, step: Step) -> bool:
        told = self._ways[pair].told
        return told is None or step >= told

    def of(self, machine: MachineId, steps: int) -> tuple[float, float]:
        """A step with the longest way of that machine, and with what is usual, microseconds."""
        usual = statistics.median(islice(reversed(self._usual), steps))
        own = max((w.last(steps) for pair, w in self._ways.items() if machine in pair), default=0.0)
        return usual + own, usual


def _mutual(told: Mapping[Rank, Took], machine_of: Mapping[Rank, MachineId]) -> dict[Pair, float]:
    """Of each pair of machines the shorter of both waits; of its ranks those that wait longest."""
    waits: dict[Pair, int] = {}
    for rank, took in told.items():
        for other, us in took.waits_us.items():
            if other in machine_of:
                at = machine_of[rank], machine_of[other]
                waits[at] = max(waits.get(at, 0), us)
    return {
        (one, other): float(min(us, waits[other, one]))
        for (one, other), us in waits.items()
        if one < other and (other, one) in waits
    }
