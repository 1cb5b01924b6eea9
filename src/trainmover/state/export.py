# SPDX-License-Identifier: Apache-2.0
"""A checkpoint as `torch.distributed.checkpoint` has them, for programs that are none of ours.

    python -m trainmover.state.export FOLDER STEP-NAME OUT        in a process of its own

Keys begin with the name an object was tracked by: `model.0.weight`. They are those of rank 0; a
rank that holds something else has `rank3.` before them: of a sharded tensor each rank's part.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import torch
from torch.distributed.checkpoint.state_dict_saver import save

from trainmover.protocol.checkpoint import MANIFEST
from trainmover.protocol.messages import Checkpoint
from trainmover.state import encode
from trainmover.state.kinds.flat import unflatten
from trainmover.state.moments import PARTS
from trainmover.state.snapshot import Snapshot

_PARTS = tuple(f".{kind}" for kind in PARTS)
"""Kept beside a module or an optimizer: it has no place in a checkpoint of torch's."""


def export(folder: Path, name: str, out: Path) -> int:
    """Write the checkpoint; returns how many ranks hold what rank 0 holds. Raises OSError, or what
    `Snapshot.from_block` raises."""
    manifest = msgspec.json.decode((folder / name / MANIFEST).read_bytes())
    checkpoint = msgspec.convert(manifest["checkpoint"], Checkpoint, strict=False)
    whole: dict[str, Any] = {}
    alike, first = 0, b""
    for rank, parts in sorted(checkpoint.states.items()):
        block = b"".join((folder / part.file).read_bytes() for part in parts)
        snapshot = Snapshot.from_block(bytearray(block))
        first = first or _bulk_of(snapshot)
        if _bulk_of(snapshot) == first:
            alike += 1
            if rank:
                continue
        whole |= {f"rank{rank}.{key}" if rank else key: value for key, value in states(snapshot)}
    save(whole, checkpoint_id=out, no_dist=True)
    return alike


def _bulk_of(snapshot: Snapshot) -> bytes:
    """Equal where all that replicas share is."""
    header = encode.decode(snapshot.header)
    alike: bytes = header["bulk"] + header["digest"].encode()
    return alike


def states(snapshot: Snapshot) -> Iterator[tuple[str, Any]]:
    """Name and state of every tracked object, as its state_dict() was."""
    header = encode.decode(snapshot.header)
    small, remaining = header["small"], iter(snapshot.tensors)
    for name, structure in encode.decode(header["bulk"])["objects"].items():
        own = _buffers(small.get(f"{name}.buffers"))
        tensors = [
            own[hole.path] if hole.path in own else _shaped(next(remaining), hole)
            for hole in encode.holes(structure)
        ]
        yield name, encode.join(structure, tensors)
    for name, data in small.items():
        if not name.endswith(_PARTS):
            yield name, encode.decode(data)


def _buffers(data: bytes | None) -> dict[str, torch.Tensor]:
    state = encode.decode(data) if data is not None else {}
    return dict(unflatten(state["fit"], state["data"])) if state else {}


def _shaped(flat: torch.Tensor, hole: encode.Hole) -> torch.Tensor:
    return flat.view(hole.dtype).view(hole.shape)


if __name__ == "__main__":
    ours, step_name, theirs = sys.argv[1:]
    print(export(Path(ours), step_name, Path(theirs)))
