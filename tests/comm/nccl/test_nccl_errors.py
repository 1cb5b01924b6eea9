"""What errors of the library, of an init and of the device come to over NCCL, over the stand-in."""

import contextlib
import time
from typing import Any

import pytest
import torch
import torch.distributed as dist
from comm_ranks import Ranks, join_live, meet
from fake_nccl import set_faults

from trainmover.comm.groups import groups
from trainmover.comm.nccl.device import own_device

pytestmark = [
    pytest.mark.parametrize("comm", ["nccl"], indirect=True),
    pytest.mark.parametrize("ranks", [3], indirect=True),
]


def device() -> Any:
    return own_device(None, 0)


def errs_while_the_script_stands(rank: int, ranks: Ranks) -> bool:
    """In a wait of torch's: nobody asks the library."""
    join_live(rank, ranks)
    dist.barrier()
    device().set("error_after", 0)
    dist.all_reduce(torch.ones(3), async_op=True)
    until = time.monotonic() + 30
    while not groups.draining and time.monotonic() < until:
        time.sleep(0.01)
    return groups.draining


def test_an_error_that_nobody_asks_for_ends_the_epoch(ranks: Ranks) -> None:
    assert ranks.run(errs_while_the_script_stands) == [True] * 3


def errs_in_the_background(rank: int, ranks: Ranks) -> Any:
    join_live(rank, ranks)
    dist.barrier()
    said: list[str] = []
    groups.on_broken = said.append
    device().set("error_after", 0)
    dist.all_reduce(torch.ones(3), async_op=True)
    return groups.come_through(lambda: False), groups.draining, len(said), said[0]


def test_an_error_that_nobody_waits_for_ends_the_epoch_at_the_gate(ranks: Ranks) -> None:
    for passes, draining, count, said in ranks.run(errs_in_the_background):
        assert (passes, draining, count) == (False, True, 1)
        assert "remote process exited" in said


def fails_with_code(rank: int, ranks: Ranks, fault: str, code: int) -> Any:
    """What the script sees of it, and whether the epoch ends over it."""
    join_live(rank, ranks)
    dist.barrier()
    device().set("error_code", code)
    device().set(fault, 0 if fault == "error_after" else code)
    try:
        world: Any = dist.group.WORLD
        world.allreduce([torch.ones(3)]).wait()
    except Exception as error:  # noqa: BLE001  whatever it is, the test looks at it
        return type(error).__name__, "the stand-in says so" in str(error), groups.draining
    return "", True, groups.draining


@pytest.mark.parametrize("fault", ["call_fails", "error_after"])
@pytest.mark.parametrize(
    ("code", "seen"),
    [
        (1, "AcceleratorError"),
        (2, ""),
        (3, "NcclError"),
        (4, "NcclError"),
        (5, "NcclError"),
        (6, ""),
    ],
)
def test_only_a_lost_peer_ends_the_epoch(ranks: Ranks, fault: str, code: int, seen: str) -> None:
    """A mistake that was taken for one would be made again in every epoch, and never be read."""
    for found in ranks.run(fails_with_code, fault, code):
        assert found == (seen, True, not seen)


def fails_at_the_gate(rank: int, ranks: Ranks, code: int) -> Any:
    join_live(rank, ranks)
    dist.barrier()
    told: list[str] = []
    groups.on_device_lost = told.append
    device().set("error_code", code)
    device().set("error_after", 0)
    dist.all_reduce(torch.ones(3), async_op=True)
    try:
        groups.come_through(lambda: False)
    except Exception as error:  # noqa: BLE001  whatever it is, the test looks at it
        return type(error).__name__, len(told), groups.draining
    return "", len(told), groups.draining


@pytest.mark.parametrize(
    ("code", "wanted"), [(1, ("DeviceLost", 1, False)), (5, ("NcclError", 0, False))]
)
def test_the_gate_tells_a_mistake_and_a_device_from_a_peer(
    ranks: Ranks, code: int, wanted: tuple[str, int, bool]
) -> None:
    assert ranks.run(fails_at_the_gate, code) == [wanted] * 3


def refusal() -> str:
    """Return what a call raises. Not by way of torch's functions: what they log of an error asks a
    build that has NCCL."""
    world: Any = dist.group.WORLD
    try:
        world.allreduce([torch.ones(3)])
    except Exception as error:  # noqa: BLE001  whatever it is, the test looks at it
        return f"{type(error).__name__}: {error}"
    return ""


def refused_with(rank: int, ranks: Ranks, fault: str, value: int) -> str:
    """Set a fault while nothing is under way whose event could tell it; return the refusal."""
    join_live(rank, ranks)
    dist.barrier()
    device().set(fault, value)
    return refusal()


def adds_otherwise(rank: int, ranks: Ranks) -> str:
    join_live(rank, ranks)
    dist.barrier()
    device().set("reversed", 1)
    groups.drain("a move", epoch=2)
    groups.switchover(2, ranks.connect())
    return refusal()


def test_other_bits_after_a_change_are_refused(ranks: Ranks) -> None:
    for said in ranks.run(adds_otherwise):
        assert said.startswith("StateMismatch: ")
        assert "another order" in said


def init_goes_wrong(rank: int, ranks: Ranks, fault: str) -> Any:
    """Phase 1 of an epoch that does not come, while training goes on."""
    store = join_live(rank, ranks)
    dist.barrier()
    if rank == 1:
        device().set(fault, 6 if fault == "init_fail" else 1)
    groups.prepare(2, store)
    prepared = groups.prepared(2)
    if fault == "init_fail":
        assert prepared.wait(20)
    else:
        assert not prepared.wait(0.3)
    total = torch.ones(3)
    dist.all_reduce(total)
    groups.discard(2)
    leaked = groups.stats().leaked
    error = type(groups_error(prepared)).__name__
    meet(rank, ranks, store)
    return total[0].item(), error, leaked


def groups_error(prepared: Any) -> Any:
    assert prepared.wait(20)
    return prepared.error


@pytest.mark.parametrize(("fault", "error"), [("init_fail", "PeerLost"), ("init_hang", "Drained")])
def test_an_init_that_fails_or_hangs_holds_nobody(ranks: Ranks, fault: str, error: str) -> None:
    for total, found, _ in ranks.run(init_goes_wrong, fault):
        assert (total, found) == (3.0, error)


def test_a_call_under_capture_is_refused(ranks: Ranks) -> None:
    assert all("graph is captured" in said for said in ranks.run(refused_with, "capturing", 1))


def device_fails(rank: int, ranks: Ranks) -> list[str]:
    join_live(rank, ranks)
    dist.barrier()
    told: list[str] = []
    groups.on_device_lost = told.append
    dist.all_reduce(torch.ones(3), async_op=True)
    device().set("device_error", 719)
    with contextlib.suppress(Exception):
        groups.come_through(lambda: False)
    return told


def test_a_lost_device_refuses_the_next_call(ranks: Ranks) -> None:
    assert all("719" in said for said in ranks.run(refused_with, "device_error", 719))


def test_a_device_that_is_lost_is_told(ranks: Ranks) -> None:
    assert all("719" in told[0] for told in ranks.run(device_fails))


def other_version(rank: int, ranks: Ranks) -> str:
    """Nobody may talk to a machine with another libnccl: it would hang, or add otherwise."""
    set_faults(version=22809 + (rank == 2))
    said: list[str] = []
    groups.on_broken = said.append
    store = ranks.connect()
    groups.use_store(store, 1)
    script = dist.PrefixStore("script", store)
    dist.init_process_group("nccl", store=script, rank=rank, world_size=ranks.size)
    return said[0]


def test_another_version_on_a_machine_is_named(ranks: Ranks) -> None:
    for said in ranks.run(other_version):
        assert "seat 2 has libnccl 2.28.10, seat 0 has 2.28.9" in said
