# SPDX-License-Identifier: Apache-2.0
"""One rank's process, reduced to what the controller and other ranks can see of it.

What it decides as a rank is decided by `rank`, as in the worker room. This is the process itself:
its time, its orders, its script's thread, how it fails; `runs` are in the sandbox, `steps` and
`members` what it does as a rank, `switching` how it becomes one. What a process does later is
forgotten if it ends, or if it has unwound meanwhile (`life`).
"""

from collections import deque
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from trainmover.errors import StateMismatch, Unwind
from trainmover.ids import Epoch, Rank, Step
from trainmover.protocol import messages as m
from trainmover.rank.cuts import Cuts, Put
from trainmover.rank.standing import NONE, NOT_YET, NotYet, Standing
from trainmover.rank.told import Rows
from trainmover.simulator.happenings import Violation
from trainmover.simulator.ranks import members, runs, snapshots, steps
from trainmover.simulator.ranks.bits import NOTHING
from trainmover.simulator.ranks.snapshots import Snapshot

if TYPE_CHECKING:
    from trainmover.simulator.places.machines import Box


WAKES_US = (100, 10_000)
"""Until the script's thread sees what it was told."""
EXITS_US = (1_000, 60_000)
"""For what scripts do as they exit."""
Answer = TypeVar("Answer")


class Worker:
    """holds: what its memory really has; `step`: after which step it believes that is.

    waits    of its script's thread: for what, and what it does then; None: it does something
    drains   its collectives end with what their buffers hold
    order    the switchover that it takes part in
    cut_off  the socket to its agent has failed
    stopped  by a signal; stuck: in the script, as a rank; circles: in the sandbox, for ever
    blocked  in the kernel: no signal ends it, as long as its machine is not shut out
    quiet    its script is over: it stands nowhere
    spins    its script goes round for ever once its groups drain
    between  it is in a collective between two steps when they do; misled: it was
    """

    def __init__(self, box: "Box", local: int, pid: int, store: str) -> None:
        self.box, self.local, self.pid, self.store = box, local, pid, store
        self.world = box.world
        self.life = 0
        self.gone = self.cut_off = False
        self.stopped = False
        self.deferred: list[tuple[int, Callable[..., None], tuple[Any, ...]]] = []
        self.deferred_beside: list[tuple[Callable[..., None], tuple[Any, ...]]] = []
        self.runs = 0
        spec = box.world.spec
        self.snapshots: Cuts[Snapshot] = Cuts(spec.checkpoint_every if spec.checkpoint else 0)
        self.puts: deque[Put[Snapshot]] = deque()
        self.standing = Standing()
        self.rank = Rank(-1)
        self.recorded = self.unheard = False
        self.forget()

    def forget(self) -> None:
        """The run of the script is over; the process stays."""
        self.life += 1
        self.standing.end_run()
        self.waits: tuple[Callable[[], object], Callable[[Any], None]] | None = None
        self.quiet = False
        self.stuck = self.blocked = self.circles = self.spins = False
        self.between = self.misled = False
        self.holds = NOTHING
        self.computing = self.drains = False
        self.bound_for = NONE
        self.parked = False
        self.on_way = -1
        self.given_by = Rank(-1)
        self.order: m.Switch | None = None
        self.work: m.Order | None = None
        self.work_number = 0
        self.held = Rank(-1)
        self.ledger: Rows[m.Row] = Rows(self.world.spec.world_size)
        self.told_layout = False
        self.steps_changed = self.unprepared = ""
        self.calls = 0
        self.lived_steps = 0
        self.took: m.Took | None = None
        self.moved_us = self.world.now
        self.stands = ""
        self.ending: m.Ending | None = None

    def __repr__(self) -> str:
        return f"{self.box.name}/{self.local} (rank {self.rank}, step {self.step})"

    # --- time -----------------------------------------------------------------------------------

    def later(self, delay_us: int, act: Callable[..., None], *args: Any) -> None:
        """Do it then, if this run of the script still goes on."""
        self.box.later(delay_us, self._due, self.life, act, args)

    def beside(self, delay_us: int, act: Callable[..., None], *args: Any) -> None:
        """Do it then in another thread, whatever becomes of this run of the script."""
        self.box.later(delay_us, self._due_beside, act, args)

    def _due_beside(self, act: Callable[..., None], args: tuple[Any, ...]) -> None:
        if self.gone:
            return
        if self.stopped:
            self.deferred_beside.append((act, args))
        else:
            act(*args)

    def _due(self, life: int, act: Callable[..., None], args: tuple[Any, ...]) -> None:
        if self.gone or life != self.life:
            return
        if self.stopped:
            self.deferred.append((life, act, args))
        else:
            act(*args)

    def go_on(self) -> None:
        """The process is not stopped any more."""
        self.stopped = False
        deferred, self.deferred = self.deferred, []
        for life, act, args in deferred:
            self.box.later(0, self._due, life, act, args)
        beside, self.deferred_beside = self.deferred_beside, []
        for act, args in beside:
            self.box.later(0, self._due_beside, act, args)

    # --- the script's thread --------------------------------------------------------------------

    def wait(self, told: Callable[[], Answer | NotYet], then: Callable[[Answer], None]) -> None:
        """Until it is told: then it goes on with the answer. If it is to unwind it leaves."""
        self.waits = (told, then)
        self.look()

    def look(self) -> None:
        """It looks whether it was told, if it waits."""
        if self.waits is None or self.stuck or (self.spins and self.tainted):
            return
        told, then = self.waits
        try:
            answer = told()
        except Unwind:
            members.unwind(self)
            return
        except StateMismatch as error:
            raise Violation(f"{self}: {error}") from error
        if answer is not NOT_YET:
            self.waits = None
            then(answer)

    def wake(self) -> None:
        """Something was told."""
        if self.waits is not None:
            self.later(self.world.between(*WAKES_US), self.look)

    # --- what it is -----------------------------------------------------------------------------

    @property
    def live(self) -> bool:
        return self.standing.live

    @property
    def epoch(self) -> Epoch:
        return self.standing.epoch

    @property
    def step(self) -> Step:
        return self.standing.committed

    @property
    def gate(self) -> Step:
        return self.standing.gate

    @property
    def finished(self) -> bool:
        return self.standing.finished

    @property
    def pending(self) -> bool:
        return self.standing.pending

    @property
    def paused(self) -> bool:
        return self.standing.paused

    @property
    def tainted(self) -> bool:
        """Whether what it computes may be garbage."""
        return self.pending or self.drains

    # --- orders ---------------------------------------------------------------------------------

    def hear(self, order: m.Order) -> None:
        """From the agent. Nothing is lost on that way, and nothing overtakes."""
        if self.cut_off:
            return
        if self.stopped:
            self.deferred.append((self.life, self.obey_if_here, (order,)))
        else:
            self.obey(order)

    def obey_if_here(self, order: m.Order) -> None:
        if not self.gone:
            self.obey(order)

    def obey(self, order: m.Order) -> None:
        """Do what is ordered."""
        act = _OBEY.get(type(order))
        if act is not None:
            act(self, order)

    def store_at(self, order: m.StoreAt) -> None:
        self.store = order.address

    def keep_told(self, order: m.KeepTold) -> None:
        self.unheard = order.keep

    def exit(self, order: m.Exit) -> None:
        self.beside(self.world.between(*EXITS_US), self.box.exited, self, 0)

    # --- faults ---------------------------------------------------------------------------------

    def peer_lost(self, epoch: Epoch) -> None:
        """A connection to a process of the same epoch has ended: this rank drains."""
        if not self.live or self.epoch != epoch or self.tainted:
            return
        self.say(m.Interrupted(rank=self.rank, epoch=epoch, reason="connection reset"))
        members.drain(self)

    def raised(self) -> None:
        """The script is over, by what a collective has left; the process stays as it is."""
        self.stuck = self.quiet = True
        fact = m.Raised(
            rank=self.rank,
            step=Step(self.step + 1),
            error="EOFError: ran out of input",
            traceback="",
            misled=True,
        )
        self.say(fact)

    def moved(self) -> None:
        """Something goes on here."""
        self.moved_us = self.world.now
        if self.stands:
            self.stands = ""
            self.say(m.Moves(rank=self.rank, epoch=self.epoch))

    def say(self, fact: m.WorkerFact) -> None:
        """To the agent."""
        if not self.cut_off:
            self.box.worker_said(self, fact)


_OBEY: dict[type[m.Order], Callable[[Worker, Any], None]] = {
    m.RunRank: steps.run_rank,
    m.KeepSnapshots: snapshots.keep_snapshots,
    m.GiveSnapshots: snapshots.give,
    m.CutComplete: snapshots.cut_complete,
    m.WriteCheckpoint: snapshots.write,
    m.StoreAt: Worker.store_at,
    m.KeepTold: Worker.keep_told,
    m.Prepare: members.prepare,
    m.Interrupt: members.interrupt,
    m.Discard: members.note,
    m.PauseAt: members.note,
    m.Verdict: members.note,
    m.Switch: members.note,
    m.Leave: members.note,
    m.Go: members.go,
    m.Ending: steps.hear_ending,
    m.Exit: Worker.exit,
    m.WarmUp: runs.begin,
    m.Hold: runs.begin,
    m.Bind: runs.begin,
}
