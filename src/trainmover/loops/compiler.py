# SPDX-License-Identifier: Apache-2.0
"""Code that torch.compile traces where rewritten code calls ours: what the plain code would do.

Dynamo cannot trace an extension, so without this each rewritten loop would break the graph.
"""

import sys
from functools import cache
from importlib.machinery import ModuleSpec
from types import ModuleType
from typing import Any

from trainmover.loops import turns
from trainmover.loops.iterators import twin

DYNAMO = "torch._" + "dynamo"
"""Put together: the room that says torch's private names loads torch, which this one must not."""


class _TracedTurns:
    """`Turns`, as Dynamo can trace them."""

    def __init__(self) -> None:
        self.has_ended = False

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        if self.has_ended:
            raise StopIteration
        return self

    def end(self) -> None:
        self.has_ended = True


def _traced_loop(iterable: Any, /) -> Any:
    return iter(iterable)


def _traced_turns() -> Any:
    return _TracedTurns()


def _same(value: Any) -> Any:
    return value


def _nothing(line: int, /) -> None:
    return None


@cache
def teach_dynamo() -> None:
    """Have torch.compile trace rewritten loops like plain ones. Imports Dynamo."""
    from torch.compiler import substitute_in_graph

    replacements: list[tuple[Any, Any]] = [
        (turns.iterate, _traced_loop),
        (turns.repeat, _traced_turns),
    ]
    replacements += [(turns.delegate, _same), (twin, _same), (turns.left, _nothing)]
    for ours, traced in replacements:
        substitute_in_graph(ours, skip_signature_check=True)(traced)


def teach_when_imported(spec: ModuleSpec | None) -> None:
    """Teach Dynamo once the module of this spec, which is its own, has been imported."""
    loader: Any = spec and spec.loader
    execute = getattr(loader, "exec_module", None)
    if execute is None:
        return

    def exec_module(module: ModuleType) -> None:
        vars(loader).pop("exec_module", None)
        execute(module)
        teach_dynamo()

    loader.exec_module = exec_module


def teach_if_imported() -> None:
    """Teach Dynamo now, if this process has it."""
    if DYNAMO in sys.modules:
        teach_dynamo()
