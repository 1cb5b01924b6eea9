"""When snapshots are kept, when a cut is complete, and what happens where there is none."""

from dataclasses import replace

import pytest
from jobs import RUNNING, after, ended, exited, finished, lost, orders, recorded, said, vault

from trainmover.controller import Job
from trainmover.controller.effects import Effect
from trainmover.controller.events import WorkerSaid
from trainmover.controller.facts import Facts
from trainmover.controller.keep.cuts import cut_at_hand, interval, lost_of
from trainmover.protocol import messages as m

SEATED = [("m1", 0), ("m2", 1), ("m3", 2)]


def alone(every: int | None = None) -> tuple[Job, tuple[Effect, ...]]:
    """RUNNING, but no two ranks hold the same, and the effects of their first steps."""
    spec = m_replace(RUNNING.spec, snapshot_every=every)
    job = replace(RUNNING, recorded=Facts(), snapshot_every=0, spec=spec)
    events = [recorded(machine, rank, digest=f"d{rank}") for machine, rank in SEATED]
    return after(job, *events)


def m_replace(spec: m.JobSpec, **changes: object) -> m.JobSpec:
    import msgspec

    return msgspec.structs.replace(spec, **changes)


def snapped(machine: str, rank: int, step: int = 5, **given: object) -> object:
    fields: dict[str, object] = {"vault": "vault-m1", "bytes": 10, "cost_us": 300, "step_us": 1000}
    fact = m.Snapped(rank=rank, epoch=1, step=step, **{**fields, **given})  # type: ignore[arg-type]
    return said(machine, fact)


def with_a_cut() -> tuple[Job, tuple[Effect, ...]]:
    """After step 5; each rank's is with the next machine."""
    job, _ = alone()
    vaults = ["vault-m2", "vault-m3", "vault-m1"]
    facts = [snapped(name, rank, vault=vaults[rank]) for name, rank in SEATED]
    return after(job, *facts)  # type: ignore[arg-type]


@pytest.mark.parametrize("digests", ["ddd", "abc"], ids=["replicas", "held once"])
def test_snapshots_begin_once_all_first_steps_are_recorded(digests: str) -> None:
    events = [recorded(name, rank, digest=digests[rank]) for name, rank in SEATED]
    job, effects = after(replace(RUNNING, recorded=Facts(), snapshot_every=0), *events[:2])
    assert not orders(effects, m.KeepSnapshots)
    job, effects = after(job, events[2])
    keep = m.KeepSnapshots(every=5, now=True)
    assert orders(effects, m.KeepSnapshots) == dict.fromkeys(("m1", "m2", "m3"), keep)
    assert job.snapshot_every == 5
    assert not orders(after(job, events[2])[1], m.KeepSnapshots), "once"


@pytest.mark.parametrize(("asked", "ordered"), [(0, 0), (7, 7)])
def test_whoever_gives_a_number_gets_it(asked: int, ordered: int) -> None:
    job, effects = alone(asked)
    assert job.snapshot_every == ordered
    assert len(orders(effects, m.KeepSnapshots)) == (3 if ordered else 0)


def test_a_cut_is_complete_with_the_last_rank_and_all_machines_hear_of_it() -> None:
    job, effects = with_a_cut()
    assert job.cut is not None
    assert job.cut.step == 5
    assert orders(effects, m.CutComplete).keys() == {"m1", "m2", "m3", "m4"}
    assert {order.every for order in orders(effects, m.KeepSnapshots).values()} == {30}


@pytest.mark.parametrize(("asked", "cost_us", "every"), [(7, 300, 7), (5, 300, 5), (None, 50, 5)])
def test_an_interval_that_was_asked_for_or_is_right_is_not_told_again(
    asked: int | None, cost_us: int, every: int
) -> None:
    job, _ = alone(asked)
    facts = [snapped(name, rank, cost_us=cost_us) for name, rank in SEATED]
    job, effects = after(job, *facts)  # type: ignore[arg-type]
    assert job.cut is not None
    assert job.snapshot_every == every
    assert not orders(effects, m.KeepSnapshots)


def test_snapshots_of_different_steps_are_no_cut() -> None:
    job, _ = alone()
    facts = [snapped(name, rank, step=5 + rank // 2) for name, rank in SEATED]
    job, effects = after(job, *facts)  # type: ignore[arg-type]
    assert job.cut is None
    assert not orders(effects, m.CutComplete)


def test_what_comes_late_of_a_cut_that_is_void_does_not_spoil_the_next() -> None:
    job, _ = alone()
    next_one = [snapped(name, rank, step=7) for name, rank in SEATED]
    late = [snapped(name, rank, step=5) for name, rank in SEATED[:2]]
    job, effects = after(job, *late[:1], *next_one[:3], *late[1:], *next_one[3:])  # type: ignore[arg-type]
    assert job.cut is not None
    assert job.cut.step == 7
    assert orders(effects, m.CutComplete)


def test_a_vault_without_room_ends_snapshots_and_says_why() -> None:
    job, _ = with_a_cut()
    job, effects = after(job, snapped("m2", 1, step=35, refused="The vault is full."))  # type: ignore[arg-type]
    assert {order.every for order in orders(effects, m.KeepSnapshots).values()} == {0}
    assert job.no_snapshots == "of rank 1: The vault is full."
    assert job.cut is not None  # The older one is still good.


def test_a_snapshot_is_lost_with_both_its_places_only() -> None:
    job, _ = with_a_cut()
    assert cut_at_hand(job) is not None
    job, _ = after(job, lost("m2"))
    assert cut_at_hand(job) is not None
    job, _ = after(job, lost("m3"))
    assert lost_of(job) == 1


def test_a_new_buddy_counts_as_a_place() -> None:
    job, _ = with_a_cut()
    job, _ = after(job, snapped("m2", 1, vault="vault-m4"))  # type: ignore[arg-type]
    job, _ = after(job, lost("m2"), lost("m3"))
    assert lost_of(job) is None


def drained(job: Job, epoch: int) -> tuple[Job, tuple[Effect, ...]]:
    """The survivors of the loss of m2 have said where they stand: past step 8."""
    position = {"epoch": epoch, "committed": 8, "gate": 0}
    return after(
        job,
        said("m1", m.Position(rank=0, **position)),  # type: ignore[arg-type]
        said("m3", m.Position(rank=2, **position)),  # type: ignore[arg-type]
        *[vault(name, epoch, {1: [9]}) for name in ("m1", "m3", "m4")],
    )


def test_all_go_back_and_the_incident_says_so() -> None:
    job, _ = with_a_cut()
    job, _ = after(job, lost("m2"))
    job, effects = drained(job, job.epoch_last)
    assert orders(effects, m.Leave).keys() == {"m1", "m3"}
    assert job.change is not None
    assert job.change.joiners == {0: "m1", 1: "m4", 2: "m3"}
    incident = job.incidents[-1]
    assert (incident.rung, incident.step, incident.redone) == (2, 5, 3)
    assert incident.why_rung == "no other rank holds the state of rank 1"


ONCE = "the script cannot run twice in one process: it raised"


def going_back() -> tuple[Job, tuple[Effect, ...]]:
    """m2 was lost, and with it the copy of rank 0's snapshot: only m1's process has it."""
    job, _ = with_a_cut()
    job, _ = after(job, lost("m2"))
    return drained(job, job.epoch_last)


def fails_again(machine: str, rank: int) -> WorkerSaid:
    return said(machine, m.SandboxFailed(rank=rank, reason=ONCE, again=True))


def test_what_only_a_process_has_goes_to_a_vault_before_it_runs_the_script_again() -> None:
    _, effects = going_back()
    given = orders(effects, m.GiveSnapshots)
    assert {name: order.vaults for name, order in given.items()} == {"m1": {0: "vault-m1"}}


def test_a_process_that_runs_a_script_once_is_not_ended_before_a_vault_has_its_snapshot() -> None:
    job, _ = going_back()
    job, effects = after(job, fails_again("m1", 0), fails_again("m3", 2))
    assert orders(effects, m.StartWorkers).keys() == {"m3"}
    job, effects = after(job, snapped("m1", 0, vault="vault-m1"))  # type: ignore[arg-type]
    assert orders(effects, m.StartWorkers).keys() == {"m1"}
    cut = cut_at_hand(job)
    assert cut is not None
    assert cut.vaults == {0: "vault-m1", 1: "vault-m3", 2: "vault-m1"}


@pytest.mark.parametrize("known", ["refused", "exited"])
def test_a_snapshot_that_no_vault_takes_is_not_waited_for(known: str) -> None:
    job, _ = going_back()
    job, effects = after(job, fails_again("m1", 0))
    assert not orders(effects, m.StartWorkers)
    no_more = exited("m1", 1) if known == "exited" else snapped("m1", 0, refused="it is full")
    job, effects = after(job, no_more)  # type: ignore[arg-type]
    assert orders(effects, m.StartWorkers).keys() == {"m1"}
    assert lost_of(job) == 0


def test_what_a_finished_run_says_late_does_not_count_once_all_go_back() -> None:
    job, _ = with_a_cut()
    job, _ = drained(after(job, lost("m2"))[0], job.epoch_last + 1)
    assert job.change is not None
    assert job.change.back
    assert after(job, finished("m3", 2))[0].finished == {}


@pytest.mark.parametrize(
    ("asked", "why"), [(None, "no snapshot of all ranks yet"), (0, "were turned off")]
)
def test_without_a_cut_the_job_ends_and_says_why_there_is_none(asked: int | None, why: str) -> None:
    job, _ = alone(asked)
    job, _ = after(job, lost("m2"))
    job, effects = drained(job, job.epoch_last)
    assert why in ended(effects).text


def test_an_interval_costs_a_hundredth_of_the_time() -> None:
    assert interval(cost_us=5_000, step_us=10_000) == 50
    assert interval(cost_us=0, step_us=10_000) == 1


def test_one_more_copy_is_a_place_to_go_back_to() -> None:
    job, _ = with_a_cut()
    assert lost_of(after(job, lost("m2"), lost("m1"))[0]) == 0
    more = [snapped(name, rank, vault="vault-m2", further="vault-m3") for name, rank in SEATED]
    job, _ = after(job, *more, lost("m2"), lost("m1"))  # type: ignore[arg-type]
    cut = cut_at_hand(job)
    assert cut is not None
    assert (cut.vaults, cut.further) == ({}, dict.fromkeys(range(3), "vault-m3"))


def test_who_had_the_second_copy_and_becomes_the_buddy_has_one_copy() -> None:
    job, _ = with_a_cut()
    copies = [
        ({"vault": "vault-m2", "further": "vault-m3"}, {0: "vault-m3"}),
        ({"vault": "vault-m3"}, {}),
        ({"vault": "vault-m3", "further": "vault-m2"}, {0: "vault-m2"}),
    ]
    for given, further in copies:
        job, _ = after(job, snapped("m1", 0, **given))  # type: ignore[arg-type]
        assert job.cut is not None
        assert (job.cut.vaults[0], job.cut.further) == (given["vault"], further)  # type: ignore[index]


@pytest.mark.parametrize(
    ("cost_us", "step_us", "every"),
    [(500, 0, 5), (500, 1, 50_000), (0, 100, 1), (100, 1000, 10), (101, 1000, 11)],
)
def test_an_interval_makes_a_cut_cost_its_share(cost_us: int, step_us: int, every: int) -> None:
    assert interval(cost_us, step_us) == every
