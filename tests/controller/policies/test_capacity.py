"""What a job wants of its engine, gives back, and makes of the engine's answers."""

from collections.abc import Iterator

import msgspec
import pytest

from tests.controller.jobs import RUNNING, after, ended, joined, lost, orders, up
from trainmover.controller import Job, decide
from trainmover.controller.clock import tick_due
from trainmover.controller.effects import Acquire, Effect, Release
from trainmover.controller.events import (
    DrainRequested,
    EngineNoticed,
    Granted,
    MachinesDenied,
    MachinesGranted,
    Tick,
)
from trainmover.controller.policies.capacity.known import Grant, Need, NoticeKind, Returned
from trainmover.controller.policies.capacity.wanting import AVOID_US, FAILURES_MAX, JOIN_US
from trainmover.controller.state import Phase
from trainmover.controller.values import replace
from trainmover.protocol.messages import Interrupt, JobSpec
from trainmover.server.view.engine import Queued, wants_json
from trainmover.server.view.waiting import waiting_json

WEEK_S = 7 * 86400


def with_engine(job: Job) -> Job:
    """A running job whose machines are all an engine's."""
    grants = {name: Grant(node=f"n-{name}", granted_us=0, joined=True) for name in job.machines}
    spec = msgspec.structs.replace(job.spec, engine="slurm", wait_s=WEEK_S)
    capacity = replace(job.capacity, grants=grants, wanted=1, named=4)
    return replace(job, spec=spec, capacity=capacity)


JOB = with_engine(RUNNING)


def wanted(effects: tuple[Effect, ...]) -> list[Acquire]:
    return [effect for effect in effects if isinstance(effect, Acquire)]


def returned(effects: tuple[Effect, ...]) -> dict[str, Returned]:
    return {effect.machine: effect.why for effect in effects if isinstance(effect, Release)}


def names(job: Job) -> Iterator[str]:
    return (name for want in job.capacity.wants.values() for name in want.names)


def granted(*machines: str, node: str = "", at_us: int = 0) -> MachinesGranted:
    each = [Granted(machine=name, node=node or f"node-{name}") for name in machines]
    return MachinesGranted(at_us=at_us, machines=each)


def new_job(machines: int = 2, standbys: int = 1) -> tuple[Job, tuple[Effect, ...]]:
    spec = JobSpec(
        run_id="r", argv=["x"], machines=machines, standbys=standbys, engine="slurm", wait_s=WEEK_S
    )
    job = Job(spec=spec)
    assert tick_due(job, 0, 0)
    return decide(job, Tick(at_us=0))


# --- asking ---------------------------------------------------------------------------------------


def test_a_new_job_wants_all_its_machines() -> None:
    job, effects = new_job()
    assert [(one.count, one.why) for one in wanted(effects)] == [(2, Need.START), (1, Need.START)]
    assert [want.standby for want in job.capacity.wants.values()] == [False, True]
    assert list(names(job)) == ["m1", "m2", "m3"]
    assert not tick_due(job, 0, 1)


def test_a_job_without_an_engine_wants_nothing() -> None:
    assert not wanted(after(RUNNING, lost("m4"))[1])


def test_a_slow_engine_is_not_asked_twice() -> None:
    job, effects = after(JOB, lost("m4"))
    assert [(one.count, one.why) for one in wanted(effects)] == [(1, Need.STANDBY)]
    job, effects = after(job, Tick(at_us=1), Tick(at_us=2))
    assert not wanted(effects)
    assert list(names(job)) == ["m5"]


def test_a_lost_machine_is_given_back_and_its_slot_is_filled() -> None:
    job, effects = after(JOB, lost("m4"), lost("m2"))
    assert job.phase is Phase.RUNNING
    assert job.change is not None
    assert job.change.missing
    assert returned(effects) == {"m4": Returned.LOST, "m2": Returned.LOST}
    assert wanted(effects)[-1].why is Need.SLOT
    assert wanted(effects)[-1].like == "m2"
    assert set(orders(effects, Interrupt)) == {"m1", "m3"}


def test_a_lost_node_is_avoided_for_a_while() -> None:
    job, _ = after(JOB, lost("m4"))
    (want,) = job.capacity.wants.values()
    assert want.avoid == ("n-m4",)
    assert tick_due(job, 0, AVOID_US)
    job, effects = decide(job, Tick(at_us=AVOID_US))
    (want,) = job.capacity.wants.values()
    assert (want.avoid, want.tries, len(wanted(effects))) == ((), 2, 1)


# --- answers --------------------------------------------------------------------------------------


def test_what_is_granted_is_wanted_no_more() -> None:
    job, effects = after(JOB, lost("m4"), granted("m5"), Tick(at_us=1))
    assert not list(names(job))
    assert len(wanted(effects)) == 1
    job, effects = after(job, joined("m5", standby=True), up("m5"))
    assert job.capacity.grants["m5"].joined
    assert not wanted(effects)
    assert not returned(effects)


def test_a_machine_may_be_quicker_than_the_word_of_its_engine() -> None:
    job, _ = after(JOB, lost("m4"), joined("m5", standby=True))
    assert not list(names(job))
    job, effects = after(job, granted("m5"))
    assert job.capacity.grants["m5"].node == "node-m5"
    assert not returned(effects)


@pytest.mark.parametrize("times", [2, 3])
def test_a_grant_counts_once(times: int) -> None:
    job, effects = after(JOB, lost("m4"), *[granted("m5")] * times)
    assert job.capacity.to_come == 1
    assert not returned(effects).keys() - {"m4"}


def test_a_node_counts_once_and_what_nobody_wants_goes_back() -> None:
    job, effects = after(JOB, lost("m4"), granted("m5", node="n-m1"), granted("x"))
    assert returned(effects) == {
        "m4": Returned.LOST, "m5": Returned.TWICE, "x": Returned.UNWANTED
    }  # fmt: skip
    assert list(names(job)) == ["m6"]


def test_a_machine_that_never_comes_is_replaced() -> None:
    job, _ = after(JOB, lost("m4"), granted("m5"))
    assert tick_due(job, JOIN_US - 1, JOIN_US)
    job, effects = decide(job, Tick(at_us=JOIN_US))
    assert returned(effects) == {"m5": Returned.LATE}
    assert list(names(job)) == ["m6"]


def test_a_denied_want_is_tried_again_at_its_time() -> None:
    denied = MachinesDenied(at_us=0, want=2, why="full", retry_ms=5000)
    job, effects = after(JOB, lost("m4"), denied)
    assert job.phase is Phase.RUNNING
    assert len(wanted(effects)) == 1
    assert not tick_due(job, 0, 4_999_999)
    job, effects = decide(job, Tick(at_us=5_000_000))
    assert [one.want for one in wanted(effects)] == [2]


def test_a_job_that_cannot_begin_ends_with_the_engines_words() -> None:
    job, _ = new_job()
    denial = MachinesDenied(at_us=0, want=1, why="invalid", text="no partition gpu")
    end = ended(decide(job, denial)[1])
    assert end.code == 1
    assert "no partition gpu" in end.text


def test_a_machine_that_is_there_is_not_given_up_because_its_engine_says_so() -> None:
    gone = EngineNoticed(at_us=0, machine="m2", kind=NoticeKind.GONE)
    job, effects = decide(JOB, gone)
    assert "m2" in job.machines
    assert not effects


def test_what_ends_before_it_has_joined_was_never_granted() -> None:
    gone = EngineNoticed(at_us=0, machine="m5", kind=NoticeKind.GONE)
    job, effects = after(JOB, lost("m4"), granted("m5", at_us=1), gone)
    assert list(names(job)) == ["m6"]
    assert "m5" in returned(effects)
    assert len(wanted(effects)) == 1
    job, effects = decide(job, Tick(at_us=2_000_000))
    assert len(wanted(effects)) == 1


def test_a_job_whose_machines_never_join_ends() -> None:
    job, _ = new_job(machines=1, standbys=0)
    for number in range(1, FAILURES_MAX + 1):
        gone = EngineNoticed(
            at_us=number, machine=f"m{number}", kind=NoticeKind.GONE, text="no Python"
        )
        job, effects = after(job, granted(f"m{number}", at_us=number), gone)
    assert "end before they join: no Python" in ended(effects).text


# --- machines that are to go ----------------------------------------------------------------------


@pytest.mark.parametrize("kind", [NoticeKind.DRAIN, NoticeKind.PREEMPT, NoticeKind.TIME_LIMIT])
def test_a_notice_moves_the_ranks_and_wants_another_machine(kind: NoticeKind) -> None:
    notice = EngineNoticed(at_us=0, machine="m2", kind=kind, left_ms=60_000, text="xid 79")
    job, effects = decide(JOB, notice)
    assert job.change is not None
    assert job.change.leavers == {1: "m2"}
    assert [one.count for one in wanted(effects)] == [1]
    assert not returned(effects)


def test_a_drained_standby_goes_back_at_once() -> None:
    drain = DrainRequested(at_us=0, request="r", machines=["m4"])
    job, effects = decide(JOB, drain)
    assert returned(effects) == {"m4": Returned.DRAINED}
    assert "m4" in job.cordoned
    assert list(names(job)) == ["m5"]
    job, _ = after(job, lost("m4"))
    assert "m4" not in job.cordoned


def test_one_too_many_goes_back() -> None:
    job, effects = after(JOB, joined("extra", standby=True))
    assert returned(effects) == {"m4": Returned.UNWANTED}
    assert job.seats == JOB.seats


def test_before_the_first_steps_are_recorded_a_job_gathers_again() -> None:
    job, _ = new_job(machines=1, standbys=0)
    job, _ = after(job, granted("m1"), joined("m1"), up("m1"))
    assert job.phase is Phase.RUNNING
    job, _effects = after(job, lost("m1"))
    assert job.phase is Phase.GATHERING
    assert list(names(job)) == ["m2"]
    job, _ = after(job, granted("m2"), joined("m2", standby=True), up("m2"))
    assert (job.phase, job.seats) == (Phase.RUNNING, ("m2",))


# --- what people and engines read -----------------------------------------------------------------


def test_people_read_since_when_and_in_which_place_a_standby_is_waited_for() -> None:
    job, _ = after(JOB, lost("m4", at_us=5))
    (wait,) = waiting_json(job, (), "", 0, 3_000_005, {"m5": Queued(3, "Priority")})
    assert wait["what"] == "a standby from slurm; m5 is number 3 in the queue (Priority)"
    assert (wait["since_s"], wait["stands"]) == (3.0, False)


def test_an_engine_reads_all_that_it_has_to_know() -> None:
    job, _ = after(JOB, lost("m4"))
    known = wants_json(job, 7, 0, over=False)
    (want,) = known["wants"]
    assert (want["names"], want["standby"], want["avoid"]) == (["m5"], True, ["n-m4"])
    assert (known["version"], known["held"]) == (7, ["m1", "m2", "m3"])
