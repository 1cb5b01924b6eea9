"""Gradients that FSDP2 keeps to itself between two steps, unsharded, on no parameter.

Where a script accumulates without reducing (`set_requires_gradient_sync(False)`), each rank holds
the gradients of whole parameters, its own, beside the shards. If a step ends so, the next one adds
to them: they are in the rank's record, and a retry puts them back. There is no public way to them.
"""

from collections.abc import Iterable, Iterator
from typing import Any

from torch import Tensor, nn

from trainmover.errors import UserError
from trainmover.state.gradients import check_size

FLAGS = ("reduce_grads", "all_reduce_grads")
"""What the script has set of each group of parameters; it need not set it before every step."""


class Unsharded:
    """Of one tracked module, as an object with the two state methods."""

    def __init__(self, module: nn.Module) -> None:
        self._groups = list(groups_of(module))
        self._parameters = [p for group in self._groups for p in group.fsdp_params]

    def __bool__(self) -> bool:
        """Whether FSDP2 has to do with the module."""
        return bool(self._groups)

    def state_dict(self) -> dict[str, Any]:
        """values: gradients by number of their parameter; flags: a byte each.

        Raises UserError for what a record cannot carry.
        """
        found = {n: _gradient(one) for n, one in enumerate(self._parameters)}
        values = {n: gradient for n, gradient in found.items() if gradient is not None}
        check_size(values.values())
        if any(
            getattr(group, "_partial_reduce_output", None) is not None for group in self._groups
        ):
            raise UserError(
                "A step has ended with gradients that are reduced in part "
                "(set_requires_all_reduce(False)).",
                means="If this rank were lost, or the next step made again, they would be missing.",
                do="Give the passes that make up one update one function marked @job.step.",
            )
        flags = [bool(getattr(group, flag, True)) for group in self._groups for flag in FLAGS]
        return {"values": values, "flags": bytes(flags)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Make the gradients those: what is here of others, a broken-off step has left."""
        for group in self._groups:
            group._partial_reduce_output = None
        for number, parameter in enumerate(self._parameters):
            value = state["values"].get(number)
            parameter.unsharded_accumulated_grad = (
                None if value is None else value.to(parameter.device)
            )
            if (whole := getattr(parameter, "_unsharded_param", None)) is not None:
                whole.grad = None
        flags = iter(state["flags"])
        for group in self._groups:
            for flag, value in zip(FLAGS, flags, strict=False):
                setattr(group, flag, bool(value))


def groups_of(module: nn.Module) -> Iterator[Any]:
    """Groups of parameters that FSDP2 gathers together."""
    parts: Iterable[Any] = module.modules()
    for part in parts:
        if hasattr(part, "_get_fsdp_state"):
            state = part._get_fsdp_state()
            several = getattr(state, "_fsdp_param_groups", None)  # One, before torch 2.12.
            yield from several if several is not None else filter(None, [state._fsdp_param_group])


def _gradient(parameter: Any) -> Tensor | None:
    """In whichever of the two places: accumulated in another type, or as autograd made it."""
    accumulated: Tensor | None = parameter.unsharded_accumulated_grad
    if accumulated is not None:
        return accumulated
    whole = getattr(parameter, "_unsharded_param", None)
    return None if whole is None else whole.grad
