# SPDX-License-Identifier: Apache-2.0
"""A job that nothing happens to goes on soon: the next commit comes within a bound.

Time counts from the last commit, or from when an outage last began or ended, and not while a row of
`NOT_COUNTED` is true. `FINDING` says how long it may take until the controller knows what holds the
ranks up, `GOING_ON` how long until they go on then. Of each the longest row counts that was true.
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any, NamedTuple

from trainmover.controller.change.price import can_be_given_up, can_be_replaced
from trainmover.controller.state import Job, MachineState, Phase
from trainmover.simulator import deadlines
from trainmover.simulator.checkers.losses.capacity import able
from trainmover.simulator.happenings import Violation
from trainmover.simulator.places.network import CONTROLLER
from trainmover.simulator.ranks.members import PATIENCE_MS
from trainmover.simulator.ranks.training import Gate
from trainmover.simulator.truth import executes, stands_well

if TYPE_CHECKING:
    from trainmover.simulator.world import World

LOOK_US = 100_000
LATE_S = 2.0
"""For beats, links that are slow, and agents that dial anew."""
WATCH_S = 5.0
"""The longest deadline of a rank's watch; who stands while members change, stands for two."""


class Seen:
    """A world at one moment. needed: machines that have ranks, or are to take some."""

    def __init__(self, world: "World") -> None:
        self.world, self.job, self.change = world, world.job, world.job.change
        joiners = self.change.joiners.values() if self.change is not None else ()
        self.needed = [world.boxes[name] for name in {*self.job.seats, *joiners}]
        self.processes = [worker for box in self.needed for worker in box.workers]

    def s(self, *names: str) -> float:
        """Return the sum of these deadlines."""
        return sum(deadlines.seconds(self.world.spec, name) for name in names)

    def always(self) -> bool:
        return True

    # --- what is not counted --------------------------------------------------------------------

    def trains_not_yet(self) -> bool:
        return not self.job.all_recorded

    def comes_to_its_end(self) -> bool:
        return self.job.phase is not Phase.RUNNING or bool(self.job.finished)

    def is_parted(self) -> bool:
        names = {box.name for box in self.needed}
        return any(names.issuperset(way) for way in self.world.network.cuts)

    def has_no_store(self) -> bool:
        return not self.world.store_known

    def waits_for_its_disk(self) -> bool:
        return self.world.disk_hangs and self.change is not None and self.change.disk

    def has_an_endless_run(self) -> bool:
        return any(worker.circles for worker in self.processes)

    # --- until it is found ----------------------------------------------------------------------

    def has_no_power_somewhere(self) -> bool:
        return any(not box.has_power for box in self.needed)

    def has_no_power_and_no_pace(self) -> bool:
        """The controller does not know yet how long a step takes."""
        assert self.world.host is not None
        known = self.world.host.control.absence.steps.step_ms
        return self.has_no_power_somewhere() and not known

    def may_wait_for_the_dead(self) -> bool:
        """A machine has no power, and either its state or its successor may be nowhere else."""
        lost = sum(not self.world.boxes[name].place.live for name in self.job.seats)
        is_well_off = lost == 1 and not self.world.knobs.alone and able(self.job)
        dead = {box.name for box in self.needed if not box.has_power} & self.job.machines.keys()
        spared = all(can_be_given_up(self.job, name) for name in dead)
        return self.has_no_power_somewhere() and not (is_well_off and spared)

    def may_wait_for_what_was(self) -> bool:
        """A machine has come anew before its former self was given up, and that is needed."""
        assert self.world.host is not None
        accounts = self.world.host.control.accounts.of
        known = [box for box in self.needed if box.alive and box.name in self.job.machines]
        anew = [b.name for b in known if b.incarnation != accounts[b.name].incarnation]
        return not all(can_be_given_up(self.job, name) for name in anew)

    def waits_for_the_living(self) -> bool:
        """A machine with ranks lives, and nobody reaches it."""
        return any(box.alive and not stands_well(self.world, box) for box in self.needed)

    def waits_for_a_way(self) -> bool:
        """The controller alone does not reach a machine with ranks."""
        reach = self.world.network.reach
        return any(box.alive and not reach(box.name, CONTROLLER) for box in self.needed)

    def has_a_rank_that_stands(self) -> bool:
        return not all(map(executes, self.processes))

    def has_a_rank_that_cannot_go(self) -> bool:
        """A process cannot be killed, and no other machine can take its ranks."""
        blocked = {worker.box.name for worker in self.processes if worker.blocked}
        return not all(can_be_replaced(self.job, n) for n in blocked & self.job.machines.keys())

    def has_a_rank_that_spins(self) -> bool:
        return any(worker.spins for worker in self.processes)

    def stands_as_a_whole(self) -> bool:
        return bool(self.job.hanging.stands)

    def stands_and_none_goes(self) -> bool:
        seats = {*self.job.seats} & self.job.machines.keys()
        none_goes = not any(can_be_given_up(self.job, name) for name in seats)
        return self.stands_as_a_whole() and none_goes

    # --- until it goes on -----------------------------------------------------------------------

    def has_fresh_processes(self) -> bool:
        here = (self.job.machines.get(box.name) for box in self.needed)
        return any(m is not None and m.state is not MachineState.ACTIVE for m in here)

    def goes_back(self) -> bool:
        return self.change is not None and self.change.back

    def goes_back_to_a_checkpoint(self) -> bool:
        return self.change is not None and self.change.disk

    def has_no_machine(self) -> bool:
        return self.change is not None and bool(self.change.missing)


class Row(NamedTuple):
    """What may be so; then ranks may stand for the sum of these deadlines, and of `more_s`."""

    what: str
    is_so: Callable[[Seen], bool]
    names: tuple[str, ...] = ()
    more_s: float = 0.0


NOT_COUNTED = (
    Row("the job does not train yet", Seen.trains_not_yet),
    Row("the job comes to its end", Seen.comes_to_its_end),
    Row("two machines with ranks do not reach each other", Seen.is_parted),
    Row("there is no store", Seen.has_no_store),
    Row("the disk hangs", Seen.waits_for_its_disk),
    Row("a run in the sandbox never ends", Seen.has_an_endless_run),
)
"""As is the time in which there is no controller."""
_SILENT = ("away_s", "held_up_s", "spare_s", "fall_back_s", "together_s", "answer_s")
_AS_STEPS_BEGIN = ("held_up_first_s", *_SILENT)
_PATIENCE = ("patience_s", "lease_more_s")
FINDING = (
    Row("a socket closes", Seen.always, ("away_s", "answer_s")),
    Row("a machine has no power", Seen.has_no_power_somewhere, _SILENT),
    Row("a machine has no power as steps begin", Seen.has_no_power_and_no_pace, _AS_STEPS_BEGIN),
    Row("a machine has no power, and is needed", Seen.may_wait_for_the_dead, _PATIENCE),
    Row("a machine has come anew, and is needed", Seen.may_wait_for_what_was, _PATIENCE),
    Row("a machine that lives is waited for", Seen.waits_for_the_living, _PATIENCE),
    Row("the controller alone does not reach a machine", Seen.waits_for_a_way, _SILENT, 5.0),
    Row("a rank stands", Seen.has_a_rank_that_stands, ("stopped_s", "end_s"), 2 * WATCH_S),
    Row("a process cannot be killed, and is needed", Seen.has_a_rank_that_cannot_go, _PATIENCE),
    Row("a rank spins", Seen.has_a_rank_that_spins, ("stopped_s", "end_s"), PATIENCE_MS / 1000),
    Row("all ranks stand", Seen.stands_as_a_whole, ("all_stand_s",)),
    Row("ranks stand, and nobody can be spared", Seen.stands_and_none_goes, _PATIENCE),
)
GOING_ON = (
    Row("a warm joiner", Seen.always, (), 3.0),
    Row("fresh processes", Seen.has_fresh_processes, (), 8.0),
    Row("all go back", Seen.goes_back, (), 10.0),
    Row("all go back to a checkpoint", Seen.goes_back_to_a_checkpoint, (), 15.0),
    Row("no machine takes the ranks", Seen.has_no_machine, ("wait_s",), 10.0),
)


class DowntimeBound:
    """since_us: from when time counts; finding, going_on: the longest rows since."""

    def __init__(self) -> None:
        self.since_us = 0
        self.finding = self.going_on = (0.0, "")

    def heeds(self, world: "World") -> dict[type, Callable[[Any], None]]:
        self.world = world
        world.at(LOOK_US, self._look)
        return {Gate: self._begin}

    def _begin(self, _: object = None) -> None:
        self.since_us = self.world.now
        self.finding = self.going_on = (0.0, "")

    def _look(self) -> None:
        world = self.world
        world.at(LOOK_US, self._look)
        if world.truth.changed_us > self.since_us:
            self._begin()
        if world.host is None or world.host.is_stopped:
            self._begin()
            return
        seen = Seen(world)
        if any(row.is_so(seen) for row in NOT_COUNTED):
            self._begin()
            return
        self.finding = max(self.finding, *_true(FINDING, seen))
        self.going_on = max(self.going_on, *_true(GOING_ON, seen))
        steps_s = 3 * world.knobs.step_us / 1e6
        self._has_stood((world.now - self.since_us) / 1e6, LATE_S + steps_s)

    def _has_stood(self, stood_s: float, more_s: float) -> None:
        found_s, found = self.finding
        goes_s, goes = self.going_on
        if stood_s > found_s + goes_s + more_s:
            raise Violation(
                f"for {stood_s:.1f} s nothing happens, and no step is committed: "
                f"{found} ({found_s:.1f} s), {goes} ({goes_s:.1f} s); {_state(self.world.job)}"
            )


def _true(rows: tuple[Row, ...], seen: Seen) -> list[tuple[float, str]]:
    return [(seen.s(*row.names) + row.more_s, row.what) for row in rows if row.is_so(seen)]


def _state(job: Job) -> str:
    change = job.change
    return "no change" if change is None else f"{change.kind} {change.stage}, epoch {change.epoch}"
