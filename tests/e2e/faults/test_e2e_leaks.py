"""What machines that take turns at a rank hold after many moves."""

import asyncio
import os
from collections.abc import Callable
from contextlib import suppress
from functools import partial
from pathlib import Path

import psutil
import pytest
from harness import Live, run

from trainmover.protocol.messages import SandboxFailed

pytestmark = pytest.mark.turns(4)

LOADING = str(Path(__file__).parents[1] / "loading.py")
MOVES, WAIT_S = 8, 20.0
SPARE = {"descriptors": 3, "files of /dev/shm": 0, "processes": 0, "threads": 2}


def held_by(worker: psutil.Process) -> dict[str, int]:
    """Count what a worker process holds open.

    Batches that wait in it do not count: how many a loader has come to by then is chance. Their
    files are named after the loader process that made them, which still lives.
    """
    loaders = worker.children(recursive=True)
    waiting = tuple(f"/dev/shm/torch_{loader.pid}_" for loader in loaders)
    open_files = [file for file in _open_files(worker) if not file.startswith(waiting)]
    return {
        "descriptors": len(open_files),
        "files of /dev/shm": sum("/dev/shm/" in file for file in open_files),
        "processes": len(loaders),
        "threads": worker.num_threads(),
    }


def _open_files(worker: psutil.Process) -> list[str]:
    """List what its descriptors lead to, but for any that is closed meanwhile."""
    files = []
    for descriptor in Path(f"/proc/{worker.pid}/fd").iterdir():
        with suppress(FileNotFoundError):
            files.append(os.readlink(descriptor))
    return files


def over(before: dict[str, int], now: dict[str, int]) -> list[str]:
    """Name what there is more of; a connection or a thread may be on its way out."""
    return [what for what in before if now[what] > before[what] + SPARE[what]]


async def fallen_to(before: dict[str, int], look: Callable[[], dict[str, int]]) -> dict[str, int]:
    """Return what is held once that is no more than before, or after a while."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + WAIT_S
    while over(before, now := look()) and loop.time() < deadline:
        await asyncio.sleep(0.05)
    return now


@pytest.mark.parametrize("workers", [0, 2])
def test_moves_to_and_fro_leave_nothing_in_the_processes(workers: int, tmp_path: Path) -> None:
    """Each leaver goes on as the next joiner, in the same process."""
    first: dict[str, dict[str, int]] = {}
    last: dict[str, dict[str, int]] = {}
    failed: list[SandboxFailed] = []

    async def scenario(live: Live) -> None:
        async def move() -> str:
            await live.holding()
            leaver = live.job.seats[0]
            assert (await live.handle.move(leaver)).ok
            await live.holding()
            return leaver

        def held(leaver: str) -> dict[str, int]:
            return held_by(psutil.Process(live.pids[leaver][0]))

        for _ in range(4):
            leaver = await move()
            first[leaver] = held(leaver)
        for _ in range(MOVES - 4):
            leaver = await move()
            last[leaver] = await fallen_to(first[leaver], partial(held, leaver))
        failed.extend(live.sandbox_failed)
        (tmp_path / "done").touch()

    arguments = ["--workers", str(workers), "--until", str(tmp_path / "done")]
    outcome = run(arguments, scenario, script=LOADING, machines=2)
    assert outcome.code == 0, (outcome.text, outcome.sentences)
    assert outcome.job.incidents[-1].number == MOVES
    assert failed == []  # Nor does any standby need another process.
    assert [over(first[name], last[name]) for name in first] == [[], []], (first, last)
