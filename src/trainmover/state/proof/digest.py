# SPDX-License-Identifier: Apache-2.0
"""A digest of states: one number for each tensor, and one over those and all else.

So of two processes it can be said not only whether they hold the same, but which tensors they do:
what a joiner has already need not be sent to it (`transfer`).
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

import xxhash
from torch import Tensor

from trainmover.state import encode, tensor_bytes
from trainmover.state.proof import device_digest

HASH_BYTES = 16


class Digest(NamedTuple):
    """Equal in two processes if and only if the states are equal bit for bit; where the tensors
    lie, their strides and the insertion order of dicts do not matter.

    whole    32 hex digits
    tensors  hash of each tensor's bytes, by the name of its state and the path in it
    """

    whole: str
    tensors: dict[str, bytes]


def digest_of(
    states: Iterable[tuple[str, Any]], known: Mapping[str, bytes] | None = None
) -> Digest:
    """XXH3-128 of states by name, in this order.

    known  hashes of tensors as they are now, as in `Digest`: their bytes are not read again
    """
    whole, hashes = xxhash.xxh3_128(), dict[str, bytes]()
    known = known or {}
    for name, state in states:
        structure, found = encode.split(state, canonical=True)
        for part in (name.encode(), structure):
            whole.update(len(part).to_bytes(8, "little"))
            whole.update(part)
        paths = [f"{name}.{hole.path}" for hole in encode.holes(structure)]
        new = {
            path: encode.as_local(tensor)
            for path, tensor in zip(paths, found, strict=True)
            if not known.get(path)
        }
        made = dict(zip(new, hashes_of(list(new.values())), strict=True))
        for path in paths:
            hashes[path] = known.get(path) or made[path]
            whole.update(hashes[path])
    return Digest(whole.hexdigest(), hashes)


def hashes_of(tensors: Sequence[Tensor]) -> list[bytes]:
    """Of the bytes of tensors that are not sharded."""
    made = device_digest.of_distant(tensors)
    return [
        made[n] if n in made else xxhash.xxh3_128_digest(tensor_bytes.view_bytes(tensor))
        for n, tensor in enumerate(tensors)
    ]
