"""What autograd keeps with tensors that a step is called with is as it was for another try."""

from collections.abc import Callable

import pytest
import torch
from torch import Tensor

from tests.again import Again
from trainmover.state.tracked import Tracked

WEIGHT = torch.full((2,), 3.0, requires_grad=True)


def ask_for_gradient(x: Tensor) -> Tensor:
    x.requires_grad_()
    (x * WEIGHT).sum().backward()
    assert x.grad is not None
    return x.grad.clone()


def ask_once(x: Tensor) -> Tensor:
    found = ask_for_gradient(x)
    x.requires_grad_(False)
    return found


def hook(x: Tensor) -> Tensor:
    x.requires_grad_()
    x.register_hook(lambda grad: 2 * grad)
    return ask_for_gradient(x)


def hook_behind(x: Tensor) -> Tensor:
    x.requires_grad_()

    def double(one: Tensor) -> None:
        assert one.grad is not None
        one.grad *= 2

    x.register_post_accumulate_grad_hook(double)
    return ask_for_gradient(x)


def shift_in_place(x: Tensor) -> Tensor:
    x.add_(WEIGHT * WEIGHT)
    x.sum().backward()
    return x.detach().clone()


@pytest.mark.parametrize("use", [ask_for_gradient, ask_once, hook, hook_behind, shift_in_place])
def test_each_try_finds_the_batch_as_it_came(use: Callable[[Tensor], Tensor]) -> None:
    batch = torch.ones(2)
    taken = Again(Tracked(), ([{"x": batch}],), {})
    first = use(batch)
    for _ in range(2):
        assert taken.put_back() == ""
        assert batch.is_leaf
        assert not batch.requires_grad
        assert batch.grad is None
        assert torch.equal(use(batch), first)


def test_one_that_is_trained_keeps_the_gradient_and_the_hooks_that_it_had() -> None:
    shift = torch.ones(2, requires_grad=True)
    handle = shift.register_hook(lambda grad: 2 * grad)
    first = ask_for_gradient(shift)
    had = shift.grad
    taken = Again(Tracked(), (shift,), {})
    hook(shift)
    shift.grad = None
    assert taken.put_back() == ""
    assert shift.grad is had
    assert torch.equal(shift.grad, first)
    assert torch.equal(ask_for_gradient(shift), 2 * first)
    handle.remove()
    assert torch.equal(ask_for_gradient(shift), 2.5 * first)


def test_a_part_of_a_tensor_that_became_a_part_of_a_graph_cannot_be_put_back() -> None:
    part = torch.ones(4)[:2]
    taken = Again(Tracked(), (part,), {})
    shift_in_place(part)
    assert "`<process>.argument 0` is not as it was" in taken.put_back()


def test_one_that_is_trained_no_more_keeps_its_gradient() -> None:
    shift = torch.ones(2, requires_grad=True)
    had = ask_for_gradient(shift)
    shift.requires_grad_(False)
    taken = Again(Tracked(), (shift,), {})
    shift.requires_grad_(True)
    ask_for_gradient(shift)
    assert taken.put_back() == ""
    assert not shift.requires_grad
    assert shift.grad is not None
    assert torch.equal(shift.grad, had)


def test_gradients_of_what_is_tracked_are_left_to_others() -> None:
    module, objects = torch.nn.Linear(2, 1), Tracked()
    objects.add("model", module)
    module(torch.ones(2)).backward()
    taken = Again(objects, ([*module.parameters()],), {})
    module.weight.grad = None
    assert taken.put_back() == ""
    assert module.weight.grad is None
