"""What a lost peer, a frozen one and a failing library come to over NCCL; planted bugs are seen.

Over the stand-in, with faults on demand. The same story is told right and with a bug planted in it:
what it tells must differ, or the test could not have seen the bug.
"""

import contextlib
import os
import signal
import threading
import time
from typing import Any

import pytest
import torch
import torch.distributed as dist
from comm_ranks import Ranks, join_live, join_with_silent_peer, meet
from fake_nccl import set_faults

from trainmover.comm import progress
from trainmover.comm.groups import groups
from trainmover.comm.nccl import ending
from trainmover.comm.nccl.device import own_device

pytestmark = [
    pytest.mark.parametrize("comm", ["nccl"], indirect=True),
    pytest.mark.parametrize("ranks", [3], indirect=True),
]

PATIENT_S = 30.0
"""Silence of a device that no busy machine comes to."""


def device() -> Any:
    return own_device(None, 0)


def one_is_killed(rank: int, ranks: Ranks, version: int) -> Any:
    """Rank 2 dies in the middle of calls; the others are told, and go on with a newcomer."""
    set_faults(version=version)
    progress.QUIET_S = PATIENT_S
    store = join_live(rank, ranks)
    pair = dist.new_group([0, 1])
    tensor = torch.ones(100_000)
    dist.all_reduce(tensor)
    meet(rank, ranks, store)
    if rank == 2:
        os.kill(os.getpid(), signal.SIGKILL)
    works = [dist.all_reduce(torch.ones(50_000), async_op=True) for _ in range(4)]
    if rank < 2:
        works.append(dist.all_reduce(torch.ones(10), group=pair, async_op=True))
    sizes = torch.full((4,), 7)
    works.append(dist.all_reduce(sizes, async_op=True))
    began = time.monotonic()
    groups.drain("rank 2 is gone", epoch=2)
    for work in works:
        work.wait()
    drained_s = time.monotonic() - began
    groups.await_empty_device()
    groups.switchover(2, ranks.connect())
    return [*go_on(), drained_s < progress.QUIET_S, sizes.tolist(), ending.endings.leaked]


def go_on() -> list[Any]:
    total = torch.ones(1000)
    dist.all_reduce(total)
    return [groups.draining, total[5].item()]


def takes_the_seat(ranks: Ranks, version: int) -> Any:
    set_faults(version=version)
    groups.sandbox()
    store = ranks.connect()
    script = dist.PrefixStore("newcomer", store)
    dist.init_process_group("nccl", store=script, rank=2, world_size=3)
    groups.switchover(2, store)
    return go_on()


@pytest.mark.parametrize("version", [22809, 21805])
def test_a_killed_peer_is_replaced(ranks: Ranks, version: int) -> None:
    """Also by a libnccl that cannot revoke, where to end a communicator frees it."""
    for rank in range(3):
        ranks.start(str(rank), one_is_killed, rank, ranks, version)
    while ranks.processes["2"].is_alive():
        time.sleep(0.01)
    ranks.start("2b", takes_the_seat, ranks, version)
    for rank in range(2):
        assert ranks.result(str(rank)) == [False, 3.0, True, [0] * 4, 0]
    assert ranks.result("2b") == [False, 3.0]


def abort_one_by_one() -> None:
    """Planted: each communicator is ended by itself, and waited for."""

    def end_each(self: Any, ones: Any, *, frees: bool) -> None:
        for one in ones:
            stock(self, [one], frees=frees)

    stock = ending.Endings._end
    ending.Endings._end = end_each  # type: ignore[method-assign]


def stuck_behind_each_other(rank: int, ranks: Ranks, planted: bool) -> int:
    """A group's kernel stands behind another group's, and neither can end by itself."""
    progress.QUIET_S = PATIENT_S
    if planted:
        abort_one_by_one()
        progress.QUIET_S = 1.0
    made = join_with_silent_peer(rank, ranks, more=1)
    late = [group.member.communicator.session.device for group in made]
    first, behind = late[::-1]  # The one that is ended last is the one that holds the others up.
    dist.all_reduce(torch.ones(10), group=made[1], async_op=True)
    device().dll.fakeStreamWaitEvent(behind.stream, first._flights[-1].event.handle)
    dist.all_reduce(torch.ones(10), async_op=True)
    groups.drain("told")
    for one in late:
        one.ended.wait()
    return ending.endings.leaked


@pytest.mark.parametrize("planted", [False, True])
def test_communicators_are_ended_together(ranks: Ranks, planted: bool) -> None:
    leaked = ranks.run_survivors(stuck_behind_each_other, planted)
    assert leaked == [2 if planted else 0] * 2


def one_is_refused(rank: int, ranks: Ranks) -> Any:
    """The library refuses to end the first communicator of two."""
    made = join_with_silent_peer(rank, ranks, more=1)
    both = [group.member.communicator.session.device for group in made]
    dist.all_reduce(torch.ones(10), async_op=True)
    dist.all_reduce(torch.ones(10), group=made[1], async_op=True)
    device().set("revoke_after", 0)
    groups.drain("told")
    for one in both:
        one.ended.wait()
    lost = [one for one in both if one.lost]
    for one in both:
        while one.unfinished and not one.lost:
            time.sleep(0.01)
    return len(lost)


def test_one_that_cannot_be_ended_holds_up_no_other(ranks: Ranks) -> None:
    assert ranks.run_survivors(one_is_refused) == [1] * 2


def deaf_kernels(rank: int, ranks: Ranks) -> Any:
    """Kernels that do not hear the abort: nobody waits for ever, and it is counted."""
    progress.QUIET_S = 0.3
    join_with_silent_peer(rank, ranks)
    device().set("deaf_ms", 10_000)
    work = dist.all_reduce(torch.ones(10), async_op=True)
    groups.drain("told")
    work.wait()
    told: list[str] = []
    groups.on_device_lost = told.append
    with contextlib.suppress(Exception):
        groups.await_empty_device()
    return ending.endings.leaked, len(told)


def test_a_deaf_kernel_is_leaked_and_told(ranks: Ranks) -> None:
    assert ranks.run_survivors(deaf_kernels) == [(1, 1)] * 2


def blocked_queries(rank: int, ranks: Ranks) -> Any:
    """The host has filled the device's queue: whoever asks about an event waits for room in it."""
    join_with_silent_peer(rank, ranks)
    session = dist.group.WORLD.member.communicator.session.device
    dist.all_reduce(torch.ones(3), async_op=True)
    device().set("query_hang", 1)
    drain = threading.Thread(target=groups.drain, args=["told"])
    drain.start()
    ended = session.ended.wait(20)
    device().set("query_hang", 0)
    drain.join()
    return ended, session.cut


def test_kernels_are_ended_before_the_device_is_asked_anything(ranks: Ranks) -> None:
    assert ranks.run_survivors(blocked_queries) == [(True, True)] * 2


def ends_within_a_launch(rank: int, ranks: Ranks) -> Any:
    """Another thread ends the epoch after the call has looked whether it is over."""
    join_with_silent_peer(rank, ranks)
    cut: list[bool] = []
    groups.on_cut_short = lambda: cut.append(True)
    session, stand_in = dist.group.WORLD.member.communicator.session.device, device()
    stock = stand_in.mark

    def mark(stream: Any) -> Any:
        if stream == session.stream:
            groups.drain("told")
        return stock(stream)

    stand_in.mark = mark
    sizes = torch.full((4,), 7)
    work = dist.all_reduce(sizes, async_op=True)
    told = bool(cut)
    work.wait()
    return told, session.cut, sizes.tolist()


def test_a_call_that_an_end_overtakes_is_cut(ranks: Ranks) -> None:
    assert ranks.run_survivors(ends_within_a_launch) == [(True, True, [0] * 4)] * 2


def is_at_rest(rank: int, ranks: Ranks, planted: bool) -> bool:
    """A call has ended that nobody has waited for, and the rank has paused at a boundary."""
    store = join_live(rank, ranks)
    dist.barrier()
    dist.all_reduce(torch.ones(3), async_op=True)
    if not planted:
        groups.come_through(lambda: False)
    meet(rank, ranks, store)
    groups.drain("a move", epoch=2)
    cut: bool = dist.group.WORLD.member.communicator.session.device.cut
    return cut


@pytest.mark.parametrize("planted", [False, True])
def test_a_call_that_is_known_to_have_ended_is_not_cut(ranks: Ranks, planted: bool) -> None:
    assert ranks.run(is_at_rest, planted) == [planted] * 3


def is_idle(rank: int, ranks: Ranks) -> list[int]:
    """Communicators of this process after each change, once what is freed is gone."""
    join_live(rank, ranks)
    idle = dist.new_group()
    dist.barrier(idle)
    counts = []
    for epoch in range(2, 6):
        dist.barrier()
        groups.drain("a move", epoch=epoch)
        groups.switchover(epoch, ranks.connect())
        dist.barrier()
        until = time.monotonic() + 10
        while device().comms > 3 and time.monotonic() < until:
            time.sleep(0.01)
        counts.append(device().comms)
    return counts


def test_a_group_that_is_never_called_piles_up_nothing(ranks: Ranks) -> None:
    """Its own of this epoch, the one that was called last, and the world's."""
    assert ranks.run(is_idle) == [[3] * 4] * 3
