# SPDX-License-Identifier: Apache-2.0
"""What all messages are made of. Pure."""

import msgspec


class Message(msgspec.Struct, frozen=True, kw_only=True, tag=True):
    """Root of everything that is framed between our processes."""
