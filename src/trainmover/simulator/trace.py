# SPDX-License-Identifier: Apache-2.0
"""A line for each event and effect, in the words of the log."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import msgspec

from trainmover.controller.effects import Send
from trainmover.rank.cuts import VOID, WANTED
from trainmover.server.view.sentences import sentence
from trainmover.simulator.happenings import Decided, Fenced, Placed, Replayed
from trainmover.simulator.ranks.training import Gate

if TYPE_CHECKING:
    from trainmover.simulator.world import World

_QUIET = {"records", "buddies", "sources", "files", "certificate", "paths"}
"""Fields that are long and tell nobody anything."""


class Trace:
    """A checker that finds everything right, and writes it down.

    show  is given every line at once, besides
    """

    def __init__(self, show: Callable[[str], None] | None = None) -> None:
        self._show = show

    def heeds(self, world: "World") -> dict[type, Callable[[Any], None]]:
        self.world = world
        world.show = self._show
        return {
            Decided: self.decided,
            Gate: self.gate,
            Placed: self.placed,
            Fenced: self.fenced,
            Replayed: self.replayed,
        }

    def decided(self, moment: Decided) -> None:
        note = self.world.note
        note(f"  {_event(moment.event)}")
        said = sentence(moment.before, moment.event, moment.after).text
        if said:
            note(f"  = {said}")
        together: dict[str, list[str]] = {}
        for effect in moment.effects:
            if isinstance(effect, Send):
                together.setdefault(_plain(effect.order), []).append(effect.machine)
            else:
                note(f"    -> {effect}")
        for order, machines in together.items():
            note(f"    -> {', '.join(machines)}: {order}")

    def gate(self, gate: Gate) -> None:
        extra = f", pause for epoch {gate.pause}" if gate.pause else ""
        extra += {WANTED: ", snapshots are due", VOID: ", a cut is void"}.get(gate.flag, "")
        self.world.note(f"  gate of step {gate.step} is through, epoch {gate.epoch}{extra}")

    def placed(self, moment: Placed) -> None:
        self.world.note(f"  {moment.worker} has its state")

    def fenced(self, moment: Fenced) -> None:
        self.world.note(f"  {moment.machine} is shut out")

    def replayed(self, moment: Replayed) -> None:
        self.world.note(f"  the journal is replayed: {len(self.world.disk.records)} events")


def _event(event: Any) -> str:
    fact = getattr(event, "fact", None)
    if fact is None:
        return _plain(event)
    return f"{event.machine}{_local(event)}: {_plain(fact)}"


def _local(event: Any) -> str:
    return f"/{event.local_rank}" if hasattr(event, "local_rank") else ""


def _plain(message: Any) -> str:
    """Without fields that are as they are mostly.

    >>> from trainmover.protocol.messages import Go
    >>> _plain(Go(epoch=3))
    'Go(epoch=3)'
    """
    fields = msgspec.structs.asdict(message)
    fields.pop("at_us", None)
    shown = (f"{name}={value}" for name, value in fields.items() if name not in _QUIET and value)
    return f"{type(message).__name__}({', '.join(shown)})"
