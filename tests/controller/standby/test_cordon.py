"""A cordoned machine takes nobody's ranks; what it has, it keeps."""

from dataclasses import replace

import msgspec
from jobs import DRAINS, GATHERING, MOVE_BINDS, RUNNING, after, answers, joined, lost, move, up

from trainmover.controller import decide
from trainmover.controller.change.seats import with_machine
from trainmover.controller.events import CordonRequested, StopRequested, UncordonRequested
from trainmover.controller.standby.joiners import choose_joiners
from trainmover.controller.standby.warming import attest_again, tend_standbys
from trainmover.controller.state import Cordon, MachineState, Phase
from trainmover.ids import MachineId


def cordon(machine: str, reason: str = "", *, at_us: int = 0) -> CordonRequested:
    return CordonRequested(at_us=at_us, request="c1", machine=machine, reason=reason)


def uncordon(machine: str) -> UncordonRequested:
    return UncordonRequested(at_us=0, request="u1", machine=machine)


CORDONED = decide(RUNNING, cordon("m4", "its fan"))[0]


def test_it_is_chosen_for_nothing_and_the_reason_is_told() -> None:
    assert choose_joiners(RUNNING, [1], taken=()) == {1: "m4"}
    assert choose_joiners(CORDONED, [1], taken=()) is None
    text = answers(decide(CORDONED, move("m2"))[1])[0].text
    assert "no standby is left (m4 is cordoned (its fan))" in text
    ended, _ = decide(CORDONED, lost("m2"))
    assert ended.phase is Phase.ENDED
    assert "0 standbys are left; m4 is cordoned (its fan)" in ended.ended_because


def test_it_is_answered_and_kept() -> None:
    job, effects = decide(RUNNING, cordon("m4", "its fan", at_us=7))
    assert job.cordoned == {"m4": Cordon(7, "its fan")}
    assert answers(effects)[0].ok
    again, _ = decide(job, cordon("m4", "its disk", at_us=8))
    assert again.cordoned == {"m4": Cordon(8, "its disk")}
    free, effects = decide(job, uncordon("m4"))
    assert answers(effects)[0].ok
    assert free == RUNNING


def test_one_that_only_a_policy_keeps_out_is_taken_for_want_of_any_other() -> None:
    """After a loss, and by no move."""
    slow = replace(RUNNING, cordoned={MachineId("m4"): Cordon(7, "slow: so", spared=True)})
    assert choose_joiners(slow, [1], taken=()) is None
    assert not answers(decide(slow, move("m2"))[1])[0].ok
    job, _ = decide(slow, lost("m2"))
    assert job.change is not None
    assert job.change.joiners == {1: "m4"}
    assert job.cordoned == slow.cordoned, "it is as slow as before"
    assert decide(decide(slow, cordon("m4"))[0], lost("m2"))[0].phase is Phase.ENDED
    two = after(slow, joined("m5", standby=True), up("m5"))[0]
    change = decide(two, lost("m2"))[0].change
    assert change is not None
    assert change.joiners == {1: "m5"}


def test_one_that_is_lost_and_comes_back_is_still_cordoned() -> None:
    job, _ = after(CORDONED, lost("m4"), joined("m4", standby=True), up("m4"))
    assert choose_joiners(job, [1], taken=()) is None
    job, _ = after(job, uncordon("m4"))
    assert choose_joiners(job, [1], taken=()) == {1: "m4"}


def test_what_cannot_be_is_refused_and_changes_nothing() -> None:
    for event in (cordon("m9"), uncordon("m9"), uncordon("m4")):
        job, effects = decide(RUNNING, event)
        assert job == RUNNING
        assert not answers(effects)[0].ok
    ended, _ = decide(RUNNING, StopRequested(at_us=0, code=0, why=""))
    assert not answers(decide(ended, cordon("m4"))[1])[0].ok


def test_a_machine_with_ranks_keeps_them_and_may_have_them_again() -> None:
    job, effects = decide(RUNNING, cordon("m2"))
    assert answers(effects)[0].text == "m2 is cordoned; the ranks that it has it keeps."
    crashed = with_machine(decide(job, lost("m4"))[0], "m2", state=MachineState.DOWN)
    assert choose_joiners(crashed, [1], taken=()) == {1: "m2"}
    assert choose_joiners(crashed, [0], taken=()) is None


def test_who_was_chosen_before_goes_on() -> None:
    job, effects = decide(MOVE_BINDS, cordon("m4"))
    assert job.change == MOVE_BINDS.change
    assert "that it is taking now" in answers(effects)[0].text
    job, _ = decide(DRAINS, cordon("m4"))
    assert job.change == DRAINS.change


def test_a_job_that_waits_takes_it_once_it_is_uncordoned() -> None:
    waits = replace(CORDONED, spec=msgspec.structs.replace(CORDONED.spec, wait_s=60))
    waits, _ = decide(waits, lost("m2"))
    assert waits.change is not None
    assert waits.change.missing == {1}
    goes_on, _ = decide(waits, uncordon("m4"))
    assert goes_on.change is not None
    assert goes_on.change.joiners == {1: "m4"}


def test_nothing_is_done_to_make_it_ready() -> None:
    idle = with_machine(RUNNING, "m4", state=MachineState.IDLE, held=None, attests={})
    assert tend_standbys(idle)[1]
    assert not tend_standbys(decide(idle, cordon("m4"))[0])[1]
    late_us = 10**12
    assert attest_again(RUNNING, late_us) != RUNNING
    assert attest_again(CORDONED, late_us) == CORDONED


def test_a_cordoned_standby_does_not_take_part_from_the_start() -> None:
    job, _ = after(GATHERING, cordon("m4"), lost("m2"))
    assert job.phase is Phase.GATHERING
    assert not job.seats
