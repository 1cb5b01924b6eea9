# SPDX-License-Identifier: Apache-2.0
"""What is in force for all calls of a thread."""

from dataclasses import asdict
from typing import Any

from torch import _tensor_str, device
from torch._C import _autograd
from torch.distributions import Distribution
from torch.overrides import (
    TorchFunctionMode,
    _get_current_function_mode_stack,
    _pop_mode,
    _push_mode,
)
from torch.utils import _device
from torch.utils._python_dispatch import (
    _disable_current_modes,
    _get_current_dispatch_mode_stack,
)

without_modes = _disable_current_modes
"""A context in which tensors are what they seem, also inside of a compiler."""


def chosen_device() -> device | None:
    """By torch.set_default_device; None: nobody has chosen one. (torch.get_default_device says
    "cpu" for both.)"""
    chosen: device | None = _device.CURRENT_DEVICE
    return chosen


def printed_by_torch() -> dict[str, Any]:
    """What torch.set_printoptions has set."""
    return asdict(_tensor_str.PRINT_OPTS)


def distributions_check() -> bool:
    """Whether distributions look at what they are given; see `set_default_validate_args`."""
    return bool(Distribution._validate_args)


def entered() -> list[Any]:
    """Modes that lie on this thread's stacks, in the order in which they were entered; but for that
    of the default device."""
    of_functions: list[Any] = _get_current_function_mode_stack()  # type: ignore[no-untyped-call]
    every = [*of_functions, *_get_current_dispatch_mode_stack()]
    return [one for one in every if not isinstance(one, _device.DeviceContext)]


def enter_below(mode: TorchFunctionMode) -> None:
    """Below all others of this thread: whoever leaves one takes off the uppermost, whichever that
    is. But that of the default device lies lowest, as torch wants it."""
    every = _take_off()
    lowest = every[:1] if chosen_device() is not None else []
    _put_on([*lowest, mode, *every[len(lowest) :]])


def leave(mode: TorchFunctionMode) -> None:
    """Wherever it lies, if it does."""
    _put_on([one for one in _take_off() if one is not mode])


def _take_off() -> list[TorchFunctionMode]:
    """All of them, the lowest first."""
    every: list[TorchFunctionMode] = _get_current_function_mode_stack()  # type: ignore[no-untyped-call]
    for _ in every:
        _pop_mode()  # type: ignore[no-untyped-call]
    return every


def _put_on(modes: list[TorchFunctionMode]) -> None:
    for mode in modes:
        _push_mode(mode)  # type: ignore[no-untyped-call]


def hook_for_saved() -> Any:
    """What packs the tensors that graphs save; None: nothing does."""
    hooks = _autograd._top_saved_tensors_default_hooks(True)
    return None if hooks is None else hooks[0]
