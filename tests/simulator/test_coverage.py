"""Which transitions the seeds reach."""

from trainmover.simulator.coverage import Coverage, all_events, all_pairs, all_states
from trainmover.simulator.faults import EVERYTHING, Faults, only
from trainmover.simulator.story import plan_of, play

PAIRS_LEAST = 150

NOT_REACHED = {
    "Raised",  # Faults of the script end a job at once: see test_decide_start.
    "WentOn",
    "Warned",  # No decision depends on it.
}


STORIES = [
    (40, 6, EVERYTHING),
    (12, 40, only(["partition"])),
    (12, 6, Faults({"death": 4, "power": 1}, together=0.8, unsettled_max=4)),
    (12, 6, only(["store", "death", "controller"])),
    (12, 6, only(["move", "stop", "stuck", "full", "crash"])),
]
"""How many seeds, for how many seconds, of what."""


def covered() -> Coverage:
    coverage = Coverage()
    for seeds, seconds, faults in STORIES:
        for seed in range(seeds):
            plan = plan_of(seed, seconds=seconds, faults=faults)
            plan.stops = plan.stops or seed % 10 == 0
            play(plan, coverage)
    return coverage


def test_every_state_and_every_kind_of_event_is_reached_but_these() -> None:
    coverage = covered()
    assert {state for state, _ in coverage.pairs} == set(all_states())
    assert set(all_events()) - {event for _, event in coverage.pairs} == NOT_REACHED
    assert len(coverage.pairs) >= PAIRS_LEAST


def test_what_is_reached_is_among_what_there_is() -> None:
    coverage = Coverage()
    play(plan_of(1, seconds=6), coverage)
    assert coverage.pairs.keys() <= set(all_pairs())
    assert len(coverage.not_reached()) == len(set(all_pairs())) - len(coverage.pairs)
