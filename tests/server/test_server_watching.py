"""Deadlines, ranks that stand, numbers that are none, flapping machines: what people get to see."""

import asyncio
import math
import socket
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from tests.controller.jobs import RUNNING
from tests.controller.standstill.test_hanging import stands
from tests.server import test_server_process as process
from tests.server.test_server_process import SPEC, WAIT_S, Stage, committed
from trainmover.cli.watch.status import watch_lines
from trainmover.controller import decide
from trainmover.ids import Rank
from trainmover.journal import Journal
from trainmover.protocol import messages as m
from trainmover.server.view.nans import not_a_number
from trainmover.server.view.progress import Progress
from trainmover.server.view.sentences import sentence
from trainmover.server.view.snapshot import snapshot

S = 1_000_000


def played(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, act: Callable[[Stage], Awaitable[None]],
    **knobs: Any,
) -> Stage:  # fmt: skip
    monkeypatch.setattr(process, "SPEC", msgspec.structs.replace(SPEC, **knobs))
    stage = Stage(tmp_path / "j.sqlite")
    stage.play(act)
    return stage


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf])
def test_a_number_that_is_none_is_found(value: float) -> None:
    rows = [m.Row(step=n, at_us=0, values={"loss": x}) for n, x in ((4, 1.0), (5, value))]
    told = [m.Committed(rank=Rank(rank), epoch=1, rows=rows) for rank in (2, 3)]
    assert not_a_number(*m.columns_of(told)) == f"rank 2 reported loss = {value} in step 5"
    finite = [msgspec.structs.replace(fact, rows=rows[:1]) for fact in told]
    assert not_a_number(*m.columns_of(finite)) == ""


def test_a_nan_ends_the_job_if_that_was_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def act(stage: Stage) -> None:
        member = await stage.member("m1")
        await member.say(committed(0, 1.0, math.nan, first=True))
        while not isinstance(await member.order(), m.Shutdown):
            pass
        assert "rank 0 reported loss = nan in step 2" in stage.server.job.ended_because.lower()

    played(tmp_path, monkeypatch, act, on_nan="stop")


def test_a_nan_is_told_once_and_by_default_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def act(stage: Stage) -> None:
        member = await stage.member("m1")
        for _ in range(3):
            await member.say(committed(0, 1.0, math.nan))
        await member.say(m.WorkerState(local_rank=0, pid=0, state="stopped"))
        await stage.until_heard("is stopped")

    def told(knobs: dict[str, str], path: Path) -> int:
        texts = played(path, monkeypatch, act, **knobs).texts()
        return sum("reported loss = nan" in text for text in texts)

    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    assert told({"on_nan": "report"}, tmp_path / "a") == 1
    assert told({}, tmp_path / "b") == 0


def test_a_machine_that_flaps_is_told_when_to_come_again(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def act(stage: Stage) -> None:
        await stage.member("m1")
        for _ in range(2):
            flapping = await stage.member("m3", standby=True)
            stage.tasks[-1].cancel()
            flapping.sock.shutdown(socket.SHUT_RDWR)
            async with asyncio.timeout(WAIT_S):
                while "m3" in stage.server.job.machines:
                    await stage.server.news.more.wait()
        peer = await (await stage.peer("m3")).hello("m3", standby=True)
        refused = await peer.order()
        assert isinstance(refused, m.Refused)
        assert 0 < (refused.retry_s or 0) <= 30  # Less what has passed since it was lost.
        assert "several times within an hour" in refused.reason
        assert set(stage.server.status()["quarantined"]) == {"m3"}
        assert isinstance(await stage.member("m4", standby=True), process.Peer)

    played(tmp_path, monkeypatch, act)


def test_what_agents_say_of_processes_is_journaled_and_deadlines_are_not(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def act(stage: Stage) -> None:
        member = await stage.member("m1")
        watched = m.Watched(rank=Rank(0), deadline_ms=600)
        await member.say(m.FromWorker(local_rank=0, payload=msgspec.Raw(m.encode(watched))))
        await member.say(m.Stack(local_rank=0, pid=3, text="Thread"))
        await member.say(m.Reached(number=1, machines=[]))
        await member.say(m.WorkerState(local_rank=0, pid=0, state="deaf"))
        await stage.until_heard("is deaf")
        assert stage.server.status()["watch"][0]["deadline_s"] == 0.6

    stage = played(tmp_path, monkeypatch, act)
    with Journal.open(stage.path) as journal:
        facts = [type(e.fact).__name__ for _, e in journal.events() if hasattr(e, "fact")]
    assert facts == ["Stack", "Reached", "WorkerState"]


def test_the_status_shows_every_deadline_and_who_stands() -> None:
    progress = Progress()
    for rank, deadline_ms, paused in ((0, 0, "evaluation"), (1, 640, ""), (2, 640, "")):
        progress.note(m.Watched(rank=Rank(rank), deadline_ms=deadline_ms, paused=paused))
    job, _ = decide(RUNNING, stands("m2", 1, "script"))
    status = snapshot(job, progress, {}, 2 * S)
    lines = list(watch_lines(status["watch"], {"m9": 28.4}))
    assert lines == [
        "a rank counts as stuck after: 0 not watched: evaluation  1-2 0.6 s",
        "rank 1 has stood for 1.7 s in step 8: in the script (train.py line 33)",
        "m9 was lost several times: kept out for another 28 s",
    ]


def test_a_stand_and_its_end_are_sentences() -> None:
    event = stands("m2", 1, "fetch")
    job, _ = decide(RUNNING, event)
    assert "rank 1 has stood for 0.7 s in step 8: at a fetch" in sentence(RUNNING, event, job).text
