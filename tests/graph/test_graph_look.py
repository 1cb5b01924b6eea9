"""Looks from fetch to fetch: base and deltas are what a capture of everything gives."""

import collections
import functools
import io
import itertools
import os
import random
import sys
import weakref
from collections.abc import Callable, Iterator
from typing import Any

import numpy
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.graph import heaps
from tests.graph.carrying import SCRIPT, graph_of
from trainmover.asked import is_in_c, plain_same_value, same_value
from trainmover.errors import ProtocolError
from trainmover.graph import checks
from trainmover.graph import look as looks
from trainmover.graph.compare import differences
from trainmover.graph.delta import Delta, Encoded, apply, from_bytes, merge, to_bytes
from trainmover.graph.look import Look
from trainmover.graph.nodes import LEFT_OUT, Graph
from trainmover.graph.restore import restore
from trainmover.graph.walk import capture
from trainmover.graph.wire import references
from trainmover.loops import turns
from trainmover.state.encode import encode

SEEDS = st.integers(0, 2**32 - 1)
ROUNDS = 10
IS_NATIVE = is_in_c("NodeTable")
WAYS = [True, False] if IS_NATIVE else [False]
both_ways = pytest.mark.parametrize("is_native", WAYS)
needs_extension = pytest.mark.skipif(not IS_NATIVE, reason="without the extension")


def disturb_a_little(r: random.Random, objects: list[Any]) -> None:
    """Change few objects, as a step does."""
    for _ in range(r.randrange(4)):
        heaps.change(r, r.choice(objects))
    for _ in range(r.randrange(3)):
        heaps.link(r, r.choice(objects), r.choice(objects) if r.random() < 0.6 else heaps.value(r))
    if r.random() < 0.5:
        objects[r.randrange(len(objects))] = r.choice(heaps.MAKERS)(r)
    if r.random() < 0.2:
        objects.append(weakref.ref(heaps.Plain()) if r.random() < 0.5 else r.choice(objects))
    if r.random() < 0.1:
        r.shuffle(objects)
    if r.random() < 0.2:
        del objects[r.randrange(len(objects))]


class Follower:
    """A look at a heap, and the graph that its deltas have led to."""

    def __init__(self, objects: list[Any], is_native: bool, **options: Any) -> None:
        self.look = Look(SCRIPT, is_native=is_native, **options)
        self._objects = objects
        self.graph = self.look.capture([], {"heap": objects})

    def delta(self) -> Delta:
        """Look, and apply what came through bytes."""
        delta = self.look.delta([], {"heap": self._objects})
        self.graph = apply(self.graph, from_bytes(to_bytes(delta)))
        return delta

    def losses(self) -> list[Any]:
        """What a capture has otherwise."""
        return [*differences(self.graph, graph_of(self._objects))]


@both_ways
@settings(max_examples=15, deadline=None)
@given(seed=SEEDS)
def test_deltas_give_what_a_capture_gives(is_native: bool, seed: int) -> None:
    r, objects = random.Random(seed), heaps.heap(seed)
    follower = Follower(objects, is_native)
    for _ in range(ROUNDS):
        disturb_a_little(r, objects)
        follower.delta()
        assert follower.losses() == []


@needs_extension
@settings(max_examples=20, deadline=None)
@given(SEEDS)
def test_both_ways_find_the_same_changes(seed: int) -> None:
    r, objects = random.Random(seed), heaps.heap(seed)
    native, plain = Follower(objects, True), Follower(objects, False)
    assert same_value(native.graph.nodes, plain.graph.nodes)
    for _ in range(ROUNDS):
        disturb_a_little(r, objects)
        assert to_bytes(native.delta()) == to_bytes(plain.delta())


def blind(*_: object, **__: object) -> checks.Check:
    """A check that sees nothing."""
    return checks.Check()


@needs_extension
@pytest.mark.parametrize("kind", ["object", "cell", "tensor", "block", "python-random"])
def test_a_kind_that_is_not_checked_is_found(kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    if kind == "block":
        monkeypatch.setattr(looks, "check_of_block", blind)
    elif kind == "tensor":
        monkeypatch.setattr(checks, "_of_tensor", blind)
    else:
        monkeypatch.setitem(checks._CHECKS, kind, blind)
    assert any(map(has_losses, range(40)))


def has_losses(seed: int) -> bool:
    """Whether some change to a heap is not seen."""
    r, objects = random.Random(seed), heaps.heap(seed)
    follower = Follower(objects, True)
    for _ in range(ROUNDS):
        disturb_a_little(r, objects)
        heaps.change(r, objects[r.randrange(len(objects))])
        follower.delta()
    return bool(follower.losses())


class Holder:
    """An object with any attributes."""


class Other:
    """An object of the same layout."""


def add(first: Any, second: Any = 1) -> Any:
    return first + second


def made(value: Any) -> Callable[[], Any]:
    return lambda: value


def made_twice(value: Any) -> Callable[[], Any]:
    return lambda: [value, value]


def fresh_class() -> Any:
    return type("Fresh", (), {"__module__": heaps.__name__})


def named(**values: Any) -> Holder:
    held = Holder()
    held.__dict__.update(values)
    return held


def set_item(held: Any, key: Any, value: Any) -> None:
    held[key] = value


def write(tensor: Any) -> None:
    """Write past torch's counter."""
    tensor.data.add_(1)


def make_leaf_of_graph(view: torch.Tensor) -> None:
    """Write to what a view is of, so that the view gets a function."""
    assert view._base is not None
    view._base.mul_(torch.ones(1, requires_grad=True))


def grown(array: Any) -> None:
    array.resize(40, refcheck=False)


def two_steps() -> Iterator[int]:
    turns = iter([1, 2, 3])
    yield next(turns)
    yield next(turns)


def read_now(stream: Any) -> None:
    """Have a stream that writes read another file from here on."""
    stream.__init__(io.BufferedReader(io.FileIO(__file__)))


QUIET_CHANGES: dict[str, tuple[Callable[[], Any], Callable[[Any], Any]]] = {
    "class": (Holder, lambda o: setattr(o, "__class__", Other)),
    "dict of an object": (lambda: named(a=1), lambda o: setattr(o, "__dict__", {"a": 2})),
    "type of a value": (lambda: named(a=1), lambda o: setattr(o, "a", True)),
    "sign of zero": (lambda: [0.0], lambda o: set_item(o, 0, -0.0)),
    "order of a dict": (lambda: {"a": 1, "b": 2}, lambda o: set_item(o, "a", o.pop("a"))),
    "order": (
        lambda: collections.OrderedDict(a=1, b=2, c=3),
        lambda o: o.move_to_end("a"),
    ),
    "factory": (
        lambda: collections.defaultdict(list),
        lambda o: setattr(o, "default_factory", dict),
    ),
    "deque": (lambda: collections.deque([1, 2]), lambda o: set_item(o, 0, 7)),
    "set": (lambda: {1, 2, 3}, lambda o: (o.discard(2), o.add(9))),
    "finger of a set": (lambda: {1, 2, 3}, lambda o: o.add(o.pop())),
    "private slot": (heaps.Slotted, lambda o: o.hide(4)),
    "defaults": (lambda: made(add), lambda o: setattr(o, "__defaults__", (5,))),
    "code": (lambda: made(1), lambda o: setattr(o, "__code__", made_twice(2).__code__)),
    "variable of a function": (lambda: heaps.counter(1), lambda o: o[0]()),
    "attribute of a class": (fresh_class, lambda o: setattr(o, "count", 1)),
    "partial": (
        lambda: functools.partial(add, 1),
        lambda o: o.__setstate__((add, (2,), {}, {})),
    ),
    "iterator": (lambda: iter([1, 2, 3]), next),
    "iterator of a range": (lambda: iter(range(5)), next),
    "count": (lambda: itertools.count(), next),
    "loop": (lambda: turns.iterate([1000, 2000]), next),
    "end of a loop": (lambda: turns.iterate([1]), lambda o: o.end()),
    "while": (turns.repeat, next),
    "loop in Python": (lambda: turns.PlainLoop([1, 2]), next),
    "while in Python": (turns.PlainTurns, next),
    "writer": (lambda: io.TextIOWrapper(io.BufferedWriter(io.FileIO(os.devnull, "w"))), read_now),
    "writer without a buffer": (lambda: io.TextIOWrapper(io.FileIO(os.devnull, "w")), read_now),
    "generator": (two_steps, next),
    "generator with a variable": (lambda: heaps.walk_to(4, []), next),
    "past torch": (lambda: torch.zeros(3), write),
    "requires_grad": (lambda: torch.zeros(3), lambda o: o.requires_grad_()),
    "gradient": (
        lambda: torch.zeros(3, requires_grad=True),
        lambda o: setattr(o, "grad", torch.ones(3)),
    ),
    "hook": (lambda: torch.zeros(3, requires_grad=True), lambda o: o.register_hook(add)),
    "form": (lambda: torch.zeros(2, 3), lambda o: o.t_()),
    "many dimensions": (lambda: torch.zeros([2] * 7), lambda o: o.transpose_(0, 6).resize_(3)),
    "other memory": (lambda: torch.zeros(3), lambda o: setattr(o, "data", torch.ones(3))),
    "resized": (lambda: torch.zeros(3), lambda o: o.resize_(999)),
    "no memory": (lambda: torch.zeros(300), lambda o: o.untyped_storage().resize_(0)),
    "view": (lambda: torch.ones(3)[1:], make_leaf_of_graph),
    "attribute of a tensor": (lambda: torch.zeros(3), lambda o: setattr(o, "a", 1)),
    "array": (lambda: numpy.zeros(3), lambda o: set_item(o, 1, 4)),
    "form of an array": (lambda: numpy.zeros(6), lambda o: setattr(o, "shape", (2, 3))),
    "read-only array": (lambda: numpy.zeros(6), lambda o: o.setflags(write=False)),
    "grown array": (lambda: numpy.zeros(3), grown),
    "objects in an array": (
        lambda: numpy.array([None, 1], object),
        lambda o: set_item(o, 0, "a"),
    ),
    "gauss": (lambda: random.Random(1), lambda o: o.gauss(0, 1)),
    "torch generator": (lambda: torch.Generator(), lambda o: torch.rand(1, generator=o)),
    "legacy numpy": (lambda: numpy.random.RandomState(1), lambda o: o.normal()),
    "numpy generator": (
        lambda: numpy.random.default_rng(1),
        lambda o: o.integers(9, dtype=numpy.uint32),
    ),
    "spawned": (lambda: numpy.random.default_rng(1), lambda o: o.spawn(1)),
    "bytes": (lambda: bytearray(b"abc"), lambda o: set_item(o, 1, 0)),
    "error": (lambda: ValueError(1), lambda o: setattr(o, "args", (2,))),
}


@both_ways
@pytest.mark.parametrize("name", QUIET_CHANGES)
def test_a_change_of_one_object_is_seen(name: str, is_native: bool) -> None:
    if "finger" in name and not IS_NATIVE:
        pytest.skip("tables of sets are not known without the extension")
    make, change = QUIET_CHANGES[name]
    objects = [make(), [], {}]
    follower = Follower(objects, is_native)
    change(objects[0])
    assert follower.delta().nodes
    assert follower.losses() == []
    assert follower.delta().nodes == {}


@both_ways
def test_nothing_changed_is_an_empty_delta(is_native: bool) -> None:
    follower = Follower(heaps.heap(5), is_native)
    delta = follower.delta()
    assert (delta.nodes, delta.removed, delta.addresses, delta.opaque) == ({}, [], None, None)
    assert delta.is_empty


@both_ways
def test_a_delta_with_a_change_of_any_kind_is_not_empty(is_native: bool) -> None:
    held: list[Any] = [Holder(), 1.5]
    follower = Follower(held, is_native)
    held[1] = 2.5
    assert not follower.delta().is_empty
    held.pop(0)
    assert not follower.delta().is_empty
    follower._objects = [Holder()]
    assert not follower.delta().is_empty


@both_ways
def test_what_is_no_longer_reached_is_let_go(is_native: bool) -> None:
    held: list[Any] = [Holder()]
    held[0].parts = [torch.zeros(3), Holder()]
    seen = weakref.ref(held[0])
    follower = Follower(held, is_native)
    count = len(follower.graph.nodes)
    held.clear()
    delta = follower.delta()
    follower.graph.objects.clear()
    assert len(delta.removed) > 4
    assert seen() is None
    held.append(Holder())
    assert max(follower.delta().nodes) < count, "numbers are used again"


@both_ways
def test_a_weak_reference_keeps_nothing(is_native: bool) -> None:
    alive = Holder()
    held = [Holder(), alive]
    held += [weakref.ref(one) for one in held]
    follower = Follower(held, is_native)
    follower.graph.objects.clear()
    del held[:2]
    follower.delta()
    assert held[0]() is None
    assert held[1]() is alive
    assert follower.losses() == []
    del alive
    follower.delta()
    assert held[1]() is None
    assert follower.losses() == []


@both_ways
def test_cycles_are_found_in_time(is_native: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(looks, "SWEEP_EVERY", 3)
    held: list[Any] = [[], Holder()]
    held[0].append(held[0])
    follower = Follower(held, is_native)
    del held[0]
    removed = [len(follower.delta().removed) for _ in range(4)]
    assert removed == [0, 0, 1, 0]
    assert follower.losses() == []


@both_ways
def test_addresses_come_and_go(is_native: bool) -> None:
    one = Holder()
    held: list[Any] = [one, {}]
    follower = Follower(held, is_native)
    held[1][id(one)] = 1
    assert follower.delta().addresses == {id(one): next(iter(follower.graph.addresses.values()))}
    held[1].clear()
    assert follower.delta().addresses == {}


@both_ways
def test_storages_that_others_carry_have_a_size_only(is_native: bool) -> None:
    model = torch.nn.Linear(2, 2)
    weight = model.weight
    left_out = [weight.untyped_storage().data_ptr()]
    follower = Follower([model], is_native, left_out=left_out, with_gradients=False)
    with torch.no_grad():
        weight.add_(1)
    weight.grad = torch.ones(2, 2)
    assert follower.delta().nodes == {}
    assert LEFT_OUT in [one[-1].get("grad") for one in follower.graph.nodes if one[0] == "tensor"]
    assert ("block", 16) in follower.graph.nodes
    expected = weight.detach().clone()
    assert restore(follower.graph, [], SCRIPT, {"heap": [model]}) == []
    assert torch.equal(weight, expected)
    assert weight.grad is not None
    follower.look.leave_out([])
    follower.delta()
    assert follower.losses() == []


@both_ways
def test_memory_that_others_carry_is_compared_by_where_its_views_begin(is_native: bool) -> None:
    def views(flat: torch.Tensor, is_split: bool) -> Graph:
        held = [flat[:2], flat[2:]]
        held = [one.clone() for one in held] if is_split else held
        left_out = [one.untyped_storage().data_ptr() for one in held]
        return Follower([*held, held[0].view(2, 1)], is_native, left_out=left_out).graph

    whole, split = views(torch.zeros(4), False), views(torch.zeros(4), True)
    assert [*differences(whole, split)] == []
    one = torch.zeros(2)
    left_out = [one.untyped_storage().data_ptr()]
    shared = Follower([one, one.view(2), one.view(2, 1)], is_native, left_out=left_out).graph
    assert [found.second for found in differences(whole, shared)] == ["other memory"]


def test_a_node_is_encoded_once() -> None:
    held: list[Any] = [[*range(50)], 0]
    follower = Follower(held, False)
    encoded: Encoded = {}
    held[0].append(1)
    first = follower.delta()
    assert from_bytes(to_bytes(first, encoded)) == from_bytes(to_bytes(first))
    kept = dict(encoded)
    held[1] += 1
    both = merge(first, follower.delta())
    assert from_bytes(to_bytes(both, encoded)) == from_bytes(to_bytes(both))
    assert [number for number in kept if encoded[number] is not kept[number]] == []
    assert len(encoded) > len(kept)


def test_the_order_of_objects_in_a_set_is_chance() -> None:
    def held(numbers: list[int], named: list[int]) -> Graph:
        objects = [heaps.Plain() for _ in range(9)]
        for number, one in enumerate(objects):
            one.number = number  # type: ignore[attr-defined]
        return graph_of([{objects[one] for one in numbers}, [[[objects[one] for one in named]]]])

    assert [*differences(held([*range(8)], [*range(9)]), held([*range(8)], [*range(9)]))] == []
    one, other = held([1, 2], [*range(9)]), held([1, 3], [*range(9)])
    assert [found.first for found in differences(one, other)] == ["other entries"]
    assert len([*differences(held([1], []), held([2], []))]) == 1
    assert [*differences(held([1], []), held([1], []))] == []


def test_a_set_that_is_taken_for_data_has_no_entries_to_compare() -> None:
    held: list[Any] = [{heaps.Plain() for _ in range(5)}]
    graphs = [Look(SCRIPT, items_max=3).capture([], {"heap": held}) for _ in range(2)]
    assert ("data", "set", 5) in graphs[0].nodes
    assert [*differences(*graphs)] == []


def test_an_address_is_compared_once_its_object_is_matched() -> None:
    def held() -> Graph:
        one = heaps.Plain()
        return graph_of([{id(one): 1}, [[[[one]]]]])

    assert [*differences(held(), held())] == []
    one, other = heaps.Plain(), heaps.Plain()
    pair = [graph_of([{id(key): 1}, [[[[one, other]]]]]) for key in (one, other)]
    assert len([*differences(*pair)]) == 1


@needs_extension
def test_counters_of_writes_can_be_trusted() -> None:
    trusted, small = torch.zeros(100), torch.zeros(10)
    held = [trusted, small, trusted[3:]]
    follower = Follower(held, True, trusted_from=200)
    for tensor in held:
        tensor.add_(1)
        follower.delta()
        assert follower.losses() == []
    write(small)
    assert len(follower.delta().nodes) == 1
    write(trusted)
    assert follower.delta().nodes == {}, "as was said"
    held.append(trusted.numpy())
    follower.delta()
    held[3][7] = 5
    follower.delta()
    assert follower.losses() == []


@both_ways
def test_variables_of_frames_are_followed(is_native: bool) -> None:
    look = Look(SCRIPT, is_native=is_native)
    graph: Graph | None = None

    def fetch(frames: list[Any]) -> None:
        nonlocal graph
        process = {"settings": {"number": 3}}
        if graph is None:
            graph = look.capture(frames, process)
            return
        delta = look.delta(frames, process)
        assert delta.roots.process is None
        graph = apply(graph, from_bytes(to_bytes(delta)))
        assert [*differences(graph, capture(frames, SCRIPT, process))] == []
        assert graph.place == delta.place

    def inner(step: int) -> Iterator[int]:
        here = [step]
        if step % 2:
            fetch([sys._getframe(1), sys._getframe()])
        yield len(here)

    def loop() -> None:
        losses = []
        for step in range(6):
            value = {"step": step}
            losses.append(value)
            for _ in inner(step):
                fetch([sys._getframe()])
            if step == 3:
                del value

    loop()
    assert graph is not None


@both_ways
def test_names_of_modules_are_followed(is_native: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    follower = Follower([], is_native)
    monkeypatch.setattr(heaps, "added", [Holder()], raising=False)
    assert heaps.__name__ in follower.delta().roots.modules
    assert follower.losses() == []
    monkeypatch.undo()
    follower.delta()
    assert follower.losses() == []


def test_forged_bytes_are_refused() -> None:
    objects = heaps.heap(3)
    follower = Follower(objects, IS_NATIVE)
    graph = follower.graph
    r = random.Random(3)
    disturb_a_little(r, objects)
    data = to_bytes(follower.delta())
    refused = 0
    for _ in range(300):
        forged = bytearray(data)
        forged[r.randrange(len(data))] = r.randrange(256)
        try:
            apply(graph, from_bytes(bytes(forged)))
        except ProtocolError:
            refused += 1
    assert refused > 20


@pytest.mark.parametrize(
    ("nodes", "removed"),
    [
        ([(0, ("object",)), (1 << 60, ("cell", ("", 0)))], []),
        ([(0, ("cell", ("", 1 << 40)))], []),
        ([(-1, ("cell", (1,)))], []),
        ([(0, ("unknown", 1))], []),
        ([(0, ("block", -4))], []),
        ([(0, ())], []),
        ([], [1 << 50]),
        ([], ["a"]),
        ([], None),
    ],
)
def test_deltas_that_no_look_finds_are_refused(nodes: Any, removed: Any) -> None:
    graph = graph_of([1])
    data = encode(([], ({}, [], None, None), nodes, removed, None, None))
    with pytest.raises(ProtocolError):
        apply(graph, from_bytes(data))


def test_a_delta_of_another_graph_is_refused() -> None:
    objects: list[Any] = [[] for _ in range(9)]
    follower = Follower(objects, IS_NATIVE)
    objects.append([])
    delta = follower.delta()
    with pytest.raises(ProtocolError):
        apply(graph_of([1]), delta)


VALUES = [
    *(0, False, 0.0, -0.0, 1, True, float("nan"), 1j, -1j, "a", "b", b"a", None),
    *((), [], (1,), (True,), [1], {"a": 1}, {"a": 1.0}, {"b": 1}, {"a": 1, "b": 2}),
    *({"b": 2, "a": 1}, torch.float32, torch.float64, torch.Size([1]), torch.device("cpu")),
    *(numpy.float32(1), numpy.float32(2), numpy.int64(1), numpy.zeros(2), numpy.ones(2)),
    *(numpy.zeros((2, 1)), numpy.zeros(2, numpy.int64)),
]


@needs_extension
def test_values_are_compared_alike() -> None:
    for one, other in itertools.product(VALUES, VALUES):
        expected = one is other
        assert plain_same_value([one], [other]) == same_value([one], [other]) == expected
    assert same_value(numpy.zeros(2), numpy.zeros(2))
    assert plain_same_value(numpy.zeros(2), numpy.zeros(2))


@both_ways
def test_a_look_that_raised_is_not_continued(
    is_native: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    with pytest.raises(RuntimeError):
        Look(SCRIPT, is_native=is_native).delta([])
    follower = Follower([], is_native)
    monkeypatch.setattr(follower.look, "_update_checks", None)
    with pytest.raises(TypeError):
        follower.delta()
    monkeypatch.undo()
    with pytest.raises(RuntimeError):
        follower.delta()


@needs_extension
def test_a_look_makes_few_calls() -> None:
    model = torch.nn.Sequential(*[torch.nn.Linear(2, 2) for _ in range(40)])
    follower = Follower([model, torch.optim.SGD(model.parameters(), lr=0.1)], True)
    calls = 0

    def count(frame: Any, event: str, arg: Any) -> None:
        nonlocal calls
        calls += event == "call"

    sys.setprofile(count)
    try:
        follower.look.delta([], {"heap": follower._objects})
    finally:
        sys.setprofile(None)
    assert calls <= 60


def test_a_text_in_memory_is_no_reference() -> None:
    """An empty one at its beginning looks like one to node 0."""
    shared, text = [1], io.StringIO()
    first = graph_of([shared, text, shared, text])
    assert [*differences(first, graph_of([[1], io.StringIO(), [1], io.StringIO()]))]
    assert [*differences(first, graph_of([shared, text, shared, text]))] == []
    [body] = [node[1:] for node in first.nodes if node[0] == "stream-StringIO"]
    assert [*references(body)] == []
