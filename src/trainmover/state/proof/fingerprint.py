# SPDX-License-Identifier: Apache-2.0
"""What a rank tracks, as one 64-bit number for each tensor: equal numbers are equal bytes.

Cheap enough to be taken from time to time while a job trains (a hash at the speed of memory), and
small enough to be compared by one place for all ranks. Three sections, in this order, because a
difference means another thing in each:

    shared   parameters, optimizer state: what a joiner takes from another rank's memory; beside
             the tensors of an object one entry, under its name, for all else in its state
    buffers  of modules, where they travel with the rank's record (`buffers`)
    small    other objects (schedulers, scalers, counters) and gradients that wait for the next
             step, each as a whole

Each section is sorted by path, so ranks that hold the same have the same bytes.
"""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import xxhash
from torch import Tensor

from trainmover.state import encode, tensor_bytes
from trainmover.state.moments import Moment
from trainmover.state.proof import device_digest
from trainmover.state.tracked import Tracked

HASH_BYTES = 8

Entry = tuple[str, int]
"""Path and hash."""


@dataclass(frozen=True)
class Fingerprint:
    """Of everything one rank tracks, at one moment.

    sections  how many of the paths belong to each
    hashes    8 bytes for each path, little endian
    read      bytes of tensors
    """

    paths: list[str]
    sections: tuple[int, int, int]
    hashes: bytes
    read: int

    @property
    def shared(self) -> bytes:
        """Hashes of the first section."""
        return self.hashes[: self.sections[0] * HASH_BYTES]

    @property
    def rest(self) -> bytes:
        """Hashes of the other two."""
        return self.hashes[self.sections[0] * HASH_BYTES :]

    @property
    def layout(self) -> int:
        """Hash of what the hashes belong to: ranks of equal layout need tell the paths but once."""
        return xxhash.xxh3_64_intdigest("\n".join([repr(self.sections), *self.paths]).encode())

    @property
    def replica(self) -> int:
        """Hash of what replicas have in common."""
        return xxhash.xxh3_64_intdigest(self.shared, self.layout)


def fingerprint(tracked: Tracked) -> Fingerprint:
    """Reads all state once; nothing is copied but what does not lie contiguous on the CPU."""
    shared: list[Entry] = []
    read = 0
    for name, state in tracked.shared_states():
        structure, tensors = encode.split(state, canonical=True)
        shared.append((name, xxhash.xxh3_64_intdigest(structure)))
        local = [encode.as_local(tensor) for tensor in tensors]
        paths = [f"{name}.{hole.path}" for hole in encode.holes(structure)]
        shared += zip(paths, hashes_of(local), strict=True)
        read += sum(tensor.nbytes for tensor in local)
    buffers = [
        (f"{name}.{key}", found)
        for name, own in tracked.buffer_states()
        for key, found in zip(own, hashes_of(list(own.values())), strict=True)
    ]
    sections = [sorted(section) for section in (shared, buffers, list(_small(tracked)))]
    entries = [entry for section in sections for entry in section]
    first, second, third = map(len, sections)
    return Fingerprint(
        [path for path, _ in entries],
        (first, second, third),
        b"".join(number.to_bytes(HASH_BYTES, "little") for _, number in entries),
        read,
    )


def hashes_of(tensors: Sequence[Tensor]) -> list[int]:
    """XXH3-64 of shape, dtype and bytes of tensors that are not sharded."""
    made = device_digest.of_distant(tensors)
    found = []
    for n, tensor in enumerate(tensors):
        fit = f"{tensor_bytes.dtype_name(tensor.dtype)}{list(tensor.shape)}"
        seed = xxhash.xxh3_64_intdigest(fit.encode())
        data = made[n] if n in made else tensor_bytes.view_bytes(tensor)
        found.append(xxhash.xxh3_64_intdigest(data, seed))
    return found


def _small(tracked: Tracked) -> Iterator[Entry]:
    in_buffers = {f"{name}.buffers" for name, _ in tracked.buffer_states()}
    for name, data in tracked.small_states(Moment.COMPARE).items():
        if name not in in_buffers:
            yield name, xxhash.xxh3_64_intdigest(data)
