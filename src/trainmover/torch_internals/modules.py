# SPDX-License-Identifier: Apache-2.0
"""Modules: where their buffers stand, and hooks for all of them."""

import operator
from collections.abc import Callable
from typing import Any

from torch import Tensor, nn
from torch.nn.modules import module
from torch.optim import optimizer

buffers_of: Callable[[nn.Module], dict[str, Tensor | None]] = operator.attrgetter("_buffers")
"""Live: whoever writes there replaces a buffer."""

TABLES = frozenset({"_buffers", "_modules", "_parameters", "_non_persistent_buffers_set"})
"""Attributes of a module in which torch keeps what it has."""

OF_MODULES = frozenset(vars(nn.Module()))
"""What every module has."""
OF_TORCH = OF_MODULES - {"_modules"}
"""But for that with the modules in it."""

VERSIONS = "_metadata"
"""Attribute of what state_dict() gives: versions of its modules, for load_state_dict()."""

_HOOKS: list[tuple[Any, tuple[str, ...]]] = [
    (
        module,
        (
            "_global_buffer_registration_hooks",
            "_global_module_registration_hooks",
            "_global_parameter_registration_hooks",
            "_global_backward_pre_hooks",
            "_global_backward_hooks",
            "_global_forward_pre_hooks",
            "_global_forward_hooks",
            "_global_forward_hooks_always_called",
            "_global_forward_hooks_with_kwargs",
        ),
    ),
    (optimizer, ("_global_optimizer_pre_hooks", "_global_optimizer_post_hooks")),
]


def tensors_of(part: nn.Module) -> dict[str, Tensor | None]:
    """Its own parameters and buffers; {} of one that was never set up."""
    return {**parameters_in(part), **buffers_in(part)}


def parameters_in(part: nn.Module) -> dict[str, nn.Parameter | None]:
    """Its own, live; {} of one that was never set up."""
    found: dict[str, nn.Parameter | None] = vars(part).get("_parameters", {})
    return found


def buffers_in(part: nn.Module) -> dict[str, Tensor | None]:
    """The same of buffers."""
    found: dict[str, Tensor | None] = vars(part).get("_buffers", {})
    return found


def has_buffer(part: nn.Module, name: str) -> bool:
    """Not of one whose tensors are elsewhere, as TorchScript's are."""
    return name in vars(part).get("_buffers", ())


def parts_of(part: nn.Module) -> dict[str, nn.Module | None]:
    """Those that stand in it, live; {} of one that was never set up."""
    found: dict[str, nn.Module | None] = vars(part).get("_modules", {})
    return found


def unsaved_of(part: nn.Module) -> list[str]:
    """Names of its buffers that are in no state_dict(); [] of one that was never set up."""
    held = vars(part)
    own = held.get("_buffers", {})
    return [name for name in held.get("_non_persistent_buffers_set", ()) if name in own]


def global_hooks() -> dict[str, dict[int, Any]]:
    """By name, those that are called for every module, and for every optimizer. Live."""
    return {name: getattr(owner, name) for owner, names in _HOOKS for name in names}


def versions_of(state: Any) -> Any:
    """What state_dict() has hung on the dict it gave; None: it gave another dict."""
    return state._metadata if hasattr(state, VERSIONS) else None


def set_versions(state: Any, versions: Any) -> None:
    """As state_dict() would."""
    state._metadata = versions
