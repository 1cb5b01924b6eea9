"""Plain attributes are put back in place, and only those that were named."""

from types import SimpleNamespace

import pytest
import torch

from trainmover.errors import StateMismatch
from trainmover.state.kinds.values import Attributes
from trainmover.state.rehearsal import rehearse
from trainmover.state.tracked import Tracked


def test_attributes_travel_as_small_state() -> None:
    def rank() -> tuple[SimpleNamespace, Tracked]:
        owner = SimpleNamespace(best=1.5, seen={"a"}, mean=torch.zeros(2), other=0)
        tracked = Tracked()
        tracked.add("it", Attributes(owner, ("best", "seen", "mean")))
        return owner, tracked

    source, tracked = rank()
    source.best, source.other = None, 3
    source.seen.add("b")
    source.mean = torch.ones(2)
    joiner, its = rank()
    seen = joiner.seen
    rehearse(its)
    its.load_small(tracked.small_states())
    assert (joiner.best, joiner.other) == (None, 0)
    assert joiner.seen is seen == {"a", "b"}
    assert torch.equal(joiner.mean, torch.ones(2))
    assert its.small_states() == tracked.small_states()


def test_other_names_are_no_state_of_it() -> None:
    owner = SimpleNamespace(a=1, b=2)
    with pytest.raises(StateMismatch, match=r"keeps \['b'\] of a SimpleNamespace"):
        Attributes(owner, ("a",)).load_state_dict(Attributes(owner, ("b",)).state_dict())
