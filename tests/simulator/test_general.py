"""Checkers that know no single decision: each finds a bug of one line that is of its kind.

The third column has words of what is found; "": others find it, too, and may be first.
"""

import pytest

from tests.planting import planted
from trainmover.simulator.faults import only
from trainmover.simulator.story import plan_of, play

SEEDS = 60
BUGS = {
    "lines of one machine's kernel are forgotten as another's come": (
        "controller.policies.anomalies.told",
        ("excesses = {**job.anomalies.excesses, at: Excess", "excesses = {at: Excess"),
        "has changed what excesses has of",
        "sign",
    ),
    "a move takes the epoch after the next": (
        "controller.change.move",
        ("    epoch = Epoch(job.epoch_last + 1)", "    epoch = Epoch(job.epoch_last + 2)"),
        "are nobody's",
        "move",
    ),
    "what follows from the last of what workers say together is ordered alone": (
        "controller.decide",
        (
            "local_rank, fact, event.at_us)\n        effects += more",
            "local_rank, fact, event.at_us)\n        effects = more",
        ),
        "",
        "unprepared,move",
    ),
    "a placement with a machine too many is begun": (
        "controller.policies.plans.place",
        ("if len(event.seats) != len(job.seats):", "if len(event.seats) < len(job.seats):"),
        "",
        "ask",
    ),
    "who waits for a machine waits a moment longer": (
        "controller.clock",
        (
            "job.change.missing and now_us >= job.change.until_us",
            "job.change.missing and now_us > job.change.until_us",
        ),
        "and nobody looks",
        "death,power",
    ),
    "who holds the run of a slot takes it last": (
        "controller.standby.joiners",
        ("        machine.held != slot,", "        machine.held == slot,"),
        "the readiest is",
        "move",
    ),
    "where the second copies are is all that is told of snapshots": (
        "controller.change.switching",
        ("in cut.vaults.keys() | cut.further.keys()", "in cut.further.keys()"),
        "the snapshot of rank",
        "death,between",
    ),
    "a job that ends counts a standby too many": (
        "controller.standby.joiners",
        ("have = len(at_hand(job))", "have = len(at_hand(job)) + 1"),
        "people would be told",
        "death",
    ),
    "what ranks have said stays with incidents that are long over": (
        "controller.change.past",
        ("        positions={},\n", ""),
        "are kept",
        "crash,move",
    ),
    "whose torch is another begins all the same": (
        "controller.start",
        (
            "if others := [name for name in job.seats if other_torch(job, job.machines[name])]:",
            "if others := list[MachineId]():",
        ),
        "torch",
        "death",
    ),
}
WHERE = {
    "lines of one machine's kernel": {"anomalies": "watch"},
    "who waits for a machine": {"wait_s": 60, "refill": False},
    "where the second copies": {"alone": True, "snapshots": 3, "copies": 1},
    "whose torch": {"others": ("m3", "m4", "m5", "m6")},
}


@pytest.mark.parametrize("what", BUGS)
def test_what_a_general_checker_is_for_is_found(what: str) -> None:
    module, change, words, faults = BUGS[what]
    with planted(module, *change):
        for seed in range(SEEDS):
            nproc, seconds = 2 if "together" in what else None, 15 if "long over" in what else 4
            plan = plan_of(seed, seconds=seconds, nproc=nproc, faults=only(faults.split(",")))
            plan.early = "torch" in what
            for begins, knobs in WHERE.items():
                plan.world |= knobs if what.startswith(begins) else {}
            found = play(plan).violation
            if found and words in found:
                return
    pytest.fail(f"{SEEDS} seeds did not find it: {what}")
