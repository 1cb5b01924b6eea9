# SPDX-License-Identifier: Apache-2.0
"""Where in a script's files a variable is stored to."""

import ast
import os
import re
from collections.abc import Collection
from types import ModuleType

from trainmover.state.script.code.scopes import MODULE, Scope, Source
from trainmover.state.script.code.source import source_of
from trainmover.state.script.code.syntax import called_name, children, walk
from trainmover.state.script.process import line_of as set_at
from trainmover.state.script.search.layout import (
    AGAIN,
    BEFORE,
    HOOKS,
    LAYERS,
    PROCESS,
    SAME,
    WITH,
    Layout,
)

_NUMBER = re.compile(r" \(\d+\)$")
"""Of one of several variables with one key."""


def line_of(
    key: str, modules: Collection[ModuleType], layouts: Collection[Layout]
) -> tuple[str, int]:
    """File and line, as far as the sources tell, or where what has it is written; 0: not known."""
    file, function, number, path = key.split("\x1f")
    function, first = function.partition(AGAIN)[0], int(number)
    sources = [
        (os.path.basename(module.__file__ or ""), source, module.__file__ or "")
        for module in modules
        if (source := source_of(module.__file__ or "")) is not None
    ]
    if file == PROCESS:
        lines = [(name, set_at(source, path)) for name, source, _ in sources]
        return next(((name, line) for name, line in lines if line), (PROCESS, 0))
    if line := max((source.foreign.get(path, 0) for _, source, _ in sources), default=0):
        return next(one for one, source, _ in sources if source.foreign.get(path) == line), line
    if path.startswith((LAYERS, HOOKS)):
        rebuilt = [(name, source.rebuilds) for name, source, _ in sources if source.rebuilds]
        lines = [(name, source.exchanges) for name, source, _ in sources if source.exchanges]
        if places := [*rebuilt, *lines]:
            return places[0]  # Else a library has done it.
    if path.startswith(BEFORE):
        reads = [one for layout in layouts for one in layout.reads]
        begun = [node.lineno for _, key, node in reads if key.endswith(path)]
        return os.path.basename(file), begun[0] if begun else first
    if path.startswith(WITH):
        stacked = [one for layout in layouts for one in layout.managers]
        begun = [one.line for one in stacked if path.startswith(one.key.rpartition("\x1f")[2])]
        return os.path.basename(file), begun[0] if begun else first
    path = _NUMBER.sub("", path).removeprefix(SAME)
    attribute, root = path.rpartition(".")[2], re.split(r"[.\[(]", path)[0]
    lines = [
        (name, source.attributes.get(attribute, 0) or source.handed.get(attribute, 0))
        for name, source, _ in sources
    ]
    found = [one for one in lines if one[1]]
    if not found:  # A part of it is given to a function of another file.
        takers = [(name, source.given.get(attribute, {}).values()) for name, source, _ in sources]
        found = [(name, max(at)) for name, at in takers if at]
    if "." in path and found:
        return found[-1]
    for name, source, whole in sources:
        if file and not whole.endswith(file):
            continue
        scope = source.scopes.get((function, first)) or source.scopes.get(MODULE, Scope())
        at = scope.lines.get(root) or first or source.written.get(function, 0)
        at = at or source.written.get(root, 0) or _imported_at(source, root)
        if line := at or source.dynamic:
            return name, line
    for name, source, _ in sources:  # A name under which it is tracked: of any function's.
        known = [scope.lines[root] for scope in source.scopes.values() if root in scope.lines]
        if known and not file:
            return name, max(known)
    if not found and not file:
        found = [(name, at) for name, source, _ in sources if (at := _tracked_at(source, root))]
    return found[-1] if found else (os.path.basename(file) or "the script", first)


def _imported_at(source: Source, name: str) -> int:
    """The line of `from state import name`; 0: there is none."""
    nodes = () if source.tree is None else walk(source.tree)
    froms = (node for node in nodes if isinstance(node, ast.ImportFrom))
    return next(
        (node.lineno for node in froms for one in node.names if name == (one.asname or one.name)), 0
    )


def _tracked_at(source: Source, name: str) -> int:
    """The line of `job.track(name=...)`; 0: there is none."""
    nodes = () if source.tree is None else walk(source.tree)
    calls = (node for node in nodes if called_name(node) == "track")
    given = (one for call in calls for one in children(call) if isinstance(one, ast.keyword))
    return next((one.value.lineno for one in given if one.arg == name), 0)
