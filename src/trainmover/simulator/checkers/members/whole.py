# SPDX-License-Identifier: Apache-2.0
"""What the controller knows hangs together, after every event: seats, machines, the change, a cut.

And each of its orders goes to those whom it is for: to all of them, at once, and to nobody else.
"""

from collections import Counter, defaultdict
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trainmover.controller.effects import Send
from trainmover.controller.events import MachineJoined
from trainmover.controller.state import Change, Job, Kind, Machine, MachineState, Phase, Stage
from trainmover.ids import MachineId, Slot
from trainmover.protocol import messages as m
from trainmover.simulator.happenings import Decided, Violation

if TYPE_CHECKING:
    from trainmover.simulator.world import World

WORKS = (MachineState.WARMING, MachineState.HOLDING)
READY = (MachineState.WARM, MachineState.HOLDING)
BEGUN = (Phase.RUNNING, Phase.ENDING)
ALL_SEATED = (m.PauseAt, m.KeepSnapshots, m.Discard, m.Go, m.Exit)
WRITE = (MachineState.ACTIVE, MachineState.LEAVING, MachineState.BOUND)
"""Not who has come back anew under the name of one that had ranks."""

OF_A_RUN = m.WarmUp | m.Hold
OF_A_CHANGE = m.Interrupt | m.Verdict | m.Switch | m.Prepare | m.PauseAt | m.Bind


class Whole:
    def heeds(self, world: "World") -> dict[type, Callable[[Any], None]]:
        self.nproc = world.spec.nproc
        self.count = world.spec.machines
        self.knobs = world.knobs
        return {Decided: self.decided}

    def decided(self, moment: Decided) -> None:
        before, after = moment.before, moment.after
        if after.phase is Phase.ENDED:
            return
        self._seats(after)
        if after.machines is not before.machines:
            for machine in after.machines.values():
                if before.machines.get(machine.id) is not machine:
                    self._machine(after, machine)
        if after.change is not None and after.change is not before.change:
            self._change(after, after.change)
            known = before.change is not None and before.change.epoch == after.change.epoch
            if not known and after.change.epoch != after.epoch_last:
                raise Violation(
                    f"a change to {after.change.epoch} begins, after {after.epoch_last}"
                )
        if after.snapped and len({one.step for one in after.snapped.values()}) > 1:
            raise Violation(f"a cut is made of several steps: {after.snapped}")
        if after.machines is not before.machines or after.health is not before.health:
            self._counted(after)
        self._grow(before, after)
        self._orders(moment)

    @staticmethod
    def _counted(job: Job) -> None:
        """Numbers that are kept are those of what there is."""
        states = Counter(one.state for one in job.machines.values())
        kept = {state: job.machines.count(state) for state in MachineState}
        if any(states[state] != number for state, number in kept.items()):
            raise Violation(f"machines are {states}, and counted as {kept}")
        untold = sum(not one.told for one in job.health.of.values())
        if job.health.untold != untold:
            raise Violation(f"{untold} examinations are under way, counted {job.health.untold}")
        extra = job.health.of.keys() - job.machines.keys()
        if extra and job.phase in BEGUN:
            raise Violation(f"the health of {sorted(extra)} is known, which are gone")

    def _grow(self, before: Job, after: Job) -> None:
        for name in ("runs", "restarts", "takeovers", "lost_early"):
            if getattr(after, name) < getattr(before, name):
                raise Violation(f"{name} was {getattr(before, name)}, and is less")
        stays = after.change is before.change and before.cut is not None
        if stays and after.cut is not None and after.cut.step < before.cut.step:  # type: ignore[union-attr]
            raise Violation(f"a cut of step {after.cut.step} comes after another: {before.cut}")
        for rank in before.recorded.keys() - after.recorded.keys():
            if after.restarts == before.restarts:
                raise Violation(f"the first steps of rank {rank} were recorded, and are not")

    # --- what it knows --------------------------------------------------------------------------

    def _seats(self, job: Job) -> None:
        if job.phase in BEGUN and len(set(job.seats)) != self.count:
            raise Violation(f"{self.count} slots have {job.seats}")
        if job.phase is not Phase.RUNNING or job.change is not None:
            return
        for name in job.seats:
            machine = job.machines.get(name)
            if machine is not None and machine.state is not MachineState.ACTIVE:
                slot = Slot(job.seats.index(name))
                if not all(rank in job.finished for rank in job.spec.ranks(slot)):
                    raise Violation(f"{name} has ranks, and is {machine.state}: nothing is done")

    def _machine(self, job: Job, one: Machine) -> None:
        state, change = one.state, job.change
        joins = change is not None and one.id in {*change.joiners.values(), *change.hedges.values()}
        what = f"{one.id}, {state},"
        if state is MachineState.ACTIVE and one.id not in job.seats:
            raise Violation(f"{what} has no ranks")
        if state is MachineState.BOUND and not joins and change is not None:
            raise Violation(f"{what} is to take no ranks")
        if state in WORKS and one.work is None:
            raise Violation(f"{what} works at nothing")
        if one.held is not None and state not in (
            MachineState.WARM, MachineState.WARMING, MachineState.HOLDING, MachineState.IDLE,
        ):  # fmt: skip
            raise Violation(f"{what} holds a run of slot {one.held}")
        if not one.said <= set(range(self.nproc)) or not set(one.workers) <= set(one.pids):
            raise Violation(
                f"{what} has {one.workers}, {one.pids}, of which {one.said} have spoken"
            )
        if len(one.said) == self.nproc and state in WORKS:
            raise Violation(f"{what} has nothing more to say, and is waited for")
        if state in (MachineState.ACTIVE, MachineState.WARM) and len(one.workers) < self.nproc:
            raise Violation(f"{what} has processes {one.workers} only")
        if one.gone & set(one.pids.values()) and state is not MachineState.DOWN and one.workers:
            raise Violation(f"{what} counts on processes that are replaced: {one.pids}")

    def _change(self, job: Job, change: Change) -> None:
        if not job.epoch < change.epoch <= job.epoch_last:
            raise Violation(f"{change.kind} from {job.epoch} to {change.epoch}: {job.epoch_last}")
        for name in change.joiners.values():
            if name not in job.machines:
                raise Violation(f"{name} is to join, and is gone")
        if change.missing & change.joiners.keys():
            raise Violation(f"slots {sorted(change.missing)} wait for a machine: {change.joiners}")
        if change.kind is Kind.MOVE and (change.missing or change.back or change.positions):
            raise Violation(f"a move is a recovery: {change}")
        if change.stage is Stage.SWITCH and (change.committed is None or change.missing):
            raise Violation(f"all switch, and it is not known where or who: {change}")
        if change.switched and change.stage is not Stage.SWITCH:
            raise Violation(f"ranks {list(change.switched)} have switched in {change.stage}")

    # --- whom it tells --------------------------------------------------------------------------

    def _orders(self, moment: Decided) -> None:
        to: dict[type[m.Order], list[MachineId]] = defaultdict(list)
        renewed = {
            effect.machine
            for effect in moment.effects
            if isinstance(effect, Send) and isinstance(effect.order, m.StartWorkers)
        }  # Of whom a run in the sandbox is of no more interest.
        for effect in moment.effects:
            if isinstance(effect, Send):
                to[type(effect.order)].append(effect.machine)
                if effect.machine not in moment.after.machines:
                    self._was_there(moment.before, effect.machine, effect.order)
                elif effect.machine not in renewed or not isinstance(effect.order, OF_A_RUN):
                    self._is_of_now(moment.after, effect.machine, effect.order)
                    if isinstance(effect.order, m.Hold):
                        self._is_held_nowhere_else(moment, effect.machine, effect.order.slot)
        for kind, names in to.items():
            self._to_all(moment, kind, names)

    @staticmethod
    def _was_there(job: Job, machine: MachineId, order: m.Order) -> None:
        """It may be given up by the decision that orders something before."""
        if machine not in job.machines:
            raise Violation(f"{machine} is no machine of the job: {order}")

    def _is_of_now(self, job: Job, machine: MachineId, order: m.Order) -> None:
        """It carries the epoch of the change under way, or of the one that is over with it; another
        may have overtaken that at once, or a start of all from nothing."""
        change, here = job.change, job.machines[machine]
        newest = change.epoch if change is not None else job.epoch_last
        if isinstance(order, OF_A_CHANGE) and not job.epoch < order.epoch <= newest:
            raise Violation(f"{machine} is told {order}, and the change is {change}")
        match order:
            case m.Go() | m.RunRank() if order.epoch != job.epoch:
                raise Violation(f"{machine} is told {order} in epoch {job.epoch}")
            case m.Switch(snapshot_every=every) if every != job.snapshot_every:
                raise Violation(f"cuts come every {job.snapshot_every} steps: {order}")
            case m.KeepSnapshots(every=every) if every != job.snapshot_every:
                raise Violation(f"a cut is to come every {job.snapshot_every} steps, not {every}")
            case m.WarmUp(slot=slot) | m.Hold(slot=slot):
                if here.state not in WORKS or here.work != slot or order.run != here.run:
                    raise Violation(f"{machine} is told {order}, and is {here}")
        if isinstance(order, m.Verdict | m.Switch) and change is not None:
            of_now = order.epoch == change.epoch
            if of_now and order.committed != change.committed:
                raise Violation(f"{machine} is told {order}, and committed is {change.committed}")

    def _is_held_nowhere_else(self, moment: Decided, machine: MachineId, slot: Slot) -> None:
        """As long as there are slots that nobody holds, or has held until then, and any machine
        could hold each."""
        job = moment.after
        now, before = (_held_by_others(one, machine) for one in (job, moment.before))
        proofs = (proof for one in job.machines.values() for proof in one.attests.values())
        every_one = not (self.knobs.once or any(proof.failed for proof in proofs))
        if every_one and slot in now and len({*now, *before}) < len(job.seats):
            raise Violation(f"{machine} is to hold slot {slot} too: {now}")

    def _to_all(self, moment: Decided, kind: type[m.Order], names: list[MachineId]) -> None:
        job = moment.after
        there = [name for name in job.seats if name in job.machines]
        wanted: set[MachineId] = set()
        if kind in (m.Interrupt, m.CutComplete) and not isinstance(moment.event, MachineJoined):
            wanted = set(job.machines)
        elif kind in ALL_SEATED:
            wanted = set(there)
        elif kind is m.WriteCheckpoint:
            wanted = {name for name in there if job.machines[name].state in WRITE}
        elif kind is m.Switch and job.change is not None:
            taking = job.change.joiners
            wanted = {*there, *taking.values()}
        if lacks := wanted - set(names):
            raise Violation(f"{kind.__name__} is not told {sorted(lacks)}, but {sorted(names)}")
        twice = len(names) - len(set(names))
        if twice and kind not in (m.Leave, m.KeepSnapshots, m.Interrupt, m.Bind, m.StartWorkers):
            raise Violation(f"{kind.__name__} is told twice: {names}")


def _held_by_others(job: Job, machine: MachineId) -> list[Slot | None]:
    return [
        one.work if one.state is MachineState.HOLDING else one.held
        for name, one in job.machines.items()
        if name not in {*job.seats, machine, *job.cordoned} and one.state in READY
    ]
