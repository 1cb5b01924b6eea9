"""Plain attributes of modules and optimizers that no state_dict has: `self.calls += 1` in forward.

Those that the script's code, or a metric's of some library, stores to after the set-up go with the
rank, as its small state does: numbers, strings, small tensors, and containers of such. What cannot
be sent, or is large, stays; it is compared with that of who takes the rank (`script/variables.py`).
"""

from collections import deque
from collections.abc import Callable, Collection
from typing import Any

import torch
from torch import Tensor, nn

from trainmover.errors import UserError
from trainmover.state import encode, tensor_bytes
from trainmover.torch_internals import modules

ATTRIBUTE_BYTES_MAX = 64 * 1024
Stored = Callable[[object], Collection[str]]
"""Names of the attributes of an object that code stores to after the set-up."""
_ABSENT: Any = object()
_PLAIN = frozenset({type(None), bool, int, float, str, bytes})


class Attributes:
    """Of a tracked module with those inside it, or of an optimizer; an object with the two state
    methods."""

    def __init__(self, owner: nn.Module | torch.optim.Optimizer, stored: Stored) -> None:
        parts = list(owner.modules()) if isinstance(owner, nn.Module) else [owner]
        found = [(part, sorted(set(stored(part)) - _OF_TORCH)) for part in parts]
        self._parts = [(number, part, names) for number, (part, names) in enumerate(found) if names]

    def __bool__(self) -> bool:
        """Whether there may be any."""
        return bool(self._parts)

    def state_dict(self) -> dict[str, Any]:
        """By number of the module and name; a deque as what it is made of."""
        state = {}
        for number, part, names in self._parts:
            held = vars(part)
            for name in names:
                value = held.get(name, _ABSENT)
                if value is not _ABSENT and goes_along(value):
                    state[f"{number}.{name}"] = _sent(value)
        return state

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Set them; containers that are there get the content, so who holds them sees it too."""
        parts = {number: part for number, part, _ in self._parts}
        for key, value in state.items():
            number, _, name = key.partition(".")
            if (part := parts.get(int(number))) is not None:
                put_attribute(part, name, _taken(value))


_OF_TORCH = modules.TABLES | {"training", "state", "param_groups"}
_DEQUE = "deque"


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
        return len(encode.encode(_sent(value))) <= ATTRIBUTE_BYTES_MAX
    except UserError:
        return False


def _sent(value: Any) -> Any:
    if type(value) is deque:
        return (_DEQUE, value.maxlen, list(value))
    return value


def _taken(value: Any) -> Any:
    if type(value) is tuple and len(value) == 3 and value[0] == _DEQUE:
        return deque(value[2], value[1])
    return value


def put_attribute(part: object, name: str, value: Any) -> None:
    """Containers and tensors that are there get the content."""
    held = vars(part).get(name, _ABSENT)
    if type(held) is type(value) and isinstance(held, dict | set):
        held.clear()
        held.update(value)
    elif type(held) is type(value) and isinstance(held, list | deque):
        held.clear()
        held.extend(value)
    elif isinstance(held, Tensor) and isinstance(value, Tensor) and _fits(held, value):
        with torch.no_grad():
            held.copy_(value)
    else:
        setattr(part, name, value)


def _fits(held: Tensor, value: Tensor) -> bool:
    return held.shape == value.shape and held.dtype == value.dtype and not held.requires_grad
