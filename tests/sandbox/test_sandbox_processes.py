"""Real ranks record what they do; then each does it again alone, from its record or a twin's."""

import os
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from sandbox_calls import BINDING, closed
from torch.distributed import _functional_collectives as functional
from torch.distributed.distributed_c10d import _coalescing_manager

from tests.comm.comm_ranks import Ranks, join_live
from trainmover.comm import ReplayMismatch, groups
from trainmover.sandbox import layout
from trainmover.sandbox.recorder import Recorder
from trainmover.sandbox.replayer import Replayer

Script = Callable[[int], Any]


def record(rank: int, ranks: Ranks, script: Script, *, full: bool = True) -> tuple[Any, bytes]:
    """What the script gave on this rank, and its record."""
    join_live(rank, ranks)
    recorder = Recorder(rank, BINDING, full=full)
    groups.tap = recorder
    result = script(rank)
    closed(recorder, "")
    await_end(recorder)
    recorded = recorder.finish()
    groups.close()
    dist.destroy_process_group()
    return result, layout.to_bytes(recorded)


def await_end(recorder: Recorder) -> None:
    """A call's end may be heard in another thread, a moment after the script has its result."""
    until = time.monotonic() + 10
    while recorder.waits and time.monotonic() < until:
        time.sleep(0.001)
    assert not recorder.waits, recorder._open


def replay(rank: int, size: int, script: Script, data: bytes) -> tuple[Any, str]:
    """What the script gives as that rank without any peer, and the trace."""
    groups.sandbox()
    groups.tap = replayer = Replayer(layout.from_bytes(data))
    groups.rendezvous_store = dist.HashStore
    dist.init_process_group("gloo", rank=rank, world_size=size)
    try:
        result = script(rank)
        replayer.check()
        return result, replayer.trace()
    finally:
        dist.destroy_process_group()
        groups.close()


def alone(rank: int, ranks: Ranks, script: Script) -> tuple[bool, bool, str]:
    """Whether a first and a second run in the sandbox gave what the live one did, and its trace."""
    real, data = record(rank, ranks, script)
    again = [replay(rank, ranks.size, script, data) for _ in range(2)]
    assert {trace for _, trace in again} == {layout.from_bytes(data).trace}
    return again[0][0] == real, again[1][0] == real, again[0][1]


def check(ranks: Ranks, script: Script, *, traces: int = 1) -> None:
    """Every rank is replayed alone; `traces`: so many roles they have by what they call."""
    outcomes = ranks.run(alone, script)
    assert [(first, second) for first, second, _ in outcomes] == [(True, True)] * ranks.size
    assert len({trace for *_, trace in outcomes}) == traces


# --- what scripts do ------------------------------------------------------------------------------


def handles_and_futures(rank: int) -> list[Any]:
    one, two = torch.full((3,), float(rank)), torch.full((2000,), rank * 2.0)
    works = [dist.all_reduce(each, async_op=True) for each in (one, two)]
    works[0].wait()
    future = works[1].get_future().then(lambda done: done.value()[0] * 2)
    rest = [torch.zeros(2) for _ in range(4)]
    dist.all_gather(rest, torch.full((2,), float(rank)))
    dist.barrier()
    dist.monitored_barrier()
    return [one.tolist(), future.wait().sum().item(), [each.tolist() for each in rest]]


def sub_groups(rank: int) -> list[Any]:
    """Neighbours and halves: names of meshes differ from rank to rank, what they are does not."""
    mesh = dist.init_device_mesh("cpu", (2, 2), mesh_dim_names=("data", "tensor"))
    total = torch.tensor([float(rank)])
    dist.all_reduce(total, group=mesh["data"].get_group())
    dist.all_reduce(total, group=mesh["tensor"].get_group())
    own = dist.new_group([rank])
    dist.all_reduce(total, group=own)
    return [total.item()]


def objects(rank: int) -> list[Any]:
    names: list[Any] = [None] * 4
    dist.all_gather_object(names, {"rank": rank, "text": "x" * rank})
    said = [names[3], "said"] if rank == 0 else [None, None]
    dist.broadcast_object_list(said)
    part: list[Any] = [None]
    dist.scatter_object_list(part, [f"part {r}" for r in range(4)] if rank == 0 else None)
    gathered: list[Any] | None = [None] * 4 if rank == 2 else None
    dist.gather_object(part[0], gathered, dst=2)
    return [names, said, part, gathered]


def uneven_exchange(rank: int) -> list[Any]:
    """As experts do: first how much everybody gets, then the tokens, then back."""
    counts = torch.tensor([(rank + other) % 3 for other in range(4)])
    coming = torch.empty_like(counts)
    dist.all_to_all_single(coming, counts)
    tokens = torch.full((int(counts.sum()), 300), float(rank))
    got = torch.empty(int(coming.sum()), 300)
    dist.all_to_all_single(got, tokens, coming.tolist(), counts.tolist())
    back = torch.empty_like(tokens)
    dist.all_to_all_single(back, got * 2, counts.tolist(), coming.tolist())
    return [coming.tolist(), got.sum(1).tolist(), back.sum(1).tolist()]


def tried(rank: int) -> list[Any]:
    """It tries what no backend can do, and goes another way."""
    parts = [torch.full((2,), float(rank)), torch.ones(3)]
    assert dist.group.WORLD is not None
    try:
        dist.group.WORLD.allreduce(parts)
    except RuntimeError as error:
        said = [type(error).__name__, str(error)]
    for part in parts:
        dist.all_reduce(part)
    return [*said, *(part.tolist() for part in parts)]


def listed_exchange(rank: int) -> list[Any]:
    """Refused by gloo before torch 2.12."""
    parts = [torch.full((2,), float(rank + n)) for n in range(4)]
    got = [torch.zeros(2) for _ in range(4)]
    try:
        dist.all_to_all(got, parts)
    except RuntimeError as error:
        if "gloo does not support alltoall" not in str(error):
            raise
    return [each.tolist() for each in got]


def messages(rank: int) -> list[Any]:
    """A pipeline's: to the next, from the one before, in a batch, and from anybody."""
    here, there = torch.full((3,), float(rank)), torch.zeros(3)
    if rank < 3:
        dist.send(here, rank + 1)
    if rank > 0:
        dist.recv(there, rank - 1)
    after, before = (rank + 1) % 4, (rank - 1) % 4
    ring = torch.zeros(3)
    batch = [dist.P2POp(dist.isend, here, after), dist.P2POp(dist.irecv, ring, before)]
    for work in dist.batch_isend_irecv(batch):
        work.wait()
    sources = []
    if rank == 1:
        for _ in (0, 1):
            sources.append(dist.recv(there))
    elif rank in (2, 3):
        dist.send(here, 1)
    return [there.tolist(), ring.tolist(), sources]


def coalesced(rank: int) -> list[Any]:
    tensors = [torch.full((n,), float(rank)) for n in (1, 2, 3)]
    with _coalescing_manager(async_ops=True) as works:
        for each in tensors:
            dist.all_reduce(each)
    works.wait()
    gathered = functional.all_gather_into_tensor_coalesced(tensors, dist.group.WORLD)
    scattered = functional.reduce_scatter_tensor_coalesced(
        gathered, "sum", [0] * 3, dist.group.WORLD
    )
    return [t.tolist() for t in [*tensors, *gathered, *scattered]]


def compiled(rank: int) -> list[float]:
    """Collectives inside one compiled graph, called twice."""

    def step(x: torch.Tensor) -> torch.Tensor:
        total = functional.all_reduce(x * 2, "sum", dist.group.WORLD)
        whole = functional.all_gather_tensor(total + 1, 0, dist.group.WORLD)
        return functional.reduce_scatter_tensor(whole, "sum", 0, dist.group.WORLD).cos()

    torch._dynamo.reset()
    run = torch.compile(step, backend="aot_eager", fullgraph=True)
    return [run(torch.full((3,), float(rank + n))).sum().item() for n in range(2)]


def parallel_model(rank: int) -> list[float]:
    """DDP through three steps, with the rebuild of its buckets in the second."""
    torch.manual_seed(rank)
    net = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.BatchNorm1d(64))
    model = torch.nn.parallel.DistributedDataParallel(net)
    losses = []
    for _ in range(3):
        loss = model(torch.randn(4, 64)).square().mean()
        loss.backward()
        with torch.no_grad():
            for parameter in model.parameters():
                parameter -= 0.1 * parameter.grad
        losses.append(loss.item())
    return losses


@pytest.mark.turns(8)
@pytest.mark.parametrize(
    "script", [handles_and_futures, sub_groups, coalesced, parallel_model, tried]
)
def test_ranks_of_one_role_are_replayed_alone(ranks: Ranks, script: Script) -> None:
    check(ranks, script)


def test_every_end_of_an_exchange_of_objects_is_replayed(ranks: Ranks) -> None:
    """Roots do what others do not: three roles."""
    check(ranks, objects, traces=3)


@pytest.mark.parametrize("script", [uneven_exchange, listed_exchange])
def test_exchanges_are_replayed_and_make_no_roles(ranks: Ranks, script: Script) -> None:
    check(ranks, script)


def test_messages_are_replayed_with_the_seat_they_came_from(ranks: Ranks) -> None:
    check(ranks, messages, traces=4)


@pytest.mark.turns(8)
@pytest.mark.parametrize("ranks", [2], indirect=True)
def test_compiled_code_is_recorded_and_replayed(ranks: Ranks) -> None:
    check(ranks, compiled)


# --- twins and strangers --------------------------------------------------------------------------


def with_a_twins_record(rank: int, ranks: Ranks) -> bool:
    """Made-up values, another rank's record: the script runs through, its numbers are finite."""
    _, data = record(rank, ranks, parallel_model, full=False)
    records: list[Any] = [None] * 4
    dist.init_process_group("gloo", store=ranks.connect(), rank=rank, world_size=4)
    dist.all_gather_object(records, data)
    dist.destroy_process_group()
    groups.close()
    losses, trace = replay(rank, 4, parallel_model, records[(rank + 1) % 4])
    return all(0 < loss < 1e3 for loss in losses) and trace == layout.from_bytes(data).trace


def test_a_ranks_record_serves_all_of_its_role(ranks: Ranks) -> None:
    assert ranks.run(with_a_twins_record) == [True] * 4


def by_chance(rank: int) -> None:
    """A script whose collectives depend on what the clock says."""
    calls = [lambda: dist.all_reduce(torch.ones(2)), dist.barrier]
    for each in reversed(calls) if os.environ.get("ITS_LATE") else calls:
        each()


def too_late(rank: int, ranks: Ranks) -> str:
    _, data = record(rank, ranks, by_chance)
    os.environ["ITS_LATE"] = "1"
    with pytest.raises(ReplayMismatch) as refusal:
        replay(rank, ranks.size, by_chance, data)
    return str(refusal.value)


def test_a_script_that_depends_on_time_is_refused_in_plain_words(ranks: Ranks) -> None:
    said = ranks.run(too_late)
    assert "is barrier of nothing" in said[2]
    assert "rank 2 had recorded allreduce of 2 float32, SUM" in said[2]
    assert "time, chance or data cannot have standbys" in said[2]
