# SPDX-License-Identifier: Apache-2.0
"""Plain attributes of modules and optimizers that no state_dict has: `self.calls += 1` in forward.

Those that the script's code, or a metric's of some library, stores to after the set-up go with the
rank, as its small state does: numbers, strings, small tensors, and containers of such. What cannot
be sent, or is large, stays; it is compared with that of who takes the rank (`script/variables.py`).
"""

from collections.abc import Callable, Collection
from typing import Any

import torch
from torch import Tensor, nn

from trainmover.errors import UserError
from trainmover.state import encode, tensor_bytes
from trainmover.state.kinds.filling import Filling, filled
from trainmover.state.kinds.modules.registered import registered
from trainmover.torch_internals import modules, scripted

ATTRIBUTE_BYTES_MAX = 64 * 1024
Stored = Callable[[object], Collection[str]]
"""Names of the attributes of an object that code stores to after the set-up."""
_ABSENT: Any = object()
_GONE = ""
_PLAIN = frozenset({type(None), bool, int, float, str, bytes})


class Attributes:
    """Of a tracked module with those inside it, or of an optimizer; an object with the two state
    methods."""

    def __init__(self, owner: nn.Module | torch.optim.Optimizer, stored: Stored) -> None:
        self._owner, self._stored = owner, stored
        self._look()

    def _look(self) -> None:
        """For its modules, of which there are more where it was given some since."""
        owner, stored, self._layers = self._owner, self._stored, registered.layers
        self._modules = list(owner.modules()) if isinstance(owner, nn.Module) else []
        parts: list[Any] = self._modules or [owner]
        others = _OF_TORCH if self._modules else _OF_OPTIMIZERS
        found = [(part, sorted(set(stored(part)) - others)) for part in parts]
        self._parts = [(number, part, names) for number, (part, names) in enumerate(found) if names]
        self._compiled = [
            (number, part, names)
            for number, part in enumerate(parts)
            if isinstance(part, nn.Module) and (names := scripted.changed_in(part))
        ]

    def _look_again(self) -> None:
        """If any of them was given another since."""
        if registered.given_since(self._layers, self._modules):
            self._look()
        self._layers = registered.layers

    def __bool__(self) -> bool:
        """Whether there may be any."""
        return bool(self._parts or self._compiled)

    def state_dict(self) -> dict[str, Any]:
        """By number of the module and name; under "" those that are not set. Raises UserError for
        one of TorchScript's that no record can carry."""
        if registered.layers != self._layers:
            self._look_again()
        state: dict[str, Any] = {}
        gone = []
        for number, part, names in self._parts:
            held = vars(part)
            for name in names:
                value = held.get(name, _ABSENT)
                if value is _ABSENT:
                    gone.append(f"{number}.{name}")
                elif goes_along(value):
                    state[f"{number}.{name}"] = value
        for number, part, names in self._compiled:
            for name in names:
                value = getattr(part, name)
                if not goes_along(value):
                    raise _too_much(part, name)
                state[f"{number}.{name}"] = value
        return state | {_GONE: gone} if gone else state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Set them; containers that are there get the content, so who holds them sees it too. Two
        that are one object stay one where both are to hold the same: each may have begun with one
        default."""
        if registered.layers != self._layers:
            self._look_again()
        parts = {str(number): part for number, part, _ in [*self._parts, *self._compiled]}
        values = dict(state)
        for key in values.pop(_GONE, ()):
            number, _, name = key.partition(".")
            if number in parts and name in vars(parts[number]):
                object.__delattr__(parts[number], name)
        filling = Filling(self._trained())
        for key, value in values.items():
            number, _, name = key.partition(".")
            if number in parts and not _is_compiled_with(parts[number], name, value):
                filling.put(parts[number], name, value)

    def put(self, key: str, value: object) -> None:
        """Have the attribute that the state has by this key be that object."""
        number, _, name = key.partition(".")
        for at, part, _ in self._parts:
            if str(at) == number:
                setattr(part, name, value)

    def _trained(self) -> list[Tensor]:
        """What other parts of its state bring, and attributes may show."""
        owner = self._owner
        if isinstance(owner, nn.Module):
            return [*owner.parameters(), *owner.buffers()]
        return [one for group in owner.param_groups for one in group["params"]]


def _is_compiled_with(part: Any, name: str, value: object) -> bool:
    """Whether it is a tensor of TorchScript's, on whichever device, and could take this."""
    if name in vars(part) or not isinstance(value, Tensor):
        return False
    return filled(getattr(part, name), value)


def _too_much(part: object, name: str) -> UserError:
    kind = getattr(part, "original_name", type(part).__name__)
    return UserError(
        f"The compiled code of {kind} changes its attribute `{name}`, which is no plain value, or "
        f"more than {ATTRIBUTE_BYTES_MAX >> 10} KB.",
        means="No state_dict has it, and it cannot go with the record of every step: a rank that "
        "is taken over would go on with another.",
        do=f"Register `{name}` as a buffer of the module.",
    )


_OF_TORCH = modules.TABLES | {"training"}
_OF_OPTIMIZERS = frozenset({"state", "param_groups"})


def goes_along(value: object) -> bool:
    """Whether an attribute with this value is sent: dicts by module are not, nor what is large."""
    return type(value) in _PLAIN or _can_be_sent(value)


def _can_be_sent(value: object) -> bool:
    if isinstance(value, nn.Module | nn.Parameter):
        return False
    if isinstance(value, Tensor):
        fits = tensor_bytes.is_plain(value) and value.nbytes <= ATTRIBUTE_BYTES_MAX
        fits = fits and not hasattr(value, "to_local")
        return fits and not value.requires_grad
    try:
        return len(encode.encode(value)) <= ATTRIBUTE_BYTES_MAX
    except UserError:
        return False
