"""The job as its journal tells it, followed entry by entry."""

import time
from collections.abc import Callable
from types import TracebackType
from typing import Any

from chaos_run import PATIENCE_S, Running, Stuck

from trainmover.controller.change.incidents import open_incident
from trainmover.controller.change.seats import spare
from trainmover.controller.decide import decide
from trainmover.controller.effects import Send
from trainmover.controller.state import Job, MachineState
from trainmover.ids import MachineId
from trainmover.journal import Journal
from trainmover.protocol.messages import EndWorker

LOOK_S = 0.0005


class Watch:
    """A replay that keeps up with the controller, to see each stage within milliseconds.

    lost   machines that left the job, in order
    ended  machines with a worker that was ordered to be ended, in order
    """

    def __init__(self, running: Running) -> None:
        self._running = running
        self._journal = Journal.open(running.journal)
        self._seen = 0
        self.job = Job(spec=self._journal.spec)
        self.lost: list[MachineId] = []
        self.ended: list[MachineId] = []

    def __enter__(self) -> "Watch":
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self._journal.close()

    def read(self, true: Callable[[Job], object] = lambda job: False) -> bool:
        """Apply the new entries; return whether `true` held after one of them, or holds now."""
        held = False
        for seq, event in self._journal.events(self._seen):
            self._seen, before = seq, self.job
            self.job, effects = decide(before, event)
            if before.machines is not self.job.machines:
                self.lost += sorted(before.machines.keys() - self.job.machines.keys())
            orders = [one for one in effects if isinstance(one, Send)]
            self.ended += [one.machine for one in orders if isinstance(one.order, EndWorker)]
            held = held or bool(true(self.job))
        return held or bool(true(self.job))

    def until(self, true: Callable[[Job], object], what: str, within_s: float = PATIENCE_S) -> None:
        """Follow the journal until `true` held. Raises Stuck; also if the run is over."""
        deadline_s = time.monotonic() + within_s
        while not self.read(true):
            if self._running.over:
                raise Stuck(f"the run ended before {what}")
            if time.monotonic() > deadline_s:
                raise Stuck(f"{what} did not happen within {within_s:.0f} s")
            time.sleep(LOOK_S)


def named(status: dict[str, Any] | None) -> set[str]:
    """What the job waits for, in the words of `trainmover status`."""
    return {one["what"] for one in (status or {}).get("waiting", ())}


def is_calm(job: Job, standbys: int) -> bool:
    """Return whether nothing is under way and so many standbys are warm."""
    if job.change is not None or open_incident(job) is not None or job.hanging.condemned:
        return False
    warm = [machine for machine in spare(job) if machine.state is MachineState.WARM]
    return len(warm) >= standbys
