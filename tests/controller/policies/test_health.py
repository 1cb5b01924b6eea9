"""Machines are examined before they take ranks, and compared with each other."""

from typing import Any

import msgspec
import pytest
from jobs import RUNNING, after, answers, ended, is_refused, joined, lost, orders, running, up

from trainmover.controller import Job, decide
from trainmover.controller.change.incidents import open_incident
from trainmover.controller.events import (
    AgentSaid,
    CordonRequested,
    HealthRequested,
    MoveRequested,
    Tick,
    UncordonRequested,
)
from trainmover.controller.policies.health.examine import WAITS
from trainmover.controller.policies.health.figures import (
    LEAST_KNOWN,
    in_words,
    norms_of,
    too_far_off,
)
from trainmover.controller.state import Phase
from trainmover.controller.values import replace
from trainmover.protocol import messages as m

FIT = {"disk_mb_s": 500.0, "memory_gb_s": 4.0}
SLOW = {"disk_mb_s": 40.0, "memory_gb_s": 4.0}


def health(machine: str, request: str = "h1") -> HealthRequested:
    return HealthRequested(at_us=5, request=request, machine=machine)


def found(
    job: Job, machine: str, figures: dict[str, float] = FIT, failed: str = "", **more: Any
) -> AgentSaid:
    number = job.health.of[machine].number
    fact = m.Examined(number=number, figures=figures, failed=failed, **more)
    return AgentSaid(at_us=1_000_000, machine=machine, fact=fact)


def policy(job: Job, health: str) -> Job:
    return replace(job, spec=msgspec.structs.replace(job.spec, health=health))


def beginning(health: str, machines: int = 4, standbys: int = 1) -> Job:
    """All have joined, and their processes are up."""
    spec = m.JobSpec(
        run_id="r", argv=["x"], machines=machines, standbys=standbys, health=health, wait_s=60
    )
    job, _ = after(
        Job(spec),
        *(joined(f"m{n}", standby=n > machines) for n in range(1, machines + standbys + 1)),
        *(up(f"m{n}") for n in range(1, machines + standbys + 1)),
    )
    return job


def all_found(job: Job, slow: tuple[str, ...] = ()) -> Job:
    for name in [*job.machines]:
        job, _ = decide(job, found(job, name, SLOW if name in slow else FIT))
    return job


# --- when somebody asks ---------------------------------------------------------------------------


def test_a_machine_without_ranks_is_examined_and_the_figures_are_the_answer() -> None:
    job, effects = decide(RUNNING, health("m4"))
    (order,) = orders(effects, m.Examine).values()
    assert order.number == 1
    assert set(order.peers) <= {"m2", "m3"}
    assert not answers(effects)
    job, effects = decide(job, found(job, "m4"))
    (answer,) = answers(effects)
    assert answer.ok
    assert "m4 is fit: its disk 500 MB/s, its memory 4 GB/s" in answer.text
    assert job.cordoned == {}
    assert decide(job, found(job, "m4"))[1] == ()


def test_what_no_healthy_machine_does_needs_no_others() -> None:
    job, _ = decide(RUNNING, health("m4"))
    job, effects = decide(job, found(job, "m4", {}, "its memory gave back other bits"))
    (answer,) = answers(effects)
    assert not answer.ok
    assert "m4 is not fit: its memory gave back other bits" in answer.text
    assert "trainmover cordon m4" in answer.text
    assert job.cordoned == {}


@pytest.mark.parametrize(
    ("machine", "words"), [("m1", "m1 has ranks"), ("m9", "There is no machine m9")]
)
def test_what_cannot_be_meant_harms_nothing(machine: str, words: str) -> None:
    is_refused(RUNNING, health(machine), words)


def test_before_a_job_runs_nobody_is_examined_twice() -> None:
    job = all_found(beginning("act", standbys=2), slow=("m2",))
    waiting = beginning("act")
    (answer,) = answers(decide(waiting, health("m1"))[1])
    assert "The job is gathering: nothing was done" in answer.text
    assert decide(job, health("m2"))[1]


def test_one_examination_at_a_time_and_what_comes_of_an_older_one_is_not_heard() -> None:
    job, _ = decide(RUNNING, health("m4"))
    is_refused(job, health("m4", "h2"), "m4 is being examined")
    old = found(job, "m4")
    job, _ = after(job, old)
    job, _ = decide(job, health("m4", "h3"))
    assert decide(job, old)[1] == ()


def test_who_asks_about_a_machine_that_is_lost_is_told() -> None:
    job, _ = decide(RUNNING, health("m4"))
    job, effects = decide(job, lost("m4"))
    assert [(answer.ok, "m4 was lost" in answer.text) for answer in answers(effects)] == [
        (False, True)
    ]
    assert "m4" not in job.health.of


def test_who_asks_about_one_that_is_given_up_by_time_alone_is_told_too() -> None:
    """Its process was to end, and did not."""
    job, _ = decide(RUNNING, health("m4"))
    state = m.WorkerState(local_rank=0, pid=job.machines["m4"].pids[0], state="stopped")
    stopped = AgentSaid(at_us=1_000_000, machine="m4", fact=state)
    job, effects = after(job, stopped, Tick(at_us=12_000_000), Tick(at_us=15_000_000))
    assert "m4" not in job.machines
    assert [answer.ok for answer in answers(effects)] == [False]
    assert "m4" not in job.health.of
    assert job.health.untold == 0


def test_also_where_another_machine_joins_in_that_moment() -> None:
    job, _ = decide(RUNNING, health("m4"))
    state = m.WorkerState(local_rank=0, pid=job.machines["m4"].pids[0], state="stopped")
    stopped = AgentSaid(at_us=1_000_000, machine="m4", fact=state)
    joins = msgspec.structs.replace(joined("m9", standby=True), at_us=15_000_000)
    job, effects = after(job, stopped, Tick(at_us=12_000_000), joins)
    assert "m4" not in job.machines
    assert [answer.ok for answer in answers(effects)] == [False]
    assert "m4" not in job.health.of


# --- before ranks are taken -----------------------------------------------------------------------


def test_off_examines_nobody() -> None:
    job, effects = decide(RUNNING, joined("m5", standby=True))
    assert not orders(effects, m.Examine)
    assert job.health.of == {}


def test_watch_examines_and_keeps_nobody_out() -> None:
    job, effects = decide(policy(RUNNING, "watch"), joined("m5", standby=True))
    assert list(orders(effects, m.Examine)) == ["m5"]
    job, _ = decide(job, found(job, "m5", {}, "its disk is full"))
    assert job.health.of["m5"].failed == "its disk is full"
    assert job.cordoned == {}


def test_act_lets_a_newcomer_in_when_it_has_passed() -> None:
    job, _ = decide(policy(RUNNING, "act"), joined("m5", standby=True))
    assert job.cordoned["m5"].reason == WAITS
    job, _ = decide(job, found(job, "m5"))
    assert job.cordoned == {}


def test_act_keeps_out_who_has_failed_and_people_may_let_it_in() -> None:
    job, _ = decide(policy(running(standbys=0), "act"), joined("m5", standby=True))
    job, _ = decide(job, found(job, "m5", {}, "GPU 2 has 4 memory errors"))
    assert job.cordoned["m5"].reason == "not fit: GPU 2 has 4 memory errors"
    asked = MoveRequested(at_us=0, request="r", machine="m1")
    (answer,) = answers(decide(job, asked)[1])
    assert "GPU 2 has 4 memory errors" in answer.text
    job, _ = decide(job, UncordonRequested(at_us=0, request="u", machine="m5"))
    assert job.cordoned == {}


def test_somebody_s_own_cordon_stands_whatever_is_found() -> None:
    job, _ = decide(policy(RUNNING, "act"), joined("m5", standby=True))
    job, _ = decide(job, CordonRequested(at_us=0, request="c", machine="m5", reason="mine"))
    job, _ = decide(job, found(job, "m5"))
    assert job.cordoned["m5"].reason == "mine"


def test_a_machine_that_returns_is_examined_again() -> None:
    job, _ = decide(policy(RUNNING, "act"), joined("m5", standby=True))
    job, _ = decide(job, found(job, "m5", {}, "its disk is full"))
    job, _ = after(job, lost("m5"), joined("m5", standby=True))
    assert job.cordoned["m5"].reason == WAITS
    job, _ = decide(job, found(job, "m5"))
    assert job.cordoned == {}


def test_one_that_is_lost_before_it_is_known_is_no_name_among_the_cordoned() -> None:
    job, _ = decide(policy(RUNNING, "act"), joined("m5", standby=True))
    job, _ = decide(job, lost("m5"))
    assert job.cordoned == {}


# --- as a job begins ------------------------------------------------------------------------------


def test_a_job_waits_until_all_are_examined_and_compares_them() -> None:
    job = beginning("act")
    assert job.phase is Phase.GATHERING
    job = all_found(job, slow=("m2",))
    assert job.phase is Phase.RUNNING
    assert job.seats == ("m1", "m3", "m4", "m5")
    assert "its disk has 40 MB/s, and the median of 5 machines is 500" in job.cordoned["m2"].reason


def test_one_that_was_not_fit_and_is_lost_before_the_begin_is_counted_once() -> None:
    names = [f"m{number}" for number in range(1, 6)]
    job, _ = after(Job(beginning("act").spec), *(joined(name, standby=False) for name in names))
    job = all_found(job, slow=("m1",))
    assert (job.phase, job.lost_early) == (Phase.GATHERING, 1), "no process is up"
    job, _ = decide(job, lost("m1"))
    assert (job.phase, job.lost_early) == (Phase.GATHERING, 1)
    _, effects = decide(job, lost("m2"))
    assert ended(effects).text.startswith("m2 was lost before the job began")


def test_the_last_that_is_waited_for_is_lost_and_the_others_are_judged() -> None:
    job = beginning("act")
    for name in ("m1", "m2", "m3", "m4"):
        job, _ = decide(job, found(job, name, {}, "its disk is full" if name == "m1" else ""))
    job, effects = decide(job, lost("m5"))
    assert job.phase is Phase.ENDED
    assert "m1 was lost before the job began: it is not fit" in ended(effects).text


def test_it_ends_where_too_few_are_fit() -> None:
    job = beginning("act")
    for name in ("m1", "m2", "m3", "m4"):
        slow = name in ("m1", "m2")
        job, _ = decide(job, found(job, name, {}, "its disk is full" if slow else ""))
    job, effects = decide(job, found(job, "m5"))
    assert (
        "m2 was lost before the job began: it is not fit: its disk is full" in ended(effects).text
    )


def test_who_has_failed_and_goes_is_missed_once() -> None:
    job = all_found(beginning("act", standbys=2), slow=("m2",))
    assert job.phase is Phase.RUNNING
    job = beginning("act", standbys=2)
    for name in ("m1", "m2", "m3", "m4", "m5"):
        job, _ = decide(job, found(job, name, {} if name == "m2" else FIT, "sick" * (name == "m2")))
    job, _ = decide(job, found(job, "m6"))
    assert job.phase is Phase.RUNNING


def test_nobody_waits_for_one_that_is_lost() -> None:
    job = beginning("act")
    for name in ("m1", "m2", "m3", "m5"):
        job, _ = decide(job, found(job, name))
    assert job.phase is Phase.GATHERING
    job, _ = decide(job, lost("m4"))
    assert job.phase is Phase.RUNNING
    assert job.seats == ("m1", "m2", "m3", "m5")


@pytest.mark.parametrize("health", ["off", "watch"])
def test_else_no_job_waits(health: str) -> None:
    assert beginning(health).phase is Phase.RUNNING


# --- the figures ----------------------------------------------------------------------------------


def test_of_few_machines_nobody_is_the_odd_one() -> None:
    others = [FIT] * (LEAST_KNOWN - 2)
    assert too_far_off(SLOW, norms_of([*others, SLOW])) == ""
    assert too_far_off(SLOW, norms_of([*others, FIT, SLOW]))


def test_what_differs_on_all_machines_is_no_fault() -> None:
    rates = [300.0, 900.0, 150.0, 600.0, 1200.0, 75.0]
    every = [{"disk_mb_s": rate} for rate in rates]
    assert not any(too_far_off(one, norms_of(every)) for one in every)


def test_a_clock_that_is_set_otherwise_is_told_and_all_that_agree_are_not() -> None:
    every = [{"clock_ms": 7_200_000.0 + n} for n in range(5)]
    assert too_far_off(every[0], norms_of(every)) == ""
    odd = {"clock_ms": 0.0}
    assert "its clock is 7200.0 s off" in too_far_off(odd, norms_of([*every, odd]))


def test_the_clock_is_read_by_the_time_of_the_controller() -> None:
    job, _ = decide(RUNNING, health("m4"))
    job, _ = decide(job, found(job, "m4", clock_us=3_500_000))
    assert job.health.of["m4"].figures["clock_ms"] == 2500.0
    assert in_words(job.health.of["m4"].figures).endswith("its clock 2500 ms off")


def test_more_is_never_worse_and_unknown_names_mean_nothing() -> None:
    every = [FIT] * 9
    assert too_far_off({"disk_mb_s": 9000.0, "of another version": 0.0}, norms_of(every)) == ""


def test_it_stands_still_for_no_change() -> None:
    job, _ = decide(RUNNING, health("m4"))
    assert open_incident(job) is None
    assert job.change is None
