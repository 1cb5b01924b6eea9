"""A file says that a machine will be taken away."""

import asyncio
import os
from datetime import UTC, datetime
from pathlib import Path

import pytest

from trainmover.agent.config import AgentConfig
from trainmover.agent.notice import READ_MAX, NoticeFile, seconds_left
from trainmover.agent.run import Agent
from trainmover.agent.store_way import StoreWays
from trainmover.ids import MachineId
from trainmover.protocol import messages as m
from trainmover.state.vault import Vault

NOW = datetime(2026, 11, 23, 22, 0, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "left_s"),
    [
        ("", 30.0),
        ("\n", 30.0),
        ("90", 90.0),
        ("90s\n", 90.0),
        ("1.5h", 5400.0),
        ("0", 0.0),
        ("2026-11-23T22:02:00Z", 120.0),
        ("2026-11-23T22:02:00", 120.0),
        ("2026-11-24T00:02:00+02:00", 120.0),
        ("2026-11-23T21:00:00Z", 0.0),
        ('{"action": "terminate", "time": "2026-11-23T22:00:30Z"}', 30.0),
        ("soon", None),
        ("-5", None),
        ("nan", None),
        ("1e400", None),
        ("{", None),
        ("{}", None),
        ('{"time": 7}', None),
        ("{" * 3000, None),
        ("9" * 400, None),
    ],
)
def test_what_it_says(text: str, left_s: float | None) -> None:
    assert seconds_left(text, 30.0, NOW) == left_s


def test_it_is_told_once_for_each_time_that_it_was_written(tmp_path: Path) -> None:
    path = tmp_path / "notice"
    notice = NoticeFile(path, 30.0, lambda: NOW)
    assert notice.look() is None
    path.write_text("60")
    assert notice.look() == 60.0
    assert notice.look() is None
    path.write_text("20s")
    os.utime(path, ns=(1, 1))
    assert notice.look() == 20.0
    path.unlink()
    assert notice.look() is None


@pytest.mark.parametrize("data", [b"soon", b"\xff\x00", b"x" * 3 * READ_MAX])
def test_garbage_is_a_notice_all_the_same_and_is_told(
    data: bytes, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "notice"
    path.write_bytes(data)
    assert NoticeFile(path, 30.0, lambda: NOW).look() == 30.0
    assert "says no time that trainmover knows" in capsys.readouterr().err


def test_what_is_no_file_is_none(tmp_path: Path) -> None:
    assert NoticeFile(tmp_path, 30.0).look() is None
    assert NoticeFile(None, 30.0).look() is None


def test_the_agent_says_it_to_the_controller(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "notice"
    config = AgentConfig(
        controller="", machine=MachineId("m1"), nproc=1, standby=False, token_file=tmp_path,
        notice_file=path,
    )  # fmt: skip

    async def beat() -> list[object]:
        agent = Agent(config, Vault(1000), "127.0.0.1:1", tmp_path, StoreWays(b""), b"")
        said: list[object] = []
        monkeypatch.setattr(agent._up, "say", said.append)
        agent._look_for_notice()
        path.write_text("2m")
        agent._look_for_notice()
        agent._look_for_notice()
        return said

    assert asyncio.run(beat()) == [m.Leaving(left_ms=120_000)]
