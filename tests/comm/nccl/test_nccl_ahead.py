"""What a host that runs ahead of its device waits for, believes, holds and leaves behind.

Over the stand-in; planted bugs are seen.
"""

import contextlib
import os
import threading
import time
from typing import Any

import pytest
import torch
import torch.distributed as dist
from comm_ranks import Ranks, join_live, join_with_silent_peer

from trainmover.comm import device_end, progress
from trainmover.comm.groups import groups
from trainmover.comm.nccl import ending
from trainmover.comm.nccl.device import own_device
from trainmover.comm.nccl.stage import Stage

pytestmark = [
    pytest.mark.parametrize("comm", ["nccl"], indirect=True),
    pytest.mark.parametrize("ranks", [3], indirect=True),
]


def device() -> Any:
    return own_device(None, 0)


def works_through_its_queue(rank: int, ranks: Ranks, planted: bool) -> Any:
    """A peer dies while many seconds of work are queued, kernels with collectives between them."""
    os.environ["FAKE_NCCL_WAIT"] = "late"
    progress.QUIET_S = 2.0
    if planted:  # A deadline from the beginning, whatever the device completes.
        progress.Stall.is_over = stalls_by_the_clock  # type: ignore[method-assign]
    told: list[str] = []
    groups.on_device_lost = told.append
    join_with_silent_peer(rank, ranks)
    for _ in range(50):
        device().compute(100_000)
        dist.all_reduce(torch.ones(10))
    groups.drain("told")
    with contextlib.suppress(Exception):
        groups.await_empty_device()
    world: Any = dist.group.WORLD
    world.member.communicator.session.device.ended.wait()
    return ending.endings.leaked, len(told), device().is_empty(device().caller)


def stalls_by_the_clock(stall: progress.Stall) -> bool:
    return time.monotonic() - stall._since >= progress.QUIET_S


@pytest.mark.parametrize(("planted", "wanted"), [(False, (0, 0, True)), (True, (1, 1, False))])
def test_a_device_with_a_long_queue_is_waited_for(
    ranks: Ranks, planted: bool, wanted: tuple[int, int, bool]
) -> None:
    assert ranks.run_survivors(works_through_its_queue, planted) == [wanted] * 2


def believed(rank: int, ranks: Ranks, planted: str) -> Any:
    """What the gate would let through, and what a retry would put back, with the host ahead."""
    os.environ["FAKE_NCCL_WAIT"] = "late"
    join_with_silent_peer(rank, ranks)
    tensor = torch.ones(10)
    dist.all_reduce(tensor)  # Returns: on a device the host runs ahead.
    if planted == "gate":
        device_end.come_through = lambda *_: True
    threading.Timer(0.2, groups.drain, ["rank 2 is gone"]).start()
    passes = groups.come_through(lambda: groups.draining)
    while not groups.draining:
        time.sleep(0.01)
    side = device().stream()
    device().compute(300_000)
    device().compute(600_000, side)  # As FSDP2 adds gradients: the script has not joined it.
    if planted == "retry":
        device_end.await_empty = lambda *_: None
    if planted == "one stream":
        type(device()).synchronize = only_the_callers
    groups.await_empty_device()
    return passes, device().is_empty(device().caller) and device().is_empty(side)


def only_the_callers(stand_in: Any) -> None:
    while not stand_in.is_empty(stand_in.caller):
        time.sleep(0.001)


@pytest.mark.parametrize(
    ("planted", "wanted"),
    [
        ("", (False, True)),
        ("gate", (True, True)),
        ("retry", (False, False)),
        ("one stream", (False, False)),
    ],
)
def test_nothing_is_believed_before_the_device_has_it(
    ranks: Ranks, planted: str, wanted: tuple[bool, bool]
) -> None:
    assert ranks.run_survivors(believed, planted) == [wanted] * 2


def indices_cut_short(rank: int, ranks: Ranks, planted: bool) -> Any:
    """Sizes were on their way when their peer died, and the host was ahead: its waits are over."""
    os.environ["FAKE_NCCL_WAIT"] = "late"
    if planted:
        Stage.blanked = []  # type: ignore[assignment]
    join_with_silent_peer(rank, ranks)
    sizes, row, whole = (torch.full((n,), 10**6) for n in (3, 3, 9))
    lists = [torch.full((3,), 10**6) for _ in range(3)]
    dist.all_to_all_single(sizes, torch.ones(3, dtype=torch.int64))
    dist.all_gather(lists, row)
    dist.all_gather_into_tensor(whole, whole[3 * rank : 3 * rank + 3])
    groups.drain("told")
    groups.await_empty_device()
    return [sizes.tolist(), lists[2].tolist(), row.tolist(), whole.tolist()]


@pytest.mark.parametrize("planted", [False, True])
def test_integers_that_never_came_are_zero(ranks: Ranks, planted: bool) -> None:
    """Garbage of theirs would be taken for indices. What the call reads stays as it is."""
    left = 10**6 if planted else 0
    for sizes, listed, row, whole in ranks.run_survivors(indices_cut_short, planted):
        assert sizes[2] == left
        assert planted or listed == [0] * 3
        assert (row, whole) == ([10**6] * 3, [10**6] * 9)


def held_memory(rank: int, ranks: Ranks) -> list[int]:
    """Tensors that the runtime holds for calls under way: waited for, and not."""
    os.environ["FAKE_NCCL_WAIT"] = "late"
    join_live(rank, ranks)
    dist.barrier()
    device().compute(2_000_000)
    session = dist.group.WORLD.member.communicator.session.device
    held = []
    for async_op in (False, True):
        work = dist.all_gather_into_tensor(torch.empty(9), torch.ones(3), async_op=async_op)
        held.append(len(session._flights[-1].keep))
        assert not device().has_come(session._flights[-1].event)
    work.wait()
    return [*held, len(session._flights[-1].keep)]


def test_memory_is_held_no_longer_than_until_the_wait(ranks: Ranks) -> None:
    """Else a host that runs ahead piles up what each call has read and written."""
    for held in ranks.run(held_memory):
        assert held == [0, 2, 0]


def read_from_futures(rank: int, ranks: Ranks, planted: bool) -> Any:
    """Whoever waits for a future in C++ reads final numbers."""
    join_live(rank, ranks)
    if planted:  # A future that holds nobody.
        type(device()).promise = lambda self, event, stream, value: settled(value)
    dist.barrier()
    device().set("kernel_us", 50_000)
    tensor = torch.ones(1000)
    work = dist.all_reduce(tensor, async_op=True)
    assert work is not None
    return work.get_future().wait()[0][7].item()


def settled(value: Any) -> Any:
    future: torch.futures.Future[Any] = torch.futures.Future()
    future.set_result(value)
    return future


@pytest.mark.parametrize("planted", [False, True])
def test_a_future_holds_who_waits_for_it(ranks: Ranks, planted: bool) -> None:
    assert ranks.run(read_from_futures, planted) == [1.0 if planted else 3.0] * 3
