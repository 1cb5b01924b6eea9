"""Jobs whose machines an engine starts that is slow, denies, errs, and takes machines away."""

from collections import Counter
from functools import cache

import pytest

from tests.planting import planted
from trainmover.simulator.story import Result, plan_of, play

WAIT_S = 7 * 86400
SEEDS = range(20, 28)
LACKING = "max(all_there - here, missing) - job.capacity.to_come"
BUGS = {
    "machines on their way are wanted again": (
        "_acquire",
        LACKING,
        "max(all_there - here, missing)",
    ),
    "machines with ranks go back": ("_idle", "spare(job)", "job.machines.values()"),
    "a returned machine counts as there": ("_present", "name not in returned", "True"),
}


def played(seed: int) -> Result:
    plan = plan_of(seed)
    plan.world |= {"engine": 0.1 if seed % 2 else 0.02, "wait_s": WAIT_S}
    return play(plan)


cached = cache(played)


@pytest.mark.parametrize("seed", SEEDS)
def test_a_job_gets_well_whatever_its_engine_does(seed: int) -> None:
    result = cached(seed)
    assert result.violation == ""
    assert not result.world.job.broken_policies


def test_the_engine_errs_in_every_way() -> None:
    seen: Counter[str] = Counter()
    for seed in SEEDS:
        engine = cached(seed).world.engine
        assert engine is not None
        seen.update(engine.counts)
    assert seen.keys() >= {"denied", "phantom", "twice", "unwanted", "taken", "preempt", "drain"}


@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug: str) -> None:
    with planted("controller.policies.capacity.wanting", *BUGS[bug]):
        assert any(played(seed).violation for seed in range(10))
