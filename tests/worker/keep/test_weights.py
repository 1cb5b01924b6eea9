"""What a rank says of its memory is what there is."""

import mmap
import os

import torch
from torch import nn

from trainmover.ids import Rank
from trainmover.protocol.messages import Weighed, WorkerFact
from trainmover.state.tracked import Tracked
from trainmover.worker.keep.weights import Weights, arena_bytes, resident

MIB = 1024 * 1024


def weighed(tracked: Tracked, **others: int) -> Weighed:
    said: list[WorkerFact] = []
    Weights(Rank(3), said.append).weigh(tracked, **others)
    (fact,) = said
    assert isinstance(fact, Weighed)
    return fact


def test_state_and_gradients_are_counted_once() -> None:
    model = nn.Linear(10, 5)
    tied = nn.Sequential(model, model)
    tracked = Tracked()
    tracked.add("model", model)
    assert weighed(tracked).kinds == {"state": 4 * 55}
    tracked.add("tied", tied)
    model(torch.ones(10)).sum().backward()
    assert weighed(tracked).kinds["gradients"] == 4 * 55


def test_what_is_empty_is_left_out() -> None:
    fact = weighed(Tracked(), snapshot=7, record=0)
    assert (fact.rank, fact.kinds) == (3, {"snapshot": 7})
    assert 0 < fact.rss <= fact.peak


def test_memory_that_is_touched_is_resident() -> None:
    before, _ = resident()
    with mmap.mmap(-1, 32 * MIB, mmap.MAP_PRIVATE) as held:  # A heap may have room left.
        held.write(bytes(32 * MIB))
        now, peak = resident()
    assert now - before > 16 * MIB
    assert peak >= now


def test_of_an_arena_only_what_is_used_and_ours_counts() -> None:
    before = arena_bytes()
    file = os.memfd_create("trainmover")
    os.truncate(file, 1024 * MIB)
    with mmap.mmap(file, 1024 * MIB) as ours, mmap.mmap(file, MIB, prot=mmap.PROT_READ):
        ours[: 2 * MIB] = bytes(2 * MIB)
        assert arena_bytes() - before == 2 * MIB
    os.close(file)
    assert arena_bytes() == before
