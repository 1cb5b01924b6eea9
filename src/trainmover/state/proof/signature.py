# SPDX-License-Identifier: Apache-2.0
"""What kind of state a rank tracks, without its values: ranks of one role have equal signatures."""

import re
from collections.abc import Iterable
from typing import Any

import xxhash

from trainmover.state import encode

_NUMBER = re.compile(r"(?<=[.\[_])\d+(?=[.\]_]|$)")


def signature_of(objects: Iterable[tuple[str, str, Any]]) -> str:
    """Hash of names and types of objects, in this order, and of place, shape and dtype of each
    tensor in their states; of a sharded tensor the local part. 32 hex digits.

    Numbers in names count from where a rank's own begin: layers 4 and 5 of one pipeline stage are
    what layers 2 and 3 are of another.
    """
    digest = xxhash.xxh3_128()
    for name, kind, state in objects:
        structure, _ = encode.split(state, canonical=True)
        holes = encode.holes(structure)
        digest.update(f"{name} {kind} {len(holes)}\n".encode())
        paths = renumbered([hole.path for hole in holes])
        for path, hole in sorted(zip(paths, holes, strict=True), key=lambda pair: pair[0]):
            digest.update(f"{path} {hole.shape} {hole.dtype} {hole.sharded}\n".encode())
    return digest.hexdigest()


def renumbered(paths: list[str]) -> list[str]:
    """The paths with the numbers that occur in one place replaced by 0, 1, 2...

    >>> renumbered(["layers.4.weight", "layers.7.weight", "head.2"])
    ['layers.0.weight', 'layers.1.weight', 'head.0']
    """
    seen: dict[str, set[int]] = {}
    for path in paths:
        for found in _NUMBER.finditer(path):
            seen.setdefault(path[: found.start()], set()).add(int(found[0]))
    order = {place: sorted(numbers) for place, numbers in seen.items()}

    def numbered(path: str) -> str:
        return _NUMBER.sub(lambda n: str(order[path[: n.start()]].index(int(n[0]))), path)

    return [numbered(path) for path in paths]
