# SPDX-License-Identifier: Apache-2.0
"""No rank is held by two: in one epoch all its steps are one process's, on the machine that has the
seat; and its agent knows it as live, under that rank."""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trainmover.ids import Epoch, Rank
from trainmover.simulator.happenings import Stepped, Violation

if TYPE_CHECKING:
    from trainmover.simulator.world import World


class Holders:
    def __init__(self) -> None:
        self.of: dict[tuple[Rank, Epoch], int] = {}

    def heeds(self, world: "World") -> dict[type, Callable[[Any], None]]:
        self.nproc = world.spec.nproc
        return {Stepped: self.stepped}

    def stepped(self, moment: Stepped) -> None:
        worker, rank = moment.worker, moment.rank
        pid = self.of.setdefault((rank, moment.epoch), worker.pid)
        if pid != worker.pid:
            raise Violation(f"rank {rank} has two processes in epoch {moment.epoch}")
        place = worker.box.place
        if not place.live or place.slot != rank // self.nproc:
            raise Violation(f"{worker} trains, and its agent has it for {place}")
