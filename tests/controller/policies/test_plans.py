"""Many moves, one after the other: rolls and placements, what stops them and lets them go on."""

from dataclasses import replace

import pytest
from jobs import (
    BEGUN,
    after,
    answers,
    failed,
    held,
    is_refused,
    joined,
    lost,
    moved,
    running,
    said,
    up,
    warm,
)

from trainmover.controller import Job, decide
from trainmover.controller.effects import Effect, Send
from trainmover.controller.events import (
    EVENTS,
    CordonRequested,
    PlaceRequested,
    PlanSteered,
    RollRequested,
    UncordonRequested,
)
from trainmover.controller.policies.plans.known import Standing
from trainmover.controller.state import Kind, MachineState, Outcome
from trainmover.protocol import messages as m
from trainmover.server.view.causes import cause_of

FOUR = running(machines=4, standbys=2)
HELD = RollRequested(at_us=1, request="r1", hold=True, reason="new kernel")


def roll(*machines: str, at_once: int = 1) -> RollRequested:
    return RollRequested(at_us=1, request="r1", machines=[*machines], at_once=at_once)


def place(*seats: str) -> PlaceRequested:
    return PlaceRequested(at_us=1, request="p1", seats=[*seats], reason="switch 3")


def steer(*, going: bool) -> PlanSteered:
    return PlanSteered(at_us=1, request="s1", going=going)


def cordon(machine: str) -> CordonRequested:
    return CordonRequested(at_us=1, request="c1", machine=machine)


def uncordon(machine: str) -> UncordonRequested:
    return UncordonRequested(at_us=1, request="u1", machine=machine)


def next_fact(job: Job) -> EVENTS | None:
    """What one of the machines that are not settled says next."""
    for machine in job.machines.values():
        name, slot = machine.id, machine.work
        match machine.state:
            case MachineState.LEAVING:
                return said(name, m.Left())
            case MachineState.STARTING:
                return up(name)
            case MachineState.WARMING if slot is not None:
                return warm(name, job.spec.ranks(slot)[0])
            case MachineState.HOLDING if slot is not None:
                return held(name, job.spec.ranks(slot)[0])
            case _:
                pass
    return None


def played(job: Job, told: list[Effect] | None = None) -> Job:
    """Until nothing moves any more. told: between the moves."""
    for _ in range(1000):
        if job.change is not None:
            job = moved(job)
            continue
        event = next_fact(job)
        if event is None:
            return job
        job, effects = decide(job, event)
        if told is not None:
            told += effects
    raise AssertionError("it goes on for ever")


def moves_of(job: Job) -> list[list[tuple[str, str]]]:
    """Of each change, who was left for whom."""
    return [
        [(str(one.machine), str(one.joiner)), *((str(a), str(b)) for a, b in one.further)]
        for one in job.incidents
        if one.kind is Kind.MOVE and one.outcome is Outcome.DONE
    ]


def begun(job: Job, event: RollRequested | PlaceRequested) -> Job:
    job, effects = decide(job, event)
    assert [answer.ok for answer in answers(effects)] == [True]
    return job


# --- a roll ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(("machines", "end"), [(14, "m13, m14,"), (15, "m13, m14 and 1 more,")])
def test_of_many_machines_sixteen_are_named(machines: int, end: str) -> None:
    _, effects = decide(running(machines=machines, standbys=2), roll())
    (answer,) = answers(effects)
    assert answer.text.endswith(f"{end} in this order, 1 at a time.")


def test_every_machine_gives_up_its_ranks_once_and_standbys_are_first() -> None:
    job, effects = decide(FOUR, roll())
    (answer,) = answers(effects)
    assert answer.text == "Roll 1 begins: m5, m6, m1, m2, m3, m4, in this order, 1 at a time."
    assert job.machines["m5"].state is MachineState.STARTING
    job = played(job)
    assert job.roll is not None
    assert job.roll.standing is Standing.DONE
    assert job.roll.over == ("m5", "m6", "m1", "m2", "m3", "m4")
    left = [leaver for change in moves_of(job) for leaver, _ in change]
    assert sorted(left) == ["m1", "m2", "m3", "m4"]
    assert not job.cordoned


def test_every_machine_gets_fresh_processes_once() -> None:
    job, effects = decide(FOUR, roll())
    told = [*effects]
    played(job, told)
    started = [one.machine for one in told if isinstance(one, Send) and _starts(one)]
    assert sorted(started) == sorted(FOUR.machines)


def _starts(effect: Send) -> bool:
    return isinstance(effect.order, m.StartWorkers)


@pytest.mark.parametrize(("at_once", "changes"), [(1, 4), (2, 3), (9, 3)])
def test_so_many_at_a_time_as_may_be_and_as_there_are_standbys(at_once: int, changes: int) -> None:
    job = played(begun(FOUR, roll("m1", "m2", "m3", "m4", at_once=at_once)))
    assert len(moves_of(job)) == changes
    assert job.roll is not None
    assert job.roll.standing is Standing.DONE


def test_one_that_is_to_be_held_stays_cordoned_until_it_is_uncordoned() -> None:
    job = played(begun(FOUR, HELD))
    assert job.roll is not None
    assert (job.roll.away, job.roll.over) == (("m5",), ())
    assert job.cordoned["m5"].reason == "roll 1: new kernel"
    for name in ("m5", "m6", "m1"):
        assert job.roll is not None
        assert job.roll.away == (name,)
        job = played(decide(job, uncordon(name))[0])
    assert job.roll is not None
    assert job.roll.over == ("m5", "m6", "m1")


def test_one_that_is_held_may_fail_meanwhile() -> None:
    """People work at the machine: whether it can be a standby counts once it is uncordoned."""
    job, _ = decide(played(begun(FOUR, HELD)), failed("m5", 0, "its disk is full"))
    assert job.machines["m5"].state is MachineState.COLD
    assert job.roll is not None
    assert (job.roll.standing, job.roll.away) == (Standing.GOING, ("m5",))
    job, _ = decide(job, uncordon("m5"))
    assert job.roll is not None
    assert job.roll.why == "m5 is no standby any more: its disk is full"


def test_one_that_is_held_may_be_gone_and_return() -> None:
    job = begun(running(machines=2, standbys=2), HELD)
    job = played(decide(job, lost("m3"))[0])
    assert job.roll is not None
    assert job.roll.standing is Standing.GOING
    job = played(after(job, joined("m3", standby=True), uncordon("m3"))[0])
    assert job.roll is not None
    assert job.roll.over == ("m3",)


def test_who_is_uncordoned_and_gone_is_done_without() -> None:
    job = begun(running(machines=2, standbys=2), HELD)
    job = played(after(job, lost("m3"), uncordon("m3"))[0])
    assert job.roll is not None
    assert job.roll.over[0] == "m3"
    assert job.roll.away == ("m4",)


def test_it_stops_at_a_loss_and_goes_on_without_that_machine() -> None:
    job = begun(FOUR, roll("m1", "m2", "m6"))
    job, _ = decide(job, lost("m6"))
    assert job.roll is not None
    assert job.roll.standing is Standing.STOPPED
    assert job.roll.why == "m6 was lost"
    job = played(decide(job, steer(going=True))[0])
    assert job.roll is not None
    assert job.roll.standing is Standing.DONE
    assert set(job.roll.over) == {"m1", "m2"}


def test_it_stops_at_a_machine_that_is_no_standby_any_more() -> None:
    job = begun(running(machines=2, standbys=1), roll("m3"))
    while job.machines["m3"].state is not MachineState.COLD:
        machine = job.machines["m3"]
        warms_up = machine.state is MachineState.WARMING and machine.work is not None
        event = failed("m3", machine.work or 0, "its disk is full") if warms_up else next_fact(job)
        assert event is not None
        job, _ = decide(job, event)
    assert job.roll is not None
    assert job.roll.standing is Standing.STOPPED
    assert "m3 is no standby any more" in job.roll.why
    job, effects = decide(job, steer(going=True))
    assert [one.machine for one in effects if isinstance(one, Send) and _starts(one)] == ["m3"]
    job = played(job)
    assert job.roll is not None
    assert job.roll.standing is Standing.DONE
    assert job.machines["m3"].state is MachineState.WARM


def test_it_stops_where_no_standby_can_take_ranks() -> None:
    job = decide(running(machines=2, standbys=1), cordon("m3"))[0]
    job = played(begun(job, roll("m1")))
    assert job.roll is not None
    assert job.roll.standing is Standing.STOPPED
    assert job.roll.why == "no standby can take the ranks of m1"
    assert not job.incidents
    job = played(after(job, uncordon("m3"), steer(going=True))[0])
    assert job.roll is not None
    assert job.roll.standing is Standing.DONE


def test_a_machine_that_others_have_cordoned_takes_its_turn_and_stays_cordoned() -> None:
    job = played(begun(decide(FOUR, cordon("m1"))[0], roll("m1", "m2")))
    assert job.roll is not None
    assert job.roll.over == ("m1", "m2")
    assert [*job.cordoned] == ["m1"]


# --- a placement ----------------------------------------------------------------------------------


def test_what_is_free_is_taken_as_one_change() -> None:
    job = played(begun(FOUR, place("m5", "m2", "m6", "m4")))
    assert job.seats == ("m5", "m2", "m6", "m4")
    assert moves_of(job) == [[("m1", "m5"), ("m3", "m6")]]
    assert job.incidents[0].cause == "placement 1: switch 3"
    assert cause_of(job.incidents[0]) == "placement"


def test_a_chain_is_undone_from_its_end() -> None:
    job = played(begun(FOUR, place("m2", "m3", "m5", "m4")))
    assert job.seats == ("m2", "m3", "m5", "m4")
    assert moves_of(job) == [[("m3", "m5")], [("m2", "m3")], [("m1", "m2")]]


@pytest.mark.parametrize(
    ("seats", "moves"),
    [
        (("m2", "m1", "m3", "m4"), 3),
        (("m2", "m3", "m4", "m1"), 5),
        (("m2", "m1", "m4", "m3"), 6),
        (("m4", "m1", "m5", "m3"), 4),
        (("m1", "m2", "m3", "m4"), 0),
    ],
)
def test_a_ring_costs_one_move_more(seats: tuple[str, ...], moves: int) -> None:
    job = played(begun(FOUR, place(*seats)))
    assert job.seats == seats
    assert job.placement is not None
    assert job.placement.standing is Standing.DONE
    assert sum(map(len, moves_of(job))) == moves


def test_rings_are_opened_together_where_there_are_standbys_for_it() -> None:
    job = played(begun(FOUR, place("m2", "m1", "m4", "m3")))
    assert [len(change) for change in moves_of(job)] == [2, 2, 2]


def test_it_stops_when_a_machine_that_is_to_have_ranks_is_lost() -> None:
    job = begun(FOUR, place("m2", "m3", "m5", "m4"))
    assert job.change is not None
    job, _ = decide(job, lost("m5"))
    assert job.placement is not None
    assert job.placement.standing is Standing.STOPPED
    assert "m5" in job.placement.why
    answer = answers(decide(job, steer(going=True))[1])
    assert [one.ok for one in answer] == [True]


# --- both -----------------------------------------------------------------------------------------


def test_one_at_a_time() -> None:
    job = begun(FOUR, roll())
    same, effects = decide(job, place("m5", "m2", "m6", "m4"))
    (answer,) = answers(effects)
    assert "Roll 1 is going on.\nNothing was done." in answer.text
    assert same == job


def test_one_that_is_stopped_ends_the_move_under_way_and_makes_no_other() -> None:
    job = begun(FOUR, place("m2", "m3", "m5", "m4"))
    job, effects = decide(job, steer(going=False))
    assert [answer.ok for answer in answers(effects)] == [True]
    job = played(job)
    assert job.seats == ("m1", "m2", "m5", "m4")
    assert job.plan is not None
    assert (job.plan.why, job.plan.moves) == ("somebody stopped it", 1)
    job = played(decide(job, steer(going=True))[0])
    assert job.seats == ("m2", "m3", "m5", "m4")
    assert job.plan is not None
    assert (job.plan.why, job.plan.moves) == ("", 3)


def test_a_second_plan_has_the_next_number() -> None:
    job = played(begun(FOUR, place("m5", "m2", "m6", "m4")))
    job = begun(job, roll())
    assert job.roll is not None
    assert job.roll.number == 2
    assert job.placement is None


def test_a_loss_between_two_moves_is_recovered_from_and_the_plan_is_made_again() -> None:
    job = running(machines=4, standbys=3)
    job = moved(begun(job, place("m2", "m3", "m5", "m4")))
    assert job.change is None
    job, _ = decide(job, lost("m4"))
    assert job.change is not None
    assert job.change.kind is Kind.RECOVERY
    assert job.placement is not None
    assert job.placement.standing is Standing.GOING


@pytest.mark.parametrize(
    ("event", "words"),
    [
        (roll("m9"), "There is no machine m9"),
        (roll("m2", "m2"), "m2 is named twice"),
        (roll(at_once=0), "0 machines at once"),
        (roll(at_once=-3), "-3 machines at once"),
        (place("m1", "m2"), "2 machines were named for 4 slots"),
        (place(), "0 machines were named for 4 slots"),
        (place("m1", "m2", "m3", "m9"), "There is no machine m9"),
        (place("m1", "m2", "m3", "m3"), "m3 is named twice"),
        (steer(going=True), "There is no plan"),
        (steer(going=False), "There is no plan"),
    ],
)
def test_what_cannot_be_meant_harms_nothing(
    event: RollRequested | PlaceRequested | PlanSteered, words: str
) -> None:
    is_refused(FOUR, event, words)


def test_there_must_be_a_standby_to_put_ranks_on() -> None:
    alone = running(machines=2, standbys=0)
    for event in (roll(), place("m2", "m1")):
        same, effects = decide(alone, event)
        (answer,) = answers(effects)
        assert not answer.ok
        assert "standby" in answer.text
        assert same == alone


def test_a_cordoned_machine_gets_no_slot() -> None:
    job = decide(FOUR, cordon("m5"))[0]
    (answer,) = answers(decide(job, place("m5", "m2", "m3", "m4"))[1])
    assert "m5 is cordoned" in answer.text


def test_an_answer_does_not_name_thousands() -> None:
    job = running(machines=30, standbys=1)
    for event in (roll(), place("m31", *job.seats[1:])):
        (answer,) = answers(decide(job, event)[1])
        assert answer.ok
        assert answer.text.count("m") < 40
        assert " more" in answer.text


def test_before_the_job_runs_it_is_refused() -> None:
    starting = replace(BEGUN, phase="starting")
    (answer,) = answers(decide(starting, roll())[1])
    assert "Ask again when it runs" in answer.text


def test_before_the_first_steps_are_recorded_it_waits() -> None:
    job = begun(BEGUN, roll("m1"))
    assert job.change is None
    assert job.roll is not None
    assert job.roll.left == ("m1",)
