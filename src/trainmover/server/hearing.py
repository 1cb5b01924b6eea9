"""What machines say: what `decide` is to know becomes an event, the rest takes another way."""

from collections.abc import Mapping
from typing import Protocol

from trainmover.controller.events import AgentSaid, WorkerSaid
from trainmover.errors import StateMismatch
from trainmover.ids import MachineId
from trainmover.protocol.messages import (
    UNJOURNALED,
    UNNUMBERED,
    AgentFact,
    Committed,
    FromWorker,
    Heartbeat,
    JobSpec,
    Output,
    Reached,
    Stack,
    VaultHeld,
    WorkerExited,
    WorkerFact,
    WorkerState,
    decode_worker_fact,
)
from trainmover.server.accounts import Account
from trainmover.server.nans import not_a_number, stopped_text
from trainmover.server.news import News
from trainmover.server.notices import Printed, Stepped
from trainmover.server.progress import Progress
from trainmover.server.rows import Rows


class Host(Protocol):
    """What hearing leads to; the server."""

    def now(self) -> int: ...
    def take(self, event: WorkerSaid | AgentSaid) -> None: ...
    def stop(self, code: int, why: str) -> None: ...
    def note(self, text: str, *, loud: bool = False) -> None: ...


class Hearing:
    """rows: committed ones, on their way to the journal."""

    def __init__(
        self, spec: JobSpec, rows: Rows, progress: Progress, news: News, host: Host
    ) -> None:
        self.rows = rows
        self._spec = spec
        self._progress = progress
        self._news = news
        self._host = host
        self._nan_told = False

    def said(self, machine: MachineId, account: Account, fact: AgentFact) -> None:
        """Of a machine of the job. Raises ProtocolError if it cannot be read."""
        if not isinstance(fact, UNNUMBERED):
            account.facts += 1
        number = account.facts
        if getattr(fact, "local_rank", 0) not in range(self._spec.nproc):
            return  # No such worker: in the journal it would fail every controller that comes.
        match fact:
            case FromWorker(local_rank=local_rank, payload=payload):
                self._worker_said(machine, local_rank, decode_worker_fact(payload), number)
            case WorkerExited() | VaultHeld() | WorkerState() | Stack() | Reached():
                at_us = self._host.now()
                self._host.take(AgentSaid(at_us=at_us, machine=machine, fact=fact, number=number))
            case Heartbeat():
                account.heard(fact.heard)
                self._progress.vaults[machine] = fact
            case Output():
                self._news.tell(Printed(fact.rank, fact.stream, fact.text))
            case _:
                pass  # a heartbeat has done its work by being bytes

    def flush(self, safe: Mapping[str, int] | None = None) -> bool:
        """Write the rows that have come; one that contradicts the journal ends the job.

        safe  as in `Rows.flush`
        """
        try:
            self.rows.flush(safe)
        except StateMismatch as error:
            self._host.stop(1, str(error))
            return False
        return True

    def _worker_said(
        self, machine: MachineId, local_rank: int, fact: WorkerFact, number: int
    ) -> None:
        if isinstance(fact, UNJOURNALED):
            self._progress.note(fact)
            return
        if isinstance(fact, Committed):
            self._take_rows(fact)
            if fact.decided_on is None:
                return
            fact = fact.decided_on
        self._host.take(
            WorkerSaid(
                at_us=self._host.now(),
                machine=machine,
                local_rank=local_rank,
                fact=fact,  # type: ignore[arg-type]
                number=number,
            )
        )

    def _take_rows(self, fact: Committed) -> None:
        self._progress.take(fact)
        self.rows.take(fact)
        self._news.tell(Stepped(fact.rank, fact.epoch, fact.rows))
        self._look_at_numbers(fact)

    def _look_at_numbers(self, fact: Committed) -> None:
        if self._spec.on_nan == "ignore" or self._nan_told:
            return
        found = not_a_number(fact)
        self._nan_told = bool(found)
        if found and self._spec.on_nan == "stop":
            self._host.stop(1, stopped_text(found))
        elif found:
            self._host.note(found, loud=True)
