"""What an incident keeps of the ways there were, their costs, and which of them it was."""

from dataclasses import replace

import msgspec
from jobs import (
    BEGUN,
    DRAINS,
    RECOVERED,
    RUNNING,
    SEATS,
    after,
    committed,
    exited,
    interrupted,
    joined,
    lost,
    move,
    moved,
    running,
)

from trainmover.controller import Job, decide
from trainmover.controller.change.options import (
    AGAIN,
    BACK,
    NAMED_MAX,
    PROCESS,
    RETRY,
    RETURN,
    STANDBY,
    STOP,
    WAIT,
    options,
    way_of,
)
from trainmover.controller.events import CordonRequested
from trainmover.controller.state import Cut, Incident, Option, Outcome
from trainmover.ids import Slot, Step

CUT = Cut(Step(5), {}, {}, 10, 10)


def ways(job: Job) -> dict[str, Option]:
    return {one.name: one for one in job.incidents[-1].options}


def allowed_to_wait(job: Job) -> Job:
    return replace(job, spec=msgspec.structs.replace(job.spec, wait_s=60))


def test_a_lost_machine_is_replaced_and_the_others_say_why_they_were_not_it() -> None:
    known = ways(DRAINS)
    assert list(known) == [RETRY, RETURN, STANDBY, PROCESS, WAIT, BACK, STOP]
    assert known[RETURN] == Option(RETURN, 0.06, "nobody has reached it for 0.0 s")
    assert known[STANDBY] == Option(STANDBY, None, "m4")
    assert known[PROCESS].why == "m2 is gone"
    assert known[WAIT].why == "it was not allowed (--wait-for-machine)"
    assert known[BACK].why == "there is none at hand"
    assert "--no-standby" in known[STOP].why
    assert way_of(DRAINS.incidents[-1]) == STANDBY


def test_costs_are_what_this_job_has_measured() -> None:
    pairs = enumerate(("m1", "m4", "m3"))
    facts = [committed(name, rank, 2, gap_us=290_000, median_us=90_000) for rank, name in pairs]
    job, _ = after(RECOVERED, *facts)
    assert (job.incidents[-1].downtime_ms, job.incidents[-1].step_ms) == (200.0, 90.0)
    job = replace(job, cut=Cut(Step(5), {}, {}, 10, 10), snapshot_every=4)
    job, _ = decide(allowed_to_wait(job), interrupted("m1", 0, 2))
    assert ways(job) == {
        RETRY: Option(RETRY, None, ""),
        BACK: Option(BACK, 360.0, "of step 5; up to 4 steps would be made again"),
    }
    assert way_of(job.incidents[-1]) == RETRY


def test_a_standby_costs_its_run_and_a_switchover() -> None:
    job = moved(decide(running(machines=3, standbys=2), move("m1"))[0])
    job = replace(job, incidents=(replace(job.incidents[0], downtime_ms=80.0),))
    job, _ = decide(job, lost("m2"))
    assert ways(job)[STANDBY] == Option(STANDBY, 80.0, "m5")
    assert way_of(job.incidents[-1]) == STANDBY


def test_a_process_that_ended_may_be_replaced_on_its_machine() -> None:
    alone, _ = decide(RUNNING, CordonRequested(at_us=0, request="c", machine="m4"))
    job, _ = decide(alone, exited("m2", pid=1))
    assert ways(job)[PROCESS] == Option(
        PROCESS, 50.0, "a run of the script in fresh processes comes first"
    )
    assert ways(job)[STANDBY].why == "no standby can take the ranks"
    assert way_of(job.incidents[-1]) == PROCESS


def test_who_waits_waits_for_a_machine() -> None:
    job, _ = decide(allowed_to_wait(running(machines=2, standbys=0)), lost("m2"))
    assert ways(job)[WAIT] == Option(WAIT, 60_000.0, "at most 60 s")
    assert way_of(job.incidents[-1]) == WAIT


def test_to_stop_costs_what_it_took_to_start_and_the_steps_since_the_cut() -> None:
    job, _ = decide(running(machines=3, standbys=1), lost("m2"))
    spec = msgspec.structs.replace(job.spec, no_standby="checkpoint")
    for cut, back_ms, cost in ((None, 90.0, None), (CUT, None, None), (CUT, 90.0, 8360.0)):
        past = replace(job.incidents[0], outcome=Outcome.DONE, step_ms=back_ms)
        known = replace(
            job,
            spec=spec,
            change=None,
            cut=cut,
            snapshot_every=4,
            start_ms=8000.0,
            incidents=(past,),
        )
        assert options(known, {}, [Slot(1)])[-1].ms == cost


def test_a_job_knows_how_long_its_start_took() -> None:
    job, _ = decide(Job(spec=BEGUN.spec), msgspec.structs.replace(joined("m1"), at_us=2_000_000))
    job = replace(BEGUN, begun_us=job.begun_us)
    first = committed(SEATS[0], 0, 1, step=1, at_us=9_500_000)
    later = committed(SEATS[1], 1, 1, step=1, at_us=9_900_000)
    assert [after(job, *said)[0].start_ms for said in ([], [first], [first, later])] == [
        None,
        7500.0,
        7500.0,
    ]


def test_what_comes_of_it_may_be_another_way() -> None:
    first = DRAINS.incidents[-1]
    assert way_of(replace(first, rung=2)) == BACK
    assert way_of(replace(first, rung=3)) == AGAIN
    assert way_of(decide(RUNNING, move("m2"))[0].incidents[-1]) == ""


def test_before_anything_is_recorded_all_start_again() -> None:
    job, _ = decide(BEGUN, lost("m2"))
    assert way_of(job.incidents[-1]) == AGAIN


def test_a_rack_is_not_named_machine_by_machine() -> None:
    job = running(machines=12, standbys=12)
    job, _ = decide(job, lost(*job.seats[: NAMED_MAX + 3]))
    assert ways(job)[STANDBY].why.endswith(" and 3 others")
    assert ways(job)[PROCESS].why == "m1, m2, m3, m4, m5 and 3 others are gone"


def test_a_loss_that_explains_a_broken_link_has_its_own_options() -> None:
    job, _ = decide(RUNNING, interrupted(SEATS[0], 0, 1))
    assert list(ways(job)) == [RETRY, BACK]
    job, _ = decide(job, lost("m2"))
    incident: Incident = job.incidents[-1]
    assert incident.number == 1
    assert STANDBY in ways(job)
