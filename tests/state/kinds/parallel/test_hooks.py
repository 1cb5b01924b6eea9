"""What communication hooks remember is put back, and travels."""

import random
from collections.abc import Iterator
from typing import Any

import numpy
import pytest
import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.algorithms.ddp_comm_hooks import default_hooks, powerSGD_hook
from torch.nn.parallel import DistributedDataParallel
from torch.testing._internal.distributed.fake_pg import FakeStore

from trainmover.errors import StateMismatch, UserError
from trainmover.state.kinds.parallel import hooks
from trainmover.state.kinds.parallel.hooks import Hooks, forget_hooks, watch_hooks
from trainmover.state.tracked import Tracked


@pytest.fixture(autouse=True)
def watching(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    register = DistributedDataParallel.register_comm_hook
    # Without threads: gloo's own may hold the last reference to their group, and join themselves.
    dist.init_process_group("fake", store=FakeStore(), rank=0, world_size=1)
    monkeypatch.setattr(DistributedDataParallel, "register_comm_hook", register)
    watch_hooks()
    yield
    forget_hooks()
    dist.destroy_process_group()


class Own:
    """A script's own, with all that can be kept and some of what stays."""

    def __init__(self) -> None:
        self.group = dist.group.WORLD
        self.calls = 0
        self.errors: dict[int, torch.Tensor] = {}
        self.norms = [1.5, (2, "two")]
        self.seen = {3}
        self.numpy = numpy.random.RandomState(1)
        self.newer = numpy.random.default_rng(2)
        self.python = random.Random(3)
        self.torch = torch.Generator().manual_seed(4)
        self.itself = self

    def step(self) -> list[float]:
        self.calls += 1
        self.errors[self.calls] = torch.full((2,), float(self.calls))
        self.norms[0] = float(self.calls)
        self.seen.add(self.calls)
        drawn = [self.numpy.normal(), self.newer.normal(), self.python.gauss(0, 1)]
        return [*drawn, float(torch.rand((), generator=self.torch))]


def hook(state: Any, bucket: dist.GradBucket) -> torch.futures.Future[torch.Tensor]:
    future: torch.futures.Future[torch.Tensor] = torch.futures.Future()
    future.set_result(bucket.buffer())
    return future


def tracked(state: Any, with_hook: Any = hook, size: int = 3) -> tuple[Any, Tracked]:
    model = DistributedDataParallel(nn.Linear(size, size))
    model.register_comm_hook(state, with_hook)
    its = Tracked()
    its.add("model", model.module)
    return model, its


def test_all_that_a_state_remembers_travels() -> None:
    source = Own()
    _model, there = tracked(source)
    for _ in range(3):
        source.step()
    sent = there.small_states()
    forget_hooks()
    own = Own()
    errors = own.errors
    _other, here = tracked(own)
    own.step()
    here.load_small(sent)
    assert own.errors is errors
    assert list(errors) == [1, 2, 3]
    assert (own.calls, own.norms, own.seen) == (3, [3.0, (2, "two")], {1, 2, 3})
    assert own.itself is own
    assert own.group is dist.group.WORLD
    assert own.step() == source.step()


def test_what_travels_is_no_variable_that_must_be_found_elsewhere() -> None:
    state = Own()
    model, _its = tracked(state)
    held = [id(one) for one, whole in Hooks(model).holders() if whole]
    assert {id(state), id(vars(state)), id(state.errors), id(state.norms)} <= {*held}
    assert id(state.group) not in held
    assert not list(Hooks(nn.Linear(1, 1)).holders())


def test_a_container_in_which_something_stays_is_told_apart() -> None:
    state: Any = Own()
    state.ways, state.deep, state.again = {"first": hook}, [1, (2, hook)], [state.norms]
    model, _its = tracked(state)
    partly = [id(one) for one, whole in Hooks(model).holders() if not whole]
    assert partly == [id(state.ways), id(state.deep), id(state.deep[1])]


def test_an_object_of_another_class_is_refused() -> None:
    """What it does would be another."""

    class Coarse(Own):
        pass

    source: Any = Own()
    source.inner = Coarse()
    _model, there = tracked(source)
    sent = there.small_states()
    forget_hooks()
    own: Any = Own()
    own.inner = Own()
    _other, here = tracked(own)
    with pytest.raises(StateMismatch, match="Coarse where a Own is here"):
        here.load_small(sent)


def test_powersgd_is_put_back_whole() -> None:
    state = powerSGD_hook.PowerSGDState(None, start_powerSGD_iter=2)
    _model, its = tracked(state)
    state.iter, state.error_dict[0] = 7, torch.ones(3)
    before = its.small_states()
    drawn = state.rng.randint(1000)
    state.iter, state.error_dict[0] = 8, torch.zeros(3)
    state.q_memory_dict[0] = torch.zeros(2, 2)
    its.load_small(before)
    assert (state.iter, state.q_memory_dict, state.rng.randint(1000)) == (7, {}, drawn)
    assert torch.equal(state.error_dict[0], torch.ones(3))
    assert its.small_states() != before  # The number was drawn.


def test_a_hook_without_a_state_costs_nothing() -> None:
    _model, its = tracked(None, default_hooks.fp16_compress_hook)
    assert Hooks(nn.Linear(1, 1)).state_dict() == {}
    _other, its = tracked(dist.group.WORLD, default_hooks.fp16_compress_hook)
    assert Hooks(its["model"]).state_dict() == {}  # type: ignore[arg-type]


def test_a_hook_belongs_to_the_module_it_reduces_for() -> None:
    model, _ = tracked(Own())
    assert Hooks(model).state_dict()
    assert Hooks(model.module).state_dict()
    assert Hooks(nn.Linear(2, 2)).state_dict() == {}


def test_what_cannot_be_sent_is_named_with_its_place() -> None:
    own: Any = Own()
    own.file = (line for line in "text")
    _model, its = tracked(own)
    with pytest.raises(UserError, match=r"test_hooks.py line \d+ keeps a builtins.generator in"):
        its.small_states()


def test_too_much_is_refused_with_its_place(monkeypatch: pytest.MonkeyPatch) -> None:
    own = Own()
    _model, its = tracked(own)
    own.errors[0] = torch.zeros(hooks.BYTES_MAX // 4 + 1)
    with pytest.raises(UserError, match=r"registered at test_hooks.py line \d+ holds 4 MB"):
        its.small_states()


def test_powersgd_with_large_feedback_is_refused_as_it_is_registered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(hooks, "BYTES_MAX", 100)
    with pytest.raises(UserError, match="use_error_feedback=False"):
        tracked(powerSGD_hook.PowerSGDState(None), powerSGD_hook.powerSGD_hook, size=40)
    state = powerSGD_hook.PowerSGDState(None, use_error_feedback=False)
    tracked(state, powerSGD_hook.powerSGD_hook, size=40)


def test_who_has_registered_no_hook_is_refused() -> None:
    _model, there = tracked(Own())
    sent = there.small_states()
    forget_hooks()
    here = Tracked()
    here.add("model", nn.Linear(3, 3))
    with pytest.raises(StateMismatch, match="hook that is missing here"):
        here.load_small(sent)


def test_what_is_one_object_and_one_memory_stays_so() -> None:
    def made() -> Any:
        own: Any = Own()
        own.whole = torch.zeros(4)
        own.blocks = [own.whole[:2], own.whole[2:]]
        own.first, own.reference = [1.0], []
        return own

    source = made()
    _model, there = tracked(source)
    source.whole += 1
    source.reference = source.first
    sent = there.small_states()
    forget_hooks()
    own = made()
    _other, here = tracked(own)
    here.load_small(sent)
    own.first.append(2.0)
    own.blocks[0] += 1
    assert own.reference == [1.0, 2.0]
    assert own.whole.tolist() == [2.0, 2.0, 1.0, 1.0]
