# SPDX-License-Identifier: Apache-2.0
"""What does it cost to change a job's machines again and again? Beside saving and restarting.

    python -m bench.rebalance            4 and 8 machines, about eight minutes
    python -m bench.rebalance --quick    4 machines, three changes

Machines of one rank on this host, and one standby. Every ten seconds another assignment of slots to
machines is asked for (`place`): the standby gets the next slot, and who had it is the standby then.
A pause is the longest gap between two steps of a rank that stays, less the median step; steps last
about a tenth of a second and leave the cores partly idle. Lost is the sum of all pauses, of the
time from the first change to ten seconds behind the last. What a change every ten minutes would
lose follows from the mean pause; the worst one is shown beside it. A second arm changes as often as
the paper does by the measure of its own pause (Fig. 16: 0.98 with a change every ten minutes, so
every 50 pauses): it is reported only.

The restart beside it: torchrun's, saved and started again where it was, with the pause that it has
in this very sitting. It trains another model, of shorter steps, which is kind to it.
"""

import asyncio
import os
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from bench import ours_arm, result
from bench.gaps import Mark, median_step_ms, worst_gap
from bench.torchrun_arm import torchrun_job
from trainmover.controller.change.incidents import lately
from trainmover.controller.state import Incident, Outcome
from trainmover.journal import Journal
from trainmover.launch.run_job import RunHandle, RunOptions, run_job
from trainmover.protocol.messages import LogSpec
from trainmover.server.view.notices import Notice

EVERY_S = 10.0
LATER_S = 600.0
PAUSES = 50
"""From one change to the next in the paper, by its own loss of 2 %."""
LOST_MOST, LOST_LATER_MOST = 1.0, 0.1
SCRIPT = Path(__file__).parent / "straggler" / "job.py"
PRODUCTS = {2: 15, 4: 15, 8: 4}
"""Of matrices in each piece of a step, by machines: so that the cores are partly idle."""
GPT_ARGS = ["--steps", "1000000", "--log-every", "1000000"]


@dataclass(frozen=True)
class Ran:
    """One job. over_s: the time in which its changes were; late_s: from each tick to its change's
    end."""

    machines: int
    every_s: float
    over_s: float
    step_ms: float
    pauses_ms: list[float]
    late_s: list[float]
    equal: bool

    @property
    def lost(self) -> float:
        """Percent of the time."""
        return sum(self.pauses_ms) / 10 / self.over_s

    def lost_every(self, every_s: float) -> float:
        """Percent, with a change so often: by arithmetic from the mean pause."""
        return statistics.mean(self.pauses_ms) / 10 / every_s


class Changes:
    """Asked for, one after the other, of a job under way."""

    def __init__(self, every_s: float, times: int) -> None:
        self._every_s = every_s
        self._times = times
        self._changed = asyncio.Event()
        self._task: asyncio.Task[None] | None = None
        self.late_s: list[float] = []
        self.over_s = 0.0

    def begin(self, handle: RunHandle) -> None:
        ours_arm.limited(handle)
        self._task = asyncio.ensure_future(self._make(handle))

    def changed(self, notice: Notice, handle: RunHandle) -> None:
        self._changed.set()

    async def _make(self, handle: RunHandle) -> None:
        try:
            await self._all(handle)
        finally:  # Refused or not: who waits for the job sees how many there were.
            handle.stop(0, "the bench has what it wants")

    async def _all(self, handle: RunHandle) -> None:
        job = lambda: handle.server.job  # noqa: E731
        await self._until(lambda: ours_arm.quiet(job()) and ours_arm.ready(job(), "held"))
        await asyncio.sleep(2)
        begun = time.monotonic()
        for number in range(self._times):
            due = begun + number * self._every_s
            await asyncio.sleep(max(0.0, due - time.monotonic()))
            seats = [*job().seats]
            seats[number % len(seats)] = ours_arm.standbys(job())[0].id
            answer = await handle.server.place(seats)
            if not answer.ok:
                raise RuntimeError(f"a change was refused: {answer}")
            await self._until(lambda: [*job().seats] == seats and ours_arm.quiet(job()))  # noqa: B023
            self.late_s.append(time.monotonic() - due)
        await asyncio.sleep(max(0.0, begun + self._times * self._every_s - time.monotonic()))
        self.over_s = time.monotonic() - begun

    async def _until(self, fact: Callable[[], bool]) -> None:
        while not fact():
            self._changed.clear()
            await self._changed.wait()


def ran(machines: int, every_s: float, times: int) -> Ran:
    """One job. Raises RuntimeError if a change did not come to its end."""
    changes = Changes(every_s, times)
    with tempfile.TemporaryDirectory(prefix="bench-rebalance-") as folder:
        journal = Path(folder) / "journal.sqlite"
        options = RunOptions(
            argv=[str(SCRIPT), "--products", str(PRODUCTS[machines])],
            machines=machines,
            standbys=1,
            journal=journal,
            log=LogSpec(show=[]),
        )
        ended = run_job(options, on_change=changes.changed, on_ready=changes.begin)
        with Journal.open(journal) as source:
            marks = [Mark(row.rank, row.step, row.at_us) for row in source.rows()]
    done = [one for one in lately(ended.job) if one.outcome is Outcome.DONE]
    if ended.code or len(done) != times:
        raise RuntimeError(f"wanted {times} changes, got {len(done)}: {ended.text}")
    pauses = [_pause_ms(one, marks, machines) for one in done]
    equal = all(one.equal for incident in done for one in incident.certificates)
    step_ms = median_step_ms(marks)
    return Ran(machines, every_s, changes.over_s, step_ms, pauses, changes.late_s, equal)


def _pause_ms(incident: Incident, marks: list[Mark], ranks: int) -> float:
    moments = incident.marks.values()
    stayers = [rank for rank in range(ranks) if rank not in incident.ranks]
    gap = worst_gap(marks, stayers=stayers, from_us=min(moments), to_us=max(moments))
    assert gap is not None
    return gap.downtime_ms


def main() -> int:
    """Exit status 0 if every claim holds."""
    parser = result.parser("rebalance", __doc__, quick="few changes; no claim to be stable")
    options = parser.parse_args()
    sizes, times, every_s = ((4,), 3, EVERY_S) if options.quick else ((4, 8), 12, EVERY_S)
    if options.smoke:
        sizes, times, every_s = (2,), 2, 1.0
    loads, often, as_paper = [os.getloadavg()[0]], [], []
    for machines in sizes:
        often.append(_said(ran(machines, every_s, times)))
        loads.append(os.getloadavg()[0])
        if not options.quick:
            pause_s = statistics.mean(often[-1].pauses_ms) / 1000
            as_paper.append(_said(ran(machines, PAUSES * pause_s, times)))
    restart_ms = [] if options.smoke else restarts(1 if options.quick else 3)
    loads.append(os.getloadavg()[0])
    claims, table = judge(often), tabulated(often, as_paper, restart_ms)
    raw = {
        "often": [asdict(one) for one in often],
        "as_paper": [asdict(one) for one in as_paper],
        "restart_ms": restart_ms,
    }
    where = result.setting(loads)
    path = result.write("rebalance", claims, table, where, raw, quick=options.quick)
    return result.say("rebalance", claims, [*table, f"written to {path}"], as_json=options.json)


def restarts(times: int) -> list[float]:
    """Return the milliseconds that a planned restart by torchrun takes, each time."""
    with torchrun_job(GPT_ARGS) as job:
        return [job.planned().downtime_ms for _ in range(times)]


def judge(often: Sequence[Ran]) -> list[result.Claim]:
    """The claims with what was measured."""
    claims = []
    for one in often:
        said = f"{one.machines} machines"
        at_later = one.lost_every(LATER_S)
        claims += [
            result.Claim(f"time lost, a change every 10 s, {said}", one.lost, "%", LOST_MOST),
            result.Claim(f"the same every 10 min, {said}", at_later, "%", LOST_LATER_MOST),
        ]
    unequal = sum(not one.equal for one in often)
    return [*claims, result.Claim("jobs with a state that was not equal", unequal, "jobs", 0)]


def tabulated(
    often: Sequence[Ran], as_paper: Sequence[Ran], restart_ms: Sequence[float]
) -> list[str]:
    """What was lost, by arm."""
    lines = [
        "| machines | a change every | changes | step | pause: mean, worst | done after | lost |"
    ]
    lines.append("|---|---|---|---|---|---|---|")
    lines += [_row(one) for one in [*often, *as_paper]]
    if not restart_ms:
        return lines
    pause_s = statistics.median(restart_ms) / 1000
    often_lost, later_lost = (_percent(_of_restart(pause_s, every)) for every in (EVERY_S, LATER_S))
    lines += [
        "",
        f"Save and restart, with torchrun: {pause_s:.1f} s each time. Every 10 s it loses "
        f"{often_lost}, every 10 min {later_lost}.",
    ]
    return lines


def _of_restart(pause_s: float, every_s: float) -> float:
    """Percent of the time; all of it, where the next one is due before it trains again."""
    return min(100.0, 100 * pause_s / every_s)


def _row(one: Ran) -> str:
    pauses = f"{statistics.mean(one.pauses_ms):.0f}, {max(one.pauses_ms):.0f} ms"
    cells = [
        str(one.machines),
        f"{one.every_s:.1f} s",
        str(len(one.pauses_ms)),
        f"{one.step_ms:.0f} ms",
        pauses,
        f"{statistics.median(one.late_s):.1f} s",
        _percent(one.lost),
    ]
    return f"| {' | '.join(cells)} |"


def _percent(value: float) -> str:
    return f"{value:.2f} %"


def _said(one: Ran) -> Ran:
    pauses = ", ".join(f"{pause:.0f}" for pause in one.pauses_ms)
    text = f"{one.machines} machines, every {one.every_s:.1f} s: pauses {pauses} ms"
    print(f"{text}, lost {_percent(one.lost)}", file=sys.stderr, flush=True)
    return one


if __name__ == "__main__":
    sys.exit(main())
