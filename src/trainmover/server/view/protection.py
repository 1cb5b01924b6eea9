# SPDX-License-Identifier: Apache-2.0
"""What of a job is protected, and what it depends on: said as soon as it is known. Pure."""

from trainmover.controller.state import Job, Machine, MachineState, Phase

UNATTACHED_S = 30.0
"""A script may import and load for so long before it attaches."""
_CAN_JOIN = {state for state in MachineState if state is not MachineState.COLD}


def protected(job: Job) -> str:
    """One line, once the first steps of all ranks are recorded: what outlives a machine.

    Ranks of one script track the same, mostly; where not, all names there are.
    """
    said = [job.recorded[rank] for rank in sorted(job.recorded)]
    tracked = dict.fromkeys(name for fact in said for name in fact.tracked)
    functions = dict.fromkeys(name for fact in said for name in fact.functions)
    loaders = max((fact.loaders for fact in said), default=0)
    parts = [", ".join(tracked) or "nothing is tracked (job.track)"]
    parts += _coverage(
        max((fact.objects for fact in said), default=0),
        max((fact.opaque for fact in said), default=0),
    )
    parts += [f"steps of {', '.join(functions)}"] if functions else []
    batches = f"batches of {loaders} loader{'s' * (loaders != 1)}"
    parts.append(batches if loaders else "no batches (job.batches)")
    parts.append(_standbys(job))
    return f"{'protected' if is_protected(job) else 'recorded'}: {'; '.join(parts)}"


def _coverage(objects: int, opaque: int) -> list[str]:
    """Return what the ranks' graphs have of the script, if they have been told."""
    if not objects:
        return []
    others = f" ({opaque:,} opaque: each process has its own)" if opaque else ""
    return [f"{objects - opaque:,} objects of the script{others}"]


def is_protected(job: Job) -> bool:
    """Whether a standby may take the place of a machine."""
    return bool(_able(job))


class Unattached:
    """A script that runs without protection: said while it runs, not only at its end."""

    def __init__(self) -> None:
        self._since_us: int | None = None
        self._told = False

    def look(self, job: Job, at_us: int) -> str:
        """What is to be told now; "" if nothing. Once only."""
        if self._told or job.attached or job.phase is not Phase.RUNNING:
            return ""
        if self._since_us is None:
            self._since_us = at_us
        self._told = at_us - self._since_us >= UNATTACHED_S * 1e6
        if not self._told:
            return ""
        return (
            f"not protected: in {UNATTACHED_S:.0f} s no training loop was seen, and "
            "trainmover.attach() was not called; until then a lost machine starts it again from "
            "nothing"
        )


def _standbys(job: Job) -> str:
    able = _able(job)
    if able:
        return f"{able} standby{'s' * (able > 1)}"
    return "NOT protected from the loss of a machine: there is no standby (trainmover add)"


def _able(job: Job) -> int:
    return sum(_can_join(one) for one in job.machines.values() if one.id not in job.seats)


def _can_join(machine: Machine) -> bool:
    return machine.state in _CAN_JOIN and not machine.suspect


def depends_on_cuts(job: Job) -> str:
    """The script does between its steps what cannot be done again: what follows from that."""
    there = f"the script {job.between}"
    if not cuts_are_off(job):
        return f"{there}: snapshots are kept, to go back to if a machine is lost there"
    off = f"were given up ({job.no_snapshots})" if job.no_snapshots else "are off (--snapshots)"
    back = "the newest checkpoint" if job.spec.checkpoint else "its beginning, or the job ends"
    return (
        f"{there}, and snapshots {off}: if a machine is lost there, all goes back to {back}; "
        "--snapshots auto keeps what is needed"
    )


def cuts_are_off(job: Job) -> bool:
    """Whether there is no cut, nor will be one."""
    return bool(job.no_snapshots) or job.spec.snapshot_every == 0
