"""A journal whose writer has died: what a crash tears is cut, anything else is an error."""

import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from trainmover.controller.events import ControllerReturned
from trainmover.errors import UserError
from trainmover.ids import Epoch, Rank, Step
from trainmover.journal import Journal
from trainmover.journal.aside import keep_aside
from trainmover.journal.file import writable
from trainmover.journal.replay import replay
from trainmover.protocol.messages import Committed, JobSpec, Row, columns_of

SPEC = JobSpec(run_id="r", argv=["train.py"], machines=1)
TEN = [ControllerReturned(at_us=at) for at in range(1, 11)]
PAGE_BYTES = 4096 + 24
WRITER = """
import os, signal, sys
from trainmover.controller.events import ControllerReturned
from trainmover.journal import Journal
from trainmover.journal.aside import keep_aside
from trainmover.protocol.messages import JobSpec
journal = Journal.create(sys.argv[1], JobSpec(run_id="r", argv=["train.py"], machines=1))
for at in range(1, 11):
    journal.append(ControllerReturned(at_us=at))
os.kill(os.getpid(), signal.SIGKILL)
"""


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a journal whose writer was killed after ten events."""
    folder = tmp_path_factory.mktemp("killed")
    writer = subprocess.run([sys.executable, "-c", WRITER, str(folder / "j.sqlite")], timeout=60)
    assert writer.returncode == -signal.SIGKILL
    return folder


@pytest.fixture
def path(killed: Path, tmp_path: Path) -> Path:
    """A copy of it of one's own."""
    return Path(shutil.copytree(killed, tmp_path / "j")) / "j.sqlite"


def spoil(path: Path, statement: str) -> None:
    db = writable(path)
    db.execute(statement)
    db.close()


def test_a_killed_writer_has_lost_nothing_and_another_goes_on(path: Path) -> None:
    with Journal.take_over(path) as journal:
        assert (journal.cut, journal.spec) == ("", SPEC)
        assert [event for _, event in journal.events()] == TEN
        assert journal.append(TEN[0]) == 11
    assert replay(path).takeovers == 11


def test_two_writers_are_refused_and_the_first_is_named(path: Path) -> None:
    with Journal.take_over(path) as first:
        with pytest.raises(UserError, match=f"process {os.getpid()}"):
            Journal.take_over(path)
        assert first.append(TEN[0]) == 11
    Journal.take_over(path).close()
    assert not list(path.parent.glob("*.lock"))


def test_who_makes_a_journal_holds_it_too(tmp_path: Path) -> None:
    with Journal.create(tmp_path / "j.sqlite", SPEC), pytest.raises(UserError, match="already"):
        Journal.take_over(tmp_path / "j.sqlite")


def test_records_that_are_damaged_at_the_end_are_cut_and_reported(path: Path) -> None:
    spoil(path, "UPDATE events SET json = '{' WHERE seq >= 9")
    with Journal.take_over(path) as journal:
        assert journal.cut == "its last 2 records, from number 9, were damaged and are cut off"
        assert [event for _, event in journal.events()] == TEN[:8]
        assert journal.append(TEN[8]) == 9
    with Journal.take_over(path) as journal:
        assert journal.cut == ""


@pytest.mark.parametrize(
    ("damage", "named"),
    [
        ("UPDATE events SET at_us = 99 WHERE seq = 4", "record 4 is damaged"),
        ("UPDATE events SET json = x'00' WHERE seq = 4", "record 4 is damaged"),
        ("DELETE FROM events WHERE seq = 4", "record 4 is missing"),
        ("DELETE FROM events WHERE seq = 1", "record 1 is missing"),
    ],
)
def test_a_damaged_middle_is_an_error_and_nothing_is_changed(
    path: Path, damage: str, named: str
) -> None:
    spoil(path, damage)
    before = path.read_bytes()
    with pytest.raises(UserError, match=named):
        Journal.take_over(path)
    assert path.read_bytes() == before


def test_a_reader_names_the_damaged_record(path: Path) -> None:
    spoil(path, "UPDATE events SET kind = 'Tick' WHERE seq = 4")
    with pytest.raises(UserError, match="record 4 is damaged"):
        replay(path)


def test_a_write_that_was_not_finished_is_cut_and_reported(path: Path) -> None:
    log = path.with_name("j.sqlite-wal")
    log.write_bytes(log.read_bytes()[:-100])
    with Journal.take_over(path) as journal:
        assert journal.cut == "its last write was not finished and is cut off"
        assert [event for _, event in journal.events()] == TEN[:9]
        journal.append(TEN[9])
    assert replay(path).takeovers == 10


def test_a_log_that_is_damaged_in_its_middle_is_an_error(path: Path) -> None:
    log = path.with_name("j.sqlite-wal")
    data = bytearray(log.read_bytes())
    data[-4 * PAGE_BYTES + 500] ^= 1
    log.write_bytes(data)
    with pytest.raises(UserError, match="log is damaged after"):
        Journal.take_over(path)
    assert log.read_bytes() == bytes(data)


def test_a_damaged_page_is_an_error(path: Path) -> None:
    with Journal.take_over(path) as journal:
        for _ in range(500):
            journal.append(TEN[0])
        journal.checkpoint()
    data = bytearray(path.read_bytes())
    data[-3 * 4096 : -4096] = bytes(8192)
    path.write_bytes(data)
    with pytest.raises(UserError, match="not a journal"):
        Journal.take_over(path)


@pytest.mark.parametrize("content", [b"", b"not a database at all"])
def test_an_alien_file_is_refused(tmp_path: Path, content: bytes) -> None:
    (tmp_path / "alien").write_bytes(content)
    with pytest.raises(UserError, match="not a journal"):
        Journal.take_over(tmp_path / "alien")
    with pytest.raises(UserError, match="There is no journal"):
        Journal.take_over(tmp_path / "nothing")


def test_what_is_safe_is_written_with_the_rows_before_it(tmp_path: Path) -> None:
    with Journal.create(tmp_path / "j.sqlite", SPEC) as journal:
        rows = [Row(step=Step(step), at_us=step, values={}) for step in range(1, 9)]
        told = Committed(rank=Rank(0), epoch=Epoch(1), rows=rows)
        journal.append_batches(columns_of([told]), {"i": 3})
        journal.append_batches([], {"i": 5, "k": 1})
        assert journal.safe() == {"i": 5, "k": 1}
        assert [row.step for row in journal.newest_rows(3)] == [6, 7, 8]


def test_a_host_that_was_started_again_may_have_lost_the_end(tmp_path: Path) -> None:
    """Nothing in the file shows it: whole transactions are gone."""
    path = tmp_path / "j.sqlite"
    Journal.create(path, SPEC).close()
    spoil(path, "UPDATE meta SET value = 'of another start' WHERE key = 'boot'")
    for _ in ("by one that dies before it has told anybody", "by the next one"):
        with Journal.take_over(path) as journal:
            assert "its newest records may be lost" in journal.cut
            journal.note(1, "the crash has damaged the journal")
    with Journal.take_over(path) as journal:
        journal.append(TEN[0])
    with Journal.take_over(path) as journal:
        assert journal.cut == "", "an event has told it, and this is the same start"


def test_a_host_that_loses_power_writes_the_log_in_any_order(
    path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What follows the first hole is cut and told, and the next successor finds no trace of it."""
    log = path.with_name("j.sqlite-wal")
    data = bytearray(log.read_bytes())
    data[-4 * PAGE_BYTES + 500] ^= 1
    log.write_bytes(data)
    (tmp_path / "boot").write_text("the next start")
    monkeypatch.setattr("trainmover.journal.file._BOOT_ID", tmp_path / "boot")
    with Journal.take_over(path) as journal:
        assert "not finished" in journal.cut
        assert [event for _, event in journal.events()] == TEN[:6]
        journal.append(TEN[6])
        shutil.copytree(path.parent, tmp_path / "killed")
    with Journal.take_over(tmp_path / "killed" / path.name) as journal:
        assert journal.cut == ""
        assert [event for _, event in journal.events()] == TEN[:7]


@pytest.mark.parametrize("wrote", ["0.0.1, protocol 5", "0.1.0, protocol 1"])
def test_a_journal_of_other_code_is_not_taken_over(tmp_path: Path, wrote: str) -> None:
    """Its agents would all be refused, and end their workers."""
    path = tmp_path / "j.sqlite"
    Journal.create(path, SPEC).close()
    spoil(path, f"UPDATE meta SET value = '{wrote}' WHERE key = 'version'")
    before = path.read_bytes()
    with pytest.raises(UserError, match=f"was written by trainmover {wrote}") as refused:
        Journal.take_over(path)
    assert "its agents and workers do not know of this" in str(refused.value)
    assert path.read_bytes() == before
    with Journal.open(path) as journal:
        assert journal.spec == SPEC, "it can be read"


def test_the_journal_of_an_earlier_run_is_kept_whole_beside_the_new_one(path: Path) -> None:
    """Of one that was killed, too, whose log is not in the file yet."""
    assert keep_aside(path.with_name("none")) is None
    first = keep_aside(path)
    assert first == path.with_name("j.sqlite.1")
    with Journal.create(path, SPEC) as journal:
        journal.append(TEN[0])
        with pytest.raises(UserError, match=r"writes .* already"):
            keep_aside(path)
    assert keep_aside(path) == path.with_name("j.sqlite.2")
    with Journal.take_over(first) as journal:
        assert [event for _, event in journal.events()] == TEN
    assert sorted(one.name for one in path.parent.iterdir()) == ["j.sqlite.1", "j.sqlite.2"]
