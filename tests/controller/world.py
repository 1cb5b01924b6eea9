"""A fake world for `decide`: machines, workers, vaults, links as values; a seed is the only chance.

Messages travel in order per machine, but anything may happen between two deliveries: a machine
dies, a worker crashes, a rank computes, passes the gate that it may pass. Workers behave as the
worker room does: position and newer epoch in one moment, record safe before the gate; a run in the
sandbox takes a while, newer work ends it, and one that is held is parked at once.
"""

import random
from collections import deque
from dataclasses import dataclass, field

from trainmover.controller import Job, decide
from trainmover.controller.effects import Answer, End, Fence, FindCheckpoint, Publish, Send
from trainmover.controller.events import (
    AgentSaid,
    CheckpointFailed,
    CheckpointFound,
    CheckpointPublished,
    KillRequested,
    MachineJoined,
    MachineLost,
    MoveRequested,
    Tick,
    WorkerSaid,
)
from trainmover.protocol import messages as m

RECORDED_AT = 3
LONG_US = 700_000_000


@dataclass
class Worker:
    """One rank's process, reduced to what the controller can see of it."""

    machine: str
    local: int
    pid: int = 0
    live: bool = False
    rank: int = -1
    epoch: int = 0
    ordered: int = 0
    step: int = 0  # committed
    gate: int = 0
    computing: bool = False
    pause_asked: int = 0
    pause_at: int = 0
    discarded: int = 0
    verdict: m.Verdict | None = None
    said_boundary: int = 0
    bound_for: int = 0
    parked: bool = False
    switched: m.Switch | None = None
    finished: bool = False
    first_of: int = 0
    work: m.Order | None = None  # a run in the sandbox that is not through
    held: int = -1  # rank of the run that it holds
    runs: int = 0  # of the script, in this process
    every: int = 0  # committed steps from one snapshot to the next
    snapshots: dict[int, int] = field(default_factory=dict)  # in memory: step -> rank
    complete: int = 0  # the newest cut that is complete
    on_way: int = -1  # step to which its script has gone, as a joiner
    cut_at: int = 0  # step after which all take a snapshot

    @property
    def pending(self) -> bool:
        return self.ordered > self.epoch

    @property
    def busy(self) -> bool:
        return any(step > self.complete for step in self.snapshots)

    @property
    def wants_cut(self) -> bool:
        last = max([0, *(at for at, of in self.snapshots.items() if of == self.rank)])
        return self.every > 0 and not self.busy and self.gate - last >= self.every

    @property
    def paused(self) -> bool:
        return self.pause_at > max(self.epoch, self.discarded)


@dataclass
class Box:
    """A machine: workers, vault, and what is on its way to and from the controller."""

    name: str
    standby: bool
    workers: list[Worker] = field(default_factory=list)
    vault: dict[int, list[int]] = field(default_factory=dict)
    snapshots: dict[int, list[int]] = field(default_factory=dict)  # of other machines' ranks
    up: deque[object] = field(default_factory=deque)
    down: deque[m.Order] = field(default_factory=deque)
    alive: bool = True
    starting: bool = False


class World:
    """Run it with `run`; look at `job`, `applied`, `ended`, `answers` afterwards."""

    def __init__(
        self,
        seed: int,
        *,
        machines: int = 3,
        standbys: int = 2,
        nproc: int = 1,
        steps: int = 14,
        stages: int = 1,
        once: tuple[str, ...] = (),
        unfit: tuple[tuple[str, str], ...] = (),
        wait_s: int = 0,
        alone: bool = False,
        snapshots: int | None = None,
        checkpoints: int = 0,
    ) -> None:
        """alone: no two ranks hold the same state. snapshots, checkpoints: every so many steps, as
        the spec has it. stages: how many programs, slot by slot. once:
        machines on which a process runs the script once. unfit: (machine, program) that its sandbox
        cannot run."""
        self.buddies: dict[int, str] = {}
        self.random = random.Random(seed)
        spec = m.JobSpec(
            run_id="r", argv=["x"], machines=machines, standbys=standbys, nproc=nproc,
            wait_s=wait_s, snapshot_every=snapshots, checkpoint="/kept" if checkpoints else "",
            checkpoint_every=checkpoints or 1000,
        )  # fmt: skip
        self.host: deque[object] = deque()  # what came of orders about checkpoints
        self.published: dict[int, m.Checkpoint] = {}
        self.stages, self.once, self.unfit, self.alone = stages, once, unfit, alone
        self.job = Job(spec)
        self.steps = steps
        self.now = 0
        self.pid = 0
        self.ended: End | None = None
        self.answers: list[Answer] = []
        self.trace: list[str] = []
        self.applied: dict[int, list[int]] = {r: [] for r in range(spec.world_size)}
        self.passed_by: dict[tuple[int, int], set[int]] = {}
        self.cuts: set[tuple[int, int]] = set()
        self.boxes = {
            f"m{i + 1}": Box(f"m{i + 1}", i >= machines) for i in range(machines + standbys)
        }
        self.events: list[object] = []
        for box in self.boxes.values():
            self.join(box)

    # --- controller's side ----------------------------------------------------------------------

    def feed(self, event: object) -> None:
        self.now += 1
        event = replace_time(event, self.now)
        self.events.append(event)
        before = self.job
        self.job, effects = decide(self.job, event)
        self.trace.append(f"{self.now} {event} -> {[type(e).__name__ for e in effects]}")
        assert self.job.epoch_last >= before.epoch_last
        back = self.job.change is not None and self.job.change.back
        assert self.job.committed >= before.committed or self.job.restarts > before.restarts or back
        for effect in effects:
            self.carry_out(effect)

    def carry_out(self, effect: object) -> None:
        match effect:
            case Send(machine, order):
                box = self.boxes[machine]
                assert machine in self.job.machines or self.job.code is not None, (machine, order)
                box.down.append(order)
                self.trace.append(f"    {machine} <- {order}")
            case Fence(machine):
                self.kill(machine)
            case Publish(checkpoint) if self.random.random() < 0.1:
                step, epoch = checkpoint.step, checkpoint.epoch
                self.host.append(CheckpointFailed(at_us=0, step=step, epoch=epoch, why="full"))
            case Publish(checkpoint):
                self.published[checkpoint.step] = checkpoint
                self.host.append(CheckpointPublished(at_us=0, checkpoint=checkpoint))
            case FindCheckpoint(epoch, unusable):
                newest = max(self.published.keys() - unusable, default=0)
                found = self.published.get(newest)
                self.host.append(
                    CheckpointFound(at_us=0, epoch=epoch, checkpoint=found, damaged=[])
                )
            case Answer():
                self.answers.append(effect)
            case End():
                self.ended = effect

    # --- chance ---------------------------------------------------------------------------------

    def run(self, *, moments: int = 6000) -> None:
        """Until the job ends or nothing can happen any more."""
        for _ in range(moments):
            if self.ended is not None:
                return
            choices = self.possible()
            if not choices:
                return
            self.random.choice(choices)()

    def possible(self) -> list:
        acts = []
        if self.host:
            acts.append(lambda: self.feed(self.host.popleft()))
        for box in self.boxes.values():
            if box.up:
                acts.append(lambda box=box: self.deliver_up(box))
            if box.down and box.alive:
                acts.append(lambda box=box: self.deliver_down(box))
            if box.alive:
                for worker in box.workers:
                    act = self.act_of(worker)
                    if act is not None:
                        acts.append(act)
        return acts

    def kill(self, machine: str) -> None:
        box = self.boxes[machine]
        if not box.alive:
            return
        box.alive = False
        box.workers, box.vault, box.snapshots = [], {}, {}
        box.down.clear()
        box.up.append(MachineLost(at_us=0, machine=machine, why="killed", heard_us=self.now))
        for worker in self.peers_of_all():
            if worker.live and not worker.pending and self.random.random() < 0.5:
                self.say(
                    worker, m.Interrupted(rank=worker.rank, epoch=worker.epoch, reason="reset")
                )

    def crash(self, machine: str) -> None:
        box = self.boxes[machine]
        if box.alive and box.workers:
            worker = self.random.choice(box.workers)
            box.workers.remove(worker)
            exited = m.WorkerExited(local_rank=worker.local, pid=worker.pid, code=-9)
            box.up.append(AgentSaid(at_us=0, machine=machine, fact=exited))

    def move(self, machine: str) -> None:
        self.feed(MoveRequested(at_us=0, request=f"r{self.now}", machine=machine))

    def join(self, box: Box) -> None:
        joined = MachineJoined(
            at_us=0, machine=box.name, standby=box.standby, vault=box.name, host="h"
        )
        self.feed(joined)

    def add(self, machine: str) -> None:
        """A machine arrives late; `machine` is not meant."""
        name = f"m{len(self.boxes) + 1}"
        self.boxes[name] = Box(name, standby=True)
        self.join(self.boxes[name])

    def wait(self, machine: str) -> None:
        """So long that whatever depends on time is due."""
        self.now += LONG_US
        self.feed(Tick(at_us=0))

    def program(self, rank: int) -> str:
        return f"p{rank // self.job.spec.nproc % self.stages}"

    def drill(self, machine: str) -> None:
        self.feed(KillRequested(at_us=0, request=f"r{self.now}", machine=machine))

    # --- agents ---------------------------------------------------------------------------------

    def deliver_up(self, box: Box) -> None:
        self.feed(box.up.popleft())

    def deliver_down(self, box: Box) -> None:
        order = box.down.popleft()
        match order:
            case m.StartWorkers():
                self.pid += self.job.spec.nproc
                box.workers = [
                    Worker(box.name, i, pid=self.pid + i) for i in range(self.job.spec.nproc)
                ]
                for worker in box.workers:
                    up = m.WorkerUp(
                        pid=worker.pid, address=f"{box.name}/{worker.pid}", torch="", version=""
                    )
                    self.say(worker, up)
            case m.Die():
                self.kill(box.name)
            case m.Shutdown():
                pass
            case _:
                if isinstance(order, m.CutComplete):
                    for rank, steps in box.snapshots.items():
                        box.snapshots[rank] = [step for step in steps if step >= order.step]
                if isinstance(order, m.Interrupt):
                    held = m.VaultHeld(
                        epoch=order.epoch, records={r: list(s) for r, s in box.vault.items()}
                    )
                    box.up.append(AgentSaid(at_us=0, machine=box.name, fact=held))
                for worker in list(box.workers):
                    self.obey(worker, order)

    def say(self, worker: Worker, fact: m.WorkerFact) -> None:
        said = WorkerSaid(at_us=0, machine=worker.machine, local_rank=worker.local, fact=fact)
        self.boxes[worker.machine].up.append(said)

    # --- workers --------------------------------------------------------------------------------

    def obey(self, worker: Worker, order: m.Order) -> None:
        match order:
            case m.RunRank(epoch=epoch, slot=slot, buddies=buddies):
                worker.live, worker.epoch, worker.ordered = True, epoch, epoch
                worker.rank = slot * self.job.spec.nproc + worker.local
                worker.first_of = epoch
                worker.runs += 1
                self.buddies = {**self.buddies, **buddies}
                if self.job.restarts:
                    self.applied[worker.rank] = []
                self.say(worker, m.Attached(rank=worker.rank))
            case m.KeepSnapshots(every=every):
                worker.every = every
            case m.CutComplete(step=step):
                worker.complete = step
                worker.snapshots = {at: of for at, of in worker.snapshots.items() if at >= step}
            case m.WriteCheckpoint():
                self.write(worker, order)
            case m.WarmUp(slot=slot) | m.Hold(slot=slot) | m.Bind(slot=slot):
                self.begin(worker, order, slot * self.job.spec.nproc + worker.local)
            case m.Prepare(epoch=epoch):
                self.say(worker, m.Prepared(rank=worker.rank, epoch=epoch))
            case m.Discard(epoch=epoch):
                worker.discarded = max(worker.discarded, epoch)
            case m.PauseAt(epoch=epoch):
                worker.pause_asked = max(worker.pause_asked, epoch)
            case m.Interrupt(epoch=epoch):
                self.interrupt(worker, epoch)
            case m.Verdict():
                worker.verdict = order
            case m.Switch():
                self.switch(worker, order)
            case m.Go(epoch=epoch):
                self.go(worker, epoch)
            case m.Leave(epoch=epoch):
                self.leave(worker, epoch)
            case m.Exit():
                exited = m.WorkerExited(local_rank=worker.local, pid=worker.pid, code=0)
                box = self.boxes[worker.machine]
                box.up.append(AgentSaid(at_us=0, machine=worker.machine, fact=exited))

    def begin(self, worker: Worker, order: m.Order, rank: int) -> None:
        """A run in the sandbox as `rank`; or nothing but to park, if that is what is held."""
        assert not worker.live, (worker, order)
        assert not worker.parked, (worker, order)
        worker.rank, held, worker.held = rank, worker.held, -1
        worker.work = order
        if isinstance(order, m.Bind):
            worker.bound_for = order.epoch
            if held == rank:
                worker.runs -= 1
                self.run_through(worker)

    def run_through(self, worker: Worker) -> None:
        """The run in the sandbox comes to its first step, or fails."""
        order, worker.work = worker.work, None
        rank, program = worker.rank, self.program(worker.rank)
        worker.runs += 1
        again = worker.machine in self.once and worker.runs > 1
        if again or (worker.machine, program) in self.unfit:
            self.say(worker, m.SandboxFailed(rank=rank, reason="it raised", again=again))
            return
        match order:
            case m.WarmUp():
                fact = m.Warm(rank=rank, shadow_steps=3, trace=program, warm_ms=1)
            case m.Hold():
                worker.held = rank
                fact = m.Held(rank=rank, trace=program, run_ms=1)
            case m.Bind(epoch=epoch):
                worker.parked = True
                fact = m.Parked(rank=rank, epoch=epoch, trace=program, bind_ms=1)
        self.say(worker, fact)

    def interrupt(self, worker: Worker, epoch: int) -> None:
        if epoch <= worker.ordered:
            return
        worker.ordered, worker.verdict = epoch, None
        if worker.live:
            self.say(
                worker,
                m.Position(rank=worker.rank, epoch=epoch, committed=worker.step, gate=worker.gate),
            )

    def switch(self, worker: Worker, order: m.Switch) -> None:
        leaving = worker.live and worker.rank in order.sources
        if worker.ordered > order.epoch or not (worker.live or worker.parked) or leaving:
            return
        joining = not worker.live
        worker.switched = order
        worker.snapshots = {at: of for at, of in worker.snapshots.items() if at == worker.complete}
        worker.every, worker.cut_at = order.snapshot_every, 0
        if order.back:
            if not self.go_back(worker, order):
                return
        elif joining:
            worker.step = worker.on_way = order.committed
            source = order.sources[worker.rank][0].rank
            if source != worker.rank:
                assert order.records[worker.rank], "a joiner without a record"
            certificate = m.Certificate(
                rank=worker.rank, source_rank=source, step=order.committed, epoch=order.epoch,
                source_digest="d", joiner_digest="d", trace="t", position="", bytes=1, state_ms=1,
            )  # fmt: skip
            self.say(worker, m.Loaded(rank=worker.rank, epoch=order.epoch, certificate=certificate))
        self.buddies = {**self.buddies, **order.buddies}
        self.keep(worker, order.committed + 1)
        for step, rank in worker.snapshots.items():
            if rank == worker.rank:
                self.put_snapshot(worker, step)
        self.say(worker, m.Switched(rank=worker.rank, epoch=order.epoch))

    def go_back(self, worker: Worker, order: m.Switch) -> bool:
        """Its own snapshot, or one from a vault: one of them must be there, unless its machine has
        died since the order; then False."""
        step, rank = order.committed, worker.rank
        assert worker.on_way in (-1, step), (worker, order)
        kept = [box for box in self.boxes.values() if box.name in order.records.get(rank, [])]
        named = {source.address for source in order.sources.get(rank, [])}
        held = [w for w in self.peers_of_all() if f"{w.machine}/{w.pid}" in named]
        in_vaults = any(step in box.snapshots.get(rank, []) for box in kept)
        if rank in order.files:
            checkpoint = self.published[step]
            assert [checkpoint.path(part) for part in checkpoint.states[rank]] == order.files[rank]
        elif not in_vaults and not any(w.snapshots.get(step) == rank for w in held):
            assert any(not box.alive for box in kept) or len(held) < len(named), (worker, order)
            return False
        worker.step = order.committed
        done = self.applied[worker.rank]
        self.applied[worker.rank] = [step for step in done if step <= order.committed]
        certificate = m.Certificate(
            rank=worker.rank, source_rank=worker.rank, step=order.committed, epoch=order.epoch,
            source_digest="d", joiner_digest="d", trace="t", position="", bytes=1, state_ms=1,
        )  # fmt: skip
        self.say(worker, m.Loaded(rank=worker.rank, epoch=order.epoch, certificate=certificate))
        return True

    def put_snapshot(self, worker: Worker, step: int) -> None:
        """With the buddy, if that lives; then the rank says so. For a checkpoint, with nobody."""
        if not worker.every and self.job.spec.checkpoint:
            alone = m.Snapped(
                rank=worker.rank, epoch=worker.epoch, step=step, vault="", bytes=1, cost_us=1,
                step_us=20,
            )  # fmt: skip
            self.say(worker, alone)
            return
        buddy = self.boxes[self.buddies[worker.rank]]
        if buddy.alive:
            held = buddy.snapshots.setdefault(worker.rank, [])
            buddy.snapshots[worker.rank] = [*(s for s in held if s != step), step]
            fact = m.Snapped(
                rank=worker.rank, epoch=worker.epoch, step=step, vault=buddy.name, bytes=1,
                cost_us=1, step_us=20,
            )  # fmt: skip
            self.say(worker, fact)

    def write(self, worker: Worker, order: m.WriteCheckpoint) -> None:
        """Its part of a checkpoint; now and then the disk has no room."""
        there = worker.snapshots.get(order.step) == worker.rank and self.random.random() < 0.95
        part = [m.Written(f"{worker.rank}", 1, "")] if there else []
        refused = "" if there else "No space left on device"
        self.say(
            worker,
            m.Wrote(
                rank=worker.rank, epoch=order.epoch, step=order.step, state=part, refused=refused
            ),
        )

    def go(self, worker: Worker, epoch: int) -> None:
        if worker.switched is None or worker.switched.epoch != epoch or worker.ordered > epoch:
            return
        worker.epoch, worker.live, worker.parked, worker.on_way = epoch, True, False, -1
        worker.ordered = max(worker.ordered, epoch)
        worker.first_of, worker.switched = epoch, None

    def leave(self, worker: Worker, epoch: int) -> None:
        in_sandbox = worker.parked or worker.held >= 0 or worker.work is not None
        if (in_sandbox and worker.bound_for <= epoch) or worker.live:
            runs = worker.runs + (worker.work is not None)
            fresh = Worker(
                worker.machine, worker.local, pid=worker.pid, ordered=worker.ordered, runs=runs,
                rank=worker.rank, snapshots=worker.snapshots, complete=worker.complete,
            )  # fmt: skip
            box = self.boxes[worker.machine]
            box.workers[box.workers.index(worker)] = fresh
            self.say(fresh, m.Left())

    def keep(self, worker: Worker, step: int) -> None:
        """The record for `step` is safe with the buddy; two newest are kept."""
        buddy = self.boxes[self.buddies[worker.rank]]
        if buddy.alive:
            held = [s for s in buddy.vault.get(worker.rank, []) if s != step]
            buddy.vault[worker.rank] = [*held, step][-2:]

    def act_of(self, worker: Worker):
        """What this rank may do now, if anything."""
        if worker.work is not None:
            return lambda: self.run_through(worker)
        if not worker.live or worker.finished:
            if worker.finished and worker.pending and worker.said_boundary < worker.ordered:
                return lambda: self.at_boundary(worker)
            return None
        if worker.gate:
            if worker.pending:
                settled = worker.verdict is not None and worker.verdict.epoch == worker.ordered
                return (lambda: self.take_verdict(worker)) if settled else None
            return (lambda: self.pass_gate(worker)) if self.gate_open(worker) else None
        if worker.pending or worker.paused:
            return self.boundary_act(worker)
        return lambda: self.work(worker)

    def boundary_act(self, worker: Worker):
        target = worker.ordered if worker.pending else worker.pause_at
        verdict = worker.verdict is not None and worker.verdict.epoch == worker.ordered
        if worker.said_boundary >= target or (worker.pending and not verdict):
            return None
        return lambda: self.at_boundary(worker)

    def at_boundary(self, worker: Worker) -> None:
        target = worker.ordered if worker.pending else worker.pause_at
        if worker.pending:
            if worker.verdict is None or worker.verdict.epoch != worker.ordered:
                return
            assert worker.verdict.committed == worker.step, (worker, worker.verdict)
        worker.said_boundary, worker.computing = target, False
        self.say(worker, m.AtBoundary(rank=worker.rank, epoch=target, committed=worker.step))

    def work(self, worker: Worker) -> None:
        """Compute, or enter the gate with the record safe, or end the script."""
        if worker.step >= self.steps:
            worker.finished = True
            finished = m.Finished(
                rank=worker.rank, step=worker.step, code=0, digest="d", attached=True
            )
            self.say(worker, finished)
        elif not worker.computing:
            worker.computing = True
            if worker.cut_at == worker.step > 0:
                worker.cut_at = 0
                worker.snapshots[worker.step] = worker.rank
                self.put_snapshot(worker, worker.step)
            self.keep(worker, worker.step + 1)
        elif self.boxes[self.buddies[worker.rank]].alive:
            self.keep(worker, worker.step + 2)
            worker.gate = worker.step + 1

    def peers_of_all(self) -> list[Worker]:
        return [w for box in self.boxes.values() if box.alive for w in box.workers]

    def gate_open(self, worker: Worker) -> bool:
        """The all-reduce is through once every rank has entered it in this epoch."""
        key = (worker.epoch, worker.gate)
        if key in self.passed_by:
            return True
        inside = {
            w.rank for w in self.peers_of_all()
            if w.live and w.epoch == worker.epoch and w.gate == worker.gate
        }  # fmt: skip
        if len(inside) < self.job.spec.world_size:
            return False
        flags = [w.pause_asked for w in self.peers_of_all() if w.live and w.gate == worker.gate
                 and w.pause_asked > max(w.epoch, w.discarded)]  # fmt: skip
        self.passed_by[key] = set()
        ranks = [w for w in self.peers_of_all() if w.live and w.gate == worker.gate]
        every = self.job.spec.checkpoint_every
        due = bool(self.job.spec.checkpoint) and worker.gate % every == 0
        if (due or any(w.wants_cut for w in ranks)) and not any(w.busy for w in ranks):
            self.cuts.add(key)
        self.flags = {**getattr(self, "flags", {}), key: max(flags, default=0)}
        return True

    def pass_gate(self, worker: Worker) -> None:
        key = (worker.epoch, worker.gate)
        self.passed_by[key].add(worker.rank)
        worker.pause_at = max(worker.pause_at, self.flags[key])
        if key in self.cuts:
            worker.cut_at = worker.gate
        self.commit(worker)

    def commit(self, worker: Worker) -> None:
        worker.step, worker.gate, worker.computing = worker.gate, 0, False
        self.applied[worker.rank].append(worker.step)
        row = m.Row(step=worker.step, at_us=0, values={})
        if worker.first_of == worker.epoch and not worker.pending:
            worker.first_of = 0
            self.say(
                worker,
                m.Committed(
                    rank=worker.rank,
                    epoch=worker.epoch,
                    rows=[row],
                    first=True,
                    gap_us=5,
                    median_us=1,
                ),
            )
        if worker.step == RECORDED_AT:
            self.say(
                worker,
                m.Recorded(
                    rank=worker.rank,
                    step=worker.step,
                    trace=self.program(worker.rank),
                    digest=f"d{worker.rank}" if self.alone else "d",
                    bytes=1,
                ),
            )

    def take_verdict(self, worker: Worker) -> None:
        assert worker.verdict is not None
        if worker.verdict.committed >= worker.gate:
            self.commit(worker)
        else:
            worker.gate, worker.computing = 0, False


def replace_time(event: object, now: int) -> object:
    """The event, taken in at `now`."""
    import msgspec

    return msgspec.structs.replace(event, at_us=now)  # type: ignore[type-var]
