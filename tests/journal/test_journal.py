"""The journal keeps what was said, once, and refuses what it cannot read."""

import math
import sqlite3
from pathlib import Path

import msgspec
import pytest

from trainmover.controller.events import Lost, MachineJoined, MachinesLost, WorkerSaid
from trainmover.errors import StateMismatch, UserError
from trainmover.ids import Epoch, MachineId, Rank, Step
from trainmover.journal import Journal
from trainmover.journal.replay import replay, replayed
from trainmover.protocol.messages import Committed, JobSpec, Row, WorkerUp, columns_of

SPEC = JobSpec(run_id="r", argv=["train.py"], machines=1)
JOINED = MachineJoined(
    at_us=1, machine=MachineId("m1"), standby=False, vault="127.0.0.1:1", host="h"
)
LOST = MachinesLost(
    at_us=5, lost=[Lost(machine=MachineId("m1"), why="connection closed", heard_us=4)]
)
UP = WorkerSaid(
    at_us=2,
    machine=MachineId("m1"),
    local_rank=0,
    fact=WorkerUp(pid=1, address="a", torch="t", version="v"),
)


def rows(*losses: float, first: int = 1) -> list[Row]:
    return [
        Row(step=Step(first + i), at_us=10 + i, values={"loss": loss})
        for i, loss in enumerate(losses)
    ]


@pytest.fixture
def journal(tmp_path: Path) -> Journal:
    return Journal.create(tmp_path / "j.sqlite", SPEC)


def test_a_row_without_values_yields_to_one_with(journal: Journal) -> None:
    empty, full = Row(step=Step(1), at_us=1, values={}), rows(0.5)
    for epoch, told in ((1, [empty]), (1, full), (2, [empty])):
        journal.append_rows(Rank(0), Epoch(epoch), told)
    assert [row.values for row in journal.rows()] == [{"loss": 0.5}]


def test_events_come_back_in_order_with_their_sequence_numbers(journal: Journal) -> None:
    assert [journal.append(event) for event in (JOINED, UP, LOST)] == [1, 2, 3]
    with Journal.open(journal.path) as reader:
        assert list(reader.events()) == [(1, JOINED), (2, UP), (3, LOST)]
        assert list(reader.events(after=2)) == [(3, LOST)]
        assert list(reader.events_of(type(LOST))) == [LOST]
        assert reader.spec == SPEC


def test_a_note_is_an_entry_but_no_event(journal: Journal) -> None:
    journal.append(JOINED)
    journal.note(7, "somebody knocked")
    entries = list(journal.entries())
    assert [(e.seq, e.text) for e in entries] == [(1, ""), (2, "somebody knocked")]
    assert [seq for seq, _ in journal.events()] == [1]


def test_rows_are_kept_bit_exact_and_by_rank_and_step(journal: Journal) -> None:
    told = {Rank(1): rows(0.1 + 0.2), Rank(0): rows(math.inf, 5e-324)}
    journal.append_batches(
        columns_of(Committed(rank=rank, epoch=Epoch(1), rows=its) for rank, its in told.items())
    )
    kept = list(journal.rows())
    assert [(r.rank, r.step) for r in kept] == [(0, 1), (0, 2), (1, 1)]
    assert [r.values["loss"] for r in kept] == [math.inf, 5e-324, 0.1 + 0.2]


def test_a_repeated_equal_row_is_no_news_even_when_it_is_nan(journal: Journal) -> None:
    journal.append_rows(Rank(0), Epoch(1), rows(1.0, math.nan))
    journal.append_rows(Rank(0), Epoch(2), rows(1.0, -math.nan, 3.0))
    assert [(r.step, r.epoch) for r in journal.rows()] == [(1, 1), (2, 1), (3, 2)]


def test_where_numbers_are_to_be_exact_two_truths_write_nothing(journal: Journal) -> None:
    journal.spec = msgspec.structs.replace(journal.spec, exact=True)
    journal.append_rows(Rank(0), Epoch(1), rows(1.0))
    with pytest.raises(StateMismatch, match="step 1 twice"):
        journal.append_rows(Rank(0), Epoch(2), [*rows(7.0, first=2), *rows(math.nextafter(1, 2))])
    assert [r.step for r in journal.rows()] == [1]


def test_a_step_with_other_values_is_told_and_replaced(journal: Journal) -> None:
    journal.append_rows(Rank(0), Epoch(1), rows(1.0, 2.0))
    told = [Committed(rank=Rank(0), epoch=Epoch(2), rows=rows(1.5, 2.0, 3.0))]
    (unequal,) = journal.append_batches(columns_of(told))
    assert (unequal.rank, unequal.step) == (0, 1)
    assert "1.0} in epoch 1" in unequal.text
    assert "1.5} in epoch 2" in unequal.text
    assert [(r.values["loss"], r.epoch) for r in journal.rows()] == [(1.5, 2), (2.0, 1), (3.0, 2)]
    assert journal.append_batches(columns_of(told)) == []


def test_rows_of_one_batch_are_compared_with_each_other(journal: Journal) -> None:
    told = [Committed(rank=Rank(0), epoch=Epoch(1), rows=[*rows(1.0), *rows(2.0)])]
    assert len(journal.append_batches(columns_of(told))) == 1


def test_a_journal_is_never_overwritten(journal: Journal) -> None:
    with pytest.raises(UserError, match="exists already"):
        Journal.create(journal.path, SPEC)


def test_a_place_that_cannot_be_written_is_a_user_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(UserError, match="could not be made"):
        Journal.create(tmp_path / "file" / "j.sqlite", SPEC)


def test_a_journal_that_is_refused_leaves_no_folders_behind(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path) -> int:
        raise PermissionError(path)

    with monkeypatch.context() as patch:
        patch.setattr("trainmover.ownership.create_file", refuse)
        with pytest.raises(UserError, match="could not be made"):
            Journal.create(tmp_path / "a" / "b" / "j.sqlite", SPEC)
    assert not [*tmp_path.iterdir()]
    Journal.create(tmp_path / "a" / "b" / "j.sqlite", SPEC).close()


@pytest.mark.parametrize("content", [b"", b"not a database at all", b"SQLite format 3\0" * 300])
def test_an_alien_file_is_refused_at_once(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "alien"
    path.write_bytes(content)
    with pytest.raises(UserError, match="not a journal"):
        Journal.open(path)


def test_another_database_is_refused(tmp_path: Path) -> None:
    db = sqlite3.connect(tmp_path / "other")
    db.execute("CREATE TABLE meta (key, value)")
    db.commit()
    db.close()
    with pytest.raises(UserError, match="not a journal"):
        Journal.open(tmp_path / "other")


def test_a_damaged_page_is_found_when_it_is_opened(journal: Journal) -> None:
    for _ in range(500):
        journal.append(JOINED)
    journal.checkpoint()
    journal.close()
    data = bytearray(journal.path.read_bytes())
    data[4096 * 3 : 4096 * 5] = bytes(8192)
    journal.path.write_bytes(data)
    with pytest.raises(UserError, match="not a journal"):
        Journal.open(journal.path)


def test_an_event_nobody_knows_is_refused(journal: Journal) -> None:
    journal._insert(1, "X", '{"type": "X"}')
    with pytest.raises(UserError, match="not a journal"):
        replay(journal.path)


def test_no_file_is_a_user_error(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="There is no journal"):
        Journal.open(tmp_path / "nothing")


def test_a_reader_cannot_write(journal: Journal) -> None:
    with Journal.open(journal.path) as reader, pytest.raises(sqlite3.OperationalError):
        reader.append(JOINED)


def test_a_replay_skips_notes_and_knows_before_and_after(journal: Journal) -> None:
    journal.append(JOINED)
    journal.note(2, "a note")
    journal.append(LOST)
    story = list(replayed(journal.path))
    assert [sorted(after.machines) for _, _, after in story] == [["m1"], ["m1"], []]
    assert story[1][1] is story[1][2]
    assert replay(journal.path) == story[-1][2]
