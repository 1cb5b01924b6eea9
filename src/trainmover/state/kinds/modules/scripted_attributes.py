# SPDX-License-Identifier: Apache-2.0
"""Attributes of TorchScript's modules, which lie in C++ and in no state_dict.

Those that the compiled code changes go with the rank, as its small state does: numbers, strings,
small tensors, and containers of such.
"""

from typing import Any

from torch import Tensor, nn

from trainmover.errors import UserError
from trainmover.state import encode, tensor_bytes
from trainmover.state.kinds.filling import Filling, filled
from trainmover.torch_internals import scripted

ATTRIBUTE_BYTES_MAX = 64 * 1024
_PLAIN = frozenset({type(None), bool, int, float, str, bytes})


class ScriptedAttributes:
    """Of a tracked module with those inside it; an object with the two state methods."""

    def __init__(self, owner: nn.Module) -> None:
        self._owner = owner
        self._parts = {
            str(number): (part, names)
            for number, part in enumerate(owner.modules())
            if (names := scripted.changed_in(part))
        }

    def __bool__(self) -> bool:
        """Whether there are any."""
        return bool(self._parts)

    def state_dict(self) -> dict[str, Any]:
        """By number of the module and name. Raises UserError for one that no record can carry."""
        state: dict[str, Any] = {}
        for number, (part, names) in self._parts.items():
            for name in names:
                value = getattr(part, name)
                if not _goes_along(value):
                    raise _too_much(part, name)
                state[f"{number}.{name}"] = value
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Set them."""
        filling = Filling([*self._owner.parameters(), *self._owner.buffers()])
        for key, value in state.items():
            number, _, name = key.partition(".")
            part, _ = self._parts.get(number, (None, ()))
            if part is not None and not _is_filled(part, name, value):
                filling.put(part, name, value)


def _is_filled(part: Any, name: str, value: object) -> bool:
    """Whether it is a tensor, on whichever device, and could take this."""
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


def _goes_along(value: object) -> bool:
    """Whether an attribute with this value is sent: what is large is not."""
    if type(value) in _PLAIN:
        return True
    if isinstance(value, nn.Module | nn.Parameter):
        return False
    if isinstance(value, Tensor):
        fits = tensor_bytes.is_plain(value) and value.nbytes <= ATTRIBUTE_BYTES_MAX
        return fits and not hasattr(value, "to_local") and not value.requires_grad
    try:
        return len(encode.encode(value)) <= ATTRIBUTE_BYTES_MAX
    except UserError:
        return False
