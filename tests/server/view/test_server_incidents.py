"""Whoever asks finds every incident, and what the job carries is no larger for many."""

import json
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

from trainmover.controller.change.incidents import with_incident
from trainmover.controller.change.past import BRIEFS, KEPT, let_go
from trainmover.controller.effects import Effect
from trainmover.controller.events import Tick
from trainmover.controller.facts import Ranks
from trainmover.controller.state import Incident, Job, Kind, Outcome
from trainmover.ids import Epoch, MachineId, Rank, Step
from trainmover.journal import Journal
from trainmover.protocol.messages import Certificate, JobSpec, Position
from trainmover.server.history.bookmarks import EVENTS_BETWEEN, Bookmarks, closed, decode, encode
from trainmover.server.history.incidents import Incidents, Tally
from trainmover.server.machines.accounts import Accounts
from trainmover.server.view.progress import Progress
from trainmover.server.view.snapshot import snapshot

WORLD = 1000
SPEC = JobSpec(run_id="r", argv=["x"], machines=WORLD, nproc=1)
STOOD = {
    Rank(rank): Position(rank=Rank(rank), epoch=Epoch(2), committed=Step(7), gate=Step(0))
    for rank in range(WORLD)
}

PROOF = Certificate(
    rank=Rank(1), source_rank=Rank(0), step=Step(7), epoch=Epoch(2), source_digest="a",
    joiner_digest="a", trace="t", position="p", bytes=10, state_ms=1.0,
)  # fmt: skip


def one(number: int) -> Incident:
    """Of a thousand ranks, and as long a text whatever its number."""
    return Incident(
        number=number, kind=Kind.RECOVERY, machine=MachineId("m2"), joiner=MachineId("m1001"),
        ranks=(Rank(1),), cause="machine m2 was lost", rung=1, epoch=Epoch(1000 + number),
        outcome=Outcome.DONE, downtime_ms=100.0, marks={"heard": 10**15 + number},
        positions=STOOD, committed_first=Ranks(STOOD),
        certificates=(PROOF,),
    )  # fmt: skip


def come_through(job: Job, numbers: Iterable[int]) -> tuple[Job, list[Effect]]:
    left: list[Effect] = []
    for number in numbers:
        job, effects = let_go(with_incident(job, one(number)))
        left += effects
    return job, left


def test_bookmark_and_status_are_as_large_after_500_incidents_as_after_200() -> None:
    sizes = set()
    job, _ = come_through(Job(spec=SPEC), range(1000, 1200))
    for more in (range(1200, 1500), range(1500, 1501)):
        state = encode(job, Accounts())
        status = snapshot(job, Progress(), {}, 10**15)
        told = json.dumps(status)
        sizes.add((len(state), len(told)))
        assert sum(len(one["positions"]) for one in status["incidents"]) == KEPT * WORLD
        assert decode(state)[0].briefs == job.briefs
        assert (len(job.incidents), len(job.briefs)) == (KEPT, BRIEFS)
        job, _ = come_through(job, more)
    assert len(sizes) == 1, sizes
    assert sum(len(it.positions) + len(it.committed_first) for it in job.briefs) == 0


def test_each_is_found_in_the_job_in_memory_or_in_the_journal(tmp_path: Path) -> None:
    with Journal.create(tmp_path / "j.sqlite", SPEC) as journal:
        marks, incidents = Bookmarks(journal, 0), Incidents(journal)
        job, left = come_through(Job(spec=SPEC), range(1, 21))
        incidents.take(left, None)
        assert [*incidents.recent] == [*range(1, 13)]
        for at_us in range(EVENTS_BETWEEN):
            journal.append(Tick(at_us=at_us))
        assert marks.keep(job, Accounts(), [], incidents.recent.values()) == journal.seq
        incidents.kept()
        job, left = come_through(job, range(21, 31))
        incidents.take(left, None)
        assert [*incidents.recent] == [*range(13, 23)]
        assert [*closed(journal)] == [*range(1, 13)]
        for number in range(1, 31):
            assert incidents.of(job, number) == one(number)
        assert [incidents.of(job, number) for number in (0, 31)] == [None, None]
        again = Incidents(journal, incidents.recent.values())
        for number in range(1, 31):
            assert again.of(job, number) == one(number)
        whole = Tally(one(number) for number in range(1, 31))
        for known in (incidents, again):
            assert told(known.tally.and_of(job.incidents)) == told(whole)
        assert told(incidents.tally) == told(Tally(one(number) for number in range(1, 23)))


def told(tally: Tally) -> tuple[object, ...]:
    seen = {labels: (it.cumulative, it.sum_s) for labels, it in tally.downtime.items()}
    return tally.count, tally.moved, seen, [*tally.phases]


def test_goodput_counts_what_this_controller_has_seen_from_its_first_commit_on(
    tmp_path: Path,
) -> None:
    with Journal.create(tmp_path / "j.sqlite", SPEC) as journal:
        incidents = Incidents(journal)
        _, left = come_through(Job(spec=SPEC), range(1, KEPT + 6))
        incidents.take(left, 10**15 + 3)
        assert incidents.downtime_ms == 3 * 100.0
        incidents.take(left, None)
        assert incidents.downtime_ms == 3 * 100.0


def test_one_that_is_in_no_bookmark_is_replaced_by_what_a_replay_gives(tmp_path: Path) -> None:
    with Journal.create(tmp_path / "j.sqlite", SPEC) as journal:
        assert Incidents(journal).of(Job(spec=SPEC), 1) is None
        again = Incidents(journal, [replace(one(1), note="replayed")])
        job = Job(spec=SPEC, incidents=(one(2),))
        found = again.of(job, 1)
        assert found is not None
        assert found.note == "replayed"
