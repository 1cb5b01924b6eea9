# SPDX-License-Identifier: Apache-2.0
"""Backends of gloo, made as torch makes them."""

from datetime import timedelta
from typing import Any

from torch._C._distributed_c10d import ProcessGroupGloo, _ProcessGroupWrapper

_STOCK: Any = ProcessGroupGloo  # torch's stubs lag behind.


def options(devices: list[Any], timeout: timedelta) -> Any:
    """With two threads for each device, as torch has it."""
    made = _STOCK._Options()
    made._devices, made._threads, made._timeout = devices, 2 * len(devices), timeout
    return made


def checked(backend: Any, checker: Any) -> Any:
    """A backend that compares, over another one, what all ranks call: TORCH_DISTRIBUTED_DEBUG."""
    return _ProcessGroupWrapper(backend, checker)
