"""Snapshots of a device's state that are copied while the next step computes: whole, or none.

Memory of this host passes for a device's, and a copy waits until the test lets it go on.
"""

import queue
import threading
from collections.abc import Callable, Iterator

import pytest
import torch
from torch import Tensor, nn

from trainmover.ids import Epoch, Rank, Step
from trainmover.protocol.messages import Snapped, Warned, WorkerFact
from trainmover.rank.cuts import BUSY, VOID
from trainmover.state import staging
from trainmover.state.proof import device_digest
from trainmover.state.proof.digest import hashes_of
from trainmover.state.tracked import Tracked
from trainmover.state.transfer import Offered, StateServer
from trainmover.worker.keep.snapshots import Snapshots
from trainmover.worker.step import changes
from trainmover.worker.step.changes import Changes

RANK, EPOCH, TOKEN = Rank(2), Epoch(1), b"t" * 32
COUNT = 1000


class Process:
    """goes: the late copies may go on; begun: how many have begun."""

    def __init__(self) -> None:
        self.said: queue.Queue[WorkerFact] = queue.Queue()
        self.server = StateServer(TOKEN)
        self.snapshots = Snapshots(TOKEN, self.server, self.said.put)
        self.snapshots.keep(10, now=False)
        self.goes = threading.Event()
        self.begun = threading.Semaphore(0)
        self.near, self.far = torch.ones(COUNT), torch.full((COUNT,), 2.0)

    def copy(self, flat: Tensor, place: Tensor, behind: object = None) -> None:
        """Half of it, then the rest."""
        half = len(flat) // 2
        place[:half].copy_(flat[:half])
        if threading.current_thread().name == "tm-late-copy":
            self.begun.release()
            self.goes.wait()
        place[half:].copy_(flat[half:])

    def take(self, step: int) -> None:
        tensors = [self.near, self.far]
        state = Offered(b"header", tensors, hashes=hashes_of(tensors))
        self.snapshots.take(
            RANK, Step(step), state, epoch=EPOCH, vault="", begun_ns=0, step_us=100, later=[1]
        )
        self.begun.acquire()

    def end(self) -> WorkerFact:
        self.goes.set()
        self.snapshots.finish()
        return self.said.get(timeout=30)


@pytest.fixture
def process(monkeypatch: pytest.MonkeyPatch) -> Iterator[Process]:
    process = Process()
    monkeypatch.setattr(staging, "copy_to_host", process.copy)
    monkeypatch.setattr(device_digest, "lies_elsewhere", lambda tensor: True)
    yield process
    process.goes.set()
    process.snapshots.finish()
    process.snapshots.clear()
    process.server.close()


def test_the_update_waits_for_it_and_what_is_kept_is_of_the_boundary(process: Process) -> None:
    process.take(10)
    assert process.snapshots.flag(RANK, Step(11)) == BUSY
    assert process.said.empty(), "it is not there yet"
    fact = process.end()
    process.far.add_(1.0)
    assert isinstance(fact, Snapped)
    held = process.snapshots.of(RANK, Step(10))
    assert held is not None
    values = [tensor.view(torch.float32)[[0, -1]].tolist() for tensor in held.tensors]
    assert values == [[1.0, 1.0], [2.0, 2.0]]
    assert held.is_whole


def test_finish_waits_until_the_copy_is_over(process: Process) -> None:
    process.take(10)
    updater = threading.Thread(target=process.snapshots.finish)
    updater.start()
    updater.join(0.05)
    assert updater.is_alive()
    process.goes.set()
    updater.join(30)
    assert not updater.is_alive()
    process.snapshots.finish()  # Nothing is left to wait for.


def add(process: Process) -> None:
    process.far.add_(1.0)


def add_unseen(process: Process) -> None:
    process.far.data[-1] = 7.0


def add_and_take_back_unseen(process: Process) -> None:
    process.far.data[-1] = 7.0
    process.snapshots.distrust("far may have been written to unseen")
    process.far.data[-1] = 2.0


def add_and_take_back(process: Process) -> None:
    process.far[-1] = 7.0
    process.far[-1] = 2.0


@pytest.mark.parametrize("writes", [add, add_unseen, add_and_take_back, add_and_take_back_unseen])
def test_a_copy_that_was_written_to_is_given_up(
    process: Process, writes: Callable[[Process], None]
) -> None:
    process.take(10)
    writes(process)
    told = process.end()
    assert isinstance(told, Warned)
    assert "step 10 is given up" in told.text
    assert "written to" in told.text
    assert process.snapshots.of(RANK, Step(10)) is None
    assert process.snapshots.flag(RANK, Step(11)) == VOID
    process.snapshots.agreed(VOID)
    process.take(12)
    assert isinstance(process.end(), Snapped)


def test_one_that_was_dropped_meanwhile_is_no_news(process: Process) -> None:
    process.take(10)
    process.snapshots.changed(10)
    add(process)
    process.goes.set()
    process.snapshots.finish()
    assert process.said.empty()
    assert process.snapshots.flag(RANK, Step(11)) != VOID


def test_an_error_of_the_device_makes_it_none(
    process: Process, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fails(*_: object) -> None:
        process.begun.release()
        raise RuntimeError("CUDA error: unspecified launch failure\nand more")

    tensors = [process.near, process.far]
    monkeypatch.setattr(staging, "copy_to_host", fails)
    state = Offered(b"", tensors, hashes=hashes_of(tensors))
    process.snapshots.take(
        RANK, Step(10), state, epoch=EPOCH, vault="", begun_ns=0, step_us=1, later=[0, 1]
    )
    told = process.end()
    assert isinstance(told, Warned)
    assert told.text.endswith("CUDA error: unspecified launch failure")


# --- what may be copied late -------------------------------------------------------------------


@pytest.fixture
def _distant(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(changes, "lies_elsewhere", lambda tensor: True)


class Trains:
    """A model with a buffer."""

    def __init__(self) -> None:
        self.tracked, self.changes = Tracked(), Changes()
        self.model = nn.BatchNorm1d(4)
        self.optimizer = torch.optim.AdamW(self.model.parameters())
        self.tracked.add("model", self.model)
        self.tracked.add("optimizer", self.optimizer)

    def steps(self, count: int, *, early: bool = False) -> None:
        for _ in range(count):
            self.changes.begin(self.tracked)
            self.model(torch.randn(8, 4)).sum().backward()
            if early:
                self.model.weight.data.add_(1.0)
            self.changes.look()
            self.optimizer.step()

    def late(self) -> set[str]:
        header, tensors = self.tracked.bulk_header()
        paths = self.tracked.bulk_paths(header)
        return {paths[number] for number in self.changes.of_updates(self.tracked, tensors)}


@pytest.mark.usefixtures("_distant")
def test_only_what_updates_alone_write_to_is_copied_late() -> None:
    trains = Trains()
    trains.steps(2)
    assert trains.late() == set(), "first steps show what a script does"
    trains.steps(20)
    late = trains.late()
    assert {"model.weight", "model.bias"} <= late
    assert any("exp_avg" in path for path in late)
    assert not any("running" in path or "batches" in path for path in late)


@pytest.mark.usefixtures("_distant")
def test_where_steps_change_state_early_nothing_is() -> None:
    trains = Trains()
    trains.steps(20, early=True)
    assert trains.late() == set()


def test_what_lies_on_the_host_is_copied_at_once() -> None:
    trains = Trains()
    trains.steps(20)
    assert trains.late() == set()
