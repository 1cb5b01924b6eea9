"""A lost or stopped peer never holds a rank, and never raises into the script."""

import os
import signal
import threading
from typing import Any

import pytest
import torch
import torch.distributed as dist
from comm_ranks import Ranks, join_live, meet

from trainmover.comm import Drained, groups
from trainmover.comm.calls.arguments import ALL_OPS


def stop_or_be_drained(rank: int, ranks: Ranks, how: signal.Signals) -> Any:
    store = join_live(rank, ranks)
    seen: list[str] = []
    groups.on_broken = seen.append
    tensor = torch.ones(100_000)
    dist.all_reduce(tensor)
    if rank == 3:
        store.set("stopping", "1")
        os.kill(os.getpid(), how)
    store.wait(["stopping"])
    if how is signal.SIGSTOP:  # Nobody notices a stopped peer, so somebody has to say it.
        threading.Timer(0.2, groups.drain, ["told"]).start()
    work = dist.all_reduce(tensor, async_op=True)
    dist.all_reduce(torch.ones(1))
    assert work is not None
    work.wait()
    dist.barrier()
    return groups.draining, len(seen)


def test_a_stopped_peer_holds_nobody(ranks: Ranks) -> None:
    for rank in range(4):
        ranks.start(str(rank), stop_or_be_drained, rank, ranks, signal.SIGSTOP)
    assert all(ranks.result(str(rank))[0] for rank in range(3))


def test_a_killed_peer_is_reported_once_by_everybody(ranks: Ranks) -> None:
    for rank in range(4):
        ranks.start(str(rank), stop_or_be_drained, rank, ranks, signal.SIGKILL)
    assert [ranks.result(str(rank)) for rank in range(3)] == [(True, 1)] * 3


def arguments(op: str) -> tuple[Any, ...]:
    """A valid call of `op` on a group of two, seen from seat 0."""
    one, two = torch.ones(2), torch.ones(4)
    pair = [torch.ones(2), torch.ones(2)]
    gather, scatter = dist.GatherOptions(), dist.ScatterOptions()
    gather.rootRank = scatter.rootRank = 0
    known: dict[str, tuple[Any, ...]] = {
        "allgather": ([pair], [one]),
        "allgather_coalesced": ([[one], [one.clone()]], [one]),
        "gather": ([pair], [one], gather),
        "scatter": ([one], [pair], scatter),
        "reduce_scatter": ([one], [pair]),
        "alltoall": (pair, [one, one.clone()]),
        "alltoall_base": (two, two.clone(), [], []),
        "all_to_all_single": (two, two.clone(), [], []),
        "recv": ([one], 1, 0),
        "recv_anysource": ([one], 0),
        "barrier": (),
        "monitored_barrier": (),
    }
    coalesced = ("into_tensor_coalesced", "single_coalesced", "tensor_coalesced")
    if op == "send":  # More than the buffers of a socket take.
        return ([torch.ones(4_000_000)], 1, 0)
    if op in known:
        return known[op]
    if op.startswith(("_allgather", "all_gather", "allgather")):
        return ([two], [one]) if op.endswith(coalesced) else (two, one)
    if "reduce_scatter" in op:
        return ([one], [two]) if op.endswith(coalesced) else (one, two)
    return ([one],)


def drain_in_every_form(rank: int, ranks: Ranks) -> Any:
    join_live(rank, ranks)
    world: Any = dist.group.WORLD
    if rank == 1:
        return signal.pause()
    works, issued, returned = {}, [], []
    ops = [op for op in ALL_OPS if op == "monitored_barrier" or begins(world, op, works)]

    def call(op: str) -> None:
        work = getattr(world, op)(*arguments(op))
        issued.append(op)
        returned.append((op, work is None or work.wait()))

    threads = [threading.Thread(target=call, args=[op], daemon=True) for op in ops]
    for thread in threads:
        thread.start()
    futures = {op: work.get_future() for op, work in works.items() if op != "broadcast"}
    while not all_wait(world, len(issued), len(ops)):
        threading.Event().wait(0.005)
    open_before = [op for op, future in futures.items() if not future.done()]
    groups.drain("test")
    for thread in threads:
        thread.join()
    works["broadcast"].wait()
    closed = [op for op, future in futures.items() if isinstance(future.wait(), list)]
    again = [(op, w is None or w.wait()) for op in ops for w in [call_now(world, op)]]
    return ops, open_before, closed, sorted(returned), again


def begins(world: Any, op: str, works: dict[str, Any]) -> bool:
    """Make the call. False if the installed torch's gloo lacks the operation (2.11: alltoall)."""
    try:
        works[op] = call_now(world, op)
    except RuntimeError as error:
        if "does not support" not in str(error):
            raise
        return False
    return True


def all_wait(world: Any, issued: int, ops: int) -> bool:
    """Handles of the native communicator end by themselves; it keeps no list of them."""
    watch = world._member.watch
    if watch.prompt is not None:
        return issued == ops - 1  # All but the monitored barrier, which has no handle.
    return len(watch._waiting) >= 2 * ops - 3


def call_now(world: Any, op: str) -> Any:
    return getattr(world, op)(*arguments(op))


@pytest.mark.parametrize("ranks", [2], indirect=True)
def test_every_operation_drains_in_every_form(ranks: Ranks) -> None:
    ranks.start("1", drain_in_every_form, 1, ranks)
    ranks.start("0", drain_in_every_form, 0, ranks)
    ops, open_before, closed, returned, again = ranks.result("0")
    asked = [op for op in ops if op not in ("monitored_barrier", "broadcast")]
    assert set(asked) - set(open_before) <= {"send"}
    assert closed == asked
    assert returned == sorted((op, True) for op in ops)
    assert again == [(op, True) for op in ops]


def misuse(rank: int, ranks: Ranks) -> str:
    store = join_live(rank, ranks)
    with pytest.raises((RuntimeError, ValueError)) as caught:
        dist.all_gather([torch.ones(2), torch.ones(3)], torch.ones(2))
    assert not groups.draining
    meet(rank, ranks, store)
    return str(caught.value)


@pytest.mark.parametrize("ranks", [2], indirect=True)
def test_a_call_that_could_never_work_still_raises(ranks: Ranks) -> None:
    assert all("tensor" in message for message in ranks.run(misuse))


def wait_at_gate(rank: int, ranks: Ranks) -> str:
    store = ranks.connect()
    groups.use_store(store, 1)
    gate = groups.private("gate", rank, ranks.size)
    total = torch.tensor([rank + 1])
    gate.all_reduce(total)
    assert total.item() == 10
    meet(rank, ranks, store)
    if rank == 2:
        groups.drain("this rank knows something")
    with pytest.raises(Drained):
        gate.all_reduce(total)
    return "drained"


def test_a_gate_that_cannot_complete_says_so_on_every_rank(ranks: Ranks) -> None:
    assert ranks.run(wait_at_gate) == ["drained"] * 4


def count_what_is_cut_short(rank: int, ranks: Ranks) -> tuple[int, int]:
    """After a drain in a group of ours, and after a later call of the script."""
    store = join_live(rank, ranks)
    gate = groups.private("gate", rank, ranks.size)
    meet(rank, ranks, store)
    counts: list[int] = []
    groups.on_cut_short = lambda: counts.append(1)
    if rank == 0:
        threading.Timer(0.2, groups.drain, ["told"]).start()
        with pytest.raises(Drained):
            gate.all_reduce(torch.ones(1))
    else:
        groups.drain("told")
    ours = len(counts)
    dist.all_reduce(torch.ones(1))
    return ours, len(counts)


def test_only_a_call_of_the_script_counts_as_cut_short(ranks: Ranks) -> None:
    for rank in range(4):
        ranks.start(str(rank), count_what_is_cut_short, rank, ranks)
    assert [ranks.result(str(rank)) for rank in range(4)] == [(0, 1)] * 4
