"""Checkers that know no single decision: each finds a bug of one line that is of its kind.

The column before the last has words of what is found; "": others find it, too, and may be first.
"""

import msgspec
import pytest

from tests.controller.jobs import after, lost, parked, running
from tests.planting import planted
from trainmover.controller.change.seats import with_machine
from trainmover.controller.decide import decide
from trainmover.controller.events import ContactChanged, Tick
from trainmover.controller.state import MachineState
from trainmover.ids import MachineId
from trainmover.simulator.checkers.frames import Frames
from trainmover.simulator.faults import only
from trainmover.simulator.happenings import Decided, Violation
from trainmover.simulator.story import plan_of, play

SEEDS = 60
BUGS: dict[str, tuple[str, str, str, int | str, str, str]] = {
    "lines of one machine's kernel are forgotten as another's come":
        ("controller.policies.anomalies.told", "_counted", "forget", 0,
         "has changed what excesses has of", "sign"),
    "a move takes the epoch after the next":
        ("controller.change.move", "begin_moves", "number", 1, "are nobody's", "move"),
    "what follows from the last of what workers say together is ordered alone":
        ("controller.decide", "_workers_said", "effects += more", "effects = more", "",
         "unprepared,move"),
    "a placement with a machine too many is begun":
        ("controller.policies.plans.place", "placement_of", "len(event.seats) != len(job.seats)",
         "len(event.seats) < len(job.seats)", "", "ask"),
    "who waits for a machine waits a moment longer":
        ("controller.clock", "tick_due", "boundary", 0, "and nobody looks", "death,power"),
    "who holds the run of a slot takes it last":
        ("controller.standby.joiners", "_readiness", "negate", 3, "the readiest is", "move"),
    "where the second copies are is all that is told of snapshots":
        ("controller.change.switching", "send_switch_back", "forget", 1, "the snapshot of rank",
         "death,between"),
    "a job that ends counts a standby too many":
        ("controller.standby.joiners", "no_standby", "len(at_hand(job))", "len(at_hand(job)) + 1",
         "people would be told", "death"),
    "what ranks have said stays with incidents that are long over":
        ("controller.change.past", "brief", "forget", 4, "are kept", "crash,move"),
    "whose torch is another begins all the same":
        ("controller.start", "gather",
         "[name for name in job.seats if other_torch(job, job.machines[name])]", "[]", "torch",
         "death"),
}  # fmt: skip
WHERE = {
    "lines of one machine's kernel": {"anomalies": "watch"},
    "who waits for a machine": {"wait_s": 60, "refill": False},
    "where the second copies": {"alone": True, "snapshots": 3, "copies": 1},
    "whose torch": {"others": ("m3", "m4", "m5", "m6")},
}


@pytest.mark.parametrize("what", BUGS)
def test_what_a_general_checker_is_for_is_found(what: str) -> None:
    *bug, words, faults = BUGS[what]
    with planted(*bug):
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


def test_a_second_standby_takes_the_slot_of_a_first_that_is_not_bound_yet() -> None:
    """Nobody is ordered anything: the first one's processes are still to come up."""
    job, _ = decide(running(standbys=2, nproc=2), lost("m2"))
    assert job.change is not None
    ((slot, first),) = job.change.joiners.items()
    job = with_machine(job, first, state=MachineState.STARTING)
    job, _ = after(job, ContactChanged(at_us=1_000_000, away=[first]), Tick(at_us=1_200_000))
    assert job.change is not None
    second, epoch = job.change.hedges[slot], job.change.epoch
    job, _ = decide(job, parked(second, 2, epoch))
    event = parked(second, 3, epoch, local_rank=1)
    then, effects = decide(job, event)
    assert then.change is not None
    assert (then.change.joiners, effects) == ({slot: second}, ())
    Frames().decided(Decided(1, event, job, then, effects))
    other = msgspec.structs.replace(event, machine=MachineId("m3"))
    with pytest.raises(Violation, match="has changed what"):
        Frames().decided(Decided(1, other, job, then, effects))
