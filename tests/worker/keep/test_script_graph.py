# SPDX-License-Identifier: Apache-2.0
"""The graph of a rank's script: from fetch to fetch, back for a retry, and into another process."""

import importlib
import sys
import types
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from trainmover.errors import ProtocolError
from trainmover.worker.keep import script_graph
from trainmover.worker.keep.script_graph import NOT_LOOKED_AT, ScriptGraph, Whole, graph_of

SOURCE = """
import importlib
import sys
import torch

class Meter:
    def __init__(self):
        self.total, self.seen = 0.0, []

meter, table, step = Meter(), {"rate": 0.1}, 0
weight = torch.zeros(4)
large = torch.zeros(3 << 20)
frame = sys._getframe()
"""


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[], Any]]:
    """Makes runs of a script: its names, each as `__main__` until the next is made."""
    path = tmp_path / "script.py"
    path.write_text(SOURCE)
    monkeypatch.setattr(script_graph, "is_own_file", lambda one: one == str(path))
    monkeypatch.setattr(script_graph, "COPIED_TO", 4 << 20)

    def make() -> Any:
        module = types.ModuleType("__main__")
        module.__file__ = str(path)
        monkeypatch.setitem(sys.modules, "__main__", module)
        exec(compile(SOURCE, str(path), "exec"), vars(module))
        return module

    return make


def graph_for(script: Any, said: list[str] | None = None) -> ScriptGraph:
    tell = [].append if said is None else said.append
    storages = lambda: {script.weight.untyped_storage().data_ptr()}  # noqa: E731
    return ScriptGraph(storages, list, tell)


def test_another_process_holds_what_the_rank_held_at_its_last_fetch(run: Any) -> None:
    rank = run()
    graph = graph_for(rank)
    graph.look(rank.frame)
    rank.meter.total, rank.table["best"] = 2.5, [1, 2]
    rank.weight += 1
    rank.meter.seen.append(torch.ones(2))
    changed = graph.look(rank.frame)
    assert graph.whole is not None
    sent = graph_of(changed, Whole.from_bytes(graph.whole.to_bytes()))

    joiner = run()
    kept = joiner.meter, joiner.table
    taken = graph_for(joiner)
    assert sent is not None
    assert taken.restore(sent, joiner.frame) == []
    assert (joiner.meter, joiner.table) == kept
    assert joiner.meter.total == 2.5
    assert joiner.table == {"rate": 0.1, "best": [1, 2]}
    assert joiner.meter.seen[0].tolist() == [1, 1]
    assert joiner.weight.tolist() == [0] * 4, "others carry what is tracked"
    assert taken.unlike(sent, joiner.frame) == []
    joiner.table["best"].append(3)
    assert "table" in taken.unlike(sent, joiner.frame)[0]


def test_a_look_that_fails_costs_protection_and_not_the_script(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    script = run()
    graph = graph_for(script, said)
    graph.look(script.frame)

    def fails(*_: object) -> None:
        raise ValueError("odd")

    monkeypatch.setattr(script_graph.Look, "delta", fails)
    assert graph.look(script.frame) == NOT_LOOKED_AT
    assert "a look at it failed with ValueError: odd" in graph.uncarried
    assert said == [f"{graph.uncarried}; no machine can take a rank, nor can a step be made again"]


def test_a_graph_without_its_whole_one_is_none(run: Any) -> None:
    script = run()
    graph = graph_for(script)
    changed = graph.look(script.frame)
    assert graph.whole is not None
    assert graph_of(changed, None) is None
    assert graph_of(changed, Whole(graph.whole.number + 1, graph.whole.made)) is None
    assert graph_of(NOT_LOOKED_AT, graph.whole) is None
    with pytest.raises(ProtocolError):
        Whole.from_bytes(b"none")
    with pytest.raises(ProtocolError):
        graph_of(changed, Whole(graph.whole.number, b"none"))


def test_a_step_finds_again_what_it_found(run: Any) -> None:
    script = run()
    graph = graph_for(script)
    graph.look(script.frame)
    batch = torch.ones(3)
    frame = script.frame
    graph.begin_step(frame, [(batch,), {}])
    script.meter.total += 1
    script.meter.extra = "new"
    script.meter.seen.append(1)
    batch *= 7
    script.table = {}
    assert graph.put_back(frame) == ""
    assert vars(script.meter) == {"total": 0.0, "seen": []}
    assert batch.tolist() == [1, 1, 1]
    assert script.table == {"rate": 0.1}


def test_what_cannot_be_put_back_is_named(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    script = run()
    graph = graph_for(script)
    frame = script.frame
    graph.begin_step(frame, [])
    script.meter.total = 3.0
    monkeypatch.setattr(script_graph, "restore", lambda *_, **__: [])
    assert "meter.total" in graph.put_back(frame)


def test_large_memory_stays_where_it_is(run: Any) -> None:
    rank = run()
    graph = graph_for(rank)
    changed = graph.look(rank.frame)
    assert graph.whole is not None
    assert len(graph.whole.made) < rank.large.nbytes // 10
    sent = graph_of(changed, graph.whole)
    joiner = run()
    joiner.large += 1
    assert sent is not None
    assert graph_for(joiner).restore(sent, joiner.frame) == []
    assert joiner.large[0] == 1


def test_new_large_memory_is_named_and_not_made_up(run: Any) -> None:
    rank = run()
    rank.meter.bank = torch.ones(2 << 20)
    graph = graph_for(rank)
    sent = graph_of(graph.look(rank.frame), graph.whole)
    joiner = run()
    assert sent is not None
    notes = graph_for(joiner).restore(sent, joiner.frame)
    assert notes
    assert "8,388,608 bytes" in notes[0]


def test_a_graph_that_is_too_large_is_told_of_once(
    run: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(script_graph, "NODES_MAX", 3)
    said: list[str] = []
    script = run()
    graph = graph_for(script, said)
    assert graph.look(script.frame) == NOT_LOOKED_AT
    assert graph.look(script.frame) == NOT_LOOKED_AT
    graph.begin_step(script.frame, [])
    assert "objects" in graph.put_back(script.frame)
    assert len(said) == 1
    assert "objects" in said[0]


def test_many_changes_begin_another_whole_graph(run: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(script_graph, "SENT_MIN", 1000)
    monkeypatch.setattr(script_graph, "WHOLES_SENT", 1)
    script = run()
    graph = graph_for(script)
    numbers = []
    for step in range(8):
        script.meter.seen += [float(step)] * 100
        changed = graph.look(script.frame)
        numbers.append(changed.number)
        assert graph.whole is not None
        found = graph_of(changed, graph.whole)
        assert found is not None
        assert graph.unlike(found, script.frame) == []
    assert numbers == sorted(numbers)
    assert numbers[-1] > numbers[0]


def test_code_that_was_compiled_from_a_text_is_carried_by_nobody(run: Any) -> None:
    script = run()
    graph = graph_for(script)
    graph.look(script.frame)
    assert graph.uncarried == ""
    script.rule = compile("1 + 1", "rule", "eval")
    graph.look(script.frame)
    assert "rule" in graph.uncarried


def test_a_module_that_only_the_rank_has_imported_is_imported(
    run: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "later.py").write_text("count = 1\n")
    monkeypatch.syspath_prepend(tmp_path)
    monkeypatch.setattr(script_graph, "is_own_file", lambda one: one.startswith(str(tmp_path)))
    rank = run()
    later = importlib.import_module("later")
    later.count = 5
    graph = graph_for(rank)
    sent = graph_of(graph.look(rank.frame), graph.whole)
    monkeypatch.delitem(sys.modules, "later")
    joiner = run()
    assert sent is not None
    assert graph_for(joiner).restore(sent, joiner.frame) == []
    assert sys.modules["later"].count == 5
    monkeypatch.delitem(sys.modules, "later")
    (tmp_path / "later.py").unlink()
    importlib.invalidate_caches()
    assert graph_for(joiner).restore(sent, joiner.frame) == ["module later is not loaded here"]


def test_large_memory_that_is_written_to_is_named(run: Any) -> None:
    script = run()
    graph = graph_for(script)
    for _ in range(3):
        graph.look(script.frame)
        script.batch = torch.zeros(3 << 20)
        graph.begin_step(script.frame, [])
        script.batch += 1
    assert graph.uncarried == ""
    script.large += 1
    graph.look(script.frame)
    assert "large` of 12 MiB changes" in graph.uncarried
