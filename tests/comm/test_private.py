"""Numbers that all ranks compare: no garbage is ever taken for them."""

from collections.abc import Callable, Sequence
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from trainmover.comm.failures import Drained
from trainmover.comm.private import PrivateGroup

LOST = RuntimeError("a peer is gone")


def group(watch: Any) -> PrivateGroup:
    member: Any = SimpleNamespace(name="gate", watch=watch, seat=0, size=2)
    registry: Any = SimpleNamespace(draining=False)
    return PrivateGroup(member, registry)


def prompt(largest: Callable[[Sequence[int]], list[int]], **more: Any) -> SimpleNamespace:
    return SimpleNamespace(
        released=False,
        session=SimpleNamespace(epoch=3),
        prompt=SimpleNamespace(largest=largest),
        **more,
    )


def lost(numbers: Sequence[int]) -> list[int]:
    raise LOST


def test_the_largest_are_what_the_session_says() -> None:
    assert group(prompt(lambda numbers: [*numbers, 7])).largest([1, True]) == [1, True, 7]


def test_without_a_prompt_session_a_tensor_is_reduced() -> None:
    def start(request: Any) -> Any:
        ([tensor], options), taken = request.args, torch.tensor([5, -(2**62)])
        assert options.reduceOp == torch.distributed.ReduceOp.MAX
        tensor.copy_(torch.maximum(tensor, taken))
        return SimpleNamespace(wait=lambda: True)

    watch = SimpleNamespace(released=False, prompt=None, start=start)
    assert group(watch).largest([2, 2**62]) == [5, 2**62]


def test_a_lost_peer_drains_and_another_error_is_raised() -> None:
    with pytest.raises(Drained):
        group(prompt(lost, judge=lambda error: None)).largest([1])
    with pytest.raises(RuntimeError, match="a peer is gone"):
        group(prompt(lost, judge=lambda error: error)).largest([1])
    with pytest.raises(ValueError, match="in other words"):
        group(prompt(lost, judge=lambda error: ValueError("in other words"))).largest([1])


def test_what_came_while_the_session_ended_is_not_believed() -> None:
    watch = prompt(list)

    def ends(numbers: Sequence[int]) -> list[int]:
        watch.released = True
        return list(numbers)

    watch.prompt.largest = ends
    with pytest.raises(Drained):
        group(watch).largest([1])
