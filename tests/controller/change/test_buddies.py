"""Who keeps a machine's records: another one, if it can be in another rack, and each for few."""

from collections import Counter
from dataclasses import replace

import msgspec
import pytest
from jobs import RUNNING, after, lost, orders, running

from trainmover.controller import Job
from trainmover.controller.change.buddies import further_keepers, keepers, vaults_of, with_keepers
from trainmover.controller.change.seats import without_machines
from trainmover.controller.standby.places import Places
from trainmover.controller.state import Cordon, Machines
from trainmover.protocol import messages as m


def buddies(job: Job) -> dict[int, str]:
    return vaults_of(job, keepers(job, job.seats))


def in_racks(racks: str, standbys: str = "") -> Job:
    """A job of machines m1, m2, ... in the racks of these letters."""
    job = running(machines=len(racks), standbys=len(standbys))
    named = zip(job.machines.values(), racks + standbys, strict=True)
    return replace(job, machines=Machines({one.id: replace(one, rack=rack) for one, rack in named}))


def test_records_are_kept_round_the_ring_of_machines_that_live() -> None:
    job = running(nproc=2, standbys=0)
    ring = buddies(job)
    assert ring == {r: f"vault-m{(r // 2 + 1) % 3 + 1}" for r in range(6)}
    assert buddies(without_machines(job, ["m2"])) == {
        0: "vault-m3", 1: "vault-m3", 4: "vault-m1", 5: "vault-m1",
    }  # fmt: skip


def test_a_job_of_one_machine_asks_a_standby_and_at_last_itself() -> None:
    job = running(machines=1, standbys=1)
    assert buddies(job) == {0: "vault-m2"}
    job = without_machines(job, ["m2"])
    assert buddies(job) == {0: "vault-m1"}


def test_nobody_keeps_its_own_record_if_anybody_else_lives() -> None:
    for machines in range(2, 6):
        job = running(machines=machines, standbys=0)
        for rank, vault in buddies(job).items():
            assert vault != f"vault-m{rank + 1}"


@pytest.mark.parametrize(
    ("racks", "most"),
    [
        ("aaaabbbb", 1),
        ("abababab", 1),
        ("aabbcc", 1),
        ("abc", 1),
        ("aaab", 3),
        ("aaabb", 2),
        ("abba", 1),
    ],
)
def test_the_buddy_is_in_another_rack_and_keeps_for_few(racks: str, most: int) -> None:
    keeper = keepers(in_racks(racks), in_racks(racks).seats)
    place = {name: int(name[1:]) - 1 for name in keeper.values()}
    assert keeper.keys() == set(range(len(racks)))
    assert all(racks[slot] != racks[place[name]] for slot, name in keeper.items())
    assert max(Counter(keeper.values()).values()) == most


def test_machines_of_one_rack_keep_for_each_other() -> None:
    assert buddies(in_racks("aaa")) == {0: "vault-m2", 1: "vault-m3", 2: "vault-m1"}


def test_the_standby_that_is_asked_is_elsewhere_too() -> None:
    assert buddies(in_racks("a", standbys="ab")) == {0: "vault-m3"}


def test_what_a_lost_rank_was_told_is_where_its_first_steps_are_looked_for() -> None:
    job = in_racks("a" * 10 + "b" * 10, standbys="b")
    job = with_keepers(job, keepers(job, job.seats), {0: "m3", 1: "m20"})
    _, effects = after(job, lost("m2"))
    (stored, _) = orders(effects, m.Bind)["m21"].records[1]
    assert job.keepers[1] == ("m12", "m20")
    assert stored.vaults[:3] == ["vault-m12", "vault-m20", "vault-m3"]
    assert Places(without_machines(job, ["m12"])).of(1)[1][0].vaults[0] == "vault-m20"


def test_the_ranks_are_told_of_the_keepers_that_the_job_remembers() -> None:
    assert RUNNING.keepers == {0: ("m2",), 1: ("m3",), 2: ("m1",)}


@pytest.mark.parametrize("racks", ["abc", "aabbcc", "abcabcabc"])
def test_one_more_copy_is_in_a_third_rack(racks: str) -> None:
    job = in_racks(racks)
    assert further_keepers(job, job.seats) == {}
    job = replace(job, spec=msgspec.structs.replace(job.spec, snapshot_copies=2))
    keeper, further = keepers(job, job.seats), further_keepers(job, job.seats)
    domains = [
        {job.machines[name].rack for name in (job.seats[slot], keeper[slot], further[slot])}
        for slot in range(len(racks))
    ]
    assert domains == [{"a", "b", "c"}] * len(racks)


def test_two_machines_have_no_third_to_keep_one_more() -> None:
    job = in_racks("ab")
    job = replace(job, spec=msgspec.structs.replace(job.spec, snapshot_copies=2))
    assert further_keepers(job, job.seats) == {}


def test_a_standby_keeps_nothing_where_two_machines_live() -> None:
    assert buddies(running(machines=2, standbys=1)) == {0: "vault-m2", 1: "vault-m1"}


def test_who_has_lost_its_machine_has_nobody_keep_for_it() -> None:
    assert set(buddies(without_machines(running(standbys=0), ["m2"]))) == {0, 2}


def test_who_has_lost_its_machine_keeps_no_further_copy() -> None:
    job = running(machines=4, standbys=0)
    job = replace(job, spec=msgspec.structs.replace(job.spec, snapshot_copies=2))
    assert further_keepers(job, job.seats) == {0: "m3", 1: "m4", 2: "m1", 3: "m2"}
    left = without_machines(job, ["m2"])
    assert further_keepers(left, job.seats) == {0: "m4", 2: "m1", 3: "m3"}


def test_a_standby_that_is_cordoned_keeps_records_only_if_there_is_no_other() -> None:
    for standbys, keeper in ((1, "vault-m2"), (2, "vault-m3")):
        job = running(machines=1, standbys=standbys)
        assert buddies(replace(job, cordoned={"m2": Cordon(0)})) == {0: keeper}
