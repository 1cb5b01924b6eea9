"""Lines are cut right, shown in time, and never wait for a reader."""

import asyncio
import os
from pathlib import Path

import pytest

from trainmover.agent.workers import output
from trainmover.agent.workers.output import BATCH_BYTES, LogFiles, ScreenBatch, StreamReader
from trainmover.ids import Rank


def lines_of(*writes: bytes) -> list[bytes]:
    """What a reader hands on for these writes and the end of the stream."""

    async def read() -> list[bytes]:
        lines: list[bytes] = []
        ours, theirs = os.pipe()
        reader = StreamReader(ours, lines.append)
        for data in writes:
            os.write(theirs, data)
            reader.drain()
        os.close(theirs)
        reader.finish()
        reader.finish()
        return lines

    return asyncio.run(read())


def test_whole_lines_are_handed_on_together_and_a_partial_one_waits() -> None:
    assert lines_of(b"a\nb\nc", b"d\n") == [b"a\nb\n", b"cd\n"]


def test_the_end_flushes_a_partial_line() -> None:
    assert lines_of(b"a\nlast") == [b"a\n", b"last\n"]
    assert lines_of() == []


def test_a_line_without_end_does_not_grow_for_ever() -> None:
    chunk = b"x" * 40_000
    lines = lines_of(chunk, chunk)
    assert lines == [chunk + chunk + b"\n"]


def shown(*adds: bytes, clogged_after: int = 1 << 60) -> list[str]:
    """What is sent for these lines, if the link is full after so many bytes."""

    async def show() -> list[str]:
        sent: list[str] = []
        batch = ScreenBatch(
            lambda rank, stream, text: sent.append(text),
            lambda: sum(map(len, sent)) >= clogged_after,
        )
        for data in adds:
            batch.add(Rank(0), "stdout", data)
        batch.flush()
        return sent

    return asyncio.run(show())


def test_the_first_line_is_shown_at_once_and_the_next_together() -> None:
    assert shown(b"1\n", b"2\n", b"3\n") == ["1\n", "2\n3\n"]


def test_a_flood_is_handed_on_in_pieces() -> None:
    much = b"y\n" * BATCH_BYTES
    assert [len(text) for text in shown(b"1\n", much, b"2\n")] == [2, len(much), 2]


def test_what_nobody_takes_is_counted_not_kept() -> None:
    much = b"y\n" * BATCH_BYTES
    sent = shown(b"1\n", much, b"2\n", b"3\n4\n", clogged_after=100)
    assert sent[2:] == ["... 3 lines were too many to be shown\n"]


def log(appended: list[tuple[Path, bytes]]) -> list[tuple[Path, str]]:
    """Append it all; what could not be written is told."""
    told: list[tuple[Path, str]] = []

    async def append() -> None:
        logs = LogFiles(lambda path, why: told.append((path, why)))
        for path, data in appended:
            logs.append(path, data)
        logs.close()
        logs.close()
        await asyncio.sleep(0)

    asyncio.run(append())
    return told


def test_log_files_are_written_in_order_when_it_closes(tmp_path: Path) -> None:
    path = tmp_path / "deep" / "out.log"
    assert log([(path, b"%d\n" % number) for number in range(100)]) == []
    assert path.read_text().split() == [str(number) for number in range(100)]


def test_a_log_that_cannot_be_written_is_told_once(tmp_path: Path) -> None:
    full, other = tmp_path / "full.log", tmp_path / "other.log"
    full.symlink_to("/dev/full")
    lines = [(full, b"line\n"), (full, b"line\n"), (other, b"line\n")]
    assert log(lines) == [(full, "No space left on device")]
    assert other.read_bytes() == b"line\n"


def test_a_chatty_script_fills_no_disk(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What it has written last is kept."""
    monkeypatch.setattr(output, "LOG_BYTES_MAX", 1000)

    async def chat() -> None:
        files = LogFiles(lambda path, why: None)
        for number in range(1000):
            files.append(tmp_path / "stdout.log", b"%08d\n" % number)
        files.close()

    asyncio.run(chat())
    assert sorted(path.name for path in tmp_path.iterdir()) == ["stdout.log", "stdout.log.1"]
    kept = (tmp_path / "stdout.log.1").read_bytes() + (tmp_path / "stdout.log").read_bytes()
    lines = [int(line) for line in kept.split()]
    assert len(kept) <= 2 * 1009
    assert lines == list(range(1000 - len(lines), 1000))
