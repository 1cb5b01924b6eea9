"""Jobs of any size that train, with an incident behind them, and what their ranks have said."""

from trainmover.controller import Job
from trainmover.controller.facts import Facts, Ranks
from trainmover.controller.state import (
    Attestation,
    Cordon,
    Cut,
    Incident,
    Kind,
    Machine,
    Machines,
    MachineState,
    Outcome,
    Phase,
    Trigger,
)
from trainmover.ids import Epoch, MachineId, Rank, Slot, Step
from trainmover.protocol.messages import (
    Certificate,
    Committed,
    JobSpec,
    Position,
    Recorded,
    Row,
    columns_of,
)
from trainmover.server.run import Server

SECOND = 1_000_000


def training(machines: int, standbys: int = 1, *, incidents: int = 1) -> Job:
    """Every machine has a rank; the last standby is cordoned if there are two."""
    spec = JobSpec(run_id="r", argv=["x"], machines=machines, standbys=standbys, nproc=1)
    names = [MachineId(f"m{number + 1}") for number in range(machines + standbys)]
    known = {name: _machine(name, standby=n >= machines) for n, name in enumerate(names)}
    recorded = {
        Rank(rank): Recorded(rank=Rank(rank), step=Step(3), trace="t", digest="d", bytes=1000)
        for rank in range(machines)
    }
    return Job(
        spec=spec,
        phase=Phase.RUNNING,
        machines=Machines(known),
        seats=tuple(names[:machines]),
        epoch=Epoch(2),
        epoch_last=Epoch(2),
        recorded=Facts(recorded),
        attached=Ranks(recorded),
        incidents=tuple(_incident(number + 1) for number in range(incidents)),
        cut=Cut(Step(90), {}, {}, 10_000, 3000),
        cordoned={names[-1]: Cordon(0, "its fan")} if standbys > 1 else {},
    )


def _machine(name: MachineId, *, standby: bool) -> Machine:
    state = MachineState.WARM if standby else MachineState.ACTIVE
    proven = {Slot(0): Attestation(0, warm_ms=900, run_ms=300, held_bytes=10_000)}
    return Machine(
        id=name, standby=standby, vault="127.0.0.1:1", host="h", state=state,
        held=Slot(0) if standby else None, workers={0: "127.0.0.1:1"},
        attests=proven if standby else {}, torch="2",
    )  # fmt: skip


def _incident(number: int) -> Incident:
    rank = Rank(0)
    certificate = Certificate(
        rank=rank, source_rank=Rank(1), step=Step(42), epoch=Epoch(2), source_digest="d",
        joiner_digest="d", trace="t", position="p", bytes=4_700_000, state_ms=30.0,
    )  # fmt: skip
    marks = {"begun": 1 * SECOND, "drain": 1 * SECOND + 11_000, "switchover": 1 * SECOND + 61_000}
    return incident(
        number=number, joiner=MachineId("m1"), ranks=(rank,), lost=(MachineId("m2"),),
        cause="m2 was lost: its agent has ended", outcome=Outcome.DONE, step=Step(42),
        downtime_ms=61.0, marks=marks, certificates=(certificate,),
        positions={rank: Position(rank=rank, epoch=Epoch(2), committed=Step(42), gate=Step(43))},
    )  # fmt: skip


def incident(**changes: object) -> Incident:
    """Return a recovery in which m3 takes rank 1 of m2, with these fields instead."""
    known: dict[str, object] = {
        "number": 1, "kind": Kind.RECOVERY, "machine": MachineId("m2"), "joiner": MachineId("m3"),
        "ranks": (Rank(1),), "cause": "m2 was lost", "rung": 1, "epoch": Epoch(2),
        "trigger": Trigger.LOST,
    }  # fmt: skip
    return Incident(**(known | changes))


def commit(server: Server, step: int, *, first: bool = False) -> None:
    """Every rank tells of one more step, of 50 ms."""
    for rank, name in enumerate(server.job.seats):
        rows = [Row(step=Step(step), at_us=step * 50_000, values={"loss": 1.0 / step})]
        fact = Committed(rank=Rank(rank), epoch=Epoch(2), rows=rows, first=first)
        for alike in columns_of([fact]):
            server.told(name, alike)
