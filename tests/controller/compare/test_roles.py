"""Roles from what ranks have recorded, and the kinds of slots that follow."""

from jobs import BEGUN, RUNNING, after, begun, recorded

from trainmover.controller import Job
from trainmover.controller.compare.roles import kinds, representatives, roles


def pipeline(*, machines: int, nproc: int, programs: str) -> Job:
    """One letter a rank: its trace."""
    job = begun(machines=machines, standbys=0, nproc=nproc)
    facts = [
        recorded(f"m{rank // nproc + 1}", rank, trace=trace, local_rank=rank % nproc)
        for rank, trace in enumerate(programs)
    ]
    return after(job, *facts)[0]


def test_ranks_that_run_the_same_program_have_one_role() -> None:
    assert roles(RUNNING) == {0: 0, 1: 0, 2: 0}
    assert kinds(RUNNING) == {0: [0, 1, 2]}


def test_roles_are_numbered_by_their_first_rank() -> None:
    assert roles(pipeline(machines=4, nproc=1, programs="zyyx")) == {0: 0, 1: 1, 2: 1, 3: 2}


def test_a_kind_is_the_roles_of_all_ranks_of_a_slot_in_their_order() -> None:
    job = pipeline(machines=4, nproc=2, programs="abbaabcc")
    assert kinds(job) == {0: [0, 2], 1: [1], 3: [3]}
    assert representatives(job) == {0: 0, 2: 0, 1: 1, 3: 3}


def test_there_are_no_roles_before_every_rank_has_recorded() -> None:
    job, _ = after(BEGUN, recorded("m1", 0), recorded("m2", 1))
    assert (roles(job), kinds(job), representatives(job)) == ({}, {}, {})
