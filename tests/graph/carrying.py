"""Captures and restores of random heaps: `heaps` is the script, and a list of objects its state."""

from typing import Any

from tests.graph import heaps
from trainmover.graph.nodes import Graph
from trainmover.graph.restore import restore
from trainmover.graph.script import Script
from trainmover.graph.walk import capture
from trainmover.graph.wire import from_bytes, to_bytes

SCRIPT = Script(lambda path: path == heaps.__file__, heaps.__name__)


def graph_of(objects: list[Any]) -> Graph:
    """The graph of a heap: it is all that the script has beside its module."""
    return capture([], SCRIPT, {"heap": objects})


def restored(graph: Graph, objects: list[Any]) -> list[str]:
    """What could not be restored into a heap."""
    return restore(graph, [], SCRIPT, {"heap": objects})


def carried(graph: Graph) -> Graph:
    """The graph as another process gets it."""
    return from_bytes(to_bytes(graph))
