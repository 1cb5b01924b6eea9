"""What a retry of a step must put back: RNG, buffers, small tracked state, the batch; what
optimizers are set to, their parameter groups; and variables of the script that code in the step
can store to: globals, closure cells, attributes, and what containers hold."""

from collections import deque
from dataclasses import dataclass
from types import CellType
from typing import Any

import torch
from torch import Tensor, nn
from torch.amp.grad_scaler import GradScaler
from torch.utils import _pytree

from trainmover.errors import StateMismatch
from trainmover.state import rng
from trainmover.state.script.variables import ABSENT, Variables
from trainmover.state.tracked import Tracked
from trainmover.worker.step.copies import Copies

_ARGUMENT_BYTES_MAX = 64 * 1024 * 1024
_VARIABLE_BYTES_MAX = 1024 * 1024
_CONTAINERS = (list, dict, deque, set)


@dataclass
class Buffer:
    """One buffer of one module: the tensor that stood there and a copy of what it held."""

    module: nn.Module
    name: str
    live: Tensor | None
    copy: Tensor | None

    def put_back(self) -> None:
        """The same tensor in its place, with the same content."""
        if self.live is not None and self.copy is not None:
            self.live.copy_(self.copy)
        self.module._buffers[self.name] = self.live


@dataclass
class Before:
    """Taken as a step starts. Copies are small; parameters need none: they change only after the
    commit.

    arguments  (args, kwargs) with tensors cloned, so that a step may normalise its batch in place
    kept       containers among the arguments that hold no tensor: the caller has them too, so they
               are the same ones in every try
    uncopied   tensors that are too large to be cloned, and their versions: they must not change
    variables  those of the script outside of the step: who holds each, its name, and its value
    settings   parameter groups of optimizers: a schedule may go on before the update, a group may
               be added, a parameter frozen
    buffers    of every module, for instance the running mean of a batch-norm: a step may write
               into them or put other tensors in their place
    scalers    what each GradScaler knows of its optimizers (unscaled, stepped): not in its
               state_dict(), and left half way by a step that ended at its gate
    """

    rng_state: bytes
    small: dict[str, bytes]
    settings: Copies
    buffers: list[Buffer]
    scalers: list[tuple[GradScaler, dict[int, dict[str, Any]]]]
    arguments: tuple[Any, Any]
    uncopied: list[tuple[Tensor, int]]
    kept: Copies
    variables: list[tuple[Any, str, Any]]

    @staticmethod
    def take(
        tracked: Tracked, args: Any, kwargs: Any, variables: Variables | None = None
    ) -> "Before":
        """Cost: one RNG capture, the small states, a copy of buffers, batch and variables."""
        uncopied: list[tuple[Tensor, int]] = []
        kept = Copies()
        outside = [] if variables is None else variables.outside()
        for _, _, value in outside:
            _keep(value, kept, uncopied)
        return Before(
            rng.capture(),
            tracked.small_states(),
            _settings(tracked),
            _buffers(tracked),
            _scalers(tracked),
            _cloned((args, kwargs), uncopied, kept),
            uncopied,
            kept,
            outside,
        )

    def restore(self, tracked: Tracked) -> tuple[Any, Any]:
        """Put everything back, drop gradients; gives the arguments to run the step with.

        Raises StateMismatch if an argument that could not be copied was changed.
        """
        _check_unchanged(self.uncopied)
        rng.restore(self.rng_state)
        drop_gradients(tracked)
        self.settings.put_back()
        self.kept.put_back()
        for owner, name, value in self.variables:
            _set(owner, name, value)
        tracked.load_small(self.small)
        with torch.no_grad():
            for buffer in self.buffers:
                buffer.put_back()
        for scaler, states in self.scalers:
            scaler._per_optimizer_states.clear()
            scaler._per_optimizer_states.update(_copied(states))
        args, kwargs = _cloned(self.arguments, [], Copies())
        return args, kwargs


def _keep(value: Any, kept: Copies, uncopied: list[tuple[Tensor, int]]) -> None:
    """What may change in place."""
    if isinstance(value, Tensor):
        if value.requires_grad or value.nbytes > _VARIABLE_BYTES_MAX:
            uncopied.append((value, value._version))
        else:
            kept.add(value)
    elif isinstance(value, _CONTAINERS) and kept.add_container(value):
        entries = value.values() if isinstance(value, dict) else value
        for entry in entries:
            if isinstance(entry, Tensor | list | dict | deque | set):
                _keep(entry, kept, uncopied)


def _set(owner: Any, name: str, value: Any) -> None:
    if isinstance(owner, CellType):
        if value is ABSENT:
            del owner.cell_contents
        else:
            owner.cell_contents = value
    elif not isinstance(owner, dict):
        if value is not ABSENT:
            setattr(owner, name, value)
    elif value is ABSENT:
        owner.pop(name, None)
    else:
        owner[name] = value


def drop_gradients(tracked: Tracked) -> None:
    """What a drained backward left in them is worthless. `Gradients` has those from before."""
    for _, module in tracked.items():
        if isinstance(module, nn.Module):
            for parameter in module.parameters():
                parameter.grad = None


def _settings(tracked: Tracked) -> Copies:
    settings = Copies()
    for optimizer in tracked.optimizers:
        settings.add_container(optimizer.param_groups)
        for group in optimizer.param_groups:
            settings.add_container(group)
            settings.add_container(group["params"])
            settings.add([value for key, value in group.items() if key != "params"])
    return settings


def _buffers(tracked: Tracked) -> list[Buffer]:
    return [
        Buffer(part, name, live, None if live is None else live.detach().clone())
        for part in tracked.modules
        if part._buffers
        for name, live in part._buffers.items()
    ]


def _scalers(tracked: Tracked) -> list[tuple[GradScaler, dict[int, dict[str, Any]]]]:
    return [
        (scaler, _copied(scaler._per_optimizer_states))
        for _, scaler in tracked.items()
        if isinstance(scaler, GradScaler)
    ]


def _copied(states: dict[int, dict[str, Any]]) -> dict[int, dict[str, Any]]:
    return {optimizer: dict(state) for optimizer, state in states.items()}


def _cloned(
    arguments: tuple[Any, Any], uncopied: list[tuple[Tensor, int]], kept: Copies
) -> tuple[Any, Any]:
    """The same structure with tensors copied, where they are; `uncopied` gets those that are not:
    the large ones, and those that belong to a graph. `kept`: see `Before`.
    """

    def clone(value: Any) -> Any:
        if isinstance(value, _CONTAINERS):
            _keep(value, kept, uncopied)
            return value
        if not isinstance(value, Tensor):
            return value
        if value.requires_grad or value.nbytes > _ARGUMENT_BYTES_MAX:
            uncopied.append((value, value._version))
            return value
        return value.clone()

    args, kwargs = arguments
    if not kwargs and all(type(value) is Tensor for value in args):
        return tuple(map(clone, args)), {}  # The usual case needs no walk.
    cloned: tuple[Any, Any] = _pytree.tree_map(clone, arguments, is_leaf=_is_the_callers)
    return cloned


def _is_the_callers(value: Any) -> bool:
    """A container that is no batch: the step may leave something in it for its caller."""
    if not isinstance(value, _CONTAINERS):
        return False
    entries = value.values() if isinstance(value, dict) else value
    return not any(isinstance(entry, (Tensor, tuple, *_CONTAINERS)) for entry in entries)


def _check_unchanged(uncopied: list[tuple[Tensor, int]]) -> None:
    for tensor, version in uncopied:
        if tensor._version != version:
            shape = "x".join(map(str, tensor.shape))
            raise StateMismatch(
                f"The step changed a tensor of shape {shape} in place, and must run again.",
                means="What it was is gone: running it again would give other numbers.",
                do="Have the step work on a copy: arguments that need a gradient, or are larger "
                f"than {_ARGUMENT_BYTES_MAX >> 20} MiB, and variables of more than "
                f"{_VARIABLE_BYTES_MAX >> 20} MiB, are not copied for a retry.",
            )
