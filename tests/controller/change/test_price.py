"""The price of giving machines up is what would follow, from what other machines hold."""

from dataclasses import replace

import msgspec
import pytest
from jobs import (
    RECOVERY_SWITCHES,
    after,
    joined,
    loaded,
    lost,
    mends_a_link,
    recorded,
    running,
    said,
    switched,
    up,
)

from trainmover.controller import Job
from trainmover.controller.change.options import AGAIN, BACK, STANDBY, WAIT
from trainmover.controller.change.price import STANDBY_MS, Price, can_be_given_up, price_of
from trainmover.controller.events import Lost
from trainmover.controller.facts import Facts
from trainmover.controller.standstill.stuck import Condemned
from trainmover.ids import Rank, Step
from trainmover.protocol import messages as m


def price(job: Job, *machines: str) -> Price:
    gone = [Lost(machine=name, why="", heard_us=0) for name in machines]
    return price_of(job, gone, newest=Step(20), step_ms=100.0)


def with_condemned(job: Job, machine: str) -> Job:
    """A worker there stands still, and was told to end."""
    pid = next(iter(job.machines[machine].pids.values()))
    one = Condemned(
        local_rank=0, rank=None, pid=pid, cause="it stood", since_us=0, judged_us=0, give_up=False
    )
    return replace(job, hanging=replace(job.hanging, condemned={machine: one}))


def test_a_warm_standby_is_cheap_and_a_spare_machine_costs_nothing() -> None:
    job = running(standbys=1)
    assert price(job, "m2").way == STANDBY
    assert 0 < price(job, "m2").ms < 1000
    assert price(job, "m4").ms == 0


def test_without_a_standby_a_machine_is_waited_for() -> None:
    job = running(standbys=0)
    job = replace(job, spec=msgspec.structs.replace(job.spec, wait_s=60))
    assert price(job, "m2").way == WAIT


def test_the_end_of_the_job_has_no_way() -> None:
    """Record and snapshot of a rank are in its own process and with its keeper."""
    job = running(standbys=2)
    both = price(job, "m2", "m3")
    assert (both.way, both.ms) == ("", float("inf"))


def without_replicas(job: Job) -> Job:
    """Give each rank state that no other rank has."""
    facts = (recorded(name, rank, digest=f"d{rank}") for rank, name in enumerate(job.seats))
    return after(replace(job, recorded=Facts()), *facts)[0]


@pytest.mark.parametrize(("restarts", "way"), [(0, AGAIN), (2, AGAIN), (3, ""), (4, "")])
def test_without_a_snapshot_all_start_again_from_the_checkpoint_so_often(
    restarts: int, way: str
) -> None:
    job = without_replicas(running(standbys=1, restarts_max=3))
    job = replace(job, restarts=restarts, start_ms=7000.0)
    assert price(job, "m2").way == "", "there is none"
    its = m.Checkpoint(
        folder="/kept", run_id="r", step=Step(15), epoch=job.epoch, argv=["train.py"],
        module=False, script="d", machines=3, nproc=1, torch="2", trainmover="1", python="3",
        states={}, records={}, compiled={}, recorded=[],
    )  # fmt: skip
    its_price = price(replace(job, checkpoint=its), "m2")
    assert its_price.way == way
    assert its_price.ms == (7000.0 + 5 * 100.0 if way else float("inf"))


@pytest.mark.parametrize(("newest", "again"), [(8, 3), (6, 1), (5, 0), (4, 0)])
def test_steps_since_the_snapshot_would_be_made_again(newest: int, again: int) -> None:
    """The snapshot of step 5 may be complete before the controller hears that step 5 is."""
    job = without_replicas(running(standbys=1))
    for rank, name in enumerate(job.seats):
        vault = f"vault-m{(rank + 1) % 3 + 1}"
        kept = m.Snapped(
            rank=Rank(rank), epoch=job.epoch, step=Step(5), vault=vault, bytes=9, cost_us=3,
            step_us=9,
        )  # fmt: skip
        job, _ = after(job, said(name, kept))
    gone = [Lost(machine=job.seats[1], why="", heard_us=0)]
    price = price_of(job, gone, newest=Step(newest), step_ms=100.0)
    assert (price.way, price.ms) == (BACK, STANDBY_MS + again * 100.0)
    assert f"; {again} steps would be made again" in price.why


def test_a_machine_whose_worker_is_told_to_end_counts_as_its_ranks_lost() -> None:
    """m3 keeps the record of m2: once the process on m2 ends nobody else has it."""
    job = running(standbys=2)
    assert can_be_given_up(job, "m3")
    assert not can_be_given_up(with_condemned(job, "m2"), "m3")
    assert can_be_given_up(with_condemned(job, "m1"), "m3")


def test_a_keeper_that_was_lost_and_has_joined_again_keeps_nothing() -> None:
    job, _ = after(running(standbys=2), lost("m3"), joined("m3", standby=True))
    assert not can_be_given_up(job, "m2")


def test_a_rank_that_has_not_switched_has_its_record_with_its_keeper_of_before() -> None:
    """m1's keeper was m2, which is lost; it has not heard yet that m4 is its keeper now."""
    assert can_be_given_up(mends_a_link(running(standbys=2)), "m1")
    assert not can_be_given_up(RECOVERY_SWITCHES, "m1")
    job, _ = after(RECOVERY_SWITCHES, loaded("m4", 1, 2), joined("m5", standby=True), up("m5"))
    assert not can_be_given_up(job, "m1")
    assert not can_be_given_up(after(job, joined("m2", standby=True))[0], "m1"), "it is empty"
    switched_all = [switched(name, rank, 2) for rank, name in ((0, "m1"), (1, "m4"))]
    assert can_be_given_up(after(job, *switched_all)[0], "m1")
