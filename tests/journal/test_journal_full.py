"""A disk that is full costs no record: they are kept in memory, also over the writer's death."""

import os
import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from trainmover.controller.events import ControllerReturned
from trainmover.errors import JobFailed, StateMismatch, UserError
from trainmover.ids import Epoch, Rank, Step
from trainmover.journal import Journal
from trainmover.journal.aside import keep_aside
from trainmover.journal.bookmarks import Bookmark
from trainmover.journal.file import CODE, writable
from trainmover.journal.memory import Line, Memory, Steps
from trainmover.protocol.messages import Committed, JobSpec, Row, columns_of

SPEC = JobSpec(run_id="r", argv=["train.py"], machines=1, exact=True)
EVENTS = [ControllerReturned(at_us=at) for at in range(1, 9)]


def row(step: int, loss: float = 1.0) -> Row:
    return Row(step=Step(step), at_us=step, values={"loss": loss})


def commit(journal: Journal, *rows: Row) -> None:
    told = Committed(rank=Rank(0), epoch=Epoch(1), rows=list(rows))
    journal.append_batches(columns_of([told]), {"i": rows[-1].step})


def fill(journal: Journal) -> None:
    """The disk, as far as this journal is concerned."""
    journal._db.execute("PRAGMA max_page_count = 1")
    values = {"x" * 100_000: 1.0}
    journal.append_rows(Rank(0), Epoch(1), [Row(step=Step(99), at_us=1, values=values)])
    assert (journal.unwritten, journal.why) == (1, "database or disk is full")


def make_room(journal: Journal) -> None:
    journal._db.execute("PRAGMA max_page_count = 1000000")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "j.sqlite"


@contextmanager
def memory_file() -> Iterator[int]:
    """What a supervisor holds."""
    descriptor = os.memfd_create("held")
    yield descriptor
    os.close(descriptor)


def died(journal: Journal) -> None:
    """Its process: nothing is written any more, and its lock is the kernel's."""
    assert journal._lock is not None
    os.close(journal._lock._descriptor)
    journal._lock = None
    journal._db.close()


def change_version(path: Path, version: str) -> None:
    with closing(writable(path)) as db:
        db.execute("UPDATE meta SET value = ? WHERE key = 'version'", (version,))


def cannot_be_read(data: bytes) -> None:
    error = sqlite3.OperationalError("disk I/O error")
    error.sqlite_errorcode = sqlite3.SQLITE_IOERR
    raise error


def same_as_asked(journal: Journal) -> bool:
    events = [event for _, event in journal.events()] == EVENTS
    of_kind = list(journal.events_of(ControllerReturned)) == EVENTS
    rows = [one.step for one in journal.newest_rows(3)] == [2, 3, 99]
    return events and of_kind and rows and journal.safe() == {"i": 3} and journal.seq == len(EVENTS)


def test_what_is_not_taken_is_kept_read_and_written_when_there_is_room(path: Path) -> None:
    with Journal.create(path, SPEC) as journal:
        seqs = [journal.append(event) for event in EVENTS[:3]]
        commit(journal, row(1))
        fill(journal)
        seqs += [journal.append(event) for event in EVENTS[3:6]]
        commit(journal, row(2), row(3))
        assert not journal.write_again()
        seqs += [journal.append(event) for event in EVENTS[6:]]
        assert seqs == list(range(1, 9))
        assert journal.unwritten == 7
        assert same_as_asked(journal)
        with Journal.open(path) as reader:
            assert len(list(reader.events())) == 3
        make_room(journal)
        assert journal.write_again()
        assert journal.unwritten == 0
        assert same_as_asked(journal)
    with Journal.open(path) as reader:
        assert [event for _, event in reader.events()] == EVENTS
        assert [one.step for one in reader.rows()] == [1, 2, 3, 99]


def test_much_is_written_in_pieces(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("trainmover.journal.journal.AT_ONCE", 3)
    with Journal.create(path, SPEC) as journal:
        fill(journal)
        for event in EVENTS:
            journal.append(event)
        make_room(journal)
        assert [journal.write_again() for _ in range(3)] == [False, False, True]
        assert [event for _, event in journal.events()] == EVENTS


def test_a_successor_finds_what_was_kept(path: Path) -> None:
    with memory_file() as held:
        first = Journal.create(path, SPEC)
        died(first)
        second = Journal.take_over(path, Memory(held))
        for event in EVENTS[:3]:
            second.append(event)
        fill(second)
        for event in EVENTS[3:]:
            second.append(event)
        commit(second, row(2), row(3))
        died(second)
        with Journal.take_over(path, Memory(held)) as third:
            assert third.cut == ""
            assert same_as_asked(third)
            assert third.unwritten == 0
        assert os.fstat(held).st_size == 0


@pytest.mark.parametrize("written", [0, 2, 5])
def test_a_death_in_the_middle_of_writing_again_doubles_nothing(path: Path, written: int) -> None:
    """Some of it was committed, and is in memory still."""
    with memory_file() as held:
        memory = Memory(held)
        for seq in range(1, 6):
            memory.keep(Line(seq, seq, "Note", f'"{seq}"'))
        memory.keep(Steps([(Rank(0), Epoch(1), [row(1)])], {}))
        first = Journal.create(path, SPEC)
        for seq in range(1, written + 1):
            first.note(seq, str(seq))
        commit(first, row(1))
        died(first)
        with Journal.take_over(path, Memory(held)) as second:
            assert [entry.text for entry in second.entries()] == ["1", "2", "3", "4", "5"]
            assert (second.cut, second.unwritten) == ("", 0)


def test_what_is_lost_with_the_memory_is_told(path: Path) -> None:
    """Of a controller by hand, after supervisor and controller have died."""
    first = Journal.create(path, SPEC)
    first.append(EVENTS[0])
    fill(first)
    first.append(EVENTS[1])
    died(first)
    with Journal.take_over(path) as second:
        assert second.cut == "its disk was full, and records from number 2 on are lost"
        assert second.append(EVENTS[1]) == 2


def test_a_loss_is_said_again_until_an_event_of_a_successor_has_said_it(path: Path) -> None:
    """Successors may be refused, or die, before they have told any machine."""
    first = Journal.create(path, SPEC)
    first.append(EVENTS[0])
    fill(first)
    first.append(EVENTS[1])
    died(first)
    change_version(path, "another")
    with pytest.raises(UserError, match="was written by"):
        Journal.take_over(path)
    change_version(path, CODE)
    for told in ("by nobody", "to people"):
        successor = Journal.take_over(path)
        assert "records from number 2 on are lost" in successor.cut
        successor.note(1, f"told {told}")
        died(successor)
    successor = Journal.take_over(path)
    assert "records from number 2 on are lost" in successor.cut
    successor.append(EVENTS[1])
    died(successor)
    with Journal.take_over(path) as last:
        assert last.cut == ""
    assert not list(path.parent.glob("*.lock"))


def test_a_journal_that_begins_anew_lacks_nothing(path: Path) -> None:
    first = Journal.create(path, SPEC)
    fill(first)
    first.append(EVENTS[0])
    died(first)
    assert keep_aside(path) is not None
    died(Journal.create(path, SPEC))
    with Journal.take_over(path) as second:
        assert second.cut == ""


def test_a_disk_that_cannot_be_read_costs_no_step(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is there already cannot be compared then; it is, before anything is written."""
    with Journal.create(path, SPEC) as journal:
        commit(journal, row(1))
        fill(journal)
        with monkeypatch.context() as bad:
            bad.setattr("trainmover.journal.rows.unpacked", cannot_be_read)
            commit(journal, row(1), row(2))
            commit(journal, row(1, 2.0))
        make_room(journal)
        with pytest.raises(StateMismatch, match="twice with other values"):
            journal.write_again()


def test_memory_that_takes_half_a_record_ends_the_job(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pwrite = os.pwrite
    with Journal.create(path, SPEC) as journal:
        fill(journal)
        with monkeypatch.context() as bad:
            bad.setattr(os, "pwrite", lambda file, data, at: pwrite(file, data[:-1], at))
            with pytest.raises(JobFailed, match="nor is there memory"):
                journal.append(EVENTS[0])


def test_of_what_was_written_in_the_end_nothing_is_told(path: Path) -> None:
    first = Journal.create(path, SPEC)
    fill(first)
    make_room(first)
    assert first.write_again()
    first.append(EVENTS[0])
    died(first)
    with Journal.take_over(path) as second:
        assert (second.cut, second.seq) == ("", 1)


def test_a_gap_between_disk_and_memory_is_told_and_nothing_behind_it_counts(path: Path) -> None:
    with memory_file() as held:
        Memory(held).keep(Line(7, 7, "Note", '"behind a gap"'))
        died(Journal.create(path, SPEC))
        with Journal.take_over(path, Memory(held)) as second:
            assert second.cut == "its records from number 1 on are lost"
            assert list(second.entries()) == []


def test_a_step_that_comes_twice_with_other_values_is_seen_at_once(path: Path) -> None:
    with Journal.create(path, SPEC) as journal:
        commit(journal, row(1))
        fill(journal)
        commit(journal, row(2))
        for again in (row(1), row(2)):
            commit(journal, again)
        for other in (row(1, 2.0), row(2, 2.0)):
            with pytest.raises(StateMismatch, match="twice with other values"):
                commit(journal, other)
        make_room(journal)
        assert journal.write_again()


def test_a_row_without_values_yields_in_memory_too(path: Path) -> None:
    with Journal.create(path, SPEC) as journal:
        fill(journal)
        empty = Row(step=Step(1), at_us=1, values={})
        for one in (empty, row(1), empty):
            commit(journal, one)
        make_room(journal)
        assert journal.write_again()
        assert next(journal.rows()).values == {"loss": 1.0}


def test_no_bookmark_stands_behind_what_is_not_written(path: Path) -> None:
    mark = Bookmark(1, "code", b"state", b"told")
    with Journal.create(path, SPEC) as journal:
        journal.append(EVENTS[0])
        fill(journal)
        assert not journal.keep_bookmark(mark)
        make_room(journal)
        assert journal.write_again()
        assert journal.keep_bookmark(mark)


def test_steps_that_are_too_many_for_memory_are_counted(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("trainmover.journal.memory.STEPS_BYTES_MAX", 10)
    with Journal.create(path, SPEC) as journal:
        journal._db.execute("PRAGMA max_page_count = 1")
        journal.append_rows(Rank(0), Epoch(1), [row(step) for step in range(1, 5000)])
        for event in EVENTS:
            journal.append(event)
        assert journal.lost == 1


def test_a_record_that_was_not_finished_ends_what_is_read() -> None:
    with memory_file() as held:
        memory = Memory(held)
        memory.keep(Line(1, 1, "Note", '"one"'))
        whole = os.fstat(held).st_size
        memory.keep(Line(2, 2, "Note", '"two"'))
        os.ftruncate(held, os.fstat(held).st_size - 1)
        again = Memory(held)
        assert [record.seq for record in again.records if isinstance(record, Line)] == [1]
        again.keep(Line(2, 2, "Note", '"2"'))
        assert os.fstat(held).st_size > whole
        with closing(Memory(held)) as third:
            assert len(third.records) == 2
