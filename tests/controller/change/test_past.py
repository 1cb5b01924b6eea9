"""Incidents leave the job, and what they still decide is decided as before."""

from dataclasses import replace

from jobs import RECOVERED, RUNNING, after, committed, decide, lost
from msgspec import structs

from trainmover.controller.change.failing import fails_for_ever
from trainmover.controller.change.incidents import (
    found,
    incident,
    lately,
    open_incident,
    with_incident,
)
from trainmover.controller.change.options import STANDBY
from trainmover.controller.change.past import BRIEFS, KEPT, brief, let_go
from trainmover.controller.effects import Closed
from trainmover.controller.policies.stragglers.answer import pause_ms
from trainmover.controller.state import Incident, Job, Kind, Outcome
from trainmover.ids import Epoch, MachineId, Rank, Step
from trainmover.protocol.messages import Certificate, Position

SEATS = ("m1", "m4", "m3")


def over() -> Incident:
    """One that the job has come through."""
    said = (committed(name, rank, 2, gap_us=9_000, at_us=600) for rank, name in enumerate(SEATS))
    job, _ = after(RECOVERED, *said)
    (one,) = job.incidents
    assert one.outcome is Outcome.DONE
    return one


def proof(rank: Rank) -> Certificate:
    return Certificate(
        rank=rank, source_rank=Rank(0), step=Step(1), epoch=Epoch(2), source_digest="a",
        joiner_digest="a", trace="t", position="p", bytes=5, state_ms=1.0,
    )  # fmt: skip


def having(job: Job, *incidents: Incident) -> tuple[Job, list[Incident]]:
    """All of them, one after the other, and those that have left."""
    left: list[Incident] = []
    for one in incidents:
        job, effects = let_go(with_incident(job, one))
        left += [effect.incident for effect in effects if isinstance(effect, Closed)]
    return job, left


def many(count: int, **changes: object) -> list[Incident]:
    return [replace(over(), number=number + 1, **changes) for number in range(count)]  # type: ignore[arg-type]


def test_the_ninth_from_the_end_leaves_whole_and_a_brief_of_it_stays() -> None:
    job, left = having(RUNNING, *many(KEPT))
    assert (len(job.incidents), job.briefs, left) == (KEPT, (), [])
    job, left = having(job, replace(over(), number=KEPT + 1))
    assert [one.number for one in job.incidents] == [*range(2, KEPT + 2)]
    assert left == [replace(over(), number=1)]
    assert left[0].positions
    (short,) = job.briefs
    assert short == brief(left[0])
    assert (short.positions, short.held, short.options, [*short.committed_first]) == (
        {},
        {},
        (),
        [],
    )


def test_it_leaves_at_the_end_of_the_decision_that_opens_another() -> None:
    job, _ = having(RUNNING, *many(KEPT))
    job, effects = decide(job, lost("m2"))
    (left,) = [one.incident for one in effects if isinstance(one, Closed)]
    assert left == replace(over(), number=1)
    current = open_incident(job)
    assert current is not None
    assert (current.number, incident(job, KEPT + 1)) == (KEPT + 1, current)
    assert isinstance(effects[-1], Closed)


def test_briefs_have_an_end_too_and_numbers_go_on() -> None:
    job, left = having(RUNNING, *many(KEPT + BRIEFS + 5))
    assert (len(left), len(job.briefs), len(lately(job))) == (BRIEFS + 5, BRIEFS, BRIEFS + KEPT)
    assert [one.number for one in lately(job)] == [*range(6, KEPT + BRIEFS + 6)]
    assert found(job, 5) is None
    assert found(job, 6) == job.briefs[0]
    assert found(job, KEPT + BRIEFS + 5) == job.incidents[-1]


def test_a_brief_is_no_larger_for_a_thousand_ranks() -> None:
    ranks = [Rank(rank) for rank in range(1000)]
    stand = {
        rank: Position(rank=rank, epoch=Epoch(1), committed=Step(1), gate=Step(0)) for rank in ranks
    }
    proofs = tuple(proof(rank) for rank in ranks)
    whole = replace(
        over(), ranks=tuple(ranks), positions=stand, certificates=proofs,
        lost=tuple(MachineId(f"m{rank}") for rank in ranks),
        stacks=dict.fromkeys(ranks, "frame\n" * 1000),
    )  # fmt: skip
    short = brief(whole)
    assert (len(short.ranks), len(short.lost), len(short.certificates)) == (1, 1, 4)
    assert sum(map(len, short.stacks.values())) == 2 * 2000
    empty = replace(whole, certificates=(structs.replace(proofs[0], bytes=0), *proofs[:2]))
    assert brief(empty).certificates == proofs[:2], "what moved nothing proves nothing"
    assert brief(short) == short
    assert (short.marks, short.cause, short.downtime_ms) == (whole.marks, whole.cause, 9.0)


def test_a_step_that_failed_before_counts_also_in_a_brief() -> None:
    failed = [replace(one, lost=(), failed=(Step(8), Epoch(one.number))) for one in many(2)]
    job, _ = having(RUNNING, *failed, *many(KEPT + 20, failed=None)[2:])
    assert all(one.failed is None for one in job.incidents)
    job, _ = after(job, lost("m2"))
    assert job.change is not None
    now = replace(job.incidents[-1], lost=(), failed=(Step(8), Epoch(50)))
    assert not fails_for_ever(replace(job, incidents=(*job.incidents[:-1], now), briefs=()))
    why = fails_for_ever(replace(job, incidents=(*job.incidents[:-1], now)))
    assert why.startswith("Step 8 has failed 3 times:\n  incident 1, first")


def test_costs_that_were_measured_count_also_in_a_brief() -> None:
    job, _ = having(RUNNING, replace(over(), kind=Kind.MOVE, rung=0, downtime_ms=40.0))
    job, _ = having(job, *many(KEPT + 1, downtime_ms=None)[1:])
    assert [one.kind for one in job.incidents].count(Kind.MOVE) == 0
    assert pause_ms(job) == 40.0
    job, _ = having(RUNNING, *many(1, downtime_ms=70.0), *many(KEPT + 1, downtime_ms=None)[1:])
    job, _ = decide(job, lost("m2"))
    (standby,) = [one for one in job.incidents[-1].options if one.name == STANDBY]
    assert standby.ms is None or standby.ms >= 70.0
    assert standby.why == "" or standby.why
