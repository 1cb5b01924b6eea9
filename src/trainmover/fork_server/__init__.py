# SPDX-License-Identifier: Apache-2.0
"""Processes that need not import: forked from one that has imported torch once.

A worker spends seconds of a core on importing torch. Where several of them start on one host, one
process, the fork server, imports for all; they are forked from it and share its memory until they
write to it. Here is the face of it for those that ask; it imports nothing heavy.
"""

from trainmover.fork_server.child import Child
from trainmover.fork_server.client import ForkServer
from trainmover.fork_server.wire import Birth

__all__ = ["Birth", "Child", "ForkServer"]
