"""Machines are replaced in every parallel layout: always the bits of the undisturbed run."""

import asyncio
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest
from harness import Live, Outcomes, Scenario, assert_equal_runs, run

from trainmover.controller.change.incidents import lately

pytestmark = pytest.mark.turns(12)

FOLDER = Path(__file__).parents[1] / "parallel"
STEPS, PACE = 80, 0.2
ROUNDS, SOAK_STEPS = 12, 1500
Undisturbed = Callable[..., Outcomes]


@dataclass(frozen=True)
class Layout:
    """A script and what it runs on. stages: slots that do different work; each loses one."""

    script: str
    machines: int
    nproc: int = 1
    stages: tuple[tuple[int, ...], ...] = ()

    def __str__(self) -> str:
        return f"{self.script}-{self.machines}x{self.nproc}"

    @property
    def path(self) -> str:
        return str(FOLDER / f"{self.script}.py")

    def run(self, steps: int, scenario: Scenario, hurry: Path) -> Outcomes:
        """With a standby, and slowly until `hurry` is there."""
        return run(
            ["--steps", str(steps), "--pace", str(PACE), "--hurry", str(hurry)],
            scenario,
            machines=self.machines,
            nproc=self.nproc,
            standbys=1,
            script=self.path,
        )


LAYOUTS = [
    Layout("compiled", 2),
    Layout("pipeline", 6, stages=((0, 1), (2, 3), (4, 5))),
]
MORE_LAYOUTS = [
    Layout("hsdp", 2, nproc=2),
    Layout("experts", 4),
    Layout("hsdp", 4),
    Layout("fsdp2", 4),
    Layout("tensor", 4),
    Layout("tensor", 2, nproc=2),
    Layout("experts", 2, nproc=2),
]


async def crash(live: Live, layout: Layout, slots: Sequence[int], chance: random.Random) -> None:
    """One worker of a machine, at a random moment of a random step."""
    await live.at_step(live.step() + chance.randrange(1, 4))
    await asyncio.sleep(chance.random() * PACE)  # the random moment itself
    victim = live.job.seats[chance.choice(slots)]
    live.signal_worker(victim, local_rank=chance.randrange(layout.nproc))


async def move(live: Live, slots: Sequence[int], chance: random.Random) -> None:
    answer = await live.handle.move(live.job.seats[chance.choice(slots)])
    assert answer.ok, answer.text


def a_move_and_crashes(layout: Layout, hurry: Path) -> Scenario:
    async def scenario(live: Live) -> None:
        chance = random.Random(str(layout))
        slots = range(layout.machines)
        await live.warm(1)
        await move(live, slots, chance)
        for count, stage in enumerate(layout.stages or [slots], start=2):
            await live.warm(1)
            await crash(live, layout, stage, chance)
            await live.incidents_done(count)
        hurry.touch()

    return scenario


def many(layout: Layout, hurry: Path) -> Scenario:
    async def scenario(live: Live) -> None:
        chance = random.Random(str(layout))
        slots = range(layout.machines)
        for count in range(1, ROUNDS + 1):
            await live.warm(1)
            if chance.random() < 0.5:
                await move(live, slots, chance)
            else:
                await crash(live, layout, slots, chance)
            await live.incidents_done(count)
        hurry.touch()

    return scenario


def assert_undisturbed(outcome: Outcomes, layout: Layout, steps: int, calm: Undisturbed) -> None:
    """Where the ranks are placed changes no bit: all of them on one machine start soonest."""
    incidents = outcome.job.incidents
    assert {0} < {i.rung for i in incidents} <= {0, 1, 2}, outcome.sentences
    assert all(c.equal for i in incidents for c in i.certificates)
    world = layout.machines * layout.nproc
    arguments = ["--steps", str(steps)]
    assert_equal_runs(outcome, calm(arguments, machines=1, nproc=world, script=layout.path))


@pytest.mark.parametrize("layout", LAYOUTS, ids=str)
def test_a_move_and_crashes_keep_the_bits(
    layout: Layout, tmp_path: Path, undisturbed: Undisturbed
) -> None:
    hurry = tmp_path / "hurry"
    outcome = layout.run(STEPS, a_move_and_crashes(layout, hurry), hurry)
    assert len(outcome.job.incidents) == 1 + max(1, len(layout.stages)), outcome.sentences
    assert_undisturbed(outcome, layout, STEPS, undisturbed)


@pytest.mark.soak
@pytest.mark.parametrize("layout", [*LAYOUTS, *MORE_LAYOUTS], ids=str)
def test_many_moves_and_crashes_keep_the_bits(
    layout: Layout, tmp_path: Path, undisturbed: Undisturbed
) -> None:
    hurry = tmp_path / "hurry"
    outcome = layout.run(SOAK_STEPS, many(layout, hurry), hurry)
    assert len(lately(outcome.job)) >= ROUNDS, outcome.sentences
    assert_undisturbed(outcome, layout, SOAK_STEPS, undisturbed)
