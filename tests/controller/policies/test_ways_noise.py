"""No way is called slow in the noise of healthy machines, as `test_slow_noise` has it.

A step is made of phases, at the end of each of which all wait for the last. Each phase has its own
noise, so ranks wait for each other in one step, once this way and once that.
"""

from collections.abc import Callable, Iterator

import numpy as np
import pytest
from numpy.typing import NDArray
from test_slow_noise import MODELS, RANKS, SEED, STEP_US, STEPS_AN_HOUR, lengths_of_all

from trainmover.controller.policies.stragglers.ways import Ways
from trainmover.ids import MachineId, Rank, Step
from trainmover.protocol.messages import Took
from trainmover.worker.step.own_time import WAITS_LEAST_US, WAITS_MOST

PHASES = 3
MACHINE_OF = {Rank(rank): MachineId(f"m{rank}") for rank in range(RANKS)}
Model = Callable[[np.random.Generator, int, int], NDArray[np.float64]]


def steps(model: Model, seed: int, count: int, slow_from: int = -1) -> Iterator[list[Took]]:
    """slow_from: from that step on a message between ranks 1 and 2 takes 15 ms longer."""
    chance = np.random.default_rng(seed)
    phases = [model(chance, count, 0) * STEP_US / PHASES for _ in range(PHASES)]
    for step in range(count):
        waits = np.zeros((RANKS, RANKS))
        for phase in phases:
            took = phase[step]
            last = int(took.argmax())
            waits[:, last] += took[last] - took
        if 0 <= slow_from <= step:
            waits[1, 2] += 15_000
            waits[2, 1] += 15_000
        owns = sum(phase[step] for phase in phases)
        yield [
            Took(step=Step(step), own_us=int(owns[rank]), cpu_us=0, waits_us=_told(waits[rank]))
            for rank in range(RANKS)
        ]


def _told(waits: NDArray[np.float64]) -> dict[Rank, int]:
    """As `own_time` does."""
    longest = sorted(enumerate(waits.tolist()), key=lambda one: -one[1])[:WAITS_MOST]
    return {Rank(rank): int(us) for rank, us in longest if us >= WAITS_LEAST_US}


def found(told: Iterator[list[Took]]) -> list[int]:
    """Steps at which a way was called slow."""
    ways, at = Ways(), []
    for step, tooks in enumerate(told):
        for rank, took in enumerate(tooks):
            complete = ways.add(Rank(rank), took, MACHINE_OF)
        if complete and ways.slow(Step(step), lambda machine, steps: False):
            at.append(step)
    return at


@pytest.mark.parametrize("model", [*MODELS, lengths_of_all])
def test_no_way_is_called_slow_in_noise(model: Model) -> None:
    assert found(steps(model, SEED, STEPS_AN_HOUR // 4)) == []


@pytest.mark.soak
@pytest.mark.parametrize("model", [*MODELS, lengths_of_all])
def test_no_way_is_called_slow_in_a_day_of_noise(model: Model) -> None:
    for hour in range(24):
        assert found(steps(model, SEED + hour, STEPS_AN_HOUR)) == []


@pytest.mark.parametrize("model", MODELS)
def test_a_slow_way_is_found_in_the_same_noise(model: Model) -> None:
    """Else a test that finds none could not fail."""
    after = [found(steps(model, seed, 300, slow_from=200))[0] - 200 for seed in range(20)]
    assert min(after) >= 0
    assert sorted(after)[10] <= 10
    assert max(after) <= 20
