# SPDX-License-Identifier: Apache-2.0
"""The key-value store where groups meet was lost, and there is another, empty one. Pure.

What is in a store serves for meeting and for nothing else, and every epoch and every run in a
sandbox has a place of its own there. So training goes on; but who has not met all others by now
never will in the old store, and they must begin anew in the new one, under a number that is new.
"""

from trainmover.controller.change.incidents import in_new_epoch, incident
from trainmover.controller.change.interruption import interrupt
from trainmover.controller.change.seats import seats_after, with_machine
from trainmover.controller.effects import Decision, Send
from trainmover.controller.events import StoreMoved
from trainmover.controller.facts import Ranks
from trainmover.controller.state import Cause, Job, Machine, MachineState, Stage, Trigger
from trainmover.controller.values import replace
from trainmover.ids import Epoch
from trainmover.protocol.messages import Prepare, StoreAt

_CAUSE = Cause(Trigger.STORE, "the key-value store was lost while groups met in it")


def store_moved(job: Job, event: StoreMoved) -> Decision:
    """Everybody is told, before they are told to meet again."""
    if event.address == (job.store or job.spec.store):
        return job, ()
    job = _runs_begin_again(replace(job, store=event.address))
    orders = tuple(Send(name, StoreAt(address=event.address)) for name in sorted(job.machines))
    if job.change is None:
        return job, orders
    match job.change.stage:
        case Stage.SWITCH:
            at_us = event.at_us
            machine = incident(job, job.change.incident).machine
            job, more = interrupt(job, _CAUSE, machine=machine, at_us=at_us, heard_us=at_us)
        case Stage.PREPARE:
            job, more = _prepare_again(job)
        case _:
            more = ()
    return job, orders + more


def _runs_begin_again(job: Job) -> Job:
    """Workers of one machine meet in the store as they run the script in the sandbox side by side.
    Who may be about to gets fresh processes, and makes the run from its beginning; so does one that
    was told to leave such a run, for it is still in it."""
    for machine in job.machines.values() if job.spec.nproc > 1 else ():
        binds = machine.state is MachineState.BOUND and len(machine.said) < job.spec.nproc
        runs = machine.state in (MachineState.WARMING, MachineState.HOLDING)
        if binds or runs or _leaves_a_run(job, machine):
            job = with_machine(
                job,
                machine.id,
                state=MachineState.DOWN,
                workers={},
                said=frozenset(),
                held=None,
            )
    return job


def _leaves_a_run(job: Job, machine: Machine) -> bool:
    """Whether it leaves, and its processes may never have trained: those that have keep what others
    may need, and have met long ago."""
    if machine.state is not MachineState.LEAVING or job.slot_of(machine.id) is not None:
        return False
    kept = set() if job.cut is None else {*job.cut.workers.values()}
    return kept.isdisjoint(machine.workers.values())


def _prepare_again(job: Job) -> Decision:
    """Phase 1 of a move, once more: the job has not noticed either of them."""
    change = job.change
    assert change is not None
    epoch = Epoch(job.epoch_last + 1)
    job = in_new_epoch(job, change.incident, epoch)
    job = replace(job, epoch_last=epoch)
    job = replace(job, change=replace(change, epoch=epoch, prepared=Ranks()))
    order = Prepare(epoch=epoch)
    return job, tuple(Send(machine, order) for machine in seats_after(job, change))
