"""A rank that has diverged: its machine is replaced if wanted, with the state of the others."""

from dataclasses import replace

import msgspec
import pytest
from jobs import (
    after,
    answers,
    at_boundary,
    certificate,
    committed,
    joined,
    kinds,
    lost,
    move,
    orders,
    parked,
    prepared,
    running,
    said,
    switched,
)
from test_replicas import State, told

from trainmover.controller import Job
from trainmover.controller.change.seats import survivors
from trainmover.controller.compare.replacing import TRIES_MAX
from trainmover.controller.compare.replicas import replicas
from trainmover.controller.state import MachineState, Outcome
from trainmover.protocol import messages as m

NAMES = ("m1", "m5", "m3", "m4")
BAD: list[State] = [{"w": 2}, {"w": 7}, {"w": 2}, {"w": 2}]


def diverged(policy: str, *, standbys: int = 1) -> Job:
    """Ranks 0 to 3 on m1 to m4; rank 1 has parted from the others by step 10."""
    job = running(machines=4, standbys=standbys)
    job = replace(job, spec=msgspec.structs.replace(job.spec, on_divergence=policy))
    return told(told(job, 3, *[{"w": 1}] * 4), 10, *BAD)


def paused(job: Job) -> Job:
    """The move of m2 under way, up to the boundary but for the last rank."""
    return after(
        job,
        parked("m5", 1, 2),
        *(prepared(name, rank, 2) for rank, name in enumerate(NAMES)),
        *(at_boundary(f"m{rank + 1}", rank, 2) for rank in range(3)),
    )[0]


def test_by_default_it_is_reported_and_nothing_else() -> None:
    job = diverged("report")
    assert job.change is None
    assert job.comparison.divergences[0].machines == ("m2",)


def test_a_move_asked_for_takes_the_state_of_the_majority_and_the_record_from_the_buddy() -> None:
    job, _ = after(diverged("report"), move("m2"))
    _, effects = after(paused(job), at_boundary("m4", 3, 2))
    switch = orders(effects, m.Switch)["m5"]
    assert sorted(source.rank for source in switch.sources[1]) == [0, 2, 3]
    assert switch.records == {1: ["vault-m3"]}


def test_a_machine_diverged_is_replaced_and_not_trusted_again() -> None:
    job = diverged("replace")
    assert (job.change.joiners if job.change else {}) == {1: "m5"}
    loaded = m.Loaded(
        rank=1, epoch=2, certificate=msgspec.structs.replace(certificate(1), source_rank=2)
    )
    job, _ = after(paused(job), at_boundary("m4", 3, 2), said("m5", loaded))
    job, effects = after(job, *(switched(name, rank, 2) for rank, name in enumerate(NAMES)))
    assert ("m2", "Leave") in kinds(effects)
    job, _ = after(job, said("m2", m.Left()), *(committed(n, r, 2) for r, n in enumerate(NAMES)))
    assert job.comparison.diverged == frozenset()
    assert job.machines["m2"].state is MachineState.COLD
    assert "since step 10" in job.machines["m2"].note
    assert job.incidents[0].cause == "rank 1 differs from its replicas since step 10"
    assert (job.incidents[0].outcome, job.change) == (Outcome.DONE, None)


def test_it_is_not_trusted_again_if_the_move_fails_after_the_joiner_has_its_state() -> None:
    """Then the old process keeps the rank, and what it holds is what it held."""
    loaded = m.Loaded(
        rank=1, epoch=2, certificate=msgspec.structs.replace(certificate(1), source_rank=2)
    )
    job, _ = after(paused(diverged("replace")), at_boundary("m4", 3, 2), said("m5", loaded))
    job, _ = after(job, lost("m1"))
    assert job.change is not None
    assert job.seats[1] == "m2"
    assert job.comparison.diverged == {1}
    assert 1 not in replicas(job, 0, survivors(job, job.change))


def test_without_a_standby_it_waits_for_one() -> None:
    job = diverged("replace", standbys=0)
    assert job.change is None
    job, _ = after(job, joined("m5", standby=True))
    assert job.change is not None


def test_what_no_other_machine_has_cannot_be_mended_by_a_move() -> None:
    job = running(machines=2, nproc=3)
    job = replace(job, spec=msgspec.structs.replace(job.spec, on_divergence="replace"))
    job = told(job, 3, *[{"w": 1}] * 3, *[{"w": 5}] * 3)
    job = told(job, 10, {"w": 2}, {"w": 9}, {"w": 2}, *[{"w": 6}] * 3)
    assert (job.comparison.diverged, job.change) == ({1}, None)


def test_a_lost_machine_that_was_diverged_is_recovered_from_the_majority() -> None:
    job, _ = after(diverged("report"), lost("m2"))
    assert job.change is not None
    assert sorted(replicas(job, 1, survivors(job, job.change))) == [0, 2, 3]


@pytest.mark.parametrize("tries", [1, TRIES_MAX])
def test_a_standby_that_fails_is_followed_by_another_but_not_for_ever(tries: int) -> None:
    job = diverged("replace", standbys=5)
    for _ in range(tries):
        assert job.change is not None
        name = job.change.joiners[1]
        failed = m.SandboxFailed(rank=1, reason="no")
        job, effects = after(job, said(name, failed))
        assert answers(effects) == []
    assert (job.change is None) == (tries == TRIES_MAX)
