"""Whoever asks is answered once; where a crash tears the answer's event off the journal, the next
controller gives it again, to nobody."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trainmover.controller.effects import Answer
from trainmover.simulator.happenings import Decided, Replayed, Violation

if TYPE_CHECKING:
    from trainmover.simulator.world import World


class Answers:
    def __init__(self) -> None:
        self.given: set[str] = set()

    def heeds(self, world: "World") -> dict[type, Callable[[Any], None]]:
        return {Decided: self.decided, Replayed: self.replayed}

    def decided(self, moment: Decided) -> None:
        for effect in moment.effects:
            if isinstance(effect, Answer):
                if effect.request in self.given:
                    raise Violation(f"request {effect.request} was answered twice")
                self.given.add(effect.request)

    def replayed(self, moment: Replayed) -> None:
        if moment.torn:
            self.given.clear()
