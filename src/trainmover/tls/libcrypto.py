# SPDX-License-Identifier: Apache-2.0
"""The library that encrypts what ranks exchange: the one that Python's own ssl module uses."""

import ctypes.util
from pathlib import Path

from trainmover.errors import UserError

_MAPPED = Path("/proc/self/maps")


def path() -> str:
    """For the dynamic loader. Raises UserError where there is none."""
    found = _loaded() or ctypes.util.find_library("crypto")
    if not found:
        raise UserError(
            "There is no libcrypto (OpenSSL) here that --tls could encrypt collectives with: this "
            "Python has one of its own inside, and the system has none.",
            means="Nothing was started.",
            do="Install one (apt-get install libssl3), or run without --tls, or with --comm gloo.",
        )
    return found


def _loaded() -> str | None:
    """What the ssl module has brought into this process."""
    try:
        import ssl  # noqa: F401  for what it loads
    except ImportError:
        return None
    lines = _MAPPED.read_text().splitlines()
    files = (line.split(maxsplit=5)[5] for line in lines if line.count("/"))
    return next((file for file in files if Path(file).name.startswith("libcrypto.so")), None)
