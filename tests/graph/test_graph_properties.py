"""Random heaps: what was captured is there again, by value and by identity, whatever happened."""

import copy
from typing import Any

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.graph import heaps
from tests.graph.carrying import carried, graph_of, restored
from trainmover.graph.compare import differences
from trainmover.graph.wire import to_bytes

SEEDS = st.integers(0, 2**32 - 1)


@settings(max_examples=60, deadline=None)
@given(SEEDS, SEEDS)
def test_a_disturbed_heap_is_restored_in_place(seed: int, other: int) -> None:
    objects = heaps.heap(seed)
    before, kept = graph_of(objects), [*objects]
    heaps.disturb(other, objects)
    assert restored(before, objects) == []
    assert [*differences(before, graph_of(objects))] == []
    assert all(a is b for a, b in zip(objects, kept, strict=True) if is_mutable(a))


@settings(max_examples=60, deadline=None)
@given(SEEDS, SEEDS)
def test_another_heap_of_the_script_becomes_the_first_one(seed: int, other: int) -> None:
    graph = graph_of(heaps.heap(seed))
    objects = heaps.heap(other)
    assert restored(carried(graph), objects) == []
    assert [*differences(graph, graph_of(objects))] == []


@settings(max_examples=30, deadline=None)
@given(SEEDS)
def test_a_restored_heap_shares_nothing_with_the_first_one(seed: int) -> None:
    first, second = heaps.heap(seed), heaps.heap(seed + 1)
    graph = graph_of(first)
    restored(carried(graph), second)
    heaps.disturb(seed, second)
    assert [*differences(graph, graph_of(first))] == []


@settings(max_examples=30, deadline=None)
@given(SEEDS, SEEDS)
def test_a_difference_is_found(seed: int, other: int) -> None:
    objects = heaps.heap(seed)
    before = graph_of(objects)
    torch.nn.init.ones_(changed := torch.zeros(2))
    objects.append(changed)
    assert [*differences(before, graph_of(objects))]


def is_mutable(value: Any) -> bool:
    """Whether a restore keeps the identity of such an object: what has no content is made anew."""
    return isinstance(value, list | dict | set | torch.Tensor | torch.nn.Module | heaps.Plain)


@pytest.mark.parametrize("seed", range(3))
def test_capture_changes_nothing(seed: int) -> None:
    objects = heaps.heap(seed)
    first = graph_of(objects)
    again = graph_of(objects)
    assert to_bytes(first) == to_bytes(again)
    assert copy.copy(first.opaque) == again.opaque
