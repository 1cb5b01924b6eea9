# SPDX-License-Identifier: Apache-2.0
"""Bytes that are to be a message, and are perhaps none. Pure."""

from typing import TypeVar

import msgspec

from trainmover.errors import ProtocolError

_Message = TypeVar("_Message")
MALFORMED = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""Text that is no UTF-8, and values nested too deeply, have errors of their own."""


def read_message(
    decoder: msgspec.msgpack.Decoder[_Message], payload: bytes | memoryview | msgspec.Raw
) -> _Message:
    """Raises ProtocolError if `payload` is none."""
    try:
        return decoder.decode(payload)
    except MALFORMED as error:
        raise ProtocolError(
            f"A frame could not be read as a message: {error}.",
            means="The connection it came on is closed; nothing else was touched.",
            do="Both ends must run the same version of trainmover.",
        ) from error
