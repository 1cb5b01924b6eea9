"""One rank's process, reduced to what the controller and other ranks can see of it.

It behaves as the worker room does. This is the process itself: its time, its orders, how it fails;
`runs` are those in the sandbox, `steps` and `members` what it does as a rank, `switching` how it
becomes one. What a process does later is forgotten if it ends, or if it has unwound meanwhile
(`life`).
"""

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from trainmover.ids import Epoch, Rank, Step
from trainmover.protocol import messages as m
from trainmover.simulator import members, runs, snapshots, steps
from trainmover.simulator.bits import NOTHING
from trainmover.simulator.ledger import Ledger
from trainmover.simulator.snapshots import Snapshots
from trainmover.simulator.switching import switch

if TYPE_CHECKING:
    from trainmover.simulator.machines import Box


class Worker:
    """holds: what its memory really has; `step`: after which step it believes that is.

    stopped  by a signal; stuck: in the script, as a rank; circles: in the sandbox, for ever
    quiet    its script is over: it stands nowhere
    spins    its script goes round for ever once its groups drain
    between  it is in a collective between two steps when they do; misled: it was
    """

    def __init__(self, box: "Box", local: int, pid: int, store: str) -> None:
        self.box, self.local, self.pid, self.store = box, local, pid, store
        self.world = box.world
        self.life = 0
        self.gone = False
        self.stopped = False
        self.deferred: list[tuple[int, Callable[..., None], tuple[Any, ...]]] = []
        self.runs = 0
        self.snapshots = Snapshots()
        self.ordered = Epoch(0)
        self.rank = Rank(-1)
        self.recorded = False
        self.forget()

    def forget(self) -> None:
        """The run of the script is over; the process stays."""
        self.life += 1
        self.live = False
        self.quiet = False
        self.stuck = self.circles = self.spins = False
        self.between = self.misled = False
        self.epoch = Epoch(0)
        self.step, self.holds = Step(0), NOTHING
        self.gate = Step(0)
        self.computing = self.drains = self.finished = False
        self.pause_asked = self.pause_at = self.discarded = Epoch(0)
        self.verdict: m.Verdict | None = None
        self.said_boundary = Epoch(0)
        self.bound_for = Epoch(0)
        self.parked = False
        self.on_way = -1
        self.given_by = Rank(-1)
        self.switched: m.Switch | None = None
        self.exchanged = Epoch(0)
        self.work: m.Order | None = None
        self.work_number = 0
        self.held = Rank(-1)
        self.cut_at = Step(0)
        self.ledger = Ledger(lambda: self.box.unheard)
        self.told_layout = False
        self.steps_changed = ""
        self.calls = 0
        self.lived_steps = 0
        self.moved_us = self.world.now
        self.stands = ""
        self.ending: m.Ending | None = None

    def __repr__(self) -> str:
        return f"{self.box.name}/{self.local} (rank {self.rank}, step {self.step})"

    # --- time -----------------------------------------------------------------------------------

    def later(self, delay_us: int, act: Callable[..., None], *args: Any) -> None:
        """Do it then, if this run of the script still goes on."""
        self.box.later(delay_us, self._due, self.life, act, args)

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

    # --- what it is -----------------------------------------------------------------------------

    @property
    def pending(self) -> bool:
        return self.ordered > self.epoch

    @property
    def paused(self) -> bool:
        return self.pause_at > max(self.epoch, self.discarded)

    # --- orders ---------------------------------------------------------------------------------

    def hear(self, order: m.Order) -> None:
        """From the agent. Nothing is lost on that way, and nothing overtakes."""
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

    def exit(self, order: m.Exit) -> None:
        self.box.exited(self, 0)

    # --- faults ---------------------------------------------------------------------------------

    def peer_lost(self, epoch: Epoch) -> None:
        """A connection to a process of the same epoch has ended: this rank drains."""
        if not self.live or self.epoch != epoch or self.pending or self.drains:
            return
        self.drains = True
        if not self.finished:
            self.say(m.Interrupted(rank=self.rank, epoch=epoch, reason="connection reset"))

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
        self.box.worker_said(self, fact)


_OBEY: dict[type[m.Order], Callable[[Worker, Any], None]] = {
    m.RunRank: steps.run_rank,
    m.KeepSnapshots: snapshots.keep_snapshots,
    m.CutComplete: snapshots.cut_complete,
    m.WriteCheckpoint: snapshots.write,
    m.StoreAt: Worker.store_at,
    m.Prepare: members.prepare,
    m.Discard: members.discard,
    m.PauseAt: members.pause,
    m.Interrupt: members.interrupt,
    m.Verdict: members.judged,
    m.Switch: switch,
    m.Go: members.go,
    m.Leave: members.leave,
    m.Ending: members.hear_ending,
    m.Exit: Worker.exit,
    m.WarmUp: runs.begin,
    m.Hold: runs.begin,
    m.Bind: runs.begin,
}
