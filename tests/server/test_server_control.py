"""A controller in the hands of a test: no loop, no socket, no file; a list is its journal."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import msgspec
import pytest

from trainmover.controller.effects import Fence
from trainmover.controller.events import (
    EVENTS,
    MachineJoined,
    MachinesLost,
    MoveRequested,
    WorkersSaid,
)
from trainmover.controller.state import Phase
from trainmover.controller.values import replace
from trainmover.errors import ProtocolError
from trainmover.ids import Epoch, MachineId, Rank, Step
from trainmover.protocol import messages as m
from trainmover.server.control import Control
from trainmover.server.machines.absence import Dialled
from trainmover.server.machines.lanes import Trunk
from trainmover.server.surroundings import Decided
from trainmover.version import VERSION

SPEC = m.JobSpec(run_id="r", argv=["x"], machines=2, standbys=0, nproc=1)


@dataclass
class Written:
    """A journal, and the surroundings too: what was done, in order."""

    events: list[EVENTS] = field(default_factory=list)
    safe: dict[str, int] = field(default_factory=dict)
    done: list[Any] = field(default_factory=list)
    dials: list[str] = field(default_factory=list)

    def append(self, event: EVENTS) -> int:
        self.events.append(event)
        return len(self.events)

    def append_batches(self, batches: Sequence[Any], safe: Mapping[str, int] | None = None) -> None:
        self.safe |= safe or {}

    def happened(self, moment: Decided) -> None:
        assert moment.event is self.events[moment.seq - 1]

    def told(self, machine: MachineId, fact: Any) -> None:
        self.done.append(fact)

    def note(self, text: str, *, loud: bool = False) -> None:
        self.done.append(text)

    def turned_away(self, why: str) -> None:
        self.done.append(why)

    def answer(self, answer: Any) -> None:
        self.done.append(answer)

    def dial(self, machine: MachineId, vault: str) -> None:
        self.dials.append(machine)

    def save(self, order: Any) -> None:
        self.done.append(order)

    def ticket(self) -> str:
        return "ticket"

    def end(self, end: Any) -> None:
        self.done.append(end)


@dataclass(eq=False)
class Line:
    """Writes down what is sent, with the number of events that were journaled by then."""

    written: Written
    machine: MachineId | None = None
    quiet_ticks: int = 0
    heard_us: int = 0
    relay: MachineId | None = None
    sent: list[tuple[int, m.Order]] = field(default_factory=list)
    ended: str = ""

    def send(self, order: m.Order) -> None:
        self.sent.append((len(self.written.events), order))

    def close(self) -> None:
        self.ended = "closed"

    def abort(self) -> None:
        self.ended = "aborted"


@pytest.fixture
def written() -> Written:
    return Written()


@pytest.fixture
def control(written: Written) -> Control:
    return Control(SPEC, written, written, at_us=0)


def join(control: Control, written: Written, name: str, **changes: Any) -> Line:
    line = Line(written)
    given: dict[str, Any] = {"version": VERSION, "protocol": m.PROTOCOL, "nproc": 1} | changes
    hello = m.Hello(
        machine=MachineId(name), standby=False, vault=name, host="h", pid=1,
        incarnation=f"{name}.1",
        **given,
    )  # fmt: skip
    control.reception.hello(line, hello, 5)
    return line


def test_an_event_is_in_the_journal_before_its_orders_leave(
    control: Control, written: Written
) -> None:
    first, second = join(control, written, "m1"), join(control, written, "m2")
    assert [type(event) for event in written.events] == [MachineJoined, MachineJoined]
    welcome, start = first.sent
    assert isinstance(welcome[1], m.Welcome)
    assert (start[0], type(start[1])) == (1, m.StartWorkers)
    assert second.sent[1][0] == 2


def losses(written: Written) -> list[list[tuple[str, str]]]:
    events = [event for event in written.events if isinstance(event, MachinesLost)]
    return [[(one.machine, one.why) for one in event.lost] for event in events]


def test_who_is_silent_is_away_and_may_be_heard_again(control: Control, written: Written) -> None:
    silent, heard = join(control, written, "m1"), join(control, written, "m2")
    for beat in range(1, 200):
        silent.quiet_ticks, heard.quiet_ticks = beat, 0
        control.beat(beat * 200_000)
    assert losses(written) == []
    assert control.absence.away == ["m1"]
    assert "m1 is away (silent for 1 s): its ranks train on, and it may return" in written.done
    silent.quiet_ticks = 0
    control.beat(50_000_000)
    assert (control.absence.away, silent.ended) == ([], "")
    assert any(str(one).startswith("m1 is back after 39.8 s") for one in written.done)


def test_steps_of_all_ranks_of_a_machine_come_in_one_fact(
    control: Control, written: Written
) -> None:
    line = join(control, written, "m1")
    rows = [m.Row(step=Step(4), at_us=1, values={"loss": 0.5})]
    told = [m.Committed(rank=Rank(rank), epoch=Epoch(1), rows=rows) for rank in (0, 1)]
    before = len(written.events)
    [alike] = m.columns_of(told)
    control.said(line, m.CommittedHere(told=[alike]), 6)
    assert (control.unwritten, written.done[-1], len(written.events)) == (1, alike, before)
    assert control.accounts.of[MachineId("m1")].facts == 1
    change = msgspec.structs.replace
    took = m.Took(step=Step(4), own_us=-1, cpu_us=0)
    for wrong, why in (
        (change(alike, ranks=[Rank(0), Rank(2)]), "rank 2 in committed steps"),
        (change(alike, ranks=[Rank(-1), Rank(0)]), "rank -1 in committed steps"),
        (change(alike, first=True), "the first step of epoch 1"),
        (change(alike, steps=[Step(-1)]), "step -1: that cannot be"),
        (change(alike, at_us=[1, 2**63]), f"a commit at {2**63} us: that cannot be"),
        (change(alike, took=[[], [took]]), "a step that took less than no time"),
        (change(alike, ranks=[], steps=[], at_us=[], values=b""), "steps whose columns do not fit"),
        (change(alike, at_us=[1]), "steps whose columns do not fit"),
        (change(alike, values=alike.values[1:]), "steps whose columns do not fit"),
        (change(alike, took=[[]]), "steps whose columns do not fit"),
        (change(alike, samples=[[]]), "steps whose columns do not fit"),
        (change(alike, names=("b", "a"), values=bytes(32)), "steps whose columns do not fit"),
        (change(alike, names=("a", "a"), values=bytes(32)), "steps whose columns do not fit"),
    ):
        with pytest.raises(ProtocolError, match=f"m1 speaks of {why}"):
            control.said(line, m.CommittedHere(told=[wrong]), 6)
    assert control.unwritten == 1


def test_answers_of_all_ranks_of_a_machine_are_one_event(
    control: Control, written: Written
) -> None:
    line = join(control, written, "m1")
    rows = [m.Row(step=Step(4), at_us=1, values={"loss": 0.5})]
    first = [m.Committed(rank=Rank(rank), epoch=Epoch(1), rows=rows, first=True) for rank in (0, 1)]
    control.said(line, m.SaidHere(told=[*first]), 6)
    event = written.events[-1]
    assert isinstance(event, WorkersSaid)
    assert (event.machine, event.number, event.facts) == ("m1", 1, [f.decided_on for f in first])
    assert control.unwritten == 0, "rows are written before what is decided on"
    known = len(written.events)
    later = msgspec.structs.replace(first[0], first=False)
    beyond = m.Switched(rank=Rank(2), epoch=Epoch(1))
    for wrong, why in ((later, "later steps of epoch 1"), (beyond, "rank 2 in Switched")):
        with pytest.raises(ProtocolError, match=f"m1 speaks of {why}"):
            control.said(line, m.SaidHere(told=[wrong]), 6)
    assert (control.unwritten, len(written.events)) == (0, known)


@pytest.mark.parametrize(("step", "at_us"), [(-1, 0), (2**43, 0), (2**63, 0), (1, -1), (1, 2**63)])
def test_a_step_that_cannot_be_is_refused_before_the_journal(
    control: Control, written: Written, step: int, at_us: int
) -> None:
    line = join(control, written, "m1")
    rows = [m.Row(step=Step(1), at_us=1, values={}), m.Row(step=Step(step), at_us=at_us, values={})]
    fact = m.Committed(rank=Rank(0), epoch=Epoch(1), rows=rows)
    said = m.FromWorker(local_rank=0, payload=msgspec.Raw(m.encode(fact)))
    with pytest.raises(ProtocolError, match=r"m1 speaks of .*: that cannot be"):
        control.said(line, said, 6)
    assert control.unwritten == 0


@pytest.mark.parametrize("rank", [-5, -1, 2, 99])
def test_a_fact_of_a_rank_that_is_not_is_refused_before_the_journal(
    control: Control, written: Written, rank: int
) -> None:
    """There it would fail every controller that comes."""
    line = join(control, written, "m1")
    facts: list[m.WorkerFact] = [
        m.Position(rank=rank, epoch=0, committed=0, gate=0),
        m.Left(),
        m.Committed(rank=rank, epoch=0, rows=[], first=True),
        m.Warned(rank=rank, text="look"),
    ]
    before = len(written.events)
    for fact in facts:
        said = m.FromWorker(local_rank=0, payload=msgspec.Raw(m.encode(fact)))
        if isinstance(fact, m.Left):
            control.said(line, said, 10)
        else:
            with pytest.raises(ProtocolError, match=f"m1 speaks of rank {rank} in"):
                control.said(line, said, 10)
    assert len(written.events) == before + 1


def test_machines_that_end_together_are_one_event(control: Control, written: Written) -> None:
    lines = [join(control, written, name) for name in ("m1", "m2", "m3")]
    for line in lines:
        control.broke(line, "its link has ended", 10)
    assert written.dials == ["m1", "m2", "m3"]
    control.dialled(MachineId("m1"), Dialled.REFUSED, 11)
    control.dialled(MachineId("m2"), Dialled.ANSWERED, 12)
    assert losses(written) == []
    control.dialled(MachineId("m3"), Dialled.REFUSED, 13)
    why = "its agent has ended"
    assert losses(written) == [[("m1", why), ("m3", why)]]
    assert control.accounts.away == ["m2"]


def test_who_is_silent_and_is_given_up_by_the_job_itself_is_asked_after_no_more(
    control: Control, written: Written
) -> None:
    """As one whose process is stopped, and does not end."""
    silent, heard = join(control, written, "m1"), join(control, written, "m2")
    for beat in range(1, 9):
        silent.quiet_ticks, heard.quiet_ticks = beat, 0
        control.beat(beat * 200_000)
    assert control.absence.away == ["m1"]
    control._carry_out(Fence(MachineId("m1")))
    control.job = replace(control.job, machines=control.job.machines.without({MachineId("m1")}))
    control.beat(2_000_000)
    assert (control.absence.away, silent.ended) == ([], "aborted")


def test_a_machine_that_speaks_nonsense_is_lost_at_once(control: Control, written: Written) -> None:
    line = join(control, written, "m1")
    control.speaks_nonsense(line, "it broke the rules", 10)
    assert (losses(written), line.ended) == ([[("m1", "it broke the rules")]], "aborted")


@pytest.mark.parametrize(
    "fact",
    [
        m.Sign(symptom="gpu" * 100, line="x"),
        m.Sign(symptom="gpu", line="x" * 5000),
        m.Sign(symptom="gpu", line="x", count=0),
        m.Sign(symptom="gpu", line="x", count=2**40),
        m.Leaving(left_ms=-1),
        m.Examined(number=1, figures={"disk_mb_s": float("nan")}),
    ],
)
def test_what_no_agent_says_is_refused_before_the_journal(
    control: Control, written: Written, fact: m.AgentFact
) -> None:
    line = join(control, written, "m1")
    with pytest.raises(ProtocolError, match="no agent of this job"):
        control.said(line, fact, 10)


def test_an_agent_that_speaks_late_is_told_of(control: Control, written: Written) -> None:
    """Through all that heartbeats come by; five machines, as fewer say nothing."""
    lines = {name: join(control, written, name) for name in ("m1", "m2", "m3", "m4", "m5")}
    control.job = replace(control.job, phase=Phase.RUNNING)
    for beat in range(1, 3000):
        for name, line in lines.items():
            line.quiet_ticks = 0
            if name != "m2" or beat % 20 == 0:
                control.said(line, m.Heartbeat(), beat * 200_000)
        control.beat(beat * 200_000)
    (found,) = control.job.anomalies.findings
    assert (found.machine, found.sign) == ("m2", "late")


def test_who_returns_over_another_link_is_told_what_was_taken(
    control: Control, written: Written
) -> None:
    """Also if the old link has not ended here: it only brings nothing any more."""
    old, new = join(control, written, "m1"), Line(written)
    control.said(old, m.VaultHeld(epoch=0, records={}), 20)
    back = m.Return(
        machine=MachineId("m1"), incarnation="m1.1", version=VERSION, protocol=m.PROTOCOL,
        heard=0, term=0, dropped=0, said=1,
    )  # fmt: skip
    control.reception.back(new, back, 30)
    assert old.ended == "aborted"
    assert [type(order) for _, order in new.sent] == [m.Welcome, m.Resumed, m.StartWorkers]
    assert new.sent[1][1] == m.Resumed(facts=1)
    assert written.safe == {"m1.1": 1}
    assert losses(written) == []


def test_who_is_refused_hears_why_and_changes_nothing(control: Control, written: Written) -> None:
    refused = join(control, written, "m1", nproc=3)
    (sent,) = refused.sent
    assert isinstance(sent[1], m.Refused)
    assert refused.ended == "closed"
    assert not written.events
    assert not control.members


def test_facts_count_only_over_the_link_of_their_machine(
    control: Control, written: Written
) -> None:
    line, stranger = join(control, written, "m1"), Line(written, machine=MachineId("m1"))
    exited = m.WorkerExited(local_rank=0, pid=1, code=0)
    control.said(stranger, exited, 6)
    assert len(written.events) == 1
    control.said(line, exited, 7)
    control.beat(8)
    assert written.safe == {"m1.1": 1}
    assert line.sent[-1][1] == m.Heard(facts=1)


def test_after_the_end_requests_are_answered_and_nothing_is_journaled(
    control: Control, written: Written
) -> None:
    line = join(control, written, "m1")
    control.stop(3, "enough", 9)
    assert isinstance(line.sent[-1][1], m.Shutdown)
    count = len(written.events)
    control.ask(MoveRequested(at_us=10, request="r1", machine="m1"))
    assert (written.done[-1].request, written.done[-1].ok) == ("r1", False)
    assert len(written.events) == count
    assert not control.alone
    control.broke(line, "connection closed", 11)
    assert control.alone


def test_facts_of_a_return_are_taken_before_queued_orders_leave(
    control: Control, written: Written
) -> None:
    """They tell what has become of older orders. Until then the machine counts as away."""
    old, new = join(control, written, "m1"), Line(written)
    control.broke(old, "cut", 10)
    control.beat(20)
    assert control.job.away == {"m1"}
    control.absence.back(MachineId("m1"))
    back = m.Return(
        machine=MachineId("m1"), incarnation="m1.1", version=VERSION, protocol=m.PROTOCOL,
        heard=0, term=0, dropped=0, said=2,
    )  # fmt: skip
    control.reception.back(new, back, 30)
    assert [type(order) for _, order in new.sent] == [m.Welcome, m.Resumed]
    control.said(new, m.VaultHeld(epoch=0, records={}), 40)
    control.beat(50)
    assert control.job.away == {"m1"}, "one more is on its way"
    control.said(new, m.VaultHeld(epoch=0, records={}), 60)
    counted = [type(o) for _, o in new.sent if not isinstance(o, m.UNCOUNTED)]
    assert counted == [m.StartWorkers]
    control.beat(70)
    assert control.job.away == frozenset()
    assert control.job.back_us == {"m1": 70}


def test_a_policy_that_raises_is_named_and_switched_off_and_the_job_goes_on(
    control: Control, written: Written, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = 0

    def look(*_: object) -> list[EVENTS]:
        nonlocal asked
        asked += 1
        raise KeyError("m9")

    monkeypatch.setattr(control.anomalies, "look", look)
    join(control, written, "m1")
    for at_us in (100, 200, 300):
        control.beat(at_us)
    told = [one for one in written.done if "the policy anomalies has raised" in str(one)]
    assert asked == len(told) == 1
    assert "KeyError: 'm9'" in told[0]
    assert "the job goes on without it" in told[0]


def test_a_machine_that_only_a_neighbour_reaches_is_sent_behind_it(
    control: Control, written: Written
) -> None:
    near, far = join(control, written, "m1"), join(control, written, "m2")
    for beat in range(12):
        far.quiet_ticks = beat
        control.beat(200_000 * beat)
        for _, order in near.sent:
            if isinstance(order, m.LookFor):
                found = m.Found(number=order.number, machines=[MachineId("m2")])
                control.found(MachineId("m1"), found)
        control.absence.dialled(MachineId("m2"), Dialled.UNREACHED)
        asked = [order for _, order in near.sent if isinstance(order, m.BeRelay)]
        if asked and not control.carrying.trunks:
            trunk = Trunk(MachineId("m1"), control, lambda _: None, lambda: None)  # type: ignore[arg-type]
            assert control.carrying.opened(trunk, "127.0.0.1:9")
    (order,) = [order for _, order in near.sent if isinstance(order, m.FetchBehind)]
    assert (order.machine, order.vault, order.address) == ("m2", "m2", "127.0.0.1:9")
    assert control.carrying.ticket(MachineId("m2"), MachineId("m1")) == order.ticket


def test_who_was_stopped_itself_hears_first_what_machines_have_said(
    control: Control, written: Written
) -> None:
    join(control, written, "m1")
    join(control, written, "m2")
    control.stood(100)
    assert control.job.away == {"m1", "m2"}
    control.beat(101)
    assert control.job.away == {"m1", "m2"}, "not all that they said may be read yet"
    control.beat(300)
    assert control.job.away == frozenset()
    assert control.job.back_us == {"m1": 300, "m2": 300}
