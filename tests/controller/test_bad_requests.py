"""Requests that cannot be served are answered at once, in words, and change nothing."""

import pytest
from jobs import (
    BEGUN,
    DRAINS,
    GATHERING,
    MOVE_BINDS,
    MOVED,
    RECOVERED,
    RUNNING,
    after,
    answers,
    committed,
    finished,
    joined,
    kill,
    lost,
    move,
    orders,
    position,
    recorded,
    said,
    up,
    vault,
    warm,
)

from trainmover.controller import Job, decide
from trainmover.controller.effects import Send
from trainmover.controller.events import StopRequested
from trainmover.controller.standby.joiners import no_standby
from trainmover.controller.state import MachineState
from trainmover.protocol import messages as m

ENDED = decide(RUNNING, StopRequested(at_us=0, code=0, why=""))[0]
WITHOUT_STANDBY = decide(RUNNING, lost("m4"))[0]
COLD = decide(RUNNING, said("m4", m.SandboxFailed(rank=0, reason="other calls")))[0]
ENDING = decide(RUNNING, finished("m1", 0))[0]


@pytest.mark.parametrize(
    ("job", "machine", "words"),
    [
        (GATHERING, "m2", "The job is gathering"),
        (BEGUN, "m2", "the first steps are not recorded yet"),
        (RUNNING, "m7", "There is no machine m7.\nNothing was done.\nThe machines are m1, m2, m3"),
        (RUNNING, "m33", "There is no machine m33.\nNothing was done.\nDid you mean m3? The mach"),
        (RUNNING, "m4", "m4 holds no ranks.\nNothing was moved.\nMachines with ranks: m1, m2, m3."),
        (MOVE_BINDS, "m3", "m3 was not moved: a move is running"),
        (MOVED, "m3", "m3 was not moved: a move is running"),
        (DRAINS, "m3", "m3 was not moved: a recovery is running"),
        (RECOVERED, "m3", "m3 was not moved: a recovery is running"),
        (ENDING, "m2", "m2 was not moved: the script is ending"),
        (WITHOUT_STANDBY, "m2", "m2 was not moved: no standby is left."),
        (COLD, "m2", "no standby is left (m4 is cold: other calls)"),
        (ENDED, "m2", "The job has ended: nothing was done."),
    ],
)
def test_a_move_that_cannot_be_is_refused_with_the_reason(
    job: Job, machine: str, words: str
) -> None:
    unchanged, effects = decide(job, move(machine, "r9"))
    assert unchanged == job
    (answer,) = answers(effects)
    assert effects == (answer,)
    assert (answer.request, answer.ok) == ("r9", False)
    assert words in answer.text


def test_the_list_of_machines_is_in_the_order_people_count() -> None:
    job, _ = after(RUNNING, joined("m10", standby=True))
    assert "The machines are m1, m2, m3, m4, m10." in answers(decide(job, move("x"))[1])[0].text


def test_a_drill_kills_a_machine_of_any_kind() -> None:
    for machine in ("m2", "m4"):
        job, effects = decide(RUNNING, kill(machine))
        assert effects[0] == Send(machine, m.Die())
        assert answers(effects)[0].ok
        assert job.seats == RUNNING.seats


def test_a_drill_of_an_unknown_machine_is_refused() -> None:
    job, effects = decide(RUNNING, kill("m7"))
    assert job == RUNNING
    assert [answer.ok for answer in answers(effects)] == [False]
    assert not orders(effects, m.Die)


def test_a_drill_after_the_end_is_refused() -> None:
    _, effects = decide(ENDED, kill("m2"))
    assert [answer.ok for answer in answers(effects)] == [False]


def test_facts_of_machines_that_are_not_in_the_job_are_ignored() -> None:
    facts = [said("m9", fact) for fact in (m.Left(), m.Raised(
        rank=0, step=1, error="e", traceback=""), m.Attached(rank=0))]  # fmt: skip
    for event in (*facts, up("m9"), warm("m9"), lost("m9"), vault("m9", 1), position("m9", 0, 2)):
        assert decide(RUNNING, event) == (RUNNING, ())


def test_a_recorded_fact_counts_only_from_the_rank_itself() -> None:
    job, _ = after(BEGUN, recorded("m1", 1), recorded("m4", 2))
    assert job.recorded == {}


def test_a_warning_changes_nothing() -> None:
    assert decide(RUNNING, said("m1", m.Warned(rank=0, text="look"))) == (RUNNING, ())


def test_words_of_a_worker_that_is_elsewhere_in_its_life_are_ignored() -> None:
    for fact in (m.Left(), m.Warm(rank=0, shadow_steps=3, trace="t", warm_ms=1)):
        assert decide(RUNNING, said("m1", fact)) == (RUNNING, ())
    late = m.Parked(rank=1, epoch=2, trace="t", bind_ms=1)
    assert decide(RUNNING, said("m4", late)) == (RUNNING, ())


def test_after_the_end_nothing_is_decided_any_more() -> None:
    for event in (up("m1"), committed("m1", 0, 1), finished("m1", 0), joined("m9")):
        assert decide(ENDED, event) == (ENDED, ())
    job, effects = decide(ENDED, lost("m2"))
    assert (sorted(job.machines), effects) == (["m1", "m3", "m4"], ())


def test_an_order_never_goes_to_a_machine_that_is_gone() -> None:
    job, effects = after(RUNNING, lost("m2"), finished("m1", 0))
    assert "m2" not in orders(effects, m.Ending)
    assert job.machines["m4"].state is MachineState.BOUND


def move_refused(job: Job) -> str:
    (answer,) = answers(decide(job, move("m2"))[1])
    return answer.text


def test_more_standbys_are_not_the_advice_where_those_there_are_cannot_take_ranks() -> None:
    text = move_refused(COLD)
    assert "Add a standby (trainmover add)" in move_refused(WITHOUT_STANDBY)
    assert "trainmover add" not in text
    assert "More standbys would not help: mend what keeps these from taking ranks." in text


def test_an_end_for_want_of_a_standby_says_why_those_there_are_none() -> None:
    assert "more --standbys" in no_standby(WITHOUT_STANDBY, "m2 was lost", 1)
    text = no_standby(COLD, "m2 was lost", 1)
    assert "1 standby is left; m4 cannot: other calls." in text
    assert "more --standbys" not in text
