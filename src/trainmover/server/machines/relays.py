# SPDX-License-Identifier: Apache-2.0
"""Which machines carry to the controller what others say. Pure.

    on a link of its own, steady -> asked to relay -> its trunk is there: others are sent behind it
                                 -> sent behind one -> there
    not there in time, or back on a link of its own: left alone for a while, each time for longer

Nothing of it is the job's: a relay only carries, and whoever is behind one can do without at any
moment. So it is no event, and a successor begins anew. All is counted in looks, which are beats.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

from trainmover.ids import MachineId
from trainmover.protocol.deadlines import beats

GROUP = 96
"""Machines behind a relay, at most."""
STEADY_S = 2.0
"""On a link of its own for so long, before a machine relays or goes behind a relay."""
ANSWER_S = 5.0
"""Within which what was asked for comes about."""
TWICE_MOST = 7
"""So often the time for which a machine is left alone grows to twice as long: to ten minutes."""
AT_ONCE = 16
"""Machines that are sent behind a relay in one look."""


Place = tuple[str, int, str]
"""By which machines are sorted: m2 before m10."""


@dataclass(frozen=True)
class Ask:
    """Have a machine relay."""

    relay: MachineId


@dataclass(frozen=True)
class SendBehind:
    """Have a machine go behind a relay that listens at `address`."""

    machine: MachineId
    relay: MachineId
    address: str


@dataclass
class _Relay:
    """until: by then its trunk has to be there; address: where it listens, "": there is none."""

    until: int
    address: str = ""
    members: set[MachineId] = field(default_factory=set)


@dataclass
class _Alone:
    """A machine on a link of its own. until: for which it stays so; failed: so often before."""

    until: int
    failed: int = 0


class Relays:
    """above: there are relays where there are more machines; 0: never. behind: machine -> relay."""

    def __init__(self, above: int) -> None:
        self.above = above
        self.group = min(GROUP, max(2, above // 2))
        self.behind: dict[MachineId, MachineId] = {}
        self._relays: dict[MachineId, _Relay] = {}
        self._alone: dict[MachineId, _Alone] = {}
        self._failed: dict[MachineId, int] = {}
        self._fell: set[MachineId] = set()  # Were behind a relay, and have no link now.
        self._sent: dict[MachineId, int] = {}  # Until when it has to be there.
        self._looks = 0

    # --- what is seen ---------------------------------------------------------------------------

    def came(self, machine: MachineId, relay: MachineId | None) -> None:
        """It was let in over a new link; relay: who carries it, None: nobody does."""
        fell_back = self._leaves(machine) or machine in self._fell
        self._fell.discard(machine)
        self._sent.pop(machine, None)
        if relay in self._relays:
            self._alone.pop(machine, None)
            self.behind[machine] = relay
            self._relays[relay].members.add(machine)
        elif fell_back or machine not in self._alone:
            self._leave_alone(machine, failed=fell_back)

    def gone(self, machine: MachineId) -> None:
        """It has no link, and may return."""
        if self._leaves(machine):
            self._fell.add(machine)
        self._alone.pop(machine, None)
        self._sent.pop(machine, None)

    def lost(self, machine: MachineId) -> None:
        """It is no machine of the job any more."""
        self.gone(machine)
        self._failed.pop(machine, None)
        self._fell.discard(machine)
        self._relays.pop(machine, None)

    def opened(self, relay: MachineId, address: str) -> bool:
        """Its trunk is there. Whether it was asked for."""
        one = self._relays.get(relay)
        if one is None or one.address or relay not in self._alone:
            return False
        one.address = address
        return True

    def ended(self, relay: MachineId) -> None:
        """Its trunk has ended: so have all lanes in it."""
        if self._relays.pop(relay, None) is not None and relay in self._alone:
            self._leave_alone(relay, failed=True)

    def _leaves(self, machine: MachineId) -> bool:
        """Whether it was behind a relay."""
        relay = self.behind.pop(machine, None)
        if relay in self._relays:
            self._relays[relay].members.discard(machine)
        return relay is not None

    def _leave_alone(self, machine: MachineId, *, failed: bool) -> None:
        if failed:
            self._failed[machine] = self._failed.get(machine, 0) + 1
        times = 2 ** min(self._failed.get(machine, 0), TWICE_MOST)
        self._alone[machine] = _Alone(self._looks + beats(STEADY_S) * times)

    # --- machines that the controller does not reach --------------------------------------------

    def wants(self, relay: MachineId) -> bool:
        """Have a machine relay, however few there are. Whether it is to be asked now."""
        if relay in self._relays or relay not in self._alone:
            return False
        self._relays[relay] = _Relay(self._looks + beats(ANSWER_S))
        return True

    def address(self, relay: MachineId) -> str:
        """Return where a relay listens; "" if it does not."""
        one = self._relays.get(relay)
        return "" if one is None else one.address

    def sent(self, machine: MachineId, relay: MachineId) -> None:
        """A machine without a link is sent behind that relay."""
        self._relays[relay].members.add(machine)
        self._sent[machine] = self._looks + beats(ANSWER_S)
        self.behind[machine] = relay

    # --- what follows ---------------------------------------------------------------------------

    def look(
        self, place: Mapping[MachineId, Place], fresh: Collection[MachineId], *, calm: bool
    ) -> list[Ask | SendBehind]:
        """A beat. place: machines of the job that are here, by which they are sorted; fresh: relays
        that were just heard; calm: no change is under way."""
        self._looks += 1
        self._give_up_late()
        if not self.above or len(place) <= self.above or not calm:
            return []
        steady = sorted(
            (name for name, one in self._alone.items() if self._is_steady(name, one, place)),
            key=lambda name: (place[name], name),
        )
        asked = self._asked(len(place), steady)
        free = [name for name in steady if name not in self._relays]
        return [*asked, *self._sent_behind(free, fresh)]

    def _is_steady(self, name: MachineId, one: _Alone, place: Mapping[MachineId, Place]) -> bool:
        return name in place and name not in self._sent and one.until <= self._looks

    def _asked(self, there_are: int, steady: list[MachineId]) -> list[Ask]:
        """One at a time, each as far from the next as its group is large."""
        wanted = -(-there_are // (self.group + 1))
        missing = wanted - len(self._relays)
        free = [name for name in steady if name not in self._relays]
        chosen = free[:: self.group + 1][: max(missing, 0)]
        for name in chosen:
            self._relays[name] = _Relay(self._looks + beats(ANSWER_S))
        return [Ask(name) for name in chosen]

    def _sent_behind(self, free: list[MachineId], fresh: Collection[MachineId]) -> list[SendBehind]:
        sent = []
        for name in free[:AT_ONCE]:
            relay = self._emptiest(fresh)
            if relay is None:
                break
            one = self._relays[relay]
            one.members.add(name)
            self._sent[name] = self._looks + beats(ANSWER_S)
            self.behind[name] = relay
            sent.append(SendBehind(name, relay, one.address))
        return sent

    def _emptiest(self, fresh: Collection[MachineId]) -> MachineId | None:
        open_ = {
            name: one
            for name, one in self._relays.items()
            if one.address and name in fresh and len(one.members) < self.group
        }
        return min(open_, key=lambda name: len(open_[name].members), default=None)

    def _give_up_late(self) -> None:
        for name in [name for name, until in self._sent.items() if until <= self._looks]:
            del self._sent[name]
            if self._leaves(name):
                self._leave_alone(name, failed=True)
        late = [
            name
            for name, one in self._relays.items()
            if not one.address and one.until <= self._looks
        ]
        for name in late:
            self.ended(name)
