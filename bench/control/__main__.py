# SPDX-License-Identifier: Apache-2.0
"""What deciding costs as a job grows: the controller without sockets, machines that obey at once.

    python -m bench.control            up to 16,384 machines, some minutes
    python -m bench.control --quick    up to 2,048

steady    one event outside of any incident, at ten machines and at most of them: a beat of the
          clock, and a snapshot that is said to be safe
one lost  everything that is decided from the loss of one machine to the first commit after it, by
          all; the seconds are processor time of one core
many      1,000 machines (a quarter) lost at once, with as many standbys: that one decision
journal   what committed steps take on disk, of 1,000 ranks at one step a second
live      2,000 agents of 8 ranks at a real controller (`live.py`): processor time of its process
          for a second, which is one step of all and five beats of each; until the orders that
          follow from a machine's loss are written to all others; and for the status. Then the same
          with relays
"""

import os
import resource
import statistics
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from random import Random
from typing import TypeVar

from bench import result
from bench.control.live import Live
from bench.control.live import measured as live_of
from bench.control.machines import Machines
from bench.control.obedient import STEP
from trainmover.controller import Job, decide
from trainmover.controller.events import EVENTS, Tick, WorkerSaid
from trainmover.ids import Epoch, MachineId, Rank, Step
from trainmover.journal import Journal
from trainmover.protocol import messages as m

LARGE, LARGE_QUICK, SMALL = 16_384, 2_048, 10
MANY, MANY_QUICK = 4_000, 1_000
STEADY_MOST, INCIDENT_S_MOST, MANY_S_MOST, MEMORY_MB_MOST = 2.0, 5.0, 1.0, 300.0
JOURNAL_MB_MOST = 50.0
EVENTS_TIMED, JOURNAL_RANKS, JOURNAL_STEPS = 200, 1_000, 120
AGENTS, AGENTS_QUICK, NPROC, LIVE_STEPS = 2_000, 100, 8, 5
STEP_CPU_S_MOST, ORDERS_S_MOST, STATUS_S_MOST = 0.5, 0.2, 0.05
ABOVE, ABOVE_QUICK, CARRIED_MOST = 256, 64, 0.75
R = TypeVar("R")


@dataclass(frozen=True)
class Size:
    """A job of so many machines. us: of one event, by its name."""

    machines: int
    started_s: float
    incident_s: float
    events: int
    us: dict[str, float]


def main() -> int:
    """Exit status 0 if every claim holds."""
    parser = result.parser("control", __doc__, quick="smaller jobs; no claim to be stable")
    options = parser.parse_args()
    large, many = (LARGE_QUICK, MANY_QUICK) if options.quick else (LARGE, MANY)
    middle: tuple[int, ...] = (100, 1_000)
    steps, live_steps = JOURNAL_STEPS, LIVE_STEPS
    agents, above = (AGENTS_QUICK, ABOVE_QUICK) if options.quick else (AGENTS, ABOVE)
    if options.smoke:
        large, many, middle, steps, live_steps, agents, above = 64, 64, (), 5, 2, 12, 4
    loads = [os.getloadavg()[0]]
    sizes = [measured(machines) for machines in (SMALL, *middle, large)]
    many_s = lost_at_once(many, many // 4)
    memory_mb = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    journal_mb = journal_an_hour(steps)
    live = live_of(agents, NPROC, live_steps)
    carried = live_of(agents, NPROC, live_steps, relays_above=above)
    loads.append(os.getloadavg()[0])
    claims = [*judge(sizes, many_s, memory_mb, journal_mb), *judge_live(live)]
    claims += judge_carried(live, carried)
    table = [*tabulated(sizes), "", *tabulated_live(live, carried)]
    raw = {"sizes": [vars(size) for size in sizes], "many_s": many_s, "journal_mb": journal_mb}
    raw |= {"live": vars(live), "carried": vars(carried)}
    path = result.write("control", claims, table, result.setting(loads), raw, quick=options.quick)
    return result.say("control", claims, [*table, f"written to {path}"], as_json=options.json)


def measured(machines: int) -> Size:
    world = Machines(machines, standbys=2)
    started_s, _ = _spent(lambda: sum(1 for _ in world.play(world.joins)))
    us = {"tick": _each_us(world.job, _ticks()), "snapped": _each_us(world.job, _snapped(machines))}
    loss = world.loss([MachineId("m2")])
    incident_s, events = _spent(lambda: sum(1 for _ in world.play([loss])))
    assert world.job.change is None
    assert world.job.seats[1] != "m2"
    print(f"{machines} machines: {incident_s:.2f} s", file=sys.stderr, flush=True)
    return Size(machines, started_s, incident_s, events, us)


def lost_at_once(machines: int, lost: int) -> float:
    """Seconds of the one decision on it."""
    world = Machines(machines, standbys=lost)
    for _ in world.play(world.joins):
        pass
    event = world.loss(MachineId(f"m{4 * number + 2}") for number in range(lost))
    spent_s, (job, effects) = _spent(lambda: decide(world.job, event))
    assert job.change is not None
    assert len(job.change.joiners) == lost
    assert len(effects) >= machines
    return spent_s


def journal_an_hour(steps: int = JOURNAL_STEPS) -> float:
    """MB, from two minutes: each rank has a number of its own, of eight bytes; they commit within
    some milliseconds, and are not all heard before it is written."""
    spec = m.JobSpec(run_id="bench", argv=["train.py"], machines=JOURNAL_RANKS)
    chance = Random(7)
    with tempfile.TemporaryDirectory(prefix="bench-control-") as folder:
        path = Path(folder) / "journal.sqlite"
        with Journal.create(path, spec) as journal:
            journal.checkpoint()
            empty = path.stat().st_size
            for step in map(Step, range(1, steps + 1)):
                told = [_told(rank, step, chance) for rank in map(Rank, range(JOURNAL_RANKS))]
                chance.shuffle(told)
                late = chance.randrange(len(told))
                for some in (told[:late], told[late:]):
                    journal.append_batches(m.columns_of(some), {"i": step})
                journal.checkpoint()
        taken = path.stat().st_size - empty
    return taken / 1e6 * 3600 / steps


def _told(rank: Rank, step: Step, chance: Random) -> m.Committed:
    at_us = step * 1_000_000 + chance.randrange(50_000)
    row = m.Row(step=step, at_us=at_us, values={"loss": chance.random()})
    return m.Committed(rank=rank, epoch=Epoch(1), rows=[row])


def _ticks() -> list[EVENTS]:
    return [Tick(at_us=0)] * EVENTS_TIMED


def _snapped(machines: int) -> list[EVENTS]:
    """Of the last ranks: as many as there are events, if there are so many, but for one."""
    ranks = list(map(Rank, range(machines)))[1:][-EVENTS_TIMED:]
    facts = [
        m.Snapped(rank=rank, epoch=Epoch(1), step=STEP, vault="v", bytes=1, cost_us=1, step_us=1)
        for rank in ranks
    ]
    names = [MachineId(f"m{rank + 1}") for rank in ranks]
    said = zip(names, facts, strict=True)
    return [WorkerSaid(at_us=0, machine=name, local_rank=0, fact=fact) for name, fact in said]


def _each_us(job: Job, events: list[EVENTS]) -> float:
    took = []
    for event in events:
        begun = time.process_time_ns()
        job, _ = decide(job, event)
        took.append((time.process_time_ns() - begun) / 1e3)
    return statistics.median(took)


def _spent(act: Callable[[], R]) -> tuple[float, R]:
    begun = time.process_time()
    made = act()
    return time.process_time() - begun, made


def judge(
    sizes: list[Size], many_s: float, memory_mb: float, journal_mb: float
) -> list[result.Claim]:
    small, large = sizes[0], sizes[-1]
    claims = [
        result.Claim(
            f"{name}: {large.machines} machines / {small.machines}",
            large.us[name] / small.us[name],
            "ratio",
            STEADY_MOST,
        )
        for name in small.us
    ]
    name = f"one of {large.machines} lost: everything decided"
    claims.append(result.Claim(name, large.incident_s, "s", INCIDENT_S_MOST))
    claims.append(result.Claim("a quarter lost at once: decided", many_s, "s", MANY_S_MOST))
    claims.append(result.Claim("memory of all this", memory_mb, "MB", MEMORY_MB_MOST))
    claims.append(
        result.Claim("journal of 1,000 ranks, an hour", journal_mb, "MB", JOURNAL_MB_MOST)
    )
    return claims


def judge_live(live: Live) -> list[result.Claim]:
    of = f"{live.agents} agents of {live.nproc} ranks"
    return [
        result.Claim(f"{of}, a step a second: of one core", live.cpu_s, "s", STEP_CPU_S_MOST),
        result.Claim(f"{of}, one lost: orders out", live.orders_s, "s", ORDERS_S_MOST),
        result.Claim(f"{of}: status", live.status_s, "s", STATUS_S_MOST),
    ]


def judge_carried(live: Live, carried: Live) -> list[result.Claim]:
    of = f"{live.agents} agents of {live.nproc} ranks, behind relays"
    share = carried.cpu_s / live.cpu_s
    return [
        result.Claim(f"{of} / without: a step", share, "ratio", CARRIED_MOST),
        result.Claim(f"{of}, one lost: orders out", carried.orders_s, "s", ORDERS_S_MOST),
    ]


def tabulated_live(*arms: Live) -> list[str]:
    """What is not judged too: by the clock, on a host that does other things beside."""
    return [
        "| agents | behind relays | ranks each | a step, s | orders, s | heard by all, s "
        "| recovered, s | status, s | memory, MB |",
        "|---|---|---|---|---|---|---|---|---|",
        *(
            f"| {live.agents} | {live.carried} | {live.nproc} | {live.cpu_s:.3f} "
            f"| {live.orders_s:.3f} | {live.heard_s:.2f} | {live.recovered_s:.1f} "
            f"| {live.status_s:.3f} | {live.memory_mb:.0f} |"
            for live in arms
        ),
    ]


def tabulated(sizes: list[Size]) -> list[str]:
    lines = ["| machines | start, s | one lost, s | events | each, us | tick, us | snapped, us |"]
    lines += ["|---|---|---|---|---|---|---|"]
    for one in sizes:
        each = one.incident_s / one.events * 1e6
        lines.append(
            f"| {one.machines} | {one.started_s:.2f} | {one.incident_s:.2f} | {one.events} "
            f"| {each:.0f} | {one.us['tick']:.0f} | {one.us['snapped']:.0f} |"
        )
    return lines


if __name__ == "__main__":
    sys.exit(main())
