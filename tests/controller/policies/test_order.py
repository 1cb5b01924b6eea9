"""Who wants the same standby gets it in one order, whoever has said so first."""

from collections.abc import Callable
from dataclasses import replace
from itertools import combinations

import msgspec
import pytest
from jobs import after, answers, joined, lost, running, said
from test_drain import done, drain

from trainmover.controller import Job, decide
from trainmover.controller.events import (
    AgentSaid,
    CordonRequested,
    PlaceRequested,
    RollRequested,
    SlowFound,
    UncordonRequested,
)
from trainmover.protocol import messages as m

ACTS = {"stragglers": "act", "anomalies": "act", "on_divergence": "replace"}


def acting(job: Job, **spec: str | int) -> Job:
    return replace(job, spec=msgspec.structs.replace(job.spec, **{**ACTS, **spec}))


def rounds(job: Job) -> Job:
    """All ranks hold the same after one step, and rank 1 something else a few later."""
    for step, odd in ((3, 0), (10, 1)):
        for rank, name in enumerate(job.seats):
            value = step + odd * (rank == 1)
            fact = m.Fingerprinted(
                rank=rank, epoch=1, step=step, layout="w", paths=["w"], sections=[1, 0, 0],
                shared=value.to_bytes(8, "little"),
            )  # fmt: skip
            job, _ = decide(job, said(name, fact))
    return job


def fails(job: Job, machine: str) -> Job:
    sign = AgentSaid(at_us=200, machine=machine, fact=m.Sign(symptom="gpu", line="Xid 79"))
    return decide(job, sign)[0]


def leaves(job: Job, machine: str, left_ms: int = 30_000) -> Job:
    return decide(job, AgentSaid(at_us=200, machine=machine, fact=m.Leaving(left_ms=left_ms)))[0]


def rolls(job: Job, machine: str) -> Job:
    return decide(job, RollRequested(at_us=200, request="p", machines=[machine]))[0]


def placed(job: Job, machine: str) -> Job:
    seats = ["m7" if name == machine else name for name in job.seats]
    return decide(job, PlaceRequested(at_us=200, request="p", seats=seats))[0]


def is_slow(job: Job, machine: str) -> Job:
    found = SlowFound(
        at_us=200, epoch=job.epoch, machine=machine, kind="machine",
        ranks=[job.seats.index(machine)], step=30, steps=7, own_ms=150, usual_ms=100,
    )  # fmt: skip
    return decide(job, found)[0]


def differs(job: Job, machine: str) -> Job:
    """Found some time ago; from now on that is answered."""
    return acting(job)


def is_lost(job: Job, machine: str) -> Job:
    return decide(job, lost(machine))[0]


WANTS: dict[str, Callable[[Job, str], Job]] = {
    "a loss": is_lost,
    "what has diverged": differs,
    "who seems about to fail": fails,
    "who will be taken away": leaves,
    "a roll": rolls,
    "a slow machine": is_slow,
}
"""In this order, as ARCHITECTURE has it. But for the loss all of them wait while a move is under
way, and want the standby that is left when it is done."""


def under_way(wanted: str, *, standbys: int) -> Job:
    """m6 is drained, which leaves no standby, or one: m8. m2 has diverged, if it is to."""
    job = running(machines=6, standbys=standbys)
    job = acting(job, on_divergence="report")
    job = rounds(job) if wanted == "what has diverged" else acting(job)
    job, _ = decide(job, drain("m6"))
    assert job.change is not None
    return job


@pytest.mark.parametrize("later_first", [False, True], ids=["in order", "the other way round"])
@pytest.mark.parametrize(("first", "later"), [*combinations(WANTS, 2)])
def test_of_two_the_first_in_the_order_gets_it(first: str, later: str, later_first: bool) -> None:
    who = {first: "m2", later: "m4"}
    has_lost = first == "a loss"
    if later == "what has diverged":
        who = {first: "m4", later: "m2"}
    diverges = later if later == "what has diverged" else first
    job = under_way(diverges, standbys=1 if has_lost else 2)
    for want in [later, first] if later_first else [first, later]:
        job = WANTS[want](job, who[want])
    if not has_lost:
        job = done(job)
    assert job.change is not None
    taken = job.change.joiners
    assert [job.seats[slot] for slot in taken] == [who[first]]


def test_of_two_that_will_be_taken_away_the_first_to_go_is_the_first() -> None:
    job = leaves(leaves(under_way("", standbys=2), "m3", 9_000), "m4", 5_000)
    job = done(job)
    assert job.change is not None
    assert [*job.change.leavers.values()] == ["m4"]


@pytest.mark.parametrize(
    "want", [name for name in WANTS if name not in ("a loss", "what has diverged")]
)
def test_people_get_what_is_free_as_they_ask_and_are_refused_what_is_not(want: str) -> None:
    """Nobody's wish is kept in a queue but those of policies, which hold until they are met."""
    free = acting(running(machines=6, standbys=1))
    asked = WANTS[want](decide(free, drain("m4"))[0], "m3")
    assert asked.change is not None
    assert asked.change.leavers == {3: "m4"}
    taken = WANTS[want](free, "m3")
    assert taken.change is not None
    _, effects = decide(taken, drain("m4"))
    assert "a move is running" in answers(effects)[0].text


def test_a_roll_and_a_placement_never_want_the_same_for_only_one_of_them_is_going() -> None:
    job = rolls(under_way("", standbys=2), "m2")
    _, effects = decide(job, PlaceRequested(at_us=200, request="p2", seats=[*job.seats]))
    assert "Roll 1 is going on" in answers(effects)[0].text
    assert placed(job, "m4") == job


def test_a_slow_machine_that_has_waited_for_nobody_is_answered_when_it_is_found_again() -> None:
    job = done(is_slow(under_way("", standbys=2), "m4"))
    assert job.change is None
    again = is_slow(job, "m4")
    assert again.change is not None
    assert again.change.leavers == {3: "m4"}


def test_who_waits_gets_a_standby_that_comes_or_is_uncordoned_in_the_same_order() -> None:
    """Without a move before: nobody could have it."""
    job = acting(running(machines=4, standbys=1))
    job, _ = decide(job, CordonRequested(at_us=100, request="c", machine="m5"))
    job = fails(leaves(job, "m2"), "m3")
    assert job.change is None
    free, _ = after(job, UncordonRequested(at_us=300, request="u", machine="m5"))
    fresh, _ = after(job, joined("n1", standby=True))
    for one in (free, fresh):
        assert one.change is not None
        assert [*one.change.leavers.values()] == ["m3"]
