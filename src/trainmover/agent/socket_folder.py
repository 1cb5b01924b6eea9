# SPDX-License-Identifier: Apache-2.0
"""The folder where workers of a machine meet: private, its name short enough for a socket."""

import tempfile
from pathlib import Path

PATH_MAX = 107
"""Bytes that the path of a Unix socket may have."""
NAME = "0123456789abcdef"
"""Of such a socket, as the native communicator names it."""
_SYSTEMS = "/tmp"


def make_socket_folder(directory: Path) -> Path:
    """Below `directory`; or, where that has too long a name, below the system's temporary folder.

    What does not lie in `directory` is removed by who asked for it.
    """
    folder = directory / "sockets"
    if len(str(folder / NAME).encode()) > PATH_MAX:
        return Path(tempfile.mkdtemp(prefix="trainmover-", dir=_SYSTEMS))
    folder.mkdir(exist_ok=True, mode=0o700)
    return folder
