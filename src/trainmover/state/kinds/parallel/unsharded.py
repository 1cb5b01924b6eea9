# SPDX-License-Identifier: Apache-2.0
"""Gradients that FSDP2 keeps to itself between two steps, unsharded, on no parameter.

Where a script accumulates without reducing (`set_requires_gradient_sync(False)`), or reduces in
part (`set_requires_all_reduce(False)`), each rank holds gradients of whole parameters, its own,
beside the shards. If a step ends so, the next one adds to them: they are in the rank's record, or
bulk state where they are too large for it, and a retry puts them back. There is no public way to
them.
"""

from collections.abc import Iterable
from typing import Any

from torch import Tensor, nn

from trainmover.state.kinds import gradients
from trainmover.torch_internals.distributed import fsdp

FLAGS = ("reduce_grads", "all_reduce_grads")
"""What the script has set of each group of parameters; it need not set it before every step."""


class Unsharded:
    """Of one tracked module, as an object with the two state methods.

    large  its values as bulk state, while they are too large for a record
    """

    def __init__(self, module: nn.Module) -> None:
        self.large = LargeUnsharded(self)
        self._groups = list(fsdp.groups_of(module))
        self._parameters = [p for group in self._groups for p in fsdp.parameters_of(group)]

    def __bool__(self) -> bool:
        """Whether FSDP2 has to do with the module."""
        return bool(self._groups)

    @property
    def is_gathered(self) -> bool:
        """Whether parameters are whole here for now, as a forward between two steps (an evaluation)
        leaves them. To ask the module for its state lets go of them, on this rank alone."""
        return any(map(fsdp.is_gathered, self._groups))

    def gather_anew(self) -> None:
        """Members are exchanged, and who joins has gathered nothing: all are to do it together."""
        for group in self._groups:
            fsdp.reshard(group)

    def shards(self) -> dict[int, Tensor]:
        """By the id of what the module has of each parameter now."""
        return {id(fsdp.shown_of(one)): fsdp.shard_of(one) for one in self._parameters}

    def values(self) -> dict[str, Tensor]:
        """Live: gradients by number of their parameter, parts by number of their group."""
        found = {f"{n}": fsdp.unsharded_gradient(one) for n, one in enumerate(self._parameters)}
        found |= {f"part {n}": fsdp.partly_reduced(one) for n, one in enumerate(self._groups)}
        return {name: value for name, value in found.items() if value is not None}

    def set_values(self, values: dict[str, Tensor]) -> None:
        """Make them those, and no others: what is here of them a broken-off step has left."""
        for number, group in enumerate(self._groups):
            fsdp.set_partly_reduced(group, values.get(f"part {number}"))
        for number, parameter in enumerate(self._parameters):
            fsdp.set_unsharded_gradient(parameter, values.get(f"{number}"))

    def state_dict(self) -> dict[str, Any]:
        """values: as above, if a record can carry them; else `large`. flags: a byte each."""
        values = self.values()
        large = is_large(values.values())
        flags = [fsdp.flag_of(group, flag) for group in self._groups for flag in FLAGS]
        return {"values": {} if large else values, "large": large, "flags": bytes(flags)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Make them those. Large ones come another way."""
        if not state["large"]:
            self.set_values(state["values"])
        flags = iter(state["flags"])
        for group in self._groups:
            for flag, value in zip(FLAGS, flags, strict=False):
                fsdp.set_flag(group, flag, value=bool(value))


class LargeUnsharded:
    """The values, where they are too large for a record, as bulk state."""

    def __init__(self, unsharded: Unsharded) -> None:
        self._unsharded = unsharded

    def state_dict(self) -> dict[str, Any]:
        """{} while a record can carry them."""
        values = self._unsharded.values()
        return values if is_large(values.values()) else {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """As they were given."""
        self._unsharded.set_values(state)


def is_large(values: Iterable[Tensor]) -> bool:
    """Whether they are more than a step's record carries."""
    return sum(value.nbytes for value in values) > gradients.BYTES_MAX
