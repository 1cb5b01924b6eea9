# SPDX-License-Identifier: Apache-2.0
"""What a machine and the controller say to each other behind a relay, so that the relay can neither
change nor make it. Pure.

    frame of a lane    mark (16) | payload; empty: a beat

A mark covers the number of the frame, which does not travel, and the payload, under a key of its
direction. Keys come from the job's token and from a ticket that the controller gives the machine
over a link of its own: whoever does not know both makes no mark, and a relay sees no ticket. (A
machine that the controller does not reach gets it from the relay, which sees it then.) What
is left out, repeated or in another order is found at the next frame. Beats carry none: all that
follows from one is that the lane is not silent.
"""

import hmac

from trainmover.protocol.framing import FRAME_BYTES_MAX
from trainmover.protocol.sealed import MARK_BYTES, Marks, changed

RELAY = "relay"
"""The service by which machines come to one that relays."""
BEAT = b""
CARRIED_BYTES_MAX = 2 * FRAME_BYTES_MAX
"""Of a frame that carries others, each of which may be as long as one that goes alone."""


class LaneSession:
    """One end of a lane.

    >>> here, there = (LaneSession(b"token", "ticket", controller=at) for at in (True, False))
    >>> there.opened(here.seal(b"order"))
    b'order'
    """

    def __init__(self, token: bytes, ticket: str, *, controller: bool) -> None:
        down, up = (_marks(token, ticket, way) for way in (b"down", b"up"))
        self._says, self._hears = (down, up) if controller else (up, down)

    def mark(self, payload: bytes) -> bytes:
        """Of what is said next."""
        return self._says.next(payload)

    def seal(self, payload: bytes) -> bytes:
        """The frame around what is said next."""
        return self._says.next(payload) + payload

    def opened(self, frame: bytes) -> bytes:
        """The payload of what has come, which is no beat. Raises ProtocolError."""
        if len(frame) < MARK_BYTES:
            raise changed()
        payload = frame[MARK_BYTES:]
        self._hears.check(frame[:MARK_BYTES], payload)
        return payload


def _marks(token: bytes, ticket: str, way: bytes) -> Marks:
    text = b"trainmover lane: " + way + b"\0" + ticket.encode()
    return Marks(hmac.digest(token, text, "sha256"))
