# SPDX-License-Identifier: Apache-2.0
"""Trunks that there are, machines that are sent to relays, and the tickets they come with. Pure."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from trainmover.controller.state import Job
from trainmover.ids import MachineId
from trainmover.protocol.deadlines import SILENT_S, beats
from trainmover.protocol.messages import BeRelay, FetchBehind, GoBehind
from trainmover.server.machines.relays import Ask, Place, Relays

if TYPE_CHECKING:
    from trainmover.server.machines.lanes import Trunk
    from trainmover.server.surroundings import Link, Surroundings

FRESH_BEATS = 2
"""A trunk over which nothing was heard for longer gets no further lanes."""


class Carrying:
    """Of one controller. members: links to the machines that are here."""

    def __init__(
        self, above: int, members: Mapping[MachineId, "Link"], around: "Surroundings"
    ) -> None:
        self.relays = Relays(above)
        self.trunks: dict[MachineId, Trunk] = {}
        self._members = members
        self._around = around
        self._tickets: dict[MachineId, tuple[MachineId, str]] = {}

    def opened(self, trunk: "Trunk", address: str) -> bool:
        """A machine of the job has dialled as a relay. Whether it was to."""
        if not self.relays.opened(trunk.relay, address):
            return False
        self.trunks[trunk.relay] = trunk
        return True

    def ended(self, trunk: "Trunk") -> None:
        """Its connection is gone."""
        trunk.ended()
        if self.trunks.get(trunk.relay) is trunk:
            del self.trunks[trunk.relay]
            self.relays.ended(trunk.relay)

    def ticket(self, machine: MachineId, relay: MachineId) -> str | None:
        """With which it was sent there; None: it was not, or has come already."""
        sent_to, ticket = self._tickets.get(machine, ("", ""))
        if sent_to != relay or self.relays.behind.get(machine) != relay:
            return None
        del self._tickets[machine]
        return ticket

    def let_in(self, machine: MachineId, link: "Link") -> None:
        """It has a new link."""
        self._tickets.pop(machine, None)
        self.relays.came(machine, link.relay)

    def without_link(self, machine: MachineId) -> None:
        """It has none, and may return."""
        self._tickets.pop(machine, None)
        self.relays.gone(machine)

    def lost(self, machine: MachineId) -> None:
        """It is no machine of the job any more: nor is it a relay."""
        self.without_link(machine)
        self.relays.lost(machine)
        trunk = self.trunks.pop(machine, None)
        if trunk is not None:
            trunk.ended()

    def fetch(self, machine: MachineId, relays: Sequence[MachineId], vault: str) -> None:
        """Have a machine that the controller does not reach come behind one that reaches it.

        relays  machines that do
        vault   address of the machine's
        """
        straight = [r for r in relays if r in self._members and self._members[r].relay is None]
        if not self.relays.above or not straight or machine in self._tickets:
            return
        relay = next((r for r in straight if r in self.trunks), straight[0])
        if self.relays.wants(relay):
            self._members[relay].send(BeRelay())
        address = self.relays.address(relay)
        if relay not in self.trunks or not address:
            return
        ticket = self._around.ticket()
        self._tickets[machine] = relay, ticket
        self.relays.sent(machine, relay)
        order = FetchBehind(machine=machine, vault=vault, address=address, ticket=ticket)
        self._members[relay].send(order)

    def beat(self, job: Job, *, over: bool) -> None:
        """To be called every beat; over: the job is."""
        for trunk in list(self.trunks.values()):
            trunk.beat()
            if trunk.quiet_beats > beats(SILENT_S):
                self.ended(trunk)
        above = self.relays.above
        if over or not above:
            return
        place: dict[MachineId, Place] = {}
        if len(job.machines) > above:
            place = {name: one.place for name, one in job.machines.items() if name in self._members}
        late = self._tickets.keys() - self.relays.behind.keys()
        for name in late:  # It has not come in time.
            del self._tickets[name]
        fresh = {name for name, trunk in self.trunks.items() if trunk.quiet_beats <= FRESH_BEATS}
        for choice in self.relays.look(place, fresh, calm=job.change is None):
            if isinstance(choice, Ask):
                self._members[choice.relay].send(BeRelay())
                continue
            ticket = self._around.ticket()
            self._tickets[choice.machine] = choice.relay, ticket
            order = GoBehind(relay=choice.relay, address=choice.address, ticket=ticket)
            self._members[choice.machine].send(order)
