# SPDX-License-Identifier: Apache-2.0
"""Machines without ranks: warm up, park as joiners, unwind as leavers, or turn out unfit. Pure.

Each worker of a machine says for itself how far it is; the machine's state turns with the last.
A fact about other ranks than those it is at is late, and ignored. `warming` says what comes next.
"""

from trainmover.controller.change.incidents import incident
from trainmover.controller.change.interruption import interrupt
from trainmover.controller.change.move import cancel_move
from trainmover.controller.change.seats import before_switch, with_machine
from trainmover.controller.compare.roles import representatives
from trainmover.controller.effects import Decision
from trainmover.controller.keep.cuts import only_in_processes
from trainmover.controller.standby.attest import (
    attest_failure,
    attest_held,
    attest_warm,
    fit_kinds,
    kind_due,
    note_of,
)
from trainmover.controller.standby.warming import rank_is_of
from trainmover.controller.state import Cause, Job, Machine, MachineState, Stage, Trigger
from trainmover.controller.values import replace
from trainmover.ids import MachineId, Rank, Slot
from trainmover.protocol.messages import Held, Parked, SandboxFailed, Warm

_OTHER_TRACE = "as rank {rank} its shadow step made other collectives than the recorded one"


def warmed(job: Job, machine: MachineId, local_rank: int, fact: Warm, at_us: int) -> Decision:
    """A warm-up is through; of use only if its steady step is the job's. With the last kind the
    machine is warm, before it waits for what it is told next."""
    current = job.machines[machine]
    if current.state is not MachineState.WARMING or not rank_is_of(job, fact.rank, current.work):
        return job, ()
    if _differs(job, fact.rank, fact.trace):
        return sandbox_failed(job, machine, _other_trace(fact.rank), at_us)
    assert current.work is not None
    job = attest_warm(job, machine, _first(job, current.work), fact, at_us)
    through = kind_due(job, job.machines[machine]) is None
    then = MachineState.WARM if through else MachineState.IDLE
    job = _said(job, machine, local_rank, MachineState.WARMING, then)
    return with_machine(job, machine, note=note_of(job, job.machines[machine])), ()


def held(job: Job, machine: MachineId, local_rank: int, fact: Held, at_us: int) -> Decision:
    """A run waits at its first step."""
    current = job.machines[machine]
    if current.state is not MachineState.HOLDING or not rank_is_of(job, fact.rank, current.work):
        return job, ()
    if _differs(job, fact.rank, fact.trace):
        return sandbox_failed(job, machine, _other_trace(fact.rank), at_us)
    assert current.work is not None
    job = attest_held(job, machine, _first(job, current.work), fact, at_us)
    job = _said(job, machine, local_rank, MachineState.HOLDING, MachineState.WARM)
    if job.machines[machine].state is MachineState.WARM:
        job = with_machine(job, machine, held=current.work, doubt=None)
        job = with_machine(job, machine, note=note_of(job, job.machines[machine]))
    return job, ()


def joiner_parked(
    job: Job, machine: MachineId, local_rank: int, fact: Parked, at_us: int
) -> Decision:
    """A joiner may go on only if one step of its shadow run has the job's steady trace."""
    current = job.machines[machine]
    if current.state is not MachineState.BOUND:
        return job, ()
    if _differs(job, fact.rank, fact.trace):
        return sandbox_failed(job, machine, _other_trace(fact.rank), at_us)
    return with_machine(job, machine, said=current.said | {local_rank}), ()


def left(job: Job, machine: MachineId, local_rank: int) -> Job:
    """A leaver has unwound its script and may warm up; elsewhere than in its process, if that can
    run the script only once."""
    current = job.machines[machine]
    if current.suspect and _slot_to_take(job, machine) is None:
        job = _said(job, machine, local_rank, MachineState.LEAVING, MachineState.COLD)
        return with_machine(job, machine, note=current.suspect)
    then = MachineState.DOWN if current.once else MachineState.IDLE
    return _said(job, machine, local_rank, MachineState.LEAVING, then)


def sandbox_said_no(job: Job, machine: MachineId, fact: SandboxFailed, at_us: int) -> Decision:
    """A run in the sandbox did not go like the recorded one."""
    current = job.machines[machine]
    if not _is_at(job, current, fact.rank):
        return job, ()
    if fact.again and not current.once:
        return _runs_once(job, machine, fact.reason)
    return sandbox_failed(job, machine, fact.reason, at_us)


def _is_at(job: Job, machine: Machine, rank: Rank) -> bool:
    """Whether a failure as `rank` is about what `machine` does now."""
    match machine.state:
        case MachineState.WARMING | MachineState.HOLDING:
            return rank_is_of(job, rank, machine.work)
        case MachineState.WARM:
            return rank_is_of(job, rank, machine.held)
        case MachineState.BOUND:
            return rank_is_of(job, rank, _slot_to_take(job, machine.id))
        case MachineState.LEAVING:
            return True  # It had failed before it was told to leave: no `Left` follows.
        case _:
            return False


def sandbox_failed(job: Job, machine: MachineId, reason: str, at_us: int) -> Decision:
    """The machine cannot take slots of the kind it was at; what counted on it looks for another.

    Warm-ups of other kinds go on, in fresh processes where the other workers of the machine may
    still be in the middle of the run. After the last kind, or as a joiner, it is no standby.
    """
    current = job.machines[machine]
    slot = _slot_at(job, current)
    if current.doubt is not None and current.doubt == slot:  # So it was not the process.
        job = with_machine(job, machine, once="", doubt=None)
    tried = current.state in (MachineState.WARMING, MachineState.HOLDING, MachineState.WARM)
    if slot is not None and slot in representatives(job):
        job = attest_failure(job, machine, _first(job, slot), reason, at_us)
    if tried and fit_kinds(job, job.machines[machine]):
        note = note_of(job, job.machines[machine])
        alone = job.spec.nproc == 1 and not current.once
        state = MachineState.IDLE if alone else MachineState.DOWN
    else:
        state, note = MachineState.COLD, reason
    job = with_machine(job, machine, state=state, said=frozenset(), held=None, note=note)
    taken = _slot_to_take(job, machine)
    if state is not MachineState.COLD and taken is not None:
        assert slot is not None
        if _first(job, slot) != _first(job, taken):
            return job, ()  # The slot it is to take is of a kind that it can.
    return _look_for_another(job, machine, f"{machine} cannot take the ranks: {reason}")


def _runs_once(job: Job, machine: MachineId, reason: str) -> Decision:
    """The first run in a process went well and the second did not: from now on each gets fresh
    processes. A joiner that still has to run the script does so there."""
    job = with_machine(
        job,
        machine,
        once=reason,
        doubt=_slot_at(job, job.machines[machine]),
        state=MachineState.DOWN,
        workers=job.machines[machine].workers if only_in_processes(job, machine) else {},
        held=None,
        said=frozenset(),
    )
    job = with_machine(job, machine, note=note_of(job, job.machines[machine]))
    if job.change is not None and job.change.stage in (
        Stage.BIND, Stage.DRAIN, Stage.BOUNDARY,
    ):  # fmt: skip
        return job, ()
    return _look_for_another(job, machine, f"{machine} must start again: {reason}")


def _look_for_another(job: Job, machine: MachineId, text: str) -> Decision:
    """A change that counted on `machine` as a joiner cannot go on as it is."""
    change = job.change
    if change is None or _slot_to_take(job, machine) is None:
        return job, ()
    if before_switch(change):
        return cancel_move(job, text)
    if machine in change.hedges.values():
        hedges = {slot: name for slot, name in change.hedges.items() if name != machine}
        return replace(job, change=replace(change, hedges=hedges)), ()
    current = incident(job, change.incident)
    at_us = max(current.marks.values())
    heard_us = current.marks.get("heard", at_us)
    cause = Cause(Trigger.STANDBY, text)
    return interrupt(job, cause, machine=current.machine, at_us=at_us, heard_us=heard_us)


def _slot_to_take(job: Job, machine: MachineId) -> Slot | None:
    """The slot a joiner of the change under way is to take."""
    change = job.change
    bound = (*change.joiners.items(), *change.hedges.items()) if change is not None else ()
    return next((slot for slot, name in bound if name == machine), None)


def _slot_at(job: Job, machine: Machine) -> Slot | None:
    """The slot as which it runs the script, or did last."""
    if machine.state is MachineState.BOUND:
        return _slot_to_take(job, machine.id)
    return machine.work if machine.held is None else machine.held


def _first(job: Job, slot: Slot) -> Slot:
    return representatives(job).get(slot, slot)


def _said(
    job: Job, machine: MachineId, local_rank: int, now: MachineState, then: MachineState
) -> Job:
    """Count a worker's fact; when all have said it, the machine's state turns."""
    current = job.machines[machine]
    if current.state is not now:
        return job
    said = current.said | {local_rank}
    if len(said) < job.spec.nproc:
        return with_machine(job, machine, said=said)
    return with_machine(job, machine, said=frozenset(), state=then)


def _differs(job: Job, rank: Rank, trace: str) -> bool:
    return rank in job.recorded and job.recorded[rank].trace != trace


def _other_trace(rank: Rank) -> str:
    return _OTHER_TRACE.format(rank=rank)
