"""Verdicts agree: one for each epoch, and none that undoes what a member has committed."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trainmover.controller.effects import Send
from trainmover.ids import Epoch, Step
from trainmover.protocol.messages import Switch, Verdict
from trainmover.simulator.happenings import Decided, Violation

if TYPE_CHECKING:
    from trainmover.simulator.world import World


class Verdicts:
    def __init__(self) -> None:
        self.given: dict[Epoch, Step] = {}

    def heeds(self, world: "World") -> dict[type, Callable[[Any], None]]:
        self.world = world
        return {Decided: self.decided}

    def decided(self, moment: Decided) -> None:
        for effect in moment.effects:
            if isinstance(effect, Send) and isinstance(effect.order, Verdict | Switch):
                self._is_one(effect.order.epoch, effect.order.committed)
                if isinstance(effect.order, Switch) and not effect.order.back:
                    self._undoes_nothing(moment, effect.order)

    def _is_one(self, epoch: Epoch, committed: Step) -> None:
        before = self.given.setdefault(epoch, committed)
        if before != committed:
            raise Violation(
                f"for epoch {epoch} steps up to {before} are committed, and then up to {committed}"
            )

    def _undoes_nothing(self, moment: Decided, order: Switch) -> None:
        for worker in self.world.workers():
            stays = worker.live and worker.rank not in order.sources
            if stays and worker.box.name in moment.after.seats and worker.step > order.committed:
                raise Violation(f"{worker} has committed more than {order.committed} says")
