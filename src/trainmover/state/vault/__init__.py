# SPDX-License-Identifier: Apache-2.0
"""What one machine's agent keeps in host memory for workers of other machines.

Rank records, put before the gate of every step, and blobs (recorded collectives, snapshots).
Bounded: a vault holds at most the bytes it was made for and says so. The store is pure; `serve`
puts it on a port of the agent's event loop, `VaultClient` is the worker's end.
"""

from trainmover.state.vault.client import VaultClient
from trainmover.state.vault.server import VaultServer, address_of, serve
from trainmover.state.vault.store import Record, Vault, graph_name, snapshot_name

__all__ = [
    "Record",
    "Vault",
    "VaultClient",
    "VaultServer",
    "address_of",
    "graph_name",
    "serve",
    "snapshot_name",
]
