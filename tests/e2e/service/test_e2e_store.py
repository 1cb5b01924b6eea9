"""The store where groups meet is killed: training goes on, and machines are replaced as before."""

import random
import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager

import psutil
import pytest
from commanded import listens_at
from harness import Live, assert_equal_runs, run
from torch.distributed import TCPStore

from trainmover.controller.state import Stage

pytestmark = pytest.mark.turns(12)
SILENT_S = 2.0


def kill_store(live: Live) -> str:
    """Its address."""
    address = live.job.store or live.job.spec.store
    port = int(address.rpartition(":")[2])
    children = psutil.Process().children(recursive=True)
    (store,) = [child for child in children if port in listens_at(child)]
    store.kill()
    return address


async def lose_store(live: Live) -> None:
    address = kill_store(live)
    await live.until(lambda: live.job.store not in ("", address))


def test_a_machine_is_replaced_after_the_store_was_lost(undisturbed) -> None:
    async def scenario(live: Live) -> None:
        await live.warm(1)
        await lose_store(live)
        await live.at_step(live.step() + 3)  # Nobody has noticed.
        assert not live.job.incidents
        live.signal_worker("m2")
        await live.incidents_done(1)
        await live.at_step(live.step() + 3)

    outcome = run(["--pace", "0.02"], scenario, until_done=True, machines=3)
    assert [i.rung for i in outcome.job.incidents] in ([1], [2])
    assert_equal_runs(outcome, undisturbed(["--steps", outcome.steps], machines=3))


@contextmanager
def onlooker(live: Live) -> Iterator[set[str]]:
    """Read torch's store without end, by an agent's way to it; the keys that were seen."""
    address = way_to_torchs_store()
    store = TCPStore(*address, is_master=False, wait_for_workers=False)
    store.set("his own", "")
    seen, over = set[str](), threading.Event()

    def read() -> None:
        while not over.wait(0.0005):
            seen.update(store.list_keys())

    thread = threading.Thread(target=read)
    thread.start()
    try:
        yield seen
    finally:
        over.set()
        thread.join()


def way_to_torchs_store() -> tuple[str, int]:
    """That of one agent: of its listeners the one that waits for others to speak."""
    agents = [
        child
        for child in psutil.Process().children(recursive=True)
        if child.status() != psutil.STATUS_ZOMBIE
        and " ".join(child.cmdline()).startswith("trainmover.agent")
    ]
    for port in listens_at(agents[0]):
        with socket.create_connection(("127.0.0.1", port), SILENT_S) as link:
            try:
                link.recv(1)
            except TimeoutError:
                return "127.0.0.1", port
    raise AssertionError("an agent has no way to torch's store")


@pytest.mark.parametrize("loss", [True, False])
def test_nothing_of_the_job_lies_in_torchs_store(loss: bool) -> None:
    async def scenario(live: Live) -> None:
        await live.warm(1)
        await live.at_step(5)
        with onlooker(live) as seen:
            if loss:
                live.signal_worker("m2")
            else:
                live.handle.move("m2")
            await live.incidents_done(1)
        assert seen == {"his own"}

    outcome = run(["--pace", "0.1"], scenario, machines=3)
    assert len(outcome.job.incidents) == 1


STAGES = [Stage.DRAIN, Stage.BOUNDARY, Stage.SWITCH, Stage.BIND, Stage.PREPARE, Stage.PAUSE]


@pytest.mark.soak
@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("nproc", [1, 2])
def test_the_store_is_lost_at_any_stage_of_a_change(undisturbed, nproc: int, seed: int) -> None:
    chance = random.Random(seed)

    async def scenario(live: Live) -> None:
        for stage in STAGES:
            await live.warm(1)
            await live.at_step(live.step() + chance.randrange(1, 4))
            known = len(live.job.incidents)
            machine = chance.choice(live.job.seats)
            if stage in (Stage.DRAIN, Stage.BOUNDARY, Stage.SWITCH):
                live.signal_worker(machine)
            else:
                live.handle.move(machine)
            await live.until(lambda known=known: len(live.job.incidents) > known)
            await live.until(
                lambda stage=stage: live.job.change is None or live.job.change.stage is stage
            )
            await lose_store(live)
            await live.incidents_done(known + 1)

    outcome = run(
        ["--pace", "0.04"], scenario, until_done=True, machines=3, standbys=2, nproc=nproc
    )
    same = undisturbed(["--steps", outcome.steps], machines=3, nproc=nproc)
    assert_equal_runs(outcome, same)
