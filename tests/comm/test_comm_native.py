"""What the native communicator promises beyond what torch's own tests ask of any group."""

import gc
import os
import signal
import threading
from contextlib import suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from comm_ranks import Ranks, join_live

from trainmover.comm import CallsDiffer, groups
from trainmover.comm.native.endpoint import endpoint, host_id

pytestmark = pytest.mark.parametrize("comm", ["native"], indirect=True)
two = pytest.mark.parametrize("ranks", [2], indirect=True)


def start(rank: int, ranks: Ranks) -> Any:
    dist.init_process_group("gloo", store=ranks.connect(), rank=rank, world_size=ranks.size)
    return dist.group.WORLD


def strided(rank: int, ranks: Ranks) -> Any:
    """Tensors that do not lie in one piece, in every role, waited for in every way."""
    world = start(rank, ranks)
    column = torch.full((3, 2), float(rank + 1))[:, 0]
    dist.all_reduce(column)
    late = torch.full((3, 2), float(rank + 1))[:, 0]
    handle = dist.all_reduce(late, async_op=True)
    future = handle.get_future().wait()
    parts = [torch.zeros(2, 3).t() for _ in range(2)]
    dist.all_gather(parts, torch.full((3, 2), float(rank)))
    polled = torch.zeros(4, 2)[:, 1]
    work = world.broadcast([polled if rank else torch.ones(4)], 0)
    while not work.is_completed():
        pass
    spread = torch.zeros(2, 2).t()
    dist.reduce_scatter(spread, [torch.ones(2, 2).t() * (part + 1) for part in range(2)])
    return (
        column.tolist(),
        late.tolist(),
        future[0] is late,
        [p.mean().item() for p in parts],
        polled.tolist() if rank else [1.0] * 4,
        spread.mean().item(),
    )


@two
def test_tensors_that_are_not_in_one_piece_are_filled(ranks: Ranks) -> None:
    for rank, answer in enumerate(ranks.run(strided)):
        assert answer == ([3] * 3, [3] * 3, True, [0, 1], [1] * 4, 2 * (rank + 1))


def odd_types(rank: int, ranks: Ranks) -> Any:
    start(rank, ranks)
    moved = []
    for dtype in (torch.float8_e4m3fn, torch.complex64, torch.bool, torch.uint16, torch.complex32):
        value = torch.ones(5).to(dtype) if rank == 0 else torch.zeros(5).to(dtype)
        dist.broadcast(value, 0)
        moved.append(bool((value.to(torch.complex64) == 1).all()))
    total = torch.tensor([complex(1, rank), 2j])
    dist.group.WORLD.allreduce([total]).wait()
    conjugated = torch.tensor([1 + 2j]).conj()
    dist.group.WORLD.allreduce([conjugated]).wait()
    empty = torch.zeros(0)
    dist.all_reduce(empty)
    with pytest.raises(RuntimeError, match="cannot be reduced"):
        dist.all_reduce(torch.ones(2).to(torch.float8_e4m3fn))
    with pytest.raises(RuntimeError, match="invalid call"):
        dist.all_reduce(torch.ones(2), op=dist.ReduceOp.BAND)
    return moved, total.tolist(), conjugated.resolve_conj().tolist()


@two
def test_every_type_can_be_moved_and_numbers_be_added(ranks: Ranks) -> None:
    assert ranks.run(odd_types) == [([True] * 5, [2 + 1j, 4j], [2 - 4j])] * 2


def sparse(rank: int, ranks: Ranks) -> Any:
    start(rank, ranks)
    index = [[0, 2], [1, 1]] if rank else [[2], [1]]
    value = torch.sparse_coo_tensor(index, [1.0, 2.0] if rank else [10.0], (4, 3))
    dist.all_reduce(value)
    assert value.is_coalesced()
    none = torch.sparse_coo_tensor(torch.zeros(2, 0, dtype=torch.long), [], (4, 3))
    dist.all_reduce(none)
    return value.to_dense().nonzero().tolist(), value.values().tolist(), none._nnz()


@two
def test_sparse_tensors_add_up(ranks: Ranks) -> None:
    assert ranks.run(sparse) == [([[0, 1], [2, 1]], [1, 12], 0)] * 2


def uneven(rank: int, ranks: Ranks) -> Any:
    start(rank, ranks)
    mine = torch.arange(3.0) + 10 * rank
    single = torch.zeros(2 if rank == 0 else 4)
    dist.all_to_all_single(single, mine, [1, 1] if rank == 0 else [2, 2], [1, 2])
    lists = [torch.zeros(0 if rank else 2), torch.zeros(1)]
    given = [torch.ones(2), torch.ones(0)] if rank == 0 else [torch.ones(1), torch.ones(1)]
    dist.all_to_all(lists, given)
    return single.tolist(), [part.tolist() for part in lists]


@two
def test_uneven_and_empty_parts_find_their_ways(ranks: Ranks) -> None:
    first, second = ranks.run(uneven)
    assert first == ([0, 10], [[1, 1], [1]])
    assert second == ([1, 2, 11, 12], [[], [1]])


def dropped(rank: int, ranks: Ranks) -> Any:
    """The handle and the tensor of a receive are forgotten while it runs."""
    world = start(rank, ranks)
    store = ranks.connect()
    big = 3_000_000
    if rank == 0:
        world.recv([torch.zeros(big)], 1, 7)
        world.send([torch.full((big,), 2.0)], 1, 8)
        gc.collect()
        store.set("forgotten", "1")
        ballast = [torch.ones(big) for _ in range(4)]
        dist.barrier()
        return all(bool((part == 1).all()) for part in ballast)
    store.wait(["forgotten"])
    world.send([torch.full((big,), 5.0)], 0, 7).wait()
    received = torch.zeros(big)
    world.recv([received], 0, 8).wait()
    dist.barrier()
    return bool((received == 2).all())


@two
def test_a_call_keeps_its_tensors_when_nobody_else_does(ranks: Ranks) -> None:
    assert ranks.run(dropped) == [True, True]


def futures_in_futures(rank: int, ranks: Ranks) -> Any:
    """A callback that waits for another future: PowerSGD's hook does."""
    world = start(rank, ranks)

    def again(done: Any) -> Any:
        inner = world.allreduce([done.value()[0] * 2]).get_future()
        return inner.wait()[0] + 1

    first = world.allreduce([torch.ones(3)]).get_future().then(again).wait()
    more = [world.allreduce([torch.ones(1)]).get_future() for _ in range(20)]
    return first.tolist(), sum(int(each.wait()[0]) for each in more)


@two
def test_a_callback_may_wait_for_another_call(ranks: Ranks) -> None:
    assert ranks.run(futures_in_futures) == [([9, 9, 9], 40)] * 2


def told_of_one_end(rank: int, ranks: Ranks) -> list[bool]:
    """Two before the call is over, one once the first of them has been told."""
    start(rank, ranks)
    handle: Any = dist.irecv(torch.zeros(1), 1 - rank)
    when_done, told = handle._session.completer.when_done, [threading.Event() for _ in range(3)]
    for event in told[:2]:
        when_done(handle._ticket, event.set)
    dist.send(torch.ones(1), 1 - rank)
    early = [event.wait(5) for event in told[:2]]
    when_done(handle._ticket, told[2].set)
    return [*early, told[2].wait(5)]


@two
def test_whoever_asks_is_told_of_the_end_of_a_call(ranks: Ranks) -> None:
    """Who asks late, and who is not the only one: a future of a call that has a copy behind it."""
    assert ranks.run(told_of_one_end) == [[True] * 3] * 2


def differ(rank: int, ranks: Ranks) -> Any:
    start(rank, ranks)
    return both_calls_named(rank)


def differ_live(rank: int, ranks: Ranks) -> Any:
    join_live(rank, ranks)
    return both_calls_named(rank)


def both_calls_named(rank: int) -> str:
    dist.barrier()
    try:
        if rank == 0:
            dist.all_reduce(torch.ones(8))
        else:
            dist.broadcast(torch.ones(8), 0)
    except CallsDiffer as error:
        return str(error)
    return "drained" if groups.draining else "nothing"


@two
@pytest.mark.parametrize("program", [differ, differ_live])
def test_different_calls_are_an_error_that_names_both(ranks: Ranks, program: Any) -> None:
    if program is differ:
        ranks.token = None
    answers = ranks.run(program)
    told = [answer for answer in answers if answer not in ("drained", "nothing")]
    assert told
    for message in told:
        assert "all_reduce" in message
        assert "broadcast" in message


def lose_a_peer(rank: int, ranks: Ranks) -> str:
    start(rank, ranks)
    dist.barrier()
    if rank == 1:
        os.kill(os.getpid(), signal.SIGKILL)
    with pytest.raises(RuntimeError, match="Connection closed by peer") as caught:
        dist.all_reduce(torch.ones(100_000))
    with pytest.raises(RuntimeError, match="Connection closed"):
        dist.all_reduce(torch.ones(1), async_op=True).wait()
    return str(caught.value)


@two
def test_a_lost_peer_raises_without_a_runtime(ranks: Ranks) -> None:
    for rank in range(2):
        ranks.start(str(rank), lose_a_peer, rank, ranks)
    assert "seat 1" in ranks.result("0")


def too_late(rank: int, ranks: Ranks) -> str:
    world = start(rank, ranks)
    store = ranks.connect()
    if rank == 1:
        store.wait(["over"])
        return ""
    with pytest.raises(RuntimeError, match="Operation timed out"):
        world.recv([torch.zeros(1)], 1, 0).wait(timedelta(milliseconds=10))
    in_time: Any = dist.BarrierOptions()
    in_time.timeout, in_time.asyncOp = timedelta(milliseconds=20), False
    with pytest.raises(RuntimeError, match="Timed out waiting 20ms") as caught:
        world.barrier(in_time)
    store.set("over", "1")
    return str(caught.value)


@two
def test_a_call_may_have_a_deadline_of_its_own(ranks: Ranks) -> None:
    assert ranks.run(too_late)[0]


def another_token(rank: int, ranks: Ranks) -> tuple[bool, str]:
    """Whether somebody was met; and what the runtime hears, which goes on in another epoch."""
    heard: list[str] = []
    groups.on_broken = heard.append
    groups.drain_on_error = True
    groups.choose("native", f"token {rank}".encode())
    groups.use_store(ranks.connect(), 1)
    gate = groups.private("gate", rank, 2, timeout=timedelta(seconds=2))
    return gate._member.watch is not None, " ".join(heard)


@two
def test_a_process_with_another_token_is_not_let_in(ranks: Ranks) -> None:
    for met, heard in ranks.run(another_token):
        assert not met
        assert "connect: " in heard


def one_endpoint(rank: int, ranks: Ranks) -> Any:
    store = join_live(rank, ranks)
    assert ranks.token is not None
    dist.new_group([0, 1])
    before = endpoint(ranks.token).native.links()
    dist.all_reduce(torch.ones(4))
    groups.drain("test", epoch=2)
    stats = groups.switchover(2, store)
    after = endpoint(ranks.token).native.links()
    return [[link["inode"] for link in links] for links in (before, after)], stats.kept


@two
def test_links_are_the_same_sockets_before_and_after(ranks: Ranks) -> None:
    for (before, after), kept in ranks.run(one_endpoint):
        assert before == after
        assert (len(before), kept) == (1, 2)


def test_processes_of_one_host_have_one_name(comm: str, monkeypatch: pytest.MonkeyPatch) -> None:
    assert host_id() == host_id()
    monkeypatch.setenv("TRAINMOVER_HOST_ID", "elsewhere")
    assert host_id() == "elsewhere"


def listening(rank: int, ranks: Ranks) -> Any:
    """How many doors this process has beside the endpoint's own."""
    before = _listening_ports()
    start(rank, ranks)
    dist.all_reduce(torch.ones(2))
    dist.new_group([0, 1])
    own = endpoint(ranks.token).native.address.rpartition(":")[2]
    return len(_listening_ports() - before - {int(own)})


def _listening_ports() -> set[int]:
    own = set()
    for number in os.listdir("/proc/self/fd"):
        with suppress(OSError):
            own.add(os.readlink(f"/proc/self/fd/{number}"))
    rows = [
        line.split()
        for table in ("tcp", "tcp6")
        for line in Path(f"/proc/self/net/{table}").read_text().splitlines()[1:]
    ]
    is_listening = "0A"
    return {
        int(row[1].rpartition(":")[2], 16)
        for row in rows
        if row[3] == is_listening and f"socket:[{row[9]}]" in own
    }


@two
def test_nobody_listens_but_the_endpoint(ranks: Ranks) -> None:
    assert ranks.run(listening) == [0, 0]
