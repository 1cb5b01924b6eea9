"""What a variable's value is in the record."""

import gc
import weakref
from argparse import Namespace
from collections import OrderedDict
from typing import Any

import pytest
import torch
import torch.distributed as dist
from hypothesis import given
from hypothesis import strategies as st
from torch import nn
from torch.distributed.device_mesh import init_device_mesh
from torch.distributed.tensor import DTensor, Shard
from torch.testing._internal.distributed.fake_pg import FakeStore

from trainmover.state.script.things.things import Things
from trainmover.state.script.things.views import Views
from trainmover.state.script.values import entry_of, same, shown, standing_for


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


PLAIN = st.sampled_from([None, True, 1, 1.0, 0.0, -0.0, float("nan"), 2**70, "a", "b", b"a", ""])
NAMED = st.dictionaries(st.sampled_from(["a", "b", "c"]), PLAIN)


def filled(container: Any, values: Any) -> Any:
    """The very container, which holds these now."""
    held = vars(container) if isinstance(container, Namespace) else container
    held.clear()
    (held.extend if isinstance(held, list) else held.update)(values)
    return container


@given(
    st.sampled_from([list, dict, OrderedDict, Namespace]).flatmap(
        lambda kind: st.tuples(st.just(kind), *[st.lists(PLAIN) if kind is list else NAMED] * 2)
    )
)
def test_a_container_of_plain_values_that_holds_what_it_held_is_the_same(case: Any) -> None:
    kind, before, after = case
    container = filled(kind(), before)
    entry, standing = entry_of(container), standing_for(container, Things())
    assert standing is not None
    assert standing.tells(filled(container, before), kind)
    if standing.tells(filled(container, after), kind):
        assert same(entry_of(container), entry)


@pytest.mark.parametrize(
    "value",
    [
        *([[1]], {"a": [1]}, {1: 2}, [torch.ones(1)], {1}, bytearray(b"a"), [0] * 257),
        *(
            Namespace(a=[1]),
            type("Own", (list,), {})(),
            Namespace(**{f"a{n}": n for n in range(257)}),
        ),
    ],
    ids=str,
)
def test_others_are_folded_at_each_look(value: object) -> None:
    assert standing_for(value, Things()) is None


def test_of_a_namespace_from_which_something_goes_along_that_has_no_part() -> None:
    things, options = Things(), Namespace(best=1.0)
    things.untracked.kept[id(options)] = {"best"}
    assert standing_for(options, things) is None


class Meter:
    total = 0.0


class Row(dict[str, float]):
    """Told by what it holds."""


def own_things() -> Things:
    things = Things(is_own=lambda kind: kind in (Meter, Row))
    things.places.is_open = False
    return things


def test_an_object_of_the_scripts_is_itself_and_is_not_kept_alive() -> None:
    things, meter = own_things(), Meter()
    entry_of(meter, things=things)
    standing = standing_for(meter, things)
    assert standing is not None
    assert standing.tells(meter, Meter)
    meter.total = 2.0  # A variable of its own.
    assert standing.tells(meter, Meter)
    assert not standing.tells(Meter(), Meter)
    reference = weakref.ref(meter)
    del meter
    gc.collect()
    assert reference() is None


def test_one_that_holds_or_has_become_another_is_not() -> None:
    things, row, meter = own_things(), Row(), Meter()
    entry_of([row, meter], things=things)
    assert standing_for(row, things) is None
    standing = standing_for(meter, things)
    assert standing is not None
    meter.__class__ = type("Other", (Meter,), {})
    assert not standing.tells(meter, type(meter))


def test_code_is_told_by_its_constants_too() -> None:
    one, other = (compile(f"x / (0.5 + {level})", "rule", "eval") for level in (1.5, 2.5))
    again = compile("x / (0.5 + 1.5)", "rule", "eval")
    assert not same(entry_of(one), entry_of(other))
    assert same(entry_of(one), entry_of(again))
