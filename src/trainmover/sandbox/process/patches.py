# SPDX-License-Identifier: Apache-2.0
"""What a script's files put into what is installed: a method of torch's, wrapped, say.

The module stays loaded, so a second run in the process would wrap what the first has wrapped. The
source tells beforehand which names it stores to; what they were is kept, and put back.
"""

import inspect
import sys
from typing import Any

from trainmover.state.script.code.source import source_of

_ABSENT = object()


class Patches:
    """Of one run. Only names that the source says: `torch.optim.AdamW.step = ...`."""

    def __init__(self) -> None:
        self._names: dict[str, None] = {}
        self._were: dict[str, tuple[Any, str, Any]] = {}

    def note(self, path: str) -> None:
        """A file of the script's is about to be run."""
        source = source_of(path)
        if source is not None:
            self._names |= dict.fromkeys(sorted(source.patches))
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


def _found(path: str) -> Any:
    """What it leads to now; runs none of its code."""
    parts = path.split(".")
    loaded = (count for count in range(len(parts), 0, -1) if ".".join(parts[:count]) in sys.modules)
    count = next(loaded, 0)
    found: Any = sys.modules[".".join(parts[:count])] if count else _ABSENT
    for part in parts[count:] if count else ():
        found = inspect.getattr_static(found, part, _ABSENT)
    return found
