# SPDX-License-Identifier: Apache-2.0
"""Buffers of a module that no record carries, since they are too large: told by a hash.

Whoever takes a rank has them from another one, as it has parameters. Parameters are written to by
updates, alike on all ranks; a buffer may lie there as it was made for a thousand steps, and be each
rank's own from then on: a memory that is filled behind a warm-up, a table that is learnt late. No
round may have come by since. So their hash goes with the record of every fetch and gate, and into
the sample of every gate (`proof.samples`): where they have parted it shows at once, and who would
take a rank from one that holds others does not.

They are read once, and again when they were written to, or lie elsewhere, or in another form, as
torch counts it. What writes past that (`.data`, numpy) is seen as it is made: one of which somebody
has made an alias is read each time from then on.
"""

from collections.abc import Iterator, Mapping
from typing import Any

import xxhash
from torch import Tensor, nn

from trainmover.asked import Answers, Held, held_in
from trainmover.state import encode, tensor_bytes
from trainmover.state.kinds.modules.buffers import Buffers
from trainmover.state.kinds.modules.registered import registered
from trainmover.state.proof.digest import hashes_of
from trainmover.torch_internals.modules import buffers_in, unsaved_of
from trainmover.torch_internals.tensors import ADDRESS, FORM, VERSION
from trainmover.torch_internals.watching.aliases import aliases, storage_of

KIND = "large_buffers"
_QUESTIONS = (VERSION, ADDRESS, *FORM)
NONE = encode.encode({})
"""State of a module that has none."""


class LargeBuffers:
    """Of one module: the persistent ones that `carried` does not have, as an object with the two
    state methods."""

    def __init__(self, module: nn.Module, carried: Buffers) -> None:
        self._module = module
        self._carried = carried
        self._found_at = -1
        self._held: Held = held_in([])  # In the modules, since `_tensors` were there.
        self._names: list[str] = []
        self._tensors: list[Tensor] = []
        self._marks = Answers(*_QUESTIONS)
        self._noted: list[tuple[Any, ...]] = []
        self._hashes: list[bytes] = []
        self._storages: list[int] = []
        self._aliased = False
        self._encoded = NONE

    def encoded(self) -> bytes:
        """Its state in bytes; the same ones for as long as nobody has written to them."""
        if (
            self._found_at == registered.buffers
            and not (self._aliased or aliases.met)
            and self._held.same()
            and self._marks.same(self._tensors)
        ):
            return self._encoded
        self._look()
        return self._encoded

    def state_dict(self) -> dict[str, Any]:
        """One hash for all of them; {} if there are none."""
        state: dict[str, Any] = encode.decode(self.encoded())
        return state

    def load_state_dict(self, state: Mapping[str, Any]) -> None:
        """They come with the bulk state: here is nothing to put."""

    def _look(self) -> None:
        """Where they are by now, and what those hold that may have changed."""
        if self._found_at != registered.buffers or not self._held.same():
            self._find()
        noted = [] if not self._tensors else self._note()
        aliased = [start in aliases.met for start in self._storages]
        self._aliased = any(aliased)
        stale = [
            at
            for at, mark in enumerate(noted)
            if aliased[at] or at >= len(self._noted) or mark != self._noted[at]
        ]
        read = hashes_of([self._tensors[at].detach() for at in stale])
        for at, found in zip(stale, read, strict=True):
            self._hashes[at] = found
        self._noted = noted
        if (now := self._as_bytes()) != self._encoded:
            self._encoded = now

    def _find(self) -> None:
        self._found_at = registered.buffers
        found = dict(self._those())
        parts = list(self._module.modules())
        self._held = held_in([buffers_in(part) for part in parts])
        self._names, self._tensors = list(found), list(found.values())
        self._noted, self._hashes = [], [b""] * len(found)

    def _those(self) -> Iterator[tuple[str, Tensor]]:
        carried = self._carried.names
        for path, part in self._module.named_modules():
            unsaved = unsaved_of(part)
            for own, buffer in buffers_in(part).items():
                name = f"{path}.{own}" if path else own
                if buffer is None or own in unsaved or name in carried:
                    continue
                if _is_told(buffer):
                    yield name, buffer

    def _note(self) -> list[tuple[Any, ...]]:
        self._marks.note(self._tensors)
        self._storages = list(map(storage_of, self._tensors))
        aliases.want(self._storages)
        return list(zip(*map(self._marks.noted, range(len(_QUESTIONS))), strict=True))

    def _as_bytes(self) -> bytes:
        if not self._tensors:
            return NONE
        whole = xxhash.xxh3_64()
        for name, tensor, found in zip(self._names, self._tensors, self._hashes, strict=True):
            form = f"{name} {tensor_bytes.dtype_name(tensor.dtype)}{list(tensor.shape)}"
            whole.update(form.encode() + found)
        return encode.encode({"hash": whole.intdigest() >> 1})


def _is_told(buffer: Tensor) -> bool:
    """Whether it can be. One that is sharded is each rank's own as it is made; of one that was made
    in inference mode nobody counts who writes to it."""
    return type(buffer) is Tensor and tensor_bytes.is_plain(buffer) and not buffer.is_inference()


def is_hash(path: str) -> bool:
    """Whether small state of that name is of large buffers."""
    return path.endswith(f".{KIND}")
