"""Who keeps what for whom, who joins, who is a source."""

from dataclasses import replace

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from jobs import RUNNING, after, exited, joined, lost, recorded, running, up

from trainmover.controller import Job
from trainmover.controller.change.seats import with_machine, without_machines
from trainmover.controller.compare.replicas import replicas
from trainmover.controller.compare.roles import representatives
from trainmover.controller.facts import Facts
from trainmover.controller.standby.joiners import (
    _PREFERENCE,
    _readiness,
    choose_joiners,
    joiners_there_are,
    no_standby,
)
from trainmover.controller.standby.places import Places
from trainmover.controller.state import Attestation, Cordon, MachineState
from trainmover.ids import MachineId, Rank, Slot


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


def one_by_one(job: Job, slots: list[Slot]) -> dict[Slot, MachineId]:
    """As plainly as can be: for each slot all machines that are left are looked at."""
    free = {
        name: one
        for name, one in job.machines.items()
        if name not in job.seats and one.state in _PREFERENCE
    }
    held = {one.held for name, one in free.items() if name not in job.cordoned}
    joiners = {}
    for slot in sorted(slots, key=lambda slot: (slot not in held, slot)):
        able = [one for name, one in free.items() if name not in job.cordoned]
        if able:
            best = min(able, key=lambda one: _readiness(one, slot, representatives(job)[slot], ()))
            joiners[slot] = free.pop(best.id).id
    return joiners


SPARE = st.tuples(
    st.sampled_from([*_PREFERENCE, MachineState.WARM, MachineState.WARM, MachineState.COLD]),
    st.none() | st.integers(0, 5).map(Slot),
    st.booleans(),
    st.booleans(),
)


@given(st.lists(SPARE, max_size=9), st.sets(st.integers(0, 5).map(Slot)))
def test_many_joiners_are_those_that_one_after_the_other_would_be(
    spares: list[tuple[MachineState, Slot | None, bool, bool]], slots: set[Slot]
) -> None:
    job = running(machines=6, standbys=len(spares))
    for number, (state, held, unfit, cordoned) in enumerate(spares):
        name = MachineId(f"m{number + 7}")
        held = held if state is MachineState.WARM else None
        attests = {Slot(0): Attestation(0, failed="it differs" if unfit else "")}
        job = with_machine(job, name, state=state, held=held, attests=attests)
        job = replace(job, cordoned={**job.cordoned, name: Cordon(0)} if cordoned else job.cordoned)
    assert joiners_there_are(job, slots, ()) == one_by_one(job, sorted(slots))


def test_too_few_are_none_at_all() -> None:
    assert choose_joiners(RUNNING, [0, 1], taken=()) is None
    assert choose_joiners(RUNNING, [1], taken=["m4"]) is None
    assert choose_joiners(RUNNING, [], taken=()) == {}


def test_a_machine_that_trains_does_not_join() -> None:
    job = without_machines(RUNNING, ["m4"])
    assert choose_joiners(job, [1], taken=()) is None


def test_a_seat_is_vacant_while_its_machine_is_respawned() -> None:
    job, _ = after(running(standbys=0), exited("m2"))
    assert job.vacant() == [1]
    assert after(job, up("m2"))[0].vacant() == [1]


def test_a_seat_whose_ranks_have_finished_is_not_vacant() -> None:
    job = replace(without_machines(RUNNING, ["m2"]), finished=Facts({1: (9, "d")}))
    assert job.vacant() == []


def test_a_seat_with_one_rank_still_at_work_is_vacant() -> None:
    job = replace(without_machines(running(nproc=2), ["m2"]), finished=Facts({2: (9, "d")}))
    assert job.vacant() == [1]


def test_the_first_steps_of_a_lost_rank_are_looked_for_on_every_machine_that_lives() -> None:
    job = without_machines(running(machines=2, standbys=1), ["m1"])
    for slot in range(2):
        (stored,) = Places(job).of(slot).values()
        assert all(each.vaults == ["vault-m2", "vault-m3"] for each in stored)
    assert Places(RUNNING).of(1)[1][0].vaults[0] == "vault-m3"


def test_of_many_machines_those_behind_the_slot_are_asked() -> None:
    (stored, _) = Places(without_machines(running(machines=20, standbys=1), ["m3"])).of(1)[1]
    assert stored.vaults == [*(f"vault-m{n}" for n in range(4, 12)), "vault-m21"]


def test_a_rank_without_a_record_is_served_by_those_of_its_role() -> None:
    """Two of them, kept for different machines: any one may be lost."""
    job = running(machines=4, standbys=0)
    said = {
        Rank(rank): msgspec.structs.replace(job.recorded[Rank(rank)], trace=trace, record_of=of)
        for rank, trace, of in [(0, "t", None), (1, "u", None), (2, "t", None), (3, "t", 0)]
    }
    job = replace(job, recorded=said)
    ranks = {rank: [stored.rank for stored in Places(job).of(rank)[rank]] for rank in range(4)}
    assert ranks == {0: [0, 2], 1: [1], 2: [2, 0], 3: [0, 2]}
    assert [stored.vaults[0] for stored in Places(job).of(3)[3]] == ["vault-m2", "vault-m4"]


def test_ranks_that_a_record_refers_to_come_with_it() -> None:
    job = running(machines=4, standbys=0)
    small = msgspec.structs.replace(job.recorded[Rank(3)], base=Rank(1))
    places = Places(replace(job, recorded=job.recorded.having(Rank(3), small))).of(3)
    assert places.keys() == {1, 3}
    assert [stored.rank for stored in places[Rank(1)]] == [1, 0]


def test_a_source_holds_equal_state_and_joiners_spread_over_them() -> None:
    assert [replicas(RUNNING, rank, [0, 2]) for rank in range(3)] == [[0, 2], [2, 0], [0, 2]]
    job, _ = after(RUNNING, recorded("m1", 0, digest="a"), recorded("m2", 1, digest="a"))
    assert replicas(job, 1, [0, 2]) == [0]
    assert replicas(job, 1, [2]) == []


def test_machines_are_ordered_as_people_count() -> None:
    job, _ = after(RUNNING, *(joined(name) for name in ("m10", "node", "a2")))
    names = [machine.id for machine in sorted(job.machines.values(), key=lambda x: x.place)]
    assert names == ["a2", "m1", "m2", "m3", "m4", "m10", "node"]


def test_a_suspect_takes_no_other_s_slot_and_may_take_its_own() -> None:
    job = with_machine(with_spares(MachineState.WARM, MachineState.WARM), "m4", suspect="memory")
    assert joiners_there_are(job, [Slot(1)], ()) == {1: "m5"}
    assert joiners_there_are(job, [Slot(1)], ["m5"]) == {}
    down, _ = after(running(standbys=0), exited("m2"))
    down = with_machine(down, "m2", suspect="memory")
    assert joiners_there_are(down, [Slot(1)], ()) == {1: "m2"}


def test_who_rests_and_has_proven_the_kind_is_as_good_as_warm() -> None:
    job = with_spares(MachineState.IDLE, MachineState.WARMING)
    assert joiners_there_are(job, [Slot(1)], ()) == {1: "m5"}
    first = representatives(job)[Slot(1)]
    job = with_machine(job, "m4", attests={first: Attestation(0, failed="")})
    assert joiners_there_are(job, [Slot(1)], ()) == {1: "m4"}


def test_only_a_machine_that_is_cold_cannot_stand_by() -> None:
    job = with_spares(MachineState.COLD, MachineState.WARM)
    for name in ("m4", "m5"):
        job = with_machine(job, name, note=f"{name} has a note")
    text = no_standby(job, "m2 was lost", 2)
    assert "m4 cannot: m4 has a note" in text
    assert "m5 cannot" not in text


def test_a_slot_is_vacant_without_its_machine_and_only_then() -> None:
    job = without_machines(RUNNING, ["m2"])
    assert [job.is_vacant(Slot(slot)) for slot in range(3)] == [False, True, False]
