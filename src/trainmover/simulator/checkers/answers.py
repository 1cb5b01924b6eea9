"""Whoever asks is answered exactly once: never twice, and by when nothing is under way any more.

Where a crash tears the event of the answer off the journal, the next controller gives it again, to
nobody.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trainmover.controller.change.incidents import open_incident
from trainmover.controller.effects import Answer
from trainmover.controller.events import KillRequested, MoveRequested
from trainmover.controller.state import Phase
from trainmover.simulator.happenings import Decided, Replayed, Violation

if TYPE_CHECKING:
    from trainmover.simulator.world import World


class Answers:
    def __init__(self) -> None:
        self.asked: set[str] = set()
        self.given: set[str] = set()

    def heeds(self, world: "World") -> dict[type, Callable[[Any], None]]:
        return {Decided: self.decided, Replayed: self.replayed}

    def decided(self, moment: Decided) -> None:
        if isinstance(moment.event, MoveRequested | KillRequested):
            self.asked.add(moment.event.request)
        for effect in moment.effects:
            if isinstance(effect, Answer):
                if effect.request in self.given:
                    raise Violation(f"request {effect.request} was answered twice")
                self.given.add(effect.request)
        job = moment.after
        if job.phase is Phase.RUNNING and job.change is None and open_incident(job) is None:
            for request in self.asked - self.given:
                raise Violation(f"request {request} was never answered, and nothing is under way")

    def replayed(self, moment: Replayed) -> None:
        if moment.torn:
            self.asked.clear()
            self.given.clear()
