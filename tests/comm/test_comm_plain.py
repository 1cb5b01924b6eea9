"""`import trainmover.comm.install` in a plain process: a script must not notice."""

import warnings
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import torch
import torch.distributed as dist
from comm_ranks import Ranks, join_live

from trainmover.comm import Groups, ShimGroup, groups
from trainmover.comm.groups import Mode
from trainmover.errors import UserError

WITHOUT_GPU = pytest.mark.skipif(Path("/dev/nvidia0").exists(), reason="None means nccl there")


@pytest.fixture(autouse=True)
def no_runtime_brings_a_token(request: pytest.FixtureRequest) -> None:
    if "ranks" in request.fixturenames:
        request.getfixturevalue("ranks").token = None


def start_as(rank: int, ranks: Ranks, backend: str | None) -> Any:
    dist.init_process_group(backend, store=ranks.connect(), rank=rank, world_size=ranks.size)
    world: Any = dist.group.WORLD
    total = torch.ones(2)
    dist.all_reduce(total)
    pair = dist.new_group([0, 1], backend="gloo", timeout=timedelta(seconds=5))
    dist.monitored_barrier(pair)
    part = world.split_group([0, 1], group_name="part")
    part.allreduce([total]).wait()
    dist.broadcast(total, 0, group=pair)
    name = dist.get_backend()
    dist.destroy_process_group()
    return type(world) is ShimGroup, name, total.tolist()


@pytest.mark.parametrize("ranks", [2], indirect=True)
@pytest.mark.parametrize("backend", ["gloo", pytest.param(None, marks=WITHOUT_GPU), "cpu:gloo"])
def test_every_way_to_ask_for_gloo_is_served(ranks: Ranks, backend: str | None) -> None:
    for ours, name, total in ranks.run(start_as, backend):
        assert ours
        assert total == [4, 4]
        assert "gloo" in name or name == "undefined"


def detailed(rank: int, ranks: Ranks) -> str:
    dist.set_debug_level(dist.DebugLevel.DETAIL)
    dist.init_process_group("gloo", store=ranks.connect(), rank=rank, world_size=ranks.size)
    dist.all_reduce(torch.ones(2))
    with pytest.raises(RuntimeError) as caught:
        dist.all_reduce(torch.ones(2 + rank))
    return str(caught.value)


@pytest.mark.parametrize("ranks", [2], indirect=True)
def test_detail_debugging_names_the_mismatch(ranks: Ranks) -> None:
    assert all("mismatch" in message.lower() for message in ranks.run(detailed))


def compiled(rank: int, ranks: Ranks) -> Any:
    import torch.distributed._functional_collectives as functional

    dist.init_process_group("gloo", store=ranks.connect(), rank=rank, world_size=ranks.size)
    groups.watching = True

    def doubled_sum(x: torch.Tensor) -> torch.Tensor:
        return functional.all_reduce(x * 2, "sum", dist.group.WORLD) + 1

    step = torch.compile(doubled_sum, backend="aot_eager", fullgraph=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return [step(torch.ones(2)).tolist() for _ in range(2)]


@pytest.mark.parametrize("ranks", [2], indirect=True)
def test_compiled_code_reaches_the_group(ranks: Ranks) -> None:
    assert ranks.run(compiled) == [[[5, 5], [5, 5]]] * 2


def timed_out(rank: int, ranks: Ranks) -> str:
    dist.init_process_group("gloo", store=ranks.connect(), rank=rank, world_size=ranks.size)
    groups.watching = True
    if rank == 0:
        with pytest.raises(RuntimeError) as caught:
            dist.monitored_barrier(timeout=timedelta(milliseconds=200))
        ranks.connect().set("over", "1")
        return str(caught.value)
    ranks.connect().wait(["over"])
    return ""


@pytest.mark.parametrize("ranks", [2], indirect=True)
def test_errors_are_raised_as_by_stock_gloo(ranks: Ranks) -> None:
    assert "failed to pass monitoredBarrier" in ranks.run(timed_out)[0]


def test_a_private_group_needs_a_runtime() -> None:
    with pytest.raises(UserError, match="gate"):
        Groups().private("gate", 0, 2)


def extend_timeouts(rank: int, ranks: Ranks) -> None:
    dist.init_process_group("gloo", store=ranks.connect(), rank=rank, world_size=ranks.size)
    internals: Any = dist.distributed_c10d
    internals._add_ephemeral_timeout_for_all_pgs(timedelta(seconds=1))


@pytest.mark.parametrize("ranks", [2], indirect=True)
def test_a_compiler_that_was_quick_may_ask_for_more_patience(ranks: Ranks) -> None:
    """inductor does, when it finds in its cache what would have taken long: of every backend."""
    ranks.run(extend_timeouts)


def sets_timeouts(rank: int, ranks: Ranks) -> tuple[timedelta, timedelta]:
    """As torchtitan does after its first step."""
    join_live(rank, ranks)
    made, internals, world = dist.new_group([0, 1]), dist.distributed_c10d, dist.group.WORLD
    internals._set_pg_timeout(timedelta(seconds=7), made)
    internals._set_pg_timeout(timedelta(seconds=9))
    assert world is not None
    return made.member.timeout, world.member.timeout  # type: ignore[attr-defined, union-attr]


@pytest.mark.parametrize("ranks", [2], indirect=True)
def test_a_timeout_that_is_set_later_is_the_group_s(ranks: Ranks) -> None:
    assert ranks.run(sets_timeouts) == [(timedelta(seconds=7), timedelta(seconds=9))] * 2


def names(rank: int, ranks: Ranks) -> list[str]:
    join_live(rank, ranks)
    made = [dist.new_group([0, 1]), dist.new_group([0, 1])]
    return [str(group.group_name) for group in (dist.group.WORLD, *made)]  # type: ignore[union-attr]


@pytest.mark.parametrize("ranks", [2], indirect=True)
def test_each_group_keeps_its_own_name(ranks: Ranks) -> None:
    assert ranks.run(names) == [["0", "1", "2"]] * 2


def over_another(rank: int, ranks: Ranks, live: bool) -> tuple[str, float]:
    internals: Any = dist.distributed_c10d
    made = lambda store, rank, size, timeout: internals.ProcessGroupGloo.stock(  # noqa: E731
        store, rank, size, timeout
    )
    dist.Backend.register_backend("elsewhere", made, devices=["cpu"])
    if live:
        join_live(rank, ranks)
    else:
        dist.init_process_group("gloo", store=ranks.connect(), rank=rank, world_size=ranks.size)
    said = ""
    try:
        group = dist.new_group([0, 1], backend="elsewhere")
        assert type(group) is not ShimGroup
    except UserError as error:
        said = str(error)
    total = torch.ones(1)
    dist.all_reduce(total)
    return said, total.item()


@pytest.mark.parametrize("ranks", [2], indirect=True)
def test_a_group_that_could_not_follow_is_refused_in_a_job_and_only_there(ranks: Ranks) -> None:
    for said, total in ranks.run(over_another, True):
        assert "talk over elsewhere" in said
        assert "cpu:gloo,cuda:nccl" in said
        assert total == 2


@pytest.mark.parametrize("ranks", [2], indirect=True)
def test_where_nobody_is_replaced_it_is_torch_s_own(ranks: Ranks) -> None:
    assert ranks.run(over_another, False) == [("", 2.0)] * 2


def test_what_torch_lacks_it_refuses_itself(monkeypatch: pytest.MonkeyPatch) -> None:
    """So that a script that tries one after the other goes on as it would."""
    if dist.is_nccl_available():
        pytest.skip("this torch has NCCL")
    monkeypatch.setattr(groups, "mode", Mode.LIVE)
    with pytest.raises(RuntimeError, match="NCCL"):
        dist.init_process_group("nccl", store=dist.HashStore(), rank=0, world_size=1)
