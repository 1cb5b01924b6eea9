"""What a variable's value is in the record."""

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard
from torch.testing._internal.distributed.fake_pg import FakeStore

from trainmover.state.script.things.views import Views
from trainmover.state.script.values import entry_of, same, shown


def test_what_shows_tracked_memory_has_no_value_of_its_own() -> None:
    model = nn.Linear(3, 2)
    views = Views([("model", model)])
    shown = [parameter.detach().numpy() for parameter in model.parameters()]
    before = entry_of(shown, views=views), entry_of(model.weight.detach()[1], views=views)
    shown[0] *= 2
    assert before == (entry_of(shown, views=views), entry_of(model.weight.detach()[1], views=views))
    assert not same(before[1], entry_of(model.weight.detach()[0], views=views))
    assert not same(before[0], entry_of([one.copy() for one in shown], views=views))
    assert not same(before[0], entry_of(shown[::-1], views=views))
    model.weight.data = torch.ones(2, 3)  # It has other memory now: that one is the script's own.
    assert not same(before[0], entry_of(shown, views=views))


def test_of_one_sharded_element_the_rank_without_it_has_a_value_too() -> None:
    """As FSDP2 has it of the bias of a layer with one output."""
    dist.init_process_group("fake", store=FakeStore(), rank=1, world_size=2)
    try:
        mesh = init_device_mesh("cpu", (2,))
        here, elsewhere = (
            DTensor.from_local(
                torch.zeros(count), mesh, [Shard(0)], run_check=False, shape=(1,), stride=(1,)
            )
            for count in (1, 0)
        )
        assert shown(entry_of(here)) == "tensor(0.0)"
        assert shown(entry_of(elsewhere)) == "a tensor of shape 1"
    finally:
        dist.destroy_process_group()


def test_a_mesh_is_another_value_than_none() -> None:
    """One that is made between two steps is missing where these lines were passed over."""
    dist.init_process_group("fake", store=FakeStore(), rank=1, world_size=4)
    try:
        mesh, alike = (init_device_mesh("cpu", (2, 2), mesh_dim_names=("a", "b")) for _ in range(2))
        assert same(entry_of(mesh), entry_of(alike))
        assert not same(entry_of(mesh), entry_of(None))
        assert not same(entry_of(mesh), entry_of(mesh["a"]))
    finally:
        dist.destroy_process_group()
