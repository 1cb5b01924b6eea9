# SPDX-License-Identifier: Apache-2.0
"""Moves bulk state from worker to worker, from tensor memory to tensor memory.

Blocking sockets in threads: while state moves, the training loop of both ends stands still anyway.
The client alone decides how long to wait; a server waits until its client hangs up or its owner
withdraws the offer. What may be read is only what was offered, while it is offered.
"""

from trainmover.state.transfer.direct import Direct, Pairings
from trainmover.state.transfer.fetch import Dropped, FetchReport, fetch
from trainmover.state.transfer.server import Offer, Offered, StateServer

__all__ = [
    "Direct",
    "Dropped",
    "FetchReport",
    "Offer",
    "Offered",
    "Pairings",
    "StateServer",
    "fetch",
]
