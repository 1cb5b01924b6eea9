# SPDX-License-Identifier: Apache-2.0
"""What a script's files put into what is installed: a method of torch's, wrapped, say.

The module stays loaded, so a second run in the process would wrap what the first has wrapped. The
source tells beforehand which names it stores to; what they were is kept, and put back.
"""

import ast
import inspect
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

_ABSENT = object()


class Patches:
    """Of one run. Only names that the source says: `torch.optim.AdamW.step = ...`."""

    def __init__(self) -> None:
        self._names: dict[str, None] = {}
        self._were: dict[str, tuple[Any, str, Any]] = {}

    def note(self, path: str) -> None:
        """A file of the script's is about to be run."""
        self._names |= dict.fromkeys(sorted(_stored_in(path)))
        self.look()

    def look(self) -> None:
        """Something was loaded: names may lead somewhere that led nowhere."""
        for dotted in self._names.keys() - self._were.keys():
            path, _, name = dotted.rpartition(".")
            owner = _found(path)
            if owner is not _ABSENT and hasattr(owner, "__dict__"):
                self._were[dotted] = owner, name, vars(owner).get(name, _ABSENT)

    def put_back(self) -> None:
        """The run is over."""
        for owner, name, before in reversed(self._were.values()):
            if vars(owner).get(name, _ABSENT) is before:
                continue
            if before is _ABSENT:
                delattr(owner, name)
            else:
                setattr(owner, name, before)
        self._names, self._were = {}, {}


def _stored_in(path: str) -> set[str]:
    """Attributes of imported modules, and of what is in them, that a file stores to."""
    try:
        tree = ast.parse(Path(path).read_bytes())
    except (OSError, SyntaxError, ValueError, RecursionError):
        return set()
    imported = dict(_imported(tree))
    found = set[str]()
    for node in ast.walk(tree):
        match node:
            case ast.Attribute(ctx=ast.Store() | ast.Del()):
                found.add(_dotted(node, imported))
            case ast.Call(
                func=ast.Name("setattr" | "delattr"), args=[owner, ast.Constant(str(name)), *_]
            ):
                found.add(_dotted(ast.Attribute(owner, name, ast.Load()), imported))
    return found - {""}


def _imported(tree: ast.AST) -> Iterator[tuple[str, str]]:
    """Names that stand for modules, and for what is in them, and what they stand for."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            for one in node.names:
                top = one.name.partition(".")[0]
                yield (one.asname, one.name) if one.asname else (top, top)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            for one in node.names:
                yield one.asname or one.name, f"{node.module}.{one.name}"


def _dotted(node: ast.expr, imported: dict[str, str]) -> str:
    """The full path of an attribute; "" if it does not begin with what was imported."""
    if isinstance(node, ast.Name):
        return imported.get(node.id, "")
    if isinstance(node, ast.Attribute) and (owner := _dotted(node.value, imported)):
        return f"{owner}.{node.attr}"
    return ""


def _found(path: str) -> Any:
    """What it leads to now; runs none of its code."""
    parts = path.split(".")
    loaded = (count for count in range(len(parts), 0, -1) if ".".join(parts[:count]) in sys.modules)
    count = next(loaded, 0)
    found: Any = sys.modules[".".join(parts[:count])] if count else _ABSENT
    for part in parts[count:] if count else ():
        found = inspect.getattr_static(found, part, _ABSENT)
    return found
