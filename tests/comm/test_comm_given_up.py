"""Who goes on with what a drained call has left: he is told, and finds nothing that harms."""

import signal
import threading
from collections.abc import Callable
from typing import Any

import pytest
import torch
import torch.distributed as dist
from comm_ranks import Ranks, join_live

from trainmover.comm import DrainedObject, groups

two = pytest.mark.parametrize("ranks", [2], indirect=True)
Seen = list[str]


class Told(BaseException):
    """What a runtime raises to leave the script at once."""


def alone(rank: int, ranks: Ranks, program: Callable[[], Any], at: int = 0) -> Any:
    """Rank `at` runs the program; the other one does nothing."""
    join_live(rank, ranks)
    return program() if rank == at else signal.pause()


def with_one_that_waits(ranks: Ranks, program: Callable[[], Any], at: int = 0) -> Any:
    for rank in range(2):
        ranks.start(str(rank), alone, rank, ranks, program, at)
    return ranks.result(str(at))


def drain_soon() -> None:
    threading.Timer(0.2, groups.drain, ["told"]).start()


def objects(rank: int) -> dict[str, Callable[[], Any]]:
    """Every exchange of objects in which this rank is given some by the other."""
    peer = 1 - rank
    return {
        "all_gather_object": lambda: dist.all_gather_object([None, None], {"a": rank}),
        "gather_object": lambda: dist.gather_object("mine", [None, None], dst=rank),
        "broadcast_object_list": lambda: dist.broadcast_object_list([None, None], src=peer),
        "scatter_object_list": lambda: dist.scatter_object_list([None], None, src=peer),
        "scattered by itself": lambda: dist.scatter_object_list([None], ["a", "b"], src=rank),
        "recv_object_list": lambda: dist.recv_object_list([None], src=peer),
    }


def ask_for_objects() -> dict[str, str]:
    """Once as the drain comes, and again in it."""
    asked = objects(dist.get_rank())
    drain_soon()
    return {name: f"{outcome(ask)} {outcome(ask)}" for name, ask in asked.items()}


def outcome(ask: Callable[[], Any]) -> str:
    try:
        return f"returned {ask()}"
    except Exception as error:  # noqa: BLE001  Whichever it is: the test compares its name.
        return type(error).__name__


@two
@pytest.mark.parametrize("at", [0, 1])
def test_no_object_is_made_of_what_a_drained_call_has_left(ranks: Ranks, at: int) -> None:
    said = with_one_that_waits(ranks, ask_for_objects, at)
    name = DrainedObject.__name__
    assert said == dict.fromkeys(objects(0), f"{name} {name}")


def bytes_that_break_off() -> list[str]:
    """The sizes came, the bytes did not: what was allocated for them holds anything."""
    size, held = torch.tensor([64]), torch.full((64,), 128, dtype=torch.uint8)
    internals: Any = dist.distributed_c10d
    groups.drain("told")
    said = []
    for receive in (
        lambda: dist.broadcast(held, src=1),
        lambda: dist.all_gather([held, held.clone()], torch.zeros(64, dtype=torch.uint8)),
        lambda: dist.recv(held, src=1),
        lambda: dist.all_reduce(held),
    ):
        held.fill_(128)
        receive()
        said.append(outcome(lambda: internals._tensor_to_object(held, size, None)))
    return said


@two
def test_bytes_that_never_came_are_not_unpickled(ranks: Ranks) -> None:
    assert with_one_that_waits(ranks, bytes_that_break_off) == ["DrainedObject"] * 4


def sizes_in_place() -> dict[str, list[int]]:
    garbage = 10**15
    said = {}
    begun: list[tuple[str, Any, torch.Tensor]] = []
    for name, ask in {
        "all_reduce": lambda t: dist.all_reduce(t, async_op=True),
        "broadcast to this": lambda t: dist.broadcast(t, src=1, async_op=True),
        "broadcast from this": lambda t: dist.broadcast(t, src=0, async_op=True),
        "reduce to this": lambda t: dist.reduce(t, dst=0, async_op=True),
        "reduce to the other": lambda t: dist.reduce(t, dst=1, async_op=True),
        "recv": lambda t: dist.irecv(t, src=1),
    }.items():
        held = torch.tensor([garbage])
        begun.append((name, ask(held), held))
        begun.append(
            (name + ", not in one piece", ask(part := torch.tensor([[garbage, 5]]).t()[:1]), part)
        )
    groups.drain("told")
    for name, work, held in begun:
        work.wait()
        said[name] = held.flatten().tolist()
        if "from this" not in name and "other" not in name:
            assert held.flatten().tolist() == [0], name
    again = torch.tensor([garbage])
    dist.broadcast(again, src=0)
    dist.all_reduce(kept := torch.tensor([0.5]))
    assert (again.item(), kept.item()) == (garbage, 0.5)
    return said


@two
def test_integers_that_a_drained_call_was_to_write_are_zero(ranks: Ranks) -> None:
    said = with_one_that_waits(ranks, sizes_in_place)
    kept = [10**15]
    assert {name for name, values in said.items() if values == kept} == {
        "broadcast from this",
        "broadcast from this, not in one piece",
        "reduce to the other",
        "reduce to the other, not in one piece",
    }


def leave() -> None:
    raise Told


def where_it_is_told() -> dict[str, str]:
    said = {}
    groups.on_given_up = leave
    x = torch.ones(4)
    work = dist.all_reduce(x, async_op=True)
    future = dist.all_reduce(x, async_op=True).get_future()
    drain_soon()
    said["blocking"] = told(lambda: dist.all_reduce(x))
    said["waiting"] = told(lambda: work.wait())
    said["waiting again"] = told(lambda: work.wait())
    said["a future"] = told(lambda: future.wait())
    said["drained"] = told(lambda: dist.all_reduce(x))
    said["drained, in the background"] = told(lambda: dist.all_reduce(x, async_op=True))
    said["monitored"] = told(dist.monitored_barrier)
    said["from C++"] = told(lambda: dist._broadcast_coalesced(dist.group.WORLD, [x], 100, 0))
    thread = threading.Thread(target=lambda: said.update(thread=told(lambda: dist.all_reduce(x))))
    thread.start()
    thread.join()
    said["backward"] = told(lambda: Sums.apply(x.clone().requires_grad_()).sum().backward())
    return said


class Sums(torch.autograd.Function):
    """Sums gradients over all ranks, as tensor parallelism does."""

    @staticmethod
    def forward(ctx: Any, value: torch.Tensor) -> torch.Tensor:
        return value * 2

    @staticmethod
    def backward(ctx: Any, gradient: torch.Tensor) -> torch.Tensor:
        dist.all_reduce(gradient := gradient.clone())
        return gradient


def told(ask: Callable[[], Any]) -> str:
    try:
        ask()
    except Told:
        return "told"
    return "nothing"


@two
def test_the_main_thread_is_told_where_it_gets_garbage_and_nobody_else(ranks: Ranks) -> None:
    said = with_one_that_waits(ranks, where_it_is_told)
    silent = {"a future", "thread", "backward"}
    assert said == {name: "nothing" if name in silent else "told" for name in said}


def count_calls(rank: int, ranks: Ranks) -> list[int]:
    store = join_live(rank, ranks)
    gate = groups.private("gate", rank, ranks.size)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(4, 4))
    counts = [groups.calls]

    def counted(ask: Callable[[], Any]) -> None:
        before = groups.calls
        ask()
        counts.append(groups.calls - before)

    counted(lambda: gate.all_reduce(torch.ones(1)))
    counted(lambda: dist.all_reduce(torch.ones(1)))
    counted(lambda: dist.barrier())
    counted(lambda: model(torch.ones(2, 4)).sum().backward())
    store.set(f"counted/{rank}", "")
    store.wait([f"counted/{other}" for other in range(ranks.size)])
    groups.drain("told")
    counted(lambda: dist.all_reduce(torch.ones(1)))
    return counts[1:]


@two
def test_calls_of_the_script_are_counted_also_those_of_ddp(ranks: Ranks) -> None:
    for counts in ranks.run(count_calls):
        ours, one, barrier, backward, drained = counts
        assert (ours, one, barrier, drained) == (0, 1, 1, 1)
        assert backward >= 1


def call_of_a_group_that_never_meets() -> list[str]:
    """It is apart, as one that others have made in the past, and its first call waits for them."""
    groups.roster.comes_late = lambda member: True  # type: ignore[method-assign]
    apart = dist.new_group([0, 1])
    told: list[str] = []
    groups.on_cut_short = lambda: told.append("cut short")
    groups.on_given_up = lambda: told.append("given up")
    drain_soon()
    dist.all_reduce(torch.ones(1), group=apart)
    return told


@two
def test_a_call_that_waits_for_its_group_is_cut_short_by_the_end_of_the_epoch(ranks: Ranks) -> None:
    """What it leaves is no value, so whoever must not go on with it has to know first."""
    told = with_one_that_waits(ranks, call_of_a_group_that_never_meets)
    assert told == ["cut short", "given up"]
