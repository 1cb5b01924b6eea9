# SPDX-License-Identifier: Apache-2.0
"""What could be done about a loss, and what each would cost, from what this job has measured. Pure.

Stored with the incident as it opens, so that whoever asks later why the job did what it did finds
what was known then. Whether a machine that nobody reaches is given up is decided by its price
(`price`). What is done about a loss follows from one order, which is that of the costs wherever
they differ by much: stay and take a warm standby; else the machine itself with fresh processes;
else wait, or write the newest snapshot and stop; and go back only where nobody holds what was lost.
"""

import statistics
from collections.abc import Callable, Collection, Mapping, Sequence

from trainmover.controller.change.incidents import lately
from trainmover.controller.compare.roles import representatives
from trainmover.controller.events import Lost
from trainmover.controller.keep.cuts import cut_at_hand
from trainmover.controller.listed import some_of
from trainmover.controller.state import Incident, Job, Kind, Option, Outcome
from trainmover.ids import MachineId, Slot

RETRY, STANDBY = "run the step again", "replace the machine"
RETURN = "wait for it to return"
PROCESS, WAIT = "replace the process", "wait for a machine"
BACK, STOP = "go back to a snapshot", "write a checkpoint and stop"
AGAIN, LEAVE = "start again", "leave it as it is"
NAMED_MAX = 5


def options(
    job: Job,
    joiners: Mapping[Slot, MachineId],
    missing: Collection[Slot],
    *,
    lost: Sequence[Lost] = (),
    at_us: int = 0,
) -> tuple[Option, ...]:
    """Return the ways to go on as a recovery begins.

    joiners  which machine takes which slot; missing: slots that none can take
    lost     machines that are given up as a whole, at `at_us`
    """
    if not joiners and not missing:
        return (
            Option(RETRY, measured(job, lambda one: one.rung == 1 and one.joiner is None), ""),
            _back(job),
        )
    slots = [*joiners, *missing]
    return (
        Option(RETRY, None, "ranks are gone"),
        *([_return(lost, at_us)] if lost else []),
        _standby(job, joiners, slots),
        _process(job, slots),
        _wait(job, missing),
        _back(job),
        _stop(job),
    )


def of_slow(job: Job, *, more_ms: float, steps: int, pause_ms: float) -> tuple[Option, ...]:
    """Return the costs of the move that has just begun, away from a slow machine: what it costs
    decides there.

    more_ms   each of `steps` takes longer
    """
    joiner = str(job.incidents[-1].joiner)
    stays = f"{steps} steps, each {more_ms:.1f} ms longer"
    return Option(LEAVE, more_ms * steps, stays), Option(STANDBY, pause_ms, joiner)


def way_of(incident: Incident) -> str:
    """Return which option it was in the end; "" of what nobody has weighed."""
    if incident.kind is not Kind.RECOVERY:
        return STANDBY if incident.options else ""
    if incident.rung > 1:
        return BACK if incident.rung == 2 else AGAIN
    if incident.joiner is None:
        return WAIT if incident.ranks else RETRY
    return PROCESS if incident.joiner == incident.machine else STANDBY


def _return(lost: Sequence[Lost], at_us: int) -> Option:
    """Expect an outage to last as long again as it has lasted."""
    if any(one.ended for one in lost):
        return Option(RETURN, None, "its processes have ended")
    silent_ms = (at_us - min(one.heard_us for one in lost)) / 1000
    return Option(RETURN, silent_ms, f"nobody has reached it for {silent_ms / 1000:.1f} s")


def _standby(job: Job, joiners: Mapping[Slot, MachineId], slots: list[Slot]) -> Option:
    others = {slot: name for slot, name in joiners.items() if name != job.seats[slot]}
    if not others:
        return Option(STANDBY, None, "no standby can take the ranks")
    runs = [_run_ms(job, slot, name) for slot, name in others.items()]
    switch = measured(job, by_standby)
    if switch is None:
        switch = measured(job, lambda one: one.kind is Kind.MOVE)
    short = len(slots) - len(others)
    named = some_of([*others.values()], NAMED_MAX)
    why = f"{short} of {len(slots)} machines find none" if short else named
    return Option(STANDBY, _sum(max(runs, key=lambda ms: ms or 0.0), switch), why)


def _run_ms(job: Job, slot: Slot, name: MachineId) -> float | None:
    """Return what a machine must run before it can take the slot: nothing, if it holds that run."""
    machine = job.machines[name]
    if machine.held == slot:
        return 0.0
    attest = machine.attests.get(representatives(job).get(slot, slot))
    return None if attest is None else float(attest.run_ms or attest.warm_ms) or None


def _process(job: Job, slots: list[Slot]) -> Option:
    there = [slot for slot in slots if job.seats[slot] in job.machines]
    if len(there) < len(slots):
        gone = [job.seats[slot] for slot in slots if slot not in there]
        verb = "is" if len(gone) == 1 else "are"
        return Option(PROCESS, None, f"{some_of(gone, NAMED_MAX)} {verb} gone")
    known = [one.warm_ms for m in job.machines.values() for one in m.attests.values()]
    fresh = float(statistics.median(known)) if any(known) else None
    return Option(PROCESS, fresh, "a run of the script in fresh processes comes first")


def _wait(job: Job, missing: Collection[Slot]) -> Option:
    if not job.spec.wait_s:
        return Option(WAIT, None, "it was not allowed (--wait-for-machine)")
    why = f"at most {job.spec.wait_s} s" + ("" if missing else "; nobody need be waited for")
    return Option(WAIT, 1000.0 * job.spec.wait_s, why)


def _back(job: Job) -> Option:
    cut = cut_at_hand(job)
    if cut is None:
        return Option(BACK, None, "there is none at hand")
    steps = max(job.snapshot_every, 1)
    known = [one.step_ms for one in lately(job) if one.step_ms is not None]
    why = f"of step {cut.step}; up to {steps} step{'s' * (steps > 1)} would be made again"
    return Option(BACK, steps * known[-1] if known else None, why)


def _stop(job: Job) -> Option:
    if job.spec.no_standby != "checkpoint":
        return Option(STOP, None, "it was not asked for (--no-standby checkpoint)")
    cut = cut_at_hand(job)
    if cut is None:
        return Option(STOP, None, "there is no snapshot of all ranks to write")
    again = _sum(job.start_ms, _back(job).ms)
    return Option(STOP, again, f"of step {cut.step}, if the job is started again at once")


def by_standby(incident: Incident) -> bool:
    """Return whether another machine took over the ranks, and nobody went back."""
    return incident.rung == 1 and incident.joiner not in (None, incident.machine)


def measured(job: Job, is_one: Callable[[Incident], bool]) -> float | None:
    """Return the median downtime of this job's incidents of that kind; None: there was none yet."""
    known = [
        one.downtime_ms
        for one in lately(job)
        if one.outcome is Outcome.DONE and one.downtime_ms is not None and is_one(one)
    ]
    return statistics.median(known) if known else None


def _sum(*parts: float | None) -> float | None:
    known = [part for part in parts if part is not None]
    return sum(known) if len(known) == len(parts) else None
