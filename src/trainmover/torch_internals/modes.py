# SPDX-License-Identifier: Apache-2.0
"""What is in force for all calls of a thread."""

from torch import device
from torch.utils import _device
from torch.utils._python_dispatch import (
    _disable_current_modes,
)

without_modes = _disable_current_modes
"""A context in which tensors are what they seem, also inside of a compiler."""


def chosen_device() -> device | None:
    """By torch.set_default_device; None: nobody has chosen one. (torch.get_default_device says
    "cpu" for both.)"""
    chosen: device | None = _device.CURRENT_DEVICE
    return chosen
