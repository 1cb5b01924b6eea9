"""Gradients that lie on parameters between two steps, as state of their own.

A script may accumulate over several steps and update at every n-th. Then what a step begins with
is part of what it computes: a retry puts it back, and it travels in the rank record, because
without synchronisation each rank has its own.

But most gradients that lie there mean nothing. An update has consumed them, or the next step clears
them at its start (a GAN's second half leaves some on the first), or they belong to no optimizer. So
values count only on parameters of a tracked optimizer that has not updated them in the step before,
and not where steps were only ever seen to clear them: where the gradient a step found was zero, or
another object when that step came to its gate. Elsewhere it counts only that there was a gradient,
because an optimizer passes over parameters that have none; zeros stand for it.
"""

from collections.abc import Callable, Iterable
from typing import Any

import torch
from torch import Tensor, nn

from trainmover.errors import StateMismatch, UserError
from trainmover.state.encode import as_local

BYTES_MAX = 4 * 1024 * 1024
"""They go with every step's record, twice."""


class Gradients:
    """Of the parameters of one module, as an object with the two state methods.

    consumers  parameters, by id, that some optimizer will update
    """

    def __init__(self, module: nn.Module, consumers: Callable[[], set[int]]) -> None:
        self._parameters = list(module.parameters())
        self._consumers = consumers
        self._spent: set[int] = set()  # Parameters, by id, that were updated since the last step.
        self._updating = False
        self._stay = False  # Whether those that are consumed still lie there as the step ends.
        self._pending_at_start: set[int] = set()
        self._found: dict[int, Tensor] = {}
        self._cleared: set[int] = set()
        self._added_to: set[int] = set()
        self._too_late = False

    @property
    def accumulate(self) -> bool:
        """Whether some step was seen to add to what it found."""
        return bool(self._added_to)

    @property
    def kept_bytes(self) -> int:
        """Of gradients that steps add to, as far as some lie there for the next one."""
        if not self._added_to:
            return 0
        return sum(self._parameters[index].nbytes for index in self._added_to & self._pending())

    def begin_step(self) -> None:
        """A step starts: look at what it finds, and forget the updates before it."""
        self._pending_at_start = self._pending()
        self.begin_again()

    def begin_again(self) -> None:
        """It starts once more, with what it found put back."""
        self._spent, self._too_late = set(), False
        found = {index: self._parameters[index].grad for index in self._pending_at_start}
        self._found = {
            index: grad
            for index, grad in found.items()
            if grad is not None and (index in self._added_to or as_local(grad).any())
        }

    def check_kept(self) -> None:
        """Called for an aborted step. Raises StateMismatch if what it found cannot be put back."""
        self.at_gate()
        if self._too_late:
            raise StateMismatch(
                "A step was aborted that, for the first time, has added to gradients left by an "
                "earlier step.",
                means="Those are gone: running it again would give other numbers.",
                do="Start again from a checkpoint, or give the passes that make up one update one "
                "function marked @job.step.",
            )

    def at_gate(self) -> None:
        """See whether the step has added to what it found."""
        for index, gradient in self._found.items():
            if self._parameters[index].grad is not gradient:
                self._cleared.add(index)
            elif index not in self._added_to:
                self._added_to.add(index)
                self._too_late |= index in self._cleared
        self._found = {}

    def spend(self, parameters: Iterable[Tensor]) -> None:
        """An update is about to consume the gradients of these."""
        self._updating = True
        self._spent.update(map(id, parameters))

    def end_step(self) -> None:
        """A step has returned: what is left of those that it has consumed?"""
        if self._updating:
            self._updating = False
            self._stay = any(p.grad is not None for p in self._parameters if id(p) in self._spent)

    def state_dict(self) -> dict[str, Any]:
        """{} if there are none, and none were ever added to.

        values    by index; of a sharded one the local part
        lies      a byte for each parameter: whether it has a gradient, of whatever value; at the
                  gate of an update, whether it will have one, as far as the step before tells
        added_to  which were, by index
        Raises UserError for more than a step's record can carry.
        """
        going = self._spent if self._updating and not self._stay else ()
        lies = bytes([p.grad is not None and id(p) not in going for p in self._parameters])
        if not any(lies) and not self._added_to:
            return {}
        pending = self._pending()
        values = self._values(pending & self._added_to)
        check_size(values.values())
        more = self._values(pending - self._added_to - self._cleared)
        if sum(value.nbytes for value in more.values()) <= BYTES_MAX:
            values |= {index: value for index, value in more.items() if value.any()}
        return {"values": values, "lies": lies, "added_to": sorted(self._added_to)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Make the gradients those."""
        values, lies = state.get("values", {}), state.get("lies", b"")
        self._added_to |= set(state.get("added_to", []))
        self._spent = {id(p) for i, p in enumerate(self._parameters) if i not in values}
        self._updating = False
        for index, parameter in enumerate(self._parameters):
            if index in values:
                parameter.grad = _like(parameter, values[index])
            elif index < len(lies) and lies[index]:
                parameter.grad = torch.zeros_like(parameter)
            else:
                parameter.grad = None

    def _pending(self) -> set[int]:
        """Which have a gradient that an update is still to consume."""
        lying = {
            index
            for index, parameter in enumerate(self._parameters)
            if parameter.grad is not None and id(parameter) not in self._spent
        }
        if not lying:
            return lying
        consumers = self._consumers()
        return {index for index in lying if id(self._parameters[index]) in consumers}

    def _values(self, indices: set[int]) -> dict[int, Tensor]:
        found = {index: self._parameters[index].grad for index in sorted(indices)}
        return {index: as_local(grad) for index, grad in found.items() if grad is not None}


def _like(parameter: Any, local: Tensor) -> Tensor:
    """The gradient of a parameter, from the part that is here."""
    local = local.to(as_local(parameter).device)
    if not hasattr(parameter, "device_mesh"):
        return local
    from torch.distributed.tensor import DTensor

    return DTensor.from_local(
        local,
        parameter.device_mesh,
        parameter.placements,
        run_check=False,
        shape=parameter.shape,
        stride=parameter.stride(),
    )


def check_size(values: Iterable[Tensor]) -> None:
    """Raises UserError for more than a step's record can carry."""
    size = sum(value.nbytes for value in values)
    if size > BYTES_MAX:
        raise UserError(
            f"{size / 1e6:.0f} MB of gradients lie between two steps, for the next one to add to.",
            means="They would have to go with the record of every step; that is too much.",
            do="Give the passes that make up one update one function marked @job.step.",
        )
