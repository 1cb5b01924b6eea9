# SPDX-License-Identifier: Apache-2.0
"""Who seems about to fail is taken out only where that was asked for, never many at once, never for
what is the script's; and whoever was taken out loses its ranks as soon as another can have them."""

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trainmover.controller.change.move import begin_moves
from trainmover.controller.events import AgentSaid
from trainmover.controller.policies.anomalies.answer import PART, failing
from trainmover.controller.policies.anomalies.told import TOO_MANY
from trainmover.controller.state import Cause, Phase, Trigger
from trainmover.ids import MachineId
from trainmover.protocol.messages import Sign
from trainmover.simulator.happenings import Decided, Replayed, Violation
from trainmover.symptoms import symptom_named

ENOUGH, MINUTE_US = 10, 60_000_000
"""Lines more than one a minute."""

if TYPE_CHECKING:
    from trainmover.controller import Job
    from trainmover.simulator.world import World


class Anomalies:
    """lines: machine and symptom -> how many were told of. sums: the same, of machines that are
    there, less what is usual; and when that was."""

    def __init__(self) -> None:
        self.lines: Counter[tuple[str, str]] = Counter()
        self.sums: dict[tuple[MachineId, str], tuple[float, int]] = {}

    def heeds(self, world: "World") -> dict[type, Callable[[Any], None]]:
        return {Decided: self.decided, Replayed: self.replayed}

    def replayed(self, moment: Replayed) -> None:
        if moment.torn:
            self.sums.clear()

    def decided(self, moment: Decided) -> None:
        before, after, event = moment.before, moment.after, moment.event
        if isinstance(event, AgentSaid) and isinstance(event.fact, Sign):
            self.lines[event.machine, event.fact.symptom] += event.fact.count
            self._is_found(moment, event.machine, event.fact)
        if after.machines is not before.machines:
            here = after.machines
            self.sums = {of: one for of, one in self.sums.items() if of[0] in here}
        for machine in set(failing(after)) - set(failing(before)):
            if machine in before.machines or machine not in before.cordoned:
                self._taken_out(after, machine)
        self._goes(before, after)

    def _is_found(self, moment: Decided, machine: MachineId, sign: Sign) -> None:
        """What is enough, at once."""
        before, after = moment.before, moment.after
        over = before.saves_last or before.phase is Phase.ENDED
        if over or machine not in before.machines or before.spec.anomalies == "off":
            return
        symptom, at_us = symptom_named(sign.symptom), moment.event.at_us
        known, since_us = self.sums.get((machine, sign.symptom), (0.0, at_us))
        lines = max(known - (at_us - since_us) / MINUTE_US, 0.0) + sign.count
        self.sums[machine, sign.symptom] = lines, at_us
        if symptom is None or not (symptom.grave or lines >= ENOUGH):
            return
        of = (machine, sign.symptom)
        if of not in [(one.machine, one.sign) for one in after.anomalies.findings]:
            raise Violation(f"{machine} says {sign}, {lines:.1f} lines, and nothing is found")
        again = of in [(one.machine, one.sign) for one in before.anomalies.findings]
        few = len(failing(before)) < max(1, len(before.machines) // 4) and not again
        acts = before.spec.anomalies == "act" and few and machine in after.machines
        if acts and machine not in failing(after):
            raise Violation(f"{machine} says {sign}, and may take ranks")

    def _taken_out(self, job: "Job", machine: MachineId) -> None:
        if job.spec.anomalies != "act":
            raise Violation(f"{machine} is taken out, which nobody has asked for")
        found = [one for one in job.anomalies.findings if one.machine == machine]
        if not any(one.grave and self._is_much(machine, one.sign) for one in found):
            raise Violation(f"{machine} is taken out for {found}")
        if len(failing(job)) > max(1, len(job.machines) // PART):
            raise Violation(f"{failing(job)} are taken out, of {len(job.machines)} machines")

    def _is_much(self, machine: MachineId, sign: str) -> bool:
        """One line is, if it stands for broken hardware; a few of others come anywhere."""
        symptom = symptom_named(sign)
        few = symptom is not None and not symptom.grave
        return not few or self.lines[machine, sign] >= TOO_MANY

    @staticmethod
    def _goes(before: "Job", after: "Job") -> None:
        """Nothing else is under way, before as after, and it could be moved."""
        if (
            after.phase is not Phase.RUNNING
            or after.change is not None
            or before.change is not None
        ):
            return
        for name in failing(after):
            if name not in after.seats:
                continue
            if not isinstance(
                begin_moves(after, [name], Cause(Trigger.MOVE, ""), request="", at_us=0), str
            ):
                raise Violation(f"{name} is about to fail, has ranks, and could be moved")
