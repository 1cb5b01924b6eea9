# SPDX-License-Identifier: Apache-2.0
"""What the parameter groups of an optimizer are set to: learning rate, momentum, weight decay.

They are in the state_dict() of most optimizers, which comes from another rank. But that one may be
in its next step already, and a script sets a rate between the fetch of a batch and its step: so
what they were at the fetch goes with the rank's own record.

A list of betas may be one for all groups, and the script's own besides: `betas[0] *= 0.99` changes
them together. So a list that is here is filled, as a tensor is, and which of them are one is told.
"""

from collections import deque
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy
import torch
from torch import Tensor

from trainmover.asked import Held, are, held_in
from trainmover.errors import StateMismatch
from trainmover.state import encode
from trainmover.state.kinds.filling import filled

_PLAIN = frozenset({type(None), bool, int, float, str})
_LISTS = frozenset({tuple, list, deque, set, frozenset})
_CHANGE = (list, deque, set, dict, Tensor, numpy.ndarray)


class Settings:
    """Of one optimizer, with the two state methods. What is no number, word, array or tensor, nor a
    collection of such, stays where it is."""

    def __init__(self, optimizer: torch.optim.Optimizer) -> None:
        self.optimizer = optimizer
        self._groups: list[dict[str, Any]] = []
        self._held: Held | None = None  # In these groups, of what cannot change in place.
        self._encoded = b""

    def encoded(self) -> bytes:
        """Its state in bytes; the same ones for as long as nothing is set to another value."""
        groups = self.optimizer.param_groups
        if self._held is not None and are([*groups], self._groups) and self._held.same():
            return self._encoded
        self._groups, self._held = [*groups], None
        values = [value for group in groups for name, value in group.items() if name != "params"]
        if all([type(value) in _PLAIN or _stays(value) for value in values]):
            self._held = held_in(self._groups)
        self._encoded = encode.encode(self.state_dict())
        return self._encoded

    def state_dict(self) -> dict[str, Any]:
        """Live values, and the places of those that are one object."""
        groups = [_settings(group) for group in self.optimizer.param_groups]
        one = _that_are_one(groups)
        return {"groups": groups, "one": one} if one else {"groups": groups}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Set them. On its way to a later step a rank may have groups already that it had not
        then: they stay as they are. Raises StateMismatch if it is the other way round."""
        groups, given = self.optimizer.param_groups, state["groups"]
        if len(given) > len(groups):
            raise StateMismatch(
                f"The source has set {len(given)} parameter groups of its "
                f"{type(self.optimizer).__name__} optimizer, there are {len(groups)} here.",
                means="This process cannot take the rank: it built something else.",
                do="A script must build the same objects for a rank wherever it runs.",
            )
        self.load_what_is_here(state)

    def load_what_is_here(self, state: dict[str, Any]) -> None:
        """The same of the groups that there are."""
        groups, given = self.optimizer.param_groups, state["groups"]
        here, there = _that_are_one(map(_settings, groups[: len(given)])), state.get("one", [])
        parted = [place for places in here if places not in there for place in places]
        for number, (group, settings) in enumerate(zip(groups, given, strict=False)):
            for name, value in settings.items():
                if [number, name] in parted or not filled(group.get(name), value):
                    group[name] = value
        for (first, name), *others in there:
            for number, other in others:
                if max(first, number) < len(groups):
                    groups[number][other] = groups[first][name]

    @contextmanager
    def shown_as(self, state: dict[str, Any]) -> Iterator[None]:
        """Whoever looks at the groups while this lasts finds them set so. Tensors that are set
        otherwise are others then, which keep their values when this is over."""
        groups = self.optimizer.param_groups
        before = [dict(group) for group in groups]
        try:
            for group, settings in zip(groups, state["groups"], strict=False):
                for name, value in settings.items():
                    group[name] = _beside(group.get(name), value)
            yield
        finally:
            for group, old in zip(groups, before, strict=True):
                group.clear()
                group.update(old)


def _that_are_one(groups: Iterable[dict[str, Any]]) -> list[list[list[Any]]]:
    """Places, of group and name, of each object that has several and can change in place."""
    places: dict[int, list[list[Any]]] = {}
    for number, group in enumerate(groups):
        for name, value in group.items():
            if isinstance(value, _CHANGE):
                places.setdefault(id(value), []).append([number, name])
    return [its for its in places.values() if len(its) > 1]


def _beside(own: object, value: object) -> object:
    """The value, with tensors where the own ones lie."""
    if isinstance(value, Tensor):
        return value.to(own.device) if isinstance(own, Tensor) else value
    if isinstance(value, tuple | list) and isinstance(own, tuple | list):
        return type(value)(map(_beside, own, value)) if len(own) == len(value) else value
    return value


def _settings(group: dict[str, Any]) -> dict[str, Any]:
    return {
        name: one
        for name, one in group.items()
        if type(one) in _PLAIN or (name != "params" and _can_go_along(one))
    }


def _stays(value: object) -> bool:
    """Whether it is another object once it is another value."""
    if type(value) in _PLAIN or isinstance(value, numpy.number):
        return True
    return type(value) is tuple and (_PLAIN.issuperset(map(type, value)) or all(map(_stays, value)))


def _can_go_along(value: object) -> bool:
    kind = type(value)
    if kind in _LISTS:
        entries: list[object] = value  # type: ignore[assignment]
        return _PLAIN.issuperset(map(type, entries)) or all(map(_can_go_along, entries))
    if kind is dict:
        named: dict[object, object] = value  # type: ignore[assignment]
        return all(map(_can_go_along, named)) and all(map(_can_go_along, named.values()))
    return kind in _PLAIN or kind is Tensor or isinstance(value, numpy.generic | numpy.ndarray)
