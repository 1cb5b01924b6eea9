# SPDX-License-Identifier: Apache-2.0
"""Facts of a machine that a script may hold: host name, process id, ports, folders, device.

A standby on another machine has facts of its own, and must keep them. A text or a number of the
rank stays the standby's own if both are the same fact, each of its machine.
"""

import getpass
import os
import socket
import tempfile
from collections.abc import Mapping

import torch

Facts = dict[str, str | int]
_VARIABLES = (
    *("MASTER_ADDR", "MASTER_PORT", "HOSTNAME", "HOME", "TMPDIR", "CUDA_VISIBLE_DEVICES"),
    *("TRAINMOVER_MACHINE", "SLURMD_NODENAME", "SLURM_TMPDIR", "NODE_NAME", "POD_NAME", "POD_IP"),
)


def facts() -> Facts:
    """Return the facts of this process and its machine, by name."""
    found: Facts = {
        "host name": socket.gethostname(),
        "process": os.getpid(),
        "parent process": os.getppid(),
        "folder for temporary files": tempfile.gettempdir(),
        "home": os.path.expanduser("~"),
        "user": _user(),
    }
    found |= {name: os.environ[name] for name in _VARIABLES if name in os.environ}
    port = found.get("MASTER_PORT")
    if isinstance(port, str) and port.isdecimal():
        found["port"] = int(port)
    if torch.cuda.is_available() and torch.cuda.is_initialized():  # type: ignore[no-untyped-call]
        found["device"] = f"cuda:{torch.cuda.current_device()}"
    return found


def _user() -> str:
    try:
        return getpass.getuser()
    except (OSError, KeyError):  # A container's user without a name.
        return ""


def is_fact(value: object, live: object, theirs: Mapping[str, str | int], mine: Facts) -> bool:
    """Tell whether a value of the rank and a live one are the same fact, each of its machine.

    theirs, mine  facts of the rank's machine and of this one. A text may contain one, as the path
                  of a file in a folder does.
    """
    if type(value) is not type(live) or value == live:
        return False
    if isinstance(value, torch.device):
        value, live = str(value), str(live)
    names = [name for name, fact in theirs.items() if name in mine and type(fact) is type(value)]
    if isinstance(value, int):
        return any(theirs[name] == value and mine[name] == live for name in names)
    if not isinstance(value, str):
        return False
    text = value
    for name in sorted(names, key=lambda one: len(str(theirs[one])), reverse=True):
        if theirs[name]:
            text = text.replace(str(theirs[name]), str(mine[name]))
    return text == live
