# SPDX-License-Identifier: Apache-2.0
"""Whether a process may be forked from: only one that could not tell the difference.

A fork has one thread, whatever its parent had, and locks stay as they were. And a driver that was
opened before a fork does not work behind it: CUDA cannot be used then.
"""

import os
from pathlib import Path

DEVICES = ("/dev/nvidia", "/dev/kfd", "/dev/dri")


def unfit() -> str:
    """Why nothing may be forked from this process; "" if it may."""
    if threads() > 1:
        return "importing has started threads"
    for descriptor in Path("/proc/self/fd").iterdir():
        if _leads_to(descriptor).startswith(DEVICES):
            return "importing has opened a device"
    return ""


def threads() -> int:
    """How many this process has, also those that python does not know of."""
    return len(os.listdir("/proc/self/task"))


def _leads_to(descriptor: Path) -> str:
    try:
        return os.readlink(descriptor)
    except FileNotFoundError:  # The one that listed the folder.
        return ""
