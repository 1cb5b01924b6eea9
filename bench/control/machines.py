# SPDX-License-Identifier: Apache-2.0
"""Machines that obey at once, and the controller that decides, without anything between. One rank
each."""

from collections import deque
from collections.abc import Iterable, Iterator
from itertools import chain

from bench.control.obedient import Obedient
from trainmover.controller import Job, decide
from trainmover.controller.effects import Effect, Send
from trainmover.controller.events import (
    EVENTS,
    AgentSaid,
    Lost,
    MachineJoined,
    MachinesLost,
    WorkerSaid,
)
from trainmover.ids import MachineId, Rank
from trainmover.protocol import messages as m


class Machines:
    """They join, and say what follows; `play` decides about all of it, one event after another."""

    def __init__(self, machines: int, standbys: int) -> None:
        spec = m.JobSpec(run_id="bench", argv=["train.py"], machines=machines, standbys=standbys)
        self.job = Job(spec)
        names = [MachineId(f"m{number + 1}") for number in range(machines + standbys)]
        self.joins = [
            MachineJoined(at_us=0, machine=name, standby=at >= machines, vault=name, host=name)
            for at, name in enumerate(names)
        ]
        self._there = {name: Obedient(name) for name in names}

    def play(self, events: Iterable[EVENTS]) -> Iterator[int]:
        """Decide until nobody has anything to say; after each event how many orders it gave."""
        coming = deque(events)
        while coming:
            self.job, effects = decide(self.job, coming.popleft())
            yield len(effects)
            coming.extend(chain.from_iterable(map(self._answers, effects)))

    def loss(self, names: Iterable[MachineId]) -> MachinesLost:
        """They are gone, all at once."""
        lost = [Lost(machine=name, why="link broke", heard_us=0) for name in names]
        for one in lost:
            self._there.pop(one.machine, None)
        return MachinesLost(at_us=0, lost=lost)

    def _answers(self, effect: Effect) -> list[EVENTS]:
        if not isinstance(effect, Send) or effect.machine not in self._there:
            return []
        name, order = effect.machine, effect.order
        there = self._there[name]
        said: list[EVENTS] = [
            WorkerSaid(at_us=0, machine=name, local_rank=local, fact=fact)
            for local, fact in there.facts(order)
        ]
        if isinstance(order, m.Interrupt):
            held = there.vault(order, self._lost())
            said.append(AgentSaid(at_us=0, machine=name, fact=held))
        return said

    def _lost(self) -> list[Rank]:
        change = self.job.change
        return [] if change is None else [Rank(at) for at in (*change.joiners, *change.missing)]
