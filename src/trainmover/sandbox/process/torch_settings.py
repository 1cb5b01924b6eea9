# SPDX-License-Identifier: Apache-2.0
"""What a run of the script may set in torch for its whole process."""

from collections.abc import Callable
from typing import Any

import torch
from torch.utils import deterministic

from trainmover.sandbox.process.settings import Setting, mapping
from trainmover.state import rng
from trainmover.torch_internals.distributed.backends import backends
from trainmover.torch_internals.modes import chosen_device
from trainmover.torch_internals.modules import global_hooks

_AUTOCAST = ("cpu", "cuda")


def of_torch() -> list[Setting]:
    """Numbers depend on all of these, so no run may pass one on to the next."""
    return [
        Setting("the random generators", rng.capture, rng.restore),
        Setting("the default dtype", torch.get_default_dtype, torch.set_default_dtype),
        Setting("the default device", chosen_device, torch.set_default_device),
        Setting("the number of threads", torch.get_num_threads, torch.set_num_threads),
        Setting("the grad mode", torch.is_grad_enabled, _call(torch.set_grad_enabled)),
        Setting("the anomaly mode", _anomaly, lambda value: _write_anomaly(*value)),
        Setting("determinism", _determinism, lambda value: _write_determinism(*value)),
        Setting("autocast", _autocast, _write_autocast),
        *(Setting(name, one.ask, one.set_to) for name, one in backends().items()),
        # A second run would add the hooks for all modules and optimizers a second time.
        *(mapping(name, hooks) for name, hooks in global_hooks().items()),
    ]


def _call(setter: Callable[[Any], Any]) -> Callable[[Any], None]:
    def write(value: Any) -> None:
        setter(value)

    return write


def _anomaly() -> tuple[bool, bool]:
    return torch.is_anomaly_enabled(), torch.is_anomaly_check_nan_enabled()


def _write_anomaly(enabled: bool, check_nan: bool) -> None:
    torch.autograd.set_detect_anomaly(enabled, check_nan)


def _determinism() -> tuple[bool, bool, bool]:
    return (
        torch.are_deterministic_algorithms_enabled(),
        torch.is_deterministic_algorithms_warn_only_enabled(),
        deterministic.fill_uninitialized_memory,  # type: ignore[attr-defined]
    )


def _write_determinism(enabled: bool, warn_only: bool, fill: bool) -> None:
    torch.use_deterministic_algorithms(enabled, warn_only=warn_only)
    deterministic.fill_uninitialized_memory = fill  # type: ignore[attr-defined]


def _autocast() -> list[tuple[str, bool, torch.dtype]]:
    return [
        (device, torch.is_autocast_enabled(device), torch.get_autocast_dtype(device))
        for device in _AUTOCAST
    ]


def _write_autocast(value: list[tuple[str, bool, torch.dtype]]) -> None:
    for device, enabled, dtype in value:
        torch.set_autocast_enabled(device, enabled)
        torch.set_autocast_dtype(device, dtype)
