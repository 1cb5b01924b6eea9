"""`python tests/chaos/outages.py MOMENT`: no controller for a while, at the worst moment.

The moment is found in the journal, entry by entry, and the controller is stopped within
milliseconds; if that was too late it goes on, and the next such moment is taken. Then it is away
for each of --seconds, one after the other:

    killed   it dies, and its successor's start is held back for so long
    stopped  it stays stopped, and its supervisor replaces it by itself
    frozen   it and its supervisor stand still, as with their host, and go on

Nobody but a machine that was killed here may be given up, no worker but one that stalls may be
ended, and the job goes on. Afterwards every committed value and the final state must equal those of
the same job left alone.
"""

import argparse
import json
import os
import signal
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import product
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parent))

from chaos_faults import STALLS
from chaos_leaks import Traces
from chaos_run import WARM_S, Running, Stuck, end_in_order, send
from chaos_watch import Watch, is_calm, named
from drive import Report, Work, finish

from trainmover.cli.client import Client
from trainmover.controller.change.incidents import lately
from trainmover.controller.change.seats import spare
from trainmover.controller.state import Job, Kind, Stage
from trainmover.errors import TrainmoverError
from trainmover.ids import MachineId
from trainmover.launch.controller.silence import STOPPED_S, state_of

MACHINES, STANDBYS = 3, 2
SETTLE_STEPS = 60
"""A rank learns its own deadline from 32."""
CALM_STEPS = 10
DEATHS_MAX, MINUTE_S = 4, 60.0
"""A supervisor gives up when controllers die more often."""
TRIES_MAX = 8
HOW = ("killed", "stopped", "frozen")
SECONDS = (3.0, 8.0, 30.0)
WAIT_S = 20
"""`--wait-for-machine`: shorter than the longest outage, which does not count."""


class Scene:
    """One job and the machine that something happens to next."""

    def __init__(self, place: Path, running: Running, watch: Watch) -> None:
        self.place = place
        self.running = running
        self.watch = watch
        self.machine = MachineId("")
        self.known = 0
        self.stalled: set[MachineId] = set()
        self._deaths: list[float] = []
        self._used: set[MachineId] = set()

    def choose(self) -> None:
        """A machine with ranks: another one each time, and whose slot no standby holds already, so
        that a joiner takes its time."""
        job = self.watch.job
        held = {machine.held for machine in spare(job)}
        seats = [name for name in job.seats if name not in self._used] or [*job.seats]
        self.machine = min(seats, key=lambda name: job.slot_of(name) in held)
        self._used.add(self.machine)
        self.known = len(lately(job))

    def rest(self) -> None:
        """Wait until the controller may die once more."""
        if len(self._deaths) >= DEATHS_MAX:
            time.sleep(max(0.0, self._deaths[-DEATHS_MAX] + MINUTE_S - time.monotonic()))
        self._deaths.append(time.monotonic())

    @property
    def order(self) -> Path:
        """The file that makes the script stall on the machine."""
        return self.place / STALLS / self.machine


# --- what happens ---------------------------------------------------------------------------------


def stall(scene: Scene) -> None:
    """In the script, for ever: whoever takes the rank does not stall again."""
    scene.order.write_text("lock")


def stop_worker(scene: Scene) -> None:
    """It goes on once there is no controller."""
    send(scene.running.worker(scene.machine), signal.SIGSTOP)


def let_worker_go_on(scene: Scene) -> None:
    send(scene.running.worker(scene.machine), signal.SIGCONT)


def move(scene: Scene) -> None:
    """Asked for in a thread: the answer comes late, or never if the controller dies."""
    run = scene.running.run()
    assert run is not None
    client = Client(run)

    def ask() -> None:
        with suppress(TrainmoverError):
            client.ask("move", {"machine": scene.machine})

    threading.Thread(target=ask, daemon=True).start()


def kill_machine(scene: Scene) -> None:
    """As when the power fails: all of it at once."""
    agent, worker = scene.running.agent(scene.machine), scene.running.worker(scene.machine)
    send(agent, signal.SIGKILL)
    send(worker, signal.SIGKILL)


def do_nothing(scene: Scene) -> None:
    """After the outage."""


def add_machine(scene: Scene) -> None:
    """The one that the job waits for."""
    scene.running.add_machine()


# --- when -----------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Moment:
    """begin: what is done first; then the controller is stopped when `at` holds.

    meanwhile  what is done once it is stopped; after: once it is back
    loses      the machine is lost by that; stalls: its worker is to be ended
    standbys   that the job has
    """

    begin: Callable[[Scene], None]
    at: Callable[[Scene, Job], object]
    meanwhile: Callable[[Scene], None] = do_nothing
    after: Callable[[Scene], None] = do_nothing
    loses: bool = False
    stalls: bool = False
    standbys: int = STANDBYS


def _during(kind: Kind, stage: Stage, *, missing: bool = False) -> Callable[[Scene, Job], bool]:
    def at(scene: Scene, job: Job) -> bool:
        change = job.change
        if change is None or change.kind is not kind or bool(change.missing) is not missing:
            return False
        return change.stage is stage

    return at


def _moving(stage: Stage) -> Moment:
    return Moment(move, _during(Kind.MOVE, stage))


def _recovering(stage: Stage) -> Moment:
    return Moment(kill_machine, _during(Kind.RECOVERY, stage), loses=True)


MOMENTS = {
    "stall-standing": Moment(stall, lambda scene, job: not scene.order.exists(), stalls=True),
    "stall-ending": Moment(stall, lambda scene, job: job.hanging.condemned, stalls=True),
    "stall-over": Moment(
        stop_worker, lambda scene, job: job.hanging.disturbed, meanwhile=let_worker_go_on
    ),
    "move-bind": _moving(Stage.BIND),
    "move-prepare": _moving(Stage.PREPARE),
    "move-pause": _moving(Stage.PAUSE),
    "move-switch": _moving(Stage.SWITCH),
    "recovery-killed": Moment(kill_machine, lambda scene, job: True, loses=True),
    "recovery-drain": _recovering(Stage.DRAIN),
    "recovery-boundary": _recovering(Stage.BOUNDARY),
    "recovery-switch": _recovering(Stage.SWITCH),
    "recovery-waiting": Moment(
        kill_machine,
        _during(Kind.RECOVERY, Stage.DRAIN, missing=True),
        after=add_machine,
        loses=True,
        standbys=0,
    ),
}


@dataclass
class Outage:
    """What one of them came to.

    machine      what happened, happened to
    tries        how often the moment was looked for; stood: where the controller was stopped
    back_s       from the end of the outage to the next committed step
    downtime_ms  of the incident, if there was one, and its outcome
    lost, ended  as in `Watch`
    waiting      what `status` named meanwhile; says: it names such things
    """

    moment: str
    seconds: float
    machine: str = ""
    tries: int = 0
    stood: str = ""
    back_s: float | None = None
    downtime_ms: float | None = None
    outcome: str = ""
    lost: list[str] = field(default_factory=list)
    ended: list[str] = field(default_factory=list)
    waiting: list[str] = field(default_factory=list)
    says: bool = False


@dataclass
class Measured(Report):
    """All of a run."""

    how: str = ""
    outages: list[dict[str, Any]] = field(default_factory=list)


def main() -> int:
    """0 if all is well."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("moment", choices=MOMENTS, nargs="+", help="in one job, in this order")
    parser.add_argument("--how", choices=HOW, default="killed")
    parser.add_argument("--seconds", type=float, nargs="+", default=SECONDS)
    options = parser.parse_args()
    moments = [(name, MOMENTS[name]) for name in options.moment]
    if len({moment.standbys for _, moment in moments}) > 1:
        parser.error("recovery-waiting is for a job of its own: one without standbys")
    end_in_order()
    report = Measured(0, how=options.how)
    begun_s = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="outages-") as place:
        _run(Path(place), moments, options.seconds, report)
    report.seconds = round(time.monotonic() - begun_s, 1)
    print(json.dumps(report.__dict__, indent=1))
    return 1 if report.wrong else 0


def _run(
    place: Path, moments: list[tuple[str, Moment]], seconds: list[float], report: Measured
) -> None:
    work, folder = Work.open_ended(place), place / "disturbed"
    folder.mkdir()
    (place / STALLS).mkdir()
    standbys = moments[0][1].standbys
    flags = ["--machines", str(MACHINES), "--standbys", str(standbys)]
    flags += ["--max-restarts", "1000", "--wait-for-machine", str(WAIT_S)]
    running = Running(folder, [*flags, work.script, *work.arguments])
    traces = Traces(running)
    try:
        running.until(lambda: running.run(), "a run")
        with Watch(running) as watch:
            scene = Scene(place, running, watch)
            _settle(scene, standbys, SETTLE_STEPS)
            for (name, moment), length_s in product(moments, seconds):
                _settle(scene, standbys, CALM_STEPS)
                traces.note()
                scene.rest()
                _one(scene, moment, Outage(name, length_s), report)
        finish(running, place, MACHINES, report, traces)
    except Stuck as stuck:
        report.wrong.append(str(stuck))
    finally:
        if report.wrong:
            print(running.output.read_text(errors="replace")[-6000:], file=sys.stderr)
        running.kill()


def _settle(scene: Scene, standbys: int, steps: int) -> None:
    """Wait until nothing is under way, with as many standbys as at first."""
    running, watch = scene.running, scene.watch

    def is_calm_again() -> bool:
        known = running.status()
        if known is not None:
            there = {machine["id"] for machine in known["machines"]}
            coming = [one for one in running.late if one.lives() and one.name not in there]
            if len(there) + len(coming) < MACHINES + standbys:
                running.add_machine()
        watch.read()
        return is_calm(watch.job, standbys)

    running.until(is_calm_again, "calm, with all standbys warm", WARM_S)
    known = running.step()
    running.until(lambda: running.step() >= known + steps, "a few calm steps")
    running.until(is_calm_again, "calm, with all standbys warm", WARM_S)


def _one(scene: Scene, moment: Moment, one: Outage, report: Measured) -> None:
    """One outage, and what came of it."""
    watch = scene.watch
    lost, ended = len(watch.lost), len(watch.ended)
    supervisor = scene.running.process.pid
    for _ in range(TRIES_MAX):
        scene.choose()
        one.machine, one.tries = scene.machine, one.tries + 1
        controller = scene.running.controller()
        assert controller is not None
        moment.begin(scene)
        try:
            watch.until(lambda job: moment.at(scene, job), "the moment")
            if _caught(scene, moment, supervisor, controller):
                moment.meanwhile(scene)
                one.stood = _where(watch.job)
                _away(report.how, one.seconds, supervisor, controller)
                break
        finally:
            send(supervisor, signal.SIGCONT)
        send(controller, signal.SIGCONT)
        moment.after(scene)
        _settle(scene, moment.standbys, CALM_STEPS)
        lost, ended = len(watch.lost), len(watch.ended)
    else:
        raise Stuck(f"the moment was not met in {TRIES_MAX} tries")
    _follow(scene, moment, one)
    one.lost, one.ended = watch.lost[lost:], watch.ended[ended:]
    report.outages.append(one.__dict__)
    print(json.dumps(one.__dict__), file=sys.stderr, flush=True)
    again = moment.stalls and scene.machine in scene.stalled
    scene.stalled |= {scene.machine} if moment.stalls else set()
    found = _wrong(moment, one, goes=moment.loses or again)
    report.wrong += [f"{one.moment}, {one.seconds:.0f} s: {why}" for why in found]


def _wrong(moment: Moment, one: Outage, *, goes: bool) -> Iterator[str]:
    """goes: the machine is lost, or a rank has stalled there for the second time."""
    if one.lost != [one.machine] * goes:
        yield f"{one.lost or 'nobody'} was given up"
    if one.ended != [one.machine] * moment.stalls:
        yield f"workers of {one.ended or 'nobody'} were ended"
    if moment.after is add_machine and one.says and not one.waiting:
        yield "the job waited for a machine, and `status` did not name it"


def _caught(scene: Scene, moment: Moment, supervisor: int, controller: int) -> bool:
    """Stop both; return whether the controller stands at the moment, as far as it has written."""
    send(supervisor, signal.SIGSTOP)
    send(controller, signal.SIGSTOP)
    while state_of(controller) not in ("T", "t", ""):
        time.sleep(0.001)
    scene.watch.read()
    return bool(moment.at(scene, scene.watch.job))


def _away(how: str, seconds: float, supervisor: int, controller: int) -> None:
    """There is no controller for so long."""
    if how == "killed":
        os.kill(controller, signal.SIGKILL)
    if how == "stopped":  # For the last part of it the supervisor looks, and then replaces it.
        seconds = max(0.0, seconds - STOPPED_S)
    time.sleep(seconds)
    if how == "frozen":
        os.kill(controller, signal.SIGCONT)


def _where(job: Job) -> str:
    """Where the controller stood when it was stopped."""
    if job.change is not None:
        return f"{job.change.kind}, {job.change.stage}"
    if job.hanging.condemned:
        return "a worker is being ended"
    return "ranks stand" if job.hanging.stands or job.hanging.disturbed else "no incident"


def _follow(scene: Scene, moment: Moment, one: Outage) -> None:
    """From the return of the controller until nothing is under way."""
    running, watch = scene.running, scene.watch
    begun_s = time.monotonic()
    running.until(lambda: running.status() is not None, "an answer of a controller")
    moment.after(scene)
    step = running.step()

    def goes_on() -> bool:
        status = running.status() or {}
        one.says = one.says or "waiting" in status
        one.waiting = sorted({*one.waiting, *named(status)})
        if one.back_s is None and (status.get("step") or 0) > step:
            one.back_s = round(time.monotonic() - begun_s, 2)
        watch.read()
        over = len(lately(watch.job)) > scene.known or not (moment.loses or moment.stalls)
        return one.back_s is not None and over and is_calm(watch.job, 0)

    running.until(goes_on, f"steps after an outage of {one.seconds:.0f} s", WARM_S)
    if running.over:
        raise Stuck(f"the job ended after an outage of {one.seconds:.0f} s")
    if new := lately(watch.job)[scene.known :]:
        one.downtime_ms, one.outcome = new[-1].downtime_ms, str(new[-1].outcome)


if __name__ == "__main__":
    sys.exit(main())
