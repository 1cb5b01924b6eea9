# SPDX-License-Identifier: Apache-2.0
"""What machines say: what `decide` is to know becomes an event, the rest goes another way. Pure."""

import math
from collections.abc import Mapping
from itertools import chain
from typing import Protocol

from trainmover.controller.events import AgentSaid, StepsUnequal, WorkerSaid, WorkersSaid
from trainmover.errors import ProtocolError, StateMismatch
from trainmover.ids import MachineId
from trainmover.protocol.messages import (
    UNJOURNALED,
    UNNUMBERED,
    AgentFact,
    Columns,
    Committed,
    CommittedHere,
    Examined,
    Found,
    FromWorker,
    Heartbeat,
    JobSpec,
    Joint,
    Leaving,
    Output,
    Reached,
    SaidHere,
    Sign,
    Stack,
    Unwritten,
    VaultHeld,
    WorkerExited,
    WorkerFact,
    WorkerState,
    columns_of,
    decode_worker_fact,
)
from trainmover.server.history.rows import Rows
from trainmover.server.machines.absence import Absence
from trainmover.server.machines.accounts import Account
from trainmover.server.surroundings import Surroundings

STEP_MAX, AT_US_MAX, LEFT_MS_MAX = 2**42, 2**62, 2**42
"""What a journal can hold; nobody comes so far."""
FIGURES_MAX, NAME_MAX, WORDS_MAX = 64, 64, 1000
"""Of an examination."""
COUNT_MAX = 2**31
"""Lines."""


class Taker(Protocol):
    """What hearing leads to; the controller."""

    spec: JobSpec

    absence: Absence

    def take(self, event: WorkerSaid | WorkersSaid | AgentSaid | StepsUnequal) -> None: ...
    def took(self, rows: Columns, at_us: int) -> None: ...
    def beats(self, machine: MachineId, fact: Heartbeat, at_us: int) -> None: ...
    def found(self, witness: MachineId, fact: Found) -> None: ...
    def stop(self, code: int, why: str, at_us: int) -> None: ...


class Hearing:
    """rows: committed ones, on their way to the journal."""

    def __init__(self, rows: Rows, around: Surroundings, taker: Taker) -> None:
        self.rows = rows
        self._around = around
        self._taker = taker

    def said(self, machine: MachineId, account: Account, fact: AgentFact, at_us: int) -> None:
        """Of a machine of the job. Raises ProtocolError if it cannot be read."""
        if not isinstance(fact, UNNUMBERED):
            account.facts += 1
        number = account.facts
        if getattr(fact, "local_rank", 0) not in range(self._taker.spec.nproc):
            return  # No such worker: in the journal it would fail every controller that comes.
        match fact:
            case FromWorker(local_rank=local_rank, payload=payload):
                told = decode_worker_fact(payload)
                self._worker_said(machine, local_rank, told, number, at_us)
            case CommittedHere(told=all_told):
                for rows in all_told:
                    self._rows_said(machine, rows, at_us)
            case SaidHere(told=all_told):
                self._workers_said(machine, all_told, number, at_us)
            case Leaving() if not 0 <= fact.left_ms <= LEFT_MS_MAX:
                raise _not_an_agents(f"{machine} will be gone in {fact.left_ms} ms")
            case Examined() if not _can_be(fact):
                raise _not_an_agents(f"{machine} gives figures of its health that cannot be")
            case Sign() if not _can_be_told(fact):
                raise _not_an_agents(f"{machine} tells of a sign that cannot be")
            case (
                WorkerExited() | VaultHeld() | WorkerState() | Stack() | Reached() | Leaving()
                | Examined() | Sign()
            ):  # fmt: skip
                said = AgentSaid(at_us=at_us, machine=machine, fact=fact, number=number)
                self._taker.take(said)
            case Heartbeat():
                account.heard(fact.heard)
                self._taker.beats(machine, fact, at_us)
                self._around.told(machine, fact)
            case Output() | Unwritten():
                self._around.told(machine, fact)
            case Found():
                self._taker.found(machine, fact)
            case _:
                pass

    def flush(self, at_us: int, safe: Mapping[str, int] | None = None) -> bool:
        """Write the rows that have come; one that contradicts the journal is told, or ends the job.

        safe  as in `Rows.flush`
        """
        try:
            unequal = self.rows.flush(safe)
        except StateMismatch as error:
            self._taker.stop(1, str(error), at_us)
            return False
        if unequal:
            rank, step, text = unequal[0].rank, unequal[0].step, unequal[0].text
            count = len(unequal)
            self._taker.take(
                StepsUnequal(at_us=at_us, rank=rank, step=step, text=text, count=count)
            )
        return True

    def _look_at_rank(self, machine: MachineId, fact: WorkerFact) -> None:
        """In the journal a wrong one would fail this controller, and every one that comes."""
        rank, there_are = getattr(fact, "rank", 0), self._taker.spec.world_size
        if not 0 <= rank < there_are:
            raise _no_rank(machine, rank, type(fact).__name__, there_are)

    def _rows_said(self, machine: MachineId, rows: Columns, at_us: int) -> None:
        """Said by an agent: nothing else follows from them."""
        there_are = self._taker.spec.world_size
        if not rows.fit:
            raise _not_an_agents(f"{machine} speaks of steps whose columns do not fit together")
        for rank in (min(rows.ranks), max(rows.ranks)):
            if not 0 <= rank < there_are:
                raise _no_rank(machine, rank, "committed steps", there_are)
        if rows.first:
            raise _not_an_agents(f"{machine} speaks of the first step of epoch {rows.epoch}")
        self._take_rows(machine, rows, at_us)

    def _take_steps(self, machine: MachineId, fact: Committed, at_us: int) -> None:
        for rows in columns_of([fact]):
            self._take_rows(machine, rows, at_us)

    def _take_rows(self, machine: MachineId, rows: Columns, at_us: int) -> None:
        self._look_at_rows(machine, rows)
        self.rows.take(rows)
        self._around.told(machine, rows)
        self._taker.absence.steps.committed(rows.epoch, rows.steps[-1])
        if rows.took:
            self._taker.took(rows, at_us)

    def _look_at_rows(self, machine: MachineId, rows: Columns) -> None:
        """As above: what no journal can hold."""
        for took in chain.from_iterable(rows.took):
            if took.own_us < 0 or not 0 <= took.step <= STEP_MAX:
                raise _not_a_workers(f"{machine} speaks of a step that took less than no time")
        for step in (min(rows.steps), max(rows.steps)):
            if not 0 <= step <= STEP_MAX:
                raise _not_a_workers(f"{machine} speaks of step {step}: that cannot be")
        for at_us in (min(rows.at_us), max(rows.at_us)):
            if not 0 <= at_us <= AT_US_MAX:
                raise _not_a_workers(f"{machine} speaks of a commit at {at_us} us: that cannot be")

    def _workers_said(self, machine: MachineId, told: list[Joint], number: int, at_us: int) -> None:
        facts: list[Joint] = []
        for fact in told:
            self._look_at_rank(machine, fact)
            if not isinstance(fact, Committed):
                facts.append(fact)
                continue
            first = fact.decided_on
            if first is None:
                raise _not_an_agents(f"{machine} speaks of later steps of epoch {fact.epoch}")
            self._take_steps(machine, fact, at_us)
            facts.append(first)
        said = WorkersSaid(at_us=at_us, machine=machine, facts=facts, number=number)
        self._taker.take(said)

    def _worker_said(
        self, machine: MachineId, local_rank: int, fact: WorkerFact, number: int, at_us: int
    ) -> None:
        self._look_at_rank(machine, fact)
        if isinstance(fact, UNJOURNALED):
            self._around.told(machine, fact)
            return
        if isinstance(fact, Committed):
            self._take_steps(machine, fact, at_us)
            if fact.decided_on is None:
                return
            fact = fact.decided_on
        said = WorkerSaid(
            at_us=at_us,
            machine=machine,
            local_rank=local_rank,
            fact=fact,  # type: ignore[arg-type]
            number=number,
        )
        self._taker.take(said)


def _no_rank(machine: MachineId, rank: int, where: str, there_are: int) -> ProtocolError:
    return _not_a_workers(f"{machine} speaks of rank {rank} in {where}: there are {there_are}")


def _not_a_workers(what: str) -> ProtocolError:
    return ProtocolError(
        f"{what}.",
        means="What it said was not taken.",
        do="Look at that machine: what runs there is no worker of this job.",
    )


def _not_an_agents(what: str) -> ProtocolError:
    return ProtocolError(
        f"{what} as no agent does.",
        means="What it said was not taken.",
        do="Look at that machine: what runs there is no agent of this job.",
    )


def _can_be_told(fact: Sign) -> bool:
    known = len(fact.symptom) <= NAME_MAX and len(fact.line) <= WORDS_MAX
    return known and 1 <= fact.count <= COUNT_MAX


def _can_be(fact: Examined) -> bool:
    """They are kept, compared and shown."""
    figures = fact.figures
    return (
        len(fact.failed) <= WORDS_MAX
        and len(figures) <= FIGURES_MAX
        and 0 <= fact.clock_us <= AT_US_MAX
        and all(len(name) <= NAME_MAX and math.isfinite(value) for name, value in figures.items())
    )
