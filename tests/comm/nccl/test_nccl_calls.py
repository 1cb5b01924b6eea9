"""Over the stand-in for NCCL every call of torch's gives what it gives over the native one."""

import functools
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from comm_ranks import Ranks, join_live
from torch import nn

from trainmover.comm.by_device import ByDeviceSession
from trainmover.comm.groups import groups
from trainmover.comm.nccl.device import own_device

pytestmark = [
    pytest.mark.parametrize("comm", ["nccl"], indirect=True),
    pytest.mark.parametrize("ranks", [3], indirect=True),
]
BOUNDS = [dist.ReduceOp.MAX, dist.ReduceOp.MIN]
REDUCED = [dist.ReduceOp.SUM, *BOUNDS, dist.ReduceOp.PRODUCT]
DEVICE = "cpu"
"""Where the numbers lie; tests/gpu says otherwise."""
KINDS = {
    **{t: REDUCED for t in (torch.float32, torch.float64, torch.int32, torch.int64)},
    **{t: BOUNDS for t in (torch.bfloat16, torch.float16)},  # Sums are rounded at each seat.
}


def values(rank: int, count: int, seed: int, dtype: torch.dtype = torch.float32) -> torch.Tensor:
    chance = torch.Generator().manual_seed(10 * seed + rank)
    return (4 * torch.randn(count, generator=chance)).to(dtype).to(DEVICE)


def every_call(rank: int, size: int, group: Any) -> dict[str, list[torch.Tensor]]:
    """Outputs by operation."""
    empty = functools.partial(torch.empty, device=DEVICE)
    found: dict[str, list[torch.Tensor]] = {}

    def keep(name: str, *outputs: torch.Tensor) -> None:
        found[name] = list(outputs)

    for dtype, operators in KINDS.items():
        for op in operators:
            tensor = values(rank, 70_001, 1, dtype)
            dist.all_reduce(tensor, op, group)
            keep(f"all_reduce {dtype} {op}", tensor)
    truths = values(rank, 50, 2) > 0
    dist.all_reduce(truths, group=group)
    keep("truths", truths)
    pairs = torch.complex(values(rank, 9, 3), values(rank, 9, 4))
    dist.all_reduce(pairs, group=group)
    keep("complex", pairs)
    strided = values(rank, 1000, 5).view(20, 50).t()
    dist.all_reduce(strided, group=group)
    keep("strided", strided)
    rooted = values(rank, 30, 6)
    dist.broadcast(rooted, 1, group)
    keep("broadcast", rooted)
    summed = values(rank, 30, 7)
    dist.reduce(summed, 2, group=group)
    keep("reduce", *([summed] if rank == 2 else []))
    parts = [empty(5, 3) for _ in range(size)]
    dist.all_gather(parts, values(rank, 15, 8).view(5, 3), group)
    keep("all_gather", *parts)
    gathered, scattered = empty(30 * size), empty(40_000)
    dist.all_gather_into_tensor(gathered, values(rank, 30, 9), group)
    dist.reduce_scatter_tensor(scattered, values(rank, 40_000 * size, 10), group=group)
    keep("singles", gathered, scattered)
    listed = empty(7)
    dist.reduce_scatter(listed, [values(rank, 7, 11 + seat) for seat in range(size)], group=group)
    keep("reduce_scatter", listed)
    to = [empty(4) for _ in range(size)] if rank == 0 else None
    dist.gather(values(rank, 4, 20), to, 0, group)
    keep("gather", *(to or []))
    given = [values(rank, 6, 30 + seat) for seat in range(size)] if rank == 1 else None
    part = empty(6)
    dist.scatter(part, given, 1, group)
    keep("scatter", part)
    out = empty(6 * size).view(-1, 2)
    dist.all_to_all_single(out, values(rank, 6 * size, 40).view(-1, 2), group=group)
    keep("all_to_all_single", out)
    uneven = empty(sum(rank + seat for seat in range(size)))
    splits = [rank + seat for seat in range(size)]
    dist.all_to_all_single(uneven, values(rank, sum(splits), 41), splits, splits, group=group)
    keep("uneven", uneven)
    lists = [empty(3) for _ in range(size)]
    dist.all_to_all(lists, [values(rank, 3, 50 + seat) for seat in range(size)], group=group)
    keep("all_to_all", *lists)
    bundle = [values(rank, 100, 60), values(rank, 7, 61)]
    with dist._coalescing_manager(group):
        for tensor in bundle:
            dist.all_reduce(tensor, group=group)
    keep("coalesced", *bundle)
    rows = [empty(4 * size), empty(6 * size)]
    with dist._coalescing_manager(group):
        for row, seed in zip(rows, (70, 71), strict=True):
            dist.all_gather_into_tensor(row, values(rank, row.numel() // size, seed), group)
    keep("gathered as one", *rows)
    right, left = (rank + 1) % size, (rank - 1) % size
    letter, reply = values(rank, 300_000, 80), empty(300_000)
    batch = [
        dist.P2POp(dist.isend, letter, group=group, group_peer=right),
        dist.P2POp(dist.irecv, reply, group=group, group_peer=left),
    ]
    for work in dist.batch_isend_irecv(batch):
        work.wait()
    keep("batch", reply)
    note = values(rank, 10, 81)
    if rank == 0:
        dist.send(note, group=group, group_dst=1)
    if rank == 1:
        dist.recv(note, group=group, group_src=0)
    keep("message", note)
    handles = [dist.all_reduce(values(rank, 5000, s), group=group, async_op=True) for s in range(9)]
    for handle in reversed(handles):
        handle.wait()
    futures = [handle.get_future() for handle in handles]
    keep("futures", *(future.wait()[0] for future in futures))
    dist.barrier(group)
    return found


def compare(rank: int, ranks: Ranks) -> tuple[list[str], int]:
    join_live(rank, ranks)
    device = dist.group.WORLD.member.communicator.session
    assert isinstance(device, ByDeviceSession)
    over_nccl = every_call(rank, ranks.size, dist.group.WORLD)
    groups.gpu = "staged"
    plain = dist.new_group(backend="gloo")
    assert plain.member.device is None
    over_native = every_call(rank, ranks.size, plain)
    differ = [
        name
        for name, outputs in over_native.items()
        if len(outputs) != len(over_nccl[name])
        or any(not torch.equal(a, b) for a, b in zip(outputs, over_nccl[name], strict=True))
    ]
    return differ, len(over_nccl)


def test_every_call_gives_the_bits_of_the_native_one(ranks: Ranks) -> None:
    for differ, count in ranks.run(compare):
        assert count > 30
        assert differ == []


def small_floats(rank: int, ranks: Ranks) -> list[list[float]]:
    """The largest of each: the stand-in compares bytes."""
    join_live(rank, ranks)
    found = []
    for dtype in (torch.float8_e4m3fn, torch.float8_e5m2):
        tensor = torch.tensor([rank + 1.0, 0.5 * rank]).to(dtype)
        dist.all_reduce(tensor, dist.ReduceOp.MAX)
        found.append(tensor.float().tolist())
    return found


def test_float8_is_reduced(ranks: Ranks) -> None:
    assert ranks.run(small_floats) == [[[3.0, 1.0]] * 2] * 3


def blocks_the_stream(rank: int, ranks: Ranks) -> float:
    join_live(rank, ranks)
    own_device(None, 0).set("kernel_us", 50_000)  # type: ignore[attr-defined]
    tensor = torch.ones(9)
    work: Any = dist.all_reduce(tensor, async_op=True)
    work.block_current_stream()
    return tensor[7].item()


def test_a_stream_is_blocked_until_the_call_is_over(ranks: Ranks) -> None:
    assert ranks.run(blocks_the_stream) == [3.0] * 3


def uneven_lists(rank: int, ranks: Ranks) -> list[bool]:
    """Seat n gives, and gets, n + 1 numbers; the last one none."""
    join_live(rank, ranks)
    counts = [1, 2, 0]
    parts = [torch.empty(count) for count in counts]
    dist.all_gather(parts, values(rank, counts[rank], 1))
    wanted = [values(seat, count, 1) for seat, count in enumerate(counts)]
    part = torch.empty(counts[rank], dtype=torch.int64)
    numbers = torch.int64
    given = [values(rank, count, 2, numbers) for count in counts]
    dist.reduce_scatter(part, given)
    sums = sum(values(seat, counts[rank], 2, numbers) for seat in range(ranks.size))
    return [*map(torch.equal, parts, wanted), torch.equal(part, torch.as_tensor(sums))]


def test_lists_may_be_uneven(ranks: Ranks) -> None:
    assert ranks.run(uneven_lists) == [[True] * 4] * 3


def averages(rank: int, ranks: Ranks) -> tuple[bool, bool, str]:
    """AVG, and a factor before the sum, as FSDP2 asks for them."""
    join_live(rank, ranks)
    tensor, given = values(rank, 999, 1), [values(seat, 999, 1) for seat in range(ranks.size)]
    dist.all_reduce(tensor, dist.ReduceOp.AVG)
    third = torch.tensor(1 / 3, dtype=torch.float32)
    mean = given[0] * third
    for one in given[1:]:
        mean = mean + one * third
    scaled, part = values(rank, 999, 2), torch.empty(333)
    dist.reduce_scatter_tensor(part, scaled, dist._make_nccl_premul_sum(0.25))
    whole = sum((values(seat, 999, 2) * 0.25 for seat in range(ranks.size)), torch.zeros(999))
    options: Any = dist.AllreduceOptions()
    options.reduceOp, world = dist.ReduceOp.BXOR, dist.group.WORLD
    assert world is not None
    with pytest.raises(RuntimeError) as refused:
        world.allreduce([torch.ones(3, dtype=torch.int64)], options)
    equal = torch.equal(part, whole[333 * rank : 333 * (rank + 1)])
    return torch.equal(tensor, mean), equal, str(refused.value)


def test_averages_and_factors(ranks: Ranks) -> None:
    for mean, factor, refused in ranks.run(averages):
        assert mean
        assert factor
        assert "BXOR" in refused


def several_at_once(rank: int, ranks: Ranks) -> list[float]:
    """Sub-groups, and calls of several groups in flight."""
    join_live(rank, ranks)
    pair, world = dist.new_group([0, 1]), dist.group.WORLD
    lone = dist.new_group([2])
    works: list[Any] = []
    total, two = torch.ones(100_000), torch.full((10,), float(rank + 1))
    for _ in range(5):
        works.append(dist.all_reduce(total, async_op=True))
        if rank < 2:
            works.append(dist.all_reduce(two, group=pair, async_op=True))
        else:
            dist.all_reduce(two, group=lone)
    for work in works:
        work.wait()
    dist.barrier(world)
    return [total[7].item(), two[3].item()]


def test_several_groups_are_in_flight(ranks: Ranks) -> None:
    assert ranks.run(several_at_once) == [[243.0, 48.0], [243.0, 48.0], [243.0, 3.0]]


def train(rank: int, ranks: Ranks, wrap: Callable[[nn.Module], nn.Module]) -> list[float]:
    join_live(rank, ranks)
    torch.manual_seed(0)
    model = wrap(nn.Sequential(nn.Linear(64, 256), nn.GELU(), nn.Linear(256, 1)))
    optimizer = torch.optim.AdamW(model.parameters())
    for step in range(10):
        loss = model(values(rank, 64 * 32, 100 + step).view(32, 64)).square().mean()
        loss.backward()
        optimizer.step()
        optimizer.zero_grad()
    return [p.detach().double().sum().item() for p in model.parameters()]


def in_parallel(module: nn.Module) -> nn.Module:
    return nn.parallel.DistributedDataParallel(module, bucket_cap_mb=0.01)


def test_ddp_keeps_the_replicas_equal(ranks: Ranks) -> None:
    first, *others = ranks.run(train, in_parallel)
    assert [first] * 2 == others
