"""Layouts x optimizers x communicators: a move, a crash, and the crash of all who hold one state.

Each run has all three incidents, and the bits of the undisturbed run. `make test` runs a selection
in which every two values of different kinds meet; the whole product is for `make soak`.
"""

import asyncio
import itertools
import random
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import pytest
from harness import Live, Outcomes, assert_equal_runs, run

from trainmover.controller import Job
from trainmover.controller.state import Outcome
from trainmover.ids import Rank

pytestmark = pytest.mark.turns(14)

FOLDER = Path(__file__).parents[1] / "parallel"
STEPS, PACE, EVERY = 60, 0.1, 4
Undisturbed = Callable[..., Outcomes]
LAYOUTS = {
    "replicated": (3, 1),
    "sharded": (3, 1),
    "hsdp": (2, 2),
    "tensor": (2, 2),
    "pipeline": (6, 1),
    "experts": (4, 1),
}
"""Script -> machines, ranks of each."""
OPTIMIZERS, COMMS = ("sgd", "adamw"), ("native", "gloo")


@dataclass(frozen=True)
class Case:
    """One run. alone: some rank's state is nobody else's."""

    layout: str
    optimizer: str
    comm: str

    def __str__(self) -> str:
        return f"{self.layout}-{self.optimizer}-{self.comm}"

    @property
    def alone(self) -> bool:
        return self.layout == "sharded" or self.optimizer == "zero"

    @property
    def script(self) -> str:
        return str(FOLDER / f"{self.layout}.py")

    @property
    def arguments(self) -> list[str]:
        return ["--steps", str(STEPS), "--optimizer", self.optimizer]


PRODUCT = [
    *(Case(*values) for values in itertools.product(LAYOUTS, OPTIMIZERS, COMMS)),
    *(Case("replicated", "zero", comm) for comm in COMMS),
]


def selection(cases: list[Case]) -> list[Case]:
    """So few of them that every two values of different kinds that meet in one meet in these."""
    missing = set().union(*map(pairs, cases))
    chosen: list[Case] = []
    while missing:
        best = max(cases, key=lambda case: len(pairs(case) & missing))
        chosen.append(best)
        missing -= pairs(best)
    return chosen


def pairs(case: Case) -> set[tuple[str, str]]:
    return set(itertools.combinations((case.layout, case.optimizer, case.comm), 2))


SELECTION = selection(PRODUCT)
CASES = [
    case if case in SELECTION else pytest.param(case, marks=pytest.mark.soak) for case in PRODUCT
]


def test_the_selection_is_small_and_has_every_pair() -> None:
    assert len(SELECTION) <= len(PRODUCT) // 2 + 1
    assert set().union(*map(pairs, SELECTION)) == set().union(*map(pairs, PRODUCT))


def family(job: Job, rank: Rank) -> list[Rank]:
    """Those who hold the same as `rank`, as far as that is known."""
    families = job.comparison.families
    return [other for other in families if families[other] == families[rank]]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_whatever_is_lost_no_bit_changes(
    case: Case, tmp_path: Path, undisturbed: Undisturbed
) -> None:
    begin, hurry = tmp_path / "begin", tmp_path / "hurry"
    machines, nproc = LAYOUTS[case.layout]

    async def scenario(live: Live) -> None:
        chance = random.Random(str(case))
        await live.until(lambda: bool(live.job.comparison.families) and live.job.cut is not None)
        await live.warm(1)
        begin.touch()
        answer = await live.handle.move(live.job.seats[chance.randrange(machines)])
        assert answer.ok, answer.text
        await cut_after(live, 1)
        await any_moment(live, chance)
        kill(live, [Rank(chance.randrange(machines * nproc))])
        await cut_after(live, 2)
        await any_moment(live, chance)
        kill(live, family(live.job, Rank(chance.randrange(machines * nproc))))
        await live.incidents_done(3)
        hurry.touch()

    files = ["--begin", str(begin), "--hurry", str(hurry)]
    outcome = run(
        [*case.arguments, "--pace", str(PACE), *files],
        scenario,
        machines=machines,
        nproc=nproc,
        script=case.script,
        comm=case.comm,
        snapshot_every=EVERY,
    )
    done = [i for i in outcome.job.incidents if i.outcome is Outcome.DONE]
    rungs = [i.rung for i in done if i.ranks]  # Losses at once are overtaken by the last of them.
    assert (rungs[0], rungs[2]) == (0, 2), "\n".join(outcome.sentences)
    assert rungs[1] in ({2} if case.alone else {1, 2}), "\n".join(outcome.sentences)
    assert all(c.equal for i in outcome.job.incidents for c in i.certificates)
    world = machines * nproc
    calm = undisturbed(case.arguments, machines=1, nproc=world, script=case.script, comm=case.comm)
    assert_equal_runs(outcome, calm)


async def cut_after(live: Live, count: int) -> None:
    """So many incidents are over, and all ranks hold a snapshot of a later step."""
    await live.incidents_done(count)
    last = live.job.incidents[-1]
    await live.until(lambda: live.job.cut is not None and live.job.cut.step > (last.step or 0))


async def any_moment(live: Live, chance: random.Random) -> None:
    await live.at_step(live.step() + chance.randrange(1, 4))
    await asyncio.sleep(chance.random() * PACE)  # the random moment itself


def kill(live: Live, ranks: list[Rank]) -> None:
    """The workers of these ranks, at once."""
    for rank in ranks:
        slot, local_rank = divmod(rank, live.job.spec.nproc)
        live.signal_worker(live.job.seats[slot], local_rank=local_rank)
