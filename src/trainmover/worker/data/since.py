# SPDX-License-Identifier: Apache-2.0
"""What the parts of a loader have become since its pass began, and not by the pass: a generator
that the loop draws from as well, a sampler that is gone over once more, an epoch that is set for
the passes to come.

A pass that is begun again comes by itself to what it made of them. So a place has them only where
they are another than behind the first batch, and they are put when the batches are passed over.
"""

from collections.abc import Mapping
from operator import is_
from typing import Any

from trainmover.state.encode import decode, encode
from trainmover.state.kinds.generators import Generator, set_state, state_of
from trainmover.worker.data.epochs import Epochs
from trainmover.worker.data.loader_parts import counting, numbers_of, set_numbers


class Since:
    """Of one pass. Encodable are `state`'s."""

    def __init__(self, loader: Any, epochs: Epochs, generators: Mapping[str, Generator]) -> None:
        """The pass stands where it comes to by itself.

        generators: that it draws its indices from
        """
        self._loader, self._epochs, self._generators = loader, epochs, generators
        self._drawn = {name: encode(state_of(one)) for name, one in generators.items()}
        counted = map(vars, counting(loader))
        self._counts = [(held, [*held], [*held.values()]) for held in counted]

    def state(self) -> dict[str, Any]:
        """What is another now; mostly nothing. Asked at each step."""
        found: dict[str, Any] = {}
        for name, generator in self._generators.items():
            drawn = encode(state_of(generator))
            if drawn != self._drawn[name]:
                found.setdefault("generators", {})[name] = drawn
        for held, names, before in self._counts:
            now = [*map(held.get, names)]
            if len(held) != len(names) or not all(map(is_, now, before)):
                found["numbers"], found["epochs"] = numbers_of(self._loader), self._epochs.state()
                break
        return found

    def put(self, state: dict[str, Any]) -> None:
        """As another process had it."""
        for name, drawn in state.get("generators", {}).items():
            if name in self._generators:
                set_state(self._generators[name], decode(drawn))
        if "numbers" in state:
            self._epochs.put(state["epochs"])
            set_numbers(self._loader, state["numbers"])
