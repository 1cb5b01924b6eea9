# SPDX-License-Identifier: Apache-2.0
"""Network interfaces of this host."""

import psutil  # type: ignore[import-untyped]


def interface_of(address: str) -> str:
    """Return the name of the interface that has this IP address; "" if none has."""
    for name, addresses in psutil.net_if_addrs().items():
        if any(known.address == address for known in addresses):
            return str(name)
    return ""
