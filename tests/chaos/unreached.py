"""`python tests/chaos/unreached.py CASE`: the controller alone does not reach a healthy machine.

Each machine is on a host of its own (`chaos_net.py`). A machine with ranks is killed, again and
again: by turns with all links open, and with one machine cut off from the controller, both ways,
while its neighbours reach it. What the cut adds to the downtime is compared with what the same kill
costs without it, as medians of one run. Afterwards every committed value and the final state must
equal those of the same job left alone.

    standby-before   an idle standby, cut off three seconds before the kill
    standby-at-kill  an idle standby, cut off at the moment of the kill
    survivor-before  a machine with ranks, cut off three seconds before another one is killed
    survivor-at-kill  the same at the moment of the kill
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from dataclasses import dataclass, field
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import psutil
from chaos_net import CUT, Net, why_none
from chaos_run import WARM_S, Running, Stuck, end_in_order, kill_all
from chaos_watch import Watch, is_calm, named
from drive import Report, Work, finish

from trainmover.controller.change.incidents import lately
from trainmover.controller.change.seats import spare, without_machines
from trainmover.controller.standby.joiners import joiners_after_loss
from trainmover.controller.state import Incident, Job, Outcome
from trainmover.ids import MachineId, Slot
from trainmover.launch.late import LateMachine

HOST_OF_CONTROLLER = 0
STANDBYS = 2
VICTIM, SURVIVOR = Slot(1), Slot(2)
"""The buddy of a slot is the next one: the survivor keeps the records of the victim."""
SETTLE_STEPS = 60
"""A rank learns its own deadline from 32."""
CALM_STEPS = 10
BEFORE_S = 3.0
TRIES_MAX = 5


@dataclass(frozen=True)
class Case:
    """cut_s: before the kill. more_ms: what the cut may add to the downtime."""

    machines: int
    survivor: bool
    cut_s: float
    more_ms: float


CASES = {
    "standby-before": Case(2, survivor=False, cut_s=BEFORE_S, more_ms=500.0),
    "standby-at-kill": Case(2, survivor=False, cut_s=0.0, more_ms=500.0),
    "survivor-before": Case(3, survivor=True, cut_s=BEFORE_S, more_ms=5000.0),
    "survivor-at-kill": Case(3, survivor=True, cut_s=0.0, more_ms=5000.0),
}


@dataclass
class Measured(Report):
    """Downtimes in milliseconds, in the order of the kills.

    may_add_ms  to the median by the cut: what is promised, and for a busy machine as much as the
                kills without the cut differ by, or cost
    joined      who took the ranks of whom
    lost        machines that were given up; they should be those that were killed
    waiting     what `status` named meanwhile
    """

    case: str = ""
    open_ms: list[float] = field(default_factory=list)
    cut_ms: list[float] = field(default_factory=list)
    median_open_ms: float | None = None
    median_cut_ms: float | None = None
    may_add_ms: float | None = None
    joined: list[str] = field(default_factory=list)
    killed: list[str] = field(default_factory=list)
    lost: list[str] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)


def main() -> int:
    """0 if all is well."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("case", choices=sorted(CASES))
    parser.add_argument("--rounds", type=int, default=3, help="kills of each kind")
    parser.add_argument("--quick", action="store_true", help="one of each, and no job left alone")
    options = parser.parse_args()
    if reason := why_none():
        print(reason, file=sys.stderr)
        return 1
    end_in_order()
    report = Measured(0, case=options.case)
    begun_s = time.monotonic()
    case = CASES[options.case]
    net = Net(1 + case.machines + STANDBYS)
    try:
        with tempfile.TemporaryDirectory(prefix="unreached-") as place:
            _run(net, Path(place), case, 0 if options.quick else options.rounds, report)
    finally:
        net.close()
    report.seconds = round(time.monotonic() - begun_s, 1)
    print(json.dumps(report.__dict__, indent=1))
    return 1 if report.wrong else 0


def _run(net: Net, place: Path, case: Case, rounds: int, report: Measured) -> None:
    """rounds: 0 is one, and nothing is compared with a job left alone."""
    work, folder = Work.open_ended(place), place / "disturbed"
    folder.mkdir()
    net.enter(HOST_OF_CONTROLLER)
    flags = ["--bind", net.address(HOST_OF_CONTROLLER), "--max-restarts", "1000"]
    flags += ["--machines", str(case.machines), "--standbys", str(STANDBYS)]
    running = Running(folder, [*flags, work.script, *work.arguments])
    try:
        running.until(lambda: running.run(), "a run")
        for host in range(1, 1 + case.machines + STANDBYS):
            running.start_machine(net, host, standby=host > case.machines)
        with Watch(running) as watch:
            rehearsal = _Rehearsal(net, running, watch, case, report)
            rehearsal.settle(SETTLE_STEPS if rounds else CALM_STEPS)
            for number in range(2 * max(1, rounds)):
                rehearsal.measure(cut=number % 2 == 1)
        if rounds:
            finish(running, place, case.machines, report)
    except Stuck as stuck:
        report.wrong.append(str(stuck))
    finally:
        _show(running)
        running.kill()
    _judge(case, report)


def _show(running: Running) -> None:
    """What the run and its machines have written, to be read if something is wrong."""
    for path in [*sorted(running.folder.glob("*.err")), running.output]:
        print(f"--- {path.name}", path.read_text(errors="replace")[-4000:], file=sys.stderr)


class _Rehearsal:
    """One job, in which one machine after the other is killed and started again."""

    def __init__(
        self, net: Net, running: Running, watch: Watch, case: Case, report: Measured
    ) -> None:
        self._net = net
        self._running = running
        self._watch = watch
        self._case = case
        self._report = report

    def settle(self, steps: int = CALM_STEPS) -> None:
        """Wait until the same loss can be borne again."""
        self._watch.until(lambda job: is_calm(job, STANDBYS), "two warm standbys", WARM_S)
        known = self._running.step()
        self._running.until(lambda: self._running.step() >= known + steps, "a few calm steps")
        self._watch.until(lambda job: is_calm(job, STANDBYS), "two warm standbys", WARM_S)

    def measure(self, *, cut: bool) -> None:
        """Note one downtime."""
        for _ in range(TRIES_MAX):
            self._start_again()
            self.settle()
            if self.kill(cut=cut):
                return
        raise Stuck(
            f"{TRIES_MAX} times in a row the machine that was cut off was to take the ranks"
        )

    def kill(self, *, cut: bool) -> bool:
        """Kill a machine and note the downtime.

        Return False, with nothing noted, if the machine that was cut off was to take the ranks:
        which standby does was foreseen from what the journal said a moment before.
        """
        watch, net, victim = self._watch, self._net, self._watch.job.seats[VICTIM]
        known, given_up = len(lately(watch.job)), len(watch.lost)
        away = self._to_cut(watch.job, victim)
        ways = [(HOST_OF_CONTROLLER, _host(away)), (_host(away), HOST_OF_CONTROLLER)]
        if cut:
            net.set(CUT, *ways)
            time.sleep(self._case.cut_s)
        kill_all(psutil.Process(self._agent(victim).pid))
        try:
            incident = self._outcome(known)
        finally:
            net.heal()
            self._report.lost += watch.lost[given_up:]
            self._report.killed.append(victim)
        counts = not cut or incident.joiner != away
        if counts and incident.downtime_ms is not None:
            (self._report.cut_ms if cut else self._report.open_ms).append(incident.downtime_ms)
        self._report.joined.append(f"{incident.joiner} for {victim}" + f", without {away}" * cut)
        return counts

    def _start_again(self) -> None:
        """Machines that were killed, or whose lease was over, join as standbys."""
        for agent in [one for one in self._running.late if not one.lives()]:
            self._running.late.remove(agent)
            self._running.start_machine(self._net, _host(agent.name), standby=True)

    def _to_cut(self, job: Job, victim: MachineId) -> MachineId:
        if self._case.survivor:
            return job.seats[SURVIVOR]
        joins = joiners_after_loss(without_machines(job, [victim]), [VICTIM], ())[VICTIM]
        return next(machine.id for machine in spare(job) if machine.id != joins)

    def _agent(self, name: MachineId) -> LateMachine:
        return next(one for one in self._running.late if one.name == name)

    def _outcome(self, known: int) -> Incident:
        """Wait for the first commit; note what the job says that it waits for."""
        begun_s = time.monotonic()
        while not self._watch.read(lambda job: _done(job, known)):
            stood_s = time.monotonic() - begun_s
            if self._running.over:
                raise Stuck(f"the job ended {stood_s:.0f} s after the kill")
            if stood_s > WARM_S:
                raise Stuck(f"no step was committed for {stood_s:.0f} s after the kill")
            names = named(self._running.status())
            self._report.waiting = sorted({*self._report.waiting, *names})
            time.sleep(0.02)
        return _done(self._watch.job, known)[-1]


def _done(job: Job, known: int) -> list[Incident]:
    """Return new incidents that have come to a commit: one may have been overtaken by others."""
    return [one for one in lately(job)[known:] if one.outcome is Outcome.DONE]


def _host(machine: str) -> int:
    return int(machine[1:])


def _judge(case: Case, report: Measured) -> None:
    """Compare the kills with the cut and those without."""
    if not report.cut_ms:
        report.wrong.append("no kill with the cut was come through")
        return
    report.median_open_ms = statistics.median(report.open_ms)
    report.median_cut_ms = statistics.median(report.cut_ms)
    noise_ms = max(report.median_open_ms, max(report.open_ms) - min(report.open_ms))
    report.may_add_ms = case.more_ms + noise_ms
    added_ms = report.median_cut_ms - report.median_open_ms
    if added_ms > report.may_add_ms:
        report.wrong.append(f"the cut added {added_ms:.0f} ms to the downtime")
    if report.lost != report.killed:
        report.wrong.append(f"{report.lost} were given up, and {report.killed} killed")


if __name__ == "__main__":
    sys.exit(main())
