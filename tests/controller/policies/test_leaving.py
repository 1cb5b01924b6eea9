"""A machine that is to be taken away gives its ranks up before, as soon as others can take them."""

from dataclasses import replace

import msgspec
import pytest
from jobs import RUNNING, after, answers, joined, kinds, lost, move, running, up
from test_drain import done, drain, ended

from trainmover.controller import Job, decide
from trainmover.controller.events import AgentSaid, CordonRequested, RollRequested, SlowFound
from trainmover.controller.policies.plans.known import Standing
from trainmover.controller.state import Cordon, Phase
from trainmover.ids import MachineId
from trainmover.protocol import messages as m
from trainmover.server.view.causes import cause_of
from trainmover.server.view.sentences import sentence

FOUR = running(machines=4, standbys=2)


def notice(machine: str, left_ms: int = 30_000, *, at_us: int = 100) -> AgentSaid:
    return AgentSaid(at_us=at_us, machine=machine, fact=m.Leaving(left_ms=left_ms))


def test_its_ranks_are_moved_at_once_and_it_takes_no_others() -> None:
    job, effects = decide(FOUR, notice("m2"))
    assert job.change is not None
    assert job.change.leavers == {1: "m2"}
    assert ("m5", "Bind") in kinds(effects) or ("m6", "Bind") in kinds(effects)
    assert job.incidents[-1].cause == "m2 will be taken away, in 30 s"
    assert cause_of(job.incidents[-1]) == "notice"
    assert job.cordoned["m2"].until_us == 30_000_100
    assert "m2" not in done(job).seats


def test_two_that_are_told_of_together_go_one_after_the_other() -> None:
    job, _ = after(FOUR, notice("m2"), notice("m3", 5_000))
    job = done(job)
    assert job.change is not None
    assert job.change.leavers == {2: "m3"}
    assert sorted(done(job).seats) == ["m1", "m4", "m5", "m6"]


def test_of_two_that_go_together_the_one_that_is_taken_away_is_named_first() -> None:
    ill = Cordon(0, "about to fail: its memory", failing=True)
    job, _ = decide(replace(FOUR, cordoned={MachineId("m2"): ill}), notice("m3"))
    assert job.change is not None
    assert job.change.leavers == {1: "m2", 2: "m3"}
    assert job.incidents[-1].cause == (
        "m3 will be taken away, in 30 s; m2 is about to fail: its memory"
    )


def test_two_that_had_to_wait_go_together_where_there_are_standbys_for_both() -> None:
    job, _ = after(running(machines=4, standbys=3), move("m1"), notice("m2"), notice("m3"))
    job = done(job)
    assert job.change is not None
    assert job.change.leavers == {1: "m2", 2: "m3"}


def test_while_a_move_is_under_way_it_waits_and_then_goes() -> None:
    job, _ = after(FOUR, move("m1"), notice("m2"))
    assert job.change is not None
    assert job.change.leavers == {0: "m1"}
    job = done(job)
    assert job.change is not None
    assert job.change.leavers == {1: "m2"}


def test_without_a_standby_it_stays_until_one_comes_or_it_is_lost() -> None:
    job, effects = decide(running(machines=3, standbys=0), notice("m2"))
    assert job.change is None
    assert effects == ()
    assert job.phase is Phase.RUNNING
    later, _ = decide(job, joined("m9", standby=True))
    assert later.change is not None
    assert later.change.leavers == {1: "m2"}


def test_the_second_notice_counts_and_a_standby_is_cordoned_only() -> None:
    job, _ = after(RUNNING, notice("m4", 9_000), notice("m4", 1_000, at_us=200))
    assert job.change is None
    assert job.cordoned["m4"].until_us == 1_000_200


def test_who_drains_one_that_is_leaving_already_is_told_when_its_ranks_are_elsewhere() -> None:
    job, effects = after(FOUR, notice("m2"), drain("m2", reason="disk"))
    assert answers(effects) == []
    assert (job.cordoned["m2"].reason, job.cordoned["m2"].until_us) == ("disk", 30_000_100)
    assert job.change is not None
    assert job.change.request == "d1"
    (answer,) = answers(ended(job)[1])
    assert (answer.request, answer.ok) == ("d1", True)


def test_who_drains_one_more_beside_it_is_refused_and_both_are_cordoned() -> None:
    job, effects = after(FOUR, notice("m2"), drain("m2", "m3"))
    (answer,) = answers(effects)
    assert not answer.ok
    assert "a move is running" in answer.text
    assert set(job.cordoned) == {"m2", "m3"}
    assert job.cordoned["m2"].until_us


def test_a_cordon_of_people_does_not_make_it_stay() -> None:
    one = running(machines=3, standbys=0)
    people = CordonRequested(at_us=200, request="c1", machine="m2", reason="disk")
    job, _ = after(one, notice("m2"), people, joined("m9", standby=True))
    assert job.change is not None
    assert job.change.leavers == {1: "m2"}


def test_one_of_its_name_that_comes_later_is_another() -> None:
    job, _ = after(FOUR, notice("m5"), lost("m5"), joined("m5", standby=True))
    assert "m5" not in job.cordoned


@pytest.mark.parametrize("job", [FOUR, RUNNING])
def test_a_notice_of_a_machine_that_is_gone_changes_nothing(job: Job) -> None:
    gone, _ = decide(job, lost("m2"))
    assert decide(gone, notice("m2")) == (gone, ())


def test_who_is_to_go_first_gets_the_only_standby_before_one_that_is_slow() -> None:
    job = running(machines=4, standbys=1)
    job = replace(job, spec=msgspec.structs.replace(job.spec, stragglers="act"))
    found = SlowFound(
        at_us=200, epoch=job.epoch, machine="m1", kind="machine", ranks=[0], step=30, steps=7,
        own_ms=150, usual_ms=100,
    )  # fmt: skip
    job, _ = after(job, move("m4"), notice("m3", 9_000), notice("m2", 5_000), found)
    assert job.change is not None
    assert job.change.leavers == {3: "m4"}
    assert "a move is running" in job.stragglers.findings[-1].done
    job, _ = decide(done(job), joined("m9", standby=True))
    assert job.change is not None
    assert job.change.leavers == {1: "m2"}


def policies(job: Job) -> Job:
    """All of them act."""
    every = {"stragglers": "act", "anomalies": "act", "on_divergence": "replace"}
    return replace(job, spec=msgspec.structs.replace(job.spec, **every))


def test_who_wants_the_same_standby_gets_it_in_one_order() -> None:
    """People first; then what may fail at any moment, then what will be taken away, each in its
    turn. A roll stops where no standby is left, and what was slow is found again."""
    job = policies(running(machines=5, standbys=1))
    found = SlowFound(
        at_us=200, epoch=job.epoch, machine="m1", kind="machine", ranks=[0], step=30, steps=7,
        own_ms=150, usual_ms=100,
    )  # fmt: skip
    roll = RollRequested(at_us=200, request="r1", machines=["m4"])
    broken = AgentSaid(at_us=200, machine="m3", fact=m.Sign(symptom="gpu", line="Xid 79"))
    job, _ = after(job, move("m5"), found, roll, notice("m2", 5_000), broken)
    gone = []
    for fresh in ("n1", "n2", "n3"):
        assert job.change is not None
        (leaver,) = job.change.leavers.values()
        gone.append(leaver)
        job, _ = after(done(job), lost(leaver), joined(fresh, standby=True), up(fresh))
    assert gone == ["m5", "m3", "m2"]
    assert job.change is None
    assert job.roll is not None
    assert job.roll.standing is Standing.STOPPED
    assert "a move is running" in job.stragglers.findings[-1].done


def test_a_notice_that_leaves_less_time_than_moves_take_is_said_at_once() -> None:
    job = done(decide(FOUR, drain("m3"))[0])
    slow = {**job.incidents[0].marks, "first_step": 3_000_100}
    job = replace(job, incidents=(replace(job.incidents[0], marks=slow),))
    in_time, _ = decide(job, notice("m2", 4_000))
    late, _ = decide(job, notice("m2", 1_000))
    assert in_time.incidents[-1].cause == "m2 will be taken away, in 4 s"
    assert late.incidents[-1].cause == (
        "m2 will be taken away, in 1 s; it may come too late: moves of this job take 3.0 s, and "
        "1.0 s are left"
    )


def told(before: Job, event: AgentSaid) -> str:
    return sentence(before, event, decide(before, event)[0]).text


@pytest.mark.parametrize(
    ("notices", "text"),
    [
        ("watch", "m2 will be taken away in 30 s; nothing is done; --notices act would give its "
         "ranks to a standby"),
        ("off", ""),
    ],
)  # fmt: skip
def test_to_watch_is_to_say_it(notices: str, text: str) -> None:
    job = replace(FOUR, spec=msgspec.structs.replace(FOUR.spec, notices=notices))
    assert decide(job, notice("m2")) == (job, ())
    assert told(job, notice("m2")) == text


def test_what_keeps_its_ranks_there_is_said_with_the_notice() -> None:
    alone = told(running(machines=3, standbys=0), notice("m2"))
    assert alone == "m2 will be taken away in 30 s; no standby can take its ranks now"
    busy, _ = decide(FOUR, move("m1"))
    then = "m2 will be taken away in 30 s; its ranks go when what is under way is done"
    assert told(busy, notice("m2")) == then
    assert told(busy, notice("m1")) == "m1 will be taken away in 30 s"
    assert told(FOUR, notice("m5")) == "m5 will be taken away in 30 s"
