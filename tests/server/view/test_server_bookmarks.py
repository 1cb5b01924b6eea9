"""Going on from a bookmark is going on from a replay of everything, to the last field."""

import asyncio
import dataclasses
import shutil
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest

from trainmover.cli.report.reading import past_of
from trainmover.controller.decide import decide
from trainmover.controller.effects import Send
from trainmover.controller.events import EVENTS, Tick
from trainmover.controller.state import Job
from trainmover.ids import Epoch, MachineId
from trainmover.journal import Journal
from trainmover.journal.file import writable
from trainmover.protocol import messages as m
from trainmover.protocol.messages import JobSpec
from trainmover.server.history import bookmarks
from trainmover.server.history.bookmarks import Bookmarks, decode, encode
from trainmover.server.history.past import Past
from trainmover.server.machines.accounts import Account, Accounts
from trainmover.server.view.news import News
from trainmover.server.view.notices import Told
from trainmover.server.view.sentences import sentence
from trainmover.simulator.story import plan_of, play

SEEDS = [0, 4, 6, *(pytest.param(seed, marks=pytest.mark.soak) for seed in range(20, 60))]
CUTS = 4
LOOKS = 60


@cache
def history(seed: int, seconds: int = 5) -> tuple[JobSpec, list[EVENTS]]:
    """What a simulated job had in its journal at the end."""
    disk = play(plan_of(seed, seconds=seconds)).world.disk
    return disk.spec, list(disk.events())


def differences(a: Any, b: Any, where: str = "it") -> Iterator[str]:
    """Also of type, of what NaN hides, and of the order in a dict, which a decision may show."""
    if type(a) is not type(b):
        yield f"{where}: {type(a).__name__} and {type(b).__name__}"
    elif dataclasses.is_dataclass(a):
        for one in dataclasses.fields(a):
            yield from differences(
                getattr(a, one.name), getattr(b, one.name), f"{where}.{one.name}"
            )
    elif isinstance(a, msgspec.Struct):
        for name in a.__struct_fields__:
            yield from differences(getattr(a, name), getattr(b, name), f"{where}.{name}")
    elif isinstance(a, dict):
        yield from differences(list(a), list(b), f"{where}'s keys")
        for key in a.keys() & b.keys():
            yield from differences(a[key], b[key], f"{where}[{key}]")
    elif isinstance(a, list | tuple) and len(a) == len(b):
        for index, pair in enumerate(zip(a, b, strict=True)):
            yield from differences(*pair, f"{where}[{index}]")
    elif repr(a) != repr(b) and a != b:
        yield f"{where}: {a!r} and {b!r}"


def sharing(job: Job) -> list[list[int]]:
    """For each section, which ranks have one value together: rounds are as quick as that."""
    found = []
    for section in job.comparison.held:
        first: dict[int, int] = {}
        found.append([first.setdefault(id(held), rank) for rank, held in section.items()])
    return found


@pytest.mark.parametrize("seed", SEEDS)
def test_a_bookmark_and_what_followed_give_what_a_replay_gives(seed: int) -> None:
    spec, events = history(seed)
    whole = Past(Job(spec=spec))
    others: list[Past] = []
    every, often = max(1, len(events) // CUTS), max(1, len(events) // LOOKS)
    for number, event in enumerate(events, 1):
        effects = decide(whole.job, event)[1]
        whole.take(event)
        for other in others:
            assert decide(other.job, event)[1] == effects
            other.take(event)
        if number % every == 0 and whole.over is None:
            job, accounts = decode(encode(whole.job, whole.accounts))
            others.append(Past(job, accounts))
            assert sharing(job) == sharing(whole.job)
        elif number % often == 0:
            job, _ = decode(encode(whole.job, whole.accounts))
            assert not list(differences(job, whole.job))
    assert len(others) >= CUTS - 1
    for other in others:
        assert not list(differences((other.job, other.over), (whole.job, whole.over)))
        for machine, account in other.accounts.of.items():
            assert not list(differences(account, whole.accounts.of[machine]))
        assert other.accounts.undone == whole.accounts.undone
        assert other.accounts.term == whole.accounts.term


def test_what_a_machine_has_heard_is_not_in_it() -> None:
    account = Account("i", ends={0: 3})
    accounts = Accounts({MachineId("m1"): account})
    go, leave = m.Go(epoch=Epoch(1)), m.Leave(epoch=Epoch(1))
    for order in (go, leave, go):
        accounts.ordered(Send(MachineId("m1"), order))
    account.heard(2)
    _, again = decode(encode(Job(spec=JobSpec(run_id="r", argv=["x"])), accounts))
    kept = again.of[MachineId("m1")]
    assert (kept.pending, kept.orders, kept.away) == ([go], 3, True)
    assert (kept.rest(1, term=0, now=9), kept.rest(2, term=0, now=9)) == (None, [go])


@pytest.fixture
def kept(marked: Path, tmp_path: Path) -> Path:
    """A copy of it of one's own."""
    return Path(shutil.copy(marked, tmp_path / "j.sqlite"))


@pytest.fixture(scope="module")
def marked(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A journal with three bookmarks, of which two have a state."""
    spec, events = history(6)
    path = tmp_path_factory.mktemp("marked") / "j.sqlite"
    with Journal.create(path, spec) as journal, pytest.MonkeyPatch.context() as patch:
        patch.setattr(bookmarks, "EVENTS_BETWEEN", 1)
        past, recent = Past(Job(spec=spec)), list[Told]()
        marks = Bookmarks(journal, 0)
        places = [len(events) * part // 4 for part in (1, 2, 3)]
        for number, event in enumerate(events, 1):
            seq, before = journal.append(event), past.job
            past.take(event)
            said = sentence(before, event, past.job)
            recent.append(Told(seq, event.at_us, "", said.text, event))
            if number in places:
                assert marks.keep(past.job, past.accounts, recent, past.closed) == seq
    return path


def spoil(path: Path, statement: str) -> None:
    db = writable(path)
    db.execute(statement)
    db.close()


def of(path: Path) -> tuple[Past, list[tuple[int, str]]]:
    """What a successor knows, and all that was ever told of the events."""
    with Journal.take_over(path) as journal:
        past = Past.of(journal)
        news = News(None, past.told, journal, past.replayed)
        told = asyncio.run(since(news, 0))
        assert asyncio.run(since(news, 300)) == told[300:]
        news.forget(past.replayed + len(past.told) // 2)  # As at the next bookmark.
        assert len(news.recent) == len(past.told) - len(past.told) // 2
        return past, told


async def since(news: News, after: int) -> list[tuple[int, str]]:
    return [(one.seq, one.text) async for one in news.since(after)]


@pytest.fixture
def whole(kept: Path, tmp_path: Path) -> tuple[Past, list[tuple[int, str]]]:
    """What a replay of everything gives."""
    other = tmp_path / "other.sqlite"
    other.write_bytes(kept.read_bytes())
    spoil(other, "DELETE FROM bookmarks")
    past, told = of(other)
    assert past.replayed == 0
    return past, told


@pytest.mark.parametrize(
    ("damage", "newest", "why"),
    [
        ("SELECT 1", 2, ""),
        ("UPDATE bookmarks SET state = x'00' WHERE seq = (SELECT max(seq) FROM bookmarks)", 1, "3"),
        ("UPDATE bookmarks SET told = x'80' WHERE seq = (SELECT max(seq) FROM bookmarks)", 1, "3"),
        ("UPDATE bookmarks SET told = x'80' WHERE seq = (SELECT min(seq) FROM bookmarks)", -1, "1"),
        ("UPDATE bookmarks SET seq = seq + 1", -1, "1"),
        ("UPDATE bookmarks SET code = 'other'", -1, "1"),
    ],
)
def test_one_that_cannot_be_believed_is_not_used(
    kept: Path, whole: tuple[Past, list[tuple[int, str]]], damage: str, newest: int, why: str
) -> None:
    with Journal.open(kept) as journal:
        marks, doubt = journal.bookmarks()
        assert ([bool(mark.state) for mark in marks], doubt) == ([False, True, True], "")
    spoil(kept, damage)
    past, told = of(kept)
    assert past.replayed == ([*(mark.seq for mark in marks), 0][newest])
    assert bool(past.unused) == bool(why)
    assert told == whole[1]
    same = {"told": [], "replayed": 0, "unused": "", "progress": past.progress}
    assert dataclasses.replace(past, **same) == dataclasses.replace(whole[0], **same)


def test_one_of_other_code_is_not_used(kept: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(bookmarks, "code", lambda: "0.0.0 other")
    past, _ = of(kept)
    assert (past.replayed, "another trainmover" in past.unused) == (0, True)
    assert of(kept)[0].unused == ""


def test_who_reads_a_journal_of_other_code_changes_nothing(
    kept: Path, whole: tuple[Past, list[tuple[int, str]]], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(bookmarks, "code", lambda: "0.0.0 other")
    monkeypatch.setattr(bookmarks, "_beside", msgspec.msgpack.Decoder(int))  # It is another format.
    assert past_of(kept).incidents == whole[0].job.incidents
    with Journal.open(kept) as journal:
        assert len(journal.bookmarks()[0]) == 3


def test_what_a_crash_has_torn_takes_its_bookmarks_along(kept: Path) -> None:
    with Journal.open(kept) as journal:
        second = journal.bookmarks()[0][1].seq
    spoil(kept, f"UPDATE events SET json = '{{' WHERE seq > {second}")
    past, _ = of(kept)
    assert (past.replayed, past.seq, past.unused) == (second, second, "")
    assert (bool(past.cut), past.told) == (True, [])


def test_few_events_are_no_reason_for_one(tmp_path: Path) -> None:
    with Journal.create(tmp_path / "j.sqlite", JobSpec(run_id="r", argv=["x"])) as journal:
        marks = Bookmarks(journal, 0)
        for at_us in range(bookmarks.EVENTS_BETWEEN):
            assert marks.keep(Job(spec=journal.spec), Accounts(), [], []) == 0
            assert journal.bookmarks() == ([], "")
            journal.append(Tick(at_us=at_us))
        assert marks.keep(Job(spec=journal.spec), Accounts(), [], []) == journal.seq
        assert len(journal.bookmarks()[0]) == 1
