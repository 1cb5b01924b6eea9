# SPDX-License-Identifier: Apache-2.0
"""Buffers of a module that are in no state_dict: those that it registered with persistent=False.

Most are constants that every run of the script makes anew (masks, tables of positions) and stay at
home. One that changes (a counter, a cache of keys) is state of the rank like any other buffer, and
goes with its record from then on. A change shows by the version counter or by another tensor in its
place; in the first steps also by the bytes, since writes through `.data` or numpy count no version.

A script may register one at any time, in forward too: who takes a rank that has such a one, and has
not come by there, gets it with what it holds.
"""

import torch
from torch import Tensor, nn

from trainmover.errors import StateMismatch, UserError
from trainmover.state.kinds.filling import Filling, hold_the_same
from trainmover.state.kinds.modules.registered import Seen, registered, version
from trainmover.state.tensor_bytes import is_plain, size_of
from trainmover.torch_internals.modules import buffers_of, unsaved_of

BYTES_MAX = 4 * 1024 * 1024
"""Of those that change: they go with every step's record, twice."""

_LOOKS = 12
"""So often the bytes are compared as well: a step asks for them three times."""


class _Buffer:
    """One of them, and how it was when it was registered, or its module was tracked; and how it was
    behind the first steps.

    first  how it was registered, if that was later; None: as it is
    """

    def __init__(self, module: nn.Module, name: str, first: Seen | None = None) -> None:
        self._module = module
        self._name = name
        self._settled = self._seen()
        self._first = first or self._settled
        live = self.live
        large = live is None or not is_plain(live) or live.nbytes > BYTES_MAX
        self._copy = None if large or live is None else live.detach().clone()
        self._looks = 0
        self.changes = self.keeps_changing = False

    @property
    def live(self) -> Tensor | None:
        return buffers_of(self._module).get(self._name)

    def _seen(self) -> Seen:
        live = self.live
        return live, version(live)

    def look(self) -> None:
        """By version, and the first times by bytes too."""
        self._looks += 1
        if self._looks > _LOOKS:
            self._look_later()
            return
        self._settled = self._seen()
        self.changes = self.changes or _differ(self._settled, self._first)
        if not self.changes and self._copy is not None and self.live is not None:
            self.changes = not hold_the_same(self.live, self._copy)

    def _look_later(self) -> None:
        self._copy = None
        if not self.keeps_changing and _differ(self._seen(), self._settled):
            self.changes = self.keeps_changing = True

    def put(self, value: Tensor | None) -> None:
        """In its place: the tensor that is there stays, if it has that shape and dtype."""
        live, self.changes = self.live, True
        is_alike = value is not None and live is not None and _form(live) == _form(value)
        if value is not None and live is not None and is_alike:
            here = value.to(live.device)
            if not Filling(self._module.parameters()).filled(live, here):
                buffers_of(self._module)[self._name] = here
        elif value is not None and live is not None:
            buffers_of(self._module)[self._name] = value.to(live.device)
        else:
            buffers_of(self._module)[self._name] = value


class Unsaved:
    """Those of one module that change, as an object with the two state methods.

    Small ones are sent as soon as they have changed once. Of large ones, those that settle in the
    first steps are taken for constants that are made when they are first needed: a shadow run makes
    them too.
    """

    def __init__(self, module: nn.Module) -> None:
        self._module = module
        self._looks = 0
        self._buffers: dict[str, _Buffer] = {}
        self._find(late=False)

    def _find(self, *, late: bool = True) -> None:
        """Those that are there by now. late: some may have come since the module was tracked."""
        self._found_at = registered.buffers
        for path, part in self._module.named_modules():
            for name in unsaved_of(part):
                full = f"{path}.{name}" if path else name
                if full not in self._buffers:
                    first = registered.buffer(part, name) if late else None
                    self._buffers[full] = _Buffer(part, name, first)

    def state_dict(self) -> dict[str, Tensor | None]:
        """Live tensors by name. Raises UserError for more than a step's record can carry."""
        self._looks += 1
        if self._found_at != registered.buffers or self._looks <= _LOOKS:
            self._find()
        if not self._buffers:
            return {}
        for buffer in self._buffers.values():
            buffer.look()
        found = {name: buffer.live for name, buffer in self._buffers.items() if buffer.changes}
        if _size(found) <= BYTES_MAX:
            return found
        found = {name: found[name] for name in found if self._buffers[name].keeps_changing}
        _check_size(found)
        return found

    def load_state_dict(self, state: dict[str, Tensor | None]) -> None:
        """Make them those. Raises StateMismatch where no such module is."""
        if state.keys() - self._buffers.keys():
            self._find()
        with torch.no_grad():
            for name, value in state.items():
                if name not in self._buffers:
                    self._register(name, value)
                self._buffers[name].put(value)

    def _register(self, name: str, value: Tensor | None) -> None:
        path, _, own = name.rpartition(".")
        try:
            part = self._module.get_submodule(path)
            part.register_buffer(own, value, persistent=False)
        except (AttributeError, KeyError) as error:
            raise StateMismatch(
                f"A rank has a buffer `{name}` for which there is no place here: {error}.",
                means="This process cannot take the rank: its model is another one.",
                do="A script must build the same model for a rank wherever it runs.",
            ) from error
        self._buffers[name] = _Buffer(part, own)


def _differ(one: Seen, other: Seen) -> bool:
    return one[0] is not other[0] or one[1] != other[1]


def _form(tensor: Tensor) -> tuple[torch.Size, torch.dtype]:
    return tensor.shape, tensor.dtype


def _size(found: dict[str, Tensor | None]) -> int:
    return sum(0 if tensor is None else size_of(tensor) for tensor in found.values())


def _check_size(found: dict[str, Tensor | None]) -> None:
    size = _size(found)
    if size > BYTES_MAX:
        first = max(found, key=lambda name: 0 if (t := found[name]) is None else size_of(t))
        raise UserError(
            f"Steps change buffers with persistent=False of {size / 1e6:.0f} MB, `{first}` above "
            "all.",
            means="They are in no state_dict, and too large to go with the record of every step: "
            "a rank that is taken over would go on with others.",
            do=f"Register `{first}` as a persistent buffer, or make it anew in each step.",
        )
