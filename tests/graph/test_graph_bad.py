"""What a script may hold that is hard to carry, and bytes that nobody should restore."""

import itertools
import math
import sys
import threading
import types
from typing import Any

import numpy
import pytest
import torch

from tests.graph import heaps
from tests.graph.carrying import SCRIPT, carried, graph_of, restored
from trainmover.errors import ProtocolError, StateMismatch
from trainmover.graph import wire
from trainmover.graph.compare import differences
from trainmover.graph.delta import apply
from trainmover.graph.frames import script_frames
from trainmover.graph.kinds import handle
from trainmover.graph.look import Look
from trainmover.graph.nodes import Graph, Roots
from trainmover.graph.restore import restore
from trainmover.graph.script import is_own_name
from trainmover.graph.walk import capture
from trainmover.graph.wire import from_bytes, to_bytes
from trainmover.state.class_caches import forget_classes


def moved(mine: list[Any], other: list[Any]) -> list[str]:
    """What could not be restored of one heap in another one."""
    return restored(carried(graph_of(mine)), other)


class Linked:
    """One of a chain."""

    def __init__(self, after: "Linked | None", number: int) -> None:
        self.after, self.number = after, number


def test_a_chain_of_ten_thousand_objects_is_restored() -> None:
    def chain(first: int) -> Linked:
        last = None
        for number in range(10_000):
            last = Linked(last, number + first)
        assert last is not None
        return last

    other = [chain(5)]
    assert moved([chain(0)], other) == []
    assert other[0].number == 9_999


def test_an_object_that_holds_itself_is_restored() -> None:
    mine: list[Any] = [heaps.Plain(), []]
    mine[0].itself, mine[1] = mine[0], (mine[1], mine)
    other: list[Any] = [heaps.Plain(), 1]
    assert moved(mine, other) == []
    assert other[0].itself is other[0]
    assert other[1][1] is other


def test_capture_goes_on_while_a_thread_changes_what_is_captured() -> None:
    shared: dict[int, list[int]] = {}
    over = threading.Event()

    def change() -> None:
        for number in itertools.count():
            shared[number % 50] = [number]
            shared.pop(number % 37, None)
            if over.is_set():
                return

    thread = threading.Thread(target=change)
    thread.start()
    try:
        for _ in range(200):
            graph_of([shared])
    finally:
        over.set()
        thread.join()


class Peers:
    """A handle: its name is the same in all processes."""

    def __init__(self, name: str) -> None:
        self.name = name


def test_a_handle_is_given_by_its_name(monkeypatch: pytest.MonkeyPatch) -> None:
    own = {name: Peers(name) for name in ("a", "b")}
    named = handle.Named(lambda one: one.name, lambda: own)
    monkeypatch.setitem(handle._TYPES, Peers, named)
    kept: list[Any] = [{"pair": Peers("b")}, Peers("a"), Peers("c")]
    live: list[Any] = [{}, own["a"], None]
    notes = moved(kept, live)
    assert live[:2] == [{"pair": own["b"]}, own["a"]]
    assert len(notes) == 1
    assert "handle cannot be made" in notes[0]
    forget_classes()


def test_what_torch_compile_keeps_in_a_module_is_none_of_the_script_s() -> None:
    made = ["__compiled_fn_1_d763cd55", "__resume_at_60_2", "__import_torch", "__builtins_dict___9"]
    assert not any(map(is_own_name, [*made, "_140_c0", "__name__"]))
    assert all(map(is_own_name, ["import_torch", "__version", "loss_c0", "_c0"]))


def test_what_lies_in_c_is_opaque_and_stays_the_process_s_own() -> None:
    mine, other = [threading.Lock(), 1], [threading.Lock(), 2]
    lock, graph = other[0], graph_of(mine)
    assert [one.path for one in graph.opaque] == ["<heap>[0]"]
    assert restored(carried(graph), other) == []
    assert other == [lock, 1]


def test_an_opaque_object_that_is_missing_is_told() -> None:
    other = ["a value", 2]
    (note,) = moved([threading.Lock(), 1], other)
    assert "opaque" in note
    assert other == ["a value", 1]


def test_a_function_whose_code_is_not_here_is_told_and_not_made() -> None:
    names: dict[str, Any] = {"__name__": heaps.__name__}
    exec("def scale(x):\n    return 2 * x", names)
    other = [None]
    (note,) = moved([names["scale"]], other)
    assert "function" in note
    assert other == [None]


def test_a_class_that_this_process_lacks_is_told() -> None:
    graph = graph_of([heaps.Plain()])
    nodes = [
        (*node[:2], "Gone", *node[3:]) if node[:3:2] == ("class", "Plain") else node
        for node in graph.nodes
    ]
    forged = Graph(graph.place, graph.roots, nodes, {}, [])
    other = [1]
    notes = restore(forged, [], SCRIPT, {"heap": other})
    assert any("class" in note for note in notes)
    assert other == [1]


@pytest.mark.parametrize(
    "value",
    [
        [0.0, -0.0, math.nan, math.inf],
        [2**80, -(2**64), 10**40],
        [numpy.float32(0.1), numpy.int64(3), numpy.bool_(True)],
        [torch.float16, torch.strided, torch.channels_last, torch.Size([2, 3])],
        [range(3), slice(1, None), Ellipsis, NotImplemented],
        [torch.tensor(3), torch.empty(0), torch.zeros(2, 0, 3), torch.ones(4).expand(3, 4)],
        [torch.zeros(3, dtype=torch.bfloat16), torch.tensor([True]), torch.zeros(2, 3).t()],
        [torch.sparse_coo_tensor([[0, 2]], [1.0, 2.0], (4,), check_invariants=True)],
        [numpy.zeros((0, 3)), numpy.arange(6).reshape(2, 3)[:, ::-1], numpy.array("text")],
        [numpy.zeros(2, dtype=[("a", "<i4"), ("b", "<f8", (2,))])],
    ],
    ids=str,
)
def test_values_at_the_edges_come_back_as_they_were(value: list[Any]) -> None:
    graph = graph_of(value)
    other: list[Any] = [None] * len(value)
    assert restored(carried(graph), other) == []
    assert [*differences(graph, graph_of(other))] == []


def test_views_go_on_sharing_their_memory() -> None:
    base = torch.arange(6.0)
    mine = [base, base[2:], base.numpy()]
    other = [torch.zeros(6), torch.zeros(4), numpy.zeros(6, numpy.float32)]
    kept = other[0]
    assert moved(mine, other) == []
    other[0][2] = 40
    assert other[0] is kept
    assert other[1][0] == 40
    assert other[2][2] == 40


def test_an_address_is_that_of_the_same_object() -> None:
    mine: list[Any] = [{}, heaps.Plain()]
    mine[0][id(mine[1])] = "known"
    other: list[Any] = [{}, heaps.Plain()]
    assert moved(mine, other) == []
    assert other[0] == {id(other[1]): "known"}


def test_a_retry_keeps_the_very_objects_wherever_they_lie_now() -> None:
    first, second = heaps.Plain(), heaps.Plain()
    first.name, second.name = "first", "second"
    held = [first, second]
    graph = graph_of(held)
    held[:] = [second]
    first.name = "changed"
    assert restored(graph, held) == []
    assert held == [first, second]
    assert first.name == "first"


def test_another_place_is_refused_and_nothing_is_changed() -> None:
    value = [1]

    def stand() -> list[types.FrameType]:
        return script_frames(sys._getframe(), {})[-1:]

    graph = capture(stand(), SCRIPT, {"heap": value})
    value[0] = 2
    with pytest.raises(StateMismatch, match="stands at"):
        restore(graph, [], SCRIPT, {"heap": value})
    assert value == [2]


def forged(node: Any) -> bytes:
    """Bytes of a graph that holds this node."""
    return to_bytes(Graph([], Roots(process={"heap": ("", 0)}), [node], {}, []))


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"\x00" * 40,
        forged(("no kind at all",)),
        forged(("tuple", None, [("", 7)])),
        forged(("tuple", None, [("", -1)])),
        forged(("tuple", None, [("", "text")])),
        forged(()),
        forged("text"),
    ],
)
def test_bytes_that_no_walk_made_are_refused(data: bytes) -> None:
    with pytest.raises(ProtocolError):
        from_bytes(data)


def test_bytes_of_other_versions_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    data = to_bytes(graph_of([]))
    monkeypatch.setattr(wire, "MADE_BY", ("trainmover 0", "Python 2", "torch 0"))
    with pytest.raises(ProtocolError, match="Python 2"):
        from_bytes(data)


def test_no_function_that_a_record_names_is_called_to_make_an_iterator() -> None:
    called: list[int] = []
    heaps.PLANTED = called.append  # type: ignore[attr-defined]
    node = ("iterator", ("builtins", "map"), (heaps.__name__, "PLANTED"), [(1,)], (None,))
    other = [[]]
    graph = from_bytes(forged(node))
    restore(graph, [], SCRIPT, {"heap": other})
    assert called == []


@pytest.mark.parametrize(
    ("theirs", "mine", "kept"),
    [
        ("m1", "m2", True),
        ("/scratch/m1-7/log.txt", "/scratch/m2-8/log.txt", True),
        ("/scratch/m1-7/log.txt", "/scratch/m2-8/other.txt", False),
        (4711, 815, True),
        (4711, 816, False),
        ("sgd", "adam", False),
        (b"m1", b"m2", False),
        (1, True, False),
    ],
)
def test_a_fact_of_the_machine_stays_its_own(theirs: Any, mine: Any, kept: bool) -> None:
    graph = carried(graph_of([theirs]))
    graph.facts.update({"host name": "m1", "folder for temporary files": "/scratch/m1-7"})
    graph.facts["process"] = 4711
    other = [mine]
    facts = {"host name": "m2", "folder for temporary files": "/scratch/m2-8", "process": 815}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("trainmover.graph.restore.facts", lambda: facts)
        assert restored(graph, other) == []
    assert other == [mine if kept else theirs]


@pytest.fixture
def bulk(monkeypatch: pytest.MonkeyPatch) -> torch.Tensor:
    """A tensor that is too large to be copied."""
    monkeypatch.setattr("trainmover.graph.blocks.BULK_BYTES", 1000)
    return torch.arange(500.0)


def test_large_memory_is_not_copied_and_stays(bulk: torch.Tensor) -> None:
    mine = [bulk, bulk[3:], bulk.numpy()]
    graph = graph_of(mine)
    assert len(to_bytes(graph)) < 20_000
    assert restored(graph, mine) == []


@pytest.mark.parametrize("in_place", [True, False])
def test_large_memory_that_is_another_is_told(bulk: torch.Tensor, in_place: bool) -> None:
    graph = graph_of([bulk])
    other = [bulk] if in_place else [bulk.clone()]
    other[0][7] = -1
    (note,) = restored(graph if in_place else carried(graph), other)
    assert "2,000 bytes is not as it was" in note
    assert other[0][7] == -1
    assert [*differences(graph, graph_of(other))]


def test_a_look_finds_that_large_memory_has_changed(bulk: torch.Tensor) -> None:
    look = Look(SCRIPT)
    held: dict[str, object] = {"heap": [bulk]}
    graph = look.capture([], held)
    assert look.delta([], held).nodes == {}
    bulk.numpy()[3] = 9
    now = apply(graph, look.delta([], held))
    assert [*differences(now, graph_of([bulk]))] == []
    assert [*differences(now, graph)]


def test_memory_that_no_view_sees_is_no_difference() -> None:
    whole = torch.zeros(100)
    graph = graph_of([whole[10:20:2], whole.numpy()[39:29:-3]])
    whole[20:30] = whole[40:] = whole[:10] = 1
    assert [*differences(graph, graph_of([whole[10:20:2], whole.numpy()[39:29:-3]]))] == []
    for seen in (10, 18, 30, 39):
        whole[seen] = 1
        found = [*differences(graph, graph_of([whole[10:20:2], whole.numpy()[39:29:-3]]))]
        assert [one.is_of_numbers for one in found] == [True]
        whole[seen] = 0
