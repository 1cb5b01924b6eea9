"""The agent has its machine examined by a process of its own, which always comes to an end."""

import asyncio
import json
import sys
from pathlib import Path

import pytest

from trainmover.agent.config import AgentConfig
from trainmover.agent.examiner import COMMAND, WORDS_MAX, Examiner
from trainmover.ids import MachineId
from trainmover.protocol.messages import Examine, Examined
from trainmover.state.vault import Vault, address_of, serve

TOKEN = b"t" * 32


def config(tmp_path: Path) -> AgentConfig:
    token_file = tmp_path / "token"
    token_file.write_bytes(TOKEN + b"\n")
    token_file.chmod(0o600)
    return AgentConfig(
        controller="127.0.0.1:1",
        machine=MachineId("m1"),
        nproc=1,
        standby=True,
        token_file=token_file,
    )


def examined(
    tmp_path: Path, program: str, *, limit_s: float = 60.0, peers: dict[str, str] | None = None
) -> Examined:
    async def run() -> Examined:
        said: asyncio.Future[Examined] = asyncio.get_running_loop().create_future()
        command = (sys.executable, "-c", program) if program else COMMAND
        examiner = Examiner(config(tmp_path), tmp_path, command, limit_s)
        examiner.examine(Examine(number=3, peers=peers or {}), said.set_result)
        return await said

    return asyncio.run(run())


def printing(told: object) -> str:
    return f"print({json.dumps(json.dumps(told))})"


def test_what_is_measured_is_said(tmp_path: Path) -> None:
    told = {"figures": {"disk_mb_s": 5.0}, "failed": "", "clock_us": 7}
    fact = examined(tmp_path, printing(told))
    assert fact == Examined(number=3, figures={"disk_mb_s": 5.0}, failed="", clock_us=7)


@pytest.mark.parametrize(
    ("program", "words"),
    [
        ("import time; time.sleep(600)", "did not end within 0 s"),
        ("import sys; sys.exit('no such disk')", "ended with 1: no such disk"),
        ("import os; os.kill(os.getpid(), 9)", "ended with -9: it said nothing"),
        ("print('garbage')", "what makes no sense: b'garbage"),
        ("print('{}')", "what makes no sense"),
        ("", "No such file"),
    ],
)
def test_whatever_it_does_something_is_said(
    tmp_path: Path, program: str, words: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not program:
        monkeypatch.setattr("test_agent_examiner.COMMAND", (str(tmp_path / "none"),))
    fact = examined(tmp_path, program, limit_s=0.4 if "sleep" in program else 60.0)
    assert (fact.number, fact.figures) == (3, {})
    assert words in fact.failed


def test_a_long_complaint_is_cut(tmp_path: Path) -> None:
    told = {"figures": {}, "failed": "x" * 10_000, "clock_us": 0}
    assert len(examined(tmp_path, printing(told)).failed) == WORDS_MAX


def test_the_real_one_measures_this_machine_and_the_way_to_another(tmp_path: Path) -> None:
    async def run() -> Examined:
        vault = await serve(Vault(1), TOKEN)
        said: asyncio.Future[Examined] = asyncio.get_running_loop().create_future()
        examiner = Examiner(config(tmp_path), tmp_path)
        examiner.examine(Examine(number=1, peers={"m2": address_of(vault)}), said.set_result)
        try:
            return await said
        finally:
            vault.close()

    fact = asyncio.run(run())
    assert fact.failed == ""
    rates = {"memory_gb_s", "disk_mb_s", "processor_gflop_s", "loopback_gb_s", "network_mb_s"}
    assert rates <= set(fact.figures)
    assert all(value > 0 for value in fact.figures.values())
    assert fact.clock_us > 0


def test_a_machine_that_cannot_be_reached_is_said(tmp_path: Path) -> None:
    fact = examined(tmp_path, "", peers={"m2": "127.0.0.1:1"})
    assert "m2 cannot be reached" in fact.failed
    assert "disk_mb_s" in fact.figures


def test_who_is_closed_says_nothing_more_and_leaves_no_process(tmp_path: Path) -> None:
    mark = tmp_path / "pid"
    program = f"import os, time; open({str(mark)!r}, 'w').write(str(os.getpid())); time.sleep(600)"

    async def run() -> list[Examined]:
        said: list[Examined] = []
        examiner = Examiner(config(tmp_path), tmp_path, (sys.executable, "-c", program))
        examiner.examine(Examine(number=1, peers={}), said.append)
        async with asyncio.timeout(60):
            while not mark.exists() or not mark.read_text():
                await asyncio.sleep(0.02)
        examiner.close()
        async with asyncio.timeout(60):
            while Path(f"/proc/{mark.read_text()}").exists():
                await asyncio.sleep(0.02)
        return said

    assert asyncio.run(run()) == []
