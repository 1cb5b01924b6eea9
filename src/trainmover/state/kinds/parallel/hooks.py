# SPDX-License-Identifier: Apache-2.0
"""What DistributedDataParallel's communication hooks keep from step to step, as state of its own.

`register_comm_hook(state, hook)` gives a hook an object to remember things in: PowerSGD its error
feedback and its last projections, PostLocalSGD a counter. It changes as gradients are made, that is
before a step's gate, and mostly each rank has its own. So it is put back by a retry and goes with
the rank's record, as buffers do. Of the object everything is taken that is a plain value, a tensor,
a random generator, or a container or object of such. Functions, groups, modules and optimizers
stay as they are: mostly they are the same on every run of the script. Whether they are is for the
search of variables to tell, as of all that is not sent.
"""

import functools
import os
import random
import sys
import types
import weakref
from collections.abc import Callable, Iterator, Sequence
from contextlib import suppress
from typing import Any

import numpy
import torch
from torch import Tensor, nn
from torch.distributed import ProcessGroup
from torch.distributed.algorithms.ddp_comm_hooks.powerSGD_hook import PowerSGDState
from torch.nn.parallel import DistributedDataParallel

from trainmover.errors import StateMismatch, UserError
from trainmover.state.kinds.filling import Filling

BYTES_MAX = 4 * 1024 * 1024
"""Of the tensors of one hook: they go with every step's record, twice."""

_PLAIN = (type(None), bool, int, float, complex, str, bytes, torch.dtype, torch.device, torch.Size)
_SAME = (
    *(type, types.FunctionType, types.BuiltinFunctionType, types.MethodType, types.ModuleType),
    *(functools.partial, ProcessGroup, nn.Module, torch.optim.Optimizer),
)
_GENERATORS = (numpy.random.RandomState, numpy.random.Generator, random.Random, torch.Generator)
_VALUE, _OBJECT, _DICT, _LIST, _GENERATOR, _STAYS = "value", "object", "dict", "list", "rng", "same"
_AGAIN = "again"
"""With the number of what was come to before, of objects and containers."""

_Taken = list[Any]
"""A kind, and what is to be kept of a value of it."""


class _Hook:
    """One that was registered with a state. place: file and line of the script"""

    def __init__(self, wrapper: DistributedDataParallel, state: Any, place: str) -> None:
        self.wrapper = weakref.ref(wrapper)
        self.state = state
        self.place = place


_hooks: list[_Hook] = []


def watch_hooks() -> None:
    """Know every hook that is registered from now on. Call it once a process."""
    register = DistributedDataParallel.register_comm_hook

    @functools.wraps(register)
    def registering(self: DistributedDataParallel, state: object, hook: Callable[..., Any]) -> None:
        caller = sys._getframe(1)
        place = f"{os.path.basename(caller.f_code.co_filename)} line {caller.f_lineno}"
        known = _Hook(self, state, place)
        _check_feedback(self, known)
        register(self, state, hook)
        if not isinstance(state, (*_SAME, type(None))):
            _hooks.append(known)

    DistributedDataParallel.register_comm_hook = registering  # type: ignore[method-assign]


def forget_hooks() -> None:
    """The run of the script that has registered them is over."""
    _hooks.clear()


class Hooks:
    """States of the hooks of all wrappers in or around one module, with the two state methods."""

    any: Sequence[object] = _hooks
    """Empty: no hook of any module has a state, and nobody need be asked."""

    def __init__(self, module: nn.Module) -> None:
        self._module = module

    def state_dict(self) -> dict[str, Any]:
        """{} if no hook has a state.

        Raises UserError for one that holds what cannot be sent, or more than a record can carry.
        """
        own = list(self._own()) if _hooks else []
        if not own:
            return {}
        return {"hooks": [_Taking(hook).whole() for hook in own]}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Make theirs what was given; who lacks a hook here is refused."""
        own, given = list(self._own()), state.get("hooks", [])
        if len(own) < len(given):
            raise StateMismatch(
                "The source has registered a communication hook that is missing here.",
                means="This process cannot take the rank: it built something else.",
                do="Register hooks in every run of the script, before its first step.",
            )
        for hook, taken in zip(own, given, strict=False):
            _Putting().put(hook.state, taken)

    def _own(self) -> Iterator[_Hook]:
        for hook in _hooks:
            wrapper = hook.wrapper()
            if wrapper is not None and _are_related(wrapper, self._module):
                yield hook

    def holders(self) -> Iterator[tuple[object, bool]]:
        """Objects and containers whose content goes along, and what their attributes are kept in;
        with whether all of it does. (Of an object each attribute is looked at by itself.) Of a
        state that cannot be sent none."""
        for hook in self._own():
            taking = _Taking(hook)
            with suppress(UserError):
                taking.whole()
                for number, one in enumerate(taking.seen):
                    yield one, number not in taking.partly
                    if (held := getattr(one, "__dict__", None)) is not None:
                        yield held, True


def stays(value: object) -> bool:
    """Whether it is never sent: who takes a rank has one of its own there."""
    return isinstance(value, _SAME)


def _are_related(wrapper: DistributedDataParallel, module: nn.Module) -> bool:
    inside = any(part is module for part in wrapper.modules())
    return inside or any(part is wrapper for part in module.modules())


class _Taking:
    """One walk through a hook's state.

    seen    the objects and containers on its way
    partly  numbers of those containers in which, or in one within, something stays
    """

    def __init__(self, hook: _Hook) -> None:
        self._hook = hook
        self._bytes = 0
        self.seen: list[object] = []
        self.partly: set[int] = set()

    def whole(self) -> _Taken:
        taken = self._take(self._hook.state, "state")
        if self._bytes > BYTES_MAX:
            raise _too_large(self._hook.place, self._bytes)
        return taken

    def _take(self, value: Any, path: str) -> _Taken:
        if isinstance(value, (Tensor, numpy.ndarray)):
            self._bytes += value.nbytes
            return [_VALUE, value]
        if type(value) in _PLAIN or isinstance(value, numpy.generic):
            return [_VALUE, value]
        if isinstance(value, _GENERATORS):
            return [_GENERATOR, _generator_state(value)]
        if isinstance(value, _SAME):
            return [_STAYS, None]
        again = next((n for n, known in enumerate(self.seen) if value is known), None)
        if again is not None:
            return [_AGAIN, again]
        number = len(self.seen)
        self.seen.append(value)
        if isinstance(value, dict):
            pairs = [[key, self._take(entry, f"{path}[{key!r}]")] for key, entry in value.items()]
            self._note(number, [taken for _, taken in pairs])
            return [_DICT, pairs]
        if isinstance(value, (list, tuple, set)):
            entries = [self._take(entry, f"{path}[{at}]") for at, entry in enumerate(value)]
            self._note(number, entries)
            return [_LIST, entries]
        if names := _attributes(value):
            taken = {name: self._take(getattr(value, name), f"{path}.{name}") for name in names}
            return [_OBJECT, taken, type(value).__qualname__]
        raise _not_plain(self._hook.place, path, value)

    def _note(self, number: int, entries: list[_Taken]) -> None:
        """Of a container what became of its entries."""
        if any(self._is_partly(taken) for taken in entries):
            self.partly.add(number)

    def _is_partly(self, taken: _Taken) -> bool:
        kind, given, *_ = taken
        if kind == _AGAIN:
            return given in self.partly
        inside = [entry for _, entry in given] if kind == _DICT else given
        return kind == _STAYS or (kind in (_DICT, _LIST) and any(map(self._is_partly, inside)))


def _attributes(value: object) -> list[str]:
    """Those that the object itself has, in slots too; [] for a thing of C without any."""
    slots = [
        name
        for kind in type(value).__mro__
        for name in _slots(kind)
        if name not in ("__dict__", "__weakref__") and hasattr(value, name)
    ]
    return [*slots, *getattr(value, "__dict__", {})]


def _slots(kind: type) -> tuple[str, ...]:
    names = kind.__dict__.get("__slots__", ())
    return (names,) if isinstance(names, str) else tuple(names)


class _Putting:
    """One walk through what was taken. Objects, dicts, lists and memory that are here take it in
    their place; what was one object there is one here."""

    def __init__(self) -> None:
        self._put: list[Any] = []  # As `_Taking.seen`.
        self._filling = Filling()

    def put(self, live: Any, taken: _Taken) -> Any:
        """What is to be there."""
        kind, given, *of = taken
        if kind == _STAYS:
            return live
        if kind == _AGAIN:
            return self._put[given]
        if kind == _VALUE:
            return self._value(live, given)
        if kind in (_GENERATOR, _OBJECT) and live is None:
            raise StateMismatch(
                "The state of a communication hook holds an object that is missing here.",
                means="This process cannot take the rank: its gradients would be reduced "
                "otherwise.",
                do="Make all that a hook's state holds as it is made, and not in a later step.",
            )
        if kind == _GENERATOR:
            _set_generator(live, given)
            return live
        if kind == _OBJECT and of != [type(live).__qualname__]:
            raise StateMismatch(
                f"The state of a communication hook holds a {of[0]} where a "
                f"{type(live).__qualname__} is here.",
                means="This process cannot take the rank: its gradients would be reduced "
                "otherwise.",
                do="Keep objects of one class there, and numbers or texts that say what they do.",
            )
        number = len(self._put)
        self._put.append(live)
        if kind == _OBJECT:
            for name, entry in given.items():
                setattr(live, name, self.put(getattr(live, name, None), entry))
            return live
        content = self._dict if kind == _DICT else self._list
        self._put[number] = whole = content(live, given, number)
        return whole

    def _value(self, live: Any, given: Any) -> Any:
        if isinstance(live, Tensor | numpy.ndarray) and self._filling.filled(live, given):
            return live
        return given.to(live.device) if isinstance(live, Tensor) else given

    def _dict(self, live: Any, given: list[Any], number: int) -> dict[Any, Any]:
        own: dict[Any, Any] = live if isinstance(live, dict) else {}
        self._put[number] = own
        entries = {key: self.put(own.get(key), entry) for key, entry in given}
        own.clear()
        own.update(entries)
        return own

    def _list(self, live: Any, given: list[_Taken], number: int) -> Any:
        before = list(live) if isinstance(live, (list, tuple)) else []
        before += [None] * (len(given) - len(before))
        entries = [self.put(own, entry) for own, entry in zip(before, given, strict=False)]
        if isinstance(live, list):
            live[:] = entries
            return live
        return type(live)(entries) if isinstance(live, (tuple, set)) else entries


def _generator_state(generator: Any) -> Any:
    if isinstance(generator, torch.Generator):
        return generator.get_state()
    if isinstance(generator, random.Random):
        return generator.getstate()
    if isinstance(generator, numpy.random.Generator):
        return generator.bit_generator.state
    return generator.get_state(legacy=False)


def _set_generator(generator: Any, state: Any) -> None:
    if isinstance(generator, torch.Generator):
        generator.set_state(state)
    elif isinstance(generator, random.Random):
        generator.setstate(state)
    elif isinstance(generator, numpy.random.Generator):
        generator.bit_generator.state = state
    else:
        generator.set_state(state)


def _check_feedback(wrapper: DistributedDataParallel, hook: _Hook) -> None:
    """PowerSGD begins only after many steps to keep as much as all gradients: say so at once."""
    state = hook.state
    if isinstance(state, PowerSGDState) and state.use_error_feedback:
        size = sum(p.nbytes for p in wrapper.parameters() if p.requires_grad)
        if size > BYTES_MAX:
            raise _too_large(hook.place, size)


def _too_large(place: str, size: int) -> UserError:
    return UserError(
        f"The state of the communication hook registered at {place} holds {size / 1e6:.0f} MB.",
        means="Each rank has its own, so it would have to go with the record of every step; that "
        "is too much.",
        do=f"Keep less than {BYTES_MAX >> 20} MiB in it. For PowerSGD: use_error_feedback=False, "
        "warm_start=False.",
    )


def _not_plain(place: str, path: str, value: object) -> UserError:
    kind = f"{type(value).__module__}.{type(value).__qualname__}"
    return UserError(
        f"The communication hook registered at {place} keeps a {kind} in `{path}`.",
        means="It cannot be sent, so a rank that is taken over would reduce other gradients.",
        do="Keep numbers, tensors, generators and containers of them in a hook's state.",
    )
