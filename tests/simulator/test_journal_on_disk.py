"""The real journal on a disk that fails keeps its promises; bugs planted in it are found."""

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from faulty_disk import shim
from journal_on_disk import SEEDS_A_WORLD, Broken, Campaign

from tests.planting import planted
from trainmover.errors import TrainmoverError

MEMORY = Path("/dev/shm")
SEEDS = 200
"""At most: the search ends at the first that finds a bug, mostly within ten."""

HELD_BACK = """
late, self.late = self.__dict__.get("late"), Steps(list(batches), dict(safe or {}))
if late is not None:
    self._write(late)
"""
BUGS: dict[str, tuple[str, str, str, int | str]] = {
    "steps are said to be written before they are":
        ("journal.journal", "append_batches", "self._write(Steps(list(batches), dict(safe or {})))",
         HELD_BACK),
    "half of a batch of steps is taken for the whole":
        ("journal.journal", "_write_now", "with _transaction(self._db): self._put(record)",
         "self._put(record); record"),
    "what the disk does not take is forgotten": ("journal.journal", "_keep", "drop", 1),
    "a successor that dies takes with it that records were lost":
        ("journal.journal", "take_over", "operand", 5),
    "nobody says that the host has lost power":
        ("journal.file", "was_started_again", "row is not None and row[0] != _boot_id()", "False"),
    "holes in the log stay, and the next successor takes them for damage":
        ("journal.damage", "cut_torn_writes", "never", 5),
    "two controllers write one journal": ("journal.lock", "take", "fcntl.LOCK_EX", "fcntl.LOCK_SH"),
    "the log is not on the disk when the file is written from it":
        ("journal.file", "writable", "'PRAGMA synchronous=NORMAL'", "'PRAGMA synchronous=OFF'"),
    "a disk that cannot be read ends the controller":
        ("journal.journal", "_compare", "self._unless_full()", "memoryview(b'')"),
    "a bookmark stands behind an event that is in memory only":
        ("journal.journal", "keep_bookmark", "self.unwritten", "False"),
    "what is safe is not known after a takeover": ("server.history.past", "of", "drop", 5),
}  # fmt: skip


@pytest.fixture
def folder(tmp_path: Path) -> Iterator[Path]:
    """In memory where there is any: what is torn here is torn by us."""
    try:
        shim()
    except AttributeError:
        pytest.skip("SQLite is a part of this interpreter")
    with TemporaryDirectory(dir=MEMORY if MEMORY.is_dir() else tmp_path) as path:
        yield Path(path)


def play(seed: int, folder: Path) -> Campaign:
    place = folder / f"{seed}"
    place.mkdir()
    campaign = Campaign(seed, place)
    try:
        campaign.run()
    except Broken as broken:
        raise AssertionError(f"seed {seed}: {broken}") from broken
    return campaign


def test_what_is_lost_is_told_though_the_next_writer_dies_on_a_full_disk(folder: Path) -> None:
    """A third controller learns it from memory: the second could write a note, and no event."""
    play(4043, folder)


def test_a_reader_may_be_told_that_a_disk_which_lies_has_damaged_the_file(folder: Path) -> None:
    """The controller writes on, for it has found all that it read; nobody else can be served."""
    campaign = play(4002, folder)
    assert campaign.disk.lies
    assert campaign.next_place < len(campaign.script)


def test_nothing_that_was_promised_is_lost_whatever_the_disk_does(folder: Path) -> None:
    for seed in range(2 * SEEDS_A_WORLD):
        play(seed, folder)


@pytest.mark.soak
@pytest.mark.parametrize("first", range(1000, 5000, 200))
def test_thousands_more(first: int, folder: Path) -> None:
    for seed in range(first, first + 200):
        play(seed, folder)


def test_a_seed_is_the_only_chance(folder: Path) -> None:
    (folder / "again").mkdir()
    first, again = play(36, folder), play(36, folder / "again")
    assert first.deaths == again.deaths != []
    assert first.history == again.history
    assert first.chance.getstate() == again.chance.getstate()


@pytest.mark.turns(4)
@pytest.mark.parametrize("bug", BUGS)
def test_a_planted_bug_is_found(bug: str, folder: Path) -> None:
    """Also by what it makes the journal raise."""
    with planted(*BUGS[bug]):
        for seed in range(SEEDS):
            try:
                play(seed, folder)
            except (AssertionError, TypeError, sqlite3.Error, TrainmoverError):
                return
    pytest.fail("nobody has found it")
