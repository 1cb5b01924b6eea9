"""A habit run in three ways, and what came of it.

plain      as torchrun would: ranks, groups, sums in the same order, nothing of a job
calm       by trainmover, and nothing goes wrong
disturbed  the same with one fault, when a standby is ready or it was said why none will be

    python tests/e2e/scripts/arms.py [PART OF A NAME ...] [--seed N] [--place PLACE] [--all]

prints what each habit comes to now, one line each.
"""

import argparse
import asyncio
import atexit
import contextlib
import dataclasses
import io
import json
import os
import random
import re
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import StrEnum
from functools import cache
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[3]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import harness
from habits import HABITS, Habit
from harness import Live, Outcomes, run

from bench.ports import free_port
from trainmover import communicators
from trainmover.controller.state import MachineState

PLAIN = str(Path(__file__).with_name("plain.py"))
SAID = "said: "
ENDS, AS_PLAIN = "ends with", "as plain"
PACE_S = 0.004
STUCK_S, STANDS_S = 30, 8
"""For anything to happen; for an incident to end, before a later fault's step is in the way."""
COMES_S, LOOKS_EVERY_S = 10, 0.01
"""For all ranks to come to the step of a fault: else all faults might hit one step."""
LINES_LOST = 10
"""Printed lines that a machine may take with it as it dies: they were on their way."""
SEEN, KNOWN_S = 4, 6
"""Step at which a standby sees a rank for the first time, and seconds for what is known then: that
it changes, or that cuts are needed."""
Rows = dict[tuple[int, int], dict[str, float]]


class Place(StrEnum):
    """Where a run is disturbed: a machine moves, or a machine or worker dies there."""

    MOVED = "moved"
    COMPUTE = "compute"
    GATE = "gate"
    PASSED = "passed"
    BETWEEN = "between"


@dataclass(frozen=True)
class Fault:
    """One, behind step `hold`, where all ranks wait until a standby is ready.

    place    None: whatever the worker is at, `delay_s` after the ranks go on
    another  slot whose worker dies too, while the job is busy with this fault
    """

    place: Place | None
    slot: int
    hold: int
    delay_s: float = 0.0
    another: int | None = None

    def __str__(self) -> str:
        place = self.place or f"{self.delay_s * 1000:.0f} ms on"
        another = "" if self.another is None else f", then slot {self.another}"
        return f"slot {self.slot} behind step {self.hold}: {place}{another}"

    def drill(self, habit: Habit) -> str:
        """What TRAINMOVER_DRILL is to say, where the fault is one; of a first fault only."""
        if self.place in (None, Place.MOVED) or self.dies_in_script(habit):
            return ""
        machine, step = f"m{self.slot + 1}", self.hold + 2
        if self.place is not Place.BETWEEN:
            return f"{machine}:{self.place}:{step}:kill"
        # A step may fetch nothing, such as an evaluation, or one of four that share a batch.
        return ",".join(f"{machine}:fetch:{later}:kill" for later in range(step, step + 4))

    def dies_in_script(self, habit: Habit) -> bool:
        return self.place is Place.BETWEEN and habit.moment


def fault_of(habit: Habit, seed: str, place: Place | None = None) -> Fault:
    """The one that a seed means for this habit."""
    chance = random.Random(f"{seed} {habit.name} {place}")
    hold = chance.randrange(*habit.holds)
    chosen = place or chance.choice(list(Place))
    return Fault(chosen, chance.randrange(habit.machines), hold)


@dataclass
class Arm:
    """What is left of one run.

    told       before its first fault: why standbys were refused, or how it ended
    ready      a standby was, by then
    disturbed  it came to that fault
    """

    code: int
    rows: Rows
    digests: dict[int, str]
    printed: list[str]
    sentences: list[str] = field(default_factory=list)
    told: list[str] = field(default_factory=list)
    ready: bool = False
    disturbed: bool = False
    incidents: int = 0


# --- three ways --------------------------------------------------------------------------------


@cache
def _plain_server() -> "subprocess.Popen[str]":
    server = subprocess.Popen(
        [sys.executable, PLAIN],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"OMP_NUM_THREADS": "1"},  # as workers have it, read while importing
        text=True,
    )
    atexit.register(server.kill)
    return server


def plain(habit: Habit) -> Arm:
    server = _plain_server()
    assert server.stdin is not None
    assert server.stdout is not None
    comm = os.environ.get(harness.COMM) or communicators.default()
    order = {"script": str(habit.path), "ranks": habit.ranks, "comm": comm}
    order |= {"argv": _steps(habit), "port": free_port()}
    server.stdin.write(json.dumps(order) + "\n")
    server.stdin.flush()
    told = json.loads(server.stdout.readline())
    rows = {(rank, step): dict(sorted(values.items())) for rank, step, values in told["rows"]}
    digests = {int(rank): digest for rank, digest in told["digests"].items()}
    return Arm(told["code"], rows, digests, _said(told["printed"]))


def calm(habit: Habit) -> Arm:
    return _arm(run(_steps(habit), standbys=0, **_shape(habit)))


def disturbed(habit: Habit, *faults: Fault) -> Arm:
    """One fault after the other; only the first may be a drill, whose machine is known."""
    seen = Arm(0, {}, {}, [])
    with tempfile.TemporaryDirectory(prefix="tm-orders-") as folder, _sooner_stuck():

        async def scenario(live: Live) -> None:
            if habit.refused or habit.alone:
                await _let_it_be_known(live, habit, Path(folder))
            for count, fault in enumerate(faults, 1):
                await _disturb(live, fault, habit, Path(folder), seen)
                await _until_over(live, count, faults, Path(folder))
                (Path(folder) / "slow").unlink(missing_ok=True)

        holds = [str(SEEN)] * (habit.refused or habit.alone) + [str(fault.hold) for fault in faults]
        argv = ["--pace", str(PACE_S), "--orders", folder, "--holds", *holds]
        argv += _steps(habit)
        moves = sum(fault.place is Place.MOVED for fault in faults)
        standbys = len(faults) - moves + min(moves, 1)  # Who has moved is a standby again.
        standbys += sum(fault.another is not None for fault in faults)
        drill = faults[0].drill(habit)
        outcome = run(argv, scenario, standbys=standbys, drill=drill, **_shape(habit))
    arm = _arm(outcome)
    told = seen.told if seen.disturbed else [*outcome.sentences, outcome.text]
    return dataclasses.replace(arm, told=told, ready=seen.ready, disturbed=seen.disturbed)


def _said(lines: list[str]) -> list[str]:
    return [line for line in lines if line.startswith(SAID)]


def _steps(habit: Habit) -> list[str]:
    return ["--steps", str(habit.steps)]


def _shape(habit: Habit) -> dict[str, Any]:
    return {"machines": habit.machines, "nproc": habit.nproc, "script": str(habit.path)}


def _arm(outcome: Outcomes) -> Arm:
    sentences = [*outcome.sentences, outcome.text]
    printed = _said("".join(outcome.printed).splitlines())
    incidents = len(outcome.job.incidents)
    return Arm(outcome.code, outcome.rows, outcome.digests, printed, sentences, incidents=incidents)


async def _let_it_be_known(live: Live, habit: Habit, orders: Path) -> None:
    """A standby may have to see the rank at two steps before it knows what it cannot take over; and
    a cut is taken at the gate behind the order for it, before all stand at the fault."""
    with contextlib.suppress(TimeoutError):
        await _until_ready(live, habit)
        if habit.refused:
            (orders / f"go-{SEEN}").touch()
        known = _is_refused if habit.refused else _takes_cuts
        await asyncio.wait_for(live.until(lambda: known(live)), KNOWN_S)
    (orders / f"go-{SEEN}").touch()


async def _disturb(live: Live, fault: Fault, habit: Habit, orders: Path, seen: Arm) -> None:
    waits = [_until_ready(live, habit), _until_held(habit, fault, orders)]
    if habit.alone:
        waits.append(asyncio.wait_for(live.until(lambda: live.job.cut is not None), COMES_S))
    if habit.refused:
        waits.append(asyncio.wait_for(live.until(lambda: _is_refused(live)), KNOWN_S))
    for wait in waits:
        with contextlib.suppress(TimeoutError):
            await wait
    with contextlib.suppress(TimeoutError):  # A standby may have begun anew meanwhile.
        await _until_ready(live, habit)
    if not seen.disturbed:
        notes = [f"{machine.id}: {machine.note}" for machine in live.job.machines.values()]
        seen.disturbed, seen.ready, seen.told = True, _is_warm(live), notes
    if fault.place is Place.MOVED:
        (orders / "slow").touch()
        live.handle.move(live.job.seats[fault.slot])
    if fault.dies_in_script(habit):
        (orders / f"die-{fault.slot * habit.nproc}").touch()
    (orders / f"go-{fault.hold}").touch()
    if fault.place is None:
        await asyncio.sleep(fault.delay_s)  # the random moment itself
        live.signal_worker(live.job.seats[fault.slot])
    if fault.another is not None:
        await live.until(lambda: live.job.change is not None)
        live.signal_worker(live.job.seats[fault.another])


async def _until_over(live: Live, count: int, faults: Sequence[Fault], orders: Path) -> None:
    """Ranks may stand behind the step of a later fault by now, where a slow move or a late signal
    has let them come: nothing that this fault began would end there."""
    _let_go_on([later for later in faults if later.hold <= live.step()], orders)
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(live.incidents_done(count), STANDS_S)
        return
    _let_go_on(faults, orders)  # The newest step need not be known yet.
    await live.incidents_done(count)


def _let_go_on(faults: Sequence[Fault], orders: Path) -> None:
    for fault in faults:
        (orders / f"go-{fault.hold}").touch()


async def _until_ready(live: Live, habit: Habit) -> None:
    """Or refused. Raises TimeoutError."""
    known = live.until(lambda: _is_ready(live) or _is_refused(live))
    await asyncio.wait_for(known, habit.ready_s)


async def _until_held(habit: Habit, fault: Fault, orders: Path) -> None:
    """All ranks wait behind the step of this fault, or were let go. Raises TimeoutError."""
    go = orders / f"go-{fault.hold}"
    there = [orders / f"at-{fault.hold}-{rank}" for rank in range(habit.ranks)]
    async with asyncio.timeout(COMES_S):
        while not go.exists() and not all(path.exists() for path in there):
            await asyncio.sleep(LOOKS_EVERY_S)


def _is_ready(live: Live) -> bool:
    """A standby makes the run that it is to hold, or holds it already."""
    machines = live.job.machines.values()
    holds = any(one.state is MachineState.HOLDING or one.held is not None for one in machines)
    return live.job.change is None and holds


def _is_warm(live: Live) -> bool:
    """As good, if slower: it has made its shadow steps, and holds no run, or not yet."""
    states = {machine.state for machine in live.job.machines.values()}
    return bool(states & {MachineState.WARM, MachineState.HOLDING})


def _is_refused(live: Live) -> bool:
    return any(machine.note for machine in live.job.machines.values())


def _takes_cuts(live: Live) -> bool:
    return live.job.snapshot_every > 0


@contextlib.contextmanager
def _sooner_stuck() -> Iterator[None]:
    before, harness.QUIET_S = harness.QUIET_S, STUCK_S
    yield
    harness.QUIET_S = before


# --- what came of it ---------------------------------------------------------------------------


class Verdict(StrEnum):
    """The first two are what a habit is to come to; all others are wrong, the first ones most."""

    EQUAL = "equal, bit for bit"
    REFUSED = "refused beforehand, with file and line"
    SILENT = "other numbers, exit status 0"
    ACCUSED = "equal, but something healthy was accused"
    STUCK = "stood still"
    LATE = "ended at the incident, with file and line"
    ENDED = "ended"
    ALONE = "equal, but no standby was ready"
    SPARED = "nothing was disturbed"


ACCUSATIONS = ("corruption", "bits have changed", "Mend the script")


def verdict(habit: Habit, arm: Arm, expected: Arm) -> tuple[Verdict, str]:
    """Of a run beside an undisturbed one, and why."""
    place = re.compile(rf"({re.escape(habit.path.name)}|kit\.py)(:| line )\d+")
    beforehand = [text for text in arm.told if place.search(text)]
    if arm.code == 98:
        return Verdict.STUCK, _end(arm)
    if arm.code != 0:
        if beforehand:
            return Verdict.REFUSED, beforehand[0]
        named = [text for text in arm.sentences if place.search(text)]
        return (Verdict.LATE, named[-1]) if named else (Verdict.ENDED, _end(arm))
    if difference := differs(arm, expected) if habit.alike else parts(arm):
        return Verdict.SILENT, difference
    if beforehand and not arm.ready:
        return Verdict.REFUSED, beforehand[0]
    if accused := [text for text in arm.sentences if any(word in text for word in ACCUSATIONS)]:
        return Verdict.ACCUSED, accused[0]
    if not arm.ready:
        return Verdict.ALONE, " | ".join(arm.told[-3:])
    if arm.incidents == 0:
        return Verdict.SPARED, _end(arm)
    return Verdict.EQUAL, ""


def differs(arm: Arm, expected: Arm) -> str:
    """The first thing that is not as expected; "" if all is."""
    missing = arm.rows.keys() ^ expected.rows.keys()
    if missing:
        return f"{len(missing)} rows on one side only, first {min(missing, key=lambda k: k[1])}"
    # Texts tell every number from every other, and a NaN is itself.
    other = [key for key, values in expected.rows.items() if str(arm.rows[key]) != str(values)]
    if other:
        rank, step = min(other, key=lambda key: key[1])
        values = f"{arm.rows[rank, step]}, not {expected.rows[rank, step]}"
        return f"{len(other)} of {len(expected.rows)} rows, first of {step=}, {rank=}: {values}"
    if arm.digests != expected.digests:
        ranks = [rank for rank in expected.digests if arm.digests[rank] != expected.digests[rank]]
        return f"the final state of ranks {ranks}"
    return _printed_differs(arm.printed, expected.printed)


def parts(arm: Arm) -> str:
    """Where what each rank reports is its own, and stays: the first step where it does not."""
    first = {rank: values for (rank, step), values in arm.rows.items() if step == 1}
    if len({str(values) for values in first.values()}) < len(first):
        return "ranks have drawn the same"
    other = [key for key, values in arm.rows.items() if values != first[key[0]]]
    return f"first of step {min(step for _, step in other)}" if other else ""


def _printed_differs(printed: list[str], expected: list[str]) -> str:
    """A machine that dies may take its last lines with it, and steps made again are said again."""
    made_up = [line for line in printed if line not in expected]
    if made_up:
        return f"it printed {made_up[0]!r}"
    if printed[-1:] != expected[-1:] or len(set(printed)) < len(set(expected)) - LINES_LOST:
        return f"{len(set(expected) - set(printed))} lines were not printed"
    return ""


def _end(arm: Arm) -> str:
    return " | ".join(text for text in arm.sentences[-3:] if text)


def judge(habit: Habit, *faults: Fault, expected: Arm | None = None) -> tuple[Verdict, str]:
    """Of this habit under these faults, beside an undisturbed run: its plain one, if none is given
    and it came to its end."""
    arm = disturbed(habit, *faults)
    if expected is None:
        expected = expected_of(habit) if arm.code == 0 else arm
    found, why = verdict(habit, arm, expected)
    if found in (Verdict.LATE, Verdict.ENDED) and plain(habit).code:
        return Verdict.ENDED, f"by itself, plainly too: {why}"
    return found, why


@cache
def expected_of(habit: Habit) -> Arm:
    arm = plain(habit)
    assert arm.code == 0, f"{habit} fails by itself"
    return arm


def differs_calm(habit: Habit) -> str:
    """Whether a run by trainmover without any fault is another than the plain one, and how."""
    arm = calm(habit)
    if arm.code:
        return f"{ENDS} {arm.code}"
    return (differs(arm, expected_of(habit)) if habit.alike else parts(arm)) or AS_PLAIN


def as_promised(habit: Habit, found: Verdict) -> bool:
    if habit.seldom:
        return found in (Verdict.EQUAL, Verdict.REFUSED)
    return found is (Verdict.REFUSED if habit.refused else Verdict.EQUAL)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("names", nargs="*")
    parser.add_argument("--seed", default="0")
    parser.add_argument("--place", choices=list(Place))
    parser.add_argument("--list", action="store_true", help="the table, and run nothing")
    parser.add_argument("--all", action="store_true", help="places")
    options = parser.parse_args()
    if options.list:
        for habit in HABITS:
            print(f"{habit.name:28} {'refused' if habit.refused else 'equal':8} {habit.shows}")
        return
    for habit in HABITS:
        if options.names and not any(name in habit.name for name in options.names):
            continue
        for place in list(Place) if options.all else [options.place and Place(options.place)]:
            begun_s = time.monotonic()
            fault = fault_of(habit, options.seed, place)
            with contextlib.redirect_stdout(io.StringIO()):
                found, why = judge(habit, fault)
            mark = "  " if as_promised(habit, found) else "!!"
            took = time.monotonic() - begun_s
            line = f"{mark} {habit.name:32} {fault.place:8} {took:5.1f} s  {found.name}"
            print(f"{line}: {why[:400]}" if why else line, flush=True)


if __name__ == "__main__":
    main()
