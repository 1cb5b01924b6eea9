"""Every pair of a state and an event is reached, or it is said why it cannot be."""

from functools import cache

import pytest
from directing import busy, reach
from seldom import SELDOM

from trainmover.simulator.coverage import Coverage, all_pairs, possible_pairs
from trainmover.simulator.faults import EVERYTHING, only
from trainmover.simulator.possible import IMPOSSIBLE, why_not
from trainmover.simulator.story import plan_of, play

BY_CHANCE = [
    (16, 5, EVERYTHING),
    (1, 40, only(["partition"])),
    (12, 20, only(["straggle"])),
]
"""How many seeds, for how many seconds, of what."""
TRIES = 300
"""A pair that one world in a hundred has is reached whatever comes out differently next time."""
PARTS = 48


@cache
def by_chance() -> Coverage:
    """Of worlds that nobody directs. 5 s of a core."""
    coverage = Coverage()
    for seeds, seconds, faults in BY_CHANCE:
        for seed in range(seeds):
            play(busy(plan_of(seed, seconds=seconds, faults=faults)), coverage)
    for seed in range(8):
        plan = plan_of(seed, seconds=8)
        plan.world |= {"engine": 0.3, "wait_s": 10**6}
        play(plan, coverage)
    return coverage


@pytest.mark.long
@pytest.mark.turns(48)
@pytest.mark.timeout(600)  # It takes 20 s of a core, and has one only for a part of the time.
@pytest.mark.parametrize("part", range(PARTS))
def test_every_pair_is_reached_or_said_to_be_impossible(part: int) -> None:
    """A new state or kind of event fails here, until somebody says which of the two it is. `SELDOM`
    are those that can be and that nobody has reached on purpose yet."""
    coverage = Coverage()
    coverage.pairs |= by_chance().pairs
    missing = [
        pair
        for pair in sorted(set(possible_pairs()) - SELDOM)[part::PARTS]
        if pair not in coverage.pairs and not reach(pair, coverage, tries=TRIES)
    ]
    wrong = {pair: why_not(*pair) for pair in coverage.pairs if why_not(*pair)}
    assert not wrong, f"these came, and are said to be impossible: {wrong}"
    assert missing == []


def test_what_is_said_of_pairs_is_said_of_such_as_there_are() -> None:
    pairs = set(all_pairs())
    for why, states, events in IMPOSSIBLE:
        assert {(state, event) for state in states for event in events} <= pairs, why
    assert set(possible_pairs()) >= SELDOM


def test_what_is_reached_is_among_what_there_is() -> None:
    coverage = Coverage()
    play(plan_of(1, seconds=6), coverage)
    assert coverage.pairs.keys() <= set(possible_pairs())
    assert len(coverage.not_reached()) == len(set(possible_pairs())) - len(coverage.pairs)
