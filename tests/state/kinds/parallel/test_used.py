"""What a DistributedDataParallel has marked as used is asked at every step, put back and given."""

import pytest
import torch
from torch import Tensor, nn
from torch.nn.parallel import DistributedDataParallel

from tests.again import Again
from trainmover.state import encode
from trainmover.state.kinds.parallel.used import Used
from trainmover.state.moments import Moment
from trainmover.state.tracked import Tracked
from trainmover.torch_internals.distributed import used

pytestmark = pytest.mark.usefixtures("known_wrappers")


class Heads(nn.Module):
    """One of them is used, or none."""

    def __init__(self) -> None:
        super().__init__()
        self.heads = nn.ModuleList([nn.Linear(2, 1) for _ in range(3)])

    def forward(self, x: Tensor, which: int) -> Tensor:
        found: Tensor = self.heads[which](x)
        return found


def looking() -> DistributedDataParallel:
    torch.manual_seed(0)
    return DistributedDataParallel(Heads(), find_unused_parameters=True)


def accumulate(wrapper: DistributedDataParallel, which: int) -> None:
    with wrapper.no_sync():
        wrapper(torch.ones(1, 2), which).sum().backward()


def test_marks_stand_until_gradients_are_summed() -> None:
    wrapper = looking()
    known = Used(wrapper)
    assert known.state_dict() == {}
    accumulate(wrapper, 0)
    assert known.state_dict() == {"used": [bytes([1, 1, 0, 0, 0, 0])]}
    accumulate(wrapper, 2)
    assert known.state_dict() == {"used": [bytes([1, 1, 0, 0, 1, 1])]}
    wrapper(torch.ones(1, 2), 1).sum().backward()
    assert known.state_dict() == {}


def test_every_mark_shows_at_once() -> None:
    wrapper = looking()
    known = Used(wrapper)
    none = known.encoded()
    assert known.encoded() is none
    accumulate(wrapper, 0)
    first = known.encoded()
    assert first != none
    assert known.encoded() is first
    accumulate(wrapper, 1)
    assert known.encoded() != first
    assert known.encoded() == encode.encode(known.state_dict())


def test_a_retry_puts_them_back() -> None:
    """Whether the pass that was cut short had summed, or has marked more."""
    wrapper = looking()
    tracked = Tracked()
    tracked.add("model", wrapper)
    accumulate(wrapper, 0)
    kept = Used(wrapper).state_dict()
    for attempt in (lambda: accumulate(wrapper, 1), lambda: wrapper(torch.ones(1, 2), 1).sum()):
        before = Again(tracked)
        if (loss := attempt()) is not None:
            loss.backward()
        assert Used(wrapper).state_dict() != kept
        assert before.put_back() == ""
        assert Used(wrapper).state_dict() == kept


def test_who_takes_the_rank_gets_them() -> None:
    wrapper, other = looking(), looking()
    source, joiner = Tracked(), Tracked()
    source.add("model", wrapper)
    joiner.add("model", other.module)  # Whichever of the two a script tracks.
    accumulate(wrapper, 1)
    accumulate(other, 2)
    joiner.load_small({"model.used": source.small_states()["model.used"]})
    assert Used(other).state_dict() == Used(wrapper).state_dict()
    joiner.load_small({"model.used": encode.encode({})})
    assert Used(other).state_dict() == {}


def test_a_round_sees_them() -> None:
    wrapper = looking()
    tracked = Tracked()
    tracked.add("model", wrapper)
    none = tracked.small_states(Moment.COMPARE)["model.used"]
    accumulate(wrapper, 1)
    assert tracked.small_states(Moment.COMPARE)["model.used"] != none


def test_who_does_not_look_is_not_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    used.looking.clear()
    plain = DistributedDataParallel(nn.Linear(2, 2))
    assert not used.looking
    tracked = Tracked()
    tracked.add("model", plain)
    monkeypatch.setattr(Used, "_lie", lambda self: pytest.fail("asked"))
    assert tracked.small_states()["model.used"] == encode.encode({})


def test_a_graph_that_is_learned_once_keeps_its_marks() -> None:
    torch.manual_seed(0)
    static = DistributedDataParallel(Heads(), find_unused_parameters=True, static_graph=True)
    assert Used(static).state_dict() == {}
    Used(static).load_state_dict({})
    static(torch.ones(1, 2), 0).sum().backward()
    assert Used(static).state_dict() == {}


def test_a_wrapper_that_is_gone_is_asked_no_more() -> None:
    wrapper = looking()
    net, known = wrapper.module, Used(wrapper.module)
    accumulate(wrapper, 0)
    assert known.state_dict() != {}
    del wrapper
    again = DistributedDataParallel(net, find_unused_parameters=True)
    assert known.state_dict() == {}
    accumulate(again, 1)
    assert known.state_dict() == {"used": [bytes([0, 0, 1, 1, 0, 0])]}
