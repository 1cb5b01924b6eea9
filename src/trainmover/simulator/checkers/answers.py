"""Whoever asks is answered once."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trainmover.controller.effects import Answer
from trainmover.simulator.happenings import Decided, Violation

if TYPE_CHECKING:
    from trainmover.simulator.world import World


class Answers:
    def __init__(self) -> None:
        self.given: set[str] = set()

    def heeds(self, world: "World") -> dict[type, Callable[[Any], None]]:
        return {Decided: self.decided}

    def decided(self, moment: Decided) -> None:
        for effect in moment.effects:
            if isinstance(effect, Answer):
                if effect.request in self.given:
                    raise Violation(f"request {effect.request} was answered twice")
                self.given.add(effect.request)
