# SPDX-License-Identifier: Apache-2.0
"""The indices that a loader's sampler gives, as they come: a checksum, and on demand themselves."""

import array
import zlib
from collections import deque
from collections.abc import Iterator
from typing import Any


class Trail:
    """Stands between a loader and its sampler, and keeps a running checksum of the indices.

    Loader processes are sent indices ahead of time, so the checksums wait here until the batches
    they belong to are taken. So do the indices, if `keeps` them.
    """

    def __init__(self, inner: Any, *, keeps: bool = False) -> None:
        self.inner = inner
        self._keeps = keeps
        self._kept: deque[Any] = deque()
        self._first_kept = 0  # Batch that the first of the kept belongs to.
        self._marks: deque[int] = deque()
        self._first = 0  # Batch that the first of the marks belongs to.

    def __iter__(self) -> Iterator[Any]:
        self._marks, self._first = deque([0]), 0
        self._kept, self._first_kept = deque(), 0
        return self._note(iter(self.inner), self._marks, self._kept)

    def __len__(self) -> int:
        return len(self.inner)

    def mark_after(self, batches: int) -> int:
        """Checksum over the indices of the first `batches` batches of the pass."""
        while self._first < batches and len(self._marks) > 1:
            self._marks.popleft()
            self._first += 1
        return self._marks[0]

    def indices_of(self, batch: int) -> Any:
        """What the sampler gave for this batch of the pass, from 0; each can be asked for once."""
        while self._first_kept < batch:
            self._kept.popleft()
            self._first_kept += 1
        self._first_kept += 1
        return self._kept.popleft()

    def _note(
        self, indices: Iterator[Any], marks: "deque[int]", kept: "deque[Any]"
    ) -> Iterator[Any]:
        mark = 0
        for index in indices:
            mark = zlib.crc32(_bytes_of(index), mark)
            marks.append(mark)
            if self._keeps:
                kept.append(index)
            yield index


def _bytes_of(index: Any) -> bytes:
    """Equal in every process for equal indices; nothing for kinds of which that is not certain."""
    many = index if isinstance(index, list | tuple) else [index]
    try:
        return array.array("q", many).tobytes()
    except (TypeError, OverflowError):
        known = all(isinstance(one, str | int | float | tuple) for one in many)
        return "\0".join(map(str, many)).encode() if known else b""
