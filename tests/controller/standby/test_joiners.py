"""Who takes ranks, of all that could: the readiest, and nobody that may not."""

from jobs import MOVE_PAUSES, RUNNING, after, decide, joined, lost, move, up

from trainmover.controller import Job
from trainmover.controller.change.seats import with_machine
from trainmover.controller.standby.joiners import choose_joiners, representatives
from trainmover.controller.standby.warming import ATTEST_AGAIN_US, attest_again
from trainmover.controller.state import Attestation, Cordon, MachineState, Phase
from trainmover.controller.values import replace

WITH_M5 = after(RUNNING, joined("m5", standby=True), up("m5"))[0]
TWO = with_machine(WITH_M5, "m4", state=MachineState.WARMING, held=None)
"""m4 warms up, and m5 has not begun to."""


def resting(job: Job, **proof: bool) -> Job:
    """m5 rests between two warm-ups and has proven, or not, what rank 1 needs."""
    attest = Attestation(1, failed="no" * proof["failed"], stale=proof["stale"])
    first = representatives(job)[1]
    return with_machine(job, "m5", state=MachineState.IDLE, attests={first: attest})


def test_one_that_rests_is_as_warm_as_what_it_has_proven() -> None:
    proven = resting(TWO, failed=False, stale=False)
    assert choose_joiners(proven, [1], taken=()) == {1: "m5"}
    assert choose_joiners(resting(TWO, failed=False, stale=True), [1], taken=()) == {1: "m4"}
    assert choose_joiners(resting(TWO, failed=True, stale=False), [1], taken=()) == {1: "m4"}
    unknown = with_machine(proven, "m5", attests={})
    assert choose_joiners(unknown, [1], taken=()) == {1: "m4"}


def test_a_run_that_is_held_by_who_is_kept_out_takes_no_other_away_from_its_slot() -> None:
    job = after(WITH_M5, joined("m6", standby=True), up("m6"))[0]
    job = with_machine(job, "m6", state=MachineState.WARM, held=0)
    job = replace(job, cordoned={"m6": Cordon(1)})
    job = with_machine(job, "m4", state=MachineState.WARM, held=1)
    job = with_machine(job, "m5", state=MachineState.WARMING, held=None)
    assert choose_joiners(job, [0, 1], taken=()) == {0: "m5", 1: "m4"}


def test_one_whose_bits_were_wrong_gets_no_ranks_again() -> None:
    suspect = with_machine(RUNNING, "m4", suspect="its replica was another than two others")
    assert choose_joiners(suspect, [1], taken=()) is None
    job, _ = decide(suspect, lost("m2"))
    assert job.phase is Phase.ENDED
    why = "1 standby is left; m4 gets no ranks: its replica was another than two others."
    assert why in job.ended_because
    assert "More standbys would not help" not in job.ended_because
    assert decide(suspect, move("m2"))[0].change is None


def test_one_with_another_torch_is_no_standby_and_it_is_said_why() -> None:
    other = with_machine(replace(RUNNING, torch="2.13.0"), "m4", torch="2.12.0")
    assert choose_joiners(other, [1], taken=()) is None
    job, _ = decide(other, lost("m2"))
    why = "m4 gets no ranks: it runs torch 2.12.0, the job's ranks run torch 2.13.0."
    assert why in job.ended_because


def test_a_note_of_the_past_does_not_keep_a_warm_standby_from_being_one() -> None:
    noted = with_machine(TWO, "m4", state=MachineState.WARM, note="it was late")
    noted = with_machine(noted, "m5", state=MachineState.COLD, note="it has no disk")
    job = after(noted, lost("m4"), lost("m2"))[0]
    assert "m5 cannot: it has no disk" in job.ended_because
    job = after(noted, lost("m1", "m2"))[0]
    assert "m5 cannot: it has no disk" in job.ended_because
    assert "m4 cannot" not in job.ended_because


def test_what_was_proven_long_ago_is_proven_again_while_nothing_changes() -> None:
    old_us = ATTEST_AGAIN_US + 10
    for job, again in ((RUNNING, True), (MOVE_PAUSES, False)):
        job = after(job, joined("m5", standby=True), up("m5"))[0]
        job = with_machine(job, "m5", state=MachineState.WARM, attests={0: Attestation(1)})
        assert (attest_again(job, old_us) != job) is again
