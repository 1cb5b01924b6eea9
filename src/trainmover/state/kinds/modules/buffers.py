# SPDX-License-Identifier: Apache-2.0
"""Buffers of a module as state of their own: data parallel ranks hold different ones.

The running mean of a batch-norm is updated from each rank's own batch, so a replica's buffers are
not the lost rank's. They are small, and part of the rank record of every step: read in one go, not
one by one. What is too large for that is in `large_buffers`.
"""

from collections.abc import Mapping
from typing import Any

import torch
from torch import Tensor, nn

from trainmover.asked import Held, held_in
from trainmover.errors import ProtocolError
from trainmover.state import encode, tensor_bytes
from trainmover.state.encode import as_local
from trainmover.state.kinds.flat import Flat, shapes_in
from trainmover.torch_internals.modules import buffers_of

BUFFERS_BYTES_MAX = 4 * 1024 * 1024
"""Above that only a module's small buffers are carried: the others count as replicated, like its
parameters."""
SMALL_BYTES, SMALL_BYTES_MAX = 64 * 1024, 1024 * 1024
"""Of one that is carried beside large ones, and of all of them: statistics of norms."""


class Buffers:
    """The persistent buffers of `module`, as an object with state_dict and load_state_dict."""

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        persistent = module.state_dict().keys()
        named = ((name, b) for name, b in module.named_buffers() if name in persistent)
        found = {name: b for name, b in named if tensor_bytes.is_plain(as_local(b))}
        owners = dict(module.named_modules())
        self._slots = [
            (name, buffers_of(owners[name.rpartition(".")[0]]), name.rpartition(".")[2])
            for name in _carried(found)
        ]
        self._names: list[str] = []
        self._held: Held | None = None  # In the modules, since `_values` were there.
        self._values: list[Tensor] = []
        self._flat = Flat()
        self._seen: tuple[bytes, bytes] | None = None
        self._encoded = b""

    @property
    def names(self) -> set[str]:
        """Of those that are carried, whether they are set now or not."""
        return {name for name, *_ in self._slots}

    def live(self) -> dict[str, Tensor]:
        """Live tensors by name; {} for a module with none, or with large ones alone."""
        found = {name: owner[key] for name, owner, key in self._slots}
        return {name: tensor for name, tensor in found.items() if tensor is not None}

    def state_dict(self) -> dict[str, Any]:
        """fit: name, dtype and shape of each; data: their bytes."""
        if self._held is None or not self._held.same():
            live = self.live()
            self._names, self._values = list(live), list(live.values())
            self._held = held_in(list({id(owner): owner for _, owner, _ in self._slots}.values()))
        if not self._values:
            return {}
        fit, data = self._flat.state(self._names, self._values)
        return {"fit": fit, "data": data}

    def encoded(self) -> bytes:
        """Its state in bytes; the same ones for as long as `Flat` gives the same."""
        state = self.state_dict()
        if not state:
            return encode.encode(state)
        seen, now = self._seen, (state["fit"], state["data"])
        if seen is None or seen[0] is not now[0] or seen[1] is not now[1]:
            self._seen, self._encoded = now, encode.encode(state)
        return self._encoded

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """Copy into the live tensors, or into new ones where they have another shape, as a queue
        that grows. Raises ProtocolError if they are others."""
        live = self.live()
        if not state and not live:
            return
        if state and state["fit"] != self._flat.fit(live):
            self._reshape(shapes_in(state["fit"], len(state["data"])))
            live = self.live()
        if not state or state["fit"] != self._flat.fit(live):
            raise ProtocolError(
                "A record has other buffers than the model here.",
                means="This process cannot take the rank: it built something else.",
                do="A script must build the same objects for a rank wherever it runs.",
            )
        with torch.no_grad():
            self._flat.write(live, state["data"])

    def _reshape(self, shapes: Mapping[str, list[int]]) -> None:
        for name, owner, key in self._slots:
            known = owner[key]
            if known is not None and list(known.shape) != shapes.get(name, list(known.shape)):
                owner[key] = known.new_empty(shapes[name])


def _carried(found: Mapping[str, Tensor]) -> list[str]:
    """Names of those that go with the record: all, or of many bytes the smallest. Alike in every
    process, since it follows from their sizes."""
    if sum(buffer.nbytes for buffer in found.values()) <= BUFFERS_BYTES_MAX:
        return list(found)
    chosen, left = set[str](), SMALL_BYTES_MAX
    for name in sorted(found, key=lambda name: found[name].nbytes):
        left -= found[name].nbytes
        if left < 0 or found[name].nbytes > SMALL_BYTES:
            break
        chosen.add(name)
    return [name for name in found if name in chosen]
