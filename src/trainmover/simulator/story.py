# SPDX-License-Identifier: Apache-2.0
"""One world from its start to its end: first anything may go wrong, then nothing does any more.

    safety    faults at any time; checkers look at every moment
    liveness  `heal`; within a bound every incident is over, steps are committed again, standbys are
              ready and cuts follow each other; then the script ends and the job with it

A job may end before, for a reason that what happened to it explains (`checkers.endings`).
"""

import random
from dataclasses import dataclass, field

from trainmover.controller.keep.last_checkpoint import SAVE_US
from trainmover.controller.state import Outcome, Phase
from trainmover.ids import Rank, Step
from trainmover.simulator.chance import Chance
from trainmover.simulator.checkers import Checker, all_checkers
from trainmover.simulator.checkers.people.endings import legitimate
from trainmover.simulator.checkers.people.wanting import lacks
from trainmover.simulator.deadlines import draw
from trainmover.simulator.faults import EVERYTHING, SECOND, Faults
from trainmover.simulator.happenings import Violation
from trainmover.simulator.world import World, clock

BOUND_US = 180 * SECOND
"""Virtual time within which a job that nothing happens to any more has to be well again."""
AS_BEFORE_US = 20 * SECOND
"""After that it has again all that it is to have (`checkers.wanting`)."""
WRITES_US = 1_200 * SECOND
"""A checkpoint of which a part never comes is given up by then."""
STEPS_MORE, KEPT_STEPS = 5, 30
"""Within the latter there is a new cut, a checkpoint and a round."""
QUIET_US = 20 * SECOND
PATIENCES_S = (30.0, 60.0, 60.0)
"""Of which a seed of a mix that bites takes one."""
BUGS = ("raises", "exits", "goes on")
"""How the script of one rank may end."""


@dataclass
class Plan:
    """What one seed is to play; `of` makes it from the seed."""

    seed: int
    machines: int = 4
    standbys: int = 2
    nproc: int = 1
    seconds: int = 20
    faults: Faults = EVERYTHING
    world: dict[str, object] = field(default_factory=dict)
    early: bool = False
    late: bool = False
    stops: bool = False
    stops_early: bool = False
    bug: str = ""


def plan_of(
    seed: int,
    *,
    machines: int = 4,
    standbys: int = 2,
    nproc: int | None = None,
    seconds: int = 20,
    faults: Faults = EVERYTHING,
) -> Plan:
    """Knobs that nobody has set differ from seed to seed."""
    chance = random.Random(f"plan {seed}")
    nproc = nproc or chance.choice((1, 1, 1, 2))
    once = tuple(f"m{n}" for n in range(1, 30)) if chance.random() < 0.1 else ()
    unfit = ((f"m{machines + 1}", "p1"),) if chance.random() < 0.1 else ()
    later = tuple(f"m{n}" for n in range(machines + 2, 30))
    world: dict[str, object] = {
        "stages": chance.choice((1, 1, 2, 3)),
        "once": once,
        "unfit": unfit,
        "alone": chance.random() < 0.25,
        "snapshots": chance.choice((3, 6, 15, None)),
        "checkpoints": chance.choice((0, 5, 20)),
        "racks": chance.choice((0, 0, 2, 3)),
        "copies": chance.choice((1, 1, 2)),
        "rounds": chance.choice((0, 3, 10)),
        "on_divergence": chance.choice(("report", "replace", "replace")),
        "on_nan": chance.choice(("ignore", "report", "stop")),
        "wait_s": chance.choice((60, 60, 1)),
        "no_standby": chance.choice(("end", "checkpoint")),
    }
    plan = Plan(
        seed,
        machines,
        standbys,
        nproc,
        seconds,
        faults,
        world,
        early=chance.random() < 0.2,
        late=chance.random() < 0.3,
        stops=chance.random() < 0.1,
    )
    world["others"] = later[:1] if chance.random() < 0.1 else ()
    world["old"] = later[1::3] if chance.random() < 0.1 else ()
    world["corrupts"] = 0.3 if chance.random() < 0.03 else 0.0
    world["stragglers"] = chance.choice(("off", "watch", "act", "act"))
    world["health"] = chance.choice(("off", "off", "watch", "act"))
    world["anomalies"] = chance.choice(("off", "watch", "act", "act"))
    world["length"] = chance.choice((0, 150, 400))
    plan.stops_early = chance.random() < 0.05
    plan.bug = chance.choice(BUGS) if chance.random() < 0.15 else ""
    world["relays_above"] = chance.choice((256, 2, 3))
    world["lacks"] = 0.3 if random.Random(f"lacks {seed}").random() < 0.1 else 0.0
    if faults.bites:
        bites = random.Random(f"deadlines {seed}")
        world["deadlines"] = draw(bites)
        world["patience_s"] = bites.choice(PATIENCES_S)
    return plan


@dataclass
class Result:
    """How it went. violation: what must not be; "" if nothing was."""

    plan: Plan
    world: World
    chance: Chance
    violation: str = ""

    @property
    def incidents(self) -> int:
        host = self.world.host
        if host is None or not host.job.incidents:
            return 0
        return host.job.incidents[-1].number


def play(plan: Plan, *more: Checker) -> Result:
    """One seed, to its end. more: checkers besides those there are."""
    world = World(
        plan.seed,
        machines=plan.machines,
        standbys=plan.standbys,
        nproc=plan.nproc,
        checkers=[*all_checkers(), *more],
        **plan.world,
    )
    chance = Chance(world, plan.faults)
    result = Result(plan, world, chance)
    try:
        _safety(world, chance, plan)
        _liveness(world, chance, plan)
        _ending(world, chance, plan)
    except Violation as violation:
        result.violation = violation.what
    except (AssertionError, LookupError, TypeError, ValueError, AttributeError) as error:
        result.violation = f"{type(error).__name__} in the code that decides: {error}"
        world.note(_traceback(error))
    return result


def _traceback(error: Exception) -> str:
    import traceback

    return "".join(traceback.format_exception(error)[-6:])


def _safety(world: World, chance: Chance, plan: Plan) -> None:
    wanted = plan.machines + plan.standbys
    world.run(QUIET_US, until=lambda: len(world.job.machines) == wanted)
    if not plan.early:
        world.run(QUIET_US, until=lambda: _is_quiet(world) and world.job.all_recorded)
        world.run(world.between(0, SECOND))
    chance.go()
    if plan.stops_early:
        world.run(world.between(0, plan.seconds * SECOND))
        _stop(world)
    world.run(plan.seconds * SECOND)
    if plan.late:
        _let_it_end(world)
        world.run(2 * SECOND)
    chance.stop()


def _liveness(world: World, chance: Chance, plan: Plan) -> None:
    """Back to work, however it stands."""
    world.heal()
    world.note("- nothing goes wrong any more")
    chance.settle()
    bound_us = BOUND_US + (SAVE_US if world.spec.no_standby == "checkpoint" else 0)
    if not world.run(bound_us, until=lambda: _is_quiet(world)) and world.ended is None:
        raise Violation(f"the job is not well after {bound_us // SECOND} s: {_state(world)}")
    begun = world.training.newest
    finished = world.host is not None and world.job.finished
    there = lambda: world.training.newest >= begun + STEPS_MORE and _is_quiet(world)  # noqa: E731
    if not finished and not world.run(bound_us, until=there) and world.ended is None:
        raise Violation(f"no step is committed any more: {_state(world)}")
    until_us = world.now + AS_BEFORE_US + KEPT_STEPS * world.knobs.step_us
    if chance.count.get("writer_hang") and world.job.writing is not None:
        until_us += WRITES_US
    while world.ended is None and (what := lacks(world, begun, chance)):
        if world.now > until_us:
            raise Violation(f"the job lacks {what}: {_state(world)}")
        world.run(SECOND)


def _ending(world: World, chance: Chance, plan: Plan) -> None:
    if world.ended is None:
        if plan.stops:
            _stop(world)
        if plan.bug and not plan.late and world.spec.world_size > 1:
            world.training.bug = Rank(world.spec.world_size - 1), plan.bug
        _let_it_end(world)
        world.run(BOUND_US)
    if world.ended is None:
        raise Violation(f"the script has ended and the job has not: {_state(world)}")
    stopped = plan.stops or plan.stops_early
    legitimate(world, chance.count, chance.unsettled, stopped=stopped)


def _stop(world: World) -> None:
    """Somebody does, and may wait for a checkpoint."""
    if world.host is not None:
        within_us = world.random.choice((0, 5 * SECOND))
        world.host.stop(130, "somebody has interrupted it", within_us)


def _let_it_end(world: World) -> None:
    world.training.steps = min(world.training.steps, Step(world.training.newest + 3))


def _is_quiet(world: World) -> bool:
    """The job runs, all incidents are over, and so are all that waited for them."""
    job = world.host.job if world.host is not None else None
    if job is None or job.phase not in (Phase.RUNNING, Phase.ENDING) or job.change is not None:
        return False
    if job.saves_last:
        return False
    return not job.incidents or job.incidents[-1].outcome is not Outcome.OPEN


def _state(world: World) -> str:
    if world.host is None:
        return "there is no controller"
    job = world.host.job
    change = job.change
    how = f"{change.kind} at {change.stage}" if change is not None else "no change"
    return f"{job.phase}, {how}, epoch {job.epoch}, step {job.committed} at {clock(world.now)}"
