# SPDX-License-Identifier: Apache-2.0
"""Of which kind this machine's GPUs are, from what their driver says in files.

Asking CUDA would open the devices, and a process that has done so cannot be forked any more.
"""

import os
import re
from pathlib import Path

import torch

NONE = "none"
_DRIVER = Path("/proc/driver/nvidia")


def gpus_of_host(driver: Path = _DRIVER, *, usable: bool | None = None) -> str:
    """Kinds of GPU and the version of the driver; "none" where a script cannot use any.

    usable: whether torch could use one; None: it is found out
    """
    if usable is None:
        usable = torch.version.cuda is not None
    hidden = os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1")
    models = {
        found[1].strip()
        for path in driver.glob("gpus/*/information")
        if (found := re.search(r"^Model:(.*)$", _text(path), re.MULTILINE))
    }
    if not models or hidden or not usable:
        return NONE
    version = re.search(r"Kernel Module.*?(\d+\.\d+(?:\.\d+)*)", _text(driver / "version"))
    said = f"driver {version[1]}" if version else "driver unknown"
    return f"{', '.join(sorted(models))} with {said}"


def _text(path: Path) -> str:
    try:
        return path.read_text(errors="replace")
    except OSError:
        return ""
