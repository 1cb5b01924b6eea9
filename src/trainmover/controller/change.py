"""What moves and recoveries share: joiners are bound, groups switched, an epoch put in force. Pure.

A joiner runs the script as the ranks it is to take and parks. Once every rank stands at the
boundary all exchange the members that change, and say so; then `Go`.
"""

from dataclasses import replace

from trainmover.controller.effects import Effect, Send
from trainmover.controller.incidents import mark
from trainmover.controller.seats import (
    address_of,
    buddies,
    holders,
    record_places,
    seats_after,
    with_machine,
)
from trainmover.controller.start import Decision, start_workers
from trainmover.controller.state import Change, Job, Machine, MachineState, Stage
from trainmover.ids import Rank, Slot, Step
from trainmover.protocol.messages import Bind, Go, Leave, Switch


def bind_ready(job: Job) -> Decision:
    """Bind the joiners whose processes are up; start fresh processes for one that crashed."""
    change = job.change
    assert change is not None
    effects: list[Effect] = []
    for slot, name in sorted(change.joiners.items()):
        machine = job.machines[name]
        if machine.state is MachineState.DOWN:
            job, order = start_workers(job, name)
            effects += order
        elif machine.state in _CAN_BE_BOUND:
            if _needs_fresh_processes(machine, slot):
                job, order = start_workers(job, name)
                effects += order
                continue
            job = with_machine(
                job, name, state=MachineState.BOUND, said=frozenset(), work=None, held=None
            )
            order_ = Bind(epoch=change.epoch, slot=slot, records=record_places(job))
            effects.append(Send(name, order_))
    return job, tuple(effects)


_CAN_BE_BOUND = (MachineState.WARM, MachineState.HOLDING, MachineState.IDLE)


def _needs_fresh_processes(machine: Machine, slot: Slot) -> bool:
    """Whether the only run that its processes are good for was made as another slot."""
    made_as = machine.work if machine.state is MachineState.HOLDING else machine.held
    return bool(machine.once) and machine.state is not MachineState.IDLE and made_as != slot


def survivors(job: Job, change: Change) -> list[Rank]:
    """Ranks that stay through `change`. One that has finished and left has nothing to say."""
    return [
        rank
        for slot in range(len(job.seats))
        if slot not in change.joiners
        and slot not in change.missing
        and job.seats[slot] in job.machines
        for rank in job.spec.ranks(Slot(slot))
        if rank not in job.exited
    ]


def joining(job: Job, change: Change) -> list[Rank]:
    """Ranks that get a new machine."""
    return [rank for slot in sorted(change.joiners) for rank in job.spec.ranks(slot)]


def parked(job: Job, change: Change) -> bool:
    """Whether every joiner's workers have run the script and wait."""
    return all(
        job.machines[name].state is MachineState.BOUND
        and len(job.machines[name].said) == job.spec.nproc
        for name in change.joiners.values()
    )


def send_switch(job: Job, sources: dict[Rank, Rank]) -> Decision:
    """Phase 2: to everybody who is or becomes a member, and to leavers, who give their state."""
    change = job.change
    assert change is not None
    assert change.committed is not None
    after = seats_after(job, change)
    vaults = {machine.id: machine.vault for machine in job.machines.values()}
    resume = Step(change.committed + 1)
    order = Switch(
        epoch=change.epoch,
        committed=change.committed,
        sources={
            rank: (source, address_of(job, job.seats, source)) for rank, source in sources.items()
        },
        records={
            rank: holders(change, rank, resume, vaults)
            for rank, source in sources.items()
            if rank != source
        },
        buddies=buddies(job, after),
        closing=bool(job.finished),
    )
    receivers = sorted({*after, *job.seats} & set(job.machines))
    job = replace(job, change=replace(change, stage=Stage.SWITCH))
    return job, tuple(Send(machine, order) for machine in receivers)


def go_when_switched(job: Job, at_us: int) -> Decision:
    """Every rank has exchanged its member: the new seats are in force, leavers leave."""
    change = job.change
    assert change is not None
    if not {*survivors(job, change), *joining(job, change)} <= change.switched:
        return job, ()
    after = seats_after(job, change)
    go = Go(epoch=change.epoch)
    effects: list[Effect] = [Send(machine, go) for machine in after if machine in job.machines]
    for machine in change.joiners.values():
        job = with_machine(
            job, machine, state=MachineState.ACTIVE, said=frozenset(), crashes=0, attests={}
        )
    for machine in change.leavers.values():
        if (
            machine in job.machines
            and job.machines[machine].state is MachineState.ACTIVE
            and machine not in after
        ):
            effects.append(Send(machine, Leave(epoch=change.epoch)))
            job = with_machine(job, machine, state=MachineState.LEAVING, said=frozenset())
    job = mark(job, change.incident, "switchover", at_us)
    return replace(job, seats=after, epoch=change.epoch, change=None), tuple(effects)
