# SPDX-License-Identifier: Apache-2.0
"""An incident says from its first moment what has happened: to whom, when, and what can be done.

lost, machine   those that are lost; or whose process has ended, or should have by now; nobody, if
                a link broke
heard, detect   the last sign of life of any of them, and the moment of the decision
ranks, joiner   of all slots that change hands, and who takes the first of them
options         each way once, with a cost only where it was open
overtaken       a move that could still be cancelled was, all else has failed
"""

import statistics
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trainmover.controller.change.incidents import lately
from trainmover.controller.change.options import BACK, PROCESS, RETRY, RETURN, STANDBY, STOP, WAIT
from trainmover.controller.events import AgentSaid, MachinesLost, WorkerSaid
from trainmover.controller.keep.cuts import cut_at_hand
from trainmover.controller.standstill.hanging import END_US
from trainmover.controller.standstill.stuck import Condemned
from trainmover.controller.state import Incident, Job, Kind, Outcome
from trainmover.protocol.messages import Interrupted, WorkerExited
from trainmover.simulator.happenings import Decided, Violation

if TYPE_CHECKING:
    from trainmover.simulator.world import World

ALL_WAYS = [RETRY, RETURN, STANDBY, PROCESS, WAIT, BACK, STOP]
AFTER_ANOTHER = (" cannot take the ranks: ", " must start again: ")
"""A joiner fails, and the loss is still the one that was found before."""


def _condemned(job: Job, one: Incident) -> Condemned | None:
    """The process that was to end, if that is what has happened."""
    known = None if one.machine is None else job.hanging.condemned.get(one.machine)
    if known is None or f"{known.cause}; it did not end" == one.cause:
        return None
    return known if one.cause.startswith(known.cause) else None


def _is_over(moment: Decided, one: Incident) -> bool:
    """Whether a deadline of its machine has ended it, whatever event came first after that."""
    hanging, at_us = moment.before.hanging, moment.event.at_us
    known = None if one.machine is None else hanging.condemned.get(one.machine)
    if known is not None and one.cause == f"{known.cause}; it did not end":
        if at_us - known.judged_us < END_US or one.marks["heard"] != known.since_us:
            raise Violation(f"incident {one.number} begins at {at_us}: {known}")
        return True
    probing = hanging.probing
    return probing is not None and one.cause.startswith(f"{probing.cause}; {one.machine} has ")


def _steps_ms(job: Job) -> list[float]:
    """What the steps between two cuts take, by each that was measured."""
    known = [one.step_ms for one in lately(job) if one.step_ms is not None]
    return [max(job.snapshot_every, 1) * ms for ms in known]


def _retries_ms(job: Job) -> float | None:
    """In the median, of those that are over and took nobody's place."""
    known = [
        one.downtime_ms
        for one in lately(job)
        if (one.rung, one.joiner, one.outcome) == (1, None, Outcome.DONE)
        and one.downtime_ms is not None
    ]
    return statistics.median(known) if known else None


class Causes:
    def heeds(self, world: "World") -> dict[type, Callable[[Any], None]]:
        return {Decided: self.decided}

    def decided(self, moment: Decided) -> None:
        before, after = moment.before, moment.after
        if after.incidents is before.incidents or after.code is not None:
            return
        known = {one.number: one for one in before.incidents}
        for one in after.incidents:
            old = known.get(one.number)
            if old is None:
                self._begins(moment, one)
            elif one is not old:
                self._goes_on(moment, old, one)
        if after.change is not None:
            self._names_all(after)

    def _begins(self, moment: Decided, one: Incident) -> None:
        what = f"incident {one.number} ({one.cause})"
        if not one.cause or one.outcome is not Outcome.OPEN:
            raise Violation(f"{what} begins {one.outcome}")
        if one.kind is Kind.MOVE:
            if one.marks.get("begun") != moment.event.at_us or one.rung:
                raise Violation(f"{what} begins with {one.marks}, on rung {one.rung}")
            return
        stood = _condemned(moment.before, one)
        at_us = moment.event.at_us if stood is None else stood.judged_us
        goes_on = any(how in one.cause for how in AFTER_ANOTHER) and one.marks["detect"] < at_us
        if not one.marks["heard"] <= one.marks["detect"] <= at_us or (
            one.marks["detect"] != at_us and not goes_on
        ):
            raise Violation(f"{what} begins at {at_us}: {one.marks}")
        if stood is None:
            if not _is_over(moment, one):
                self._is_about(moment, one, what)
        else:
            known = {stood.rank: stood.stack} if stood.rank is not None and stood.stack else {}
            if one.marks["heard"] != stood.since_us or one.stacks != known:
                raise Violation(f"{what} has {one.marks}, {one.stacks}: {stood}")
        if one.rung == 1:
            self._weighs(moment, one, what)

    @staticmethod
    def _is_about(moment: Decided, one: Incident, what: str) -> None:
        before, event = moment.before, moment.event
        match event:
            case MachinesLost():
                lost = {its.machine: its for its in event.lost if its.machine in before.machines}
                if one.rung == 1 and [*one.lost] != [*lost]:
                    raise Violation(f"{what} is of {one.lost}, and lost are {[*lost]}")
                if one.machine not in lost:
                    raise Violation(f"{what} is of {one.machine}, and lost are {[*lost]}")
                signs = [before.machines[name].killed_us for name in lost]
                killed = [at_us for at_us in signs if at_us is not None]
                heard_us = min(killed or [its.heard_us for its in lost.values()])
                if one.marks["heard"] != heard_us:
                    raise Violation(f"{what} was heard of at {heard_us}: {one.marks}")
            case AgentSaid(fact=WorkerExited()) if one.machine != event.machine:
                raise Violation(f"{what} is of {one.machine}, and {event} was said")
            case WorkerSaid(fact=Interrupted(reason=reason)):
                if one.machine is not None or reason not in one.cause:
                    raise Violation(f"{what} is of {one.machine}, and {event} was said")

    @staticmethod
    def _weighs(moment: Decided, one: Incident, what: str) -> None:
        """As it stands when it begins, if it has not gone on at once."""
        job = moment.after
        change, names = job.change, [option.name for option in one.options]
        ways = [way for way in ALL_WAYS if way != RETURN or one.lost]
        if names != (ways if one.ranks else [RETRY, BACK]):
            raise Violation(f"{what} weighs {names}")
        ms = {option.name: option.ms for option in one.options}
        if not one.ranks and ms[RETRY] != _retries_ms(moment.before):
            raise Violation(f"{what} says that to run a step again costs {ms[RETRY]} ms")
        if change is None or change.epoch != one.epoch or not one.ranks:
            return
        others = [name for slot, name in change.joiners.items() if name != job.seats[slot]]
        gone = [slot for slot in change.leavers if job.seats[slot] not in job.machines]
        closed = {
            RETRY: True,
            STANDBY: not others,
            PROCESS: bool(gone),
            WAIT: not job.spec.wait_s,
            BACK: cut_at_hand(job) is None,
            STOP: job.spec.no_standby != "checkpoint" or cut_at_hand(job) is None,
        }
        if wrong := [name for name, its in closed.items() if its and ms[name] is not None]:
            raise Violation(f"{what} says what {wrong} would cost, and it was not open")
        if one.options[-1].why == "" or any(not its.why for its in one.options[1:]):
            raise Violation(f"{what} does not say why: {one.options}")
        machines = [*moment.before.machines.values(), *job.machines.values()]
        proven = [float(its.warm_ms) for m in machines for its in m.attests.values()]
        costs: dict[str, list[float]] = {PROCESS: proven, RETRY: [], BACK: _steps_ms(job)}
        for name, known in costs.items():
            cost = ms[name]
            if cost is not None and not (known and min(known) <= cost <= max(known)):
                raise Violation(f"{what} says that {name} costs {cost} ms; known are {known}")
        if job.spec.wait_s and ms[WAIT] != 1000.0 * job.spec.wait_s:
            raise Violation(f"{what}: to wait {job.spec.wait_s} s is said to cost {ms[WAIT]} ms")

    def _goes_on(self, moment: Decided, old: Incident, one: Incident) -> None:
        """It is over once; it is about whom it was about, unless a loss explains a broken link, or
        the end of a process of the lost machine."""
        what, before = f"incident {one.number} ({one.cause})", moment.before
        if old.outcome is Outcome.OPEN and one.note.startswith("overtaken"):
            could = one.kind is Kind.MOVE and before.change is not None
            if one.outcome is not (Outcome.CANCELLED if could else Outcome.SUPERSEDED):
                raise Violation(f"{what} was overtaken, and is {one.outcome}")
        about = (old.machine, old.lost, old.cause) == (one.machine, one.lost, one.cause)
        explained = old.machine is None or (old.machine in one.lost and not old.lost)
        if not about and (not explained or old.rung != 1):
            raise Violation(f"{what} was of {old.machine} ({old.cause})")
        if not about and one.rung == 1:
            self._weighs(moment, one, what)
        for name in ("heard", "begun"):
            if one.marks.get(name, 0) > old.marks.get(name, 0):
                raise Violation(f"{what} was first heard of at {old.marks}, now {one.marks}")
        if bad := [rank for rank, stack in one.stacks.items() if rank is None or not stack]:
            raise Violation(f"{what} has a stack of {bad}: {one.stacks}")

    @staticmethod
    def _names_all(job: Job) -> None:
        """Of the change that has just begun: whose ranks, and who takes the first of them."""
        change = job.change
        assert change is not None
        one = job.incidents[-1]
        if change.incident != one.number:
            raise Violation(f"the change is of incident {change.incident}, the newest {one.number}")
        if one.kind is not change.kind:
            raise Violation(f"incident {one.number} is a {one.kind}, its change a {change.kind}")
        if change.back or one.rung != 1:
            return
        slots = sorted({*change.joiners, *change.missing})
        ranks = [rank for slot in slots for rank in job.spec.ranks(slot)]
        if change.epoch == one.epoch and [*one.ranks] != ranks and not change.missing:
            raise Violation(f"incident {one.number} is of {one.ranks}, and {ranks} change hands")
        if change.joiners and one.joiner not in change.joiners.values():
            raise Violation(f"incident {one.number}: {one.joiner} takes none of {change.joiners}")
