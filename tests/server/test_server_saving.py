"""A disk that hangs: orders about checkpoints are given up, and the run can end."""

import asyncio
import re
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from trainmover.controller.effects import FindCheckpoint, GiveUpCheckpoint, HostOrder, Publish
from trainmover.controller.events import EVENTS, CheckpointFailed, CheckpointPublished
from trainmover.ids import Epoch, Step
from trainmover.protocol import messages as m
from trainmover.protocol.checkpoint import writing_name
from trainmover.server.checkpoints import saving
from trainmover.server.checkpoints.folder import CheckpointFolder
from trainmover.server.checkpoints.saving import Saving


class Disk:
    """Hangs in operations whose name begins with `hangs_in`, until `goes_on`."""

    def __init__(self) -> None:
        self.hangs_in = "nothing"
        self.hangs = threading.Event()
        self.goes_on = threading.Event()
        self.returned = threading.Event()

    def at(self, operation: str) -> None:
        if operation.startswith(self.hangs_in):
            self.hangs.set()
            self.goes_on.wait()
            self.returned.set()


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> Iterator[Disk]:
    disk = Disk()
    at = saving._Task.at

    def at_and_hang(task: saving._Task, operation: str) -> None:
        at(task, operation)
        disk.at(operation)

    monkeypatch.setattr(saving._Task, "at", at_and_hang)
    yield disk
    disk.goes_on.set()


class Host:
    """A `Saving` with what has come of its orders."""

    def __init__(self, folder: Path) -> None:
        self.folder = CheckpointFolder.take(folder)
        self.events: list[EVENTS] = []
        self.notes: list[str] = []
        self.raised: list[BaseException] = []
        self._news = asyncio.Event()
        spec = m.JobSpec(run_id="r", argv=["x"], checkpoint=str(folder), checkpoints_kept=2)
        self.saving = Saving(
            self.folder,
            spec,
            now=lambda: 7,
            happened=self._happened,
            failed=self.raised.append,
            note=self._note,
        )

    def _happened(self, event: EVENTS) -> None:
        self.events.append(event)
        self._news.set()

    def _note(self, text: str, *, loud: bool = False) -> None:
        assert loud
        self.notes.append(text)
        self._news.set()

    def publish(self, step: int) -> None:
        writing = self.folder.path / writing_name(Step(step), Epoch(1))
        writing.mkdir()
        self.saving.carry_out(Publish(checkpoint(self.folder.path, step)))

    def carry_out(self, order: HostOrder) -> None:
        self.saving.carry_out(order)

    async def hangs(self, disk: Disk) -> None:
        assert await asyncio.to_thread(disk.hangs.wait, 60)

    async def until(self, holds: Callable[[], bool]) -> None:
        while not holds():
            self._news.clear()
            await asyncio.wait_for(self._news.wait(), 60)


def checkpoint(folder: Path, step: int) -> m.Checkpoint:
    return m.Checkpoint(
        folder=str(folder), run_id="r", step=Step(step), epoch=Epoch(1), argv=["x"], module=False,
        script="", machines=1, nproc=1, torch="2", trainmover="1", python="3", states={},
        records={}, compiled={}, recorded=[],
    )  # fmt: skip


@pytest.fixture
def on_host(tmp_path: Path) -> Callable[..., Host]:
    def play(scene: Callable[[Host], object]) -> Host:
        async def run() -> Host:
            host = Host(tmp_path / "kept")
            try:
                await scene(host)  # type: ignore[misc]
            finally:
                host.folder.close()
            assert host.raised == []
            return host

        return asyncio.run(run())

    return play


@pytest.mark.parametrize("operation", ["writing", "syncing", "renaming", "listing"])
def test_a_publish_that_hangs_is_given_up_and_the_next_is_tried(
    on_host, disk: Disk, operation: str
) -> None:
    disk.hangs_in = operation

    async def scene(host: Host) -> None:
        host.publish(10)
        await host.hangs(disk)
        assert host.saving._task is not None
        host.saving._give_up(host.saving._task)
        disk.hangs_in = "nothing"
        host.publish(20)
        await host.until(lambda: len(host.events) == 2)
        host.publish(30)  # What is written now must not fall to the one that was given up.
        await host.until(lambda: len(host.events) == 3)
        (host.folder.path / writing_name(Step(40), Epoch(1))).mkdir()
        disk.goes_on.set()
        assert disk.returned.wait(60)
        await host.saving.close()

    host = on_host(scene)
    failed, *others = host.events
    assert isinstance(failed, CheckpointFailed)
    assert (failed.step, failed.epoch, failed.at_us) == (10, 1, 7)
    assert failed.why.startswith(f"{operation} {host.folder.path}")
    assert re.search(r" has not ended in \d+ s$", failed.why)
    assert all(isinstance(one, CheckpointPublished) for one in others)
    assert (host.folder.path / writing_name(Step(40), Epoch(1))).exists()


def test_what_took_long_and_went_well_may_take_ten_times_as_long(
    on_host, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scene(host: Host) -> None:
        host.publish(10)
        await host.until(lambda: bool(host.events))
        monkeypatch.setattr(saving, "DEADLINE_S", 0.0)
        monkeypatch.setattr(saving, "DEADLINE_FACTOR", 1e9)
        disk.hangs_in = "renaming"
        host.publish(20)
        await host.hangs(disk)
        disk.goes_on.set()
        await host.until(lambda: len(host.events) == 2)

    host = on_host(scene)
    assert [type(one) for one in host.events] == [CheckpointPublished] * 2


def test_a_publish_has_a_deadline(on_host, disk: Disk, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(saving, "DEADLINE_S", 0.05)
    disk.hangs_in = ""  # In the first operation.

    async def scene(host: Host) -> None:
        host.publish(10)
        await host.until(lambda: bool(host.events))

    (failed,) = on_host(scene).events
    assert isinstance(failed, CheckpointFailed)


def test_a_search_that_hangs_finds_nothing_and_says_so(
    on_host, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saving, "DEADLINE_S", 0.05)
    disk.hangs_in = "listing"

    async def scene(host: Host) -> None:
        host.carry_out(FindCheckpoint(Epoch(3), frozenset()))
        await host.until(lambda: bool(host.events))

    (found,) = on_host(scene).events
    assert (found.epoch, found.checkpoint) == (3, None)
    assert found.damaged[0].startswith("The disk of checkpoints hangs: listing ")


def test_what_cannot_be_removed_is_said(
    on_host, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saving, "DEADLINE_S", 0.05)
    disk.hangs_in = "removing"

    async def scene(host: Host) -> None:
        host.carry_out(GiveUpCheckpoint(Step(10), Epoch(1)))
        await host.until(lambda: bool(host.notes))

    (note,) = on_host(scene).notes
    assert note.startswith("what was written of the checkpoint of step 10 could not be removed (")


def test_the_end_waits_for_an_order_that_goes_well(on_host, disk: Disk) -> None:
    disk.hangs_in = "renaming"

    async def scene(host: Host) -> None:
        host.publish(10)
        await host.hangs(disk)
        asyncio.get_running_loop().call_later(0.1, disk.goes_on.set)
        await host.saving.close()

    host = on_host(scene)
    assert [type(one) for one in host.events] == [CheckpointPublished]
    assert host.notes == []


def test_the_end_does_not_wait_for_ever(
    on_host, disk: Disk, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(saving, "CLOSE_S", 0.05)
    disk.hangs_in = "renaming"

    async def scene(host: Host) -> None:
        host.publish(10)
        host.publish(20)
        await host.hangs(disk)
        await host.saving.close()

    host = on_host(scene)
    assert host.events == []
    assert host.notes[0].startswith("the disk of checkpoints hangs (renaming ")


HANGS = """
import asyncio, os, sys, threading, time
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from test_server_saving import Host
from trainmover.server.checkpoints import saving
saving.CLOSE_S = 0.1
hangs = threading.Event()
os.fsync = lambda file: (hangs.set(), time.sleep(1e6))
async def main():
    host = Host(Path(sys.argv[2]))
    host.publish(10)
    await asyncio.to_thread(hangs.wait)
    await host.saving.close()
    print(host.notes[0], flush=True)
asyncio.run(main())
"""


def test_a_thread_that_hangs_does_not_keep_the_process(tmp_path: Path) -> None:
    command = [sys.executable, "-c", HANGS, str(Path(__file__).parent), str(tmp_path / "kept")]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=True)
    assert done.stdout.startswith("the disk of checkpoints hangs (writing ")
