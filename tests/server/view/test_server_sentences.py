"""A sentence says what came of an event, and is loud only where nothing else will say it."""

from dataclasses import replace

from http_jobs import incident

from trainmover.controller.change.incidents import amend, with_incident
from trainmover.controller.events import (
    AgentSaid,
    AnomalyFound,
    CheckpointFailed,
    CheckpointFound,
    KillRequested,
    Lost,
    MachinesLost,
    Tick,
    WorkerSaid,
)
from trainmover.controller.facts import Facts
from trainmover.controller.policies.anomalies.known import Anomalies, Finding
from trainmover.controller.policies.health.known import Examination, Health
from trainmover.controller.state import (
    Attestation,
    Change,
    Cordon,
    Job,
    Kind,
    Machine,
    Machines,
    MachineState,
    Outcome,
    Phase,
    Stage,
    Writing,
)
from trainmover.ids import Epoch, MachineId, Rank, Slot, Step
from trainmover.protocol.messages import Examined, JobSpec, Recorded, Sign, Wrote
from trainmover.server.view.sentences import Sentence, incident_sentences, sentence

M1 = MachineId("m1")
JOB = Job(
    spec=JobSpec(run_id="r", argv=["x.py"], machines=1),
    machines=Machines({M1: Machine(id=M1, standby=False, vault="", host="here")}),
)
LOST = incident(machine=M1, joiner=None, ranks=(Rank(0),), cause="m1 was lost")


def test_a_drill_is_loud_and_one_that_is_refused_is_not() -> None:
    drill = sentence(JOB, KillRequested(at_us=5, request="r1", machine="m1"), JOB)
    assert (drill.text, drill.loud) == ("a drill: m1 is to die", True)
    refused = sentence(JOB, KillRequested(at_us=5, request="r2", machine="m9"), JOB)
    assert (refused.text, refused.loud) == ("a drill on m9 was asked for and refused", False)


class Untouched(Machine):
    """No event has changed it."""

    def __eq__(self, other: object) -> bool:
        raise AssertionError("it is not compared field by field")

    __hash__ = None  # type: ignore[assignment]


def test_of_machines_only_those_are_looked_at_that_are_others() -> None:
    names = [MachineId(f"m{number}") for number in range(2, 50)]
    same = {name: Untouched(id=name, standby=False, vault="", host="h") for name in names}
    before = replace(JOB, machines=Machines({**same, STANDBY.id: STANDBY}))
    after = replace(JOB, machines=Machines({**same, STANDBY.id: replace(STANDBY, note="is slow")}))
    said = sentence(before, Tick(at_us=5), after)
    assert said.text == "m4 is slow"
    assert sentence(before, Tick(at_us=5), before).text == ""


STANDBY = Machine(id=MachineId("m4"), standby=True, vault="", host="here")
WARMED = MachineState.WARM


def told(before: Machine, after: Machine, recorded: str = "") -> Sentence:
    """What is said of a standby that turns from one to the other."""
    facts = {
        Rank(r): Recorded(rank=Rank(r), step=Step(3), trace=t, digest="", bytes=1)
        for r, t in enumerate(recorded)
    }
    job = replace(JOB, spec=JobSpec(run_id="r", argv=["x.py"], machines=2), recorded=facts)
    fact = Recorded(rank=Rank(0), step=Step(3), trace="", digest="", bytes=1)
    event = WorkerSaid(at_us=5, machine=before.id, local_rank=0, fact=fact)
    return sentence(
        replace(job, machines=Machines({M1: JOB.machines[M1], before.id: before})),
        event,
        replace(job, machines=Machines({M1: JOB.machines[M1], before.id: after})),
    )


def test_a_standby_that_has_warmed_up_says_for_which_ranks() -> None:
    warming = replace(STANDBY, state=MachineState.WARMING)
    holding = replace(STANDBY, state=MachineState.HOLDING)
    proof = {Slot(0): Attestation(1)}
    every = told(warming, replace(holding, attests=proof), "aa")
    assert every == Sentence("m4 has warmed up for every rank")
    one = told(warming, replace(holding, attests=proof), "ab")
    assert one == Sentence("m4 has warmed up for rank 0")


def test_a_standby_that_holds_a_run_says_which() -> None:
    holding = replace(STANDBY, state=MachineState.HOLDING)
    held = told(holding, replace(STANDBY, state=WARMED, held=Slot(1)))
    assert held == Sentence("m4 is warm: a standby, and holds rank 1")


def test_a_standby_that_is_less_than_others_says_so_aloud() -> None:
    once = replace(STANDBY, once="a port", note="the script cannot run twice")
    assert told(STANDBY, once) == Sentence("m4: the script cannot run twice", loud=True)
    cold = replace(
        STANDBY, state=MachineState.COLD, note="it runs torch 1, the job's ranks torch 2"
    )
    assert told(STANDBY, cold).loud
    assert told(STANDBY, cold).text.startswith("m4 is no standby: it runs torch 1")
    unfit = replace(STANDBY, note="cannot be rank 1: it raised")
    assert told(STANDBY, unfit) == Sentence("m4 cannot be rank 1: it raised", loud=True)


def test_a_job_that_waits_for_a_machine_says_for_how_long_and_who_came() -> None:
    change = Change(
        kind=Kind.RECOVERY, epoch=Epoch(2), stage=Stage.DRAIN, incident=1, joiners={}, leavers={},
        missing=frozenset({Slot(0)}),
    )  # fmt: skip
    spec = JobSpec(run_id="r", argv=["x.py"], wait_s=9)
    waits = replace(JOB, spec=spec, change=change, incidents=(LOST,))
    drill = KillRequested(at_us=5, request="r1", machine="m1")
    opened = sentence(JOB, drill, waits)
    assert opened.text == "m1 was lost -> the job waits for a machine, at most 9 s"
    taken = replace(LOST, joiner=MachineId("m4"))
    assert sentence(waits, drill, replace(waits, incidents=(taken,))).text == "m4 takes rank 0"


def test_an_incident_that_ends_the_job_is_told_by_its_end_alone() -> None:
    drill = KillRequested(at_us=5, request="r1", machine="m1")
    opened = sentence(JOB, drill, replace(JOB, incidents=(LOST,)))
    assert opened.loud
    failed = replace(LOST, outcome=Outcome.FAILED, note="no standby is left")
    ended = sentence(JOB, drill, replace(JOB, incidents=(failed,), code=1))
    assert not ended.loud
    assert "no standby is left" in ended.text


def test_a_checkpoint_that_is_given_up_is_one_loud_sentence() -> None:
    writing = replace(JOB, writing=Writing(Step(20), Epoch(1)))
    why = "No space left on device: /kept/x"
    fact = Wrote(rank=Rank(1), epoch=Epoch(1), step=Step(20), refused=why)
    said = sentence(writing, WorkerSaid(at_us=0, machine=M1, local_rank=0, fact=fact), JOB)
    text = f"the checkpoint of step 20 was given up (rank 1: {why}): the job trains on"
    assert said == Sentence(text, loud=True)
    failed = CheckpointFailed(at_us=0, step=Step(20), epoch=Epoch(1), why="No space left")
    assert "step 20 was given up (No space left)" in sentence(writing, failed, JOB).text


def test_damaged_checkpoints_are_named_aloud() -> None:
    found = CheckpointFound(at_us=0, epoch=Epoch(2), checkpoint=None, damaged=["a.", "b."])
    assert sentence(JOB, found, JOB) == Sentence("a.\nb.", loud=True)


def test_who_is_not_fit_is_told_aloud_also_as_the_job_begins() -> None:
    unfit = Examination(1, told=True, judged=True, failed="its disk is full")
    said = AgentSaid(at_us=5, machine=M1, fact=Examined(number=1, figures={}))
    for phase in Phase.GATHERING, Phase.RUNNING:
        before = replace(JOB, spec=JobSpec(run_id="r", argv=["x.py"], health="act"))
        after = replace(before, phase=phase, health=Health(of=Facts({M1: unfit})))
        told = sentence(before, said, after)
        assert told.loud
        assert told.text.startswith("m1 is not fit: its disk is full; it takes no ranks")


def test_what_seems_about_to_fail_is_told_aloud_and_once() -> None:
    found = AnomalyFound(at_us=5, machine=M1, sign="late", text="it is late", grave=True)
    one = Finding(5, M1, "late", "it is late", True, "its ranks go to a standby")
    first = replace(JOB, anomalies=Anomalies((one,)))
    told = sentence(JOB, found, first)
    text = "m1 may fail soon: it is late; its ranks go to a standby"
    assert told == Sentence(text, loud=True)
    again = replace(JOB, anomalies=Anomalies((replace(one, times=2),)))
    assert sentence(first, found, again).text == ""
    line = AgentSaid(at_us=5, machine=M1, fact=Sign(symptom="heat", line="x"))
    assert sentence(JOB, line, JOB).text == ""


def test_figures_of_who_is_fit_are_told_and_nothing_while_they_are_not_judged() -> None:
    one = Examination(1, figures={"disk_mb_s": 500.0}, told=True)
    said = AgentSaid(at_us=5, machine=M1, fact=Examined(number=1, figures={}))
    waits = replace(JOB, health=Health(of=Facts({M1: one})))
    assert sentence(JOB, said, waits).text == ""
    fit = replace(JOB, health=Health(of=Facts({M1: replace(one, judged=True)})))
    assert sentence(waits, said, fit) == Sentence("m1 is fit: its disk 500 MB/s")


def test_a_machine_that_leaves_as_announced_is_not_said_to_be_lost() -> None:
    lost = MachinesLost(at_us=9, lost=[Lost(machine=STANDBY.id, why="its agent ended", heard_us=0)])
    here = replace(JOB, machines=Machines({**JOB.machines, STANDBY.id: STANDBY}))
    assert sentence(here, lost, JOB).loud
    noticed = replace(here, cordoned={STANDBY.id: Cordon(0, "it will be taken away", 30_000_000)})
    said = sentence(noticed, lost, replace(JOB, cordoned=noticed.cordoned))
    assert said == Sentence("m4 has left, as announced")
    with_ranks = replace(noticed, seats=(STANDBY.id,))
    assert "m4 was lost" in sentence(with_ranks, lost, with_ranks).text


def test_a_broken_link_promises_nothing_and_has_no_words_of_the_system() -> None:
    broken = "rank 1 lost a link (its buddy is gone: The vault at 127.0.0.1:1: [Errno 104] reset)"
    job = Job(spec=JobSpec(run_id="r", argv=["x"]), phase=Phase.RUNNING)
    link = incident(machine=None, joiner=None, ranks=(), cause=broken)
    opened = with_incident(job, link)
    (said,) = incident_sentences(job, opened)
    assert said == (
        "rank 1 lost a link: ranks stop; if all machines are there, the step is run again"
    )
    lost = incident(number=2, cause="m2 was lost: its agent has ended")
    after = amend(opened, 1, outcome=Outcome.SUPERSEDED, note="m2 was lost")
    assert incident_sentences(opened, with_incident(after, lost)) == [
        "incident 1 is superseded: see incident 2",
        "m2 was lost: its agent has ended -> m3 takes rank 1",
    ]
