"""What is made of a journal: the job as it was, and what it has forgotten since."""

from collections.abc import Iterable
from pathlib import Path

from trainmover.controller.change.past import KEPT, brief
from trainmover.controller.decide import decide
from trainmover.controller.effects import Closed
from trainmover.controller.events import EVENTS
from trainmover.controller.state import Incident, Job, Kind
from trainmover.journal import Journal
from trainmover.journal.replay import incidents, replay
from trainmover.simulator.faults import SECOND, Faults, only
from trainmover.simulator.story import plan_of, play


def test_incidents_of_a_journal_are_whole_also_those_that_the_job_has_forgotten(
    tmp_path: Path,
) -> None:
    often = Faults(only(["crash"]).weights, pause_us=SECOND, unsettled_max=1)
    plan = plan_of(3, seconds=30, faults=often)
    plan.early, plan.world["alone"] = False, False
    result = play(plan)
    assert not result.violation
    path = tmp_path / "journal.sqlite"
    with Journal.create(path, result.world.spec) as journal:
        for event in result.world.disk.events():
            journal.append(event)
    job, whole = replay(path), incidents(path)
    assert [one.number for one in whole] == [*range(1, len(whole) + 1)]
    assert len(whole) > KEPT
    assert whole[-KEPT:] == list(job.incidents)
    assert [brief(one) for one in whole[:-KEPT]] == list(job.briefs)
    assert whole[:-KEPT] == closed(result.world.disk.events(), result.world.disk.nothing_yet())
    judged = [at for at, one in enumerate(whole) if one.kind is Kind.RECOVERY and one.rung == 1]
    assert all(whole[at].positions for at in judged if "verdict" in whole[at].marks)


def closed(events: Iterable[EVENTS], job: Job) -> list[Incident]:
    """What `decide` has told its host to keep."""
    kept = []
    for event in events:
        job, effects = decide(job, event)
        kept += [one.incident for one in effects if isinstance(one, Closed)]
    return kept
