# SPDX-License-Identifier: Apache-2.0
"""Makes forks cheap: what a process has in memory is put into huge pages.

A fork copies an entry for each page that has been written, and an end takes them down again: torch
and what it imports have 50,000 of them. One for each 2 MB is nothing. What a child writes to is
still copied in small pages, so no more memory is used. Where a kernel (before 6.1) or its memory
does not allow for it, forks are what they were.
"""

import ctypes
from collections.abc import Iterable, Iterator

HUGE_BYTES = 2 * 1024 * 1024
MADV_COLLAPSE = 25


def use_huge_pages() -> None:
    """For all private memory of this process, as far as that can be."""
    madvise = ctypes.CDLL(None).madvise
    with open("/proc/self/maps") as maps:
        lines = maps.readlines()
    for start, length in whole_pages(lines):
        madvise(ctypes.c_void_p(start), ctypes.c_size_t(length), MADV_COLLAPSE)


def whole_pages(maps: Iterable[str]) -> Iterator[tuple[int, int]]:
    """Start and length of the huge pages that fit into a process's own memory."""
    for line in maps:
        addresses, rights, _, _, _, *name = line.split()
        if rights != "rw-p" or name not in ([], ["[heap]"]):
            continue
        begin, end = (int(address, 16) for address in addresses.split("-"))
        start = -(-begin // HUGE_BYTES) * HUGE_BYTES
        length = end // HUGE_BYTES * HUGE_BYTES - start
        if length > 0:
            yield start, length
