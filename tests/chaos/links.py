"""`python tests/chaos/links.py FAULT`: train on hosts of their own, and have their network fail.

The controller is on one host, each machine on another (`chaos_net.py`). Every committed value and
the final state must equal those of the same job left alone on one host. What does not end by itself
stays until twenty steps have followed.
"""

import argparse
import json
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from itertools import permutations
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

from chaos_net import CUT, Net, Way, why_none
from chaos_run import Running, end_in_order
from drive import Report, Work, compare

from trainmover.controller.change.incidents import lately
from trainmover.journal.replay import replay

MACHINES, STANDBYS = 3, 2
HOST_OF_CONTROLLER = 0
SETTLE_STEPS = 60
"""A rank learns its own deadline from 32."""
WORKERS = [*range(1, MACHINES + STANDBYS + 1)]
SLOW = Way(delay_s=0.1, bytes_s=1e6)


@dataclass
class Seen(Report):
    """detect_ms: from the fault to the incident; went: machines that lost their ranks for it."""

    fault: str = ""
    detect_ms: float | None = None
    went: list[str] = field(default_factory=list)
    causes: list[str] = field(default_factory=list)


def cut(net: Net) -> None:
    """Between m1 and m2, both ways; both still reach all others."""
    net.set(CUT, (1, 2), (2, 1))


def one_way(net: Net) -> None:
    """What m1 says to m2 does not arrive."""
    net.set(CUT, (1, 2))


def alone(net: Net) -> None:
    """m2 is cut from everybody."""
    net.set(CUT, *_of(2))


def deaf(net: Net) -> None:
    """What the controller says to m2 does not arrive."""
    net.set(CUT, (HOST_OF_CONTROLLER, 2))


def flapping(net: Net) -> None:
    """Between m1 and m2, seven times for less than a second."""
    for number in range(7):
        net.set(CUT, (1, 2), (2, 1))
        time.sleep(0.1 + 0.1 * number)
        net.heal()
        time.sleep(1.0)


def gone(net: Net) -> None:
    """Between all machines, for a while: no machine is to blame, it is waited for."""
    net.set(CUT, *permutations(WORKERS, 2))
    time.sleep(15.0)
    net.heal()


def slow(net: Net) -> None:
    """From and to m2: a megabyte a second, and 100 ms each way."""
    net.set(SLOW, *_of(2))


FAULTS: dict[str, Callable[[Net], None]] = {
    "cut": cut,
    "one-way": one_way,
    "alone": alone,
    "deaf": deaf,
    "flapping": flapping,
    "gone": gone,
    "slow": slow,
}
GOES = {"cut": {"m1", "m2"}, "one-way": {"m1", "m2"}, "alone": {"m2"}, "deaf": {"m2"}}
"""One of them, and no other machine."""


def main() -> int:
    """0 if all is well."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("fault", choices=sorted(FAULTS))
    fault = parser.parse_args().fault
    if reason := why_none():
        print(reason, file=sys.stderr)
        return 1
    end_in_order()
    report = _drive(fault)
    print(json.dumps(report.__dict__, indent=1))
    return 1 if report.wrong else 0


def _of(host: int) -> list[tuple[int, int]]:
    others = [other for other in [HOST_OF_CONTROLLER, *WORKERS] if other != host]
    return [(host, other) for other in others] + [(other, host) for other in others]


def _drive(fault: str) -> Seen:
    report = Seen(0, fault=fault)
    begun_s = time.monotonic()
    net = Net(1 + len(WORKERS))
    try:
        with tempfile.TemporaryDirectory(prefix="links-") as place:
            _run(net, Path(place), report)
    finally:
        net.close()
    report.seconds = round(time.monotonic() - begun_s, 1)
    return report


def _run(net: Net, place: Path, report: Seen) -> None:
    hurry, folder = place / "hurry", place / "disturbed"
    folder.mkdir()
    work = Work.small(18.0, hurry, place)
    net.enter(HOST_OF_CONTROLLER)
    bind = ["--bind", net.address(HOST_OF_CONTROLLER)]
    numbers = ["--machines", str(MACHINES), "--standbys", str(STANDBYS)]
    running = Running(folder, [*bind, *numbers, work.script, *work.arguments])
    try:
        running.until(lambda: running.run(), "a run")
        for host in WORKERS:
            running.start_machine(net, host, standby=host > MACHINES)
        running.until(lambda: running.ready(STANDBYS), "a first standby")
        running.until(partial(_has_come_to, running, SETTLE_STEPS), "the first steps")
        struck_us = time.time_ns() // 1000
        FAULTS[report.fault](net)
        known = running.step()
        running.until(partial(_has_come_to, running, known + 20), "steps after the fault")
        _read(running, struck_us, report)
        net.heal()
        hurry.touch()
        code = running.end()
        report.wrong += [f"the job ended with {code}"] * (code != 0)
        if not report.wrong:
            compare(running, work, place, MACHINES, report)
        _judge(report)
    finally:
        print(running.output.read_text(errors="replace")[-4000:], file=sys.stderr)
        running.kill()


def _has_come_to(running: Running, step: int) -> bool:
    return running.step() >= step


def _read(running: Running, struck_us: int, report: Seen) -> None:
    job = replay(running.journal)
    report.incidents = len(lately(job))
    report.causes = [incident.cause for incident in lately(job)]
    report.went = [incident.machine for incident in lately(job) if incident.machine]
    if lately(job):
        report.detect_ms = (lately(job)[0].marks["detect"] - struck_us) / 1000.0


def _judge(report: Seen) -> None:
    """The right machine went, or none did."""
    may = GOES.get(report.fault, set())
    if set(report.went) - may or (may and len(report.went) != 1):
        report.wrong.append(f"{report.went or 'nobody'} went, and not one of {sorted(may)}")


if __name__ == "__main__":
    sys.exit(main())
