# SPDX-License-Identifier: Apache-2.0
"""Two connections become one: what comes on either goes out on the other, and so does its end."""

import asyncio
from contextlib import suppress

Ends = tuple[asyncio.StreamReader, asyncio.StreamWriter]
_BYTES = 256 * 1024


async def splice(one: Ends, other: Ends) -> None:
    """Until one of them has ended; both are closed then."""
    passing = [
        asyncio.ensure_future(_pass(one[0], other[1])),
        asyncio.ensure_future(_pass(other[0], one[1])),
    ]
    try:
        await asyncio.wait(passing, return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in passing:
            task.cancel()
        for _, writer in (one, other):
            writer.transport.abort()


async def _pass(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):  # One end is gone, which is how it ends.
        while data := await reader.read(_BYTES):
            writer.write(data)
            await writer.drain()
