"""A sentence says what came of an event, and is loud only where nothing else will say it."""

from dataclasses import replace

from trainmover.controller.events import KillRequested
from trainmover.controller.state import Incident, Job, Kind, Machine, Outcome
from trainmover.ids import Epoch, MachineId, Rank
from trainmover.protocol.messages import JobSpec
from trainmover.server.sentences import sentence

M1 = MachineId("m1")
JOB = Job(
    spec=JobSpec(run_id="r", argv=["x.py"], machines=1),
    machines={M1: Machine(id=M1, standby=False, vault="", host="here")},
)
LOST = Incident(
    number=1,
    kind=Kind.RECOVERY,
    machine=M1,
    joiner=None,
    ranks=(Rank(0),),
    cause="m1 was lost",
    rung=1,
    epoch=Epoch(2),
)


def test_a_drill_is_loud_and_one_that_is_refused_is_not() -> None:
    drill = sentence(JOB, KillRequested(at_us=5, request="r1", machine="m1"), JOB)
    assert (drill.text, drill.loud) == ("a drill: m1 is to die", True)
    refused = sentence(JOB, KillRequested(at_us=5, request="r2", machine="m9"), JOB)
    assert (refused.text, refused.loud) == ("a drill on m9 was asked for and refused", False)


def test_an_incident_that_ends_the_job_is_told_by_its_end_alone() -> None:
    drill = KillRequested(at_us=5, request="r1", machine="m1")
    opened = sentence(JOB, drill, replace(JOB, incidents=(LOST,)))
    assert opened.loud
    failed = replace(LOST, outcome=Outcome.FAILED, note="no standby is left")
    ended = sentence(JOB, drill, replace(JOB, incidents=(failed,), code=1))
    assert not ended.loud
    assert "no standby is left" in ended.text
