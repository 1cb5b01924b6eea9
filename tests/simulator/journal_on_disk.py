"""The journal's own files on a disk that fails: what a world journals, played again by a seed.

    a simulated world --> events, rows --> Journal --> SQLite --> faulty_disk

Whoever dies is followed by a successor that takes over as a controller does (`Journal.take_over`,
`Past.of`), and may die in the middle of that. `Broken` says which promise did not hold.
"""

import os
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from struct import pack
from unittest import mock

from faulty_disk import FaultyDisk, Killed

from trainmover.controller.events import EVENTS, ControllerReturned
from trainmover.controller.state import Job
from trainmover.errors import JobFailed, UserError
from trainmover.ids import MachineId, Rank, Step
from trainmover.journal import Journal
from trainmover.journal.memory import Memory
from trainmover.protocol.messages import Columns, JobSpec
from trainmover.server.history import bookmarks
from trainmover.server.history.past import Past
from trainmover.simulator.faults import EVERYTHING, Faults
from trainmover.simulator.places.disk import Disk
from trainmover.simulator.story import plan_of, play

SEEDS_A_WORLD = 8


class Broken(Exception):
    """A promise of the journal did not hold."""


class Ruined(Exception):
    """A disk that lies has left a file that is refused, as it must be."""


@dataclass(frozen=True)
class Write:
    """What is given to the journal at once: an event, a note, or committed steps.

    place  in the script; -1: not there
    """

    event: EVENTS | None = None
    note: str = ""
    batches: Sequence[Columns] = ()
    safe: Mapping[str, int] | None = None
    place: int = -1

    @property
    def line(self) -> EVENTS | str:
        """As an entry of `events`; "" for steps."""
        return self.event or self.note

    @property
    def tells_cut(self) -> bool:
        return isinstance(self.event, ControllerReturned) and self.event.cut


@cache
def journaled_by(seed: int) -> tuple[JobSpec, list[Write]]:
    """All that a world of this seed writes, in order."""
    writes: list[Write] = []
    append, append_batches = Disk.append, Disk.append_batches

    def event(disk: Disk, event: EVENTS) -> int:
        writes.append(Write(event=event, place=len(writes)))
        return append(disk, event)

    def steps(
        disk: Disk, batches: Sequence[Columns], safe: Mapping[str, int] | None = None
    ) -> None:
        if batches or safe:
            writes.append(Write(batches=list(batches), safe=safe, place=len(writes)))
        append_batches(disk, batches, safe)

    weights = {name: odds for name, odds in EVERYTHING.weights.items() if name != "torn"}
    with mock.patch.multiple(Disk, append=event, append_batches=steps):
        world = play(plan_of(seed, seconds=3, faults=Faults(weights))).world
    return world.spec, writes


class Known:
    """Committed rows, to the bit, and what is safe, after some writes."""

    def __init__(self) -> None:
        self.rows: dict[tuple[Rank, Step], bytes] = {}
        self.safe: dict[str, int] = {}

    def take(self, one: Write) -> None:
        for batch in one.batches:
            for rank, rows in batch.each():
                for row in rows:
                    if not self.rows.get((rank, row.step)):
                        self.rows[rank, row.step] = bits(row.values)
        self.safe |= one.safe or {}


def bits(values: dict[str, float]) -> bytes:
    return b"".join(name.encode() + pack("d", values[name]) for name in sorted(values))


def knows(past: Past) -> tuple[Job, bytes, dict[MachineId, int]]:
    """All that decides what a controller does next."""
    facts = {machine: account.facts for machine, account in past.accounts.of.items()}
    none = Job(spec=past.job.spec)  # Equal jobs may have sets in another order.
    return past.job, bookmarks.encode(none, past.accounts), facts


class Campaign:
    """One seed.

    history  what the journal was given, in order; the first `acked` of these have returned
    least    so many of these must be found by a successor; floor: after a power cut
    owed     writes that had returned are gone, and no event has said so
    """

    def __init__(self, seed: int, folder: Path) -> None:
        self.chance = random.Random(f"journal {seed}")
        self.spec, self.script = journaled_by(seed // SEEDS_A_WORLD)
        self.boot, self.boots = folder / "boot", 0
        (folder / "1").mkdir()
        self.put_in(FaultyDisk(folder / "1", self.chance))
        self.disk.lies = self.chance.choice((0.0,) * 5 + (0.5,))
        self.journal: Journal | None = None
        self.deaths: list[str] = []
        self.history: list[Write] = []
        self.acked = self.floor = self.least = 0
        self.owed, self.ready = False, True
        self.wrong = ""
        self.past = Past(Job(spec=self.spec))

    def run(self) -> None:
        """To the end of the script. Raises Broken."""
        self.start_host()
        with (
            mock.patch("trainmover.journal.file._BOOT_ID", self.boot),
            mock.patch.object(bookmarks, "EVENTS_BETWEEN", 30),
        ):
            while self.next_place < len(self.script):
                try:
                    with self.disk.mounted():
                        self.live()
                except Killed:
                    self.die()
                except Ruined:
                    break
                finally:
                    self.bury()
        self.disk.close()
        if self.wrong:
            raise Broken(self.wrong)

    @property
    def next_place(self) -> int:
        """In the script."""
        return next((one.place for one in reversed(self.history) if one.place >= 0), -1) + 1

    # --- one controller ---

    def live(self) -> None:
        """From its beginning to its death, or to the end of the script."""
        chance, disk = self.chance, self.disk
        if not self.deaths:
            self.journal = Journal.create(self.path, self.spec)
            self.journal._memory = Memory(disk.descriptor)
            self.journal.checkpoint()
        if len(self.deaths) < 12:
            disk.last = disk.calls + int(chance.expovariate(1 / chance.choice((10, 50, 400)))) + 1
        if self.deaths:
            self.take_over()
        try:
            self.write_script()
            self.end_well()
        except (JobFailed, UserError, ValueError) as error:
            raise self.refused(error) from error

    def write_script(self) -> None:
        assert self.journal is not None
        while self.next_place < len(self.script):
            self.change_the_weather()
            self.write(self.script[self.next_place])
            what = self.chance.random()
            if what < 0.05:
                self.alive(self.journal.checkpoint)
            elif what < 0.1:
                self.alive(self.journal.write_again)
            elif what < 0.12:
                self.write(Write(note=f"note {what}"))
            elif what < 0.16:
                self.alive(self.keep_bookmark)
            elif what < 0.17:
                self.read()

    def write(self, what: Write) -> None:
        journal, event = self.journal, what.event
        assert journal is not None
        self.history.append(what)
        if event is not None:
            self.alive(lambda: journal.append(event))
            self.past.take(event)
        elif what.note:
            self.alive(lambda: journal.note(self.past.at_us, what.note))
        else:
            self.alive(lambda: journal.append_batches(what.batches, what.safe))
        self.acked = self.least = len(self.history)

    def alive(self, act: Callable[[], object] = lambda: None) -> None:
        """SQLite hides from its caller that the process has died."""
        act()
        if self.disk.dead:
            raise Killed

    def keep_bookmark(self) -> None:
        assert self.journal is not None
        marks = bookmarks.Bookmarks(self.journal, self.past.replayed)
        self.past.replayed = marks.keep(self.past.job, self.past.accounts, [], [])

    def change_the_weather(self) -> None:
        """The disk fails for a while, and takes everything again."""
        chance, disk = self.chance, self.disk
        if chance.random() < (0.1 if disk.faults else 0.03):
            disk.faults = "" if disk.faults else chance.choice(("full", "io"))
            disk.odds = chance.choice((1.0, 0.5, 0.05))

    def end_well(self) -> None:
        journal, self.disk.faults = self.journal, ""
        assert journal is not None
        while not journal.write_again():
            self.alive()
        self.alive(journal.checkpoint)
        journal.close()
        self.alive()
        with closing(Journal.open(self.path)) as reader:
            if self.match(reader) != len(self.history):
                raise Broken("a journal that was closed in order lacks its end")

    # --- others that look at it meanwhile ---

    def read(self) -> None:
        """Somebody reads the file, which may end earlier."""
        with self.fair_weather(), closing(Journal.open(self.path)) as reader:
            self.match(reader)

    def hangs(self) -> None:
        """A call does not return for a while: nobody else may take the journal over."""
        self.disk.hang = lambda: None
        try:
            Journal.take_over(self.path, Memory(self.disk.descriptor))
            self.wrong = "a second controller has taken over while a call hangs"
        except UserError as error:
            if "already" not in str(error) and self.path.exists():
                self.wrong = f"who comes while a call hangs is told: {error}"
        finally:
            self.disk.hang = self.hangs

    # --- death, and who comes after ---

    def die(self) -> None:
        """The process; perhaps its supervisor or the host's power, too."""
        disk, chance = self.disk, self.chance
        files, memory = disk.files, disk.memory
        unwritten = 0 if self.journal is None else self.journal.unwritten
        self.bury()
        how = chance.choices(("process", "supervisor", "power"), (6, 1, 3))[0]
        if how == "supervisor":
            memory, self.least = b"", self.least - unwritten
        elif how == "power":
            lock = {name: data for name, data in files.items() if name.endswith(".lock")}
            files = disk.after_power() | (lock if chance.random() < 0.5 else {})
            memory, self.least = b"", min(self.least, self.floor)
            self.start_host()
        self.put_in(disk.after_death(files, memory))
        self.deaths.append(how)
        self.ready = False

    def put_in(self, disk: FaultyDisk) -> None:
        self.disk, self.path = disk, disk.folder / "j.sqlite"
        disk.synced, disk.hang = self.synced, self.hangs

    def bury(self) -> None:
        """What the kernel closes."""
        if self.journal is not None:
            self.journal._db.close()
            if self.journal._lock is not None:
                os.close(self.journal._lock._descriptor)
            self.journal = None

    def start_host(self) -> None:
        self.boots += 1
        self.boot.write_text(f"boot {self.boots}")

    def synced(self, name: str) -> None:
        """What was written so far lasts."""
        unwritten = 0 if self.journal is None else self.journal.unwritten
        if name.endswith("-wal") and self.ready:
            self.floor = max(self.floor, self.acked - unwritten)

    def take_over(self) -> None:
        """As a controller begins: who is refused by a bad disk tries again on a good one."""
        try:
            self.journal = Journal.take_over(self.path, Memory(self.disk.descriptor))
            past = Past.of(self.journal)
        except UserError as error:
            self.alive()
            if not self.disk.faults:
                raise self.refused(error) from error
            self.disk.faults = ""
            if self.journal is not None:
                self.journal.close()
                self.journal = None
            self.take_over()
            return
        self.alive()
        self.check(past)
        self.past = past
        if past.cut and self.chance.random() < 0.5:
            self.write(Write(note="the crash has damaged the journal"))
        self.write(Write(event=ControllerReturned(at_us=past.at_us + 1, cut=bool(past.cut))))
        self.owed = False

    def refused(self, error: Exception) -> Exception:
        """A file that a lying disk has damaged may be; no other."""
        ruined = self.disk.lies and "power" in self.deaths
        return Ruined() if ruined else Broken(f"the journal is refused: {error} {self.deaths}")

    def check(self, past: Past) -> None:
        """What the successor has found."""
        assert self.journal is not None
        there = self.match(self.journal)
        if there < self.least and not self.disk.lies:
            raise Broken(f"{self.least} writes were to last, {there} are there {self.deaths}")
        if there < self.acked:
            self.owed = True
        elif any(one.tells_cut for one in self.history[self.acked : there]):
            self.owed = False
        if self.owed and not past.cut:
            raise Broken(f"{self.acked - there} writes are lost, nobody says so {self.deaths}")
        del self.history[there:]
        self.acked = self.least = there
        self.floor = min(self.floor, there)
        self.ready = True
        known = Past(Job(spec=self.spec))
        for one in self.history:
            if one.event is not None:
                known.take(one.event)
        for account in known.accounts.of.values():
            account.facts = max(account.facts, self.journal.safe().get(account.incarnation, 0))
        if knows(past) != knows(known):
            raise Broken("the successor knows other things than a replay from the beginning")

    def match(self, journal: Journal) -> int:
        """How many writes of the history are there: those behind have left no trace.

        Where the disk lies, only that nothing is another than was written.
        """
        with self.fair_weather():
            lines = [one.event or one.text for one in journal.entries()]
            rows = {(one.rank, one.step): bits(one.values) for one in journal.newest_rows(1 << 30)}
            safe = journal.safe()
        if lines != [one.line for one in self.history if one.line][: len(lines)]:
            raise Broken("an event is another one than was written")
        fits, seen, known, lies = -1, 0, Known(), self.disk.lies
        for count, one in enumerate([Write(), *self.history]):
            seen += bool(one.line)
            known.take(one)
            if seen == len(lines) and (lies or (known.safe == safe and known.rows == rows)):
                fits = count
        if fits < 0 or not all(known.rows.get(key) in (its, None) for key, its in rows.items()):
            raise Broken(f"rows are not those that were written up to record {len(lines)}")
        return fits

    @contextmanager
    def fair_weather(self) -> Iterator[None]:
        faults, self.disk.faults = self.disk.faults, ""
        try:
            yield
        finally:
            self.disk.faults = faults
