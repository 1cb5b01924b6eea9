# SPDX-License-Identifier: Apache-2.0
"""What modules know beside their tensors and do not put into state_dict().

*training*, of every module of a tracked one: a script may switch between train and eval in one
step and rely on it in the next. *trained*, of every parameter: whether it is, or is frozen. *sync*,
of the DistributedDataParallel around them: whether its next forward begins with a broadcast of
buffers. An evaluation without gradients turns that off for one forward; a joiner that knew nothing
of it would broadcast where its peers do not, and wait for ever. *buckets*, of the same: those in
which it sums gradients, which it makes anew once, together with its peers.
"""

import functools
import os
import sys
import weakref
from operator import attrgetter
from typing import Any

from torch import nn
from torch.nn.parallel import DistributedDataParallel

from trainmover.asked import Answers, Stored
from trainmover.state import encode
from trainmover.torch_internals.distributed import ddp, used
from trainmover.torch_internals.tensors import TRAINED

_TRAINING = attrgetter("training")
_Wrapper = weakref.ref[DistributedDataParallel]
_wrappers: list[_Wrapper] = []
_places: weakref.WeakKeyDictionary[DistributedDataParallel, str] = weakref.WeakKeyDictionary()
_made = 0


def watch_wrappers() -> None:
    """Know every DistributedDataParallel made from now on, in order. Call it once a process."""
    make = DistributedDataParallel.__init__

    @functools.wraps(make)
    def init(self: DistributedDataParallel, *args: Any, **kwargs: Any) -> None:
        global _made
        make(self, *args, **kwargs)
        used.know(self)
        caller = sys._getframe(1)
        _places[self] = f"{os.path.basename(caller.f_code.co_filename)} line {caller.f_lineno}"
        _wrappers[:] = [reference for reference in _wrappers if reference() is not None]
        _wrappers.append(weakref.ref(self))
        _made += 1

    DistributedDataParallel.__init__ = init  # type: ignore[method-assign]


def _wrappers_of(parameters: list[nn.Parameter]) -> list[_Wrapper]:
    """Of what they are wrapped in, the newest of each module, in the order they were made.

    No other: one of an earlier run of the script, or one that another has replaced, is gone on one
    rank and not yet collected on the next.
    """
    mine = set(map(id, parameters))
    newest: dict[int, _Wrapper] = {}
    for reference in _wrappers:
        wrapper = reference()
        if wrapper is not None and not mine.isdisjoint(map(id, wrapper.parameters())):
            newest.pop(id(wrapper.module), None)
            newest[id(wrapper.module)] = reference
    return list(newest.values())


def wrappers_of(parameters: list[nn.Parameter]) -> list[DistributedDataParallel]:
    """As above, those that are there."""
    return [one for reference in _wrappers_of(parameters) if (one := reference()) is not None]


class Wrappers:
    """`wrappers_of` these parameters: looked for again once another is made.

    found  when so many had been `made`
    """

    def __init__(self, parameters: list[nn.Parameter]) -> None:
        self._parameters = parameters
        self.made = -1
        self.found: list[_Wrapper] = []

    def references(self) -> list[_Wrapper]:
        if self.made != _made:
            self.made, self.found = _made, _wrappers_of(self._parameters)
        return self.found

    def live(self) -> list[DistributedDataParallel]:
        return [one for reference in self.references() if (one := reference()) is not None]


class Modes:
    """Of one tracked module and of its wrappers, as an object with the two state methods."""

    def __init__(self, module: nn.Module) -> None:
        self.modules = list(module.modules())
        self._parameters = list(module.parameters())
        self._training, self._trained = Stored("training"), Answers(TRAINED)
        self._flags: list[tuple[Any, ...]] = []
        self._encoded = b""
        self._wrappers = Wrappers(self._parameters)

    def learning(self) -> list[str]:
        """File and line of wrappers of a static graph that they have yet to learn. Nobody can be
        given it, and which collectives a backward makes depends on it."""
        found = self._wrappers.live()
        return [_places.get(one, "") for one in found if ddp.learns_its_graph(one)]

    def encoded(self) -> bytes:
        """Its state in bytes; the same ones for as long as no flag is another."""
        flags = []
        # No call but for what is there: this is asked at each step.
        wrappers = self._wrappers
        for reference in wrappers.found if wrappers.made == _made else wrappers.references():
            if (wrapper := reference()) is not None:
                found = ddp.STANDING(wrapper)
                flags.append(found if found[-1] else (*found, ddp.buckets_of(wrapper)))
        known = self._training.same(self.modules) and self._trained.same(self._parameters)
        if not known or flags != self._flags:
            self._training.note(self.modules)
            self._trained.note(self._parameters)
            self._flags, self._encoded = flags, encode.encode(self.state_dict())
        return self._encoded

    def state_dict(self) -> dict[str, Any]:
        """training: a byte per module; trained: per parameter. sync: the flags of each wrapper;
        buckets: as in `ddp.buckets_of`."""
        return {
            "training": bytes(map(_TRAINING, self.modules)),
            "trained": bytes([one.requires_grad for one in self._parameters]),
            "sync": [ddp.flags_of(wrapper) for wrapper in self._wrappers.live()],
            "buckets": [ddp.buckets_of(wrapper) for wrapper in self._wrappers.live()],
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Set them; a process that lacks a module or wrapper leaves it."""
        for module, training in zip(self.modules, state["training"], strict=False):
            module.training = bool(training)
        for parameter, trained in zip(self._parameters, state["trained"], strict=False):
            if parameter.requires_grad != bool(trained):
                parameter.requires_grad_(bool(trained))
        for wrapper, values in zip(self._wrappers.live(), state["sync"], strict=False):
            ddp.set_flags(wrapper, values)
        for wrapper, buckets in zip(self._wrappers.live(), state["buckets"], strict=False):
            ddp.set_buckets(wrapper, buckets)
        self._flags = []  # Other buckets show in none.
