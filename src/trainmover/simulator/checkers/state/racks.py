# SPDX-License-Identifier: Apache-2.0
"""What is kept for a rank outlives the loss of any one rack, if there is a second one.

That is so by choice (buddies are told machines elsewhere) and in truth (once a cut is complete its
snapshots are found in two racks). A second copy is on a third machine, and in a third rack if there
is one.
"""

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any

from trainmover.controller.effects import Send
from trainmover.controller.events import WorkerSaid
from trainmover.controller.state import Cut, Job
from trainmover.ids import MachineId, Rank, Step
from trainmover.protocol.messages import RunRank, Snapped, Switch
from trainmover.simulator.happenings import Decided, Violation

if TYPE_CHECKING:
    from trainmover.simulator.places.machines import Box
    from trainmover.simulator.world import World


class Racks:
    def heeds(self, world: "World") -> dict[type, Callable[[Any], None]]:
        self.world = world
        return {Decided: self.decided}

    def decided(self, moment: Decided) -> None:
        job, before = moment.after, moment.before.cut
        if job.cut is not None and job.cut is not before and job.change is None:
            if before is None or before.step != job.cut.step:
                self._outlives_a_rack(job, job.cut)
            self._is_there_twice(job.cut, moment.event)
        for effect in moment.effects:
            if not isinstance(effect, Send) or effect.machine not in job.machines:
                continue
            if isinstance(effect.order, RunRank | Switch):
                self._is_elsewhere(moment, effect.order)

    # --- by choice ------------------------------------------------------------------------------

    def _is_elsewhere(self, moment: Decided, order: RunRank | Switch) -> None:
        seats = _seats_after(moment)
        alive = [name for name in seats if name in moment.after.machines]
        domains = {_domain(moment.after, name) for name in alive}
        for rank, vault in order.buddies.items():
            owner, keeper = seats[rank // moment.after.spec.nproc], _machine_of(moment.after, vault)
            if owner not in moment.after.machines:
                continue
            its = {_domain(moment.after, owner), _domain(moment.after, keeper)}
            if len(alive) > 1 and (keeper == owner or (len(domains) > 1 and len(its) == 1)):
                raise Violation(f"{keeper} is to keep for rank {rank} on {owner}, beside it")
            self._is_further(moment.after, order, rank, {owner, keeper}, alive)

    def _is_further(
        self,
        job: Job,
        order: RunRank | Switch,
        rank: Rank,
        two: set[MachineId],
        alive: list[MachineId],
    ) -> None:
        others = set(alive) - two
        if job.spec.snapshot_copies < 2 or not others or len(alive) < 2:
            return
        if rank not in order.further:
            raise Violation(f"nobody keeps a second copy for rank {rank}")
        third = _machine_of(job, order.further[rank])
        near = {_domain(job, name) for name in two}
        apart = any(_domain(job, name) not in near for name in others)
        if third in two or (apart and _domain(job, third) in near):
            raise Violation(f"{third} is to keep a second copy for rank {rank}, beside the first")

    # --- in truth -------------------------------------------------------------------------------

    def _outlives_a_rack(self, job: Job, cut: Cut) -> None:
        """Unless something was lost that the controller has not heard of."""
        boxes = [self.world.boxes[name] for name in job.seats if name in job.machines]
        if len(boxes) < len(job.seats):
            return
        racks = {_domain(job, box.name) for box in boxes}
        if len(racks) < 2 or not all(_is_whole(box, job) for box in boxes):
            return
        for rank in map(Rank, range(job.spec.world_size)):
            places = self._places(rank, cut.step)
            found = {_domain(job, name) for name in places if name in job.machines}
            if len(found) < 2 and cut.vaults[rank]:  # For a checkpoint alone no vault has it.
                raise Violation(
                    f"the snapshot of rank {rank} after step {cut.step} is in {found} only"
                )

    def _is_there_twice(self, cut: Cut, event: object) -> None:
        """A copy more was counted, and it is one."""
        fact = event.fact if isinstance(event, WorkerSaid) else None
        if not isinstance(fact, Snapped) or not cut.further.get(fact.rank):
            return
        vaults = {cut.vaults[fact.rank], cut.further[fact.rank]}
        if len(vaults) < 2:
            raise Violation(f"two copies of rank {fact.rank}'s snapshot are said to be in {vaults}")
        for box in map(self.world.vault_at, vaults):
            there = box is None or cut.step in box.snapshots.get(fact.rank, {})
            if box is not None and box.alive and not there:
                raise Violation(f"{box.name} is said to have a snapshot of rank {fact.rank}")

    def _places(self, rank: Rank, step: Step) -> Iterator[MachineId]:
        for worker in self.world.workers():
            if worker.snapshots.of(rank, step) is not None:
                yield worker.box.name
        for box in self.world.boxes.values():
            if step in box.snapshots.get(rank, {}):
                yield box.name


def _is_whole(box: "Box", job: Job) -> bool:
    """Whether it is as the controller knows it."""
    known = set(job.machines[box.name].pids.values())
    same = box.alive and box.address == job.machines[box.name].vault
    return same and known == {worker.pid for worker in box.workers}


def _domain(job: Job, name: MachineId) -> str:
    machine = job.machines[name]
    return machine.rack or machine.host


def _machine_of(job: Job, vault: str) -> MachineId:
    return next(name for name, machine in job.machines.items() if machine.vault == vault)


def _seats_after(moment: Decided) -> list[MachineId]:
    """Slot -> machine, once the change under way is through, or as it is."""
    change = moment.after.change
    joiners = change.joiners if change is not None else {}
    return [joiners.get(slot, name) for slot, name in enumerate(moment.after.seats)]  # type: ignore[call-overload]
