# SPDX-License-Identifier: Apache-2.0
"""FSDP2's groups of parameters, and the gradients that it keeps beside its shards."""

from collections.abc import Iterable, Iterator
from typing import Any

import torch
from torch import Tensor, nn


def groups_of(module: nn.Module) -> Iterator[Any]:
    """Groups of parameters that FSDP2 gathers together."""
    parts: Iterable[Any] = module.modules()
    for part in parts:
        if hasattr(part, "_get_fsdp_state"):  # A public class has it, or none of FSDP2's is here.
            yield from _groups(part._get_fsdp_state())


def _groups(state: Any) -> list[Any]:
    if hasattr(state, "_fsdp_param_groups"):
        return list(state._fsdp_param_groups)
    one = state._fsdp_param_group  # Before torch 2.12.
    return [] if one is None else [one]


def is_gathered(group: Any) -> bool:
    """Whether its parameters are whole here for now."""
    return not group.is_sharded


def reshard(group: Any) -> None:
    """Let go of what was gathered: the next use gathers it again."""
    group.reshard()


def parameters_of(group: Any) -> list[Any]:
    """Its parameters, as FSDP2 sees them."""
    return list(group.fsdp_params)


def shard_of(parameter: Any) -> Tensor:
    """What optimizers have of it, whatever its module has."""
    shard: Tensor = parameter.sharded_param
    return shard


def shown_of(parameter: Any) -> Tensor:
    """What its module has of it now: the shard, or what was gathered for a while."""
    place = parameter._module_info
    shown: Tensor = getattr(place.module, place.param_name)
    return shown


def flag_of(group: Any, name: str) -> bool:
    """A flag that the script has set for the group."""
    return bool(getattr(group, name))


def set_flag(group: Any, name: str, *, value: bool) -> None:
    """As the script would."""
    setattr(group, name, value)


def partly_reduced(group: Any) -> Tensor | None:
    """What set_requires_all_reduce(False) has left of the group's gradients."""
    value: Tensor | None = group._partial_reduce_output
    return value


def set_partly_reduced(group: Any, value: Tensor | None) -> None:
    """None: nothing."""
    group._partial_reduce_output = None if value is None else value.to(_device_of(group))


def _device_of(group: Any) -> torch.device:
    return shard_of(group.fsdp_params[0]).device


def unsharded_gradient(parameter: Any) -> Tensor | None:
    """In whichever of the two places: accumulated in another type, or as autograd made it."""
    accumulated: Tensor | None = parameter.unsharded_accumulated_grad
    if accumulated is not None:
        return accumulated
    whole = _whole(parameter)
    return None if whole is None else whole.grad


def set_unsharded_gradient(parameter: Any, value: Tensor | None) -> None:
    """None: none."""
    parameter.unsharded_accumulated_grad = None if value is None else value.to(parameter.device)
    whole = _whole(parameter)
    if whole is not None:
        whole.grad = None


def _whole(parameter: Any) -> Any:
    """There only since the parameter was gathered for the first time."""
    return parameter._unsharded_param if hasattr(parameter, "_unsharded_param") else None
