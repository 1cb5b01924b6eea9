# SPDX-License-Identifier: Apache-2.0
"""Who comes into a job, who comes back to it, and who is waited for no longer. Pure."""

from typing import TYPE_CHECKING

from trainmover.controller.events import MachineJoined
from trainmover.controller.policies.capacity.wanting import is_returned
from trainmover.controller.standby.flapping import quarantine_s
from trainmover.ids import MachineId
from trainmover.protocol.messages import Hello, Refused, Resumed, Return, Shutdown, Welcome
from trainmover.server.machines.absence import LINK_ENDED
from trainmover.server.machines.admission import (
    quarantined_text,
    refusal,
    returned_text,
    taken_back,
)
from trainmover.server.machines.returns import Returns
from trainmover.server.surroundings import Link, Surroundings

if TYPE_CHECKING:
    from trainmover.server.control import Control

AWAY_RETRY_S = 1.0


class Reception:
    """Of a controller; before it, since lost_us, there was none."""

    def __init__(self, control: "Control", around: Surroundings, *, lost_us: int) -> None:
        self._control = control
        self._around = around
        within_s = control.spec.deadlines.spare_s
        self._returns = Returns(len(control.accounts.away), lost_us, within_s)

    def hello(self, link: Link, hello: Hello, at_us: int) -> None:
        """A peer that knows the token wants in."""
        control = self._control
        present = {*control.job.machines, *control.members}
        why_not = refusal(hello, control.spec, present, over=control.over is not None)
        if why_not:
            retry_s = AWAY_RETRY_S if hello.machine in control.absence.quiet else None
            self._refuse(link, Refused(reason=why_not, retry_s=retry_s))
            return
        if is_returned(control.job, hello.machine):
            self._refuse(link, Refused(reason=returned_text(hello.machine)))
            return
        if wait_s := quarantine_s(control.job, hello.machine, hello.host, at_us):
            reason = quarantined_text(hello.machine, wait_s)
            self._refuse(link, Refused(reason=reason, retry_s=wait_s))
            return
        self._let_in(link, hello.machine)
        link.send(self._welcome())
        control.take(
            MachineJoined(
                at_us=at_us,
                machine=hello.machine,
                standby=hello.standby,
                vault=hello.vault,
                host=hello.host,
                incarnation=hello.incarnation,
                rack=hello.rack,
            )
        )

    def back(self, link: Link, back: Return, at_us: int) -> None:
        """An agent has lost its link, and its workers run on."""
        control, machine = self._control, back.machine
        account = control.accounts.of.get(machine)
        ours = account is not None and account.incarnation == back.incarnation
        if ours:  # It knows first that the link it had is none any more.
            control.without_link(machine)
        rest = taken_back(back, account, control.job.epoch, control.accounts.term)
        if control.over is not None and machine not in control.members:
            rest = [Shutdown()]
        if isinstance(rest, Refused):
            self._refuse(link, rest)
            if account is not None and machine not in control.members:
                control.absence.broke(machine, LINK_ENDED, at_us)
                self.gone(machine, "its agent is not the one that the journal knows", at_us)
            return
        self._let_in(link, machine)
        control.tell_back(machine, control.absence.back(machine))
        if not back.heard:
            link.send(self._welcome())
        if account is not None:
            control.make_safe(account.incarnation, account.facts, at_us)
            account.back(back.heard)
            link.send(Resumed(facts=account.facts, term=control.accounts.term))
        if control.over is not None:
            for order in rest:
                link.send(order)
        elif account is not None:
            control.catches_up(machine, back.said)
        self.look(at_us)

    def gone(self, machine: MachineId, why: str, at_us: int) -> None:
        """Of one that may be waited for: it will not come back."""
        if machine in self._control.absence.quiet:
            self._control.ended(machine, why, at_us)

    def lost(self, machines: int, at_us: int) -> None:
        """So many are no longer waited for."""
        self._returns.ended(machines)
        self.look(at_us)

    def look(self, at_us: int) -> None:
        """Tell when all that were in the job are back, or are no longer waited for."""
        control = self._control
        if not control.job.takeovers or control.over is not None:
            return
        text = self._returns.sentence(len(control.accounts.away), at_us)
        if text:
            self._around.note(text, loud=True)

    def beat(self, at_us: int) -> None:
        """Who is not back in time is told of, and waited for on."""
        if self._control.accounts.away and self._returns.beat():
            self.look(at_us)

    def _let_in(self, link: Link, machine: MachineId) -> None:
        link.machine = machine
        self._control.members[machine] = link
        self._control.carrying.let_in(machine, link)

    def _welcome(self) -> Welcome:
        return Welcome(spec=self._control.spec, term=self._control.accounts.term)

    def _refuse(self, link: Link, refused: Refused) -> None:
        link.send(refused)
        link.close()
        self._around.turned_away(refused.reason.split("\n")[0])
