# SPDX-License-Identifier: Apache-2.0
"""What a rank's collectives gave during set-up and first steps, to be served to a shadow run.

Paper section 4.2: outputs of collectives are stored once per job, in its first steps; the hook is
gone afterwards and costs nothing. Small payloads are kept whole, and so is everything that is not
floating point: sizes, indices, pickled objects. Of larger floating-point payloads only moments are
kept, unless the job asked for all (`--record full`).
"""

from dataclasses import dataclass, field, replace

import xxhash
from torch import Tensor

from trainmover.errors import ProtocolError
from trainmover.sandbox.binding import Binding
from trainmover.sandbox.moments import Moments
from trainmover.sandbox.trace import CallId
from trainmover.state.tensor_bytes import view_bytes

STEPS = 3
"""Steps recorded and shadowed. DDP rebuilds its buckets in the second; the third is steady."""

SMALL_BYTES_MAX = 4096
"""Up to this size floating-point payloads are kept whole in any case."""


@dataclass(frozen=True)
class Kept:
    """One output: its bytes in logical order (1-d uint8), or the moments of what it held.

    large  another rank's of the same role serves as well
    """

    payload: Tensor | Moments
    large: bool = False


@dataclass(frozen=True)
class Entry:
    """One call: what it was, its outputs, where a message was from.

    outputs  none for a barrier, a send, a call inside the machine; an output is None where the
             record of rank `Record.base` has it
    refused  what it raised instead, which the script then caught: kind and text
    """

    what: str
    outputs: tuple[Kept | None, ...] = ()
    source: int = 0
    refused: tuple[str, str] | None = None


@dataclass(frozen=True)
class Record:
    """All calls of a rank up to the first fetch after step `STEPS`, or after a later one.

    steps         made until then
    trace         of the last of them, and of what came between it and the fetch
    signature     of the rank's tracked state; with the trace it says which role the rank has
    base          the rank whose record has the large outputs; None: they are here
    payload_full  bytes of all outputs, had they been kept whole
    held_bytes    of memory that the rank's process held when its first steps were done
    begun_ns      when the rank began its first step, since 1970
    blob          for a buddy: what keeps it where this rank's own record is kept; else None
    """

    binding: Binding
    rank: int
    steps: int
    trace: str
    signature: str
    entries: dict[CallId, Entry] = field(default_factory=dict)
    base: int | None = None
    payload_full: int = 0
    held_bytes: int = 0
    begun_ns: int = 0
    blob: bytearray | None = None

    def without_large(self, base: int) -> "Record":
        """Only what is this rank's own; the calls of `base` must be equal."""
        return replace(self, base=base, entries={c: _small(e) for c, e in self.entries.items()})

    def completed(self, base: "Record") -> "Record":
        """With the large outputs of the base's. Raises ProtocolError if they are not there."""
        filled = {call: _filled(e, base.entries.get(call)) for call, e in self.entries.items()}
        return replace(self, base=None, entries=filled)

    def kind(self) -> bytes:
        """Hash of the role and of all calls: where it is equal, large outputs are exchangeable."""
        digest = xxhash.xxh3_128(f"{self.signature}\0{self.trace}\0".encode())
        for (group, seq), entry in sorted(self.entries.items()):
            digest.update(f"{group} {seq} {entry.what}\0".encode())
        return digest.digest()

    def own(self) -> bytes:
        """Hash of the outputs that are not large."""
        digest = xxhash.xxh3_128()
        for _, entry in sorted(self.entries.items()):
            digest.update(f"{entry.source} {entry.refused} ".encode())
            for kept in entry.outputs:
                if kept is not None and isinstance(kept.payload, Tensor) and not kept.large:
                    digest.update(view_bytes(kept.payload))
        return digest.digest()


def _small(entry: Entry) -> Entry:
    return replace(entry, outputs=tuple(None if k is None or k.large else k for k in entry.outputs))


def _filled(entry: Entry, base: Entry | None) -> Entry:
    if None not in entry.outputs:
        return entry
    if base is None or base.what != entry.what or len(base.outputs) != len(entry.outputs):
        raise ProtocolError(
            f"A record lacks {entry.what}, and the record it refers to has it not either.",
            means="No standby can be warmed with it.",
            do="Please report this with the job's journal.",
        )
    filled = tuple(k or b for k, b in zip(entry.outputs, base.outputs, strict=True))
    return replace(entry, outputs=filled)


def blob_name(rank: int) -> str:
    """Under which name a rank's record lies in a vault."""
    return f"record/{rank}"
