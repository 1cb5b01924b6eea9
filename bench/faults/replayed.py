# SPDX-License-Identifier: Apache-2.0
"""What a successor does before it hears anybody: with a bookmark, and from the first event on."""

import tempfile
import time
from collections.abc import Iterator
from itertools import cycle, islice
from pathlib import Path

from trainmover.controller.events import EVENTS, MachineJoined, Tick, WorkerSaid
from trainmover.controller.state import Job
from trainmover.ids import Epoch, MachineId, Rank, Step
from trainmover.journal import Journal
from trainmover.protocol import messages as m
from trainmover.server.history.bookmarks import EVENTS_BETWEEN, Bookmarks
from trainmover.server.history.past import Past

EVENTS_MANY = 50_000
BEHIND = EVENTS_BETWEEN // 2
SPEC = m.JobSpec(run_id="bench", argv=["x"], machines=4)


def measure(trials: int, events: int = EVENTS_MANY) -> tuple[list[float], list[float]]:
    """Milliseconds of processor time, with a bookmark half its usual way back and without one."""
    with tempfile.TemporaryDirectory(prefix="bench-replay-") as folder:
        path = Path(folder) / "j.sqlite"
        _fill(path, events)
        marked = [_took_ms(path) for _ in range(trials)]
        with Journal.take_over(path) as journal:
            journal.drop_bookmarks(after=0)
        return marked, [_took_ms(path) for _ in range(trials)]


def _took_ms(path: Path) -> float:
    begun = time.process_time()
    with Journal.take_over(path) as journal:
        Past.of(journal)
    return (time.process_time() - begun) * 1000.0


def _fill(path: Path, count: int) -> None:
    with Journal.create(path, SPEC) as journal:
        past = Past(Job(spec=SPEC))
        for number, event in enumerate(islice(_events(), count), 1):
            journal.append(event)
            past.take(event)
            for account in past.accounts.of.values():
                account.heard(account.orders)
            if number == count - BEHIND:
                Bookmarks(journal, 0).keep(past.job, past.accounts, [], [])


def _events() -> Iterator[EVENTS]:
    """Four machines begin; then ranks stand still and move on, and time passes, for ever."""
    names = [MachineId(f"m{number}") for number in range(1, 5)]
    for number, name in enumerate(names):
        yield MachineJoined(at_us=number, machine=name, standby=False, vault=f"v{name}", host="h")
    at_us = 10
    for rank, name in enumerate(names):
        up = m.WorkerUp(pid=rank + 1, address=f"a{rank}", torch="2", version="1")
        yield WorkerSaid(at_us=at_us, machine=name, local_rank=0, fact=up, number=1)
    for number in cycle(range(5)):
        at_us += 1000
        if number == 4:
            yield Tick(at_us=at_us)
            continue
        fact = m.Stands(
            rank=Rank(number), epoch=Epoch(1), step=Step(at_us), where="script", counts={},
            call="", place="train.py:1", still_ms=1, deadline_ms=1,
        )  # fmt: skip
        yield WorkerSaid(at_us=at_us, machine=names[number], local_rank=0, fact=fact)
