"""Who keeps what for whom, who joins, who is a source."""

from dataclasses import replace

import msgspec
import pytest
from jobs import RUNNING, SEATS, after, exited, joined, lost, recorded, running, up

from trainmover.controller import Job
from trainmover.controller.seats import (
    buddies,
    choose_joiners,
    record_places,
    replica,
    with_machine,
    without_machine,
)
from trainmover.controller.state import MachineState
from trainmover.ids import Rank


def with_spares(*states: MachineState) -> Job:
    """RUNNING, with m4, m5, ... in these states."""
    names = [f"m{i + 4}" for i in range(len(states))]
    job, _ = after(RUNNING, *(joined(name, standby=True) for name in names))
    for name, state in zip(names, states, strict=True):
        job = with_machine(job, name, state=state)
    return job


@pytest.mark.parametrize(
    ("states", "chosen"),
    [
        ([MachineState.WARMING, MachineState.WARM], "m5"),
        ([MachineState.IDLE, MachineState.WARMING], "m5"),
        ([MachineState.STARTING, MachineState.LEAVING], "m5"),
        ([MachineState.DOWN, MachineState.STARTING], "m5"),
        ([MachineState.WARM, MachineState.WARM], "m4"),
        ([MachineState.COLD, MachineState.DOWN], "m5"),
    ],
)
def test_the_readiest_machine_joins(states: list[MachineState], chosen: str) -> None:
    assert choose_joiners(with_spares(*states), [1], taken=()) == {1: chosen}


def test_ties_go_to_the_natural_order_of_names() -> None:
    job, _ = after(RUNNING, lost("m4"), *(joined(f"m{i}", standby=True) for i in (10, 9)))
    assert choose_joiners(job, [1], taken=()) == {1: "m9"}


@pytest.mark.parametrize("state", [MachineState.COLD, MachineState.BOUND, MachineState.ACTIVE])
def test_some_machines_never_join(state: MachineState) -> None:
    assert choose_joiners(with_spares(state), [1], taken=()) is None


def test_too_few_are_none_at_all() -> None:
    assert choose_joiners(RUNNING, [0, 1], taken=()) is None
    assert choose_joiners(RUNNING, [1], taken=["m4"]) is None
    assert choose_joiners(RUNNING, [], taken=()) == {}


def test_a_machine_that_trains_does_not_join() -> None:
    job = without_machine(RUNNING, "m4")
    assert choose_joiners(job, [1], taken=()) is None


def test_a_seat_is_vacant_while_its_machine_is_respawned() -> None:
    job, _ = after(running(standbys=0), exited("m2"))
    assert job.vacant() == [1]
    assert after(job, up("m2"))[0].vacant() == [1]


def test_a_seat_whose_ranks_have_finished_is_not_vacant() -> None:
    job = replace(without_machine(RUNNING, "m2"), finished={1: (9, "d")})
    assert job.vacant() == []


def test_a_seat_with_one_rank_still_at_work_is_vacant() -> None:
    job = replace(without_machine(running(nproc=2), "m2"), finished={2: (9, "d")})
    assert job.vacant() == [1]


def test_records_are_kept_round_the_ring_of_machines_that_live() -> None:
    job = running(nproc=2, standbys=0)
    ring = buddies(job, job.seats)
    assert ring == {r: f"vault-m{(r // 2 + 1) % 3 + 1}" for r in range(6)}
    assert buddies(without_machine(job, "m2"), job.seats) == {
        0: "vault-m3", 1: "vault-m3", 4: "vault-m1", 5: "vault-m1",
    }  # fmt: skip


def test_a_job_of_one_machine_asks_a_standby_and_at_last_itself() -> None:
    job = running(machines=1, standbys=1)
    assert buddies(job, job.seats) == {0: "vault-m2"}
    job = without_machine(job, "m2")
    assert buddies(job, job.seats) == {0: "vault-m1"}


def test_the_first_steps_of_a_lost_rank_are_looked_for_on_every_machine_that_lives() -> None:
    job = without_machine(running(machines=2, standbys=1), "m1")
    places = record_places(job)
    assert places.keys() == {0, 1}
    assert all(s.vaults == ["vault-m2", "vault-m3"] for stored in places.values() for s in stored)
    assert record_places(RUNNING)[1][0].vaults[0] == buddies(RUNNING, SEATS)[1]


def test_a_rank_without_a_record_is_served_by_those_of_its_role() -> None:
    """Two of them, kept for different machines: any one may be lost."""
    job = running(machines=4, standbys=0)
    said = {
        Rank(rank): msgspec.structs.replace(job.recorded[Rank(rank)], trace=trace, record_of=of)
        for rank, trace, of in [(0, "t", None), (1, "u", None), (2, "t", None), (3, "t", 0)]
    }
    places = record_places(replace(job, recorded=said))
    ranks = {rank: [stored.rank for stored in places[Rank(rank)]] for rank in range(4)}
    assert ranks == {0: [0, 2], 1: [1], 2: [2, 0], 3: [0, 2]}
    assert [stored.vaults[0] for stored in places[Rank(3)]] == ["vault-m2", "vault-m4"]


def test_nobody_keeps_its_own_record_if_anybody_else_lives() -> None:
    for machines in range(2, 6):
        job = running(machines=machines, standbys=0)
        for rank, vault in buddies(job, job.seats).items():
            assert vault != f"vault-m{rank + 1}"


def test_a_source_holds_equal_state_and_joiners_spread_over_them() -> None:
    assert [replica(RUNNING, rank, [0, 2]) for rank in range(3)] == [0, 2, 0]
    job, _ = after(RUNNING, recorded("m1", 0, digest="a"), recorded("m2", 1, digest="a"))
    assert replica(job, 1, [0, 2]) == 0
    assert replica(job, 1, [2]) is None


def test_machines_are_ordered_as_people_count() -> None:
    job, _ = after(RUNNING, *(joined(name) for name in ("m10", "node", "a2")))
    names = [machine.id for machine in sorted(job.machines.values(), key=lambda x: x.place)]
    assert names == ["a2", "m1", "m2", "m3", "m4", "m10", "node"]
