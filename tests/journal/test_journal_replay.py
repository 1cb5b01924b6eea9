"""What is made of a journal: the job as it was, and what it has forgotten since."""

from pathlib import Path

from trainmover.controller.change.incidents import WHOLE_KEPT
from trainmover.controller.state import Kind
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
    assert [one.number for one in whole] == [one.number for one in job.incidents]
    assert len(whole) > WHOLE_KEPT
    newest = len(whole) - WHOLE_KEPT
    assert whole[newest:] == list(job.incidents[newest:])
    judged = [at for at, one in enumerate(whole) if one.kind is Kind.RECOVERY and one.rung == 1]
    assert all(whole[at].positions for at in judged if "verdict" in whole[at].marks)
    assert not any(one.positions for one in job.incidents[:newest])
