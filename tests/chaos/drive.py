"""`python tests/chaos/drive.py --seed N --seconds S`: train under random faults, then compare.

Faults come one after the other, each when so many standbys are warm that no end of the job would be
right; machines that were lost are replaced by fresh ones. Every committed value and the final state
must equal those of the same job left alone, every step must be there once, and nothing may be left
behind. With --own-network, as root, it moves to a network namespace first, where links can be cut.
"""

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from chaos_faults import STALLS, Fault, possible
from chaos_leaks import Traces
from chaos_run import Running, Stuck

from trainmover.controller.change.incidents import lately
from trainmover.journal import Journal
from trainmover.journal.replay import replay

ROOT = Path(__file__).resolve().parents[2]
MACHINES, STANDBYS = 3, 3
READY_MIN = 2
CONTROLLERS_KILLED_MAX, MINUTE_S = 3, 60.0
CALM_STEPS = 5
"""Steps between two faults: what a loss needs, records with a buddy for one, is there again."""


@dataclass(frozen=True)
class Work:
    """What is trained. hurry: a file that ends the pauses between steps, where there are some."""

    script: str
    arguments: list[str]
    steps: int

    @staticmethod
    def small(seconds: float, hurry: Path, stalls: Path) -> "Work":
        steps = int(seconds * 18)
        arguments = ["--steps", str(steps), "--pace", "0.05", "--hurry", str(hurry)]
        arguments += ["--stall", str(stalls)]
        return Work(str(ROOT / "tests/e2e/train.py"), arguments, steps)

    @staticmethod
    def open_ended(place: Path) -> "Work":
        """Until the file `done` of this folder exists. A file NAME in its `stalls` stalls NAME."""
        return Work.lasting(place, 100_000, place / "done")

    @staticmethod
    def lasting(place: Path, steps: int, until: Path) -> "Work":
        """The same job with a number of steps."""
        arguments = ["--steps", str(steps), "--pace", "0.05", "--hurry", str(place / "hurry")]
        arguments += ["--until", str(until), "--stall", str(place / STALLS)]
        return Work(str(ROOT / "tests/e2e/train.py"), arguments, steps)

    @staticmethod
    def demo(seconds: float) -> "Work":
        steps = int(seconds * 6)
        arguments = ["--steps", str(steps), "--log-every", str(steps)]
        return Work(str(ROOT / "examples/gpt.py"), arguments, steps)


@dataclass
class Report:
    """What came of it. faults: what was done, in order; wrong: nothing, if all is well."""

    seed: int
    faults: list[str] = field(default_factory=list)
    wrong: list[str] = field(default_factory=list)
    steps: int = 0
    incidents: int = 0
    takeovers: int = 0
    seconds: float = 0.0


def main() -> int:
    """0 if all is well."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=60.0, help="of faults")
    parser.add_argument("--demo", action="store_true", help="examples/gpt.py, not a smaller job")
    parser.add_argument("--stalls", action="store_true", help="in the smaller job's script too")
    parser.add_argument("--own-network", action="store_true", help="needs root")
    parser.add_argument("--inside", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.own_network and not options.inside:
        again = ["unshare", "--net", sys.executable, __file__, *sys.argv[1:], "--inside"]
        os.execvp(again[0], again)
    if options.inside:
        subprocess.run(["ip", "link", "set", "lo", "up"], check=True)
    report = _drive(options)
    print(json.dumps(report.__dict__, indent=1))
    if report.wrong:
        command = [word for word in sys.argv if word != "--inside"]
        print(f"NOT AS PROMISED; again: {sys.executable} {' '.join(command)}", file=sys.stderr)
    return 1 if report.wrong else 0


def _drive(options: argparse.Namespace) -> Report:
    report = Report(options.seed)
    begun_s = time.monotonic()
    faults, reasons = possible(own_network=options.own_network, stalls=options.stalls)
    for reason in reasons:
        print(reason, file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="chaos-") as place:
        hurry, stalls = Path(place) / "hurry", Path(place) / STALLS
        stalls.mkdir()
        work = (
            Work.demo(options.seconds)
            if options.demo
            else Work.small(options.seconds, hurry, stalls)
        )
        folder = Path(place) / "disturbed"
        folder.mkdir()
        running = Running(folder, _command(work, MACHINES + 1 * options.demo, STANDBYS))
        traces = Traces(running)
        try:
            _disturb(running, traces, random.Random(options.seed), faults, options.seconds, report)
            hurry.touch()
            code = running.end()
            report.wrong += [f"the job ended with {code}"] * (code != 0)
            report.wrong += traces.left(own_network=options.own_network)
            if not report.wrong:
                compare(running, work, Path(place), MACHINES + 1 * options.demo, report)
        except Stuck as stuck:
            report.wrong.append(str(stuck))
        finally:
            running.kill()
        if report.wrong:
            print(running.output.read_text(errors="replace")[-8000:], file=sys.stderr)
    report.seconds = round(time.monotonic() - begun_s, 1)
    return report


def _command(work: Work, machines: int, standbys: int) -> list[str]:
    numbers = ["--machines", str(machines), "--standbys", str(standbys), "--max-restarts", "1000"]
    numbers += ["--wait-for-machine", "60"]
    return [*numbers, work.script, *work.arguments]


def _disturb(
    running: Running,
    traces: Traces,
    dice: random.Random,
    faults: list[Fault],
    seconds: float,
    report: Report,
) -> None:
    """Until the time is over."""
    running.until(lambda: running.ready(READY_MIN), "a first standby")
    until_s = time.monotonic() + seconds
    controllers: list[float] = []
    while time.monotonic() < until_s and not running.over:
        calm = running.step() + CALM_STEPS
        running.until(partial(_has_come_to, running, calm), "a few calm steps")
        running.until(lambda: _enough(running), "enough standbys")
        traces.note()
        time.sleep(dice.random() * 0.3)  # the random moment itself
        now_s = time.monotonic()
        controllers = [at_s for at_s in controllers if now_s - at_s < MINUTE_S]
        few = len(controllers) < CONTROLLERS_KILLED_MAX
        fault = dice.choice([f for f in faults if few or "controller" not in f.__name__])
        controllers += [now_s] * ("controller" in fault.__name__)
        if not running.over:
            report.faults.append(fault(running, dice))
            print(f"{running.step():6} {report.faults[-1]}", file=sys.stderr, flush=True)
    running.until(lambda: running.ready(1), "the end of the last incident")


def _has_come_to(running: Running, step: int) -> bool:
    return running.step() >= step


def _enough(running: Running) -> bool:
    """Whether standbys are warm; brings machines if there are too few."""
    known = running.status()
    if known is not None:
        coming = [m for m in running.late if m.lives()]
        there = {machine["id"] for machine in known["machines"]}
        absent = [machine for machine in coming if machine.name not in there]
        if len(there) + len(absent) < MACHINES + STANDBYS:
            running.add_machine()
    return running.ready(READY_MIN)


def compare(running: Running, work: Work, place: Path, machines: int, report: Report) -> None:
    """With the same job left alone."""
    folder = place / "alone"
    folder.mkdir()
    alone = Running(folder, _command(work, machines, 0))
    try:
        code = alone.end()
    finally:
        alone.kill()
    if code:
        report.wrong.append(f"the job left alone ended with {code}")
        return
    job, calm = replay(running.journal), replay(alone.journal)
    report.incidents, report.takeovers = len(lately(job)), job.takeovers
    rows, expected = _rows(running.journal), _rows(alone.journal)
    report.steps = max(step for _, step in rows)
    if rows.keys() != expected.keys():
        report.wrong.append(f"steps lost or made up: {sorted(rows.keys() ^ expected.keys())[:5]}")
    elif report.steps != work.steps:
        report.wrong.append(f"{report.steps} steps, and not {work.steps}")
    other = [place for place, values in expected.items() if rows.get(place) != values]
    if other:
        report.wrong.append(f"other values at {other[:5]}")
    if {r: d for r, (_, d) in job.finished.items()} != {
        r: d for r, (_, d) in calm.finished.items()
    }:
        report.wrong.append("the final state is another")


def finish(
    running: Running, place: Path, machines: int, report: Report, traces: Traces | None = None
) -> None:
    """End a job of `Work.open_ended`, and compare it with one that was left alone."""
    (place / "done").touch()
    code = running.end()
    report.wrong += [f"the job ended with {code}"] * (code != 0)
    report.wrong += traces.left(own_network=False) if traces is not None else []
    if not report.wrong:
        (place / "hurry").touch()
        steps = max(step for _, step in _rows(running.journal))
        compare(running, Work.lasting(place, steps, place / "never"), place, machines, report)


def _rows(journal: Path) -> dict[tuple[int, int], dict[str, float]]:
    with Journal.open(journal) as opened:
        return {(row.rank, row.step): row.values for row in opened.rows()}


if __name__ == "__main__":
    sys.exit(main())
