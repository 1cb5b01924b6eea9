"""What a script says for a backend, and what carries its group then: never torch's own unasked."""

import os
import subprocess
import sys
from typing import Any

import pytest
import torch
import torch.distributed as dist
from comm_ranks import Ranks, join_live
from fake_nccl import built, set_faults

from trainmover.comm.groups import groups
from trainmover.comm.nccl.device import own_device
from trainmover.comm.shim import ShimGroup
from trainmover.communicators import NCCL, STAGED, checked_gpu
from trainmover.errors import UserError

NAMED = [NCCL, "cpu:gloo,cuda:nccl", "cuda:nccl,cpu:gloo", None]
over_nccl = pytest.mark.parametrize("comm", ["nccl"], indirect=True)
of_two = pytest.mark.parametrize("ranks", [2], indirect=True)


def name_a_backend(rank: int, ranks: Ranks, backend: str | None, gpu: str) -> Any:
    groups.gpu = gpu
    store = ranks.connect()
    groups.use_store(store, 1)
    script = dist.PrefixStore("script", store)
    dist.init_process_group(backend, store=script, rank=rank, world_size=ranks.size)
    world, total = dist.group.WORLD, torch.ones(3)
    assert isinstance(world, ShimGroup)
    dist.all_reduce(total)
    return world.member.device is not None, total.tolist()


@over_nccl
@of_two
@pytest.mark.parametrize("backend", NAMED)
@pytest.mark.parametrize("gpu", [STAGED, NCCL])
def test_every_way_to_name_nccl_is_served(ranks: Ranks, backend: str | None, gpu: str) -> None:
    carried = gpu == NCCL and backend is not None  # torch finds no GPU here.
    assert ranks.run(name_a_backend, backend, gpu) == [(carried, [2.0] * 3)] * 2


@over_nccl
@of_two
def test_gloo_by_name_stays_on_the_host(ranks: Ranks) -> None:
    assert ranks.run(name_a_backend, "gloo", NCCL) == [(False, [2.0] * 3)] * 2


def shadow_run(rank: int, ranks: Ranks) -> list[int]:
    """Bytes that the library has moved, without a peer, after each of two groups."""
    groups.gpu = NCCL
    groups.sandbox()
    store = ranks.connect()
    script = dist.PrefixStore(f"alone/{rank}", store)
    dist.init_process_group(NCCL, store=script, rank=rank, world_size=ranks.size)
    moved: Any = own_device(None, 0)
    first = moved.bytes_moved
    dist.new_group([0, 1])
    return [first, moved.bytes_moved]


@over_nccl
@of_two
def test_a_standby_has_used_the_library_before_it_has_peers(ranks: Ranks) -> None:
    assert ranks.run(shadow_run) == [[1, 1]] * 2


def test_who_does_not_use_it_does_not_load_it() -> None:
    program = "import sys, trainmover.worker.process\n"
    program += "assert not [m for m in sys.modules if m.startswith('trainmover.comm.nccl')]"
    environment = {k: v for k, v in os.environ.items() if k != "TRAINMOVER_NCCL"}
    subprocess.run([sys.executable, "-c", program], check=True, env=environment)


def old_library(rank: int, ranks: Ranks, version: int, missing: bool) -> str:
    set_faults(version=version)
    os.environ["TRAINMOVER_NCCL"] = "/nowhere/libnccl.so" if missing else str(built())
    try:
        name_a_backend(rank, ranks, NCCL, NCCL)
    except UserError as error:
        return str(error)
    return ""


@over_nccl
@of_two
@pytest.mark.parametrize(
    ("version", "missing", "said"), [(21703, False, "2.17.3"), (0, True, "no")]
)
def test_a_library_that_will_not_do_is_named(
    ranks: Ranks, version: int, missing: bool, said: str
) -> None:
    for text in ranks.run(old_library, version, missing):
        assert "libnccl" in text
        assert said in text
        assert "--gpu-comm staged" in text


@pytest.mark.parametrize(("gpu", "name"), [("quick", "native"), (NCCL, "gloo")])
def test_what_cannot_be_is_refused(gpu: str, name: str) -> None:
    with pytest.raises(UserError):
        checked_gpu(gpu, name)


def scratch_elsewhere(rank: int, ranks: Ranks) -> list[Any]:
    """The group talks from another device than the current one of the thread."""
    join_live(rank, ranks)
    world: Any = dist.group.WORLD
    session, stand_in = world.member.communicator.session.device, own_device(None, 0)
    stand_in.device = torch.device("meta")
    first, second = session.scratch(), session.scratch()
    return [first.device.type, first is second]


@over_nccl
@of_two
def test_a_barrier_has_its_element_on_the_device_of_the_group(ranks: Ranks) -> None:
    assert ranks.run(scratch_elsewhere) == [["meta", True]] * 2


def receives_from_any(rank: int, ranks: Ranks) -> str:
    join_live(rank, ranks)
    world: Any = dist.group.WORLD
    with pytest.raises(RuntimeError) as refused:
        world.recv_anysource([torch.empty(3)], 0)
    return str(refused.value)


@over_nccl
@of_two
def test_to_receive_from_any_rank_is_refused_for_tensors_of_the_device(ranks: Ranks) -> None:
    """Over the host it would never meet what is sent over NCCL."""
    for said in ranks.run(receives_from_any):
        assert "recv from any rank" in said
