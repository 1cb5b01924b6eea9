"""Who seems about to fail is taken out only where that was asked for, never many at once, never for
what is the script's; and whoever was taken out loses its ranks as soon as another can have them."""

from collections import Counter
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trainmover.controller.change.move import begin_moves
from trainmover.controller.events import AgentSaid
from trainmover.controller.policies.anomalies.answer import PART, failing
from trainmover.controller.policies.anomalies.told import TOO_MANY
from trainmover.controller.state import Phase
from trainmover.ids import MachineId
from trainmover.protocol.messages import Sign
from trainmover.simulator.happenings import Decided, Violation
from trainmover.symptoms import symptom_named

if TYPE_CHECKING:
    from trainmover.controller import Job
    from trainmover.simulator.world import World


class Anomalies:
    """lines: machine and symptom -> how many were told of."""

    def __init__(self) -> None:
        self.lines: Counter[tuple[str, str]] = Counter()

    def heeds(self, world: "World") -> dict[type, Callable[[Any], None]]:
        return {Decided: self.decided}

    def decided(self, moment: Decided) -> None:
        before, after, event = moment.before, moment.after, moment.event
        if isinstance(event, AgentSaid) and isinstance(event.fact, Sign):
            self.lines[event.machine, event.fact.symptom] += event.fact.count
        for machine in set(failing(after)) - set(failing(before)):
            if machine in before.machines or machine not in before.cordoned:
                self._taken_out(after, machine)
        self._goes(before, after)

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
            if not isinstance(begin_moves(after, [name], "", request="", at_us=0), str):
                raise Violation(f"{name} is about to fail, has ranks, and could be moved")
