"""Jobs at every point of their lives, made by feeding events to `decide`; and short words for both.

`RUNNING` has machines m1, m2, m3 with ranks 0, 1, 2, and m4 as a warm standby that holds a run of
rank 0. The constants after it stand one stage further each: a move of m2, and a recovery from the
loss of m2.
"""

import itertools
from typing import Any, TypeVar

import msgspec

from trainmover.controller import Job, decide
from trainmover.controller.effects import Answer, Effect, End, Send
from trainmover.controller.events import (
    EVENTS,
    AgentSaid,
    Event,
    KillRequested,
    Lost,
    MachineJoined,
    MachinesLost,
    MoveRequested,
    WorkerSaid,
)
from trainmover.controller.state import Incident, Kind, MachineState, Outcome, Phase
from trainmover.protocol import messages as m

K = TypeVar("K", bound=m.Order)
_PIDS = itertools.count(10_001)

# --- feeding and looking --------------------------------------------------------------------------


def after(job: Job, *events: EVENTS) -> tuple[Job, tuple[Effect, ...]]:
    """`decide` over several events; all their effects in order."""
    effects: tuple[Effect, ...] = ()
    for event in events:
        job, more = decide(job, event)
        effects += more
    return job, effects


def orders(effects: tuple[Effect, ...], kind: type[K]) -> dict[str, K]:
    """Machine -> the order of that kind it got."""
    return {
        effect.machine: effect.order
        for effect in effects
        if isinstance(effect, Send) and isinstance(effect.order, kind)
    }


def kinds(effects: tuple[Effect, ...]) -> list[tuple[str, str]]:
    """(machine, order) in short; an effect that is no order stands with its own name and ""."""
    return [
        (effect.machine, type(effect.order).__name__)
        if isinstance(effect, Send)
        else ("", type(effect).__name__)
        for effect in effects
    ]


def answers(effects: tuple[Effect, ...]) -> list[Answer]:
    return [effect for effect in effects if isinstance(effect, Answer)]


def is_refused(job: Job, event: Event, words: str) -> None:
    """The event has one answer, which says so in these words, and nothing else happens."""
    same, effects = decide(job, event)
    (answer,) = answers(effects)
    assert words in answer.text
    assert "Nothing was done" in answer.text
    assert not answer.ok
    assert same == job


def ended(effects: tuple[Effect, ...]) -> End:
    """The one End there must be."""
    (end,) = [effect for effect in effects if isinstance(effect, End)]
    return end


# --- events ---------------------------------------------------------------------------------------


def joined(machine: str, *, standby: bool = False) -> MachineJoined:
    return MachineJoined(
        at_us=0, machine=machine, standby=standby, vault=f"vault-{machine}", host="h"
    )


def lost(*machines: str, at_us: int = 0, heard_us: int = 0) -> MachinesLost:
    each = [Lost(machine=name, why="link broke", heard_us=heard_us) for name in machines]
    return MachinesLost(at_us=at_us, lost=each)


def said(machine: str, fact: Any, *, local_rank: int = 0, at_us: int = 0) -> WorkerSaid:
    return WorkerSaid(at_us=at_us, machine=machine, local_rank=local_rank, fact=fact)


def up(machine: str, *, local_rank: int = 0, torch: str = "2") -> WorkerSaid:
    address = f"{machine}/{local_rank}"
    fact = m.WorkerUp(pid=1 + local_rank, address=address, torch=torch, version="1")
    return said(machine, fact, local_rank=local_rank)


def exited(
    machine: str, code: int = -9, *, local_rank: int = 0, pid: int | None = None, at_us: int = 0
) -> AgentSaid:
    """Another process each time."""
    pid = next(_PIDS) if pid is None else pid
    fact = m.WorkerExited(local_rank=local_rank, pid=pid, code=code)
    return AgentSaid(at_us=at_us, machine=machine, fact=fact)


def vault(
    machine: str, epoch: int, records: dict[int, list[int]] | None = None, *, at_us: int = 0
) -> AgentSaid:
    fact = m.VaultHeld(epoch=epoch, records=records or {})
    return AgentSaid(at_us=at_us, machine=machine, fact=fact)


def recorded(
    machine: str, rank: int, *, digest: str = "d", trace: str = "t", local_rank: int = 0
) -> WorkerSaid:
    fact = m.Recorded(rank=rank, step=3, trace=trace, digest=digest, bytes=1)
    return said(machine, fact, local_rank=local_rank)


def warm(
    machine: str, rank: int | None = None, *, trace: str = "t", local_rank: int = 0, at_us: int = 0
) -> WorkerSaid:
    """As rank 0, or that of the first slot's ranks which the worker is."""
    rank = local_rank if rank is None else rank
    fact = m.Warm(
        rank=rank, shadow_steps=3, trace=trace, warm_ms=50, held_bytes=1000, device_bytes=10
    )
    return said(machine, fact, local_rank=local_rank, at_us=at_us)


def held(
    machine: str, rank: int, *, trace: str = "t", local_rank: int = 0, at_us: int = 0
) -> WorkerSaid:
    fact = m.Held(rank=rank, trace=trace, run_ms=20, held_bytes=2000, device_bytes=20)
    return said(machine, fact, local_rank=local_rank, at_us=at_us)


def failed(machine: str, rank: int, reason: str = "no", *, again: bool = False) -> WorkerSaid:
    return said(machine, m.SandboxFailed(rank=rank, reason=reason, again=again))


def parked(
    machine: str, rank: int, epoch: int, *, trace: str = "t", local_rank: int = 0, at_us: int = 0
) -> WorkerSaid:
    fact = m.Parked(rank=rank, epoch=epoch, trace=trace, bind_ms=1)
    return said(machine, fact, local_rank=local_rank, at_us=at_us)


def prepared(
    machine: str, rank: int, epoch: int, reason: str = "", *, at_us: int = 0
) -> WorkerSaid:
    return said(machine, m.Prepared(rank=rank, epoch=epoch, reason=reason), at_us=at_us)


def at_boundary(
    machine: str, rank: int, epoch: int, step: int = 7, *, at_us: int = 0
) -> WorkerSaid:
    fact = m.AtBoundary(rank=rank, epoch=epoch, committed=step)
    return said(machine, fact, at_us=at_us)


def position(
    machine: str,
    rank: int,
    epoch: int,
    committed: int = 7,
    gate: int = 0,
    *,
    patience_ms: int = 0,
    at_us: int = 0,
) -> WorkerSaid:
    fact = m.Position(
        rank=rank, epoch=epoch, committed=committed, gate=gate, patience_ms=patience_ms
    )
    return said(machine, fact, at_us=at_us)


def certificate(rank: int, *, equal: bool = True) -> m.Certificate:
    return m.Certificate(
        rank=rank, source_rank=0, step=7, epoch=2, source_digest="d",
        joiner_digest="d" if equal else "other", trace="t", position="", bytes=8, state_ms=1.0,
    )  # fmt: skip


def loaded(
    machine: str, rank: int, epoch: int, *, equal: bool = True, at_us: int = 0
) -> WorkerSaid:
    fact = m.Loaded(rank=rank, epoch=epoch, certificate=certificate(rank, equal=equal))
    return said(machine, fact, at_us=at_us)


def switched(machine: str, rank: int, epoch: int, *, at_us: int = 0) -> WorkerSaid:
    return said(machine, m.Switched(rank=rank, epoch=epoch), at_us=at_us)


def committed(
    machine: str, rank: int, epoch: int, step: int = 8, *, gap_us: int | None = None,
    median_us: int | None = None, at_us: int = 0,
) -> WorkerSaid:  # fmt: skip
    fact = m.Committed(
        rank=rank, epoch=epoch, rows=[m.Row(step=step, at_us=0, values={})], first=True,
        gap_us=gap_us, median_us=median_us,
    )  # fmt: skip
    return said(machine, fact, at_us=at_us)


def finished(machine: str, rank: int, *, step: int = 9, code: int = 0) -> WorkerSaid:
    return said(machine, m.Finished(rank=rank, step=step, code=code, digest="d", attached=True))


def interrupted(machine: str, rank: int, epoch: int) -> WorkerSaid:
    return said(machine, m.Interrupted(rank=rank, epoch=epoch, reason="reset by peer"))


def raised(machine: str, rank: int) -> WorkerSaid:
    return said(machine, m.Raised(rank=rank, step=4, error="ValueError: no", traceback="Traceback"))


def move(machine: str, request: str = "r1", *, at_us: int = 0) -> MoveRequested:
    return MoveRequested(at_us=at_us, request=request, machine=machine)


def kill(machine: str, request: str = "r1", *, at_us: int = 0) -> KillRequested:
    return KillRequested(at_us=at_us, request=request, machine=machine)


def drained(epoch: int, *, at_us: int = 0) -> tuple[AgentSaid | WorkerSaid, ...]:
    """m1 and m3 stand after step 7, and have the record of rank 1 for step 8."""
    return (
        *(position(name, rank, epoch, at_us=at_us) for rank, name in ((0, "m1"), (2, "m3"))),
        vault("m1", epoch, {2: [8]}, at_us=at_us),
        vault("m3", epoch, {1: [8]}, at_us=at_us),
        vault("m4", epoch, at_us=at_us),
    )


# --- jobs -----------------------------------------------------------------------------------------


def gathering(
    *, machines: int = 3, standbys: int = 1, nproc: int = 1, restarts_max: int = 3
) -> Job:
    """Every machine has joined; no worker is up."""
    spec = m.JobSpec(
        run_id="r", argv=["train.py"], machines=machines, standbys=standbys, nproc=nproc,
        restarts_max=restarts_max,
    )  # fmt: skip
    names = [f"m{i + 1}" for i in range(machines + standbys)]
    events = [joined(name, standby=i >= machines) for i, name in enumerate(names)]
    return after(Job(spec), *events)[0]


def begun(**knobs: int) -> Job:
    """Every worker is up, the script runs, nothing is recorded; epoch 1."""
    job = gathering(**knobs)
    job, _ = after(
        job, *(up(name, local_rank=i) for name in job.machines for i in range(job.spec.nproc))
    )
    assert job.phase is Phase.RUNNING
    return job


def running(**knobs: int) -> Job:
    """All ranks have attached, committed and recorded; standbys are warm and hold; epoch 1."""
    job = begun(**knobs)
    nproc = job.spec.nproc
    pairs = [(rank, job.seats[rank // nproc]) for rank in range(job.spec.world_size)]
    local = range(nproc)
    job, _ = after(job, *(said(name, m.Attached(rank=rank)) for rank, name in pairs))
    job, _ = after(job, *(committed(name, rank, 1, step=1) for rank, name in pairs))
    job, _ = after(job, *(recorded(name, r, local_rank=r % nproc) for r, name in pairs))
    spare = [name for name in job.machines if name not in job.seats]
    job, _ = after(job, *(warm(name, local_rank=i) for name in spare for i in local))
    return hold_all(job)


def hold_all(job: Job) -> Job:
    """Every run that is being made to be held is there."""
    for machine in list(job.machines.values()):
        if machine.state is MachineState.HOLDING and machine.work is not None:
            ranks = enumerate(job.spec.ranks(machine.work))
            job, _ = after(job, *(held(machine.id, rank, local_rank=i) for i, rank in ranks))
    return job


GATHERING = gathering()
BEGUN = begun()
RUNNING = running()
SEATS = RUNNING.seats

# A move of m2 to m4, stage by stage; epoch 2.
MOVE_BINDS, _ = decide(RUNNING, move("m2", at_us=100))
MOVE_PREPARES, _ = decide(MOVE_BINDS, parked("m4", 1, 2, at_us=200))
MOVE_PAUSES, _ = after(
    MOVE_PREPARES, *(prepared(name, r, 2, at_us=300) for r, name in enumerate(("m1", "m4", "m3")))
)
MOVE_SWITCHES, _ = after(
    MOVE_PAUSES, *(at_boundary(name, rank, 2, at_us=400) for rank, name in enumerate(SEATS))
)
MOVE_ALL_SWITCHED = (
    loaded("m4", 1, 2, at_us=450),
    *(switched(name, rank, 2, at_us=500) for rank, name in enumerate(("m1", "m4", "m3"))),
)
MOVED, _ = after(MOVE_SWITCHES, *MOVE_ALL_SWITCHED)

# m2 is lost between steps 7 and 8, m4 takes rank 1; epoch 2.
DRAINS, _ = decide(RUNNING, lost("m2", at_us=100, heard_us=40))
DRAINED = drained(2, at_us=200)
BOUNDARY, _ = after(DRAINS, *DRAINED)
AT_BOUNDARY = (at_boundary("m1", 0, 2, at_us=300), at_boundary("m3", 2, 2, at_us=300))
RECOVERY_SWITCHES, _ = after(BOUNDARY, *AT_BOUNDARY, parked("m4", 1, 2, at_us=400))
RECOVERED, _ = after(RECOVERY_SWITCHES, *MOVE_ALL_SWITCHED)


def mends_a_link(job: Job) -> Job:
    """All three are to switch to the next epoch, with the same members."""
    names = ("m1", "m2", "m3")
    return after(
        job,
        interrupted("m1", 0, 1),
        *(position(name, rank, 2) for rank, name in enumerate(names)),
        *(vault(name, 2) for name in job.machines),
        *(at_boundary(name, rank, 2) for rank, name in enumerate(names)),
    )[0]


def moved(job: Job) -> Job:
    """The move under way comes to its end."""
    change = job.change
    assert change is not None
    epoch, step = change.epoch, job.committed + 7
    seats = [change.joiners.get(slot, name) for slot, name in enumerate(job.seats)]
    return after(
        job,
        *(parked(joiner, slot, epoch) for slot, joiner in change.joiners.items()),
        *(prepared(name, rank, epoch) for rank, name in enumerate(seats)),
        *(at_boundary(name, rank, epoch, step) for rank, name in enumerate(job.seats)),
        *(loaded(joiner, slot, epoch) for slot, joiner in change.joiners.items()),
        *(switched(name, rank, epoch) for rank, name in enumerate(seats)),
        *(committed(name, rank, epoch, step + 1) for rank, name in enumerate(seats)),
    )[0]


def recovered(job: Job) -> tuple[Job, tuple[Effect, ...]]:
    """The machines say all that lets the job train on; no step is committed."""
    change = job.change
    assert change is not None
    epoch, step = change.epoch, job.committed
    stay = [(name, rank) for rank, name in enumerate(job.seats) if name in job.machines]
    records = {slot: [step + 1] for slot in change.joiners}
    seats = [change.joiners.get(slot, name) for slot, name in enumerate(job.seats)]
    job, effects = after(
        job,
        *(vault(name, epoch, records) for name in job.machines),
        *(position(name, rank, epoch, committed=step) for name, rank in stay),
        *(at_boundary(name, rank, epoch, step) for name, rank in stay),
        *(parked(joiner, slot, epoch) for slot, joiner in change.joiners.items()),
        *(loaded(joiner, slot, epoch) for slot, joiner in change.joiners.items()),
        *(switched(name, rank, epoch) for rank, name in enumerate(seats)),
    )
    assert job.change is None, job.change
    return job, effects


def past() -> tuple[Incident, ...]:
    """Recoveries and a move that are over: each with what it has cost, and what has travelled."""
    return tuple(
        Incident(
            number, kind, "m1", joiner, (0,), "lost", rung, 1, outcome=outcome, downtime_ms=ms,
            marks={"detect": 0, "bind": 30_000, "state": 50_000, "first_step": 900_000},
            certificates=(proof(number),),
        )
        for number, (kind, rung, joiner, outcome, ms) in enumerate(
            [
                (Kind.RECOVERY, 1, "m9", Outcome.DONE, 900.0),
                (Kind.RECOVERY, 1, "m1", Outcome.DONE, 500.0),
                (Kind.RECOVERY, 1, None, Outcome.DONE, 70.0),
                (Kind.RECOVERY, 2, "m9", Outcome.DONE, 5000.0),
                (Kind.RECOVERY, 1, "m9", Outcome.FAILED, 8000.0),
                (Kind.MOVE, 0, "m9", Outcome.DONE, 300.0),
                (Kind.MOVE, 0, "m9", Outcome.FAILED, 9000.0),
                (Kind.RECOVERY, 1, "m9", Outcome.DONE, None),
            ],
            start=1,
        )
    )  # fmt: skip


def proof(number: int) -> m.Certificate:
    return msgspec.structs.replace(certificate(0), bytes=1000 * number, held=500, state_ms=10.0)
