"""Plain attributes are put back in place, and only those that were named."""

from collections import deque
from types import SimpleNamespace

import pytest
import torch

from trainmover.errors import StateMismatch
from trainmover.state import encode
from trainmover.state.arrangement import arrangement_of
from trainmover.state.kinds import values
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


def test_what_lies_in_several_values_is_one_wherever_they_are_put() -> None:
    """As in a queue by difficulty whose entries are struck out where a dict has them."""
    entries = [[0.5, 1], [0.25, 2]]
    queue = SimpleNamespace(
        heap=[(1, entries[0]), (2, entries[1])],
        of=dict(enumerate(entries)),
        last=[entries[1][:], torch.ones(2)],
        count=2,
    )
    names = ("heap", "of", "last", "count")
    queue.last.append(queue.last[1])
    data = encode.encode(Attributes(queue, names).state_dict())
    other = SimpleNamespace(heap=[], of={}, last=[], count=0)
    for here in (other, queue):
        kept = Attributes(here, names)
        kept.load_state_dict(encode.decode(data))
        assert encode.encode(kept.state_dict()) == data
        assert all(here.heap[n][1] is here.of[n] for n in (0, 1))
        assert here.last[0] == here.of[1]
        assert here.last[0] is not here.of[1]
        assert here.last[1] is here.last[2]


def test_plain_values_say_nothing_of_that() -> None:
    meter = SimpleNamespace(best=0.5, history=[1.0, 2.0], rows=[[1], [1]], both=deque([[]]))
    names = ("best", "history", "rows", "both")
    assert Attributes(meter, names).state_dict() == vars(meter)


def test_of_too_many_it_is_not_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(values, "_OBJECTS_MAX", 6)
    entry = [1]
    meter = SimpleNamespace(rows=[entry] * 2, few=[entry])
    assert not Attributes(meter, ("rows", "few")).state_dict().keys() - {"rows", "few", ""}
    assert Attributes(meter, ("rows", "few")).tells_what_is_one
    meter.rows += [[n] for n in range(9)]
    kept = Attributes(meter, ("rows", "few"))
    assert kept.state_dict() == vars(meter)
    assert not kept.tells_what_is_one
    assert arrangement_of([("meter", kept)]).objects


def test_what_lies_between_numbers_in_a_dict_is_one_as_well() -> None:
    def made() -> tuple[SimpleNamespace, Tracked]:
        recent = [1.0]
        owner = SimpleNamespace(book={"count": 1, "recent": recent, "best": [1.0], "least": 1.0})
        tracked = Tracked()
        tracked.add("it", Attributes(owner, ("book",)))
        return owner, tracked

    source, there = made()
    source.book["best"] = source.book["recent"]
    joiner, here = made()
    here.load_small(there.small_states())
    assert joiner.book["best"] is joiner.book["recent"]
